"""mark_loops and unmark_loops: what a loop carries goes through `jit_amp::carried`, and back."""

from __future__ import annotations

import pytest
import torch

from jit_amp import _C

from . import ir
from .ir import check, unchanged

TENSORS = """
graph(%x : Tensor, %n : int):
  %yes : bool = prim::Constant[value=1]()
  # CHECK: [[Y:%[0-9]+]] : Tensor = prim::Loop
  # CHECK: block0(%i : int, %a : Tensor):
  # CHECK: [[A:%[0-9]+]] : Tensor = jit_amp::carried(%a)
  # CHECK: aten::relu([[A]])
  # CHECK: [[C:%[0-9]+]] : Tensor = jit_amp::carried([[Y]])
  # CHECK: return ([[C]])
  %y : Tensor = prim::Loop(%n, %yes, %x)
    block0(%i : int, %a : Tensor):
      %z : Tensor = aten::relu(%a)
      -> (%yes, %z)
  return (%y)
"""

NESTED = """
graph(%x : Tensor, %n : int):
  %yes : bool = prim::Constant[value=1]()
  # CHECK-COUNT-4: jit_amp::carried(
  # CHECK-NOT: jit_amp::carried
  %y : Tensor = prim::Loop(%n, %yes, %x)
    block0(%i : int, %a : Tensor):
      %w : Tensor = prim::Loop(%n, %yes, %a)
        block0(%j : int, %b : Tensor):
          %z : Tensor = aten::relu(%b)
          -> (%yes, %z)
      -> (%yes, %w)
  return (%y)
"""

LISTS = """
graph(%x : Tensor[], %d : Dict(str, Tensor), %n : int):
  %yes : bool = prim::Constant[value=1]()
  # CHECK-DAG: Tensor[] = jit_amp::carried(%a)
  # CHECK-DAG: Dict(str, Tensor) = jit_amp::carried(%b)
  %y : Tensor[], %z : Dict(str, Tensor) = prim::Loop(%n, %yes, %x, %d)
    block0(%i : int, %a : Tensor[], %b : Dict(str, Tensor)):
      -> (%yes, %a, %b)
  return (%y, %z)
"""

ONLY_WHAT_IS_USED = """
graph(%x : Tensor, %n : int):
  %yes : bool = prim::Constant[value=1]()
  # CHECK-NOT: jit_amp::carried(%a)
  # CHECK: jit_amp::carried
  # CHECK-NOT: jit_amp::carried
  %y : Tensor = prim::Loop(%n, %yes, %x)
    block0(%i : int, %a : Tensor):
      %z : Tensor = aten::relu(%x)
      -> (%yes, %z)
  return (%y)
"""


@pytest.mark.parametrize("text", [NESTED, LISTS, ONLY_WHAT_IS_USED], ids=["nested", "lists", "use"])
def test_marks(text: str) -> None:
    """Whatever can be written to and has a use, in the body and after the loop."""
    check("mark_loops", text)


def test_marks_stand_before_the_uses() -> None:
    """A use that stays on the loop's own value would be one that AliasDb misjudges."""
    check("mark_loops", TENSORS)


def test_marked_graph_is_flat() -> None:
    """The verifier has the same idea of what is to be marked."""
    graph = ir.parse(TENSORS)
    with pytest.raises(RuntimeError, match="not marked"):
        _C.verify(graph, "flat")
    _C.run_pass("mark_loops", graph, {}, False)
    _C.verify(graph, "flat")


@pytest.mark.parametrize("text", [TENSORS, NESTED, LISTS, ONLY_WHAT_IS_USED])
def test_there_and_back(text: str) -> None:
    """Without its marks a graph is what it was."""
    graph = ir.parse(text)
    before = str(graph)
    assert _C.run_pass("mark_loops", graph, {}, False)
    assert _C.run_pass("unmark_loops", graph, {}, False)
    assert str(graph) == before


def test_marks_keep_the_meaning() -> None:
    """`carried` gives what it is given."""
    graph = ir.parse(TENSORS)
    _C.run_pass("mark_loops", graph, {}, False)
    x = torch.tensor([-1.0, 2.0])
    assert torch.equal(ir.values_of(graph, x, 0)[0], x)
    assert torch.equal(ir.values_of(graph, x, 2)[0], x.relu())


@pytest.mark.parametrize(
    "body",
    [
        "%y : Tensor = aten::relu(%x)",  # no loop
        """\
%y : Tensor = prim::If(%yes)
    block0():
      -> (%x)
    block1():
      %z : Tensor = aten::relu(%x)
      -> (%z)""",  # a branch gives one of two: AliasDb knows that
        """\
prim::Loop(%n, %yes)
    block0(%i : int):
      %y : Tensor = aten::relu_(%x)
      -> (%yes)""",  # carries nothing
        """\
%m : int, %s : str, %b : bool, %f : float = prim::Loop(%n, %yes, %n, %str, %yes, %float)
    block0(%i : int, %a1 : int, %a2 : str, %a3 : bool, %a4 : float):
      %k : int = aten::add(%a1, %i)
      -> (%yes, %k, %a2, %a3, %a4)
  %q : int = aten::add(%m, %m)""",  # nobody can write to a number
        """\
%y : Tensor = prim::Loop(%n, %yes, %x)
    block0(%i : int, %a : Tensor):
      -> (%yes, %x)""",  # nobody uses what is carried
    ],
    ids=["straight", "branch", "nothing", "plain", "unused"],
)
def test_nothing_to_mark(body: str) -> None:
    """A mark that is not needed keeps PyTorch from seeing that two values are one."""
    unchanged(
        "mark_loops",
        f"""
graph(%x : Tensor, %n : int):
  %yes : bool = prim::Constant[value=1]()
  %str : str = prim::Constant[value="a"]()
  %float : float = prim::Constant[value=1.]()
  {body}
  return (%x)
""",
    )


def test_unmarks_chains() -> None:
    """A mark of a mark goes too: inner loops' results are carried by outer ones."""
    check(
        "unmark_loops",
        """
        graph(%x : Tensor):
          # CHECK-NOT: jit_amp::carried
          # CHECK: aten::relu(%x)
          %a : Tensor = jit_amp::carried(%x)
          %b : Tensor = jit_amp::carried(%a)
          %y : Tensor = aten::relu(%b)
          return (%y)
        """,
    )


def test_unmarks_in_a_task() -> None:
    """A loop in a forked task was marked as well."""
    check(
        "unmark_loops",
        """
graph(%x : Tensor):
  # CHECK-NOT: jit_amp::carried
  %f : Future(Tensor) = prim::fork(%x)
  %r : Tensor = aten::wait(%f)
  return (%r)
with graph(%x : Tensor):
  %a : Tensor = jit_amp::carried(%x)
  return (%a)
""",
    )


def test_nothing_to_unmark() -> None:
    """Other operators of the dialect stay."""
    unchanged(
        "unmark_loops",
        """
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          %to : int = jit_amp::deferred[value=15]()
          %y : Tensor = jit_amp::cast(%x, %to, %none)
          return (%y)
        """,
    )
