"""What jit_amp costs where it does nothing, and what it leaves behind: against plain PyTorch.

Two tables. The first: how long scripting takes of programs without autocast, jit_amp.script over
torch.jit.script, both orders, the median of pairs and their spread. The second: how much memory a
process keeps after it has scripted, traced, frozen or toggled the same thing many times and let go
of it, in kilobytes a time, each in a process of its own; the first hundred are not counted.
"""

from __future__ import annotations

import argparse
import functools
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import jit_amp

warnings.simplefilter("ignore")
WARM = 100


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor):
        y = torch.relu(self.norm(self.conv(x)))
        if y.size(0) > 2:
            y = y * 2
        return y


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x: Tensor):
        return self.blocks(x)


class Reduced(nn.Module):
    """Linear layers alone: plain TorchScript raises for a convolution in a scope."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layers(x)


def reduced_residual(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.relu(x @ x) + x


def a_module(api: Any, cls: type[nn.Module]) -> Callable[[], Any]:
    x = torch.rand(1, 4, 8, 8)

    def once() -> None:
        made = api.script(cls())
        for _ in range(3):
            made(x)

    return once


def a_frozen_module(api: Any, cls: type[nn.Module]) -> Callable[[], Any]:
    def once() -> None:
        api.freeze(api.script(cls().eval()))(torch.rand(1, 4, 8, 8))

    return once


def a_trace(api: Any, cls: type[nn.Module]) -> Callable[[], Any]:
    x = torch.rand(1, 4, 8, 8)
    return lambda: api.trace(cls(), (x,))


def a_function(api: Any, function: Callable[..., Any]) -> Callable[[], Any]:
    x = torch.rand(4, 4)
    return lambda: api.script(function)(x)


def a_flag(api: Any, function: Callable[..., Any]) -> Callable[[], Any]:
    made, x = api.script(function), torch.rand(4, 4)
    switch = (
        made._set_ignore_amp if api is torch.jit else functools.partial(jit_amp.ignore_amp, made)
    )
    flags = itertools.cycle([True, False])

    def once() -> None:
        switch(next(flags))
        made(x)

    return once


# What is done, and with what.
CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "script a module without autocast": (a_module, Plain),
    "script a module with a scope": (a_module, Reduced),
    "freeze a module with a scope": (a_frozen_module, Reduced),
    "trace a module with a scope": (a_trace, Reduced),
    "script a function with a scope": (a_function, reduced_residual),
    "toggle ignore_amp of a function": (a_flag, reduced_residual),
}


def resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def kept(case: str, who: str, times: int) -> float:
    """Kilobytes a time, in this process."""
    make, what = CASES[case]
    once = make(torch.jit if who == "plain" else jit_amp, what)
    for _ in range(WARM):
        once()
    before = resident()
    for _ in range(times):
        once()
    return (resident() - before) / times / 1024


def in_a_process_of_its_own(case: str, who: str, times: int) -> float:
    command = [sys.executable, "-W", "ignore", __file__, "--case", case, "--who", who]
    run = subprocess.run([*command, "--times", str(times)], capture_output=True, check=True)
    return float(json.loads(run.stdout.splitlines()[-1]))


def made_anew() -> type[nn.Module]:
    """A class that PyTorch has not seen: it shares types by class."""

    class Anew(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(*[type("B", (Block,), {})() for _ in range(10)])
            self.layer = nn.TransformerEncoderLayer(16, 4)

        def forward(self, x: Tensor):
            return self.blocks(x)

    return Anew


def seconds(script: Callable[[Any], Any], module: nn.Module) -> float:
    start = time.perf_counter()
    script(module)
    return time.perf_counter() - start


def scripting_time(pairs: int) -> list[float]:
    """Ratios, ours over plain's."""
    ratios = []
    for i in range(-1, pairs):
        both = [jit_amp.script, torch.jit.script]
        took = {f: seconds(f, made_anew()()) for f in (both if i % 2 else both[::-1])}
        if i >= 0:
            ratios.append(took[jit_amp.script] / took[torch.jit.script])
    return sorted(ratios)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--times", type=int, default=1000)
    arguments.add_argument("--pairs", type=int, default=21)
    arguments.add_argument("--case")
    arguments.add_argument("--who", default="plain")
    given = arguments.parse_args()
    if given.case:
        print(json.dumps(kept(given.case, given.who, given.times)))
        return
    ratios = scripting_time(given.pairs)
    quarter = len(ratios) // 4
    print(
        "scripting time without autocast, over plain's: "
        f"{statistics.median(ratios):.3f} ({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})"
    )
    print(f"memory kept, KiB a time of {given.times}")
    print(f"{'':36}{'plain':>8}{'jit_amp':>9}")
    for case in CASES:
        row = [in_a_process_of_its_own(case, who, given.times) for who in ("plain", "ours")]
        print(f"{case:36}{row[0]:8.1f}{row[1]:9.1f}", flush=True)


if __name__ == "__main__":
    main()
