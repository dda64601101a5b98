"""Artefacts between processors: `exchange.py make FOLDER` on one, `check FOLDER` on the other.

`make` freezes small models, portable and for servers, and keeps what they give for an input.
`check` needs no jit_amp: it loads them with PyTorch alone, and compares: bit for bit, or within
what another order of summation makes in a reduced dtype.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

NEAR = 0.05  # of the largest: bfloat16 keeps eight bits, and these models have a few layers


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.softmax(self.last(self.norm(torch.relu(self.first(x)))), -1)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = torch.relu(self.norm(self.conv(x)))
            return self.last(torch.nn.functional.gelu(self.up(h)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            q, k, v = self.inner(x).chunk(3, -1)
            weights = torch.softmax(q @ k.transpose(-2, -1) / 4.0, -1)
            return self.outer(weights @ v)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.last = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.last(self.gru(x)[0])


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (Mlp, (3, 16)),
    "convolutions": (Convolutions, (2, 3, 9, 9)),
    "attention": (Attention, (2, 5, 16)),
    "recurrent": (Recurrent, (2, 4, 8)),
}


def told(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "Unknown" in line or "not" in line), lines[-1])[:150]


def make(folder: Path) -> None:
    import jit_amp

    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for name, (model, shape) in MODELS.items():
        torch.manual_seed(0)
        module, x = model().eval(), torch.randn(shape)
        for target in ("portable", "server"):
            try:
                frozen = jit_amp.freeze(module, example_inputs=(x,), target=target)
            except Exception as error:  # a PyTorch without oneDNN makes none for servers
                print(f"{name}, {target}: not made: {told(error)}")
                continue
            file = f"{name}-{target}.pt"
            frozen.save(str(folder / file))
            with torch.no_grad():
                torch.save((x, frozen(x)), folder / f"{file}.values")
            made[file] = platform.machine()
    (folder / "made.json").write_text(json.dumps(made))
    print(f"{len(made)} artefacts made on {platform.machine()}, torch {torch.__version__}")


def check(folder: Path) -> int:
    wrong = 0
    for file, machine in json.loads((folder / "made.json").read_text()).items():
        x, expected = torch.load(folder / f"{file}.values")
        line = f"{file}, {machine} to {platform.machine()}: "
        try:
            loaded = torch.jit.load(str(folder / file))
            with torch.no_grad():
                results = [loaded(x) for _ in range(3)]
        except Exception as error:
            # What is for servers may need operators that this PyTorch was built without.
            wrong += "portable" in file
            print(f"{line}not loaded: {told(error)}")
            continue
        off = max(float((r.float() - expected.float()).abs().max()) for r in results)
        share = off / float(expected.float().abs().max())
        same_dtype = all(r.dtype == expected.dtype for r in results)
        wrong += share > NEAR or not same_dtype
        print(line + ("bit for bit" if off == 0 else f"within {share:.1e} of the largest"))
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    else:
        sys.exit(check(Path(sys.argv[2])))
