"""keep_zero_dim: a constant without dimensions stays a tensor in PyTorch's executor.

Where the other operand decides the dtype, oneDNN's fusion is not to take it for what promotes.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ..support import assert_same
from . import ir
from .ir import TENSOR, check, unchanged, values_of


def case(call: str, x: str = "Tensor") -> str:
    return f"""
    graph(%x : {x}):
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


BF16 = "BFloat16(4, 64, device=cpu)"
# A long one, as kernels take the ends of rows apart.
ROWS = torch.linspace(-3, 3, 4 * 64).reshape(4, 64)
TENTH = [torch.tensor(0.1, dtype=dtype) for dtype in (torch.float64, torch.float32, torch.bfloat16)]


def assert_means_the_same(graph: torch._C.Graph, text: str, constant: Tensor) -> None:
    """Bit for bit, in each of three calls."""
    run = torch._C._create_function_from_graph("case", graph)
    expected = values_of(ir.parse(text, constant), ROWS.bfloat16())[0]
    assert expected.dtype == torch.bfloat16
    for _ in range(3):
        assert_same(run(ROWS.bfloat16()), expected, text)


@pytest.mark.parametrize("call", CALLS)
def test_of_what_decides_the_dtype_it_may_become_a_number(call: str) -> None:
    for constant in (*TENTH, torch.tensor(3)):
        unchanged("keep_zero_dim", case(call, BF16), constant)
        expected = CALLS[call](ROWS.bfloat16(), constant)
        run = torch._C._create_function_from_graph("case", ir.parse(case(call), constant))
        for _ in range(3):
            assert_same(run(ROWS.bfloat16()), expected, call)


@pytest.mark.parametrize("x", ["Tensor", "BFloat16(device=cpu)", "Long(4, device=cpu)"])
def test_where_that_is_not_known_it_may_not(x: str) -> None:
    check("keep_zero_dim", case("aten::mul(%x, %c)", x), torch.tensor(0.1))
    unchanged("keep_zero_dim", case("aten::mul(%c, %x)", x), torch.tensor(0.1))


def test_a_complex_constant_is_none() -> None:
    check("keep_zero_dim", case("aten::mul(%x, %c)", BF16), torch.tensor(1j))


@pytest.mark.parametrize("constant", TENTH)
@pytest.mark.parametrize(
    "call", ["add(%c, %x, %one)", "sub(%c, %x, %one)", "mul(%c, %x)", "div(%c, %x)"]
)
def test_the_first_operand_gets_a_dimension(call: str, constant: Tensor) -> None:
    text = case(f"aten::{call}", BF16)
    graph = check("keep_zero_dim", text, constant)
    assert "BFloat16(1, " in str(graph)
    assert_means_the_same(graph, text, constant)


@pytest.mark.parametrize(
    "call", ["aten::mul(%c, %x)", "aten::maximum(%x, %c)", "aten::mul_(%x, %c)"]
)
def test_what_the_executor_leaves(call: str) -> None:
    """The first operand of an unknown second, and other operators."""
    unchanged("keep_zero_dim", case(call), torch.tensor(0.5))


def test_with_dimensions() -> None:
    """The executor leaves these."""
    unchanged("keep_zero_dim", case("aten::mul(%x, %c)"), torch.rand(1))
