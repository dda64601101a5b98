"""Damaged files and JSON, in short; scripts/fuzz runs more of them."""

from __future__ import annotations

import pytest

from jit_amp._base import source_lines

from . import files, json_files, workers


@pytest.mark.parametrize("cases", [files.CASES, json_files.CASES], ids=lambda cases: cases.count)
def test_damaged_files_are_refused_or_as_good_as_others(cases: workers.Cases) -> None:
    outcomes, bad = workers.run(cases, 60, seed=0)
    assert not bad
    assert len(outcomes) > 2


def test_lines_of_another_file_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.wrongly_shown(files.SECRET)
    assert files.wrongly_shown("\x1b[2J")
    assert files.wrongly_shown("\u202e")
    assert files.wrongly_shown(files.MARKUP, is_html=True)
    secret = str(files.folder() / "secret.py")
    assert not source_lines.lines(secret)
    monkeypatch.syspath_prepend(str(files.folder()))
    assert source_lines.lines(secret)
