"""Threads: lowering, first runs and calls under different states at the same time."""

import contextlib
import itertools
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import AMBIENTS, assert_same, imported

THREADS = 8
CALLS = 10_000
COUNT = itertools.count()
# Those that eager does not warn of: warnings are filtered per process, not per thread.
STATES = {
    "none": contextlib.nullcontext,
    "bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "off": lambda: torch.autocast("cpu", enabled=False),
    "cuda": AMBIENTS["cuda_switched_on"],
    "both": AMBIENTS["both_switched_on"],
}
NAMES = [*STATES, "bfloat16", "float16"]


def product(x: Tensor, y: Tensor):
    return x @ y, torch.is_autocast_enabled("cpu")


class Network(nn.Module):
    """A scope, none, one that is off, a callee, Python, a fork: a state that leaked would show.

    Its weights need no gradients. Casts of those that do are in eager's cache, which all threads
    share: with two dtypes at a time eager fails too (docs/training.md).
    """

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.on = True
        self.requires_grad_(False)

    @torch.jit.ignore
    def python(self, x: Tensor) -> Tensor:
        return x @ x

    def forward(self, x: Tensor):
        outside = self.linear(x)
        forked = torch.jit.fork(product, x, x)
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.on):
            half, python = self.other(x), self.python(x)
        with torch.autocast("cpu", enabled=False):
            plain, asked = product(x, x)
        return outside, half, python, plain, asked, torch.jit.wait(forked)


def in_threads(work: Callable[[int], Any]) -> None:
    """Runs `work(0..7)` on as many threads, started at once; what one raises is raised here."""
    barrier = threading.Barrier(THREADS)
    raised: list[BaseException] = []

    def run(index: int) -> None:
        try:
            barrier.wait()
            work(index)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def test_calls_under_changing_states() -> None:
    model, x = Network(), torch.randn(4, 4)
    expected = {}
    for name, state in STATES.items():
        with state():
            expected[name] = model(x)
    scripted = jit_amp.script(model)

    def calls(index: int) -> None:
        torch.set_num_threads(1)
        for count in range(CALLS // THREADS):
            name = NAMES[(index + count * (1 + index)) % len(NAMES)]
            with STATES[name]():
                result = scripted(x)
            assert_same(result, expected[name], f"thread {index}, call {count}, ambient {name}")

    in_threads(calls)


def test_first_runs_race() -> None:
    model, x = Network(), torch.randn(4, 4)
    expected = []
    for name in NAMES:
        with STATES[name]():
            expected.append(model(x))
    for _ in range(20):
        scripted = jit_amp.script(model)

        def first(index: int, scripted: Any = scripted) -> None:
            with STATES[NAMES[index]]():
                assert_same(scripted(x), expected[index], NAMES[index])

        in_threads(first)


def test_lowering_races_with_lowering_and_with_runs() -> None:
    model, x = Network(), torch.randn(4, 4)
    expected = model(x)
    shared = jit_amp.script(model)

    def lower_and_run(index: int) -> None:
        for _ in range(10):
            own = jit_amp.script(shared if index % 2 else model)
            assert_same(own(x), expected, "own")
            assert_same(shared(x), expected, "shared")

    in_threads(lower_and_run)


def helper(x: Tensor):
    return x @ x


scripted_helper = jit_amp.script(helper)


def calls_the_helper(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return scripted_helper(x)


def test_a_function_is_switched_while_others_call_it() -> None:
    caller, x = jit_amp.script(calls_the_helper), torch.randn(4, 4)
    allowed = {torch.bfloat16: calls_the_helper, torch.float32: helper}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = helper(x)
    seen = set()

    def switch_or_call(index: int) -> None:
        for count in range(50):
            if index == 0:
                jit_amp.ignore_amp(scripted_helper, count % 2 == 0)
            result = caller(x)
            seen.add(result.dtype)
            assert_same(result, lowered if result.dtype is torch.bfloat16 else x @ x, str(count))

    try:
        in_threads(switch_or_call)
        jit_amp.ignore_amp(scripted_helper)
        assert caller(x).dtype is torch.float32
    finally:
        jit_amp.ignore_amp(scripted_helper, False)
    assert caller(x).dtype is torch.bfloat16
    assert seen <= set(allowed)


class Decorated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Mixed(nn.Module):
    """A decorated part, a scope, and what has none."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.linear = Decorated(), nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            half = self.linear(x)
        return self.part(x), half, self.linear(x)


class NoScope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        return self.linear(x)


def test_threads_script_and_call_the_same_classes(request: pytest.FixtureRequest) -> None:
    """While some script anew, eager modules and scripted ones keep their dtypes and values."""
    end = time.monotonic() + request.config.getoption("--seconds")
    classes = [Mixed, Decorated, NoScope]
    x = torch.randn(4, 4)
    eager = [cls() for cls in classes]
    scripted = [jit_amp.script(module) for module in eager]
    expected = [module(x) for module in eager]
    calls = [0] * THREADS

    def work(index: int) -> None:
        while time.monotonic() < end or calls[index] < 3 * len(classes):
            for module, ours, results in zip(eager, scripted, expected, strict=True):
                calls[index] += 1
                if index % 4 == 0:
                    assert_same(jit_amp.script(module)(x), results, "scripted anew")
                elif index % 4 == 1:
                    assert_same(jit_amp.trace(module, (x,))(x), results, "traced anew")
                elif index % 4 == 2:
                    assert_same(module(x), results, "eager")
                else:
                    assert_same(ours(x), results, "scripted before")

    in_threads(work)


@torch.jit.script_if_tracing
def scripted_if_tracing(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.mm(x, x)


def calls_scripted_if_tracing(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        half = torch.mm(x, x)
    return scripted_if_tracing(x), half, torch.mm(x, x)


def anew() -> Any:
    """A function with a scope that nothing has compiled."""
    path = tempfile.mkdtemp() + "/anew.py"
    source = f"""
        import torch
        def function(x: torch.Tensor):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return torch.mm(x, x) + {next(COUNT)}
    """
    return imported(textwrap.dedent(source), Path(path)).function


def test_no_class_is_changed_while_a_thread_traces() -> None:
    """Others compile torch.autocast from its methods, find what functions are, and enter scopes."""
    x = torch.randn(4, 4)
    members = dict(vars(torch.autocast))
    inside, seen = threading.Event(), threading.Event()

    def stops(x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.mm(x, x)
            inside.set()
            assert seen.wait(60)
        return y

    def looks(index: int) -> None:
        if index == 0:
            traced = jit_amp.trace(stops, (x,), check_trace=False)
            assert_same(traced(x), stops(x), "traced")
        elif index == 1:
            assert inside.wait(60)
            try:
                assert dict(vars(torch.autocast)) == members
                for script in (torch.jit.script, jit_amp.script):
                    function = anew()
                    assert_same(script(function)(x), function(x), str(script))
                assert torch.amp.is_autocast_available("cpu")
            finally:
                seen.set()

    before = {name: getattr(torch, name) for name in dir(torch)}
    in_threads(looks)
    assert before == {name: getattr(torch, name) for name in before}


def test_threads_trace_what_scripts_if_it_is_traced() -> None:
    x = torch.randn(4, 4)
    expected = calls_scripted_if_tracing(x)

    def work(index: int) -> None:
        for _ in range(2):
            traced = jit_amp.trace(calls_scripted_if_tracing, (torch.randn(3, 3),))
            for _ in range(3):
                assert_same(traced(x), expected, f"thread {index}")

    in_threads(work)


class Ambient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        return torch.relu(self.linear(x)) + x.sum()


def test_what_runs_in_one_thread_is_served_in_another(request: pytest.FixtureRequest) -> None:
    """No executor that PyTorch has made is exchanged: the plain one gives what it gave."""
    end = time.monotonic() + request.config.getoption("--seconds") / 2
    rounds = 0
    while rounds < 3 or time.monotonic() < end:
        rounds += 1

        class Fresh(Ambient):  # of types that nobody has
            pass

        module, x = Fresh().eval(), torch.randn(4, 4)
        plain = torch.jit.script(module)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected = module(x)
            if rounds % 2:
                plain(x)

        def run_or_serve(
            index: int,
            module: Any = module,
            plain: Any = plain,
            expected: Any = expected,
            x: Any = x,
        ) -> None:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                for _ in range(5):
                    if index % 2:
                        torch.testing.assert_close(
                            plain(x), expected, check_dtype=False, atol=0.1, rtol=0.1
                        )
                    else:
                        assert_same(jit_amp.script(plain)(x), expected, "served")
                        assert_same(jit_amp.script(module)(x), expected, "scripted")

        in_threads(run_or_serve)
