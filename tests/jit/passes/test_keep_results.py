"""keep_results: what is returned twice is not made one tensor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from .ir import check, operators, parse, unchanged

TWICE = "keep_results:3"


def storages(graph: torch._C.Graph, *inputs: object) -> int:
    """How many different tensors three results are, whichever call it is."""
    graph = graph.copy()
    graph.makeMultiOutputIntoTuple()
    function = torch._C._create_function_from_graph("case", graph)
    counts = {len({result.data_ptr() for result in function(*inputs)}) for _ in range(3)}
    [count] = counts
    return count


THREE = """
graph(%x : Tensor):
  # CHECK: [[A:%[0-9]+]] : Tensor = aten::relu(%x
  # CHECK: aten::neg([[A]])
  # CHECK: [[C:%[0-9]+]] : Tensor = aten::relu(%x
  # CHECK-NOT: aten::relu
  # CHECK: return ({{%[0-9]+}}, [[A]], [[C]])
  %1 : Tensor = aten::relu(%x)
  %2 : Tensor = aten::neg(%1)
  %3 : Tensor = aten::relu(%x)
  %4 : Tensor = aten::relu(%x)
  return (%2, %3, %4)
"""


def test_the_first_of_three_is_one_of_two_results() -> None:
    x = torch.ones(2)
    assert storages(parse(THREE), x) == 2  # PyTorch's executor, by itself
    assert storages(check(TWICE, THREE), x) == 3


def test_what_is_equal_because_its_operands_are() -> None:
    graph = check(
        TWICE,
        """
graph(%x : Tensor):
  %a : Tensor = aten::neg(%x)
  %b : Tensor = aten::neg(%x)
  %c : Tensor = aten::neg(%x)
  %1 : Tensor = aten::relu(%a)
  %2 : Tensor = aten::exp(%1)
  %3 : Tensor = aten::relu(%b)
  %4 : Tensor = aten::relu(%c)
  return (%2, %3, %4)
""",
    )
    assert storages(graph, torch.ones(2)) == 3


BRANCH = """
graph(%x : Tensor, %c : bool):
  %1 : Tensor = aten::relu(%x)
  %2 : Tensor = aten::neg(%1)
  %r : Tensor, %s : Tensor = prim::If(%c)
    block0():
      %3 : Tensor = aten::relu(%x)
      %4 : Tensor = aten::relu(%x)
      -> (%3, %4)
    block1():
      -> (%x, %x)
  return (%2, %r, %s)
"""


def test_in_a_branch() -> None:
    assert storages(parse(BRANCH), torch.ones(2), True) == 2
    assert storages(check(TWICE, BRANCH), torch.ones(2), True) == 3


@pytest.mark.parametrize(
    "text",
    [
        # One result.
        """
graph(%x : Tensor):
  %1 : Tensor = aten::relu(%x)
  %2 : Tensor = aten::relu(%x)
  %3 : Tensor = aten::add(%1, %2, %x)
  return (%3)
""",
        # Equal, and only one of them a result.
        """
graph(%x : Tensor):
  %1 : Tensor = aten::relu(%x)
  %2 : Tensor = aten::neg(%1)
  %3 : Tensor = aten::relu(%x)
  return (%2, %3)
""",
        # Different random numbers.
        """
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %1 : Tensor = aten::bernoulli(%x, %none)
  %2 : Tensor = aten::neg(%1)
  %3 : Tensor = aten::bernoulli(%x, %none)
  %4 : Tensor = aten::bernoulli(%x, %none)
  return (%2, %3, %4)
""",
        # A write between them.
        """
graph(%x : Tensor):
  %1 : Tensor = aten::relu(%x)
  %2 : Tensor = aten::neg(%1)
  %w : Tensor = aten::relu_(%x)
  %3 : Tensor = aten::relu(%x)
  %4 : Tensor = aten::relu(%x)
  return (%2, %3, %4)
""",
    ],
    ids=["one result", "one of two", "random", "written"],
)
def test_it_leaves_alone(text: str) -> None:
    unchanged(TWICE, text)


def test_what_is_marked_stays_apart_in_pytorchs_pass() -> None:
    graph = check("keep_results", THREE.replace("# CHECK", "#"))
    graph.makeMultiOutputIntoTuple()
    marked = [node.kind() for node in graph.nodes() if node.hasAttribute("jit_amp_result")]
    assert marked == ["aten::neg", "aten::relu", "aten::relu"]
    torch._C._jit_pass_cse(graph)
    assert operators(graph) == [*operators(parse(THREE)), "prim::TupleConstruct"]


def test_what_has_no_marks_becomes_one() -> None:
    plain = parse(THREE)
    plain.makeMultiOutputIntoTuple()
    torch._C._jit_pass_cse(plain)
    assert operators(plain).count("aten::relu") == 1


def test_eager_agrees() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.relu(x).neg(), torch.relu(x), torch.relu(x)

    assert len({result.data_ptr() for result in program(torch.ones(2))}) == 3
