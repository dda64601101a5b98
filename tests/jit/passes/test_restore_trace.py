"""restore_trace: a source graph of what the tracer has recorded."""

from __future__ import annotations

import pytest
import torch

from jit_amp import _C, AutocastError
from jit_amp._source import scope_template

from .ir import nodes_of, operators, parse

PATTERN = torch.jit.script(scope_template.scope).graph

SCOPE = """
    graph(%x : Tensor):
      %none : NoneType = prim::Constant()
      %no : bool = prim::Constant[value=0]()
      %lower : int = prim::Constant[value=15]()
      jit_amp::enter[scope=0, device_type="cpu", dtype=15, dtype_given=1, enabled=1]()
      %c : Tensor = aten::to[of_autocast=-1](%x, %lower, %no, %no, %none)
      %d : Tensor = aten::to(%x, %lower, %no, %no, %none)
      %y : Tensor = aten::mm(%c, %d)
      jit_amp::exit[scope=0]()
      return (%y)
"""


def restored(text: str) -> torch._C.Graph:
    function = torch._C._create_function_from_graph("traced", parse(text))
    _C.restore_function(function, PATTERN, [])
    return function.graph


def test_scopes_are_entered_and_autocasts_casts_are_gone() -> None:
    graph = restored(SCOPE)
    assert [kind for kind in operators(graph) if kind.startswith(("aten", "prim::E"))] == [
        "prim::Enter", "aten::to", "aten::mm", "prim::Exit",
    ]  # fmt: skip
    [product] = graph.findAllNodes("aten::mm")
    first, second = product.inputs()
    assert first.debugName() == "x"
    assert second.node().kind() == "aten::to"  # the author's stays


@pytest.mark.parametrize(("given", "state"), [(1, "BFloat16"), (0, "ambient")])
def test_a_dtype_counts_where_the_author_gave_one(given: int, state: str) -> None:
    text = SCOPE.replace("dtype_given=1", f"dtype_given={given}")
    function = torch._C._create_function_from_graph("traced", parse(text))
    _C.restore_function(function, PATTERN, [])
    flat = _C.flattened(function, "fix_attributes")
    assert f"aten::mm cpu={state}" in _C.scopes_of(flat, {})


def test_a_cast_before_what_is_recorded_otherwise_is_decided_when_it_runs() -> None:
    graph = restored(
        """
    graph(%x : Tensor):
      %none : NoneType = prim::Constant()
      %no : bool = prim::Constant[value=0]()
      %lower : int = prim::Constant[value=15]()
      jit_amp::enter[scope=0, device_type="cpu", dtype=15, dtype_given=0, enabled=0, instead_of="aten::of_another"]()
      %c : Tensor = aten::to[of_autocast=0](%x, %lower, %no, %no, %none)
      %y : Tensor = aten::mm(%c, %c)
      %z : Tensor = aten::mm(%y, %c)
      jit_amp::exit[scope=0]()
      return (%z)
    """  # noqa: E501
    )
    branches = [n for n in nodes_of(graph) if n.kind() == "prim::If"]
    assert branches
    assert all("<jit_amp cast>" in n.sourceRange() for n in branches)


def test_a_scope_that_is_not_left_where_it_is_entered_is_refused() -> None:
    with pytest.raises(AutocastError):
        restored(
            """
        graph(%x : Tensor):
          jit_amp::exit[scope=0]()
          return (%x)
        """
        )


def test_what_recorded_nothing_stays() -> None:
    text = "graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)\n"
    assert operators(restored(text)) == ["aten::relu"]
