"""What a frozen module holds in memory, for phones and for servers.

The first table: 64 linear layers whose weights have 512 MiB in bfloat16. What a process holds more
after it has loaded the file and called it twice, the most that freezing holds more than before, and
seconds to load; the weights' own size is the unit of memory. The second: attention by hand, the
most that a call holds more than before, in MiB. Each number is from a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import models
import torch
from torch import Tensor, nn

import jit_amp

warnings.filterwarnings("ignore")
TARGETS = "portable", "server"
MIB = 2**20


def held(name: str = "VmRSS") -> float:
    """In MiB: what the process holds, or the most it has held (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def forget_peak() -> float:
    Path("/proc/self/clear_refs").write_text("5")
    return held()


def weights(layers: int, batch: int, width: int = 2048) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
    return models.Autocast(model.requires_grad_(False)).eval(), torch.randn(batch, width)


def set_up(target: str, batch: int) -> None:
    """What PyTorch makes once in a process."""
    small, x = weights(1, batch, 64)
    with tempfile.TemporaryDirectory() as folder:
        torch.jit.save(frozen(small, x, target), f"{folder}/small.pt")
        run = torch.jit.load(f"{folder}/small.pt")
        for _ in range(3):
            run(x)


def frozen(model: nn.Module, x: Tensor, target: Any) -> Any:
    return jit_amp.freeze(model, example_inputs=(x,), target=target)


def of_freezing(path: str, target: str, layers: int, batch: int) -> dict[str, float]:
    set_up(target, batch)
    model, x = weights(layers, batch)
    before = forget_peak()
    made = frozen(model, x, target)
    peak = held("VmHWM") - before
    torch.jit.save(made, path)
    return {"peak": peak}


def of_loading(path: str, target: str, layers: int, batch: int) -> dict[str, float]:
    set_up(target, batch)
    x = torch.randn(batch, 2048)
    before, start = held(), time.perf_counter()
    made = torch.jit.load(path)
    seconds = time.perf_counter() - start
    for _ in range(2):
        made(x)
    return {"resident": held() - before, "seconds": seconds}


def of_attention(path: str, target: str, layers: int, batch: int) -> dict[str, float]:
    """`layers` is the number of tokens."""
    x = torch.randn(3, 1, 8, layers, 64).to(torch.bfloat16)
    made = frozen(models.Autocast(models.PlainAttention()).eval(), x[:, :, :, :16], target)
    for _ in range(3):
        made(x[:, :, :, :16].contiguous())
    before = forget_peak()
    made(x)
    return {"peak": held("VmHWM") - before}


KINDS = {"freezing": of_freezing, "loading": of_loading, "attention": of_attention}


def measured(kind: str, path: str, target: str, layers: int, batch: int) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", __file__, "--one", kind, path, target]
    command += [str(layers), str(batch)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 64], help="rows of the example")
    parser.add_argument("--tokens", type=int, nargs="*", default=[1024, 4096])
    parser.add_argument("--layers", type=int, default=64, help="of 8 MiB in bfloat16 each")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, path, target, layers, batch = options.one
        with torch.no_grad():
            print(json.dumps(KINDS[kind](path, target, int(layers), int(batch))))
        return
    size = options.layers * 2048 * 2048 * 2 / MIB
    print(
        f"weights of {size:.0f} MiB\n{'':10}{'rows':>6}{'resident':>12}{'peak':>12}{'load s':>12}"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.pt"
        for batch in options.batch:
            for target in TARGETS:
                made = measured("freezing", path, target, options.layers, batch)
                found = measured("loading", path, target, options.layers, batch)
                print(
                    f"{target:10}{batch:6}{found['resident'] / size:12.2f}"
                    f"{made['peak'] / size:12.2f}{found['seconds']:12.2f}",
                    flush=True,
                )
        print(f"\nattention, 8 heads of width 64\n{'':10}{'tokens':>8}{'MiB':>10}")
        for tokens in options.tokens:
            for target in TARGETS:
                peak = measured("attention", path, target, tokens, 1)["peak"]
                print(f"{target:10}{tokens:8}{peak:10.0f}", flush=True)


if __name__ == "__main__":
    main()
