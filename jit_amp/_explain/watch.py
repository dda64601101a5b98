"""explain of what Python runs: where each operator is, and which scopes hold there.

The dispatcher tells what runs (csrc/runtime/watch.h). Where that is, Python's stack tells: the
lines, and the modules whose methods are being called. Which `with` has made the state of autocast
is seen as `jit_amp.trace` sees it, by the functions that torch.autocast's methods call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
import time
import types
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import CompileContext

from jit_amp import _C
from jit_amp._base import replacing, source_files, source_lines
from jit_amp._runs.copies import Copier

_this_thread = threading.local()
_CALLS_MODULE = nn.Module._call_impl.__code__
_PLUMBING = {
    nn.modules.module.__file__,
    torch.amp.autocast_mode.__file__,
    torch.utils._contextlib.__file__,
    contextlib.__file__,
}

Site = tuple[str, int, int, str]  # file, line, column, function


@dataclass
class Ran:
    """What one program did: ``rows`` as `_C` gives them, and the seconds of a whole run."""

    rows: list[dict[str, Any]]
    warnings: list[str]
    has_scopes: bool
    seconds: float


class Places:
    """Gives each place of a program a number: the lines that lead there, the module whose code it
    is, and the scopes that are open."""

    def __init__(self, root: Any) -> None:
        self.places: list[tuple[tuple[Site, ...], str, dict[str, Site]]] = []
        self.base: types.FrameType | None = None
        self.open: list[tuple[str, Site]] = []
        self.has_scopes = False
        self._numbers: dict[tuple[int, ...], int] = {}
        self._frames: dict[int, tuple[types.FrameType, Any]] = {}
        self._codes: list[types.CodeType] = []  # so that no address in a key is used again
        self._scopes: dict[tuple[Any, ...], int] = {}
        self._open_number = 0
        self._paths: dict[int, dict[int, str]] = {}
        self._root = root if isinstance(root, nn.Module) else getattr(root, "__self__", None)

    def number(self) -> int:
        """The place that runs now: of the frame that called, in this thread. -1 while torch.compile
        compiles: what it runs then, mostly on fake tensors, is not the program."""
        if CompileContext.try_get() is not None:
            return -1
        key = [self._open_number]
        frame: Any = sys._getframe(1)
        frames, known = {}, self._frames
        while frame is not None and frame is not self.base:
            identity = id(frame)
            entry = known.get(identity)
            if entry is None:
                entry = (frame, _module_of(frame))
            frames[identity] = entry
            key += (id(frame.f_code), frame.f_lasti)
            if entry[1] is not None:
                key.append(id(entry[1]))
            frame = frame.f_back
        self._frames = frames
        found = self._numbers.get(identifier := tuple(key))
        if found is None:
            found = self._numbers[identifier] = len(self.places)
            entries = list(frames.values())[::-1]
            self.places.append((_stack(entries), self._path(entries), dict(self.open)))
            self._codes += [frame.f_code for frame, _ in entries]
        return found

    def enter(self, device: str) -> None:
        self.has_scopes = True
        self.open.append((device, _line_above()))
        self._renumber()

    def leave(self) -> None:
        if self.open:
            self.open.pop()
        self._renumber()

    def begin(self, base: types.FrameType) -> None:
        self.base = base
        self.open.clear()
        self._renumber()

    def end(self) -> None:
        """Lets go of the frames."""
        self._frames, self.base = {}, None

    def _renumber(self) -> None:
        self._open_number = self._scopes.setdefault(tuple(self.open), len(self._scopes))

    def _path(self, entries: list[tuple[types.FrameType, Any]]) -> str:
        """The path of the innermost module that is part of the whole."""
        modules = [module for _, module in entries if module is not None]
        root = self._root if isinstance(self._root, nn.Module) else next(iter(modules), None)
        if root is None:
            return ""
        if id(root) not in self._paths:
            self._paths[id(root)] = {id(each): path for path, each in root.named_modules()}
        paths = self._paths[id(root)]
        return next((paths[id(each)] for each in reversed(modules) if id(each) in paths), "")


def _module_of(frame: types.FrameType) -> Any:
    """The module whose method a frame runs; None where that is known of the frame around it."""
    code = frame.f_code
    if code is not _CALLS_MODULE:
        back = frame.f_back
        if not code.co_argcount or code.co_varnames[0] != "self":
            return None
        if code.co_filename in _PLUMBING or (back and back.f_code is _CALLS_MODULE):
            return None
    module = frame.f_locals.get("self")
    return module if isinstance(module, nn.Module) else None


def _is_shown(code: types.CodeType) -> bool:
    file = code.co_filename
    return file not in _PLUMBING and not file.startswith((source_files.PACKAGE, "<frozen"))


def _stack(entries: list[tuple[types.FrameType, Any]]) -> tuple[Site, ...]:
    sites: list[Site] = []
    for frame, _ in entries:
        if _is_shown(frame.f_code):
            source_lines.note(frame)
            function = frame.f_code.co_name if sites else ""
            sites.append((frame.f_code.co_filename, frame.f_lineno or 0, _column(frame), function))
    return tuple(sites) or (("", 0, 0, ""),)


def _column(frame: types.FrameType) -> int:
    columns = _columns(frame.f_code)
    at = frame.f_lasti // 2
    return columns[at] if at < len(columns) else 0


@functools.lru_cache(1024)
def _columns(code: types.CodeType) -> tuple[int, ...]:
    """The column of each instruction, which Python knows from 3.11 on."""
    positions = getattr(code, "co_positions", None)
    return tuple(column or 0 for _, _, column, _ in positions()) if positions else ()


def _line_above() -> Site:
    frame: Any = sys._getframe(2)
    while frame.f_back and not _is_shown(frame.f_code):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno, 0, ""


def _places_of_thread() -> Places | None:
    return getattr(_this_thread, "places", None)


def _entering(places: Places, original: Callable[..., Any]) -> Any:
    """Called once by __enter__."""
    if (scope := replacing.scope_of_caller()) is not None:
        places.enter(scope.device)
    return original()


def _leaving(places: Places, original: Callable[..., Any]) -> Any:
    """Called once by __exit__."""
    if replacing.scope_of_caller() is not None:
        places.leave()
    return original()


_SCOPES_SEEN = replacing.functions(
    replacing.Hook(torch, "autocast_increment_nesting", _entering, _places_of_thread),
    replacing.Hook(torch, "autocast_decrement_nesting", _leaving, _places_of_thread),
)


def run(
    obj: Any,
    method: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    runs: int,
    numerics: bool,
    gradients: bool,
) -> Ran:
    """Runs a program, each time on copies of it and with other arguments.

    Raises:
        Exception: what the program raises.
    """
    told: list[str] = []
    times: list[float] = []
    places: Places | None = None
    watch: Any = None
    for count in range(runs):
        copier = Copier()
        called = copier.of_or_itself(obj, "it")
        given, named = _arguments(copier, args, kwargs)
        told += copier.warnings if not count else []
        if places is None:
            places = Places(called)
            watch = _C.Watch(places.number, numerics=numerics, gradients=gradients)
        places._root = called if isinstance(called, nn.Module) else places._root
        watch.protect(copier.shared)
        function = called if method == "forward" else getattr(called, method)
        begin = time.perf_counter()
        heard = told, not count
        with (
            _C.AtExit([watch.restore]),
            _WARNINGS_HEARD,
            replacing.values(vars(_this_thread), heard=heard),
        ):
            _one_run(watch, places, function, given, named, gradients and not count)
        times.append(time.perf_counter() - begin)
    assert places is not None
    rows = [_described(seen, at, backward, places) for seen, at, backward in watch.seen()]
    timed = sorted(times[2:])
    return Ran(rows, told, places.has_scopes, timed[len(timed) // 2] if timed else 0.0)


def _arguments(
    copier: Copier, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that a program may write to."""
    given = tuple(copier.of_or_itself(each, f"argument {i}") for i, each in enumerate(args))
    named = {name: copier.of_or_itself(each, f"`{name}`") for name, each in kwargs.items()}
    return given, named


def _one_run(
    watch: Any,
    places: Places,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    gradients: bool,
) -> None:
    failed = True

    def end() -> None:
        places.end()
        watch.stop(failed)

    places.begin(sys._getframe())
    with _C.AtExit([end]):
        # The scopes that this thread enters.
        with _SCOPES_SEEN, replacing.values(vars(_this_thread), places=places):
            watch.start()
            result = _all_of(function(*args, **kwargs), function)
            if gradients:
                watch.note_gradients(list(tensors_in(result)))
        failed = False


def _all_of(result: Any, function: Callable[..., Any]) -> Any:
    """What a program gives, with what runs only when it is asked for.

    Raises:
        TypeError: it is asynchronous: it would not have run.
    """
    if isinstance(result, (types.GeneratorType, map, filter, zip)):
        return list(result)
    if isinstance(result, (Coroutine, AsyncGenerator)):
        if isinstance(result, Coroutine):
            result.close()
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise TypeError(
            f"jit_amp.explain: {name} is asynchronous, and has not run: give a function that awaits"
            " it, such as `lambda *args: asyncio.run(function(*args))`"
        )
    return result


def _described(seen: dict[str, Any], place: int, is_backward: bool, places: Places) -> Any:
    stack, module, scopes = places.places[place]
    states = seen["states"]
    for device in scopes:
        if device not in states:
            states[device] = (False, torch.get_autocast_dtype(device), True)
    seen |= {"stack": stack, "module": module, "is_backward": is_backward}
    seen["scopes"] = {device: scopes[device] for device in states if device in scopes}
    return seen


def _heard_by_thread() -> tuple[list[str], bool] | None:
    """What was told, and whether this is the first run: others would tell the same."""
    return getattr(_this_thread, "heard", None)


def _warned(
    heard: tuple[list[str], bool],
    original: Callable[..., None],
    message: Any,
    category: type[Warning] | None = None,
    stacklevel: int = 1,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Notes what the program's autocast warns of; other warnings are given as ever."""
    told, is_first = heard
    if is_first and "autocast" in str(message):
        told.append(str(message))
    elif is_first:
        original(message, category, stacklevel + 2, *args, **kwargs)


_WARNINGS_HEARD = replacing.functions(replacing.Hook(warnings, "warn", _warned, _heard_by_thread))


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors that a program has given, in tuples, dictionaries and data classes."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from tensors_in(each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in vars(value).values():
            yield from tensors_in(each)
