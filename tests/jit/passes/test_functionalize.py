"""functionalize: what is done in place makes new tensors, and lists are made at once."""

from __future__ import annotations

import pytest
import torch

from .ir import check, parse, unchanged, values_of


def case(*lines: str) -> str:
    return """
    graph(%x : Float(2, 3, device=cpu), %z : Float(2, 3, device=cpu)):
      %0 : int = prim::Constant[value=0]()
      %1 : int = prim::Constant[value=1]()
      %slope : float = prim::Constant[value=0.25]()
      %p : Tensor = aten::abs(%x)
      %q : Tensor = aten::abs(%z)
      %a : Tensor = aten::neg(%p)
      %b : Tensor = aten::neg(%q)
""" + "".join(f"      {line}\n" for line in lines)


def assert_as_before(text: str) -> None:
    changed, before = check("functionalize", text, stock=True), parse(text)
    x, z = torch.randn(2, 3), torch.randn(2, 3)
    for ours, theirs in zip(values_of(changed, x, z), values_of(before, x, z), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("call", ["relu_(%a)", "leaky_relu_(%a, %slope)", "hardswish_(%a)"])
def test_activations_for_servers(call: str) -> None:
    name = call.partition("_(")[0]
    assert_as_before(
        case(
            f"# CHECK: aten::{name}(",
            f"# CHECK-NOT: aten::{name}_(",
            f"%y : Tensor = aten::{call}",
            "return (%y)",
        )
    )


def test_a_list_with_what_an_activation_wrote() -> None:
    """The write to `%d` stood between, and `%c` and `%d` are in one list."""
    assert_as_before(
        case(
            "# CHECK-NOT: aten::append",
            "# CHECK-NOT: aten::__getitem__",
            "%c : Tensor = aten::relu_(%a)",
            "%l : Tensor[] = prim::ListConstruct(%c)",
            "%d : Tensor = aten::relu_(%b)",
            "%m : Tensor[] = aten::append(%l, %d)",
            "%n : int = aten::len(%l)",
            "%i : int = aten::sub(%n, %1)",
            "%e : Tensor = aten::__getitem__(%l, %i)",
            "%f : Tensor = aten::__getitem__(%l, %0)",
            "%g : Tensor = aten::sub(%e, %f, %1)",
            "return (%g)",
        )
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("%y : Tensor = aten::relu_(%x)", "return (%y)"),
        ("%v : Tensor = aten::t(%a)", "%y : Tensor = aten::relu_(%a)", "return (%v, %y)"),
        ("%y : Tensor = aten::add_(%a, %b, %1)", "return (%y)"),
        # It may be %a itself, though its schema says that it is new.
        (
            "%s : Tensor = aten::type_as(%a, %a)",
            "%y : Tensor = aten::relu_(%s)",
            "return (%a, %y)",
        ),
        (
            "%l : Tensor[] = prim::ListConstruct(%a)",
            "%n : int = aten::size(%x, %0)",
            "%y : Tensor = aten::__getitem__(%l, %n)",
            "%m : Tensor[] = aten::append(%l, %b)",
            "return (%y, %l)",
        ),
    ],
    ids=[
        "the caller's",
        "viewed",
        "another dtype is possible",
        "maybe its operand",
        "a list that is read between",
    ],
)
def test_left_alone_for_servers(lines: tuple[str, ...]) -> None:
    unchanged("functionalize", case(*lines), stock=True)
