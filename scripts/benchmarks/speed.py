"""How fast the forms of a model run in bfloat16 on CPU, as ratios to eager autocast.

Rounds are interleaved: each runs every form once, after a warm-up of each; medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import models
import torch
from torch import Tensor, nn

import jit_amp

warnings.filterwarnings("ignore", "`torch.jit.[a-z_]+` is deprecated")

CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "ResNet-50, 4 images": (models.ResNet, lambda: torch.randn(4, 3, 224, 224)),
    "ViT-B/16 encoder, 1": (models.Encoder, lambda: torch.randn(1, 197, 768)),
    "MLP, batch 1": (models.MLP, lambda: torch.randn(1, 512)),
    "MLP, batch 256": (models.MLP, lambda: torch.randn(256, 512)),
    "LSTM, 32 of 50 steps": (models.LSTM, lambda: torch.randn(32, 50, 128)),
}


@contextmanager
def fusion() -> Iterator[None]:
    """oneDNN's fused groups, for what runs the first times inside."""
    torch.jit.enable_onednn_fusion(True)
    try:
        yield
    finally:
        torch.jit.enable_onednn_fusion(False)


def forms(make: Callable[[], nn.Module], x: Tensor) -> dict[str, Callable[[Tensor], Any]]:
    """What is compared, each warmed up."""
    model = make().eval().requires_grad_(False)
    frozen = jit_amp.freeze(model, example_inputs=(x,))
    found: dict[str, Callable[[Tensor], Any]] = {
        "eager autocast": model,
        "scripted": jit_amp.script(model),
        "frozen": frozen,
    }
    for run in found.values():
        for _ in range(4):
            run(x)
    with fusion():
        fused = jit_amp.freeze(model, example_inputs=(x,))
        for _ in range(4):
            fused(x)
        found["frozen, oneDNN"] = fused
        # The fastest recipe so far: a trace under autocast, without its cache, frozen and fused.
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            traced = torch.jit.freeze(torch.jit.trace(model, x, check_trace=False))
            for _ in range(4):
                traced(x)
        found["traced, oneDNN"] = traced
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--model", help="those whose name holds this")
    options = parser.parse_args()
    header = True
    for name, (make, example) in CASES.items():
        if options.model and options.model not in name:
            continue
        print(f"  {name}", file=sys.stderr, flush=True)
        torch.manual_seed(0)
        x = example()
        with torch.no_grad():
            runs = forms(make, x)
            seconds: dict[str, list[float]] = {form: [] for form in runs}
            for _ in range(options.rounds):
                for form, run in runs.items():
                    start = time.perf_counter()
                    run(x)
                    seconds[form].append(time.perf_counter() - start)
        if header:
            print(f"{'times as fast as eager autocast':32}" + "".join(f"{f:>16}" for f in runs))
            header = False
        eager = statistics.median(seconds["eager autocast"])
        ratios = [eager / statistics.median(taken) for taken in seconds.values()]
        print(f"{name:32}" + "".join(f"{ratio:16.2f}" for ratio in ratios), flush=True)


if __name__ == "__main__":
    main()
