"""widen_products: products in float32 where the processor has no instructions for the dtype."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from .ir import TENSOR, check, operators, parse, unchanged, values_of

WIDENED = "# CHECK: mkldnn::_is_mkldnn_bf16_supported\n      # CHECK: aten::__not__"


def case(*lines: str) -> str:
    return f"""
    graph(%x : Tensor):
      %w : {TENSOR}
      %none : NoneType = prim::Constant()
      %0 : int = prim::Constant[value=0]()
      %1 : int = prim::Constant[value=1]()
      %true : bool = prim::Constant[value=1]()
      %half : float = prim::Constant[value=0.5]()
      %one : int[] = prim::Constant[value=[1]]()
""" + "".join(f"      {line}\n" for line in lines)


def weight(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def emulating(graph: torch._C.Graph) -> torch._C.Graph:
    """The graph as a processor without the dtype's instructions runs it."""
    graph = graph.copy()
    for node in graph.nodes():
        if node.kind() == "aten::__not__":
            true = graph.insertConstant(True)
            true.node().moveBefore(node)
            node.output().replaceAllUsesWith(true)
            break
    return graph


PRODUCTS = {
    "linear": (("%y : Tensor = aten::linear(%x, %w, %none)",), (512, 256), (5, 256)),
    "matmul": (("%y : Tensor = aten::matmul(%x, %w)",), (256, 512), (5, 256)),
    "conv1d": (
        ("%y : Tensor = aten::conv1d(%x, %w, %none, %one, %one, %one, %1)",),
        (8, 4, 3),
        (2, 4, 9),
    ),
    "einsum": (
        (
            '%eq : str = prim::Constant[value="ij,jk->ki"]()',
            "%l : Tensor[] = prim::ListConstruct(%x, %w)",
            "%y : Tensor = aten::einsum(%eq, %l, %none)",
        ),
        (64, 32),
        (5, 64),
    ),
}


@pytest.mark.parametrize(("lines", "shape", "given"), PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_widened(
    lines: tuple[str, ...], shape: tuple[int, ...], given: tuple[int, ...], dtype: torch.dtype
) -> None:
    text, w = case(*lines, "return (%y)"), weight(*shape, dtype=dtype)
    graph, before = check("widen_products", text, w, stock=True), parse(text, w)
    question = "bf16" if dtype == torch.bfloat16 else "fp16"
    assert f"mkldnn::_is_mkldnn_{question}_supported" in operators(graph)
    x = torch.randn(given).to(dtype)
    exact = values_of(parse(text, w.double()), x.double())[0]
    eager = values_of(before, x)[0]
    wide = values_of(emulating(graph), x)[0]
    assert (wide.dtype, wide.shape, wide.stride()) == (eager.dtype, eager.shape, eager.stride())
    # Not the exact result rounded: in which order float32 adds, and so where it rounds to, is the
    # processor's.
    in_float32 = values_of(parse(text, w.float()), x.float())[0]
    assert torch.equal(wide, in_float32.to(dtype))
    error, eagers = ((y.double() - exact).square().mean() for y in (wide, eager))
    assert error <= eagers * 1.001


def test_lstm() -> None:
    lines = (
        "%l : Tensor[] = prim::ListConstruct(%h, %h)",
        "%p : Tensor[] = prim::ListConstruct(%w, %w)",
        "%no : bool = prim::Constant[value=0]()",
        "%a : Tensor, %b : Tensor, %c : Tensor = "
        "aten::lstm(%x, %l, %p, %no, %1, %half, %no, %no, %no)",
        "return (%a, %b, %c)",
    )
    text = case(*lines).replace("graph(%x : Tensor)", "graph(%x : Tensor, %h : Tensor)")
    graph = check("widen_products", text, weight(32, 8), stock=True)
    x, h = torch.randn(5, 2, 8).bfloat16(), torch.zeros(1, 2, 8).bfloat16()
    wide = values_of(emulating(graph), x, h)
    eager = values_of(parse(text, weight(32, 8)), x, h)
    for ours, eagers in zip(wide, eager, strict=True):
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(ours, eagers, rtol=0.05, atol=0.05)


def test_a_list_that_is_filled_later_is_left() -> None:
    """What it was made of is not what is in it."""
    lines = (
        "%l : Tensor[] = prim::ListConstruct(%h, %h)",
        "%p : Tensor[] = prim::ListConstruct()",
        "%p1 : Tensor[] = aten::append(%p, %w)",
        "%p2 : Tensor[] = aten::append(%p, %w)",
        "%no : bool = prim::Constant[value=0]()",
        "%a : Tensor, %b : Tensor, %c : Tensor = "
        "aten::lstm(%x, %l, %p, %no, %1, %half, %no, %no, %no)",
        "return (%a, %b, %c)",
    )
    text = case(*lines).replace("graph(%x : Tensor)", "graph(%x : Tensor, %h : Tensor)")
    unchanged("widen_products", text, weight(32, 8), stock=True)


def test_an_einsum_that_promotes_its_operands_is_left() -> None:
    """It only multiplies element by element, and takes operands of two dtypes."""
    text = case(
        '%equation : str = prim::Constant[value="ij,ij->ij"]()',
        "%l : Tensor[] = prim::ListConstruct(%x, %w)",
        "%y : Tensor = aten::einsum(%equation, %l, %none)",
        "return (%y)",
    )
    w = weight(64, 64)
    graph = emulating(check("widen_products", text, w, stock=True))
    for x in (torch.randn(64, 64), torch.randn(64, 64).bfloat16()):
        (ours,), (eagers,) = values_of(graph, x), values_of(parse(text, w), x)
        assert ours.dtype == eagers.dtype
        torch.testing.assert_close(ours, eagers, rtol=0.02, atol=0.02)


def test_what_is_not_of_the_dtype_is_as_it_was() -> None:
    """Which dtype a product without a weight has is asked."""
    text = case(
        "%5 : int = prim::Constant[value=15]()",
        "%no : bool = prim::Constant[value=0]()",
        "%b : Tensor = aten::to(%x, %5, %no, %no, %none)",
        "%y : Tensor = aten::matmul(%x, %x)",
        "return (%y)",
    )
    graph = emulating(check("widen_products", text, weight(2), stock=True))
    for x in (torch.randn(64, 64), torch.randn(64, 64).double(), torch.arange(9).view(3, 3)):
        assert torch.equal(values_of(graph, x)[0], x @ x)
    x = torch.randn(64, 64).bfloat16()
    assert torch.equal(values_of(graph, x)[0], (x.float() @ x.float()).bfloat16())


@pytest.mark.parametrize(
    ("lines", "w"),
    [
        (("%y : Tensor = aten::linear(%x, %w, %none)",), weight(16, 16)),
        (("%y : Tensor = aten::linear(%x, %w, %none)",), weight(512, 512, dtype=torch.float32)),
        (("%y : Tensor = aten::add(%x, %w, %1)",), weight(512, 512)),
        (
            (
                '%equation : str = prim::Constant[value="ij->ij"]()',
                "%one : Tensor[] = prim::ListConstruct(%w)",
                "%y : Tensor = aten::einsum(%equation, %one, %none)",
            ),
            weight(512, 512),
        ),
    ],
    ids=["small", "float32", "a sum", "a view"],
)
def test_left_alone(lines: tuple[str, ...], w: Tensor) -> None:
    unchanged("widen_products", case(*lines, "return (%y)"), w, stock=True)


def test_phones_have_none_of_it() -> None:
    text = case("%y : Tensor = aten::linear(%x, %w, %none)", "return (%y)")
    unchanged("widen_products", text, weight(512, 512))
