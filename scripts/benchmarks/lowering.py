"""How long jit_amp takes on large graphs, against what torch.jit.script takes to compile them.

jit_amp's time is what `jit_amp.script` takes of a function with its source beyond what
`torch.jit.script` takes of the same: reading the source, and everything from its graph to the graph
that runs. CPU seconds, in turns, medians; each size in a process of its own, because TorchScript
keeps what it has compiled, and large heaps are slow.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import jit_amp

warnings.filterwarnings("ignore", "`torch.jit.[a-z_]+` is deprecated")

SIZES = (2000, 4000, 8000, 16000, 32000, 64000)


def straight(count: int) -> list[str]:
    """Matrix products, with elementwise operators between them."""
    steps = ["x = torch.mm(x, w)", "y = torch.relu(x)", "x = y + x", "x = torch.softmax(x, 1)"]
    return [steps[i % 4] for i in range(count)]


def writes(count: int) -> list[str]:
    """The same, with a write in every ten operators."""
    lines = straight(count)
    lines[::10] = ["y.add_(1.0)"] * len(lines[::10])
    return ["y = w.clone()", *lines]


def blocks(count: int) -> list[str]:
    """Branches and loops that hold eight operators each."""
    lines = []
    for i in range(0, count, 9):
        lines.append("if n > 1:" if i % 2 else "for _ in range(n):")
        lines += [f"    {line}" for line in straight(8)]
    return lines


KINDS = {"straight": straight, "writes": writes, "blocks": blocks}


def make(kind: str, count: int, folder: Path) -> Callable[..., Any]:
    """A function of so many operators, half of them in a scope."""
    lines = KINDS[kind](count)
    half = len(lines) // 2
    while half < len(lines) and lines[half].startswith(" "):
        half += 1
    path = folder / f"{kind}_{count}.py"
    path.write_text(
        "import torch\nfrom torch import Tensor\n\n"
        "def function(x: Tensor, w: Tensor, n: int):\n    y = x\n"
        + "".join(f"    {line}\n" for line in lines[:half])
        + "    with torch.autocast('cpu', dtype=torch.bfloat16):\n"
        + "".join(f"        {line}\n" for line in lines[half:])
        + "    return x, y\n"
    )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.function


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def measure(kind: str, count: int, rounds: int, folder: Path) -> tuple[float, float]:
    """Medians of PyTorch's and jit_amp's seconds."""
    theirs, whole = [], []
    for _ in range(rounds):
        for script, spent in ((torch.jit.script, theirs), (jit_amp.script, whole)):
            function = make(kind, count, folder)
            spent.append(seconds(lambda script=script, function=function: script(function))[0])
    return statistics.median(theirs), statistics.median(whole) - statistics.median(theirs)


def in_a_process(kind: str, count: int, rounds: int) -> tuple[float, float]:
    command = [sys.executable, "-W", "ignore", __file__, "--rounds", str(rounds)]
    done = subprocess.run(
        [*command, "--one", kind, str(count)], stdout=subprocess.PIPE, text=True, check=True
    )
    theirs, ours = map(float, done.stdout.split())
    return theirs, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=KINDS, action="append")
    options = parser.parse_args()
    if options.one:
        kind, count = options.one
        with tempfile.TemporaryDirectory() as folder:
            measure(kind, 500, 2, Path(folder))  # warm-up
            print(*measure(kind, int(count), options.rounds, Path(folder)))
        return
    print("jit_amp's time as a share of torch.jit.script's; growth of each for twice the operators")
    print(f"{'operators':22}{'share':>8}{'jit_amp grows':>16}{'PyTorch grows':>16}")
    missed = False
    for kind in options.kind or KINDS:
        before: tuple[float, float] | None = None
        for size in [size for size in SIZES if size <= options.largest]:
            print(f"  {kind}, {size} operators", file=sys.stderr, flush=True)
            theirs, ours = in_a_process(kind, size, options.rounds)
            grown = ["", ""]
            if before:
                grown = [f"{ours / before[1]:.2f}", f"{theirs / before[0]:.2f}"]
            row = f"{kind + ', ' + str(size):22}{ours / theirs:8.2f}"
            print(f"{row}{grown[0]:>16}{grown[1]:>16}", flush=True)
            missed |= ours / theirs > 0.25
            before = theirs, ours
    if missed:
        print("More than 0.25 somewhere.")
    raise SystemExit(missed)


if __name__ == "__main__":
    main()
