"""A package of AOTInductor's: compiled C++, in a file that Python or C++ loads.

A package looks at dtypes, devices, sizes and strides of its inputs only where
AOTI_RUNTIME_CHECK_INPUTS=1 is in the environment; without it, what is in memory is taken for what
the example was. The check would also refuse a batch of one, which runs, as torch.export compiles
for at least two: check_lowerbound=False leaves that out.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import torch
from engines.common import exported
from engines.libtorch import built, ran
from torch import Tensor

os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"  # it is read when a package is first called
PACKAGES: dict[Path, Path] = {}


def package(artefact: Any, x: Tensor, work: Path) -> Path:
    if work not in PACKAGES:
        path = torch._inductor.aoti_compile_and_package(
            exported(work),
            package_path=str(work / "model.pt2"),
            inductor_configs={"aot_inductor.check_lowerbound": False},
        )
        PACKAGES[work] = Path(path)
    return PACKAGES[work]


def refuses(call: Any, x: Tensor) -> None:
    for wrong in (x.double(), x.half()):
        try:
            call(wrong)
        except RuntimeError as error:
            # PyTorch 2.11 says why on stderr alone
            if not any(said in str(error) for said in ("unmatched dtype", "API call failed")):
                raise
            continue
        raise AssertionError(f"an input of {wrong.dtype} is taken")


def in_python(artefact: Any, x: Tensor, work: Path) -> Tensor:
    loaded = torch._inductor.aoti_load_package(str(package(artefact, x, work)))
    refuses(loaded, x)
    return loaded(x)


@cache
def server(folder: Path) -> Path:
    return built("package_server", folder)


def in_cpp(artefact: Any, x: Tensor, work: Path) -> Tensor:
    """In a program without Python."""
    path, program = package(artefact, x, work), server(work.parent / "libtorch")
    refuses(lambda wrong: ran(program, path, (wrong,), work), x)
    calls = [result for (result,) in ran(program, path, (x,), work)]
    if len(calls) != 3 or not all(torch.equal(call, calls[0]) for call in calls):
        raise AssertionError(f"the calls differ: {calls}")
    return calls[0]


ROUTES = {"loaded in Python": in_python, "loaded in C++": in_cpp}
