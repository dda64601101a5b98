"""The doors of jit_amp: how a program is made, what it is carried through, and how it is called."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.checkpoint
from jit.support import AMBIENTS
from torch.jit.mobile import _load_for_lite_interpreter

import jit_amp

from .beside import Beside
from .compose import Composed
from .features import FEATURES

Run = Callable[..., Any]

# What is kept of a module that is frozen: methods, and an attribute.
_METHODS = [re.findall(r"m\.(\w+)\(", feature.by_name) for feature in FEATURES.values()]
KEPT = ("_packed", *(name for names in _METHODS for name in names))


@dataclass(frozen=True)
class Door:
    """A way through jit_amp.

    Attributes:
        make: a key of MAKES.
        carry: a key of CARRIES.
        call: a key of CALLS.
    """

    make: str = "script"
    carry: str = "as it is"
    call: str = "plain"

    def __str__(self) -> str:
        return f"{self.make}, {self.carry}, {self.call}"

    @property
    def values(self) -> tuple[str, str, str]:
        return self.make, self.carry, self.call

    @property
    def how(self) -> Make:
        return MAKES[self.make]

    @property
    def is_possible(self) -> bool:
        """Whether there is such a door at all."""
        frozen = self.how.frozen
        if self.how.in_python:  # the module is not saved, and its parts cannot be copied
            return self.carry in ("as it is", "inside another") and self.call != "vmap"
        if self.call == "beside" and self.carry in ("elsewhere", "lite"):
            return False
        if self.carry in ("elsewhere", "lite"):
            if not frozen or self.make == "optimize_for_inference":
                return False
            if self.carry == "elsewhere":
                return self.call in ("plain", "no_grad")
            return self.call == "no_grad" and "server" not in self.make
        if self.call.startswith("ambient"):
            return not frozen  # docs: an artefact is called outside any autocast
        if self.make == "optimize_for_inference":
            return self.carry != "saved" and self.call in (
                "no_grad", "inference_mode", "thread", "beside"
            )  # fmt: skip
        # Under vmap few of autocast's casts are made. An artefact has all of them, and a trace the
        # dtypes of its run, which `to(device)` repeats.
        return not ((frozen or self.how.traces) and self.call == "vmap")

    def takes(self, program: Composed) -> bool:
        """Whether the program may come to it."""
        if self.how.traces and not program.traced:
            return False
        if not self.how.traces and not program.scripted:
            return False
        return not (self.how.frozen and program.has("training mode"))


@dataclass(frozen=True)
class Make:
    """How jit_amp makes something of a module.

    Attributes:
        frozen: it makes an artefact.
        exact: what it makes computes bit for bit what eager does.
        traces: it runs the module to make it.
        examples: it is given the inputs of the first call.
        wrapped: an autocast is around each call of eager's; making it, jit_amp is told so.
        in_python: the module stays as it is. Its parts were made where jit_amp is installed.
    """

    function: Callable[[Api, Any, tuple[Any, ...]], Any]
    frozen: bool = False
    exact: bool = True
    traces: bool = False
    examples: bool = False
    wrapped: bool = False
    in_python: bool = False


class Api:
    """jit_amp's functions."""

    def script(self, module: Any, **options: Any) -> Any:
        return jit_amp.script(module, **options)

    def trace(self, module: Any, given: tuple[Any, ...]) -> Any:
        return jit_amp.trace(module, given, strict=False)

    def freeze(self, module: Any, given: Any = None, **options: Any) -> Any:
        kept = [name for name in KEPT if hasattr(module, name)]
        return jit_amp.freeze(module, kept, example_inputs=given, **options)

    def for_inference(self, module: Any, given: Any) -> Any:
        return jit_amp.optimize_for_inference(module, example_inputs=given)

    def explain(self, module: Any, given: tuple[Any, ...]) -> None:
        jit_amp.explain(module, given)

    def facts(self, module: Any, given: tuple[Any, ...]) -> None:
        jit_amp.facts(module, given)

    def installed(self, module: Any) -> Any:
        with jit_amp.install():
            return torch.jit.script(module)


class PyTorch(Api):
    """What PyTorch makes of a program without scopes."""

    def script(self, module: Any, **options: Any) -> Any:
        return torch.jit.script(module)

    def trace(self, module: Any, given: tuple[Any, ...]) -> Any:
        trace: Any = torch.jit.trace
        return trace(module, given, strict=False)

    def freeze(self, module: Any, given: Any = None, **options: Any) -> Any:
        if not isinstance(module, torch.jit.ScriptModule):
            module = torch.jit.script(module)
        return torch.jit.freeze(module, optimize_numerics=options.get("optimize_numerics", True))

    def for_inference(self, module: Any, given: Any) -> Any:
        return torch.jit.optimize_for_inference(torch.jit.script(module))

    def explain(self, module: Any, given: tuple[Any, ...]) -> None:
        pass

    def facts(self, module: Any, given: tuple[Any, ...]) -> None:
        pass

    def installed(self, module: Any) -> Any:
        return torch.jit.script(module)


def _wrapped(api: Api, module: Any, given: tuple[Any, ...]) -> Any:
    return api.script(module, autocast=torch.autocast("cpu", dtype=torch.bfloat16))


def _traced_in_a_scope(api: Api, module: Any, given: tuple[Any, ...]) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return api.trace(module, given)


class NotCompiled(RuntimeError):
    """PyTorch does not compile a program, so that there is nothing to go on with."""


def plainly_scripted(module: Any) -> Any:
    """What PyTorch makes of a module by itself.

    Raises:
        NotCompiled: nothing.
    """
    try:
        return torch.jit.script(module)
    except Exception as error:
        raise NotCompiled(str(error)) from None


def _after_pytorch(api: Api, module: Any, given: tuple[Any, ...]) -> Any:
    with contextlib.suppress(NotCompiled):
        plainly_scripted(module)
    return api.script(module)


def _frozen_after_pytorch(api: Api, module: Any, given: tuple[Any, ...]) -> Any:
    with contextlib.suppress(NotCompiled):
        plainly_scripted(module)
    return api.freeze(module, given, optimize_numerics=False)


def _explained(api: Api, module: Any, given: tuple[Any, ...]) -> Any:
    api.explain(module, given)
    return api.script(module)


def _facts(api: Api, module: Any, given: tuple[Any, ...]) -> Any:
    api.facts(module, given)
    return api.freeze(module, given, optimize_numerics=False)


MAKES = {
    "script": Make(lambda api, m, given: api.script(m)),
    "script with autocast=": Make(_wrapped, wrapped=True),
    "install": Make(lambda api, m, given: api.installed(m)),
    "explain": Make(_explained),
    "installed parts": Make(lambda api, m, given: m, in_python=True),
    "script, after PyTorch": Make(_after_pytorch),
    "script of PyTorch's": Make(lambda api, m, given: api.script(plainly_scripted(m))),
    "trace of PyTorch's, in a scope": Make(
        lambda api, m, given: _traced_in_a_scope(api, plainly_scripted(m), given), wrapped=True
    ),
    "trace": Make(lambda api, m, given: api.trace(m, given), traces=True),
    "trace in a scope": Make(_traced_in_a_scope, traces=True, wrapped=True),
    "freeze": Make(lambda api, m, given: api.freeze(m), frozen=True, exact=False),
    "freeze, examples": Make(
        lambda api, m, given: api.freeze(m, given), frozen=True, exact=False, examples=True
    ),
    "exact": Make(lambda api, m, given: api.freeze(m, optimize_numerics=False), frozen=True),
    "exact, examples": Make(
        lambda api, m, given: api.freeze(m, given, optimize_numerics=False),
        frozen=True,
        examples=True,
    ),
    "exact, after PyTorch": Make(_frozen_after_pytorch, frozen=True, examples=True),
    "facts, exact": Make(_facts, frozen=True, examples=True),
    "server": Make(lambda api, m, given: api.freeze(m, target="server"), frozen=True, exact=False),
    "server, examples": Make(
        lambda api, m, given: api.freeze(m, given, target="server"),
        frozen=True,
        exact=False,
        examples=True,
    ),
    "trace, exact": Make(
        lambda api, m, given: api.freeze(api.trace(m, given), given, optimize_numerics=False),
        frozen=True,
        traces=True,
        examples=True,
    ),
    "scripted, frozen": Make(
        lambda api, m, given: api.freeze(api.script(m), given, optimize_numerics=False),
        frozen=True,
        examples=True,
    ),
    "optimize_for_inference": Make(
        lambda api, m, given: api.for_inference(m, given), frozen=True, exact=False, examples=True
    ),
}
CARRIES = ("as it is", "deepcopy", "pickle", "saved", "elsewhere", "lite", "inside another")
CALLS = (
    "plain", "no_grad", "inference_mode", "ambient", "ambient, off", "thread", "fork",
    "checkpoint", "vmap", "beside",
)  # fmt: skip


def doors() -> Iterator[Door]:
    """All that there are."""
    for make in MAKES:
        for carry in CARRIES:
            for call in CALLS:
                door = Door(make, carry, call)
                if door.is_possible:
                    yield door


# How a module is carried.


def pickled(module: Any) -> Any:
    return pickle.loads(pickle.dumps(module))


def saved(module: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)  # type: ignore[no-untyped-call]


def lite(module: Any) -> Any:
    file = io.BytesIO(module._save_to_buffer_for_lite_interpreter())
    return _load_for_lite_interpreter(file)  # type: ignore[no-untyped-call]


# How a callable is called. Eager is called the same way.


def called(call: str, function: Run, arguments: tuple[Any, ...]) -> Any:
    if call == "no_grad":
        with torch.no_grad():
            return function(*arguments)
    if call == "inference_mode":
        with torch.inference_mode():
            result = function(*arguments)
        return result
    if call == "ambient":
        with AMBIENTS["cpu"]():
            return function(*arguments)
    if call == "ambient, off":
        with AMBIENTS["cpu_off"]():
            return function(*arguments)
    if call == "beside":
        with Beside():
            return function(*arguments)
    if call == "thread":
        return _in_a_thread(lambda: function(*arguments))
    if call == "checkpoint":
        return torch.utils.checkpoint.checkpoint(function, *arguments, use_reentrant=False)
    if call == "vmap":
        return _mapped(function, arguments)
    return function(*arguments)


def _in_a_thread(function: Callable[[], Any]) -> Any:
    found: list[Any] = []
    cache = torch.is_autocast_cache_enabled()  # which is a thread's

    def run() -> None:
        torch.set_autocast_cache_enabled(cache)
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def in_a_child(function: Callable[[], Any]) -> Any:
    """What a function gives in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            try:
                found: Any = function()
            except Exception as error:
                found = RuntimeError(str(error))
            data = io.BytesIO()
            torch.save(found, data)
            with os.fdopen(writing, "wb") as file:
                file.write(data.getvalue())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        data = io.BytesIO(file.read())
    _, status = os.waitpid(child, 0)
    if not data.getbuffer().nbytes:
        raise ChildDied(f"the child ended with {status}")
    found = torch.load(data, weights_only=False)
    if isinstance(found, Exception):
        raise found
    return found


class ChildDied(RuntimeError):
    """A forked process ended without an answer."""


def _mapped(function: Run, arguments: tuple[Any, ...]) -> Any:
    x, *rest = arguments

    def of_one(x: torch.Tensor) -> Any:
        return function(x, *copy.deepcopy(rest))

    mapped = torch.func.vmap(of_one, randomness="same")
    return mapped(torch.stack([x.detach(), x.detach() * 0.5]))
