"""Parts of a model in float32 under autocast, in eager: what a `Precision` says, while it is used.

A part that stays in float32 runs with autocast off, its scopes too, and what it is given in
bfloat16 or float16 is cast to float32 first. Parts are submodules, functions, or source lines.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import copy
import dataclasses
import functools
import linecache
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

REDUCED = (torch.bfloat16, torch.float16)
KINDS = ("module", "function", "line")
_TORCH = os.path.dirname(torch.__file__) + os.sep
_HERE = os.path.dirname(__file__) + os.sep
_this_thread = threading.local()


@dataclass(frozen=True)
class Parts:
    """What stays in float32, and the autocast around the model."""

    kind: str  # one of KINDS
    units: tuple[str, ...]
    device_type: str
    dtype: torch.dtype
    around: bool  # whether the model has no scopes, and one is put around it


def widened(value: Any) -> Any:
    """The value with float32 in place of bfloat16 and float16, also in tuples, lists, dictionaries
    and data classes; itself where there is nothing to cast."""
    return mapped(value, lambda tensor: tensor.float() if tensor.dtype in REDUCED else tensor)


def mapped(value: Any, change: Callable[[Tensor], Tensor], anew: bool = False) -> Any:
    """The value with other tensors, also in tuples, lists, dictionaries and data classes, and in
    their subclasses; a container is made anew where something in it is another, or always."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        made = [mapped(each, change, anew) for each in value]
        if not anew and all(a is b for a, b in zip(made, value, strict=True)):
            return value
        if isinstance(value, list):
            copied = copy.copy(value)
            copied[:] = made
            return copied
        return _tuple_like(value, made)
    if isinstance(value, (dict, collections.UserDict)):
        items = dict(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, (type, nn.Module)):
        names = [each.name for each in dataclasses.fields(value)]
        items = {name: getattr(value, name) for name in names if hasattr(value, name)}
    else:
        return value
    others = {key: mapped(each, change, anew) for key, each in items.items()}
    others = {key: each for key, each in others.items() if each is not items[key]}
    if not anew and not others:
        return value
    other = copy.copy(value)
    for key, each in others.items():
        if isinstance(value, (dict, collections.UserDict)):
            other[key] = each
        else:
            object.__setattr__(other, key, each)  # a frozen one's too
    return other


def _tuple_like(value: tuple[Any, ...], made: list[Any]) -> Any:
    """A tuple of the same class, whatever its constructor takes."""
    if isinstance(value, torch.Size) or hasattr(
        value, "n_fields"
    ):  # such as torch.return_types.max
        return type(value)(made)
    other = tuple.__new__(type(value), made)
    if hasattr(value, "__dict__"):
        vars(other).update(vars(value))
    return other


@contextlib.contextmanager
def off(device_type: str) -> Iterator[None]:
    """No autocast, whatever scopes are entered."""
    with contextlib.ExitStack() as stack:
        for device in dict.fromkeys((device_type, "cpu", "cuda")):
            stack.enter_context(torch.autocast(device, enabled=False))
        before = is_off()
        _this_thread.is_off = True
        stack.callback(setattr, _this_thread, "is_off", before)
        yield


def is_off() -> bool:
    """Whether this thread is in what stays in float32."""
    return getattr(_this_thread, "is_off", False)


def in_float32(function: Callable[..., Any], device_type: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def running_in_float32(*args: Any, **kwargs: Any) -> Any:
        with off(device_type):
            return function(*widened(args), **widened(kwargs))

    return running_in_float32


def _under_autocast(function: Callable[..., Any], parts: Parts) -> Callable[..., Any]:
    @functools.wraps(function)
    def running_under_autocast(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(parts.device_type, dtype=parts.dtype):
            return function(*args, **kwargs)

    return running_under_autocast


@contextlib.contextmanager
def replaced_forwards(
    forwards: dict[nn.Module, Callable[..., Any]], name: str = "forward"
) -> Iterator[None]:
    """Calls of the modules run these functions; `_call_impl` runs hooks too."""
    before = {module: vars(module).get(name) for module in forwards}
    try:
        for module, forward in forwards.items():
            vars(module)[name] = forward
        yield
    finally:
        for module, was in before.items():
            vars(module).pop(name, None)
            if was is not None:
                vars(module)[name] = was


@contextlib.contextmanager
def applied(model: nn.Module, parts: Parts) -> Iterator[None]:
    """Calls of the model, until this is left, run as the parts say."""
    modules = dict(model.named_modules(remove_duplicate=False))
    forwards: dict[nn.Module, Callable[..., Any]] = {}
    lines: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if parts.kind == "module":
        for name in parts.units:
            forwards[modules[name]] = in_float32(modules[name].forward, parts.device_type)
    elif parts.units:
        lines = _Widening(parts)
    calls: dict[nn.Module, Callable[..., Any]] = {}
    if parts.around and model not in forwards:
        forwards[model] = _under_autocast(model.forward, parts)
        calls[model] = _under_autocast(model._call_impl, parts)  # with its hooks
    called = replaced_forwards(calls, "_call_impl")
    with _scopes_watched(), replaced_forwards(forwards), called, lines:
        yield


_VIEWS = ("T", "mT", "H", "mH", "real", "imag")  # what a property computes of a tensor


class _Widening(TorchFunctionMode):
    """PyTorch's functions run in float32 where lines or functions call them that stay so."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self._parts = parts
        self._units = [unit.rpartition(":")[::2] for unit in parts.units]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":  # `h.dtype` is what it is
            found = func(*args, **kwargs)
            is_view = func.__self__.__name__ in _VIEWS
            return widened(found) if is_view and self._stays(sys._getframe(1)) else found
        writes = (name.endswith("_") and not name.endswith("__")) or "out" in kwargs
        writes |= name in ("__setitem__", "__set__") or name.startswith("__i")
        if writes or not self._stays(sys._getframe(1)):
            return func(*args, **kwargs)
        with off(self._parts.device_type):
            return func(*widened(args), **widened(kwargs))

    def _stays(self, frame: Any) -> bool:
        for file, line, function in users_frames(frame):
            wanted = str(line) if self._parts.kind == "line" else function
            if any(wanted == at and is_file(file, path) for path, at in self._units):
                return True
        return False


def users_frames(frame: types.FrameType | None) -> Iterator[tuple[str, int, str]]:
    """File, line and function of the frames that are not PyTorch's nor jit_amp's, from the
    innermost to the one that calls the model. A lambda and a comprehension are the function's in
    which they are written; outside functions they have none, ``""``."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "running_as_a_model" and code.co_filename.startswith(_HERE):
            return
        if is_users(frame):
            # Python 3.10 has no qualified names of code.
            name = getattr(code, "co_qualname", code.co_name)
            at = code.co_filename, code.co_firstlineno
            yield code.co_filename, frame.f_lineno, _function_at(*at, name)
        frame = frame.f_back


@functools.cache
def _function_at(path: str, line: int, name: str) -> str:
    """The innermost `def` that code is written in, by its first line; without a source, by its
    name."""
    linecache.checkcache(path)
    source = "".join(linecache.getlines(path))
    if not source:
        return name.replace("<locals>.", "").partition("<")[0].rstrip(".")
    name = ""
    with contextlib.suppress(SyntaxError):
        for found, node in functions(source):
            if first_line(node) <= line <= (node.end_lineno or 0):
                name = found
    return name


def is_users(frame: types.FrameType) -> bool:
    return not frame.f_code.co_filename.startswith((_TORCH, _HERE, "<"))


@functools.cache
def shown_file(path: str) -> str:
    """The path as one would name it: from the package, or from the working directory."""
    _, installed, inside = path.rpartition(f"site-packages{os.sep}")
    relative = os.path.relpath(path)
    return inside if installed else path if relative.startswith(os.pardir) else relative


def is_file(path: str, shown: str) -> bool:
    """Whether a file is the one that `shown_file` gave that name to."""
    return path == shown or path.endswith(os.sep + shown)


def path_of(shown: str) -> str:
    """The path of a file by the name that `shown_file` gave it; the name, where none is known."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and is_file(file, shown):
            return file
    return shown


def lines_of(unit: str, kind: str) -> tuple[str, int, int]:
    """File, first and last line of a unit.

    Raises:
        ValueError: there is no such function.
    """
    file, _, name = unit.rpartition(":")
    if kind == "line":
        return file, int(name), int(name)
    for found, node in functions("".join(linecache.getlines(path_of(file)))):
        if found == name:
            return file, node.lineno, node.end_lineno or node.lineno
    raise ValueError(f"precision: {file} has no function {name!r}")


def first_line(node: ast.FunctionDef) -> int:
    """That of the first decorator, if there is one."""
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


@functools.lru_cache(maxsize=64)
def _parsed(source: str) -> ast.AST:
    return ast.parse(source)


def functions(source: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a source and their names, each after the one that it is in."""

    def walk(node: ast.AST, outer: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        for child in ast.iter_child_nodes(node):
            name = getattr(child, "name", "")
            inner = f"{outer}{name}." if isinstance(child, _NAMED) else outer
            if isinstance(child, ast.FunctionDef):
                yield f"{outer}{name}", child
            yield from walk(child, inner)

    return walk(_parsed(source), "")


_NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


# torch.autocast calls this function when it is entered, and then everything is set already.
_ENTERS = torch.amp.autocast_mode.autocast.__enter__.__code__
_lock = threading.Lock()
_watchers = 0
_original: Any = None


@contextlib.contextmanager
def _scopes_watched() -> Iterator[None]:
    global _watchers, _original
    with _lock:
        _watchers += 1
        if _watchers == 1:
            _original = torch.autocast_increment_nesting
            vars(torch)["autocast_increment_nesting"] = _entered(_original)
    try:
        yield
    finally:
        with _lock:
            _watchers -= 1
            if _watchers == 0:
                vars(torch)["autocast_increment_nesting"] = _original


def _entered(original: Any) -> Any:
    @functools.wraps(original)
    def autocast_increment_nesting(*args: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code is not _ENTERS:  # `trace` may be watching too
            frame = frame.f_back
        scope = frame.f_locals.get("self")
        if isinstance(scope, torch.autocast) and scope._enabled:
            if note := getattr(_this_thread, "on_scope", None):
                note(scope)
            if is_off():
                torch.set_autocast_enabled(scope.device, False)
        return original(*args)

    return autocast_increment_nesting


@contextlib.contextmanager
def scopes_noted(note: Callable[[torch.autocast], None]) -> Iterator[None]:
    """Calls `note` with each scope that this thread enters enabled."""
    _this_thread.on_scope = note
    try:
        with _scopes_watched():
            yield
    finally:
        _this_thread.on_scope = None
