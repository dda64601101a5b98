"""flatten: one graph of all that a call runs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jit_amp import _C

from .ir import operators


def halved(x: Tensor):
    return x / 2


def calls(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return halved(x) @ halved(x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def forward(self, x: Tensor):
        return self.inner(x)


def test_calls_are_inlined_and_scopes_are_kept() -> None:
    scripted = torch.jit.script(calls)
    before = str(scripted.graph)
    found = operators(_C.flattened(scripted, "flatten"))
    assert "prim::CallFunction" not in found
    assert found.count("aten::div") == 2
    assert found.count("prim::Enter") == found.count("prim::Exit") == 1
    assert "prim::CallMethod" in found  # makes the autocast object: the analysis of scopes reads it
    assert str(scripted.graph) == before


def test_methods_of_submodules_are_inlined() -> None:
    found = operators(_C.flattened(torch.jit.script(Outer())._c, "flatten"))
    assert "prim::CallMethod" not in found
    assert {"aten::linear", "aten::relu"} <= set(found)


def test_the_line_of_the_caller_is_kept() -> None:
    graph = _C.flattened(torch.jit.script(calls), "flatten")
    [node, *_] = graph.findAllNodes("aten::div")
    assert "test_flatten.py" in node.sourceRange()


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

    def forward(self, x: Tensor):
        for layer in self.layers:
            x = layer(x)
        return x


def test_a_loop_over_modules_is_written_out() -> None:
    found = operators(_C.flattened(torch.jit.script(Chosen())._c, "flatten"))
    assert found.count("aten::linear") == 2
