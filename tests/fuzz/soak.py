"""A server's life: requests in threads, while the file is written again and loaded again.

    PYTHONPATH=tests:scripts/ship.d:. python -m fuzz.soak --seconds 3600

A writer freezes the model of one version after another, now portable, now for servers, and each
takes the same name, as `jit-amp freeze` writes it. A server in Python and one in C++, which have
no jit_amp, load the file whenever it is another one. Every answer has to be, bit for bit, what the
version that it names computes. It prints a table, and the exit status is 1 where one was not.
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

import torch
from engines import libtorch
from torch import Tensor, nn

import jit_amp
from jit_amp._cli.saving import save_module

from .soak_server import WARMS_UP, resident

VERSIONS = 60  # times 4 is exact in bfloat16


class Net(nn.Module):
    """Of tensors that are full of a number it gives that number times its version."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8, bias=False), nn.Linear(8, 8)
        nn.init.constant_(self.first.weight, 1 / 8)
        nn.init.constant_(self.second.weight, version / 8)
        nn.init.zeros_(self.second.bias)
        self.register_buffer("version", torch.tensor(float(version)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.second(torch.relu(self.first(x))), self.version


def write(path: Path, number: int) -> None:
    """The file of the next version."""
    target = ("portable", "server")[number % 2]
    net = Net(number % VERSIONS + 1).eval()
    save_module(jit_amp.freeze(net, (torch.ones(2, 8),), target=target), path, is_lite=False)


def soak(seconds: float, threads: int, pause: float, folder: Path) -> dict[str, dict[str, Any]]:
    """What the servers and the writer tell, by name.

    Args:
        seconds: how long they run.
        threads: of each server.
        pause: seconds between two requests of a thread.
        folder: where the file is written, and the server in C++ is built.
    """
    path = folder / "net.pt"
    write(path, 0)
    servers = {
        "Python": [sys.executable, str(Path(__file__).with_name("soak_server.py"))],
        "libtorch": [str(libtorch.built("soak_server", folder))],
    }
    given = [str(path), str(seconds), str(threads), str(pause)]
    running = {
        name: subprocess.Popen([*command, *given], stdout=subprocess.PIPE, text=True)
        for name, command in servers.items()
    }
    begin, number, held = time.monotonic(), 0, list[float]()
    shown = begin
    while any(each.poll() is None for each in running.values()):
        number += 1
        write(path, number)
        now = time.monotonic()
        if now > begin + WARMS_UP * seconds:
            held.append(resident())
        if sys.stderr.isatty() or now > shown + 60:
            print(f"{now - begin:.0f} of {seconds:.0f} s, {number} files", file=sys.stderr)
            shown = now
        time.sleep(0.2)
    told = {name: json.loads(each.communicate()[0]) for name, each in running.items()}
    mib = [held[0], held[-1], max(held)] if held else []
    return {**told, "writer": {"files": number, "mib": [round(each, 1) for each in mib]}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=4, help="of each server")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two requests")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", "`torch.jit")
    with tempfile.TemporaryDirectory() as folder:
        told = soak(given.seconds, given.threads, given.pause, Path(folder))
    for name, each in told.items():
        words = ", ".join(f"{key} {value}" for key, value in each.items())
        print(f"{name}: {words}")
    print("mib: held after a fifth of the time, at the end, at most")
    return int(any(each.get("wrong_count", 0) for each in told.values()))


if __name__ == "__main__":
    sys.exit(main())
