"""fuse_pointwise: activations in the convolution or linear layer before them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from .ir import TENSOR, check, parse, unchanged, values_of


def case(*lines: str) -> str:
    return f"""
    graph(%x : Tensor):
      %w : {TENSOR}
      %none : NoneType = prim::Constant()
      %1 : int = prim::Constant[value=1]()
      %slope : float = prim::Constant[value=0.25]()
      %one : int[] = prim::Constant[value=[1, 1]]()
""" + "".join(f"      {line}\n" for line in lines)


LINEAR = "%y : Tensor = aten::linear(%x, %w, %none)"
CONVOLUTION = "%y : Tensor = aten::conv2d(%x, %w, %none, %one, %one, %one, %1)"


def matrix(dtype: torch.dtype = torch.bfloat16) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 8).to(dtype)


def kernel() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 8, 3, 3).bfloat16().contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("layer", "weight", "shape"),
    [(LINEAR, matrix(), (3, 8)), (CONVOLUTION, kernel(), (2, 8, 5, 5))],
    ids=["linear", "conv2d"],
)
@pytest.mark.parametrize(
    "activation",
    ["aten::relu(%y)", "aten::relu_(%y)", "aten::leaky_relu(%y, %slope)", "aten::silu(%y)"],
)
def test_fused(layer: str, weight: Tensor, shape: tuple[int, ...], activation: str) -> None:
    """With a processor that can; else, and without a batch, what it was."""
    text = case(
        "# CHECK: mkldnn::_is_mkldnn_bf16_supported",
        "# CHECK: prim::If",
        "# CHECK: _pointwise(",
        layer,
        f"%z : Tensor = {activation}",
        "return (%z)",
    )
    graph, before = check("fuse_pointwise", text, weight, exported=True), parse(text, weight)
    x = torch.randn(shape).bfloat16()
    for given in (x, x[:0], x[0]):
        actual, expected = (values_of(g, given.clone())[0] for g in (graph, before))
        torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("layer", "weight", "activation", "takes_alias"),
    [
        (LINEAR, matrix(), "silu", True),
        (LINEAR, matrix(), "silu_", True),
        (LINEAR, matrix(), "relu", False),
        (CONVOLUTION, kernel(), "silu", False),
    ],
)
def test_a_silu_that_is_not_fused_takes_an_alias(
    layer: str, weight: Tensor, activation: str, takes_alias: bool
) -> None:
    """oneDNN's fusion would make a product of one that takes a linear layer's result itself."""
    text = case(layer, f"%z : Tensor = aten::{activation}(%y)", "return (%z)")
    graph = check("fuse_pointwise", text, weight, exported=True)
    assert ("aten::alias" in str(graph)) == takes_alias


def test_an_activation_of_what_has_another_user_stays() -> None:
    text = case(
        "# CHECK: mkldnn::_linear_pointwise",
        "# CHECK: aten::relu(",
        LINEAR,
        "%z : Tensor = aten::relu(%y)",
        "return (%y, %z)",
    )
    check("fuse_pointwise", text, matrix(), exported=True)


def test_a_number_that_is_not_known_stays() -> None:
    text = case(
        "# CHECK: aten::leaky_relu",
        LINEAR,
        "%s : float = aten::neg(%slope)",
        "%z : Tensor = aten::leaky_relu(%y, %s)",
        "return (%z)",
    )
    graph = check("fuse_pointwise", text, matrix(), exported=True)
    assert str(graph).count("aten::leaky_relu") == 1


@pytest.mark.parametrize(
    ("layer", "weight"),
    [
        (LINEAR, matrix(torch.float32)),
        (CONVOLUTION, kernel().contiguous()),  # channels_last left it
        ("%y : Tensor = aten::mm(%x, %w)", matrix()),
    ],
    ids=["float32", "default layout", "mm"],
)
def test_left_alone(layer: str, weight: Tensor) -> None:
    text = case(layer, "%z : Tensor = aten::relu(%y)", "return (%z)")
    unchanged("fuse_pointwise", text, weight, exported=True)


def test_phones_have_none_of_it() -> None:
    text = case(LINEAR, "%z : Tensor = aten::relu(%y)", "return (%z)")
    unchanged("fuse_pointwise", text, matrix())
