"""keep_addmm: an addmm whose beta PyTorch's executor cannot see to be 1."""

from __future__ import annotations

import pytest
import torch

from .ir import check, unchanged


def case(beta: str, alpha: str, call: str = "aten::addmm(%b, %x, %x, %beta, %alpha)") -> str:
    return f"""
    graph(%b : Tensor, %x : Tensor, %given : float):
      %beta : {beta}
      %alpha : {alpha}
      %y : Tensor = {call}
      return (%y)
    """


ONE, ONE_POINT = "int = prim::Constant[value=1]()", "float = prim::Constant[value=1.]()"
TWO = "int = prim::Constant[value=2]()"


@pytest.mark.parametrize(("beta", "alpha"), [(ONE, ONE), (ONE_POINT, ONE), (ONE, ONE_POINT)])
def test_it_is_rounded_once(beta: str, alpha: str) -> None:
    """As eager's, three calls in a row, with a first operand of any rank."""
    graph = check("keep_addmm", case(beta, alpha))
    run = torch._C._create_function_from_graph("case", graph)
    x = torch.randn(8, 8).bfloat16()
    for b in (torch.randn(8, 8).bfloat16(), torch.randn(8).bfloat16(), torch.randn(()).bfloat16()):
        for _ in range(3):
            assert torch.equal(run(b, x, 1.0), torch.addmm(b, x, x))


@pytest.mark.parametrize(
    ("beta", "alpha"),
    [
        (TWO, ONE),
        (ONE, TWO),
        ("float = aten::neg(%given)", ONE),
        (ONE, "float = aten::neg(%given)"),
    ],
)
def test_other_numbers_stay(beta: str, alpha: str) -> None:
    """The executor leaves these whole."""
    unchanged("keep_addmm", case(beta, alpha))


def test_baddbmm_stays() -> None:
    """The executor knows nothing of it."""
    unchanged("keep_addmm", case(ONE, ONE, "aten::baddbmm(%b, %x, %x, %beta, %alpha)"))
