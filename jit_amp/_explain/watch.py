"""explain of what Python runs: where each operator is, and which scopes hold there.

The dispatcher tells what runs (csrc/runtime/watch.h). Where that is, Python's stack tells: the
lines, and the modules whose methods are being called. Which `with` has made the state of autocast
is seen as `jit_amp.trace` sees it, by the functions that torch.autocast's methods call.
"""

from __future__ import annotations

import dataclasses
import inspect
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

from jit_amp import _C
from jit_amp._base import replacing
from jit_amp._explain import stops
from jit_amp._explain.call_sites import Places, is_shown
from jit_amp._explain.records import Place, Stop, own_line_in
from jit_amp._explain.sources import place_of
from jit_amp._runs.copies import Copier

_this_thread = threading.local()


@dataclass
class Ran:
    """What one program did: ``rows`` as `_C` gives them, and the seconds of a whole run."""

    rows: list[dict[str, Any]]
    warnings: list[str]
    has_scopes: bool
    seconds: float
    error: str = ""  # that the program raised
    stop: Stop | None = None


def _places_of_thread() -> Places | None:
    return getattr(_this_thread, "places", None)


def _entering(places: Places, original: Callable[..., Any]) -> Any:
    """Called once by __enter__."""
    if (scope := replacing.scope_of_caller()) is not None:
        places.enter(scope)
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
    """Runs a program, each time on copies of it and with other arguments, until it raises."""
    told: list[str] = []
    times: list[float] = []
    places: Places | None = None
    watch: Any = None
    stopped: tuple[str, Stop | None] = "", None
    for count in range(runs):
        copier = Copier()
        called = copier.of_or_itself(obj, "it")
        given, named = _copied_arguments(copier, args, kwargs)
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
            stopped = _one_run(watch, places, function, given, named, gradients and not count)
        times.append(time.perf_counter() - begin)
        if stopped[0]:
            break
    assert places is not None
    rows = [_described(seen, at, backward, places) for seen, at, backward in watch.seen()]
    timed = sorted(times[2:])
    seconds = timed[len(timed) // 2] if timed else 0.0
    return Ran(rows, list(dict.fromkeys(told)), places.has_scopes, seconds, *stopped)


def _copied_arguments(
    copier: Copier, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns arguments that the program may write to."""
    given = tuple(copier.of_or_itself(each, f"argument {i}") for i, each in enumerate(args))
    named = {name: copier.of_or_itself(each, f"`{name}`") for name, each in kwargs.items()}
    return given, named


def _named(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Arguments by name."""
    try:
        called = function.forward if isinstance(function, nn.Module) else function
        return dict(inspect.signature(called).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {**{str(i): each for i, each in enumerate(args)}, **kwargs}


def _one_run(
    watch: Any,
    places: Places,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    gradients: bool,
) -> tuple[str, Stop | None]:
    """Returns what the program raised, and where; an empty text where it raised nothing."""
    failed = True

    def end() -> None:
        places.end()
        watch.stop(failed)

    places.begin(sys._getframe())
    with _C.AtExit([end]):
        # The scopes that this thread enters.
        with _SCOPES_SEEN, replacing.values(vars(_this_thread), places=places):
            watch.start()
            result, error = _called(function, args, kwargs)
            if error is not None:
                named = _named(function, args, kwargs)
                return stops.text_of(error), _stop(error, watch, places, named)
            _refuse_asynchronous(result, function)
            if gradients:
                watch.note_gradients(list(tensors_in(result)))
        failed = False
    return "", None


def _called(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Exception | None]:
    """Returns what a program gives, or what it raises.

    A function of its own: of an interrupt at the line of a ``try`` no ``with`` around it hears
    (CPython 3.11 gives that instruction no handler).
    """
    try:
        result = function(*args, **kwargs)
        if isinstance(result, (types.GeneratorType, map, filter, zip)):
            result = list(result)  # it runs only now
    except Exception as error:
        return None, error
    return result, None


def _stop(error: Exception, watch: Any, places: Places, named: dict[str, Any]) -> Stop:
    """Where the program has raised, with what the operator, or the line, was given."""
    seen = watch.seen()

    def stack_of(number: int) -> tuple[Place, ...]:
        return tuple(map(place_of, places.places[seen[number][1]][0]))

    def maker(number: int | None) -> tuple[str, Place] | None:
        return None if number is None else (seen[number][0]["name"], own_line_in(stack_of(number)))

    root = places._root if isinstance(places._root, nn.Module) else stops.module_of(error)
    if failed := watch.failed():
        number, operands = failed
        stack, is_backward = stack_of(number), seen[number][2]
        # Of one that was caught, and has nothing to do with the error, this does not hold.
        if is_backward or (stack[-1].file, stack[-1].line) in stops.lines_of(error):
            told = [
                (name, value, maker(by), stops.origin(value, root, named))
                for name, value, by, _, _ in operands
            ]
            return stops.of_operator(seen[number][0]["name"], stack, told)
    frames = [each for each in stops.frames_of(error) if is_shown(each[0].f_code)]
    sites = [
        (f.f_code.co_filename, line, 0, f.f_code.co_name if i else "")
        for i, (f, line) in enumerate(frames)
    ]
    at = tuple(map(place_of, sites)) or (Place("", 0, 0),)
    return stops.of_python(
        error,
        at,
        lambda tensor: maker(watch.maker_of(tensor)),
        lambda tensor: stops.origin(tensor, root, named),
    )


def _refuse_asynchronous(result: Any, function: Callable[..., Any]) -> None:
    """
    Raises:
        TypeError: a program is asynchronous: it would not have run.
    """
    if isinstance(result, (Coroutine, AsyncGenerator)):
        if isinstance(result, Coroutine):
            result.close()
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise TypeError(
            f"jit_amp.explain: {name} is asynchronous, and has not run: give a function that awaits"
            " it, such as `lambda *args: asyncio.run(function(*args))`"
        )


def _described(seen: dict[str, Any], place: int, is_backward: bool, places: Places) -> Any:
    stack, module, scopes = places.places[place]
    states = seen["states"]
    for device in scopes:
        if device not in states:
            states[device] = (False, torch.get_autocast_dtype(device), True)
    seen |= {"stack": stack, "module": module, "is_backward": is_backward}
    seen["scopes"] = {device: scopes[device].site for device in states if device in scopes}
    seen["missing"] = {d: scope.missing for d, scope in scopes.items() if scope.missing}
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
    if (places := _places_of_thread()) and (scope := _without_device(replacing.caller())):
        places.switched_off.add(scope)
    if is_first and "autocast" in str(message):
        told.append(str(message))
    elif is_first:
        original(message, category, stacklevel + 2, *args, **kwargs)


def _without_device(frame: types.FrameType) -> torch.autocast | None:
    """The scope that PyTorch warns of because this machine lacks its device."""
    if frame.f_code is not torch.autocast.__init__.__code__:
        return None
    scope: torch.autocast = frame.f_locals["self"]
    return scope if scope.device == "cuda" and not torch.cuda.is_available() else None


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
