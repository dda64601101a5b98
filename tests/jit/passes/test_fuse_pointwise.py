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
    return torch.randn(64, 64).to(dtype)


def kernel() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 8, 3, 3).bfloat16().contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("layer", "weight", "shape"),
    [(LINEAR, matrix(), (3, 64)), (CONVOLUTION, kernel(), (2, 8, 5, 5))],
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
    graph, before = check("fuse_pointwise", text, weight, stock=True), parse(text, weight)
    x = torch.randn(shape).bfloat16()
    for given in (x, x[:0], x[0]):
        actual, expected = (values_of(g, given.clone())[0] for g in (graph, before))
        torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.02)


def test_a_constant_that_stands_after_the_layer() -> None:
    text = case(
        LINEAR,
        "%late : float = prim::Constant[value=0.125]()",
        "%z : Tensor = aten::leaky_relu(%y, %late)",
        "return (%z)",
    )
    graph, x = check("fuse_pointwise", text, matrix(), stock=True), torch.randn(3, 64).bfloat16()
    graph.lint()
    for given in (x, x[:0]):
        actual, expected = (values_of(g, given)[0] for g in (graph, parse(text, matrix())))
        torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("layer", "weight", "activation", "takes_alias"),
    [
        (LINEAR, matrix(), "silu", True),
        (LINEAR, matrix(), "silu_", True),
        (LINEAR, matrix(), "relu", False),
        (CONVOLUTION, kernel(), "silu", True),
    ],
)
def test_a_silu_that_is_not_fused_takes_an_alias(
    layer: str, weight: Tensor, activation: str, takes_alias: bool
) -> None:
    """oneDNN's fusion would make a product of one that takes a layer's result itself."""
    text = case(layer, f"%z : Tensor = aten::{activation}(%y)", "return (%z)")
    graph = check("fuse_pointwise", text, weight, stock=True)
    assert ("aten::alias" in str(graph)) == takes_alias


def test_an_activation_of_what_has_another_user_stays() -> None:
    text = case(
        "# CHECK: mkldnn::_linear_pointwise",
        "# CHECK: aten::relu(",
        LINEAR,
        "%z : Tensor = aten::relu(%y)",
        "return (%y, %z)",
    )
    check("fuse_pointwise", text, matrix(), stock=True)


def test_a_number_that_is_not_known_stays() -> None:
    text = case(
        "# CHECK: aten::leaky_relu",
        LINEAR,
        "%s : float = aten::neg(%slope)",
        "%z : Tensor = aten::leaky_relu(%y, %s)",
        "return (%z)",
    )
    graph = check("fuse_pointwise", text, matrix(), stock=True)
    assert str(graph).count("aten::leaky_relu") == 1


SAME = "%y : Tensor = aten::conv2d(%x, %w, %none, %one, %one, %one, %1)"
ADDED = "%z : Tensor = aten::add(%y, %o, %1)"


def added(*lines: str) -> str:
    """As `case`, with something to add."""
    return case(*lines).replace("graph(%x : Tensor)", "graph(%x : Tensor, %o : Tensor)")


def square() -> Tensor:
    return torch.cat([kernel(), kernel()]).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "lines",
    [
        (ADDED,),
        ("%z : Tensor = aten::add(%o, %y, %1)",),
        ("%z : Tensor = aten::add_(%y, %o, %1)",),
        ("%a : Tensor = aten::add(%y, %o, %1)", "%z : Tensor = aten::relu(%a)"),
        ("%a : Tensor = aten::add(%y, %o, %1)", "%z : Tensor = aten::silu(%a)"),
        ("%p : Tensor = aten::neg(%o)", "%z : Tensor = aten::add(%y, %p, %1)"),
    ],
    ids=["after", "before", "in place", "relu", "silu", "made later"],
)
def test_additions(lines: tuple[str, ...]) -> None:
    text = added("# CHECK: _convolution_pointwise", SAME, *lines, "return (%z)")
    graph, before = check("fuse_pointwise", text, square(), stock=True), parse(text, square())
    assert '"add"' in str(graph)
    x, other = torch.randn(2, 8, 5, 5).bfloat16(), torch.randn(2, 8, 5, 5).bfloat16()
    for given in ((x, other), (x[:0], other[:0]), (x[0], other[0]), (x, other[:1, :1])):
        actual, expected = (values_of(g, *given)[0] for g in (graph, before))
        assert actual.dtype == expected.dtype
        torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.04)
    actual, expected = (values_of(g, x, other.float())[0] for g in (graph, before))
    torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.04)


@pytest.mark.parametrize(
    "lines",
    [
        (SAME, "%z : Tensor = aten::add_(%o, %y, %1)"),
        (SAME, "%z : Tensor = aten::add(%y, %y, %1)"),
        (SAME, "%2 : int = prim::Constant[value=2]()", "%z : Tensor = aten::add(%y, %o, %2)"),
        (SAME, "%n : Tensor = aten::relu_(%x)", ADDED),
        (SAME, "%n : Tensor = aten::neg(%y)", ADDED),
        (
            "%two : int[] = prim::Constant[value=[2, 2]]()",
            "%y : Tensor = aten::conv2d(%x, %w, %none, %two, %one, %one, %1)",
            ADDED,
        ),
        (
            "%no : int[] = prim::Constant[value=[0, 0]]()",
            "%y : Tensor = aten::conv2d(%x, %w, %none, %one, %no, %one, %1)",
            ADDED,
        ),
    ],
    ids=["into the other", "itself", "alpha", "a write", "another user", "stride", "padding"],
)
def test_no_additions(lines: tuple[str, ...]) -> None:
    text = added("# CHECK: aten::add", *lines, "return (%z)")
    graph = check("fuse_pointwise", text, square(), stock=True)
    assert '"add"' not in str(graph)


def test_an_addition_of_two_convolutions_is_in_one_of_them() -> None:
    text = case(
        SAME,
        "%v : Tensor = aten::conv2d(%x, %w, %none, %one, %one, %one, %1)",
        "%z : Tensor = aten::add(%y, %v, %1)",
        "return (%z)",
    )
    graph = check("fuse_pointwise", text, square(), stock=True)
    assert str(graph).count('"add"') == 1
    x = torch.randn(2, 8, 5, 5).bfloat16()
    actual, expected = (values_of(g, x)[0] for g in (graph, parse(text, square())))
    torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.04)


@pytest.mark.parametrize(
    ("layer", "weight"),
    [
        (LINEAR, matrix(torch.float32)),
        (CONVOLUTION, kernel().contiguous()),  # channels_last left it
        ("%y : Tensor = aten::mm(%x, %w)", matrix()),
        (LINEAR, matrix()[:31, :32].contiguous()),  # not worth a question
    ],
    ids=["float32", "default layout", "mm", "small"],
)
def test_left_alone(layer: str, weight: Tensor) -> None:
    text = case(layer, "%z : Tensor = aten::relu(%y)", "return (%z)")
    unchanged("fuse_pointwise", text, weight, stock=True)


@pytest.mark.parametrize(("rows", "is_fused"), [(1, False), (2, True)])
def test_a_small_layer_is_fused_where_it_is_called_with_rows(rows: int, is_fused: bool) -> None:
    """As PyTorch itself calls oneDNN from some size on."""
    text = case(LINEAR, "%z : Tensor = aten::relu(%y)", "return (%z)")
    graph, x = check("fuse_pointwise", text, matrix(), stock=True), torch.randn(rows, 64).bfloat16()
    with torch.profiler.profile(acc_events=True) as profile:
        values_of(graph, x)
    found = {event.name for event in profile.events()}
    native = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert ("mkldnn::_linear_pointwise" in found) is (is_fused and native)


def test_phones_have_none_of_it() -> None:
    text = case(LINEAR, "%z : Tensor = aten::relu(%y)", "return (%z)")
    unchanged("fuse_pointwise", text, matrix())
