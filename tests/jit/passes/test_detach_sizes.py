"""detach_sizes: a size is read off an alias where a list or tuple holds the tensor."""

from __future__ import annotations

import pytest

from .ir import check, unchanged


def case(body: str, result: str, checks: str = "") -> str:
    lines = [f"# CHECK{line}" for line in checks.splitlines()] + body.splitlines()
    return "graph(%x : Tensor, %z : Tensor):\n  " + "\n  ".join(lines) + f"\n  return ({result})\n"


DETACHED = """\
: [[D:%[0-9]+]] : Tensor = aten::detach(%x)
: aten::size([[D]])"""


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("%s : int[] = aten::size(%x)\n%l : Tensor[] = prim::ListConstruct(%x, %z)", "%s, %l"),
        ("%l : Tensor[] = prim::ListConstruct(%x, %z)\n%s : int[] = aten::size(%x)", "%s, %l"),
        ("%s : int[] = aten::size(%x)\n%t : (Tensor, int) = prim::TupleConstruct(%x, %s)", "%t"),
        ("%s : int[] = aten::size(%x)", "%x, %s"),  # what is returned
    ],
    ids=["list", "list before", "tuple", "return"],
)
def test_held(body: str, result: str) -> None:
    """A user without an operator, which oneDNN's fusion would ask for one."""
    check("detach_sizes", case(body, result, DETACHED))


def test_through_an_elementwise_operator() -> None:
    """The fusion follows the size from one to the next."""
    body = "%s : int[] = aten::size(%x)\n%r : Tensor = aten::relu(%x)\n"
    check(
        "detach_sizes",
        case(body + "%l : Tensor[] = prim::ListConstruct(%r, %z)", "%s, %l", DETACHED),
    )


def test_in_a_branch() -> None:
    """What a branch gives is held by its end."""
    check(
        "detach_sizes",
        """
graph(%x : Tensor, %c : bool):
  # CHECK: block0
  # CHECK: [[D:%[0-9]+]] : Tensor = aten::detach(%x)
  # CHECK: aten::size([[D]])
  %l : int[], %y : Tensor = prim::If(%c)
    block0():
      %s : int[] = aten::size(%x)
      -> (%s, %x)
    block1():
      %t : int[] = aten::size(%x)
      -> (%t, %x)
  return (%l, %y)
""",
    )


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("%s : int[] = aten::size(%x)", "%s"),  # nobody else uses it
        ("%s : int[] = aten::size(%x)\n%r : Tensor = aten::mm(%x, %z)", "%s, %r"),
        # Another tensor is held.
        ("%s : int[] = aten::size(%x)\n%l : Tensor[] = prim::ListConstruct(%z, %z)", "%s, %l"),
        # A product has another size: the fusion does not follow it.
        (
            "%s : int[] = aten::size(%x)\n%r : Tensor = aten::mm(%x, %z)\n"
            "%l : Tensor[] = prim::ListConstruct(%r, %z)",
            "%s, %l",
        ),
        # No size is read.
        ("%s : int = aten::dim(%x)\n%l : Tensor[] = prim::ListConstruct(%x, %z)", "%s, %l"),
        # One size of all is another overload, which the fusion leaves alone.
        (
            "%k : int = prim::Constant[value=0]()\n%s : int = aten::size(%x, %k)\n"
            "%l : Tensor[] = prim::ListConstruct(%x, %z)",
            "%s, %l",
        ),
        # It reads off an alias already.
        (
            "%d : Tensor = aten::detach(%x)\n%s : int[] = aten::size(%d)\n"
            "%l : Tensor[] = prim::ListConstruct(%x, %z)",
            "%s, %l",
        ),
    ],
    ids=["alone", "operator", "other", "product", "dim", "one size", "alias"],
)
def test_stays(body: str, result: str) -> None:
    """Every user of the tensor has an operator."""
    unchanged("detach_sizes", case(body, result))


def test_second_time() -> None:
    """What is done is not done again."""
    graph = check(
        "detach_sizes",
        case("%s : int[] = aten::size(%x)\n%l : Tensor[] = prim::ListConstruct(%x, %z)", "%s, %l"),
    )
    unchanged("detach_sizes", str(graph))
