"""write_devices: lists of devices, which PyTorch's freezing fails on, become constants.

The pass takes a whole module: it is seen in what freezing makes.
"""

from typing import Any, Dict, List, NamedTuple, Tuple  # noqa: UP035  # as TorchScript reads them

import pytest
import torch
from torch import Tensor, nn

import jit_amp

CPU, META = torch.device("cpu"), torch.device("meta")


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def product(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Listed(Base):
    devices: List[torch.device]  # noqa: UP006

    def __init__(self) -> None:
        super().__init__()
        self.devices = [CPU, META]

    def forward(self, x: Tensor):
        return self.product(x), self.devices[1], len(self.devices)


class ByName(Base):
    devices: Dict[str, Tuple[torch.device, int]]  # noqa: UP006

    def __init__(self) -> None:
        super().__init__()
        self.devices = {"here": (CPU, 1), "there": (META, 2)}

    def forward(self, x: Tensor):
        device, number = self.devices["there"]
        return self.product(x), device, number


class Pair(NamedTuple):
    device: torch.device
    number: int


class Named(Base):
    pairs: List[Pair]  # noqa: UP006

    def __init__(self) -> None:
        super().__init__()
        self.pairs = [Pair(CPU, 1), Pair(META, 2)]

    def forward(self, x: Tensor):
        return self.product(x), self.pairs[1].device, self.pairs[1].number


class Unread(Listed):
    def forward(self, x: Tensor):
        return self.product(x)


class Below(nn.Module):
    """The list is that of a submodule, whose method reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Listed()

    def forward(self, x: Tensor):
        return self.inner(x)


class Grows(Listed):
    def forward(self, x: Tensor):
        self.devices.append(x.device)
        return self.product(x), len(self.devices)


class Replaced(Listed):
    def forward(self, x: Tensor):
        self.devices = [x.device]
        return self.product(x), len(self.devices)


def agree(module: Any, expected: Any, x: Tensor) -> None:
    for _ in range(3):
        given = module(x)
        pairs = (
            zip(given, expected, strict=True) if type(expected) is tuple else [(given, expected)]
        )
        for ours, eagers in pairs:
            if isinstance(ours, Tensor):
                torch.testing.assert_close(ours, eagers, rtol=0, atol=0)
            else:
                assert ours == eagers


@pytest.mark.parametrize("make", [Listed, ByName, Named, Unread, Below])
def test_the_graph_makes_it(make: type[nn.Module]) -> None:
    module, x = make().eval(), torch.rand(2, 4)
    with torch.no_grad():
        expected = module(x)
        scripted = jit_amp.script(module)
        agree(jit_amp.freeze(scripted), expected, x)
        agree(scripted, expected, x)  # what was given stays as it was


@pytest.mark.parametrize("make", [Grows, Replaced])
def test_what_is_written_to_is_refused(make: type[nn.Module]) -> None:
    scripted, x = jit_amp.script(make().eval()), torch.rand(2, 4)
    with pytest.raises(jit_amp.AutocastError, match="type Device"):
        jit_amp.freeze(scripted)
    assert scripted(x)[0].dtype == torch.bfloat16
