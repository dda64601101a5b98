"""check_writes: refuses a write that PyTorch would lose from an artefact, and no other."""

from __future__ import annotations

import pytest

import jit_amp
from jit_amp import _C

from . import ir
from .ir import unchanged

LOOP = """
graph(%x : Tensor, %n : int, %c : bool):
  %one : int = prim::Constant[value=1]()
  %yes : bool = prim::Constant[value=1]()
  %no : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %y : Tensor = prim::Loop(%n, %yes, {start})
    block0(%i : int, %a : Tensor):
      %b : Tensor = jit_amp::carried(%a)
      %z : Tensor = aten::add(%b, %b, %one)
      -> (%yes, %z)
  %r : Tensor = jit_amp::carried(%y)
  {after}
  return ({result})
"""


@pytest.mark.parametrize(
    "after",
    [
        "%w : Tensor = aten::add_(%r, %one, %one)",
        # Through a view.
        "%t : Tensor = aten::t(%r)\n  %w : Tensor = aten::relu_(%t)",
        # In a branch.
        "prim::If(%c)\n    block0():\n      %w : Tensor = aten::relu_(%r)\n      -> ()\n"
        "    block1():\n      -> ()",
    ],
    ids=["plain", "view", "branch"],
)
def test_lost(after: str) -> None:
    """Where the loop runs no times, what it gives is the caller's tensor; nothing reads it."""
    graph = ir.parse(LOOP.format(start="%x", after=after, result="%n"))
    with pytest.raises(jit_amp.AutocastError, match="in-place write to what a loop gives"):
        _C.run_pass("check_writes", graph, {}, True)


@pytest.mark.parametrize(
    ("after", "result"),
    [
        ("%w : Tensor = aten::add_(%r, %one, %one)", "%w"),  # the result is read
        ("%w : Tensor = aten::add_(%r, %one, %one)", "%r"),
        ("%w : Tensor = aten::add(%r, %one, %one)", "%n"),  # no write: it may go
        ("%w : Tensor = aten::add_(%x, %one, %one)", "%n"),  # PyTorch keeps it
        ("%w : Tensor = aten::clone(%r, %none)\n  %v : Tensor = aten::relu_(%w)", "%n"),
        ("", "%r"),
    ],
)
def test_kept(after: str, result: str) -> None:
    """PyTorch does not drop these, or nobody would see it; the numbers put in for counting go."""
    unchanged("check_writes", LOOP.format(start="%x", after=after, result=result), stock=True)


@pytest.mark.parametrize(
    "body",
    [
        "%w : Tensor = aten::relu_(%x)",  # no loop: AliasDb is right
        """\
%w : Tensor = prim::If(%c)
    block0():
      -> (%x)
    block1():
      %z : Tensor = aten::relu(%x)
      -> (%z)
  %v : Tensor = aten::relu_(%w)""",  # what a branch gives is one of two, and AliasDb knows
        """\
prim::Loop(%n, %c)
    block0(%i : int):
      %w : Tensor = aten::relu_(%x)
      -> (%c)""",  # a write inside a loop that carries nothing
    ],
    ids=["straight", "branch", "inside"],
)
def test_without_a_result_of_a_loop(body: str) -> None:
    """Only what a loop carries is misjudged."""
    unchanged(
        "check_writes",
        f"\ngraph(%x : Tensor, %n : int, %c : bool):\n  {body}\n  return (%n)\n",
        stock=True,
    )


def test_unmarked_loop_is_not_taken() -> None:
    """Without marks there would be nothing to compare with."""
    graph = ir.parse("""
graph(%x : Tensor, %n : int):
  %yes : bool = prim::Constant[value=1]()
  %y : Tensor = prim::Loop(%n, %yes, %x)
    block0(%i : int, %a : Tensor):
      -> (%yes, %a)
  %w : Tensor = aten::relu_(%y)
  return (%n)
""")
    with pytest.raises(RuntimeError, match="not marked"):
        _C.run_pass("check_writes", graph, {}, True)
