"""A package of AOTInductor's: compiled C++, in a file that Python or C++ loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from engines.common import exported
from torch import Tensor


def package(artefact: Any, x: Tensor, work: Path) -> Tensor:
    made = torch._inductor.aoti_compile_and_package(
        exported(artefact, x), package_path=str(work / "model.pt2")
    )
    return torch._inductor.aoti_load_package(made)(x)


ROUTES = {"": package}
