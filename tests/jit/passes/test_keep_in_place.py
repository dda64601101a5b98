"""keep_in_place: arithmetic in place stays where a new tensor would have another dtype."""

from __future__ import annotations

import pytest
import torch

from .ir import check, parse, unchanged, values_of

BF16, F32 = "BFloat16(2, 4, device=cpu)", "Float(2, 4, device=cpu)"


def case(call: str, x: str, y: str, check: str = "") -> str:
    return f"""
    graph(%x : {x}, %y : {y}):
      %1 : int = prim::Constant[value=1]()
      %a : Tensor = aten::neg(%x)
      {check}
      %z : Tensor = {call}
      return (%z, %a)
    """


CALLS = ["aten::add_(%a, %y, %1)", "aten::mul_(%a, %y)", "aten::pow_(%a, %y)"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("x", "y"), [(BF16, F32), (BF16, "Tensor"), ("Tensor", F32)])
def test_an_alias_is_written_to(call: str, x: str, y: str) -> None:
    directives = """\
# CHECK: [[A:%[0-9]+]] : Tensor = aten::alias
      # CHECK: [[Z:%[0-9]+]] : Tensor = {{.*}}_([[A]], %y
      # CHECK: return ([[Z]], [[Z]])"""
    text = case(call, x, y, directives)
    graph = check("keep_in_place", text)
    inputs = torch.full((2, 4), -2.0).bfloat16(), torch.full((2, 4), 3.3)
    for actual, expected in zip(
        values_of(graph, *inputs), values_of(parse(text), *inputs), strict=True
    ):
        assert actual.dtype == torch.bfloat16
        assert torch.equal(actual, expected)
    unchanged("keep_in_place", str(graph))


@pytest.mark.parametrize(
    ("call", "x", "y"),
    [
        (CALLS[0], BF16, BF16),
        (CALLS[1], F32, F32),
        ("aten::add_(%a, %1, %1)", BF16, F32),  # a number never changes a dtype
        ("aten::add(%a, %y, %1)", BF16, F32),
        ("aten::div_(%a, %y)", BF16, F32),  # the fusion leaves it
    ],
)
def test_stays(call: str, x: str, y: str) -> None:
    unchanged("keep_in_place", case(call, x, y))
