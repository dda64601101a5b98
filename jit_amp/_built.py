"""Imported before the extension: says so where it was built for another torch than is installed."""

from __future__ import annotations

from pathlib import Path

import torch

BUILT_FOR = Path(__file__).with_name("_torch.txt")  # setup.py writes it beside the extension


def check(installed: str, built_for: Path) -> None:
    """Raises ImportError where the extension is for another release: it would not load."""
    wanted = built_for.read_text().strip() if built_for.exists() else installed
    if _release(wanted) != _release(installed):
        raise ImportError(
            f"this jit_amp was built for torch {wanted}, and torch {installed} is installed: "
            f"install torch=={_release(wanted)}.*, or build jit_amp again"
        )


def _release(version: str) -> str:
    """2.13 of "2.13.0+cpu": what setup.py asks pip for."""
    return ".".join(version.split(".")[:2])


check(torch.__version__, BUILT_FOR)
