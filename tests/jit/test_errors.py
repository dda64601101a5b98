"""The table of refusals, and the page that is made of it."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import jit_amp
from jit_amp import _C

ROOT = Path(__file__).parents[2]
ROWS = _C.diagnostic_texts()


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
        compile(example, "example", "exec")


BY_HAND = {205, 207}  # graphs that no program makes
ELSEWHERE = {120, 121}  # devices of others
HEAD = "import contextlib\nimport functools\nimport time\nimport types\n"
HEAD += "\nimport torch\n\nimport jit_amp\n\n\n"


def test_each_code_has_an_example() -> None:
    assert {row[0] for row in ROWS if not row[4]} == BY_HAND


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "row", [r for r in ROWS if r[4] and r[0] not in ELSEWHERE], ids=lambda row: f"JA{row[0]}"
)
def test_the_example_of_a_code_gives_it_at_its_line(
    row: tuple[int, str, str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, *_, example = row
    source = HEAD + example + "\n"
    (tmp_path / f"example_of_{code}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    try:
        with pytest.raises(jit_amp.AutocastError) as raised:
            importlib.import_module(f"example_of_{code}")
    finally:
        torch.set_autocast_enabled("cpu", False)  # JA401's leaves it on
    said = str(raised.value)
    assert f"[JA{code}]" in said.split("\n\n")[0]
    assert said.endswith(f"More: jit-amp errors JA{code}, or docs/errors.md#ja{code}")
    for number, line in enumerate(source.splitlines(), 1):
        if line.endswith(f"# JA{code}"):
            assert line.strip() in said or f".py({number})" in said
    if f"# JA{code}" in example and ", line " in said:
        assert f"example_of_{code}.py" in said


def test_the_example_of_a_device_without_a_module(tmp_path: Path) -> None:
    """In a process of its own: a device's name holds for the process."""
    [example] = [row[4] for row in ROWS if row[0] == 121]
    (tmp_path / "example.py").write_text(HEAD + example)
    ran = subprocess.run([sys.executable, tmp_path / "example.py"], capture_output=True, text=True)
    assert "[JA121]" in ran.stderr and "# JA121" in ran.stderr


def test_each_diagnostic_is_thrown_somewhere() -> None:
    sources = "".join(p.read_text() for p in (ROOT / "csrc").rglob("*.cpp"))
    python = "".join(p.read_text() for p in Path(jit_amp.__file__).parent.rglob("*.py"))
    table = (ROOT / "csrc/core/diagnostics.inc").read_text()
    names = re.findall(r"DIAGNOSTIC\((\d+), (\w+),", table)
    assert len(names) == len(ROWS)
    by_code = {code for code in re.findall(r"(?:refuse\w*|Failed)\([^)]*?\b(\d{3})[,)]", python)}
    thrown = {name for code, name in names if f"Diagnostic::{name}" in sources or code in by_code}
    assert {name for _, name in names} == thrown
