"""write_strides: a pooling without a stride has its kernel's size written out for it."""

from __future__ import annotations

import pytest
import torch

from .ir import check, parse, unchanged, values_of

CALLS = [
    "aten::max_pool2d(%x, %kernel, %stride, %none, %one, %no)",
    "aten::avg_pool2d(%x, %kernel, %stride, %none, %no, %no, %unset)",
]


def case(call: str, stride: str = "annotate(List[int], [])") -> str:
    made = "ListConstruct()" if stride == "made" else f"Constant[value={stride}]()"
    return f"""
    graph(%x : Tensor):
      %no : bool = prim::Constant[value=0]()
      %unset : NoneType = prim::Constant()
      %none : int[] = prim::Constant[value=[0, 0]]()
      %one : int[] = prim::Constant[value=[1, 1]]()
      %kernel : int[] = prim::Constant[value=[2, 3]]()
      %stride : int[] = prim::{made}
      %y : Tensor = {call}
      return (%y)
    """


@pytest.mark.parametrize("call", CALLS)
def test_written_out(call: str) -> None:
    """A list that is made, as parse_ir has no constant that is empty."""
    text = case(call, "made")
    graph = check("write_strides", text)
    (pool,) = graph.findAllNodes(call.partition("(")[0])
    assert pool.inputsAt(2).debugName() == pool.inputsAt(1).debugName()
    x = torch.rand(1, 2, 8, 9)
    assert torch.equal(values_of(graph, x)[0], values_of(parse(text), x)[0])
    unchanged("write_strides", str(graph))


def test_a_list_that_others_have_stays() -> None:
    """They might write to it."""
    text = case(CALLS[0], "made").replace("return (%y)", "return (%y, %stride)")
    unchanged("write_strides", text)


@pytest.mark.parametrize("call", CALLS)
def test_a_stride_stays(call: str) -> None:
    unchanged("write_strides", case(call, "[1, 1]"))


def test_of_others_it_says_something_else() -> None:
    """An empty stride of a convolution is not its kernel's size."""
    unchanged("write_strides", case("aten::conv2d(%x, %x, %unset, %stride, %none, %one)", "made"))
