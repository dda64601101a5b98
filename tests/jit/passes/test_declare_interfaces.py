"""declare_interfaces: the type of what a preserved module has behind an interface."""

from pathlib import Path

import torch
from torch import Tensor, nn

import jit_amp


@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Part(nn.Module):
    inner: Step

    def __init__(self) -> None:
        super().__init__()
        self.inner = Layer()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner.forward(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Part()

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x)


def test_the_file_of_a_preserved_module_with_one_behind_an_interface(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(2, 4)
    frozen = jit_amp.freeze(net, ["part"])
    frozen.save(str(tmp_path / "net.pt"))
    loaded = torch.jit.load(str(tmp_path / "net.pt"))
    for _ in range(3):
        assert torch.equal(loaded(x), net(x))
        assert torch.equal(loaded.part(x), net.part(x))
