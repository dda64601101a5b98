"""torch.export, by jit_amp.export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engines.common import exported
from torch import Tensor


def from_torchscript(artefact: Any, x: Tensor, work: Path) -> Tensor:
    program = exported(work).module()
    for wrong in (x.double(), x.half()):
        try:
            program(wrong)
        except RuntimeError:
            continue
        raise AssertionError(f"an input of {wrong.dtype} is taken")
    return program(x)


ROUTES = {"": from_torchscript}
