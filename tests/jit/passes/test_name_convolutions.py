"""name_convolutions: a trace's `_convolution` is the operator that was called."""

from __future__ import annotations

import pytest

from jit_amp import _C

from . import ir
from .ir import check, unchanged

TRACED = """
graph(%x : Tensor, %w : Tensor, %b : Tensor?):
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %no : bool = prim::Constant[value=0]()
  %yes : bool = prim::Constant[value=1]()
  %ones : int[] = prim::ListConstruct({ones})
  %zeros : int[] = prim::ListConstruct({zeros})
  # CHECK-NOT: aten::_convolution
  # CHECK: aten::{name}(%x, %w, %b
  # CHECK-NOT: aten::_convolution
  %y : Tensor = aten::_convolution(%x, %w, %b, %ones, %zeros, %ones, %{transposed}, %zeros, %one, %no, %no, %yes{last})
  return (%y)
"""  # noqa: E501


def traced(name: str, dims: int, transposed: str, last: str = ", %yes") -> str:
    return TRACED.format(
        name=name,
        ones=", ".join(["%one"] * dims),
        zeros=", ".join(["%zero"] * dims),
        transposed=transposed,
        last=last,
    )


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolution(dims: int) -> None:
    """The number of dimensions stands in the length of the lists alone."""
    check("name_convolutions", traced(f"conv{dims}d", dims, "no"))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed(dims: int) -> None:
    """It has the same operands but for one flag."""
    check("name_convolutions", traced(f"conv_transpose{dims}d", dims, "yes"))


def test_older_overload() -> None:
    """A trace that was saved long ago has one flag less."""
    check("name_convolutions", traced("conv2d", 2, "no", last=""))


def test_operands_keep_their_places() -> None:
    """Stride and padding are lists alike: they must not change places."""
    check(
        "name_convolutions",
        """
        graph(%x : Tensor, %w : Tensor, %b : Tensor?):
          %no : bool = prim::Constant[value=0]()
          %groups : int = prim::Constant[value=7]()
          %s : int[] = prim::Constant[value=[2, 3]]()
          %p : int[] = prim::Constant[value=[4, 5]]()
          %d : int[] = prim::Constant[value=[6, 8]]()
          # CHECK-DAG: [[G:%[0-9]+]] : int = prim::Constant[value=7]
          # CHECK-DAG: [[S:%[0-9]+]] : int[] = prim::Constant[value=[2, 3]]
          # CHECK-DAG: [[P:%[0-9]+]] : int[] = prim::Constant[value=[4, 5]]
          # CHECK-DAG: [[D:%[0-9]+]] : int[] = prim::Constant[value=[6, 8]]
          # CHECK: aten::conv2d(%x, %w, %b, [[S]], [[P]], [[D]], [[G]])
          %y : Tensor = aten::_convolution(%x, %w, %b, %s, %p, %d, %no, %p, %groups, %no, %no, %no, %no)
          return (%y)
        """,  # noqa: E501
    )


def test_in_a_branch() -> None:
    """A traced module may call a scripted one that branches."""
    check(
        "name_convolutions",
        """
        graph(%x : Tensor, %w : Tensor, %b : Tensor?, %c : bool):
          %no : bool = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %ones : int[] = prim::ListConstruct(%one, %one)
          %r : Tensor = prim::If(%c)
            # CHECK: block0
            # CHECK: aten::conv2d
            # CHECK: block1
            block0():
              %y : Tensor = aten::_convolution(%x, %w, %b, %ones, %ones, %ones, %no, %ones, %one, %no, %no, %no, %no)
              -> (%y)
            block1():
              -> (%x)
          return (%r)
        """,  # noqa: E501
    )


def test_in_a_task() -> None:
    """A forked task's graph is another one."""
    check(
        "name_convolutions",
        """
graph(%x : Tensor):
  %f : Future(Tensor) = prim::fork(%x)
  %r : Tensor = aten::wait(%f)
  # CHECK: prim::fork_0 = graph
  # CHECK: aten::conv1d
  return (%r)
with graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %no : bool = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %ones : int[] = prim::ListConstruct(%one)
  %y : Tensor = aten::_convolution(%x, %x, %none, %ones, %ones, %ones, %no, %ones, %one, %no, %no, %no, %no)
  return (%y)
""",  # noqa: E501
    )


@pytest.mark.parametrize(
    "call",
    [
        "aten::relu(%x)",  # no convolution at all
        "aten::conv2d(%x, %x, %none, %ones, %ones, %ones, %one)",  # has its name
        "aten::conv_transpose2d(%x, %x, %none, %ones, %ones, %ones, %one, %ones)",
        # Operators of their own, which an author may have called.
        "aten::convolution(%x, %x, %none, %ones, %ones, %ones, %no, %ones, %one)",
        "aten::_convolution_mode(%x, %x, %none, %ones, %same, %ones, %one)",
    ],
)
def test_others_stay(call: str) -> None:
    """Only `_convolution` is what the tracer makes of a name, and lists of others stay lists."""
    unchanged(
        "name_convolutions",
        f"""
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          %no : bool = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %same : str = prim::Constant[value="same"]()
          %ones : int[] = prim::ListConstruct(%one, %one)
          %y : Tensor = {call}
          return (%y)
        """,
    )


@pytest.mark.parametrize(
    "stride, transposed", [("%given", "%no"), ("%ones", "%switch")], ids=["list", "switch"]
)
def test_what_is_known_at_run_time_only_stays(stride: str, transposed: str) -> None:
    """The one beside it is named."""
    graph = ir.parse(
        f"""
        graph(%x : Tensor, %given : int[], %switch : bool):
          %none : NoneType = prim::Constant()
          %no : bool = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %ones : int[] = prim::Constant[value=[1, 1]]()
          %y : Tensor = aten::_convolution(%x, %x, %none, {stride}, %ones, %ones, {transposed}, %ones, %one, %no, %no, %no, %no)
          %z : Tensor = aten::_convolution(%y, %x, %none, %ones, %ones, %ones, %no, %ones, %one, %no, %no, %no, %no)
          return (%z)
        """  # noqa: E501
    )
    assert _C.run_pass("name_convolutions", graph, {}, False)
    assert ir.operators(graph) == ["aten::_convolution", "aten::conv2d"]


def test_constants_of_a_scope_are_not_computed_here() -> None:
    """PyTorch's rewriting computes them first, outside any autocast."""
    graph = ir.parse(
        """
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          %no : bool = prim::Constant[value=0]()
          %one : int = prim::Constant[value=1]()
          %ones : int[] = prim::Constant[value=[1, 1]]()
          %n : NoneType = prim::Constant()
          %shape : int[] = prim::Constant[value=[2, 2]]()
          %a : Tensor = aten::ones(%shape, %n, %n, %n, %n)
          %y : Tensor = aten::matmul(%a, %a)
          %z : Tensor = aten::_convolution(%x, %x, %none, %ones, %ones, %ones, %no, %ones, %one, %no, %no, %no, %no)
          return (%y, %z)
        """  # noqa: E501
    )
    assert _C.run_pass("name_convolutions", graph, {}, False)
    assert ir.operators(graph) == ["aten::ones", "aten::matmul", "aten::conv2d"]


def test_one_with_too_few_operands_stays() -> None:
    text = "graph(%x : Tensor):\n  %y : Tensor = aten::_convolution(%x)\n  return (%y)\n"
    unchanged("name_convolutions", text)
