"""How long a large program takes to its third result: plain TorchScript, jit_amp and torch.compile.

TorchScript profiles a program in its first call, and optimises it in the second; torch.compile
compiles it in the first. Each form runs in a process of its own, without gradients. The figures are
shares of plain TorchScript's time, and eager's own three calls stand beside them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import lowering
import torch

import jit_amp

warnings.filterwarnings("ignore", "`torch.jit.[a-z_]+` is deprecated")

FORMS: dict[str, Any] = {
    "torch.jit.script": torch.jit.script,
    "jit_amp.script": jit_amp.script,
    "torch.compile": torch.compile,
    "eager": lambda function: function,
}


def took(form: str, count: int) -> float:
    """Seconds of three calls, of which the first compiles; scripting is not counted."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        made = FORMS[form](lowering.make("straight", count, Path(folder)))
        x, w = torch.randn(8, 8), torch.randn(8, 8)
        start = time.perf_counter()
        for _ in range(3):
            made(x, w, 2)
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", type=int, default=4000)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds a form may take")
    parser.add_argument("--form", choices=FORMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.form:
        print(took(options.form, options.operators))
        return
    first = 0.0
    print(f"{options.operators} operators: three calls, as a share of plain TorchScript's")
    for form in FORMS:
        print(f"  {form}", file=sys.stderr, flush=True)
        command = [sys.executable, "-W", "ignore", __file__, "--form", form]
        command += ["--operators", str(options.operators)]
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=options.limit
            )
        except subprocess.TimeoutExpired:
            print(f"{form:20} more than {options.limit:.0f} s", flush=True)
            continue
        except subprocess.CalledProcessError as error:
            print(f"{form:20} fails: {error.stderr.strip().splitlines()[-1]}", flush=True)
            continue
        seconds = float(ran.stdout.split()[-1])
        first = first or seconds
        print(f"{form:20} {seconds / first:.4f}", flush=True)


if __name__ == "__main__":
    main()
