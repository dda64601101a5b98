"""answer_questions: what a program asks of its tensors, where the facts know it."""

from __future__ import annotations

import pytest

from .ir import check, unchanged


def case(call: str, type_of: str, inputs: str, checks: str = "") -> str:
    """A graph that gives what it asks."""
    lines = [f"# CHECK{line}" for line in checks.splitlines()]
    if "%none" in call:
        lines.append("%none : NoneType = prim::Constant()")
    body = "\n  ".join(
        [*lines, *call.splitlines()[:-1], f"%y : {type_of} = " + call.splitlines()[-1]]
    )
    return f"graph({inputs}):\n  {body}\n  return (%y)\n"


DEVICE = "%d : Device = prim::device(%x)\nprim::type(%d)"


@pytest.mark.parametrize(
    ("call", "type_of", "tensor", "answer"),
    [
        ("prim::dtype(%x)", "int", "BFloat16(*, device=cpu)", "15"),
        ("prim::dtype(%x)", "int", "Float(*)", "6"),
        ("aten::is_floating_point(%x)", "bool", "Half(*)", "1"),
        ("aten::is_floating_point(%x)", "bool", "Double(*)", "1"),
        ("aten::is_floating_point(%x)", "bool", "Long(*)", "0"),
        ("aten::is_floating_point(%x)", "bool", "ComplexFloat(*)", "0"),
        ("prim::is_cuda(%x)", "bool", "Float(*, device=cuda:0)", "1"),
        ("prim::is_cuda(%x)", "bool", "Float(*, device=cpu)", "0"),
        ("prim::is_cpu(%x)", "bool", "Float(*, device=cuda:0)", "0"),
        (DEVICE, "str", "Float(*, device=cpu)", '"cpu"'),
        (DEVICE, "str", "Float(*, device=cuda:1)", '"cuda"'),
        ("aten::__is__(%x, %x)", "bool", "Tensor", "1"),
        ("aten::__isnot__(%x, %x)", "bool", "Tensor", "0"),
        ("aten::__is__(%x, %none)", "bool", "Float(*)", "0"),
        ("aten::__isnot__(%none, %x)", "bool", "Float(*)", "1"),
    ],
)
def test_known(call: str, type_of: str, tensor: str, answer: str) -> None:
    """The answer holds for every input of this kind."""
    checks = f": [[A:%[0-9]+]] : {type_of} = prim::Constant[value={answer}]\n: return ([[A]])"
    check("answer_questions", case(call, type_of, f"%x : {tensor}", checks))


@pytest.mark.parametrize(
    ("call", "type_of", "inputs"),
    [
        ("prim::dtype(%x)", "int", "%x : Tensor"),
        ("aten::is_floating_point(%x)", "bool", "%x : Tensor"),
        ("prim::is_cuda(%x)", "bool", "%x : Float(*)"),  # nor the dtype of the device
        ("prim::is_cpu(%x)", "bool", "%x : Tensor"),
        (DEVICE, "str", "%x : Float(*)"),
        ("prim::device(%x)", "Device", "%x : Float(*, device=cuda:0)"),  # which one: "cuda:1"?
        (
            "aten::dim(%x)",
            "int",
            "%x : Float(*, *, device=cpu)",
        ),  # not held by the artefact's check
        ("aten::size(%x)", "int[]", "%x : Float(2, 3, device=cpu)"),
        ("aten::__is__(%x, %none)", "bool", "%x : Tensor?"),
        ("aten::__is__(%x, %z)", "bool", "%x : Float(*), %z : Float(*)"),  # equal, not the same
        ("aten::__is__(%x, %z)", "bool", "%x : Tensor, %z : Tensor"),
        ("prim::requires_grad(%x)", "bool", "%x : Float(*)"),
    ],
)
def test_unknown(call: str, type_of: str, inputs: str) -> None:
    """Another input may have another answer."""
    unchanged("answer_questions", case(call, type_of, inputs))


BRANCH = """
graph(%x : {tensor}):
  {checks}
  %bf : int = prim::Constant[value=15]()
  %d : int = prim::dtype(%x)
  %c : bool = aten::eq(%d, %bf)
  %y : Tensor = prim::If(%c)
    block0():
      %a : Tensor = aten::relu(%x)
      -> (%a)
    block1():
      %b : Tensor = aten::sigmoid(%x)
      -> (%b)
  return (%y)
"""


@pytest.mark.parametrize(
    ("tensor", "taken", "gone"),
    [("BFloat16(*)", "relu", "sigmoid"), ("Float(*)", "sigmoid", "relu")],
)
def test_takes_the_branch(tensor: str, taken: str, gone: str) -> None:
    """What is never taken goes."""
    checks = f"# CHECK-NOT: prim::If\n  # CHECK: aten::{taken}\n  # CHECK-NOT: aten::{gone}"
    check("answer_questions", BRANCH.format(tensor=tensor, checks=checks))


def test_keeps_the_branch() -> None:
    """Either may come."""
    unchanged("answer_questions", BRANCH.format(tensor="Tensor", checks=""))


def test_follows_from_an_answer() -> None:
    """After a decided branch more is known: questions are asked again until none is answered."""
    check(
        "answer_questions",
        """
        graph(%x : Float(*)):
          # CHECK-NOT: prim::If
          # CHECK: aten::to
          # CHECK: [[A:%[0-9]+]] : int = prim::Constant[value=15]
          # CHECK: return ([[A]])
          %bf : int = prim::Constant[value=15]()
          %no : bool = prim::Constant[value=0]()
          %none : NoneType = prim::Constant()
          %c : bool = aten::is_floating_point(%x)
          %y : Tensor = prim::If(%c)
            block0():
              %a : Tensor = aten::to(%x, %bf, %no, %no, %none)
              -> (%a)
            block1():
              -> (%x)
          %d : int = prim::dtype(%y)
          return (%d)
        """,
    )


def test_dtype_of_a_cast() -> None:
    """What the dialect gives is known where its operand is."""
    check(
        "answer_questions",
        case(
            "%h : int = jit_amp::deferred[value=15]()\n"
            "%c : Tensor = jit_amp::cast(%x, %h, %none)\n"
            "prim::dtype(%c)",
            "int",
            "%x : Float(*, device=cpu)",
            ": [[A:%[0-9]+]] : int = prim::Constant[value=15]\n: return ([[A]])",
        ),
    )


def test_unknown_after_a_branch() -> None:
    """One of two dtypes."""
    unchanged(
        "answer_questions",
        """
        graph(%x : Float(*), %z : BFloat16(*), %c : bool):
          %y : Tensor = prim::If(%c)
            block0():
              -> (%x)
            block1():
              -> (%z)
          %d : int = prim::dtype(%y)
          return (%d)
        """,
    )


SAME = """
graph(%x : Tensor, %z : Tensor, %c : bool):
  {checks}
  %zero : int = prim::Constant[value=0]()
  %a : Tensor, %b : Tensor = prim::If(%c)
    block0():
      %t : Tensor = aten::t(%x)
      -> (%t, %t)
    block1():
      -> (%x, {other})
  %y : bool = aten::__is__(%a, %b)
  return (%y)
"""


def test_one_result_twice() -> None:
    """Attention asks whether query and key, both transposed or both not, are one tensor."""
    checks = """\
# CHECK: [[A:%[0-9]+]] : bool = prim::Constant[value=1]
  # CHECK: return ([[A]])"""
    check("answer_questions", SAME.format(checks=checks, other="%x"))


def test_two_results() -> None:
    """On one way they are two."""
    unchanged("answer_questions", SAME.format(checks="", other="%z"))


@pytest.mark.parametrize("call", ["aten::__is__(%y, %none)", "aten::__isnot__(%none, %y)"])
def test_what_may_be_none_is_asked(call: str) -> None:
    """A tensor on one way, None on the other."""
    unchanged(
        "answer_questions",
        f"""
        graph(%x : Float(*, device=cpu), %given : bool):
          %none : NoneType = prim::Constant()
          %y : Tensor? = prim::If(%given)
            block0():
              -> (%x)
            block1():
              -> (%none)
          %z : bool = {call}
          return (%z)
        """,
    )
