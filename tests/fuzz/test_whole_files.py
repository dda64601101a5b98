"""Files are whole or not written at all, whatever ends the process: a few of fuzz.whole_files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .whole_files import COMMANDS, Command, killed, on_full_disks, scene_of


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_file_is_the_old_one_or_the_new_one(command: Command, tmp_path: Path) -> None:
    scene = scene_of(command, tmp_path)
    for result in (killed(scene, 4, random.Random(0)), on_full_disks(scene, 5, None)):
        assert result.wrong == []
