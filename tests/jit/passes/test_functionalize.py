"""functionalize: activations in place make new tensors, and for servers lists are made at once."""

from __future__ import annotations

import pytest
import torch

from .ir import check, parse, unchanged, values_of

BF16 = "BFloat16(2, 4, device=cpu)"


def case(*lines: str, x: str = BF16) -> str:
    body = "".join(f"      {line}\n" for line in lines)
    return f"""
    graph(%x : {x}):
      %0 : int = prim::Constant[value=0]()
      %1 : int = prim::Constant[value=1]()
      %a : Tensor = aten::neg(%x)
{body}"""


@pytest.mark.parametrize("name", ["relu", "relu6", "sigmoid", "tanh", "hardswish", "abs"])
def test_before_what_is_not_observed(name: str) -> None:
    text = case(
        f"# CHECK: aten::{name}(",
        f"%y : Tensor = aten::{name}_(%a)",
        "%z : Tensor = aten::select(%y, %0, %1)",
        "return (%z)",
    )
    graph = check("functionalize", text)
    assert f"aten::{name}_" not in str(graph)
    x = torch.randn(2, 4).bfloat16()
    assert torch.equal(values_of(graph, x)[0], values_of(parse(text), x)[0])


def test_before_a_tuple() -> None:
    text = case(
        "# CHECK: aten::relu(",
        "%y : Tensor = aten::relu_(%a)",
        "%t : (Tensor, int) = prim::TupleConstruct(%y, %0)",
        "return (%t)",
    )
    check("functionalize", text)


@pytest.mark.parametrize(
    "lines",
    [
        # Its operand is observed, by oneDNN's fusion and by PyTorch's other one.
        ("%y : Tensor = aten::relu_(%a)", "%z : Tensor = aten::mm(%y, %y)", "return (%z)"),
        ("%y : Tensor = aten::relu_(%a)", "%z : Tensor = aten::neg(%y)", "return (%z)"),
        ("%y : Tensor = aten::relu_(%a)", "%n : int = aten::dim(%y)", "return (%y, %n)"),
        # Others see what is written.
        ("%y : Tensor = aten::relu_(%x)", "return (%y)"),
        ("%v : Tensor = aten::t(%a)", "%y : Tensor = aten::relu_(%a)", "return (%y, %v)"),
        # Not taken by the fusion.
        ("%y : Tensor = aten::celu_(%a, %1)", "return (%y)"),
        # In place already no more.
        ("%y : Tensor = aten::relu(%a)", "return (%y)"),
    ],
    ids=["product", "negated", "dim", "input", "view", "celu", "new tensor"],
)
def test_stays(lines: tuple[str, ...]) -> None:
    unchanged("functionalize", case(*lines))


@pytest.mark.parametrize("x", ["Tensor", "Long(2, 4, device=cpu)", "BFloat16(2, 4, device=cuda:0)"])
def test_only_of_floating_point_on_a_cpu(x: str) -> None:
    lines = ("%y : Tensor = aten::relu_(%a)", "%z : Tensor = aten::select(%y, %0, %1)")
    unchanged("functionalize", case(*lines, "return (%z)", x=x))


def server_case(*lines: str) -> str:
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
        server_case(
            f"# CHECK: aten::{name}(",
            f"# CHECK-NOT: aten::{name}_(",
            f"%y : Tensor = aten::{call}",
            "return (%y)",
        )
    )


def test_a_list_with_what_an_activation_wrote() -> None:
    """The write to `%d` stood between, and `%c` and `%d` are in one list."""
    assert_as_before(
        server_case(
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
    unchanged("functionalize", server_case(*lines), stock=True)
