"""enter_scopes: scopes are entered while the graph runs."""

from __future__ import annotations

import torch
from torch import Tensor

from jit_amp import _C

from .ir import operators


def nested(x: Tensor):
    y = x @ x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = y @ x
        with torch.autocast("cpu", enabled=False):
            y = y.float() @ x
        return y.relu()


def none(x: Tensor):
    return x @ x


def flat(function: object) -> torch._C.Graph:
    return _C.flattened(torch.jit.script(function), "fix_attributes")


def test_scopes_become_calls_in_their_places() -> None:
    graph = flat(nested)
    assert _C.run_pass("enter_scopes", graph, {}, False)
    wanted = {"jit_amp::enter_scope", "jit_amp::exit_scope", "aten::matmul", "aten::relu"}
    enter, leave, product = "jit_amp::enter_scope", "jit_amp::exit_scope", "aten::matmul"
    assert [kind for kind in operators(graph) if kind in wanted] == [
        product, enter, product, enter, product, leave, "aten::relu", leave,
    ]  # fmt: skip


def test_no_cast_is_put_in_and_no_object_is_left() -> None:
    graph = flat(nested)
    _C.run_pass("enter_scopes", graph, {}, False)
    assert not {"jit_amp::cast", "prim::CreateObject", "prim::Enter"} & set(operators(graph))


def test_what_has_no_scope_stays() -> None:
    graph = flat(none)
    before = str(graph)
    assert not _C.run_pass("enter_scopes", graph, {}, False)
    assert str(graph) == before
