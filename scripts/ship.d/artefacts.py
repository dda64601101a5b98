"""Freezes the models of shipped_models.py: artefacts, their inputs and their outputs, in a folder.

    artefacts.py FOLDER

Of each model and dtype MODEL-DTYPE.pt is the artefact, MODEL-DTYPE.pt2 the same as a program of
torch.export, and MODEL-DTYPE.io what it was called with and gave, with eager's result. Eager, or
the artefact, is None where this machine cannot run it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from shipped_models import DTYPES, MODELS, scoped

import jit_amp


def attempt(model: Any, x: torch.Tensor) -> torch.Tensor | None:
    try:
        return model(x)
    except RuntimeError as error:  # oneDNN has no float16 LSTM on a CPU without AVX512-FP16
        print(f"  {type(model).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None


def main(folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        for name in MODELS:
            for dtype in DTYPES:
                model, x = scoped(name, dtype)
                frozen = jit_amp.freeze(model, example_inputs=(x,))
                torch.jit.save(frozen, f"{folder}/{name}-{dtype}.pt")
                program = jit_amp.export(frozen, (x,))
                torch.export.save(program, f"{folder}/{name}-{dtype}.pt2")
                found = (x, attempt(frozen, x), attempt(model, x), model.model(x))
                torch.save(found, f"{folder}/{name}-{dtype}.io")


if __name__ == "__main__":
    main(sys.argv[1])
