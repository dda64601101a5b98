"""Frozen files between processors and releases of PyTorch: made in one place, read in another.

    exchange.py make FOLDER    freezes small models in each form, and keeps what they give
    exchange.py check FOLDER   loads them with PyTorch alone, without jit_amp, and compares
    exchange.py table JSON...  a table of what `check FOLDER --json FILE` has found

Values are compared bit for bit, or within what another order of summation makes in a reduced
dtype. A program of its own loads each file, so that one that ends the process is one row.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NEAR = 0.05  # of the largest: bfloat16 keeps eight bits, and these models have a few layers
DTYPES = (torch.bfloat16, torch.float16)
FORMS = ("portable", "portable with an example", "server", "lite")
"""How a model is frozen. `lite` is the portable form, saved for phones."""


class Model(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype


class Mlp(Model):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.first, self.norm, self.last = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            return torch.softmax(self.last(self.norm(torch.relu(self.first(x)))), -1)


class Convolutions(Model):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            h = torch.relu(self.norm(self.conv(x)))
            return self.last(F.gelu(self.up(h)))


class Attention(Model):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.inner, self.outer = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            q, k, v = self.inner(x).chunk(3, -1)
            weights = torch.softmax(q @ k.transpose(-2, -1) / 4.0, -1)
            return self.outer(weights @ v)


class FusedAttention(Attention):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            q, k, v = self.inner(x).unsqueeze(1).chunk(3, -1)
            return self.outer(F.scaled_dot_product_attention(q, k, v).squeeze(1))


class Recurrent(Model):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.gru, self.last = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            return self.last(self.gru(x)[0])


class Mixed(Model):
    """Scopes inside one another, a branch, a loop, and operators of each policy."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            for layer in self.layers:
                x = layer(x) + x if x.size(0) > 1 else layer(x)
            with torch.autocast("cpu", enabled=False):
                y = x.float().exp().cumsum(-1)
            return torch.einsum("bi,bj->bij", x, y).sum(-1)


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (Mlp, (3, 16)),
    "convolutions": (Convolutions, (2, 3, 9, 9)),
    "attention": (Attention, (2, 5, 16)),
    "fused attention": (FusedAttention, (2, 5, 16)),
    "recurrent": (Recurrent, (2, 4, 8)),
    "mixed": (Mixed, (3, 8)),
}


def told(error: Exception | str) -> str:
    """The line of an error that says what is missing."""
    lines = [line.strip().removeprefix("RuntimeError: ") for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")] or ["?"]
    said = (line for line in lines if "nknown" in line or "not implemented" in line)
    return next(said, lines[-1])[:150]


def frozen(name: str, dtype: torch.dtype, form: str) -> tuple[Any, Tensor]:
    import jit_amp

    model, shape = MODELS[name]
    torch.manual_seed(0)
    module, x = model(dtype).eval(), torch.randn(shape)
    example = None if form in ("portable", "lite") else (x,)
    target = "server" if form == "server" else "portable"
    return jit_amp.freeze(module, example_inputs=example, target=target), x


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name in MODELS:
        for dtype in DTYPES:
            for form in FORMS:
                row = {"model": name, "dtype": str(dtype)[6:], "form": form}
                try:
                    module, x = frozen(name, dtype, form)
                    with torch.no_grad():
                        expected = module(x)
                except Exception as error:  # a PyTorch without oneDNN makes none for servers
                    print(f"{', '.join(row.values())}: not made: {told(error)}")
                    continue
                file = f"{'-'.join(row.values())}.pt".replace(" ", "_")
                if form == "lite":
                    module._save_for_lite_interpreter(str(folder / file))
                else:
                    module.save(str(folder / file))
                torch.save((x, expected), folder / f"{file}.values")
                made.append(row | {"file": file})
    origin = {"torch": torch.__version__, "machine": platform.machine(), "files": made}
    (folder / "made.json").write_text(json.dumps(origin))
    print(f"{len(made)} files made on {platform.machine()}, torch {torch.__version__}")


def read(folder: Path, file: str, reader: str) -> str:
    """How far a file's results are from what was kept; an error of what differs."""
    x, expected = torch.load(folder / f"{file}.values")
    if reader == "lite interpreter":
        from torch.jit.mobile import _load_for_lite_interpreter

        loaded = _load_for_lite_interpreter(str(folder / file))
    else:
        loaded = torch.jit.load(str(folder / file))
    with torch.no_grad():
        results = [loaded(x) for _ in range(3)]
    if any(r.dtype != expected.dtype for r in results):
        raise ValueError(f"WRONG: {results[0].dtype}, not {expected.dtype}")
    off = max(float((r.float() - expected.float()).abs().max()) for r in results)
    share = off / float(expected.float().abs().max())
    if not share <= NEAR:
        raise ValueError(f"WRONG: {share:.1e} of the largest")
    return "bit for bit" if off == 0 else f"within {share:.1e} of the largest"


def check_one(folder: Path, file: str, reader: str) -> tuple[bool, str]:
    try:
        return True, read(folder, file, reader)
    except Exception as error:
        return False, told(error)


def checked(folder: Path, rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Each in one process; again from the next one on where that has ended."""
    found: list[dict[str, Any]] = []
    asked = [
        (row, reader)
        for row in rows
        for reader in ("torch.jit.load", "lite interpreter")
        if reader == "torch.jit.load" or row["form"] == "lite"
    ]
    while len(found) < len(asked):
        rest = [[row["file"], reader] for row, reader in asked[len(found) :]]
        command = [sys.executable, "-W", "ignore", __file__, "read", str(folder)]
        ran = subprocess.run(command, input=json.dumps(rest), capture_output=True, text=True)
        answers = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]
        if len(answers) < len(rest):
            answers.append([False, f"the process ended with {ran.returncode}: {told(ran.stderr)}"])
        for is_right, text in answers:
            row, reader = asked[len(found)]
            found.append(row | {"reader": reader, "right": is_right, "told": text})
    return found


def check(folder: Path, to: Path | None) -> int:
    origin = json.loads((folder / "made.json").read_text())
    found = checked(folder, origin["files"])
    for row in found:
        where = f"{origin['machine']} to {platform.machine()}"
        print(f"{row['file']}, {row['reader']}, {where}: {row['told']}")
    if to is not None:
        results = {"written by": origin["torch"], "read by": torch.__version__, "files": found}
        to.write_text(json.dumps(results))
    # What is for servers may need operators that this PyTorch was built without.
    wrong = [r for r in found if "WRONG" in r["told"] or (not r["right"] and r["form"] != "server")]
    print(f"{sum(r['right'] for r in found)} of {len(found)} right, torch {torch.__version__}")
    return 1 if wrong else 0


def table(files: list[Path]) -> None:
    """Of each form in each dtype, how many files of those written by a release another reads."""
    runs = [json.loads(file.read_text()) for file in files]

    def number(release: str) -> tuple[int, ...]:
        return tuple(int(part) for part in release.partition("+")[0].split("."))

    kinds = [(form, "torch.jit.load") for form in FORMS] + [("lite", "lite interpreter")]
    writers = sorted({run["written by"] for run in runs}, key=number)
    readers = sorted({run["read by"] for run in runs}, key=number)
    for writer in writers:
        of = {run["read by"]: run["files"] for run in runs if run["written by"] == writer}
        print(f"\nWritten by PyTorch {writer.partition('+')[0]}, read by:\n")
        print("| | " + " | ".join(each.partition("+")[0] for each in readers) + " |")
        print("|---|" + "---|" * len(readers))
        for form, reader in kinds:
            for dtype in (str(each)[6:] for each in DTYPES):
                cells = []
                for release in readers:
                    rows = [
                        row
                        for row in of.get(release, [])
                        if (row["form"], row["reader"], row["dtype"]) == (form, reader, dtype)
                    ]
                    right = sum(row["right"] for row in rows)
                    bad = any("WRONG" in row["told"] for row in rows)
                    cells.append((f"{right}/{len(rows)}" if rows else "") + (" WRONG" * bad))
                name = f"{form}, {dtype}" + (", lite interpreter" if "lite" in reader else "")
                print(f"| {name} | " + " | ".join(cells) + " |")
        reasons: dict[str, list[str]] = {}
        for release in readers:
            for row in of.get(release, []):
                if not row["right"]:
                    reasons.setdefault(row["told"], []).append(release.partition("+")[0])
        for text, releases in reasons.items():
            print(f"\n- {', '.join(sorted(set(releases), key=number))}: {text}")


def main() -> int:
    torch.set_num_threads(1)
    command, *rest = sys.argv[1:]
    if command == "make":
        make(Path(rest[0]))
    elif command == "check":
        to = Path(rest[2]) if rest[1:2] == ["--json"] else None
        return check(Path(rest[0]), to)
    elif command == "read":
        for file, reader in json.load(sys.stdin):
            print(json.dumps(check_one(Path(rest[0]), file, reader)), flush=True)
    else:
        table([Path(file) for file in rest])
    return 0


if __name__ == "__main__":
    sys.exit(main())
