"""Children that are forked while other threads of the parent script, trace, call and freeze."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("forks_worker.py")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def test_every_child_comes_to_its_end() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", WORKER], capture_output=True, text=True, timeout=280
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-6000:]
