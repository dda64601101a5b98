"""What is written about the scripts, and what the scripts are."""

from __future__ import annotations

import os
import re
from pathlib import Path

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
