"""keep_zero_dim: a constant without dimensions stays a tensor in PyTorch's executor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from . import ir
from .ir import TENSOR, check, unchanged


def case(call: str) -> str:
    return f"""
    graph(%x : Tensor):
      %one : int = prim::Constant[value=1]()
      %c : {TENSOR}
      %y : Tensor = {call}
      return (%y)
    """


CALLS = {
    "aten::add(%x, %c, %one)": torch.add,
    "aten::sub(%x, %c, %one)": torch.sub,
    "aten::mul(%x, %c)": torch.mul,
    "aten::div(%x, %c)": torch.div,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
@pytest.mark.parametrize("call", CALLS)
def test_the_dtype_is_eagers(call: str, dtype: torch.dtype) -> None:
    """Three calls in a row, with a first operand of any dtype, with dimensions and without."""
    constant = torch.tensor(3, dtype=dtype)
    graph = check("keep_zero_dim", case(call), constant)
    run = torch._C._create_function_from_graph("case", graph)
    for given in (torch.bfloat16, torch.float32, torch.int64, torch.bool):
        for x in (torch.ones(2, 2).to(given), torch.ones(()).to(given)):
            try:
                expected: Tensor = CALLS[call](x, constant)
            except RuntimeError:  # a bool and subtraction
                continue
            for _ in range(3):
                torch.testing.assert_close(run(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("call", ["aten::mul(%c, %x)", "aten::maximum(%x, %c)"])
def test_what_the_executor_leaves(call: str) -> None:
    """The first operand, and other operators."""
    unchanged("keep_zero_dim", case(call), torch.tensor(0.5))


def test_with_dimensions() -> None:
    """The executor leaves these."""
    unchanged("keep_zero_dim", case("aten::mul(%x, %c)"), torch.rand(1))


def test_why_it_is_there() -> None:
    """When this fails, PyTorch has mended it."""
    graph = ir.parse(case("aten::mul(%x, %c)"), torch.tensor(0.5))
    run = torch._C._create_function_from_graph("case", graph)
    assert run(torch.ones((), dtype=torch.bfloat16)).dtype == torch.bfloat16
