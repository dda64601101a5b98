"""decompose: an opaque composite becomes its definition, lowered by the state that it runs in."""

from __future__ import annotations

import pytest

from .ir import check, unchanged

CASE = """
graph(%x : Tensor, %z : Tensor, %flag : bool, %number : int):
  # CHECK{checks}
  %on : bool = prim::Constant[value=1]()
  %off : bool = prim::Constant[value=0]()
  %bf : int = jit_amp::deferred[value=15]()
  %half : int = jit_amp::deferred[value=5]()
  %plain : int = prim::Constant[value=15]()
  %y : {type_of} = jit_amp::{scoped}[devices="{devices}"]({state}, %x, %z)
  return (%y)
with graph(%x : Tensor, %z : Tensor):
  %none : NoneType = prim::Constant()
  %one : int = prim::Constant[value=1]()
  %three : int = prim::Constant[value=3]()
  %y : {type_of} = {call}
  return (%y)
"""


def case(
    call: str,
    checks: str = "",
    *,
    state: str = "%on, %bf",
    devices: str = "cpu",
    scoped: str = "scoped",
) -> str:
    return CASE.format(
        call=call,
        checks="\n  # CHECK".join(checks.splitlines()) or ": graph",
        state=state,
        devices=devices,
        scoped=scoped,
        type_of="Tensor",
    )


def test_definition_is_lowered() -> None:
    """A product that calls `mm` has `mm`'s casts; nothing of the scope is left."""
    checks = """\
-NOT: jit_amp::scoped
: [[X:%[0-9]+]] : Tensor = jit_amp::cast(
: [[Z:%[0-9]+]] : Tensor = jit_amp::cast(
: aten::mm([[X]], [[Z]])
-NOT: jit_amp::scoped"""
    check("decompose", case("aten::inner(%x, %z)", checks), stock=True)


def test_the_dtype_is_the_scopes() -> None:
    """And not that of a scope nearby."""
    checks = """\
-NOT: value=15
: jit_amp::deferred[value=5]()
-NOT: value=15
: jit_amp::cast(
-NOT: value=15"""
    text = case("aten::inner(%x, %z)", checks, state="%on, %half").replace(
        "  %bf : int = jit_amp::deferred[value=15]()\n", ""
    )
    text = text.replace("  %plain : int = prim::Constant[value=15]()\n", "")
    check("decompose", text, stock=True)


def test_definition_in_terms_of_composites() -> None:
    """What a definition leaves opaque is looked at again."""
    checks = "-NOT: jit_amp::scoped\n: jit_amp::cast\n: aten::\n-NOT: aten::chain_matmul"
    text = case("aten::matrix_power(%x, %three)", checks)
    check("decompose", text, stock=True)


def test_in_a_branch() -> None:
    """Opaque nodes in blocks are nodes too."""
    check(
        "decompose",
        """
graph(%x : Tensor, %c : bool):
  # CHECK: prim::If
  # CHECK: block0
  # CHECK-NOT: jit_amp::scoped
  # CHECK: jit_amp::cast(
  # CHECK: aten::mm(
  %on : bool = prim::Constant[value=1]()
  %bf : int = jit_amp::deferred[value=15]()
  %r : Tensor = prim::If(%c)
    block0():
      %y : Tensor = jit_amp::scoped[devices="cpu"](%on, %bf, %x)
      -> (%y)
    block1():
      -> (%x)
  return (%r)
with graph(%x : Tensor):
  %y : Tensor = aten::inner(%x, %x)
  return (%y)
""",
    )


@pytest.mark.parametrize(
    ("call", "state", "devices"),
    [
        # No definition says what it calls.
        ("aten::lu_unpack(%x, %z)", "%on, %bf", "cpu"),
        ("some::operator(%x, %z)", "%on, %bf", "cpu"),
        # The state is known at run time only.
        ("aten::inner(%x, %z)", "%flag, %bf", "cpu"),
        ("aten::inner(%x, %z)", "%on, %number", "cpu"),
        ("aten::inner(%x, %z)", "%on, %plain", "cpu"),
        # A definition knows of no device without lists.
        ("aten::inner(%x, %z)", "%on, %bf", "hpu"),
        ("aten::inner(%x, %z)", "%on, %bf, %on, %bf", "cpu hpu"),
    ],
    ids=["none", "not of ATen", "enabled", "dtype", "folded", "device", "two devices"],
)
def test_stays(call: str, state: str, devices: str) -> None:
    """legalize will say at its line why it cannot be exported."""
    unchanged("decompose", case(call, state=state, devices=devices))


@pytest.mark.parametrize(
    "text",
    [
        # The same operator outside any scope.
        """
        graph(%x : Tensor):
          %y : Tensor = aten::inner(%x, %x)
          return (%y)
        """,
        # One that has a policy is lowered already.
        """
        graph(%x : Tensor):
          %none : NoneType = prim::Constant()
          %bf : int = jit_amp::deferred[value=15]()
          %c : Tensor = jit_amp::cast(%x, %bf, %none)
          %y : Tensor = aten::mm(%c, %c)
          return (%y)
        """,
    ],
    ids=["outside", "lowered"],
)
def test_nothing_opaque(text: str) -> None:
    """Composites are not taken apart for their own sake."""
    unchanged("decompose", text)
