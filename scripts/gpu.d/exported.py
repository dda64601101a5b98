"""Models on a GPU, exported: the program beside eager, bit for bit, and compiled by AOTInductor.

Each model is exported in float16 and in bfloat16, called with the example and with twice as many
rows, saved, and loaded. What AOTInductor makes of it may round less: it is compared with eager by
how far each is from the model in float32.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import models
import speed
import torch
from torch import Tensor, nn

import jit_amp

DTYPES = torch.float16, torch.bfloat16


class Cells(nn.Module):
    """A loop over cells, a GRU in both directions, and attention by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.gru = (
            nn.LSTMCell(32, 32),
            nn.GRU(32, 16, bidirectional=True, batch_first=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        h, c = self.cell(x[:, 0])
        for i in range(1, 5):
            h, c = self.cell(x[:, i], (h, c))
        y, _ = self.gru(x)
        scores = torch.matmul(y, x.transpose(-2, -1)) * 0.2
        return torch.matmul(torch.softmax(scores, -1), y) + h[:, None]


CASES = {**speed.CASES, "cells": speed.Case(Cells, (4, 8, 32))}


def error(ours: Tensor, wide: Tensor) -> float:
    return float((ours.double() - wide.double()).abs().max() / wide.abs().max())


def told(run: Any, expected: Tensor, given: Tensor) -> str:
    for _ in range(3):
        actual = run(given)
        if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
            return f"is {actual.dtype}, {tuple(actual.shape)}; eager {expected.dtype}"
        if not torch.equal(actual, expected):
            return f"differs by {error(actual, expected):.1e} of the largest"
    return "right"


def attempted(work: Callable[[], str]) -> str:
    try:
        return work()
    except Exception as reason:
        return f"fails: {(str(reason).strip().splitlines() or [''])[0][:200]}"


def exported(net: nn.Module, x: Tensor) -> dict[str, str]:
    expected, twice = net(x), torch.cat([x, x.flip(0)])
    if not torch.equal(net(x), expected):
        return {"eager": "not steady"}
    try:
        program = jit_amp.export(net, (x,))
    except Exception as reason:
        return {"export": f"fails: {str(reason).strip().splitlines()[0][:200]}"}

    def loaded() -> str:
        with tempfile.TemporaryDirectory() as folder:
            torch.export.save(program, f"{folder}/model.pt2")
            return told(torch.export.load(f"{folder}/model.pt2").module(), expected, x)

    found = {"example": attempted(lambda: told(program.module(), expected, x))}
    found["twice the rows"] = attempted(lambda: told(program.module(), net(twice), twice))
    if torch.backends.cuda.is_built():  # torch.export loads nothing to a pretended device
        found["loaded"] = attempted(loaded)
    return found


def compiled(net: nn.Module, x: Tensor) -> str:
    """A package of AOTInductor: how far it is from float32, beside eager. speed.py times it."""
    program = jit_amp.export(net, (x,), dynamic_shapes={})
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.pt2"
        torch._inductor.aoti_compile_and_package(program, package_path=path)
        package = torch._inductor.aoti_load_package(path)
    wide = net.model(x)
    ours, eagers = (error(run(x), wide) for run in (package, net))
    verdict = "right" if ours <= 1.5 * eagers + 1e-3 else "differs"
    return f"{verdict}: {ours:.1e} from float32, eager {eagers:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=CASES)
    parser.add_argument("--package", action="store_true", help="compile it, too")
    given = parser.parse_args()
    case = CASES[given.model]

    def made(dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
        torch.manual_seed(0)
        net = models.Autocast(case.model(), "cuda", dtype).eval().cuda()
        return net, case.made(case.shape).cuda()

    results = []
    with torch.no_grad():
        for dtype in DTYPES:
            found = exported(*made(dtype))
            print(f"{given.model}, {dtype}: {found}", flush=True)
            results += found.values()
        if given.package:
            net, x = made(torch.float16)
            results.append(attempted(lambda: compiled(net, x)))
            print(f"{given.model}, AOTInductor: {results[-1]}", flush=True)
    sys.exit(any(text.startswith(("fails", "is", "differs")) for text in results))


main()
