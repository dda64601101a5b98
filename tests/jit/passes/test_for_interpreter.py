"""for_interpreter: what would make PyTorch's interpreter run a lowered graph otherwise."""

from __future__ import annotations

import pytest
import torch

from . import ir
from .ir import check

LOOP = """
graph(%x : Tensor, %n : int):
  %yes : bool = prim::Constant[value=1]()
  # CHECK: [[Y:%[0-9]+]] : Tensor = prim::Loop
  # CHECK: block0(%i : int, %a : Tensor):
  # CHECK-NEXT: aten::relu(%a)
  # CHECK: jit_amp::block_done()
  # CHECK-NEXT: return ([[Y]])
  %y : Tensor = prim::Loop(%n, %yes, %x)
    block0(%i : int, %a : Tensor):
      %b : Tensor = jit_amp::carried(%a)
      %z : Tensor = aten::relu(%b)
      -> (%yes, %z)
  %r : Tensor = jit_amp::carried(%y)
  return (%r)
"""


def test_loop() -> None:
    """The marks go, and the loop runs where it stands: its use may come later."""
    graph = check("for_interpreter", LOOP)
    x = torch.tensor([-1.0, 2.0])
    assert torch.equal(ir.values_of(graph, x, 0)[0], x)
    assert torch.equal(ir.values_of(graph, x, 1)[0], x.relu())


def test_loop_in_a_loop() -> None:
    """Each of them, right behind it."""
    check(
        "for_interpreter",
        """
graph(%x : Tensor, %n : int):
  %yes : bool = prim::Constant[value=1]()
  # CHECK: prim::Loop
  # CHECK: prim::Loop
  # CHECK: jit_amp::block_done()
  # CHECK-NEXT: -> (
  # CHECK: jit_amp::block_done()
  # CHECK-NEXT: return (
  %y : int = prim::Loop(%n, %yes, %n)
    block0(%i : int, %a : int):
      %w : int = prim::Loop(%n, %yes, %a)
        block0(%j : int, %b : int):
          %z : int = aten::add(%b, %j)
          -> (%yes, %z)
      -> (%yes, %w)
  return (%y)
""",
    )


def test_branch() -> None:
    """What a block of it reads may be gone when its use comes, for a loop in it to read again."""
    graph = check(
        "for_interpreter",
        """
graph(%x : Tensor, %n : int, %c : bool):
  %yes : bool = prim::Constant[value=1]()
  %one : int = prim::Constant[value=1]()
  # CHECK: [[Y:%[0-9]+]] : Tensor = prim::If
  # CHECK: prim::Loop
  # CHECK: jit_amp::block_done()
  # CHECK: jit_amp::block_done()
  # CHECK-NEXT: aten::add({{.*}}, [[Y]]
  %y : Tensor = prim::If(%c)
    block0():
      %z : Tensor = prim::Loop(%n, %yes, %x)
        block0(%i : int, %a : Tensor):
          %b : Tensor = jit_amp::carried(%a)
          %s : Tensor = aten::add(%b, %x, %one)
          -> (%yes, %s)
      %w : Tensor = jit_amp::carried(%z)
      -> (%w)
    block1():
      -> (%x)
  %r : Tensor = aten::add(%x, %y, %one)
  return (%r)
""",
    )
    x = torch.ones(2)
    assert torch.equal(ir.values_of(graph, x, 3, True)[0], x * 5)


def test_task() -> None:
    """PyTorch's executor would differentiate parts of it: it sees one node."""
    check(
        "for_interpreter",
        """
graph(%x : Tensor):
  # CHECK: prim::fork_0(%x)
  # CHECK: prim::fork_0 = graph([[X:%[0-9]+]] : Tensor)
  # CHECK-NEXT: [[Y:%[0-9]+]] : Tensor = jit_amp::scoped_effect_0[{{.*}}]([[X]])
  # CHECK-NEXT: return ([[Y]])
  # CHECK: jit_amp::scoped_effect_0 = graph
  # CHECK-NEXT: aten::relu
  %f : Future(Tensor) = prim::fork(%x)
  %r : Tensor = aten::wait(%f)
  return (%r)
with graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  return (%y)
""",
    )


def test_a_task_that_waits() -> None:
    """It stays one of PyTorch's executor, which would round an `addmm` twice."""
    check(
        "for_interpreter",
        """
graph(%f : Future(Tensor), %w : Tensor):
  # CHECK: prim::fork_0 = graph
  # CHECK: [[BETA:%[0-9]+]] : int = aten::Int
  # CHECK-NEXT: aten::addmm({{.*}}, [[BETA]], %{{.*}})
  %g : Future(Tensor) = prim::fork(%f, %w)
  %r : Tensor = aten::wait(%g)
  return (%r)
with graph(%f : Future(Tensor), %w : Tensor):
  %one : int = prim::Constant[value=1]()
  %y : Tensor = aten::wait(%f)
  %z : Tensor = aten::addmm(%y, %y, %w, %one, %one)
  return (%z)
""",
    )


NESTED = """
graph(%f : Future(Tensor)):
  %g : Future(Tensor) = prim::fork(%f)
  %r : Tensor = aten::wait(%g)
  return (%r)
with graph(%f : Future(Tensor)):
  %y : Tensor = aten::wait(%f)
  return (%y)
"""


@pytest.mark.parametrize(
    "text",
    [
        """
        graph(%x : Tensor):
          %y : Tensor = aten::relu(%x)
          return (%y)
        """,
        # Casts and opaque nodes are what the interpreter runs.
        """
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          %to : int = jit_amp::deferred[value=15]()
          %y : Tensor = jit_amp::cast(%x, %to, %none)
          return (%y)
        """,
        # A loop that gives nothing, and one that gives two, is not run at its use.
        """
        graph(%x : Tensor, %n : int):
          %yes : bool = prim::Constant[value=1]()
          prim::Loop(%n, %yes)
            block0(%i : int):
              %y : Tensor = aten::relu_(%x)
              -> (%yes)
          return (%x)
        """,
        """
        graph(%n : int):
          %yes : bool = prim::Constant[value=1]()
          %a : int, %b : int = prim::Loop(%n, %yes, %n, %n)
            block0(%i : int, %c : int, %d : int):
              -> (%yes, %d, %c)
          return (%a, %b)
        """,
        # A branch that gives nothing.
        """
        graph(%x : Tensor, %c : bool):
          prim::If(%c)
            block0():
              %y : Tensor = aten::relu_(%x)
              -> ()
            block1():
              -> ()
          return (%x)
        """,
        # A task that waits would keep a thread waiting if it were one node.
        NESTED,
    ],
    ids=["straight", "dialect", "no result", "two results", "branch", "waiting task"],
)
def test_stays(text: str) -> None:
    """Nothing that the interpreter would do otherwise."""
    ir.kept("for_interpreter", text)
