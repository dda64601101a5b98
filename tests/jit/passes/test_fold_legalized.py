"""fold_legalized: casts of weights are made, branches that are decided go."""

from __future__ import annotations

import pytest
import torch

import jit_amp
from jit_amp import _C

from . import ir
from .ir import TENSOR, check

RAISE = """
graph(%x : Tensor, %c : bool):
  %none : NoneType = prim::Constant()
  %yes : bool = prim::Constant[value=1]()
  %no : bool = prim::Constant[value=0]()
  %text : str = prim::Constant[value="{text}"]()
  prim::If({condition})
    block0():
      -> ()
    block1():
      prim::RaiseException(%text, %none)
      -> ()
  return (%x)
"""
OURS = "AssertionError: jit_amp: no such device"


def test_weight() -> None:
    """A cast of a weight is a weight."""
    graph = check(
        "fold_legalized",
        f"""
    graph(%x : Tensor):
      # CHECK: BFloat16(2, 2
      # CHECK-NOT: aten::to
      # CHECK: return
      %none : NoneType = prim::Constant()
      %no : bool = prim::Constant[value=0]()
      %bf : int = prim::Constant[value=15]()
      %w : {TENSOR}
      %c : Tensor = aten::to(%w, %bf, %no, %no, %none)
      %y : Tensor = aten::mm(%x, %c)
      return (%y)
    """,
        torch.full((2, 2), 3.0),
    )
    constants = [
        node.t("value")
        for node in graph.findAllNodes("prim::Constant")
        if node.hasAttribute("value") and node.kindOf("value") == "t"
    ]
    assert len(constants) == 1, "the weight that is not cast is not needed"
    assert torch.equal(constants[0], torch.full((2, 2), 3.0, dtype=torch.bfloat16))


def test_branch() -> None:
    """And what only the way that goes has needed goes too."""
    check(
        "fold_legalized",
        """
        graph(%x : Tensor):
          # CHECK-NOT: prim::If
          # CHECK-NOT: aten::sigmoid
          # CHECK: [[Y:%[0-9]+]] : Tensor = aten::relu(%x)
          # CHECK-NEXT: return ([[Y]])
          %six : int = prim::Constant[value=6]()
          %seven : int = prim::Constant[value=7]()
          %s : Tensor = aten::sigmoid(%x)
          %c : bool = aten::ne(%six, %seven)
          %y : Tensor = prim::If(%c)
            block0():
              %a : Tensor = aten::relu(%x)
              -> (%a)
            block1():
              -> (%s)
          return (%y)
        """,
    )


def test_equal_constants() -> None:
    """They are one."""
    check(
        "fold_legalized",
        """
        graph(%x : Tensor):
          # CHECK-COUNT-1: prim::Constant
          # CHECK-NOT: prim::Constant
          # CHECK: return
          %a : int = prim::Constant[value=6]()
          %b : int = prim::Constant[value=6]()
          %y : Tensor = aten::sum(%x, %a)
          %z : Tensor = aten::sum(%x, %b)
          return (%y, %z)
        """,
    )


def test_check_that_holds() -> None:
    """It is not asked again."""
    text = RAISE.format(text=OURS, condition="%yes")
    check("fold_legalized", "# CHECK-NOT: prim::RaiseException\n" + text + "# CHECK: return")


def test_check_that_always_fails() -> None:
    """Every call would raise it: it is an error now."""
    graph = ir.parse(RAISE.format(text=OURS, condition="%no"))
    with pytest.raises(jit_amp.AutocastError, match=r"^jit_amp: no such device"):
        _C.run_pass("fold_legalized", graph, {}, True)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        (OURS, "%c"),  # another input may pass
        ("AssertionError: the author's own", "%c"),
    ],
)
def test_check_that_may_fail(text: str, condition: str) -> None:
    """It stays."""
    graph = ir.parse(RAISE.format(text=text, condition=condition))
    _C.run_pass("fold_legalized", graph, {}, True)
    assert [node.kind() for node in ir.nodes_of(graph)].count("prim::RaiseException") == 1


def test_assertion_of_the_author() -> None:
    """A program that always raises is one that freezes: it is the author's."""
    graph = ir.parse(RAISE.format(text="AssertionError: always", condition="%no"))
    _C.run_pass("fold_legalized", graph, {}, True)
    assert "prim::RaiseException" in str(graph)


@pytest.mark.parametrize(
    "body",
    [
        "%y : Tensor = aten::relu(%x)",
        # A write to an input has to be seen.
        "%y : Tensor = aten::relu_(%x)",
        # A cast of what is not a weight.
        "%y : Tensor = aten::to(%x, %bf, %no, %no, %none)",
        # A random number is another one each time.
        "%y : Tensor = aten::rand(%sizes, %none, %none, %none, %none)",
        # A print is an effect.
        "%y : Tensor = aten::relu(%x)\n  prim::Print(%bf)",
    ],
)
def test_nothing_follows(body: str) -> None:
    """Only what is constant is computed, and only what has no effect goes."""
    constants = {
        "%none": "NoneType = prim::Constant()",
        "%no": "bool = prim::Constant[value=0]()",
        "%bf": "int = prim::Constant[value=15]()",
        "%sizes": "int[] = prim::Constant[value=[2]]()",
    }
    head = "".join(f"  {name} : {made}\n" for name, made in constants.items() if name in body)
    ir.kept("fold_legalized", f"graph(%x : Tensor):\n{head}  {body}\n  return (%y)\n")


def test_written_weight() -> None:
    """What is written to a constant stays written: it is no constant."""
    ir.kept(
        "fold_legalized",
        f"""
        graph(%x : Tensor):
          %w : {TENSOR}
          %y : Tensor = aten::add_(%w, %x, %x)
          %z : Tensor = aten::relu(%w)
          return (%z)
        """.replace("%w, %x, %x", "%w, %x, %one").replace(
            "  %w :", "  %one : int = prim::Constant[value=1]()\n          %w :"
        ),
        torch.ones(2),
    )


def test_marked_loop_keeps_the_write() -> None:
    """The caller's tensor, where the loop runs no times: the mark says so."""
    ir.kept(
        "fold_legalized",
        """
        graph(%x : Tensor, %n : int):
          %yes : bool = prim::Constant[value=1]()
          %y : Tensor = prim::Loop(%n, %yes, %x)
            block0(%i : int, %a : Tensor):
              %b : Tensor = jit_amp::carried(%a)
              %z : Tensor = aten::relu(%b)
              -> (%yes, %z)
          %r : Tensor = jit_amp::carried(%y)
          %w : Tensor = aten::sigmoid_(%r)
          return (%n)
        """,
    )
