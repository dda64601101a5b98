"""promote_operands: a cast that arithmetic makes by itself, written out for differentiation."""

from __future__ import annotations

import pytest

from . import ir
from .ir import check, unchanged


def case(call: str, inputs: str, checks: str = "") -> str:
    return f"""
    graph({inputs}):
      {checks}
      %one : int = prim::Constant[value=1]()
      %up : str = prim::Constant[value="floor"]()
      %y : Tensor = {call}
      return (%y)
    """


WIDE, NARROW = "%w : Float(*, device=cpu)", "%n : BFloat16(*, device=cpu)"


@pytest.mark.parametrize(
    "call",
    [
        "aten::add(%w, %n, %one)",
        "aten::add(%n, %w, %one)",
        "aten::sub(%n, %w, %one)",
        "aten::mul(%w, %n)",
        "aten::div(%n, %w)",
    ],
)
def test_the_narrower_operand_is_cast(call: str) -> None:
    graph = check("promote_operands", case(call, f"{WIDE}, {NARROW}"))
    [to] = [node for node in ir.nodes_of(graph) if node.kind() == "aten::to"]
    assert to.inputsAt(0).debugName() == "n" and to.inputsAt(1).toIValue() == 6


def test_both_are_cast_to_what_neither_is() -> None:
    """bfloat16 and float16 give float32."""
    inputs = f"%h : Half(*, device=cpu), {NARROW}"
    graph = check("promote_operands", case("aten::add(%h, %n, %one)", inputs))
    assert ir.operators(graph) == ["aten::to", "aten::to", "aten::add"]


@pytest.mark.parametrize(
    ("call", "inputs"),
    [
        # The same dtype.
        ("aten::add(%w, %w, %one)", WIDE),
        # A dtype that is not known: the result may be of either.
        ("aten::add(%w, %n, %one)", f"{WIDE}, %n : Tensor"),
        # Without dimensions it decides nothing: the result is bfloat16, and float32 would round.
        ("aten::add(%w, %n, %one)", f"%w : Float(), {NARROW}"),
        # A number is no tensor.
        ("aten::add(%n, %one, %one)", NARROW),
        # In place the result is of the first operand's dtype.
        ("aten::add_(%w, %n, %one)", f"{WIDE}, {NARROW}"),
        # Integers have no gradients.
        ("aten::add(%w, %i, %one)", f"{WIDE}, %i : Long(*, device=cpu)"),
        # An operator that does not promote by itself.
        ("aten::mm(%w, %n)", f"{WIDE}, {NARROW}"),
    ],
)
def test_others_stay(call: str, inputs: str) -> None:
    unchanged("promote_operands", case(call, inputs))
