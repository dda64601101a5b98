"""fold_weights: batch norms and numbers go into weights before the weights are rounded."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from jit_amp import _C

from . import ir
from .ir import TENSOR, check

HEAD = f"""\
  %none : NoneType = prim::Constant()
  %bf : int = jit_amp::deferred[value=15]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %eps : float = prim::Constant[value=1.0e-05]()
  %yes : bool = prim::Constant[value=1]()
  %no : bool = prim::Constant[value=0]()
  %s : int[] = prim::Constant[value=[1, 1]]()
  %p : int[] = prim::Constant[value=[0, 0]]()
  %w : {TENSOR}
  %m : {TENSOR}
  %v : {TENSOR}
"""
CONV = """\
  %xc : Tensor = jit_amp::cast(%x, %bf, %none)
  %wc : Tensor = jit_amp::cast(%w, %bf, %none)
  %c : Tensor = aten::conv2d(%xc, %wc, %none, %s, %p, %s, %one)
"""
NORM = "aten::batch_norm(%c, %none, %none, %m, %v, %no, %eps, %eps, %yes)"


def graph(body: str, *, checks: str = "", result: str = "%y", conv: str = CONV) -> str:
    lines = "\n".join(f"  # CHECK{line}" for line in checks.splitlines())
    return f"\ngraph(%x : Tensor):\n{lines}\n{HEAD}{conv}{body}\n  return ({result})\n"


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    """A convolution's weight, mean and variance."""
    return torch.full((1, 1, 1, 1), 3.0), torch.tensor([0.5]), torch.tensor([4.0])


def weights_of(graph: torch._C.Graph) -> list[float]:
    """The numbers that are cast, from constants."""
    return [
        float(node.inputsAt(0).toIValue())
        for node in graph.findAllNodes("jit_amp::cast")
        if node.inputsAt(0).node().kind() == "prim::Constant"
    ]


def test_batch_norm() -> None:
    """The weight is divided by the deviation, and rounded after that; so is the bias it gets."""
    checks = """\
-NOT: aten::batch_norm
: jit_amp::cast(%x
: [[W:%[0-9]+]] : Tensor = jit_amp::cast(
: [[B:%[0-9]+]] : Tensor = jit_amp::cast(
: [[Y:%[0-9]+]] : Tensor = aten::conv2d({{%[0-9]+}}, [[W]], [[B]],
-NOT: aten::batch_norm
: return ([[Y]])"""
    folded = check("fold_weights", graph(f"  %y : Tensor = {NORM}", checks=checks), *tensors())
    assert weights_of(folded) == pytest.approx([1.5, -0.25], rel=1e-4)


def test_batch_norm_without_a_scope() -> None:
    """Nothing is cast that was not."""
    conv = "  %c : Tensor = aten::conv2d(%x, %w, %none, %s, %p, %s, %one)\n"
    checks = "-NOT: jit_amp::cast\n: aten::conv2d\n-NOT: batch_norm\n: return"
    check("fold_weights", graph(f"  %y : Tensor = {NORM}", checks=checks, conv=conv), *tensors())


@pytest.mark.parametrize(
    ("operator", "weights"),
    [
        ("aten::mul(%c, %two)", [6.0]),
        ("aten::div(%c, %two)", [1.5]),
        ("aten::add(%c, %two, %one)", [3.0, 2.0]),
        ("aten::sub(%c, %two, %one)", [3.0, -2.0]),
    ],
)
def test_numbers(operator: str, weights: list[float]) -> None:
    """A number does not decide about the dtype: it may go into the weight or the bias."""
    graph_ = ir.parse(graph(f"  %y : Tensor = {operator}"), *tensors())
    _C.run_pass("fold_weights", graph_, {}, True)
    assert weights_of(graph_) == weights
    assert operator[: operator.index("(")] not in str(graph_)


@pytest.mark.parametrize("operator", ["add", "sub", "mul", "div"])
def test_tensors_stay(operator: str) -> None:
    """The result is float32 by type promotion; folded it would be bfloat16."""
    alpha = ", %one" if operator in ("add", "sub") else ""
    graph_ = ir.parse(
        graph(f"  %y : Tensor = aten::{operator}(%c, %t{alpha})").replace(
            "  %xc", f"  %t : {TENSOR}\n  %xc", 1
        ),
        *tensors(),
        torch.full((1, 1, 1, 1), 2.0),
    )
    _C.run_pass("fold_weights", graph_, {}, True)
    assert f"aten::{operator}(" in str(graph_)
    assert weights_of(graph_) == [3.0]


@pytest.mark.parametrize(
    "body",
    [
        # Something else stands between.
        f"  %r : Tensor = aten::relu(%c)\n  %y : Tensor = {NORM.replace('%c', '%r')}",
        # The mean is not a constant.
        f"  %y : Tensor = {NORM.replace('%m', '%x')}",
        # A number that is known at run time only.
        "  %k : int = aten::dim(%x)\n  %y : Tensor = aten::mul(%c, %k)",
    ],
    ids=["between", "mean", "number"],
)
def test_nothing_to_fold(body: str) -> None:
    """The weight stays what it is, with its cast."""
    graph_ = ir.parse(graph(body), *tensors())
    before = sorted(ir.operators(graph_))
    _C.run_pass("fold_weights", graph_, {}, True)
    assert sorted(ir.operators(graph_)) == before
    assert weights_of(graph_) == [3.0]


def test_used_twice() -> None:
    """What else reads the convolution has to get what it got."""
    graph_ = ir.parse(graph(f"  %y : Tensor = {NORM}", result="%y, %c"), *tensors())
    _C.run_pass("fold_weights", graph_, {}, True)
    assert "aten::batch_norm" in str(graph_)
    assert weights_of(graph_) == [3.0]


def test_weight_that_is_computed() -> None:
    """It is no constant: there is nothing to fold into."""
    conv = CONV.replace("jit_amp::cast(%w,", "jit_amp::cast(%x,")
    graph_ = ir.parse(graph(f"  %y : Tensor = {NORM}", conv=conv), *tensors())
    _C.run_pass("fold_weights", graph_, {}, True)
    assert "aten::batch_norm" in str(graph_)


def test_no_weights() -> None:
    """Casts of what is not constant are left where they are."""
    ir.kept(
        "fold_weights",
        """
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          %bf : int = jit_amp::deferred[value=15]()
          %c : Tensor = jit_amp::cast(%x, %bf, %none)
          %y : Tensor = aten::mm(%c, %c)
          return (%y)
        """,
    )


@pytest.mark.parametrize("training", ["%yes", "%switch"])
def test_a_batch_norm_in_training_mode_stays(training: str) -> None:
    """It takes the batch's own statistics, which no weight can hold. PyTorch's folding takes it."""
    norm = NORM.replace("%no,", f"{training},")
    text = graph(f"  %y : Tensor = {norm}").replace(
        "(%x : Tensor)", "(%x : Tensor, %switch : bool)"
    )
    ir.kept("fold_weights", text, *tensors())
