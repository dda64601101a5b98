"""Training in float16 with GradScaler: gradients beside eager's, bit for bit, and time and memory.

Each form of the model does the same steps on the same data from the same weights. Deterministic
algorithms are asked for while gradients are compared, and not while steps are timed.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import models
import torch
import turns
from torch import Tensor, nn

import jit_amp

SHAPES = {
    "MLP": (256, 512),
    "ResNet": (32, 3, 224, 224),
    "ViT": (16, 3, 224, 224),
    "LSTM": (64, 50, 256),
}
SMALL = {"MLP": (4, 512), "ResNet": (1, 3, 64, 64), "ViT": (1, 3, 224, 224), "LSTM": (2, 5, 256)}
FORMS = {
    "eager": lambda model, x: model,
    "jit_amp.script": lambda model, x: jit_amp.script(model),
    "jit_amp.trace": lambda model, x: jit_amp.trace(model, (x,), check_trace=False),
    "torch.compile": lambda model, x: torch.compile(model),
}


class Training:
    """One form, its optimiser and its scaler."""

    def __init__(self, model: nn.Module, form: str, x: Tensor) -> None:
        self.own = copy.deepcopy(model).cuda()
        self.model: Any = FORMS[form](self.own, x)
        self.optimiser = torch.optim.SGD(self.own.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=2)

    def step(self, x: Tensor) -> Tensor:
        self.optimiser.zero_grad()
        loss = self.model(x).float().pow(2).mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimiser)
        self.scaler.update()
        return loss

    def gradients(self) -> dict[str, Tensor | None]:
        return {name: p.grad for name, p in self.own.named_parameters()}


def compare(model: nn.Module, form: str, x: Tensor) -> str:
    """What differs from eager after each of three steps."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    runs = [Training(model, each, x) for each in ("eager", "eager", form)]
    notes = []
    for number in range(3):
        losses = []
        for run in runs:
            torch.manual_seed(number)
            losses.append(run.step(x))
        eager, again, ours = (run.gradients() for run in runs)
        steady = all(torch.equal(a, again[n]) for n, a in eager.items() if a is not None)
        apart = [n for n, a in eager.items() if a is not None and not torch.equal(a, ours[n])]
        if apart or not torch.equal(losses[0], losses[2]):
            off = max(
                float((eager[n] - ours[n]).abs().max() / eager[n].abs().max().clamp_min(1e-30))
                for n in apart or list(eager)[:1]
            )
            notes.append(
                f"step {number + 1}: {len(apart)} of {len(eager)} gradients differ, by up to "
                f"{off:.1e} of the largest{'' if steady else '; so do eager and eager'}"
            )
    torch.use_deterministic_algorithms(False)
    scales = {run.scaler.get_scale() for run in runs}
    return "; ".join(notes) or f"gradients bit for bit, scale {scales}"


def synchronize() -> None:
    torch.cuda.synchronize()


def ready(model: nn.Module, form: str, x: Tensor) -> tuple[Training, float]:
    """A form that has done its first steps; and what a step takes at its peak, in MiB."""
    run = Training(model, form, x)
    for _ in range(4):
        run.step(x)
    synchronize()
    if not torch.backends.cuda.is_built():
        return run, 0.0
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run.step(x)
    return run, (torch.cuda.max_memory_allocated() - before) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=SHAPES)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    model = models.Autocast(getattr(models, given.model)(), "cuda", torch.float16).train()
    x = torch.randn((SMALL if given.small else SHAPES)[given.model]).cuda()
    wrong = 0
    for form in ("jit_amp.script", "jit_amp.trace"):
        told = compare(model, form, x)
        wrong += "bit for bit" not in told and "so do eager" not in told
        print(f"{given.model}, {form}: {told}", flush=True)
    runs, peaks = {}, {}
    for form in FORMS:
        if given.small and form == "torch.compile":
            continue
        try:
            runs[form], peaks[form] = ready(model, form, x)
        except Exception as error:
            print(f"{given.model}, {form}: fails: {str(error).strip().splitlines()[-1][:100]}")
    seconds: dict[str, list[float]] = {form: [] for form in runs}
    with turns.alone():
        for form in turns.order(runs, 2 if given.small else 50):
            start = time.perf_counter()
            runs[form].step(x)
            synchronize()
            seconds[form].append(time.perf_counter() - start)
    for form, taken in seconds.items():
        ratio = statistics.median(taken) / statistics.median(seconds["eager"])
        print(f"{given.model}, {form}: {ratio:.3f} of eager's time, {peaks[form]:.0f} MiB more")
    sys.exit(1 if wrong else 0)


main()
