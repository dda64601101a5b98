"""fold_constants: what PyTorch folds before it runs a graph, of immutable types alone."""

from __future__ import annotations

import pytest
import torch

from . import ir
from .ir import check, unchanged


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("aten::__is__(%x, %none)", 0),
        ("aten::__isnot__(%x, %none)", 1),
        ("aten::__is__(%none, %x)", 0),
        ("aten::__isnot__(%none, %x)", 1),
        ("aten::__is__(%none, %none)", 1),
        ("aten::__isnot__(%none, %none)", 0),
    ],
)
def test_is_none(question: str, answer: int) -> None:
    """The type of `x` answers it, whichever side None is on."""
    check(
        "fold_constants",
        f"""
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          # CHECK: [[A:%[0-9]+]] : bool = prim::Constant[value={answer}]
          # CHECK: return ([[A]])
          %y : bool = {question}
          return (%y)
        """,
    )


def test_arithmetic() -> None:
    """A dtype that a helper computes is a constant for the scope that takes it."""
    check(
        "fold_constants",
        """
        graph():
          %a : int = prim::Constant[value=7]()
          # CHECK: [[A:%[0-9]+]] : int = prim::Constant[value=15]
          # CHECK: return ([[A]])
          %two : int = aten::add(%a, %a)
          %one : int = prim::Constant[value=1]()
          %y : int = aten::add(%two, %one)
          return (%y)
        """,
    )


def test_decided_branch() -> None:
    """A scope in a branch that is never taken is none."""
    check(
        "fold_constants",
        """
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          # CHECK-NOT: prim::If
          # CHECK: aten::relu
          # CHECK-NOT: aten::sigmoid
          %c : bool = aten::__isnot__(%x, %none)
          %y : Tensor = prim::If(%c)
            block0():
              %a : Tensor = aten::relu(%x)
              -> (%a)
            block1():
              %b : Tensor = aten::sigmoid(%x)
              -> (%b)
          return (%y)
        """,
    )


def test_question_in_a_branch() -> None:
    """The questions in blocks count too."""
    check(
        "fold_constants",
        """
        graph(%x : Tensor, %c : bool):
          %none : NoneType = prim::Constant()
          # CHECK: block0
          # CHECK: [[A:%[0-9]+]] : bool = prim::Constant[value=0]
          # CHECK: -> ([[A]])
          # CHECK: block1
          %y : bool = prim::If(%c)
            block0():
              %a : bool = aten::__is__(%x, %none)
              -> (%a)
            block1():
              -> (%c)
          return (%y)
        """,
    )


def test_constants_go_into_tasks() -> None:
    """A flag handed to a forked task decides about a scope in it; the others keep their order."""
    check(
        "fold_constants",
        """
graph(%x : Tensor, %z : Tensor):
  %seven : int = prim::Constant[value=7]()
  # CHECK: prim::fork_0(%x, %z)
  # CHECK: prim::fork_0 = graph
  # CHECK: [[A:%[0-9]+]] : int = prim::Constant[value=14]
  # CHECK: aten::add({{%[0-9a-z]+}}, {{%[0-9a-z]+}}, [[A]])
  %f : Future(Tensor) = prim::fork(%x, %seven, %z)
  %r : Tensor = aten::wait(%f)
  return (%r)
with graph(%x : Tensor, %k : int, %z : Tensor):
  %kk : int = aten::add(%k, %k)
  %y : Tensor = aten::add(%x, %z, %kk)
  return (%y)
""",
    )


@pytest.mark.parametrize(
    "body",
    [
        "%y : bool = aten::__is__(%o, %none)",  # it may be None
        "%y : bool = aten::__isnot__(%o, %none)",
        "%y : bool = aten::__is__(%x, %x)",  # not a question about None
        "%y : Tensor = aten::add(%x, %x, %two)",
        "%y : int = aten::add(%n, %two)",  # known at run time only
        "%y : int[] = prim::ListConstruct(%two, %two)",  # someone may append to it
        "%y : int = aten::floordiv(%two, %zero)",  # raises when it is run, and not before
        "%y : Tensor = prim::NumToTensor(%two)",  # tensors are mutable: nothing is run
        "%y : Tensor = aten::rand(%sizes, %none, %none, %none, %none)",
    ],
)
def test_stays(body: str) -> None:
    """What is not certain, or could be seen to be another object, is left."""
    unchanged(
        "fold_constants",
        f"""
        graph(%x : Tensor, %o : Tensor?, %n : int):
          %none : NoneType = prim::Constant()
          %zero : int = prim::Constant[value=0]()
          %two : int = prim::Constant[value=2]()
          %sizes : int[] = prim::Constant[value=[2, 2]]()
          {body}
          return (%y)
        """,
    )


def test_constant_tensors_stay() -> None:
    """A weight's product is not computed here: it would be outside any scope."""
    unchanged(
        "fold_constants",
        f"""
        graph():
          %w : {ir.TENSOR}
          %y : Tensor = aten::relu(%w)
          return (%y)
        """,
        torch.ones(2),
    )


def test_undecided_branch_stays() -> None:
    """Both ways are open."""
    unchanged(
        "fold_constants",
        """
        graph(%x : Tensor, %c : bool):
          %y : Tensor = prim::If(%c)
            block0():
              %a : Tensor = aten::relu(%x)
              -> (%a)
            block1():
              -> (%x)
          return (%y)
        """,
    )


def test_operands_of_tasks_stay() -> None:
    """Only constants are handed in."""
    unchanged(
        "fold_constants",
        """
graph(%x : Tensor, %k : int):
  %f : Future(Tensor) = prim::fork(%x, %k)
  %r : Tensor = aten::wait(%f)
  return (%r)
with graph(%x : Tensor, %k : int):
  %y : Tensor = aten::add(%x, %x, %k)
  return (%y)
""",
    )
