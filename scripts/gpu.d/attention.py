"""Attention on a GPU: written by hand, and PyTorch's operator, in each form; time and memory.

Artefacts for servers have PyTorch's operator in the place of attention by hand: what is to be seen
here is which kernels it takes, and that it gives what eager gives.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import torch
import turns
from torch import Tensor, nn

import jit_amp


class ByHand(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            scores = torch.matmul(q, k.transpose(-2, -1)) * 0.125
            return torch.matmul(torch.softmax(scores, -1), v)


class Masked(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            n = q.size(-2)
            future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
            scores = torch.matmul(q, k.transpose(-2, -1)) / 8.0
            weights = torch.softmax(scores.masked_fill(future, float("-inf")), -1)
            return torch.matmul(weights, v)


class Operator(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)


FORMS = {
    "eager": lambda model, inputs: model,
    "jit_amp.script": lambda model, inputs: jit_amp.script(model),
    "jit_amp.freeze": lambda model, inputs: jit_amp.freeze(model, example_inputs=inputs),
    "freeze, server": lambda model, inputs: jit_amp.freeze(
        model, example_inputs=inputs, target="server"
    ),
    "torch.compile": lambda model, inputs: torch.compile(model),
}


def measure(run: Any, inputs: tuple[Tensor, ...], rounds: int) -> tuple[float, float]:
    real = torch.backends.cuda.is_built()
    with torch.no_grad():
        for _ in range(4):
            run(*inputs)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated() if real else 0
        if real:
            torch.cuda.reset_peak_memory_stats()
        seconds = []
        with turns.alone():
            for _ in range(rounds):
                start = time.perf_counter()
                run(*inputs)
                torch.cuda.synchronize()
                seconds.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() - before if real else 0
    return statistics.median(seconds) * 1000, peak / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    print(f"{'tokens':>6} {'model':9} {'form':15} {'ms':>9} {'MiB':>9}  largest difference")
    for tokens in (16,) if small else (128, 512, 2048, 8192):
        torch.manual_seed(0)
        inputs = tuple(torch.randn(2, 16, tokens, 64).cuda() for _ in range(3))
        for model in (ByHand(), Masked(), Operator()):
            expected = model(*inputs).double()
            for name, make in FORMS.items():
                if small and name == "torch.compile":
                    continue
                torch.compiler.reset()
                try:
                    run = make(model.eval(), inputs)
                    taken, peak = measure(run, inputs, 2 if small else 30)
                    off = float((run(*inputs).double() - expected).abs().max())
                except Exception as error:
                    told = str(error).strip().splitlines()[-1][:60]
                    print(f"{tokens:6} {type(model).__name__:9} {name:15} fails: {told}")
                    continue
                row = f"{taken:9.3f} {peak:9.1f}  {off:.1e}"
                print(f"{tokens:6} {type(model).__name__:9} {name:15} {row}", flush=True)


main()
