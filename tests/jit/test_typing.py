"""What a type checker sees of the package: mypy --strict on a program of a user's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jit_amp

PROGRAM = """\
import torch
from torch import Tensor, nn

import jit_amp


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out: Tensor = self.linear(x)
            return out


@jit_amp.ignore_amp
def in_float32(x: Tensor, times: int) -> Tensor:
    return x * times


@jit_amp.ignore_amp(ignore=False)
def heeding(x: Tensor) -> Tensor:
    return x


net, x = Net().eval(), torch.rand(2, 4)
reveal_type(jit_amp.script(net))  # ScriptModule
reveal_type(jit_amp.script(net, autocast=jit_amp.get_autocast("bf16", "cpu")))  # ScriptModule
scripted = jit_amp.script(in_float32)
reveal_type(scripted)  # ScriptFunction[[x: Tensor, times: int], Tensor]
reveal_type(scripted(x, 2))  # Tensor
scripted(x, "2")  # error: arg-type
reveal_type(jit_amp.trace(net, (x,)))  # ScriptModule
reveal_type(jit_amp.trace(heeding, (x,)))  # ScriptFunction[[x: Tensor], Tensor]
reveal_type(jit_amp.trace_module(net, {"forward": (x,)}))  # ScriptModule
reveal_type(jit_amp.freeze(net, example_inputs=(x,)))  # ScriptModule
reveal_type(jit_amp.optimize_for_inference(net))  # ScriptModule
reveal_type(jit_amp.lowered_graph(net))  # Graph
reveal_type(jit_amp.facts(net, x))  # Graph
reveal_type(in_float32)  # def (x: Tensor, times: int) -> Tensor
reveal_type(heeding)  # def (x: Tensor) -> Tensor
reveal_type(jit_amp.policy.table("cpu"))  # dict[str, str]
jit_amp.policy.table("hpu")  # error: arg-type
jit_amp.freeze(net, preserved_attrs="linear")  # error: arg-type
with jit_amp.policy.register("a::b", "cpu", "lower"), jit_amp.install():
    reveal_type(jit_amp.__version__)  # str
try:
    jit_amp.script(net)
except jit_amp.AutocastError as error:
    reveal_type(error)  # AutocastError
"""
OPTIONS = ("--no-pretty", "--no-error-summary", "--hide-error-context", "--cache-dir")


def test_mypy_strict_sees_what_is_returned(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    where = str(Path(jit_amp.__file__).parents[1])
    installed = "site-packages" in where  # else mypy is told where the checkout is
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *OPTIONS, str(tmp_path / "cache"), program.name],
        cwd=tmp_path,
        env=os.environ if installed else {**os.environ, "MYPYPATH": where},
        capture_output=True,
        text=True,
    )
    seen: dict[int, str] = {}
    for line in ran.stdout.splitlines():
        found = re.fullmatch(
            r'program\.py:(\d+): (?:note: Revealed type is "(.*)"|(error: .*))', line
        )
        if found:
            number, revealed, error = found.groups()
            code = re.search(r"\[([\w-]+)\]$", error or "")
            assert number not in seen
            revealed = re.sub(r"\b(?:torch|jit_amp)\.(?:\w+\.)*", "", revealed or "")
            seen[int(number)] = revealed or (f"error: {code[1]}" if code else line)
    expected = {
        number: line.partition("  # ")[2]
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "  # " in line
    }
    assert seen == expected, ran.stdout + ran.stderr
