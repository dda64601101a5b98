"""channels_last: weights with channels last, and results in the layout that eager gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from .ir import TENSOR, check, parse, unchanged, values_of


def weight(outputs: int = 8, inputs: int = 8, size: int = 3, dtype: torch.dtype = torch.bfloat16):
    torch.manual_seed(0)
    return torch.randn(outputs, inputs, size, size, dtype=dtype) / 8


HEAD = f"""
    graph(%x : Tensor, %z : Tensor):
      %v : {TENSOR}
      %w : {TENSOR}
      %none : NoneType = prim::Constant()
      %0 : int = prim::Constant[value=0]()
      %1 : int = prim::Constant[value=1]()
      %one : int[] = prim::Constant[value=[1, 1]]()
      %hw : int[] = prim::Constant[value=[2, 3]]()
      %no : bool = prim::Constant[value=0]()
"""
FIRST = "%a : Tensor = aten::conv2d(%x, %v, %none, %one, %one, %one, %1)"
SECOND = "%c : Tensor = aten::conv2d(%b, %w, %none, %one, %one, %one, %1)"


def case(*lines: str) -> str:
    return HEAD + "".join(f"      {line}\n" for line in lines)


def inputs() -> list[tuple[Tensor, Tensor]]:
    x = torch.randn(2, 8, 5, 5, dtype=torch.bfloat16)
    last = x.contiguous(memory_format=torch.channels_last)
    return [(x, x + 1), (last, x), (x[:0], x), (x[0], x), (last[:, :, ::2], x)]


def assert_as_before(text: str, tensors: tuple[Tensor, ...]) -> None:
    """The same values, up to the order of sums, with the same strides."""
    changed = check("channels_last", text, *tensors, exported=True)
    assert all(
        node.t("value").is_contiguous(memory_format=torch.channels_last)
        for node in changed.findAllNodes("prim::Constant")
        if node.hasAttribute("value") and node.kindOf("value") == "t"
    )
    before = parse(text, *tensors)
    for given in inputs():
        expected = values_of(before, *(t.clone() for t in given))
        actual = values_of(changed, *(t.clone() for t in given))
        for ours, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)
            assert not ours.numel() or ours.stride() == theirs.stride()


def test_through_what_keeps_layouts() -> None:
    text = case(
        "# CHECK: aten::conv2d(%x",
        FIRST,
        "# CHECK-NEXT: aten::relu_",
        "%b : Tensor = aten::relu_(%a)",
        "# CHECK-NEXT: aten::conv2d",
        SECOND,
        "# CHECK: aten::contiguous",
        "return (%c)",
    )
    assert_as_before(text, (weight(), weight()))


def test_before_a_view_and_before_what_only_reads() -> None:
    text = case(
        FIRST,
        "%b : Tensor = aten::relu(%a)",
        SECOND,
        "# CHECK-COUNT-2: aten::contiguous",
        "%f : Tensor = aten::flatten(%c, %1, %1)",
        "%s : Tensor = aten::softmax(%b, %1, %none)",
        "# CHECK-NOT: aten::contiguous",
        "%m : Tensor = aten::mean(%b, %hw, %no, %none)",
        "return (%f, %s)",
    )
    assert_as_before(text, (weight(), weight()))


def test_another_tensors_layout_would_be_the_results() -> None:
    text = case(
        FIRST,
        "# CHECK: [[A:%[0-9]+]] : Tensor = aten::contiguous",
        "# CHECK-NEXT: aten::add(%z, [[A]]",
        "%b : Tensor = aten::add(%z, %a, %1)",
        SECOND,
        "return (%c)",
    )
    check("channels_last", text, weight(), weight(), exported=True)


@pytest.mark.parametrize(
    ("why", "lines", "tensors"),
    [
        (
            "float32, as outside a scope",
            (FIRST, "%b : Tensor = aten::relu(%a)", SECOND, "return (%c)"),
            (weight(dtype=torch.float32), weight(dtype=torch.float32)),
        ),
        (
            "given with channels last: eager's are",
            (FIRST, "%b : Tensor = aten::relu(%a)", SECOND, "return (%c)"),
            (weight().contiguous(memory_format=torch.channels_last),) * 2,
        ),
        (
            "a view, and then a write to the whole",
            (
                FIRST,
                "%b : Tensor = aten::relu(%a)",
                SECOND,
                "%s : Tensor = aten::slice(%c, %1, %1, %none, %1)",
                "%d : Tensor = aten::relu_(%c)",
                "return (%s, %d)",
            ),
            (weight(), weight()),
        ),
        (
            "the caller gets both the result and a view of it",
            (
                FIRST,
                "%b : Tensor = aten::relu(%a)",
                SECOND,
                "%d : Tensor = aten::relu_(%c)",
                "return (%c, %d)",
            ),
            (weight(), weight()),
        ),
        (
            "the weight is used for something else",
            (
                FIRST,
                "%b : Tensor = aten::relu(%a)",
                "%c : Tensor = aten::conv2d(%b, %v, %none, %one, %one, %one, %1)",
                "%s : Tensor = aten::sum(%v, %none)",
                "return (%c, %s)",
            ),
            (weight(), weight()),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_left_alone(why: str, lines: tuple[str, ...], tensors: tuple[Tensor, ...]) -> None:
    unchanged("channels_last", case(*lines), *tensors, exported=True)
