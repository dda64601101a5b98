"""keep_dim: PyTorch's optimisers do not take for granted that a convolution's input has a batch."""

from __future__ import annotations

import pytest
import torch

from .ir import TENSOR, check, unchanged


def case(dims: int = 2, question: str = "aten::dim(%y)") -> str:
    return f"""
    graph(%x : Tensor):
      %w : {TENSOR}
      %none : NoneType = prim::Constant()
      %1 : int = prim::Constant[value=1]()
      %one : int[] = prim::Constant[value={[1] * dims}]()
      %y : Tensor = aten::conv{dims}d(%x, %w, %none, %one, %one, %one, %1)
      %n : int = {question}
      return (%n)
    """


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_answer_is_eagers(dims: int) -> None:
    """Three calls in a row, with a batch and without."""
    weight = torch.ones(1, 1, *[3] * dims)
    run = torch._C._create_function_from_graph("case", check("keep_dim", case(dims), weight))
    for _ in range(3):
        for x in (torch.ones(2, 1, *[4] * dims), torch.ones(1, *[4] * dims)):
            assert run(x) == x.dim()


def test_what_is_asked_of_other_tensors_stays() -> None:
    unchanged("keep_dim", case(question="aten::dim(%x)"), torch.ones(1, 1, 3, 3))
    unchanged("keep_dim", case(question="aten::size(%y, %1)"), torch.ones(1, 1, 3, 3))


def refusing(*condition: str) -> str:
    lines = "\n".join(f"      {line}" for line in condition)
    return f"""
    graph(%x : Tensor, %w : Tensor):
      %none : NoneType = prim::Constant()
      %1 : int = prim::Constant[value=1]()
      %one : int[] = prim::Constant[value=[1, 1]]()
      %text : str = prim::Constant[value="{{}}"]()
      %y : Tensor = aten::conv2d(%x, %w, %none, %one, %one, %one, %1)
      %n : int = aten::dim(%y)
{lines}
      prim::If(%c)
        block0():
          %message : str = aten::format(%text, %n)
          prim::RaiseException(%message, %none)
          -> ()
        block1():
          -> ()
      return (%y)
    """


ONE = refusing("%c : bool = aten::ne(%n, %1)")
TWO = refusing(
    "%b : bool = aten::ne(%n, %1)",
    "%c : bool = prim::If(%b)",
    "  block0():",
    "    %d : bool = aten::gt(%n, %1)",
    "    -> (%d)",
    "  block1():",
    "    -> (%b)",
)


@pytest.mark.parametrize("text", [ONE, TWO], ids=["one", "two with and"])
def test_what_only_refuses_stays(text: str) -> None:
    unchanged("keep_dim", text)


def test_what_does_more_than_refuse_does_not_stay() -> None:
    check("keep_dim", ONE.replace("return (%y)", "return (%n)"))
    otherwise = "block1():\n          %z : Tensor = aten::relu_(%y)\n"
    check("keep_dim", ONE.replace("block1():\n", otherwise))


def test_through_convolutions() -> None:
    text = case().replace("aten::dim(%y)", "aten::dim(%z)")
    again = "%z : Tensor = aten::conv2d(%y, %w, %none, %one, %one, %one, %1)\n      %n "
    graph = check("keep_dim", text.replace("%n ", again, 1), torch.ones(1, 1, 3, 3))
    run = torch._C._create_function_from_graph("case", graph)
    assert [run(torch.ones(1, 4, 4)) for _ in range(3)] == [3, 3, 3]


BRANCH = """
  %y : Tensor = prim::If(%c)
    block0():
      %a : Tensor = aten::conv2d(%x, %w, %none, %one, %one, %one, %1)
      -> (%a)
    block1():
      -> (%x)"""
ELEMENT = """
  %a : Tensor = aten::conv2d(%x, %w, %none, %one, %one, %one, %1)
  %list : Tensor[] = prim::ListConstruct(%a)
  %y : Tensor = aten::__getitem__(%list, %0)"""


@pytest.mark.parametrize("made", [BRANCH, ELEMENT], ids=["branch", "element"])
def test_what_may_be_a_convolutions_is_asked_for_its_sizes(made: str) -> None:
    """Which one it is, a pass that comes later may find out."""
    text = f"""
graph(%x : Tensor, %c : bool):
  %w : {TENSOR}
  %none : NoneType = prim::Constant()
  %0 : int = prim::Constant[value=0]()
  %1 : int = prim::Constant[value=1]()
  %one : int[] = prim::Constant[value=[1, 1]]()
  # CHECK: [[SIZES:%[0-9]+]] : int[] = aten::size(%
  # CHECK-NEXT: [[LEN:%[0-9]+]] : int = aten::len([[SIZES]])
  # CHECK: return ([[LEN]]){made}
  %n : int = aten::dim(%y)
  return (%n)
"""
    run = torch._C._create_function_from_graph(
        "case", check("keep_dim", text, torch.ones(1, 1, 3, 3))
    )
    for _ in range(3):
        assert run(torch.ones(1, 4, 4), True) == 3
