"""Forks while other threads work; run by test_forks.py.

Prints how many children came to their end, and exits 1 if one did not, or was wrong.

PyTorch's own locks are not free in a child either: that of the random generator, of each parameter
that is called with gradients, and of each scripted function that is called. So threads draw no
random numbers, and call copies and functions that no child calls.
"""

from __future__ import annotations

import copy
import faulthandler
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import _recursive, _script, _trace, frontend

WATCHED = (torch, torch.amp.autocast_mode, torch.jit, _recursive, _script, _trace, frontend)
FORKS = 6
PATIENCE = 60  # seconds, of a child


def functions_of_pytorch() -> dict[tuple[str, str], int]:
    """By module and name."""
    return {
        (module.__name__, name): id(value)
        for module in WATCHED
        for name, value in vars(module).items()
        if callable(value) or name == "concrete_type_store"
    }


torch.jit.script(nn.Identity())  # what PyTorch imports late
BEFORE = functions_of_pytorch()
METHODS = dict(vars(torch.autocast))

import jit_amp  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Slow(Net):
    def forward(self, x: Tensor):
        for _ in range(20):
            time.sleep(0.002)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.linear(x)
        return y


def helper(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        return x @ x


class Called(Net):
    """What threads call, and no child."""


NET, SLOW, CALLED, X = Net().eval(), Slow(), Called(), torch.rand(2, 8)
SQUARE = torch.rand(3, 3)
SCRIPTED = jit_amp.script(NET)
HELPER = jit_amp.script(helper)


def same(actual: Tensor, expected: Tensor) -> None:
    assert actual.dtype is expected.dtype and torch.equal(actual, expected)


def all_of_it() -> None:
    """What a child may do."""
    assert functions_of_pytorch() == BEFORE
    assert dict(vars(torch.autocast)) == METHODS
    expected = NET(X)
    same(jit_amp.script(NET)(X), expected)
    same(jit_amp.trace(NET, (X,))(X), expected)
    with torch.no_grad():
        same(jit_amp.freeze(NET)(X), expected)
    same(SCRIPTED(X), expected)
    with torch.autocast("cpu", dtype=torch.float16):
        same(SCRIPTED(X), NET(X))
    jit_amp.ignore_amp(HELPER)
    jit_amp.ignore_amp(HELPER, False)
    assert functions_of_pytorch() == BEFORE


def scripts() -> None:
    jit_amp.script(copy.deepcopy(NET))


def traces() -> None:
    jit_amp.trace(copy.deepcopy(SLOW), (X,), check_trace=False)


def calls() -> None:
    """Without the GIL for most of the time; programs are made and freed."""
    for enabled in (False, True):
        with torch.autocast("cpu", enabled=enabled), torch.no_grad():
            jit_amp.script(copy.deepcopy(CALLED))(X)


def switches() -> None:
    name = f"aten::{threading.current_thread().name}"
    with jit_amp.policy.register(name, "cpu", "untouched"):
        jit_amp.ignore_amp(HELPER)
        HELPER(SQUARE)
        jit_amp.ignore_amp(HELPER, False)
        HELPER(SQUARE)


def freezes() -> None:
    jit_amp.freeze(copy.deepcopy(NET))


def child(work: Callable[[], None], forked: Callable[[], None]) -> bool:
    """Whether a forked child did the work. The parent does `forked` at once."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(PATIENCE)
        faulthandler.dump_traceback_later(PATIENCE - 10)  # where it waits
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    forked()
    late = time.monotonic() + PATIENCE - 20
    while time.monotonic() < late:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.001)
    if gdb := shutil.which("gdb"):  # which lock it waits for
        subprocess.run([gdb, "-p", str(pid), "-batch", "-ex", "bt 20"], stdout=sys.stderr)
    return os.waitpid(pid, 0)[1] == 0


def fail(args: Any) -> None:
    """What a thread raises ends the run."""
    sys.__excepthook__(args.exc_type, args.exc_value, args.exc_traceback)
    os._exit(1)


threading.excepthook = fail


def while_working(work: Callable[[], None]) -> int:
    """How many of the children that are forked while threads do `work` come to their end. The
    threads pause until a child has."""
    stop, going = False, threading.Event()

    def busy() -> None:
        while not stop:
            going.wait()
            work()

    threads = [threading.Thread(target=busy, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    done = 0
    for i in range(FORKS):
        going.set()
        time.sleep(0.001 * (5 + 7 * i % 10))
        done += child(all_of_it, going.clear)
    stop = True
    going.set()
    for thread in threads:
        thread.join()
    return done


class ForksWithin(Net):
    """Its compilation forks, as a hook of the user's may."""

    def __prepare_scriptable__(self) -> Any:
        self.child = os.fork()
        return self


def within_a_compilation() -> int:
    """Both processes go on with it."""
    done = 0
    for _ in range(FORKS):
        module = ForksWithin().eval()
        scripted = jit_amp.script(module)
        ours = Net().eval()
        ours.load_state_dict(module.state_dict())
        if module.child == 0:
            signal.alarm(PATIENCE)
            status = 1
            try:
                same(scripted(X), ours(X))
                thread = threading.Thread(target=all_of_it)
                thread.start()
                thread.join()
                status = 0
            finally:
                os._exit(status)
        done += os.waitpid(module.child, 0)[1] == 0
        same(scripted(X), ours(X))
    return done


class Data(torch.utils.data.Dataset[Tensor]):
    """Its transform is scripted; a worker scripts one more."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        with torch.no_grad():
            x = torch.full((2, 8), float(index))
            return SCRIPTED(x) + jit_amp.script(NET)(x)


def loads() -> int:
    """A DataLoader's workers while the parent scripts."""
    stop = False

    def busy() -> None:
        while not stop:
            scripts()

    thread = threading.Thread(target=busy, daemon=True)
    thread.start()
    loader = torch.utils.data.DataLoader(
        Data(), num_workers=2, multiprocessing_context="fork", timeout=PATIENCE
    )
    for index, [got] in enumerate(loader):
        with torch.no_grad():
            x = torch.full((2, 8), float(index))
            same(got, NET(x) + NET(x))
    context: Any = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        for _ in range(FORKS):
            pool.apply_async(all_of_it).get(PATIENCE)
    stop = True
    thread.join()
    return FORKS


WORK: dict[str, Callable[[], int]] = {
    "scripts": lambda: while_working(scripts),
    "traces": lambda: while_working(traces),
    "calls": lambda: while_working(calls),
    "switches": lambda: while_working(switches),
    "freezes": lambda: while_working(freezes),
    "within": within_a_compilation,
    "loads": loads,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    all_of_it()  # once here, which takes longest
    came = {}
    for name, work in WORK.items():
        came[name] = work()
        print(name, came[name], flush=True)
    sys.exit(any(done != FORKS for done in came.values()))
