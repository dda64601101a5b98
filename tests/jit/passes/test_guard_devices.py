"""guard_devices: a frozen module looks at each call whether its weights are where they were.

Taken from frozen modules, since what the pass looks at is what freezing has made.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from .ir import nodes_of

SAYS = "frozen with weights on cpu, and they are on meta"


class Net(nn.Module):
    """A large weight, a small one, and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x) * self.scale


class WithoutScopes(Net):
    def forward(self, x: Tensor):
        return self.linear(x) * self.scale


class WithoutWeights(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x


def frozen(net: nn.Module, **how: Any) -> Any:
    return jit_amp.freeze(net.eval(), **how)


def asked(graph: torch._C.Graph) -> list[torch._C.Node]:
    """The constants whose device the graph asks for."""
    return [
        next(node.inputs()).node()
        for node in nodes_of(graph)
        if node.kind() == "prim::device" and next(node.inputs()).node().hasAttribute("value")
    ]


@pytest.mark.parametrize("target", ["portable", "server"])
def test_weights_that_were_moved_raise(target: Any) -> None:
    """Loading moves all constants; here the one that is looked at (test_devices.py loads)."""
    x = torch.rand(4, 64)
    module = frozen(Net(), example_inputs=(x,), target=target)
    with torch.no_grad():
        for _ in range(3):
            assert module(x).dtype == torch.bfloat16
    graph = module.graph.copy()
    [probe] = asked(graph)
    probe.t_("value", probe.t("value").to("meta"))
    function = torch._C._create_function_from_graph("case", graph)
    with torch.no_grad(), pytest.raises(torch.jit.Error, match=SAYS):
        function(module._c, x)


def test_it_looks_at_a_small_weight() -> None:
    """Not at one that pack_weights would have to keep for it, nor at a number."""
    module = frozen(Net())
    assert [node.t("value").shape for node in asked(module.graph)] == [(64,)]


@pytest.mark.parametrize(
    ("make", "how"),
    [
        (WithoutScopes, {}),  # nothing was decided by a device
        (WithoutWeights, {}),
        (Net, {"check_inputs": False}),
    ],
)
def test_nothing_to_look_at(make: type[nn.Module], how: dict[str, Any]) -> None:
    assert not asked(frozen(make(), **how).graph)
