"""A server in Python, which imports PyTorch alone: see soak.py.

    python soak_server.py FILE SECONDS THREADS PAUSE

It answers requests in threads, and loads the file whenever it is another one. It prints a line of
JSON: how many requests it answered, how often it loaded, what was wrong, and its memory.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import warnings

import torch

warnings.filterwarnings("ignore", "`torch.jit")
WARMS_UP = 0.2  # of the time: what is held then is what the memory is compared with


def resident() -> float:
    """MiB that the process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def wrong(model: torch.jit.ScriptModule, chance: random.Random) -> str:
    """What is wrong with the answer to a request by chance; empty where nothing is."""
    value = chance.randint(1, 4)
    x = torch.full((chance.randint(1, 16), 8), float(value))
    y, version = model(x)
    wanted = torch.full((len(x), 8), float(value * version.item()), dtype=torch.bfloat16)
    if y.dtype is wanted.dtype and torch.equal(y, wanted):
        return ""
    return f"{value} x {version.item()}: {y.dtype}, {y.flatten()[:3].tolist()}"


class Served:
    """The model of the file, and what was answered."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.mark = self._mark()
        self.model = torch.jit.load(path)
        self.requests, self.loads, self.found = 0, 1, list[str]()
        self.lock = threading.Lock()

    def _mark(self) -> tuple[int, int]:
        status = os.stat(self.path)
        return status.st_ino, status.st_mtime_ns

    def load_again(self) -> None:
        mark = self._mark()
        if mark != self.mark:
            self.model, self.mark = torch.jit.load(self.path), mark
            self.loads += 1

    def answer(self, until: float, pause: float, seed: int) -> None:
        chance, requests = random.Random(seed), 0
        while time.monotonic() < until:
            try:
                told = wrong(self.model, chance)
            except Exception as error:  # of any class
                told = f"{type(error).__name__}: {error}"
            requests += 1
            if told:
                with self.lock:
                    self.found.append(told)
            time.sleep(pause)
        with self.lock:
            self.requests += requests


def main(path: str, seconds: float, threads: int, pause: float) -> None:
    torch.set_num_threads(1)
    served = Served(path)
    begin = time.monotonic()
    until = begin + seconds
    workers = [
        threading.Thread(target=served.answer, args=(until, pause, seed)) for seed in range(threads)
    ]
    for worker in workers:
        worker.start()
    held = []
    with torch.no_grad():
        while time.monotonic() < until:
            try:
                served.load_again()
            except Exception as error:  # of any class
                served.found.append(f"loading: {type(error).__name__}: {error}")
            if time.monotonic() > begin + WARMS_UP * seconds:
                held.append(resident())
            time.sleep(0.05)
    for worker in workers:
        worker.join()
    told = {
        "requests": served.requests,
        "loads": served.loads,
        "wrong": served.found[:5],
        "wrong_count": len(served.found),
        "mib": [round(held[0], 1), round(held[-1], 1), round(max(held), 1)],
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
