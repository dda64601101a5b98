"""keep_detach: PyTorch's freezing does not see `detach`, and afterwards it is there again."""

from __future__ import annotations

import pytest

from .ir import check, operators, parse, unchanged

PROGRAM = """
graph(%x : Tensor, %c : bool):
  %y : Tensor = aten::{detach}(%x)
  %z : Tensor = prim::If(%c)
    block0():
      %a : Tensor = aten::{detach}(%y)
      -> (%a)
    block1():
      -> (%x)
  return (%z)
"""
SHOWN = PROGRAM.replace("{detach}", "detach")
HIDDEN = SHOWN.replace("aten::detach", "jit_amp::detached")


@pytest.mark.parametrize(
    ("row", "before", "after"),
    [("keep_detach", SHOWN, HIDDEN), ("keep_detach:2", HIDDEN, SHOWN)],
    ids=["before freezing", "after it"],
)
def test_everywhere_and_nothing_else(row: str, before: str, after: str) -> None:
    assert operators(check(row, before)) == operators(parse(after))


def test_there_and_back() -> None:
    hidden = str(check("keep_detach", SHOWN))
    assert operators(check("keep_detach:2", hidden)) == operators(parse(SHOWN))


@pytest.mark.parametrize("row", ["keep_detach", "keep_detach:2"])
def test_what_has_none_stays(row: str) -> None:
    unchanged(row, SHOWN.replace("detach(", "relu("))
