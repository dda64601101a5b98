"""tell_aliases: a result that may be its operand is either, where one of them is written to."""

from __future__ import annotations

import pytest
import torch

from . import ir
from .ir import check, unchanged

DROPOUT = """
graph(%x : Tensor):
  %p : float = prim::Constant[value=0.5]()
  %no : bool = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  # CHECK: [[R:%[0-9]+]] : Tensor = aten::dropout
  # CHECK-NEXT: [[SAME:%[0-9]+]] : bool = aten::__is__([[R]], %x)
  # CHECK-NEXT: [[E:%[0-9]+]] : Tensor = prim::If([[SAME]])
  # CHECK: -> (%x)
  # CHECK: -> ([[R]])
  # CHECK: aten::add_([[E]]
  %r : Tensor = aten::dropout(%x, %p, %no)
  %w : Tensor = aten::add_(%r, %one, %one)
  return (%x)
"""


def test_a_write_to_the_result_is_one_to_the_operand() -> None:
    graph = check("tell_aliases", DROPOUT)
    torch._C._jit_pass_dce(graph)
    x = torch.ones(2)
    assert torch.equal(ir.values_of(graph, x)[0], torch.full((2,), 2.0))


def test_the_elements_of_a_list() -> None:
    """Each of the operands, for each that is taken from the result."""
    graph = check(
        "tell_aliases",
        """
graph(%x : Tensor, %y : Tensor):
  %one : int = prim::Constant[value=1]()
  # CHECK: prim::ListUnpack
  # CHECK: aten::__is__({{.*}}, %x)
  # CHECK: aten::__is__({{.*}}, %y)
  # CHECK: aten::add_
  %both : Tensor[] = prim::ListConstruct(%x, %y)
  %r : Tensor[] = aten::atleast_2d(%both)
  %a : Tensor, %b : Tensor = prim::ListUnpack(%r)
  %w : Tensor = aten::add_(%a, %one, %one)
  return (%x, %b)
""",
    )
    torch._C._jit_pass_dce(graph)
    x, y = torch.ones(2, 2), torch.ones(2, 2)
    first, second = ir.values_of(graph, x, y)
    assert torch.equal(first, torch.full((2, 2), 2.0)) and torch.equal(second, torch.ones(2, 2))


@pytest.mark.parametrize(
    "text",
    [
        # Nothing is written to.
        """
        graph(%x : Tensor, %y : Tensor):
          %r : Tensor = aten::type_as(%x, %y)
          return (%r, %x)
        """,
        # Something else is.
        """
        graph(%x : Tensor, %y : Tensor):
          %one : int = prim::Constant[value=1]()
          %s : Tensor = aten::relu(%x)
          %r : Tensor = aten::type_as(%s, %y)
          %t : Tensor = aten::relu(%y)
          %w : Tensor = aten::add_(%t, %one, %one)
          return (%r, %s, %w)
        """,
        # The schema says it.
        """
        graph(%x : Tensor):
          %one : int = prim::Constant[value=1]()
          %r : Tensor = aten::t(%x)
          %w : Tensor = aten::add_(%r, %one, %one)
          return (%x)
        """,
    ],
    ids=["no write", "another write", "a view"],
)
def test_stays(text: str) -> None:
    unchanged("tell_aliases", text)
