"""check_freezable: what PyTorch's freezing fails on is refused."""

import pytest
import torch
from torch import Tensor, nn

from jit_amp import _C, AutocastError

from .ir import unchanged


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, input: Tensor) -> Tensor:
        pass


class ByNumber(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

    def forward(self, x: Tensor, i: int):
        layer: Layer = self.layers[i]
        return layer.forward(x)


class Assigning(nn.Module):
    layer: Layer
    other: Layer

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.other = nn.Linear(2, 2)

    def forward(self, x: Tensor):
        self.layer = self.other
        return self.layer(x)


@pytest.mark.parametrize(
    ("module", "message"), [(ByNumber, "chosen at run time"), (Assigning, "`layer`")]
)
def test_it_is_refused(module: type[nn.Module], message: str) -> None:
    graph = _C.flattened(torch.jit.script(module())._c, "flatten")
    before = str(graph)
    with pytest.raises(AutocastError, match=message):
        _C.run_pass("check_freezable", graph, {}, True)
    assert str(graph) == before


def test_all_else_is_left_as_it_is() -> None:
    unchanged(
        "check_freezable",
        """
        graph(%x : Tensor):
          %y : Tensor = aten::relu(%x)
          return (%y)
        """,
    )
