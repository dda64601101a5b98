"""What a training step takes, in time and memory, as ratios to eager autocast's.

A step is zero_grad, forward, loss, backward and SGD. Time: rounds are interleaved, each gives every
form one turn, in an order that rotates; the median of the rounds' ratios, and their quartiles. The
spread of the run itself is eager against a second eager. Memory: the most that a step
holds beyond the least, from PyTorch's profiler. On CPU in bfloat16, one thread.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import jit_amp

warnings.filterwarnings("ignore", "`torch.jit.[a-z_]+` is deprecated")


class InBfloat16(nn.Module):
    """A model under autocast, with nothing that plain TorchScript cannot take."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(x)


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "ResNet-50, batch 2": (models.ResNet, (2, 3, 128, 128)),
    "ViT-B/16, batch 1": (models.ViT, (1, 3, 224, 224)),
    "LSTM, batch 16": (models.LSTM, (16, 25, 256)),
    "MLP, batch 64": (models.MLP, (64, 512)),
}
FORMS: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "eager": lambda model, x: model,
    "eager again": lambda model, x: model,
    "jit_amp.script": lambda model, x: jit_amp.script(model),
    "jit_amp.trace": lambda model, x: jit_amp.trace(model, (x,), check_trace=False),
    "torch.jit.script": lambda model, x: torch.jit.script(model),
    "torch.compile": lambda model, x: torch.compile(model),
}
WARM_UP = 3


class Step:
    """One form of a model, and its optimiser."""

    def __init__(self, model: nn.Module, form: str, x: Tensor) -> None:
        own = copy.deepcopy(model)
        self.model, self.x = FORMS[form](own, x), x
        self.optimiser = torch.optim.SGD(own.parameters(), lr=1e-4)

    def __call__(self) -> None:
        self.optimiser.zero_grad()
        self.model(self.x).float().pow(2).mean().backward()
        self.optimiser.step()

    def seconds(self, calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            self()
        return time.perf_counter() - start

    def peak(self) -> int:
        """Bytes: the median of three steps, the most that is there beyond the least."""
        return sorted(self._span() for _ in range(3))[1]

    def _span(self) -> int:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            self()
        events = profiled.profiler.kineto_results.events()  # type: ignore[union-attr]
        changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
        now = highest = lowest = 0
        for _, change in changes:
            now += change
            highest, lowest = max(highest, now), min(lowest, now)
        return highest - lowest


def measure(
    name: str, forms: list[str], rounds: int
) -> dict[str, tuple[float, float, float, float] | str]:
    """Prints a model's table; returns quartiles of the time, and the memory, by form."""
    make, shape = CASES[name]
    torch.manual_seed(0)
    model = InBfloat16(make().train())
    x = torch.randn(shape)
    steps, failed = {}, {}
    for form in forms:
        try:
            step = Step(model, form, x)
            for _ in range(WARM_UP):
                step()
            steps[form] = step
        except Exception as error:
            failed[form] = str(error).strip().splitlines()[-1][:70]
    calls = max(1, int(0.05 / steps["eager"].seconds(1)))
    ratios: dict[str, list[float]] = {form: [] for form in steps}
    for number in range(rounds):
        order = [*steps]
        order = order[number % len(order) :] + order[: number % len(order)]
        took = {form: steps[form].seconds(calls) for form in order}
        for form in steps:
            ratios[form].append(took[form] / took["eager"])
    peak = steps["eager"].peak()
    found: dict[str, tuple[float, float, float, float] | str] = {}
    print(f"\n{name}\n{'':18}{'time':>7}  {'quartiles':14}{'memory':>7}")
    for form in forms:
        if form in failed:
            print(f"{form:18}   fails: {failed[form]}")
            found[form] = failed[form]
            continue
        quarters = statistics.quantiles(ratios[form], n=4)
        memory = steps[form].peak() / peak
        print(
            f"{form:18}{quarters[1]:7.3f}  {quarters[0]:.3f} to {quarters[2]:.3f}{memory:8.3f}",
            flush=True,
        )
        found[form] = (quarters[0], quarters[1], quarters[2], memory)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--models", nargs="*", default=[*CASES], choices=[*CASES])
    arguments.add_argument("--forms", nargs="*", default=[*FORMS], choices=[*FORMS])
    arguments.add_argument("--rounds", type=int, default=30)
    arguments.add_argument("--chart", type=Path, help="draw the tables there, as a PNG")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread; ratios to eager autocast")
    forms = ["eager", *[form for form in given.forms if form != "eager"]]
    results = {}
    for name in given.models:
        results[name] = measure(name, forms, given.rounds)
        if given.chart:
            from chart import draw_steps

            draw_steps(results, given.chart)


if __name__ == "__main__":
    main()
