"""What the engines share."""

from __future__ import annotations

from pathlib import Path

import torch


class Refused(Exception):
    """What an engine is known not to do, and why. Raised before it is asked."""


def exported(work: Path) -> torch.export.ExportedProgram:
    """The artefact as a program of torch.export, which jit_amp.export made: it lies beside it."""
    return torch.export.load(work.parent.parent / f"{work.name}.pt2")
