"""Random programs, from fixed seeds: eager and jit_amp agree on all. scripts/fuzz runs more."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from jit.support import tree_map
from torch import Tensor

import jit_amp

from . import artefacts
from .campaign import same_kind, write_reproducer
from .oracle import check, kept_alive, load, without_scopes
from .programs import Program, generate
from .reduce import reduced
from .workers import environment

SEEDS = range(400)

# What a program may have, and how many of the seeds above have it at least.
FEATURES = {
    "module": 66,
    "function": 66,
    "gradients": 33,
    "freeze": 10,
    "nested scopes": 33,
    "scope object entered": 16,
    "scope with a name": 16,
    "scope entered by hand": 3,
    "scope without a dtype": 16,
    "scope of bfloat16": 33,
    "scope of float16": 16,
    "scope of an unsupported dtype": 1,
    "scope for cuda": 16,
    "scope for a tensor's device": 1,
    "scope enabled by an attribute": 3,
    "disabled scope": 33,
    "no_grad": 1,
    "decorator": 33,
    "return in a scope": 16,
    "early return": 6,
    "operator: lower": 166,
    "operator: fp32": 100,
    "operator: promote": 100,
    "operator: same": 33,
    "operator: mixed": 166,
    "list operand": 3,
    "Optional operand": 3,
    "view": 33,
    "explicit cast": 33,
    "in-place write": 33,
    "in-place write to a buffer": 6,
    "out=": 6,
    "if": 33,
    "for": 33,
    "while": 16,
    "break": 1,
    "continue": 1,
    "condition on a tensor": 16,
    "list": 33,
    "dict": 16,
    "tuple": 16,
    "query of the state": 33,
    "helper": 100,
    "method": 16,
    "call in a scope": 16,
    "call outside scopes": 33,
    "fork": 6,
    "submodule of the program's own": 33,
    "submodule in a scope": 16,
    "submodule outside scopes": 16,
    "tensor written to an attribute": 6,
    "number written to an attribute": 1,
    "input of bfloat16": 33,
    "input of float16": 33,
    "input of float64": 33,
    "input of int64": 16,
}


def test_a_seed_makes_the_same_program_in_every_process() -> None:
    command = "import sys; from fuzz.programs import generate; print(generate(7), file=sys.stdout)"
    made = subprocess.run(
        [sys.executable, "-c", command], env=environment(), check=True, capture_output=True
    )
    source, theirs = str(generate(7)), made.stdout.decode().strip()
    features = re.compile(r"features=.*")  # a set, printed in any order
    assert features.sub("", theirs) == features.sub("", source)
    assert generate(7) == generate(7) != generate(8)


def test_every_feature_is_in_many_programs() -> None:
    found = Counter(feature for seed in SEEDS for feature in generate(seed).features)
    assert {name: found[name] for name in FEATURES if found[name] < FEATURES[name]} == {}


@pytest.mark.parametrize("part", range(4))
def test_eager_and_jit_amp_agree_on_random_programs(part: int) -> None:
    verdicts: Counter[str] = Counter()
    differ = {}
    seeds = SEEDS[part::4]
    for seed in seeds:
        outcome = check(generate(seed))
        verdicts[outcome.verdict] += 1
        if outcome.verdict == "differs":
            differ[seed] = f"{outcome.kind}: {outcome.detail}"
    assert not differ, "scripts/fuzz --programs 1 --seed SEED makes one small"
    assert verdicts["agrees"] > 0.75 * len(seeds), verdicts
    assert verdicts["refused"] + verdicts["not scriptable"] < 0.03 * len(seeds), verdicts


def test_artefacts_agree_with_eager_on_other_inputs_than_their_example() -> None:
    """Few: scripts/fuzz --artefacts N runs more."""
    verdicts: Counter[str] = Counter()
    taken = refused = 0
    for seed in range(130):
        outcome = check(artefacts.generate(seed))
        assert outcome.verdict != "differs", (
            f"{outcome.kind}: {outcome.detail}\nscripts/fuzz --artefacts 1 --seed {seed} "
            "makes it small"
        )
        verdicts[outcome.frozen] += 1
        taken, refused = taken + outcome.let_in, refused + outcome.turned_away
    assert verdicts["frozen"] > 80 and taken > 4 * verdicts["frozen"] and refused > 30


# What the oracle notices.

PRODUCTS = """
import torch
from torch import Tensor, nn


class Program(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, 4))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = x @ y
        self.seen.add_(1.0)
        return z, x


def inputs():
    return (torch.randn(4, 4).requires_grad_(), torch.randn(4, 4))
"""
MODULE = Program(0, PRODUCTS, ("none", "cpu"), gradients=True, freeze=True)


def shifted(result: Any) -> Any:
    return tree_map(lambda t: t + 0.01, result)


def widened(result: Any) -> Any:
    return tree_map(Tensor.float, result)


def copied(result: Any) -> Any:
    return tree_map(torch.clone, result)


def detached(result: Any) -> Any:
    return tree_map(lambda t: t.detach().clone().requires_grad_(), result)


def reordered(result: Any) -> Any:
    return tuple(reversed(result))


def state_left(result: Any) -> Any:
    torch.set_autocast_enabled("cpu", not torch.is_autocast_enabled("cpu"))
    return result


def raising(result: Any) -> Any:
    raise RuntimeError("planted")


class Planted(torch.nn.Module):
    """A scripted module whose results are changed."""

    def __init__(self, scripted: Any, change: Any) -> None:
        super().__init__()
        self.__dict__["scripted"], self.change = scripted, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["scripted"], name)

    def state_dict(self, **options: Any) -> Any:
        return self.scripted.state_dict(**options)

    def named_modules(self, *options: Any) -> Any:
        return self.scripted.named_modules(*options)

    def named_parameters(self, *options: Any) -> Any:
        return self.scripted.named_parameters(*options)

    def forward(self, *arguments: Any) -> Any:
        return self.change(self.scripted(*arguments))


def test_the_oracle_agrees_where_nothing_is_planted() -> None:
    outcome = check(MODULE)
    assert (outcome.verdict, outcome.frozen) == ("agrees", "frozen"), outcome


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (shifted, "values"),
        (widened, "dtype"),
        (copied, "memory shared"),
        (detached, "memory shared"),
        (reordered, "dtype"),
        (state_left, "state of the thread"),
        (raising, "raises scripted only"),
    ],
)
def test_the_oracle_notices_a_difference(
    change: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = jit_amp.script
    monkeypatch.setattr(jit_amp, "script", lambda made: Planted(script(made), change))
    outcome = check(MODULE)
    assert (outcome.verdict, outcome.kind) == ("differs", kind), outcome


@pytest.mark.parametrize(
    ("statement", "kind"),
    [("self.seen.mul_(2.0)", "attributes' values"), ("y.mul_(2.0)", "values")],
)
def test_the_oracle_notices_what_a_call_leaves_behind(
    statement: str, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = jit_amp.script

    def other(made: Any) -> Any:
        source = PRODUCTS.replace("        return", f"        {statement}\n        return")
        return script(load(source, tmp_path).Program().eval())

    monkeypatch.setattr(jit_amp, "script", other)
    outcome = check(MODULE)
    assert (outcome.verdict, outcome.kind) == ("differs", kind), outcome


def test_the_oracle_notices_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    script = jit_amp.script

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Tensor) -> Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(context: Any, gradient: Tensor) -> Tensor:
            return gradient * 2

    def change(result: Any) -> Any:
        scaled: Any = Scaled.apply
        return tuple(scaled(t) if t.requires_grad else t for t in result)

    monkeypatch.setattr(jit_amp, "script", lambda made: Planted(script(made), change))
    assert check(MODULE).kind == "gradients"


def test_the_oracle_notices_a_frozen_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def plainly(made: Any, **options: Any) -> Any:
        return torch.jit.freeze(torch.jit.script(made))

    monkeypatch.setattr(jit_amp, "freeze", plainly)
    outcome = check(replace(MODULE, source=PRODUCTS.replace("x @ y", "torch.prod(x.bfloat16())")))
    assert outcome.verdict != "agrees", outcome


def test_pytorchs_own_scopes_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_amp, "script", torch.jit.script)
    assert sum(check(generate(seed)).verdict == "differs" for seed in range(40)) > 3


def test_an_error_that_torchscript_drops_is_not_a_difference() -> None:
    source = """
import torch
from torch import Tensor


def program(x: Tensor) -> Tensor:
    unused = x.view(3)
    return x * 2.0


def inputs():
    return (torch.randn(4, 4),)
"""
    assert check(Program(0, source, ("none",))).verdict == "raises"
    assert "assert unused.numel() >= 0" in kept_alive(source, 7)


def test_scopes_can_be_taken_out() -> None:
    source = """
@torch.autocast("cpu")
def program(x):
    made = torch.autocast("cpu")
    with made, torch.no_grad():
        y = x @ x
    with torch.autocast("cpu") as named:
        z = x @ x
    named.__enter__()
    return y, z
"""
    expected = """
def program(x):
    pass
    with torch.no_grad():
        y = x @ x
    z = x @ x
    pass
    return (y, z)
"""
    assert without_scopes(source) == ast.unparse(ast.parse(expected)) + "\n"


def test_a_difference_is_made_small_and_written_as_a_test(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jit_amp, "script", torch.jit.script)
    program = next(p for p in map(generate, range(50)) if check(p).verdict == "differs")
    kind = check(program).kind
    small = reduced(program, same_kind(kind), seconds=10)
    assert len(small.source) < len(program.source) and check(small).kind == kind
    path = write_reproducer(tmp_path, small, kind, "planted")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        env={**environment(), "PYTHONWARNINGS": "ignore"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "1 passed" in done.stdout, done.stdout  # without what is planted
