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
    other = torch.cat([x, x], 1).contiguous(memory_format=torch.channels_last)
    given = [x, last, x[:0], last[:0], x[0], last[0], last[0].unsqueeze(0), last[:, :, ::2]]
    given += [other[:, ::2], x[:, :, :1, :1], last[:, :, :1, :1], last[:, :, :, :1]]
    given += [
        last.transpose(2, 3),
        last[:, :, :1, :1].expand_as(x),
        x[:, :1].expand_as(x),
        x.transpose(1, 3)[:, [0] * 8],
    ]
    return [(each, x + 1) for each in given]


def strides(tensor: Tensor) -> list[int]:
    """Of the dimensions where they mean something."""
    return [s for s, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def assert_as_before(text: str, tensors: tuple[Tensor, ...]) -> None:
    """The same values, up to the order of sums, with the same strides."""
    changed = check("channels_last", text, *tensors, stock=True)
    assert all(
        node.t("value").is_contiguous(memory_format=torch.channels_last)
        for node in changed.findAllNodes("prim::Constant")
        if node.hasAttribute("value") and node.kindOf("value") == "t"
    )
    before = parse(text, *tensors)
    for given in inputs():
        expected, actual = values_of(before, *given), values_of(changed, *given)
        for ours, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)
            assert not ours.numel() or strides(ours) == strides(theirs)


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
        "# CHECK: aten::contiguous",
        "# CHECK: [[A:%[0-9]+]] : Tensor = aten::to",
        "# CHECK-NEXT: aten::add(%z, [[A]]",
        "%b : Tensor = aten::add(%z, %a, %1)",
        SECOND,
        "return (%c)",
    )
    check("channels_last", text, weight(), weight(), stock=True)


def test_one_channel() -> None:
    """Where both layouts are contiguous, and only the strides say which it was."""
    text = case(SECOND.replace("%b", "%x"), "return (%c)")
    for channels, given in ((1, torch.randn(2, 1, 5, 5)), (1, torch.randn(2, 1, 1, 1))):
        kernel = weight(inputs=channels)
        changed = check("channels_last", text, kernel, kernel, stock=True)
        before = parse(text, kernel, kernel)
        last = torch.randn(2, 5, 5, 1).permute(0, 3, 1, 2)
        for x in (given.bfloat16(), last.bfloat16(), last[:, :, :1, :1].bfloat16()):
            actual, expected = (values_of(graph, x, x)[0] for graph in (changed, before))
            assert actual.stride() == expected.stride()


def test_one_channel_or_pixel_leaves_in_the_layout_that_it_had() -> None:
    """What follows outside takes its layout from strides that are the same otherwise."""
    text = case(FIRST, "%b : Tensor = aten::stack(%l, %1)", "return (%a, %b)").replace(
        "%b : T", "%l : Tensor[] = prim::ListConstruct(%a, %a)\n      %b : T"
    )
    for outputs in (1, 8):
        kernel = weight(outputs)
        changed = check("channels_last", text, kernel, kernel, stock=True)
        before = parse(text, kernel, kernel)
        for x, _ in inputs():
            for actual, expected in zip(
                values_of(changed, x, x), values_of(before, x, x), strict=True
            ):
                assert not actual.numel() or strides(actual) == strides(expected)


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
    unchanged("channels_last", case(*lines), *tensors, stock=True)
