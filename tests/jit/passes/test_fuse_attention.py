"""fuse_attention: products and a softmax as PyTorch's own operator.

What users write, and what it gives, is in tests/jit/deploy/test_attention.py.
"""

from __future__ import annotations

import pytest
import torch

from .ir import check, operators, parse, unchanged, values_of

REDUCED = "BFloat16(*, *, *, *, requires_grad=0, device=cpu)"

ON_CUDA = REDUCED.replace("cpu", "cuda:0")


def case(*lines: str, dtype: str = REDUCED, mask: str = REDUCED) -> str:
    return f"""
    graph(%q : {dtype}, %k : {dtype}, %v : {dtype}, %m : {mask}):
      %none : NoneType = prim::Constant()
      %no : bool = prim::Constant[value=0]()
      %1 : int = prim::Constant[value=1]()
      %last : int = prim::Constant[value=-1]()
      %next : int = prim::Constant[value=-2]()
      %low : float = prim::Constant[value=-1e9]()
      %third : float = prim::Constant[value=0.3]()
""" + "".join(f"      {line}\n" for line in lines)


SCORES = (
    "%t : Tensor = aten::transpose(%k, %last, %next)",
    "%s : Tensor = aten::matmul(%q, %t)",
)
SUM = (
    "%p : Tensor = aten::softmax(%z, %last, %none)",
    "%o : Tensor = aten::matmul(%p, %v)",
    "return (%o)",
)
SCALED = "%z : Tensor = aten::mul(%s, %third)"


def given(n: int, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, 2, n, size).to(dtype) for size in (8, 8, 8, n)]


@pytest.mark.parametrize(
    "lines",
    [
        (*SCORES, SCALED, *SUM),
        (*SCORES, "%z : Tensor = aten::add(%s, %m, %1)", *SUM),
        (*SCORES, "%z : Tensor = aten::add(%m, %s, %1)", *SUM),
        (*SCORES, "%z : Tensor = aten::sub(%s, %m, %1)", *SUM),
    ],
    ids=["scaled", "added", "added to", "subtracted"],
)
@pytest.mark.parametrize("n", [3, 800])
def test_fused(lines: tuple[str, ...], n: int) -> None:
    """As before for few queries, where the processor computes in the dtype."""
    text = case("# CHECK: aten::scaled_dot_product_attention", "# CHECK: aten::softmax", *lines)
    graph = check("fuse_attention", text, stock=True)
    actual, before = (values_of(g, *given(n))[0] for g in (graph, parse(text)))
    exact = values_of(parse(text), *given(n, torch.float64))[0]
    assert (actual.dtype, actual.stride()) == (before.dtype, before.stride())
    torch.testing.assert_close(actual, before, rtol=0.05, atol=0.1)
    error, before_error = ((y - exact).square().mean() for y in (actual, before))
    assert n < 100 or error <= before_error * 1.02


@pytest.mark.parametrize(
    "lines",
    [
        (*SCORES, SCALED, *SUM[:2], "return (%o, %z)"),
        (*SCORES, SCALED, *SUM[:2], "return (%o, %p)"),
        (*SCORES, SCALED, "%r : Tensor = aten::relu(%s)", *SUM[:2], "return (%o, %r)"),
        (*SCORES, "%z : Tensor = aten::mul(%s, %m)", *SUM),
    ],
    ids=["scores", "probabilities", "scores before", "a product"],
)
def test_left_alone(lines: tuple[str, ...]) -> None:
    unchanged("fuse_attention", case(*lines), stock=True)


@pytest.mark.parametrize(
    ("dtype", "mask"),
    [
        (REDUCED.replace("BFloat16", "Float"), REDUCED),
        (ON_CUDA, REDUCED),
        (ON_CUDA, ON_CUDA.replace("BFloat16", "Float")),
        (REDUCED, REDUCED.replace("BFloat16", "Double")),
        (REDUCED, "Tensor"),
        ("Tensor", REDUCED),
    ],
    ids=[
        "float32",
        "a mask elsewhere",
        "a float32 mask on CUDA",
        "a float64 mask",
        "a mask of any dtype",
        "any dtype",
    ],
)
def test_dtypes_and_devices_that_are_left_alone(dtype: str, mask: str) -> None:
    lines = (*SCORES, "%z : Tensor = aten::add(%s, %m, %1)", *SUM)
    unchanged("fuse_attention", case(*lines, dtype=dtype, mask=mask), stock=True)


@pytest.mark.parametrize("written", ["v", "m", "q"])
def test_a_write_between(written: str) -> None:
    lines = (
        *SCORES,
        "%z : Tensor = aten::add(%s, %m, %1)",
        SUM[0],
        f"%w : Tensor = aten::relu_(%{written})",
        *SUM[1:],
    )
    unchanged("fuse_attention", case(*lines), stock=True)


def test_a_write_to_something_else() -> None:
    lines = (
        *SCORES,
        "%n : Tensor = aten::neg(%q)",
        SCALED,
        SUM[0],
        "%w : Tensor = aten::relu_(%n)",
        SUM[1],
        "return (%o, %w)",
    )
    graph = check("fuse_attention", case(*lines), stock=True)
    assert "aten::scaled_dot_product_attention" in operators(graph)


def test_each_side_of_a_branch_alone() -> None:
    """Scores that are made outside of the branch stay."""
    lines = (
        *SCORES,
        "%o : Tensor = prim::If(%no)",
        "  block0():",
        "    %p : Tensor = aten::softmax(%s, %last, %none)",
        "    %a : Tensor = aten::matmul(%p, %v)",
        "    -> (%a)",
        "  block1():",
        "    -> (%v)",
        "return (%o)",
    )
    unchanged("fuse_attention", case(*lines), stock=True)


@pytest.mark.parametrize(
    "lines",
    [
        (*SCORES, SCALED, *SUM),
        (*SCORES, "%z : Tensor = aten::add(%s, %m, %1)", *SUM),
        (*SCORES, "%z : Tensor = aten::sub(%s, %m, %1)", *SUM),
    ],
    ids=["scaled", "added", "subtracted"],
)
def test_on_cuda_nothing_asks_for_numbers(lines: tuple[str, ...]) -> None:
    text = case("# CHECK: aten::scaled_dot_product_attention", "# CHECK: aten::softmax", *lines)
    graph = check("fuse_attention", text.replace("cpu", "cuda:0"), stock=True)
    assert not {"aten::Float", "aten::Bool", "aten::item"} & set(operators(graph))


@pytest.mark.parametrize(
    "lines",
    [
        ("%a : Tensor = aten::add(%s, %m, %1)", "%z : Tensor = aten::mul(%a, %third)"),
        ("%a : Tensor = aten::add(%s, %m, %1)", "%z : Tensor = aten::add(%a, %m, %1)"),
        ("%z : Tensor = aten::add(%s, %m, %next)",),
    ],
    ids=["scaled", "two", "times two"],
)
def test_masks_that_would_be_rounded_on_cuda(lines: tuple[str, ...]) -> None:
    text = case(*SCORES, *lines, *SUM)
    check("fuse_attention", text, stock=True)
    unchanged("fuse_attention", text.replace("cpu", "cuda:0"), stock=True)


def test_phones_have_none_of_it() -> None:
    unchanged("fuse_attention", case(*SCORES, SCALED, *SUM))


AGAIN = (
    "%t2 : Tensor = aten::transpose(%v, %last, %next)",
    "%s2 : Tensor = aten::matmul(%o, %t2)",
    "%p2 : Tensor = aten::softmax(%s2, %last, %none)",
    "%o2 : Tensor = aten::matmul(%p2, %o)",
    "return (%o2)",
)


@pytest.mark.parametrize("n", [3, 800])
def test_one_takes_what_another_gives(n: int) -> None:
    """As queries and as values."""
    text = case(*SCORES, SCALED, *SUM[:-1], *AGAIN)
    graph = check("fuse_attention", text, stock=True)
    assert str(graph).count("aten::scaled_dot_product_attention") == 2
    actual, before = (values_of(g, *given(n))[0] for g in (graph, parse(text)))
    torch.testing.assert_close(actual, before, rtol=0.05, atol=0.1)
