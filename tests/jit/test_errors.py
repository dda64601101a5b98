"""The table of refusals, and the page that is made of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from jit_amp import _C

ROOT = Path(__file__).parents[2]
ROWS = _C.refusal_texts()


def test_the_page_is_that_of_the_table() -> None:
    made = subprocess.run([sys.executable, ROOT / "scripts/errors", "--check"], cwd=ROOT)
    assert made.returncode == 0, "run scripts/errors"


def test_each_code_is_there_once() -> None:
    codes = [row[0] for row in ROWS]
    assert codes == sorted(set(codes))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"JA{row[0]}")
def test_a_refusal_says_what_why_and_what_instead(row: tuple[int, str, str, str, str]) -> None:
    _, what, instead, cause, example = row
    assert what and instead and cause.endswith(".")
    if example:
        compile("def f():\n    " + example.replace("\n", "\n    "), "example", "exec")


def test_each_refusal_is_thrown_somewhere() -> None:
    sources = "".join(p.read_text() for p in (ROOT / "csrc").rglob("*.cpp"))
    names = re.findall(r"REFUSAL\(\d+, (\w+),", (ROOT / "csrc/core/refusals.inc").read_text())
    assert len(names) == len(ROWS)
    assert [name for name in names if f"Refusal::{name}" not in sources] == []
