"""keep_gradients: no chain of operators that PyTorch's executor would differentiate itself."""

from __future__ import annotations

from .ir import check, unchanged

FORCES = """
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %yes : bool = prim::Constant[value=1]()
  %no : bool = prim::Constant[value=0]()
  # CHECK: [[A:%[0-9]+]] : Tensor = aten::relu
  # CHECK-NEXT: [[B:%[0-9]+]] : Tensor = aten::alias([[A]])
  # CHECK-NEXT: [[C:%[0-9]+]] : Tensor = aten::sigmoid([[B]])
  # CHECK-NEXT: [[D:%[0-9]+]] : Tensor = aten::alias([[C]])
  # CHECK: prim::ListConstruct([[D]])
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::sigmoid(%a)
  %ys : Tensor[] = prim::ListConstruct(%b)
  %xs : Tensor[] = prim::ListConstruct(%x)
  {grad}
  return ({result})
"""
GRAD = "%g : Tensor?[] = aten::grad(%ys, %xs, %none, %none, %no, %no)"


def test_a_program_that_takes_gradients() -> None:
    check("keep_gradients", FORCES.format(grad=GRAD, result="%g"))


def test_no_other() -> None:
    unchanged("keep_gradients", FORCES.format(grad="", result="%b"))
