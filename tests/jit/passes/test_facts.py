"""facts: what is known of each value, printed as dtypes, device, and whether it has dimensions."""

from __future__ import annotations

import inspect
import textwrap

import pytest
import torch

from jit_amp import _C

from . import ir
from .ir import TENSOR

CONSTANTS = {
    "%none": "NoneType = prim::Constant()",
    "%zero": "int = prim::Constant[value=0]()",
    "%one": "int = prim::Constant[value=1]()",
    "%bf": "int = prim::Constant[value=15]()",
    "%half": "float = prim::Constant[value=0.5]()",
    "%yes": "bool = prim::Constant[value=1]()",
    "%no": "bool = prim::Constant[value=0]()",
    "%key": 'str = prim::Constant[value="a"]()',
}
# A float32 and a bfloat16 tensor on the CPU, one of float64 without dimensions, one of integers.
INPUTS = {
    "%f": "Float(*, *, device=cpu)",
    "%b": "BFloat16(*, *, device=cpu)",
    "%d": "Double(device=cpu)",
    "%i": "Long(*, device=cpu)",
    "%g": "Float(*, device=cuda:0)",
    "%u": "Tensor",
    "%o": "Tensor?",
    "%l": "Tensor[]",
    "%n": "int",
    "%c": "bool",
}


def knows(body: str, expected: str, *tensors: torch.Tensor) -> None:
    """What is known of the results of `body`'s nodes, a line each."""
    head = [f"  {name} : {made}\n" for name, made in CONSTANTS.items() if name in body]
    lines = textwrap.indent(inspect.cleandoc(body), "  ")
    inputs = ", ".join(f"{name} : {type_of}" for name, type_of in INPUTS.items())
    text = f"\ngraph({inputs}):\n{''.join(head)}{lines}\n  return ()\n"
    assert _C.facts_of(ir.parse(text, *tensors)).strip() == inspect.cleandoc(expected)


@pytest.mark.parametrize(
    ("call", "known"),
    [
        ("aten::add(%f, %b, %one)", "Float cpu some"),  # type promotion
        ("aten::add(%b, %d, %one)", "BFloat16 cpu some"),  # without dimensions it does not count
        ("aten::mul(%i, %d)", "Double cpu some"),  # but for its category
        ("aten::add(%d, %d, %one)", "Double cpu none"),
        ("aten::mul(%b, %half)", "BFloat16 cpu some"),  # nor does a number
        ("aten::mul(%i, %one)", "Long cpu some"),
        ("aten::add(%f, %u, %one)", "any cpu some"),  # what it is added to may be float64
        ("aten::mm(%f, %f)", "Float cpu some"),
        ("aten::mm(%b, %u)", "BFloat16 cpu some"),  # equal, or it raises
        ("aten::relu(%u)", "any ? ?"),
        ("aten::eq(%f, %b)", "Bool cpu some"),
        ("aten::add_(%b, %f, %one)", "BFloat16 cpu some"),  # in place: keeps its dtype
        ("aten::add(%f, %g, %one)", "Float cpu some"),  # on two devices: it raises
        ("quantized::relu6(%f, %no)", "unknown"),  # not of ATen
        ("aten::to(%f, %bf, %no, %no, %none)", "BFloat16 cpu some"),
        ("aten::to(%u, %bf, %no, %no, %none)", "BFloat16 ? ?"),
        ("aten::to(%u, %n, %no, %no, %none)", "any ? ?"),  # a dtype known at run time only
        ("aten::cuda(%f)", "Float cuda some"),
        ("aten::type_as(%u, %b)", "BFloat16 ? ?"),
    ],
)
def test_operators(call: str, known: str) -> None:
    """By what was observed of the overload."""
    kind = call[: call.index("(")]
    knows(f"  %y : Tensor = {call}", f"{kind} {known}")


@pytest.mark.parametrize(
    ("of", "known"), [("%b", "BFloat16"), ("%d", "Double"), ("%i", "Long"), ("%u", "any")]
)
def test_to_the_dtype_of_another(of: str, known: str) -> None:
    knows(
        f"""
        %t : int = prim::dtype({of})
        %y : Tensor = aten::to(%f, %t, %no, %no, %none)
        """,
        f"""
        prim::dtype plain
        aten::to {known} cpu some
        """,
    )


def test_number_makes_integers_floating() -> None:
    """Of which dtype, the process's default decides."""
    knows(
        "  %y : Tensor = aten::mul(%i, %half)",
        "aten::mul Half|Float|Double|BFloat16 cpu some",
    )


def test_casts() -> None:
    """Known where it is known whether the operand is eligible, and where it is."""
    knows(
        """
          %p : Tensor = jit_amp::cast(%f, %bf, %none)
          %q : Tensor = jit_amp::cast(%f, %none, %bf)
          %r : Tensor = jit_amp::cast(%d, %bf, %none)
          %s : Tensor = jit_amp::cast(%i, %bf, %none)
          %t : Tensor = jit_amp::cast(%g, %bf, %none)
          %v : Tensor = jit_amp::cast(%u, %bf, %none)
        """,
        """
        jit_amp::cast BFloat16 cpu some
        jit_amp::cast Float cpu some
        jit_amp::cast Double cpu none
        jit_amp::cast Long cpu some
        jit_amp::cast Float cuda some
        jit_amp::cast any ? ?
        """,
    )


def test_containers() -> None:
    """By position where that is constant; all elements together where it is not."""
    knows(
        """
          %k : Tensor[] = prim::ListConstruct(%f, %b)
          %p : Tensor = aten::__getitem__(%k, %one)
          %q : Tensor = aten::__getitem__(%k, %n)
          %t : (Tensor, int) = prim::TupleConstruct(%b, %one)
          %r : Tensor, %s : int = prim::TupleUnpack(%t)
          %m : Dict(str, Tensor) = prim::DictConstruct(%key, %b)
          %v : Tensor = aten::__getitem__(%m, %key)
        """,
        """
        prim::ListConstruct list(Float cpu some, BFloat16 cpu some)
        aten::__getitem__ BFloat16 cpu some
        aten::__getitem__ Float|BFloat16 cpu some
        prim::TupleConstruct tuple(BFloat16 cpu some, plain)
        prim::TupleUnpack BFloat16 cpu some
        prim::TupleUnpack plain
        prim::DictConstruct dict(BFloat16 cpu some)
        aten::__getitem__ BFloat16 cpu some
        """,
    )


def test_a_key_that_is_there_twice() -> None:
    """The last value is it, in the interpreter as in Python."""
    knows(
        """
          %m : Dict(str, Tensor) = prim::DictConstruct(%key, %f, %key, %b)
          %v : Tensor = aten::__getitem__(%m, %key)
        """,
        """
        prim::DictConstruct dict(BFloat16 cpu some)
        aten::__getitem__ BFloat16 cpu some
        """,
    )


def test_list_that_is_appended_to() -> None:
    """Of unknown length from the start, and of all that is ever put in."""
    knows(
        """
          %k : Tensor[] = prim::ListConstruct(%f)
          %p : Tensor = aten::__getitem__(%k, %zero)
          %q : Tensor[] = aten::append(%k, %b)
        """,
        """
        prim::ListConstruct list of any length (Float|BFloat16 cpu some)
        aten::__getitem__ Float|BFloat16 cpu some
        aten::append unknown
        """,
    )


def test_list_that_is_given() -> None:
    """Nothing is known of its elements, nor of what is unpacked from it."""
    knows(
        """
          %p : Tensor = aten::__getitem__(%l, %zero)
          %q : Tensor, %r : Tensor = prim::ListUnpack(%l)
          %s : Tensor = aten::cat(%l, %zero)
        """,
        """
        aten::__getitem__ unknown
        prim::ListUnpack unknown
        prim::ListUnpack unknown
        aten::cat any ? some
        """,
    )


def test_list_of_parts() -> None:
    """How many there are is not known."""
    knows(
        """
          %p : Tensor[] = aten::chunk(%b, %n, %zero)
          %q : Tensor = aten::__getitem__(%p, %n)
        """,
        """
        aten::chunk list of any length (BFloat16 cpu some)
        aten::__getitem__ BFloat16 cpu some
        """,
    )


def test_branches() -> None:
    """Only what holds on both ways."""
    knows(
        """
          %p : Tensor, %q : Tensor, %r : Tensor, %s : Tensor = prim::If(%c)
            block0():
              -> (%f, %f, %f, %f)
            block1():
              -> (%f, %b, %g, %u)
        """,
        """
        prim::If Float cpu some
        prim::If Float|BFloat16 cpu some
        prim::If Float ? some
        prim::If any ? ?
        """,
    )


def test_none_on_one_way() -> None:
    """It may be None then, and no question about the tensor is answered."""
    knows(
        """
          %p : Tensor? = prim::If(%c)
            block0():
              -> (%b)
            block1():
              -> (%none)
          %q : Tensor = prim::unchecked_unwrap_optional(%p)
        """,
        """
        prim::If BFloat16 cpu some or None
        prim::unchecked_unwrap_optional BFloat16 cpu some
        """,
    )


def test_loop_that_changes_the_dtype() -> None:
    """Before it, and after each time; what is made of it in the body too."""
    knows(
        """
          %p : Tensor = prim::Loop(%n, %yes, %f)
            block0(%j : int, %a : Tensor):
              %q : Tensor = jit_amp::carried(%a)
              %r : Tensor = aten::relu(%q)
              -> (%yes, %b)
          %s : Tensor = jit_amp::carried(%p)
        """,
        """
        prim::Loop Float|BFloat16 cpu some
        jit_amp::carried Float|BFloat16 cpu some
        aten::relu Float|BFloat16 cpu some
        jit_amp::carried Float|BFloat16 cpu some
        """,
    )


def test_loop_that_does_not() -> None:
    """What holds at the start holds."""
    knows(
        """
          %p : Tensor = prim::Loop(%n, %yes, %b)
            block0(%j : int, %a : Tensor):
              %q : Tensor = jit_amp::carried(%a)
              %r : Tensor = aten::relu(%q)
              -> (%yes, %r)
        """,
        """
        prim::Loop BFloat16 cpu some
        jit_amp::carried BFloat16 cpu some
        aten::relu BFloat16 cpu some
        """,
    )


def test_loop_that_changes_places() -> None:
    """What one has, the other has the next time."""
    knows(
        """
          %p : Tensor, %q : Tensor = prim::Loop(%n, %yes, %f, %b)
            block0(%j : int, %x : Tensor, %y : Tensor):
              -> (%yes, %y, %x)
        """,
        """
        prim::Loop Float|BFloat16 cpu some
        prim::Loop Float|BFloat16 cpu some
        """,
    )


def test_weights() -> None:
    """Of a constant all is known."""
    knows(
        f"""
          %w : {TENSOR}
          %p : Tensor = aten::relu(%w)
        """,
        "aten::relu Half cpu none",
        torch.tensor(1.0, dtype=torch.float16),
    )


def test_set_data() -> None:
    """After that a tensor may have another dtype than it was made with: nothing is known."""
    knows(
        """
          %p : Tensor = aten::relu(%b)
          %q : Tensor = aten::set_(%p, %f)
        """,
        """
        aten::relu unknown
        aten::set_ unknown
        """,
    )
