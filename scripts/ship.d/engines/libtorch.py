"""Programs in C++ that link with the installed torch's libraries alone: those of libtorch/."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

SOURCE = Path(__file__).parents[1] / "libtorch"


def built(name: str, folder: Path) -> Path:
    """The program, built by cmake in a folder."""
    settings = {
        "CMAKE_BUILD_TYPE": "None",
        "TORCH_INCLUDES": ";".join(cpp_extension.include_paths()),
        "TORCH_LIBRARIES": ";".join(cpp_extension.library_paths()),
        "TORCH_CXX11_ABI": int(torch.compiled_with_cxx11_abi()),
    }
    defined = [f"-D{setting}={value}" for setting, value in settings.items()]
    cmake = Path(sys.executable).with_name("cmake")
    for command in (
        [cmake, "-S", SOURCE, "-B", folder, *defined],
        [cmake, "--build", folder, "--target", name],
    ):
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(ran.stdout + ran.stderr)
    return folder / name


def ran(
    program: Path, model: Path, inputs: tuple[Any, ...], folder: Path, autocast: bool = False
) -> tuple[Any, ...]:
    """The results of each call, or a RuntimeError with what the program said.

    With `autocast`, the calls are made under autocast for the CPU.
    """
    paths = [model, folder / "inputs.pt", folder / "outputs.pt"]
    torch.save(inputs, paths[1])
    paths[2].unlink(missing_ok=True)
    command = [program, *paths, *(["autocast"] if autocast else [])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return torch.load(paths[2])
