"""What the engines share."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch._export.converter import TS2EPConverter


class Refused(Exception):
    """What an engine is known not to do, and why. Raised before it is asked."""


def exported(artefact: Any, x: Tensor) -> torch.export.ExportedProgram:
    """The artefact as a program of torch.export. Its check of the inputs is run here, once: an
    input of another dtype is refused now, and later by the program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TS2EPConverter(artefact, (x,)).convert()
