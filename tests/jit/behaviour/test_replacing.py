"""What jit_amp puts in place of PyTorch's for a while: gone afterwards, whatever came between."""

import ast
import contextlib
import functools
import inspect
import linecache
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp._base import replacing
from jit_amp._precision import in_float32
from jit_amp._script import compilation

from ..support import assert_same

PACKAGE = str(Path(jit_amp.__file__).parent) + os.sep
BF16 = torch.bfloat16


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


X = torch.rand(2, 4)


def held_by_pytorch() -> dict[tuple[str, str], Any]:
    """The functions and objects in PyTorch's modules, `warnings` and `ast`, and of some classes."""
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] == "torch"]
    owners = [
        (m.__name__, vars(m)) for m in [*modules, warnings, ast] if isinstance(m, types.ModuleType)
    ]
    classes = (torch.autocast, torch.jit.ScriptFunction, nn.Module)
    owners += [(each.__qualname__, dict(vars(each))) for each in classes]
    return {
        (owner, name): value
        for owner, members in owners
        for name, value in list(members.items())
        if callable(value) or name == "concrete_type_store"
    }


def state() -> list[Any]:
    devices = ("cpu", "cuda")
    return [
        *(torch.is_autocast_enabled(device) for device in devices),
        *(torch.get_autocast_dtype(device) for device in devices),
        torch.is_autocast_cache_enabled(),
        torch.is_grad_enabled(),
        torch._C._is_tracing(),
        compilation.is_compiling(),
        in_float32.is_off(),
    ]


def scripts() -> Any:
    return jit_amp.script(Net())


def traces() -> Any:
    return jit_amp.trace(Net(), (X,))


def explains() -> Any:
    return jit_amp.explain(Net(), (X,))


def applies() -> Any:
    with precision().apply(Net()) as model:
        return model(X)


@functools.cache
def precision() -> jit_amp.Precision:
    return jit_amp.tune(Net(), (X,), dtype=BF16, tolerance=1e-9)


def installs() -> Any:
    """Who is interrupted between ``install()`` and its block has installed it for good."""
    try:
        with jit_amp.install():
            return torch.jit.script(Net())
    finally:
        jit_amp.uninstall()


class Interrupted(BaseException):
    """As Ctrl-C raises it: between any two lines."""


@contextlib.contextmanager
def interrupt(at: int | None) -> Iterator[list[tuple[str, int]]]:
    """Raises at the nth time that a line of jit_amp's is reached; gives the lines that were."""
    lines: list[tuple[str, int]] = []

    def trace(frame: types.FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        # That of a `with` is reached again before its exits are called; Ctrl-C does not come there.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        is_with = line.lstrip().startswith("with ")
        if event == "line" and not is_with and not is_entering(frame):
            lines.append((frame.f_code.co_filename, frame.f_lineno))
            if len(lines) - 1 == at:
                sys.settrace(None)
                raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def is_entering(frame: types.FrameType | None) -> bool:
    """Whether torch.autocast is being entered or left, which an interrupt breaks without us too."""
    while frame is not None:
        if frame.f_code in (torch.autocast.__enter__.__code__, torch.autocast.__exit__.__code__):
            return True
        frame = frame.f_back
    return False


@pytest.fixture
def most(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--interrupts"))


def first_times(lines: list[tuple[str, int]]) -> list[int]:
    return [i for i, line in enumerate(lines) if line not in lines[:i]]


@pytest.mark.parametrize("program", [scripts, traces, explains, applies, installs])
def test_an_interrupt_leaves_nothing(program: Callable[[], Any], most: int) -> None:
    """At lines of the modules that replace and restore, and at some of the others'."""
    program()
    expected, own = state(), held_by_pytorch()
    with interrupt(None) as lines:
        program()
    restoring = {"replacing", "trace", "compiling", "hooks", "_install", "module_methods"}
    restoring |= {"in_float32", "watch"}
    at = [
        i
        for number, i in enumerate(first_times(lines))
        if Path(lines[i][0]).stem in restoring or number % 10 == 0
    ]
    assert len(at) > 10
    if most:
        at = at[:: -(-len(at) // most)]
    for i in at:
        with contextlib.suppress(Interrupted), interrupt(i):
            program()
        where = f"interrupted at {lines[i]}"
        now = held_by_pytorch()
        assert [name for name in own if now.get(name) is not own[name]] == [], where
        assert state() == expected, where
    program()


def test_threads_hold_a_function_and_end_in_any_order() -> None:
    owner = types.SimpleNamespace(function=lambda: ["own"])
    concerned = threading.local()

    def hook(name: str) -> Any:
        return replacing.functions(
            replacing.Hook(
                owner,
                "function",
                lambda _, original: [name, *original()],
                lambda: getattr(concerned, name, None),
            )
        )

    own = owner.function
    first, second = hook("first"), hook("second")
    concerned.first = concerned.second = True
    seen = []
    with first:
        seen.append(owner.function())
        second.__enter__()
        thread = threading.Thread(target=lambda: seen.append(owner.function()))
        thread.start()
        thread.join()
        seen.append(owner.function())
    seen.append(owner.function())
    kept = owner.function
    second.__exit__()
    assert seen[1] == ["own"]
    assert all(set(each) >= {"own"} for each in seen) and len(seen[2]) == 3
    assert owner.function is own
    assert kept() == ["own"], "who keeps what stood there has PyTorch's function"


def test_what_somebody_else_puts_there_stays() -> None:
    owner = types.ModuleType("owner")
    owner.function = own = lambda: 1  # type: ignore[attr-defined]
    replacement = replacing.functions(replacing.Hook(owner, "function", lambda *_: 2, lambda: 1))
    with replacement:
        ours = owner.function
        owner.function = theirs = lambda: ours() + 10  # type: ignore[attr-defined]
        assert theirs() == 12
    assert owner.function is theirs and theirs() == 11
    owner.function = ours  # type: ignore[attr-defined]  # what a mock had found there
    with replacement:
        assert owner.function() == 2
    assert owner.function is own


def test_plain_torch_script_finds_names_while_another_thread_compiles() -> None:
    """TorchScript looks a class's names up some frames above: what stands in between is counted."""
    inside, done = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def __prepare_scriptable__(self) -> Any:
            inside.set()
            done.wait(30)
            return Net()

    thread = threading.Thread(target=lambda: jit_amp.script(Waits()))
    thread.start()
    try:
        inside.wait(30)

        def doubled(x: int) -> int:
            return 2 * x

        class Scales:
            def __init__(self, x: int) -> None:
                self.x = doubled(x)

        assert inspect.isclass(torch.jit.script(Scales))
    finally:
        done.set()
        thread.join()


def test_copies_of_values_come_back() -> None:
    members: dict[str, Any] = {"kept": True}
    with replacing.values(members, kept=True, new=1):
        assert members == {"kept": True, "new": 1}
        with replacing.values(members, new=1):
            pass
        assert members == {"kept": True, "new": 1}
    assert members == {"kept": True}


def test_a_scripted_function_is_as_eager_after_all_that() -> None:
    net = Net()
    for _ in range(3):
        assert_same(jit_amp.script(net)(X), net(X), "script")
