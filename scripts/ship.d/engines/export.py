"""torch.export, by PyTorch's own converter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from engines.common import exported
from torch import Tensor


def from_torchscript(artefact: Any, x: Tensor, work: Path) -> Tensor:
    torch.export.save(exported(artefact, x), work / "model.pt2")
    program = torch.export.load(work / "model.pt2").module()
    for wrong in (x.double(), x.half()):
        try:
            program(wrong)
        except RuntimeError:
            continue
        raise AssertionError(f"an input of {wrong.dtype} is taken")
    return program(x)


ROUTES = {"": from_torchscript}
