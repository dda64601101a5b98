"""share_casts: no cast more than eager makes, and none across what makes them differ."""

from __future__ import annotations

import pytest

from .ir import check, unchanged

HEAD = """\
  %none : NoneType = prim::Constant()
  %no : bool = prim::Constant[value=0]()
  %yes : bool = prim::Constant[value=1]()
  %one : int = prim::Constant[value=1]()
  %b : int = prim::Constant[value=15]()
  %h : int = prim::Constant[value=5]()
"""


def graph(body: str, inputs: str = "%x : Tensor, %z : Tensor, %n : int, %c : bool") -> str:
    return f"\ngraph({inputs}):\n{HEAD}{body}"


def test_equal() -> None:
    """A value that is cast twice to one dtype is cast once."""
    check(
        "share_casts",
        graph("""\
  # CHECK: [[A:%[0-9]+]] : Tensor = jit_amp::cast(%x,
  # CHECK-NOT: jit_amp::cast
  # CHECK: aten::mm([[A]], [[A]])
  %a : Tensor = jit_amp::cast(%x, %b, %none)
  %d : Tensor = jit_amp::cast(%x, %b, %none)
  %y : Tensor = aten::mm(%a, %d)
  return (%y)
"""),
    )


def test_after_a_branch_that_casts() -> None:
    """The cast moves in front of the branch: one for both."""
    check(
        "share_casts",
        graph("""\
  # CHECK: [[A:%[0-9]+]] : Tensor = jit_amp::cast(%x,
  # CHECK: prim::If
  # CHECK-NOT: jit_amp::cast
  # CHECK: aten::mm([[A]], [[A]])
  # CHECK-NOT: jit_amp::cast
  # CHECK: aten::relu([[A]])
  %y : Tensor = prim::If(%c)
    block0():
      %a : Tensor = jit_amp::cast(%x, %b, %none)
      %p : Tensor = aten::mm(%a, %a)
      -> (%p)
    block1():
      -> (%z)
  %d : Tensor = jit_amp::cast(%x, %b, %none)
  %q : Tensor = aten::relu(%d)
  return (%y, %q)
"""),
    )


def test_in_a_block_of_what_is_cast_before() -> None:
    """What dominates a block is there in it."""
    check(
        "share_casts",
        graph("""\
  # CHECK: [[A:%[0-9]+]] : Tensor = jit_amp::cast(%x,
  # CHECK-NOT: jit_amp::cast
  # CHECK: aten::relu([[A]])
  %a : Tensor = jit_amp::cast(%x, %b, %none)
  %y : Tensor = prim::If(%c)
    block0():
      %d : Tensor = jit_amp::cast(%x, %b, %none)
      %p : Tensor = aten::relu(%d)
      -> (%p)
    block1():
      -> (%z)
  return (%a, %y)
"""),
    )


def test_out_of_a_loop() -> None:
    """A weight that a loop reads is cast once."""
    check(
        "share_casts",
        graph("""\
  # CHECK: jit_amp::cast(%x
  # CHECK: prim::Loop
  # CHECK-NOT: jit_amp::cast
  # CHECK: aten::mm
  %y : Tensor = prim::Loop(%n, %yes, %z)
    block0(%i : int, %u : Tensor):
      %v : Tensor = jit_amp::carried(%u)
      %a : Tensor = jit_amp::cast(%x, %b, %none)
      %p : Tensor = aten::mm(%v, %a)
      -> (%yes, %p)
  %r : Tensor = jit_amp::carried(%y)
  return (%r)
"""),
    )


def test_out_of_two_loops() -> None:
    """And once where the loop is in a loop."""
    check(
        "share_casts",
        graph("""\
  # CHECK: jit_amp::cast(%x
  # CHECK: prim::Loop
  # CHECK: prim::Loop
  # CHECK-NOT: jit_amp::cast
  # CHECK: aten::mm
  prim::Loop(%n, %yes)
    block0(%i : int):
      prim::Loop(%n, %yes)
        block0(%j : int):
          %a : Tensor = jit_amp::cast(%x, %b, %none)
          %p : Tensor = aten::mm(%a, %a)
          -> (%yes)
      -> (%yes)
  return (%n)
"""),
    )


def test_only_the_invariant_one() -> None:
    """What the loop carries is another value each time: its cast stays inside."""
    check(
        "share_casts",
        graph("""\
  # CHECK: jit_amp::cast(%x
  # CHECK: prim::Loop
  # CHECK: [[V:%[0-9]+]] : Tensor = jit_amp::carried(%u)
  # CHECK: jit_amp::cast([[V]]
  %y : Tensor = prim::Loop(%n, %yes, %z)
    block0(%i : int, %u : Tensor):
      %v : Tensor = jit_amp::carried(%u)
      %w : Tensor = jit_amp::cast(%v, %b, %none)
      %a : Tensor = jit_amp::cast(%x, %b, %none)
      %p : Tensor = aten::mm(%w, %a)
      -> (%yes, %p)
  %r : Tensor = jit_amp::carried(%y)
  return (%r)
"""),
    )


DIFFERENT = {
    # Two dtypes on the CPU.
    "target": ("jit_amp::cast(%x, %b, %none)", "", "jit_amp::cast(%x, %h, %none)"),
    # One for the CPU, one for CUDA.
    "device": ("jit_amp::cast(%x, %b, %none)", "", "jit_amp::cast(%x, %none, %b)"),
    "value": ("jit_amp::cast(%x, %b, %none)", "", "jit_amp::cast(%z, %b, %none)"),
    # The second cast sees what was written.
    "write": (
        "jit_amp::cast(%x, %b, %none)",
        "%w : Tensor = aten::add_(%x, %x, %one)",
        "jit_amp::cast(%x, %b, %none)",
    ),
    # So it does through a view,
    "view": (
        "jit_amp::cast(%x, %b, %none)",
        "%t : Tensor = aten::t(%x)\n  %w : Tensor = aten::relu_(%t)",
        "jit_amp::cast(%x, %b, %none)",
    ),
    # through another input, which may be the same tensor,
    "input": (
        "jit_amp::cast(%x, %b, %none)",
        "%w : Tensor = aten::relu_(%z)",
        "jit_amp::cast(%x, %b, %none)",
    ),
    # and if the first cast, which may be `x` itself, is written to,
    "of the cast": (
        "jit_amp::cast(%x, %b, %none)",
        "%w : Tensor = aten::relu_(%a)",
        "jit_amp::cast(%x, %b, %none)",
    ),
    # or a list that holds it has it written to.
    "element": (
        "jit_amp::cast(%x, %b, %none)",
        "%t : Tensor[] = prim::ListConstruct(%x)\n  %u : Tensor = aten::__getitem__(%t, %one)\n"
        "  %w : Tensor = aten::relu_(%u)",
        "jit_amp::cast(%x, %b, %none)",
    ),
    # A cast under no_grad has no derivative.
    "set_grad_enabled": (
        "jit_amp::cast(%x, %b, %none)",
        "aten::set_grad_enabled(%no)",
        "jit_amp::cast(%x, %b, %none)",
    ),
    # Whatever is called may do anything of this.
    "call": (
        "jit_amp::cast(%x, %b, %none)",
        '%w : Tensor = prim::CallMethod[name="f"](%z)',
        "jit_amp::cast(%x, %b, %none)",
    ),
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_different(kind: str) -> None:
    """Casts that do not give the same, or may not."""
    first, between, second = DIFFERENT[kind]
    unchanged(
        "share_casts",
        graph(f"""\
  %a : Tensor = {first}
  {between}
  %d : Tensor = {second}
  %y : Tensor = aten::mm(%a, %d)
  return (%y)
"""),
    )


def test_under_no_grad() -> None:
    """`with torch.no_grad()`: neither does a cast inside serve outside, nor one outside inside."""
    unchanged(
        "share_casts",
        graph(
            """\
  %a : Tensor = jit_amp::cast(%x, %b, %none)
  %e : Tensor = prim::Enter(%g)
  %d : Tensor = jit_amp::cast(%x, %b, %none)
  %f : Tensor = prim::Exit(%g)
  %k : Tensor = jit_amp::cast(%x, %b, %none)
  return (%a, %d, %k)
""",
            "%x : Tensor, %g : Tensor",
        ),
    )


def test_scoped_effect() -> None:
    """What runs in it is not seen."""
    unchanged(
        "share_casts",
        graph("""\
  %a : Tensor = jit_amp::cast(%x, %b, %none)
  %w : Tensor = jit_amp::scoped_effect[devices="cpu"](%yes, %b, %z)
  %d : Tensor = jit_amp::cast(%x, %b, %none)
  return (%a, %d)
with graph(%z : Tensor):
  %y : Tensor = aten::relu_(%z)
  return (%y)
"""),
    )


@pytest.mark.parametrize(
    "body",
    [
        # The cast of what was carried in.
        """\
      %a : Tensor = jit_amp::cast(%v, %b, %none)
      %p : Tensor = aten::mm(%a, %a)""",
        # Of what the body computes.
        """\
      %q : Tensor = aten::relu(%z)
      %a : Tensor = jit_amp::cast(%q, %b, %none)
      %p : Tensor = aten::mm(%v, %a)""",
        # What is written to in the body changes from one iteration to the next.
        """\
      %a : Tensor = jit_amp::cast(%z, %b, %none)
      %w : Tensor = aten::relu_(%z)
      %p : Tensor = aten::mm(%v, %a)""",
        # Not certain to run: outside it would be a cast that eager may not make.
        """\
      %p : Tensor = prim::If(%c)
        block0():
          %a : Tensor = jit_amp::cast(%z, %b, %none)
          -> (%a)
        block1():
          -> (%v)""",
        # The body goes into no_grad on its second time.
        """\
      %a : Tensor = jit_amp::cast(%z, %b, %none)
      aten::set_grad_enabled(%no)
      %p : Tensor = aten::mm(%v, %a)""",
        # A target that is made in the body.
        """\
      %t : int = aten::add(%b, %i)
      %a : Tensor = jit_amp::cast(%z, %t, %none)
      %p : Tensor = aten::mm(%v, %a)""",
    ],
    ids=["carried", "made inside", "written", "branch", "no_grad", "target"],
)
def test_stays_in_the_loop(body: str) -> None:
    """The value changes, or the cast would not be the same one outside."""
    unchanged(
        "share_casts",
        graph(f"""\
  %y : Tensor = prim::Loop(%n, %yes, %x)
    block0(%i : int, %u : Tensor):
      %v : Tensor = jit_amp::carried(%u)
{body}
      -> (%yes, %p)
  %r : Tensor = jit_amp::carried(%y)
  return (%r)
"""),
    )


def test_lists() -> None:
    """AliasDb does not see a write to an element as one to the list."""
    unchanged(
        "share_casts",
        graph(
            """\
  %a : Tensor[] = jit_amp::cast(%l, %b, %none)
  %d : Tensor[] = jit_amp::cast(%l, %b, %none)
  return (%a, %d)
""",
            "%l : Tensor[]",
        ),
    )


def test_optionals_stay() -> None:
    """Casts of `Tensor?` are another operator."""
    unchanged(
        "share_casts",
        graph(
            """\
  %a : Tensor? = jit_amp::cast(%o, %b, %none)
  %d : Tensor? = jit_amp::cast(%o, %b, %none)
  return (%a, %d)
""",
            "%o : Tensor?",
        ),
    )


def test_two_branches() -> None:
    """Neither dominates the other, and with none after them each way has its own cast already."""
    unchanged(
        "share_casts",
        graph("""\
  %y : Tensor = prim::If(%c)
    block0():
      %a : Tensor = jit_amp::cast(%x, %b, %none)
      -> (%a)
    block1():
      %d : Tensor = jit_amp::cast(%x, %b, %none)
      -> (%d)
  return (%y)
"""),
    )
