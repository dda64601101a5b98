"""Another thread that uses jit_amp, while this one makes or calls something."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any

import torch
import torch.jit._recursive
from fuzz.oracle import Difference
from torch import Tensor, nn

import jit_amp

PAUSE = 0.005  # seconds that the other thread stays inside
PATIENCE = 60.0
SWITCH = 1e-4  # seconds after which Python goes on with another thread

# Where functions of PyTorch's may be replaced.
PLACES: tuple[Any, ...] = (
    torch, torch.jit, torch.jit._trace, torch.jit._script, torch.jit._recursive,
    torch.jit.frontend, torch.jit.ScriptFunction, torch._jit_internal, torch.amp.autocast_mode,
    torch.autocast, torch._C, nn.Module,
)  # fmt: skip


def functions() -> dict[tuple[int, str], Any]:
    """PyTorch's functions, by where they are."""
    return {
        (place, name): value
        for place, owner in enumerate(PLACES)
        for name, value in list(vars(owner).items())
        if callable(value)
    }


def put_back(before: dict[tuple[int, str], Any]) -> list[str]:
    """The names of those that are others now, which come back."""
    after, found = functions(), []
    for (place, name), value in before.items():
        if after.get((place, name), value) is not value:
            found.append(name)
            setattr(PLACES[place], name, value)
    return found


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.meets: Any = None

    @torch.jit.unused
    def meet(self) -> None:
        if self.meets is not None:
            self.meets()

    def forward(self, x: Tensor) -> Tensor:
        if not torch.jit.is_scripting():
            self.meet()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


@dataclass
class _Alone:
    """What the activities give when nothing else runs."""

    x: Tensor
    net: Net
    eager: Tensor
    rows: Any
    precision: Any
    applied: Tensor


@cache
def _alone() -> _Alone:
    state = torch.get_rng_state()
    try:
        net, x = Net().eval().requires_grad_(False), torch.rand(2, 4)
        eager, rows = net(x), _rows(jit_amp.explain(net, (x,)))
        precision = jit_amp.tune(net, (x,), dtype=torch.bfloat16, tolerance=1e-9)
        with precision.apply(net) as applied:
            return _Alone(x, net, eager, rows, precision, applied(x))
    finally:
        torch.set_rng_state(state)


def _rows(report: Any) -> Any:
    return [(row.operator, row.results, row.line) for row in report.rows]


def _as_alone(what: str, actual: Tensor, expected: Tensor) -> None:
    if actual.dtype != expected.dtype or not torch.equal(actual, expected):
        raise Difference("the other thread", f"{what}: {actual.dtype}, alone {expected.dtype}")


Meets = Callable[[], None]


def _net(meets: Meets) -> Net:
    net = Net.__new__(Net)
    nn.Module.__init__(net)
    net.linear, net.meets = _alone().net.linear, meets
    return net.eval()


def scripts(meets: Meets) -> None:
    alone = _alone()
    meets()
    _as_alone("script", jit_amp.script(alone.net)(alone.x), alone.eager)


def traces(meets: Meets) -> None:
    alone = _alone()
    _as_alone("trace", jit_amp.trace(_net(meets), (alone.x,))(alone.x), alone.eager)


def explains(meets: Meets) -> None:
    alone = _alone()
    rows = _rows(jit_amp.explain(_net(meets), (alone.x,)))
    if rows != alone.rows:
        raise Difference("the other thread", f"explain: {rows}, alone {alone.rows}")


def applies(meets: Meets) -> None:
    alone = _alone()
    with alone.precision.apply(_net(lambda: None)) as applied:
        for _ in range(3):
            meets()
            _as_alone("apply", applied(alone.x), alone.applied)


def installs(meets: Meets) -> None:
    alone = _alone()
    with jit_amp.install():
        meets()
        _as_alone("install", torch.jit.script(alone.net)(alone.x), alone.eager)


ACTIVITIES = (scripts, traces, explains, applies, installs)
_turn = itertools.count()


class Beside:
    """Inside, another thread does one thing after the other with jit_amp. Where it differs from
    what it gives alone, or PyTorch's functions are not its own afterwards, that is a Difference."""

    def __enter__(self) -> None:
        _alone()
        self.before = functions()
        self.interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH)
        self.is_in, self.leaves = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._work, args=(next(_turn),), daemon=True)
        self.thread.start()
        self.is_in.wait(PATIENCE)

    def _work(self, turn: int) -> None:
        def meets() -> None:
            self.is_in.set()
            time.sleep(PAUSE)

        try:
            while not self.leaves.is_set():
                ACTIVITIES[turn % len(ACTIVITIES)](meets)
                turn += 1
        except Exception as error:
            self.error = error
        finally:
            self.is_in.set()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leaves.set()
        self.thread.join(PATIENCE)
        sys.setswitchinterval(self.interval)
        if self.thread.is_alive():
            raise Difference("the other thread", "it hangs")
        with contextlib.suppress(RuntimeError):
            jit_amp.uninstall()
        replaced = put_back(self.before)
        if isinstance(self.error, Difference):
            raise self.error
        if self.error is not None:
            said = f"{type(self.error).__name__}: {self.error}"
            raise Difference("the other thread", said)
        if replaced:
            raise Difference("PyTorch's functions stay replaced", ", ".join(replaced))
