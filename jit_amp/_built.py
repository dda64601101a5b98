"""Imported before the extension: says so where it was built for another torch than is installed."""

from __future__ import annotations

from pathlib import Path

import torch

BUILT_FOR = Path(__file__).with_name("_torch.txt")  # setup.py writes it beside the extension


def check(installed: str, built_for: Path) -> None:
    """Raises ImportError where the extension is for another release: it would not load."""
    wanted = built_for.read_text().strip() if built_for.exists() else installed
    if wanted.partition("+")[0] != installed.partition("+")[0]:
        raise ImportError(
            f"this jit_amp was built for torch {wanted}, and torch {installed} is installed: "
            f"install torch {wanted.partition('+')[0]}, or build jit_amp again"
        )


check(torch.__version__, BUILT_FOR)
