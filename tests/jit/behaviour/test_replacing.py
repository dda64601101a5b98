"""What jit_amp puts in place of PyTorch's for a while: gone afterwards, whatever came between."""

import ast
import functools
import inspect
import sys
import threading
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp._base import replacing
from jit_amp._precision import in_float32
from jit_amp._script import compilation

from ..interrupts import Line, is_interrupted, lines_of
from ..support import assert_same
from ..untouched import CHANGES, changed, snapshot

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


class Trained(nn.Module):
    """All that a call could leave changed: a list, a buffer, random numbers, a mode, gradients,
    a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))
        self.log: list[int] = []
        self.dropout = nn.Dropout(0.5)
        self.register_forward_hook(lambda module, _, result: module.log.append(1))
        for parameter in self.parameters():
            parameter.grad = torch.ones_like(parameter)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.log.append(0)
        return self.dropout(self.second(self.first(x) * 1e3))


def measures(model: nn.Module) -> float:
    model.train(not model.training)
    loss = model(X).float().square().mean()
    loss.backward()
    return float(loss.detach())


@dataclass(frozen=True)
class Program:
    run: Callable[[], Any]
    given: Any = ()
    may_change: Callable[[str], bool] = lambda _: False


def scripts() -> Program:
    return Program(lambda: jit_amp.script(net)(X), net := Net())


def traces() -> Program:
    return Program(lambda: jit_amp.trace(net, (X,))(X), net := Net(), CHANGES["trace"])


def freezes() -> Program:
    return Program(lambda: jit_amp.freeze(net, (X,))(X), net := Net().eval())


def exports() -> Program:
    return Program(lambda: jit_amp.export(net, (X,)), net := Net().eval())


def explains() -> Program:
    return Program(
        lambda: jit_amp.explain(net, (X,), gradients=True, numerics=True), net := Trained()
    )


def tunes() -> Program:
    model = Trained()
    return Program(
        lambda: jit_amp.tune(model, (X,), dtype=BF16, metric=measures, tolerance=1.0),
        model,
        lambda path: path.endswith(", writes"),  # it is written to, and written to again
    )


def applies() -> Program:
    found = precision()

    def run() -> None:
        with found.apply(model) as applied:
            assert applied is model

    return Program(run, model := Trained())


@functools.cache
def precision() -> jit_amp.Precision:
    return jit_amp.tune(Trained().eval(), (X,), dtype=BF16, tolerance=1e-9)


def installs() -> Program:
    """Who is interrupted between ``install()`` and its block has installed it for good."""

    net = Net()

    def run() -> Any:
        try:
            with jit_amp.install():
                return torch.jit.script(net)
        finally:
            jit_amp.uninstall()

    return Program(run, net)


PROGRAMS = [scripts, traces, freezes, exports, explains, tunes, applies, installs]
RESTORING = {"replacing", "trace", "compiling", "hooks", "_install", "module_methods"}
RESTORING |= {"in_float32", "watch", "process_state", "model_state", "undoing", "measuring"}


@pytest.fixture
def most(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--interrupts"))


def left_behind(make: Callable[[], Program], line: Line) -> list[str]:
    """What is otherwise after an interrupt: PyTorch's functions, autocast, the model, its gradients
    and hooks, and the random state."""
    program = make()
    expected, own, before = state(), held_by_pytorch(), snapshot(program.given)
    is_interrupted(program.run, line)
    now = held_by_pytorch()
    left = [".".join(name) for name in own if now.get(name) is not own[name]]
    left += changed(before, snapshot(program.given), program.may_change)
    return left + ([] if state() == expected else ["the state of autocast and of jit_amp"])


@pytest.mark.parametrize("make", PROGRAMS)
def test_an_interrupt_leaves_nothing(make: Callable[[], Program], most: int) -> None:
    """At lines of the modules that replace and restore, and at some of the others'; all with
    ``--interrupts 0``."""
    make().run()
    make().run()
    lines = lines_of(make().run)
    assert len(lines) > 10
    if most:
        lines = [
            line for i, line in enumerate(lines) if Path(line[0]).stem in RESTORING or i % 10 == 0
        ]
        lines = lines[:: -(-len(lines) // most)]
    left = {line: what for line in lines if (what := left_behind(make, line))}
    print(f"{make.__name__}: {len(lines)} lines, {len(left)} left something behind")
    assert not left
    make().run()


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
