"""What is written about the scripts, and what the scripts are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_each_script_has_its_line_in_the_table() -> None:
    table = re.findall(
        r"^\| `(scripts/\w[\w-]*)` \| (.+) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.M
    )
    files = [each for each in (ROOT / "scripts").iterdir() if each.is_file()]
    scripts = {f"scripts/{each.name}" for each in files if os.access(each, os.X_OK)}
    assert {name for name, _ in table} == scripts


def test_each_script_begins_with_what_it_does() -> None:
    for each in (ROOT / "scripts").iterdir():
        if each.is_file() and os.access(each, os.X_OK):
            first, second = each.read_text().splitlines()[:2]
            assert first in ("#!/usr/bin/env bash", "#!/usr/bin/env python"), each
            assert second.startswith(("# ", '"""')), each


BUILDS = """
import runpy, sys, types
sys.modules["torch"] = {torch}
sys.argv = ["setup.py", "-q", "build_ext"]
runpy.run_path("setup.py", run_name="__main__")
"""


@pytest.mark.skipif(
    not (ROOT / "jit_amp").exists(), reason="there is nothing to build: the package is installed"
)
@pytest.mark.parametrize(
    ("torch", "said"),
    [
        ("None", "none is: run `pip install torch`"),
        (
            "types.SimpleNamespace(__version__='2.5.1+cpu')",
            "torch 2.5.1+cpu is: run `pip install --upgrade torch`",
        ),
    ],
)
@pytest.mark.parametrize("by_pip", [True, False])
def test_a_build_without_a_torch_that_fits_says_what_to_run(
    torch: str, said: str, by_pip: bool
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", BUILDS.format(torch=torch)],
        cwd=ROOT,
        env={**os.environ, **({"PIP_BUILD_TRACKER": "there"} if by_pip else {})},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.splitlines()[-1] == (
        "jit_amp is compiled against the torch that is installed, 2.6 or newer, and "
        f"{said}, and then this again"
    )
