"""share_parts: constants that are parts of another one's memory become views of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from jit_amp import _C

from . import ir
from .ir import TENSOR, check, unchanged


def case(count: int, body: str = "", checks: str = "", inputs: str = "%x : Tensor") -> str:
    lines = [f"# CHECK{line}" for line in checks.splitlines()]
    lines += [f"%t{i} : {TENSOR}" for i in range(count)]
    lines += body.splitlines()
    results = ", ".join(f"%t{i}" for i in range(count))
    return f"graph({inputs}):\n  " + "\n  ".join(lines) + f"\n  return ({results})\n"


def whole() -> Tensor:
    return torch.arange(12.0).reshape(4, 3)


def test_part() -> None:
    """Sizes, strides and offset are the part's."""
    weight = whole()
    checks = """\
: [[W:%[0-9]+]] : Float(4, 3{{.*}} = prim::Constant
-DAG: [[SIZES:%[0-9]+]] : int[] = prim::Constant[value=[2, 3]]
-DAG: [[STRIDES:%[0-9]+]] : int[] = prim::Constant[value=[3, 1]]
-DAG: [[OFFSET:%[0-9]+]] : int = prim::Constant[value=6]
: [[P:%[0-9]+]] : Tensor = aten::as_strided([[W]], [[SIZES]], [[STRIDES]], [[OFFSET]])
-NOT: Float(2, 3
: return ([[W]], [[P]])"""
    graph = check("share_parts", case(2, checks=checks), weight, weight[2:])
    assert torch.equal(ir.values_of(graph, weight)[1], weight[2:])


def test_part_before_the_whole() -> None:
    """The whole moves up: it has to be there first."""
    weight = whole()
    checks = ": Float(4, 3\n: aten::as_strided"
    graph = check("share_parts", case(2, checks=checks), weight[1], weight)
    assert torch.equal(ir.values_of(graph, weight)[0], weight[1])


@pytest.mark.parametrize(
    "part",
    [
        lambda w: w.t(),  # all of it, the other way round
        lambda w: w.view(12),
        lambda w: w[:, 1],
        lambda w: w,  # the same tensor once more
        lambda w: w[1:1],
        lambda w: w[0, 0].expand(5),
    ],
    ids=["transposed", "flat", "column", "same", "empty", "expanded"],
)
def test_kinds_of_parts(part: torch.nn.Module) -> None:
    """Whatever a view can be; its values stay."""
    weight = whole()
    graph = check("share_parts", case(2), weight, part(weight))
    assert graph.findNode("aten::as_strided") is not None
    assert torch.equal(ir.values_of(graph, weight)[1], part(weight))


def test_all_parts_of_one() -> None:
    """What `chunk(3)` gave: one constant is left."""
    weight = torch.arange(12.0)
    graph = check("share_parts", case(4), weight, *weight.chunk(3))
    assert len(graph.findAllNodes("aten::as_strided")) == 3


def test_in_a_branch() -> None:
    """The whole goes to the beginning, where it is seen from everywhere."""
    weight = whole()
    text = f"""
graph(%x : Tensor, %c : bool):
  # CHECK: Float(4, 3{{{{.*}}}} = prim::Constant
  # CHECK: prim::If
  # CHECK: aten::as_strided
  %y : Tensor = prim::If(%c)
    block0():
      %p : {TENSOR}
      -> (%p)
    block1():
      %w : {TENSOR}
      -> (%w)
  return (%y)
"""
    graph = check("share_parts", text, weight[2:], weight)
    assert torch.equal(ir.values_of(graph, weight, True)[0], weight[2:])
    assert torch.equal(ir.values_of(graph, weight, False)[0], weight)


def test_other_memory() -> None:
    """Equal values are not one tensor."""
    unchanged("share_parts", case(2), whole(), whole()[2:].clone())


def test_parts_without_the_whole() -> None:
    """A constant that is larger than what is needed would make the file larger."""
    weight = whole()
    unchanged("share_parts", case(2), weight[:2], weight[2:])


def test_one_constant() -> None:
    """A whole alone stays where it is."""
    unchanged("share_parts", case(1), whole())


def test_another_dtype() -> None:
    """`as_strided` does not read memory in another dtype."""
    weight = whole()
    unchanged("share_parts", case(2), weight, weight.view(torch.int32)[1:])


def test_conjugate() -> None:
    """Nor conjugated."""
    weight = torch.ones(2, 2, dtype=torch.complex64)
    unchanged("share_parts", case(2), weight, weight.conj())


@pytest.mark.parametrize("written", ["%t0", "%t1"])
def test_written(written: str) -> None:
    """A write to one of them would show in the other, as it does not in a loaded artefact."""
    weight = whole()
    body = f"%w : Tensor = aten::relu_({written})"
    unchanged("share_parts", case(2, body), weight, weight[2:])


def test_written_through_a_view() -> None:
    """AliasDb knows of it."""
    weight = whole()
    body = "%v : Tensor = aten::t(%t0)\n%w : Tensor = aten::relu_(%v)"
    unchanged("share_parts", case(2, body), weight, weight[2:])


def test_write_to_something_else() -> None:
    """A write to what is made in the graph does not matter."""
    weight = whole()
    body = "%v : Tensor = aten::relu(%x)\n%w : Tensor = aten::relu_(%v)"
    check("share_parts", case(2, body), weight, weight[2:])


def test_in_a_task() -> None:
    """A task's constants are in another graph, where the whole is not."""
    weight = whole()
    graph = ir.parse(
        f"""
graph(%x : Tensor):
  %w : {TENSOR}
  %f : Future(Tensor) = prim::fork(%x)
  %r : Tensor = aten::wait(%f)
  return (%r, %w)
with graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  return (%y)
""",
        weight,
    )
    task = graph.findNode("prim::fork").g("Subgraph")
    task.registerOutput(task.insertConstant(weight[2:]))
    before = str(graph)
    assert not _C.run_pass("share_parts", graph, {}, False)
    assert str(graph) == before
