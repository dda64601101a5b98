"""Threads that use everything at once, for as long as one likes.

    python -m fuzz.threads --seconds 7200 --threads 8     (from tests/)

Each thread takes models and doors at random, and compares what comes out, dtype and value, with
what the same model in Python gave before there were threads. At the end PyTorch has all its
functions. Prints what was done, every minute and at the end; the exit status is 1 where something
is wrong.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import faulthandler
import os
import random
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

torch.jit.script(nn.Identity())  # what PyTorch imports late
with contextlib.suppress(ImportError):
    import torch._export.converter
    import torch._inductor.config


def pytorchs_functions() -> dict[tuple[str, str], Any]:
    """What PyTorch's modules, `warnings` and `ast` hold by name: functions and classes."""
    modules = {
        name: module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in ("torch", "warnings", "ast") and hasattr(module, "__dict__")
    }
    found = {
        (module, name): value
        for module in modules
        for name, value in list(vars(modules[module]).items())
        if callable(value) or name == "concrete_type_store"
    }
    for cls in (torch.autocast, torch.jit.ScriptFunction, nn.Module):
        found |= {(cls.__qualname__, name): value for name, value in vars(cls).items()}
    return found


BEFORE = pytorchs_functions()

import jit_amp  # noqa: E402

BF16 = torch.bfloat16


class Scoped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.norm(self.linear(x))
            with torch.autocast("cpu", enabled=False):
                z = y.float() @ x.t()
        return y.float().sum(1) + z.sum(0)


class Decorated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(nn.Linear(8, 8), Decorated())

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            y = x @ x.t()
        return self.parts(x) + y.sum()


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).softmax(-1)


def function(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.t()


X = torch.rand(3, 8)
MODELS: list[nn.Module] = [Scoped().eval(), Decorated().eval(), Nested().eval(), Bare().eval()]


def outcome(call: Callable[[], Any]) -> Any:
    with torch.no_grad():
        return call()


class Doors:
    """What a thread may do; each raises AssertionError where something is wrong."""

    def __init__(self) -> None:
        self.expected = [outcome(lambda net=net: net(X)) for net in MODELS]
        self.under_autocast = [self._inside(net) for net in MODELS]
        self.of_function = outcome(lambda: function(X))
        self.applied: list[tuple[nn.Module, jit_amp.Precision, Tensor]] = []
        for net in copy.deepcopy(MODELS[:2]):
            precision = jit_amp.tune(copy.deepcopy(net), (X,), dtype=BF16, tolerance=1e-9)
            with precision.apply(net) as model:
                self.applied.append((net, precision, outcome(lambda model=model: model(X))))
        self.rows = [len(jit_amp.explain(net, (X,)).rows) for net in MODELS]
        self.plain = outcome(lambda: torch.jit.script(copy.deepcopy(MODELS[3]))(X))

    @staticmethod
    def _inside(net: nn.Module) -> Tensor:
        with torch.autocast("cpu", dtype=BF16), torch.no_grad():
            result: Tensor = net(X)
        return result

    def _same(self, made: Any, expected: Tensor) -> None:
        for _ in range(3):
            got = outcome(lambda: made(X))
            assert got.dtype is expected.dtype, f"{got.dtype}, eager {expected.dtype}"
            assert torch.equal(got, expected), f"differs by {(got - expected).abs().max()}"

    def _any(self, chance: random.Random) -> tuple[int, nn.Module]:
        i = chance.randrange(len(MODELS))
        return i, copy.deepcopy(MODELS[i])

    def script(self, chance: random.Random) -> None:
        i, net = self._any(chance)
        self._same(jit_amp.script(net), self.expected[i])

    def script_function(self, chance: random.Random) -> None:
        self._same(jit_amp.script(function), self.of_function)

    def called_inside(self, chance: random.Random) -> None:
        i, net = self._any(chance)
        made = jit_amp.script(net)
        with torch.autocast("cpu", dtype=BF16):
            self._same(made, self.under_autocast[i])

    def trace(self, chance: random.Random) -> None:
        i, net = self._any(chance)
        self._same(jit_amp.trace(net, (X,)), self.expected[i])

    def traced_inside(self, chance: random.Random) -> None:
        # Not what is decorated: torch.autocast keeps the state around it in the one object that a
        # decorator has, and threads whose states differ leave one another's (in eager too).
        i = chance.choice([0, 3])
        net = copy.deepcopy(MODELS[i])
        with torch.autocast("cpu", dtype=BF16):
            made = jit_amp.trace(net, (X,), check_trace=False)
        self._same(made, self.under_autocast[i])

    def freeze(self, chance: random.Random) -> None:
        i, net = self._any(chance)
        examples = {"example_inputs": (X,)} if chance.random() < 0.5 else {}
        made = jit_amp.freeze(net, optimize_numerics=False, **examples)
        self._same(made, self.expected[i])

    def export(self, chance: random.Random) -> None:
        i, net = self._any(chance)
        self._same(jit_amp.export(net, (X,)).module(), self.expected[i])

    def explain(self, chance: random.Random) -> None:
        i, net = self._any(chance)
        rows = len(jit_amp.explain(net, (X,)).rows)
        assert rows == self.rows[i], f"{rows} rows, alone {self.rows[i]}"

    def apply(self, chance: random.Random) -> None:
        net, precision, expected = chance.choice(self.applied)
        with precision.apply(net) as model:
            self._same(model, expected)

    def eager(self, chance: random.Random) -> None:
        i = chance.randrange(len(MODELS))
        self._same(MODELS[i], self.expected[i])

    def install(self, chance: random.Random) -> None:
        i, net = self._any(chance)
        with jit_amp.install():
            self._same(torch.jit.script(net), self.expected[i])
            if chance.random() < 0.3:
                self._same(torch.jit.trace(copy.deepcopy(net), (X,)), self.expected[i])

    def plain_script(self, chance: random.Random) -> None:
        self._same(torch.jit.script(copy.deepcopy(MODELS[3])), self.plain)

    def ignore(self, chance: random.Random) -> None:
        made = jit_amp.script(copy.deepcopy(MODELS[1]))
        jit_amp.ignore_amp(made)
        jit_amp.ignore_amp(made, False)
        self._same(made, self.expected[1])


def run(seconds: float, threads: int, seed: int, minutes: float = 1.0) -> int:
    """Returns how many calls were wrong, or left something behind."""
    doors = Doors()
    names = [name for name in vars(Doors) if not name.startswith("_")]
    done: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    late, lock = time.monotonic() + seconds, threading.Lock()

    def work(number: int) -> None:
        chance = random.Random(seed * 1000 + number)
        while time.monotonic() < late and len(wrong) < 20:
            name = chance.choice(names)
            try:
                getattr(doors, name)(chance)
            except (
                SystemError
            ) as error:  # CPython's, in plain TorchScript: see _base/syntax_trees.py
                if name != "plain_script" or "recursion depth mismatch" not in str(error):
                    with lock:
                        wrong.append(f"{name}: {error}")
                        print(wrong[-1], traceback.format_exc(), flush=True)
            except BaseException:
                with lock:
                    wrong.append(f"{name}:\n{traceback.format_exc()}")
                    print(wrong[-1], flush=True)
            with lock:
                done[name] += 1

    workers = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(threads)]
    for worker in workers:
        worker.start()
    told = time.monotonic()
    while any(worker.is_alive() for worker in workers):
        time.sleep(0.05)
        if time.monotonic() - told > 60 * minutes:
            told = time.monotonic()
            left = max(0, late - told)
            print(f"{sum(done.values())} calls, {len(wrong)} wrong, {left:.0f} s left", flush=True)
        if time.monotonic() > late + 300:
            faulthandler.dump_traceback(all_threads=True)
            wrong.append("a thread did not come to its end")
            break
    now = pytorchs_functions()
    for key, value in BEFORE.items():
        if now.get(key) is not value and not key[1].startswith("__"):
            wrong.append(f"afterwards {'.'.join(key)} is {now.get(key)}")
    print(*wrong, sep="\n")
    print(", ".join(f"{name} {count}" for name, count in sorted(done.items())))
    print(f"{sum(done.values())} calls in {threads} threads: {len(wrong)} wrong")
    return len(wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    status = bool(run(given.seconds, given.threads, given.seed))
    sys.stdout.flush()
    os._exit(status)  # a thread that waits for ever keeps nobody
