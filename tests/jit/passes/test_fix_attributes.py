"""fix_attributes: attributes that a scope rests on are constants."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from jit_amp import _C, AutocastError

from .ir import nodes_of


class Switched(nn.Module):
    def __init__(self, on: bool = True) -> None:
        super().__init__()
        self.on = on
        self.scale = 2.0

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.on):
            return x @ x * self.scale


class Assigning(Switched):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.on):
            self.on = not self.on
            return x @ x


def attributes(module: nn.Module, last: str) -> list[str]:
    graph = _C.flattened(torch.jit.script(module)._c, last)
    return [n.s("name") for n in nodes_of(graph) if n.kind() == "prim::GetAttr" and n.hasUses()]


@pytest.mark.parametrize("on", [True, False])
def test_what_a_scope_takes_is_a_constant(on: bool) -> None:
    module = Switched(on)
    assert sorted(attributes(module, "fold_constants")) == ["on", "scale"]
    assert attributes(module, "fix_attributes") == ["scale"]
    graph = _C.flattened(torch.jit.script(module)._c, "fix_attributes")
    assert f"aten::matmul cpu={'BFloat16' if on else 'off'}" in _C.scopes_of(graph, {})


def test_one_that_the_module_assigns_is_refused() -> None:
    with pytest.raises(AutocastError, match="on"):
        attributes(Assigning(), "fix_attributes")
