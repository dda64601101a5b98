"""Parts of a model in float32 under autocast, in eager: what a `Precision` says, while it is used.

A part that stays in float32 runs with autocast off, its scopes too, and what it is given in
bfloat16 or float16 is cast to float32 first. Parts are submodules, functions, source lines, or
operators, wherever they are called.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import copy
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
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode_temporarily,
)

from jit_amp import _C
from jit_amp._base import module_methods, replacing, source_files, source_lines
from jit_amp._base.syntax_trees import parsed
from jit_amp._base.trees import attributes, is_data

REDUCED = (torch.bfloat16, torch.float16)
SOURCES = ("function", "line")  # units of a source file
KINDS = ("module", *SOURCES, "operator")
_this_thread = threading.local()


@dataclass(frozen=True)
class Parts:
    """What stays in float32, and the autocast around the model."""

    kind: str  # one of KINDS
    units: tuple[str, ...]
    device_type: str
    dtype: torch.dtype
    around: bool  # whether the model has no scopes, and one is put around it


def is_operator(name: str) -> bool:
    """Whether there is an operator that can stay in float32: one that gives new tensors, and no
    views of what it is given, nor what it has written to."""
    return "::" in name and any(
        not schema.is_mutable and not any(each.alias_info for each in schema.returns)
        for schema in torch._C._jit_get_schemas_for_operator(name)
    )


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """The modules by all their names; what torch.compile made of a module has that one below it,
    and is left out."""
    found = {}
    for name, module in model.named_modules(remove_duplicate=False):
        found[".".join(part for part in name.split(".") if part != "_orig_mod")] = module
    return found


def widened(value: Any) -> Any:
    """The value with float32 in place of bfloat16 and float16, also in tuples, lists, dictionaries
    and data classes; itself where there is nothing to cast."""
    return mapped(value, lambda tensor: tensor.float() if tensor.dtype in REDUCED else tensor)


def mapped(value: Any, change: Callable[[Tensor], Tensor], anew: bool = False) -> Any:
    """The value with other tensors, also in tuples, lists, dictionaries and data classes, and in
    their subclasses; a container is made anew where something in it is another, or always."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list, collections.deque)):
        made = [mapped(each, change, anew) for each in value]
        if not anew and all(a is b for a, b in zip(made, value, strict=True)):
            return value
        if isinstance(value, tuple):
            return _tuple_like(value, made)
        copied = copy.copy(value)
        copied.clear()
        copied.extend(made)
        return copied
    is_dict = isinstance(value, (dict, collections.UserDict))
    if not is_dict and not is_data(value):
        return value

    def changed(given: dict[Any, Any]) -> dict[Any, Any]:
        made = {key: mapped(each, change, anew) for key, each in given.items()}
        return {key: each for key, each in made.items() if each is not given[key]}

    items = changed(dict(value)) if is_dict else {}
    own = changed(attributes(value)) if hasattr(value, "__dict__") or not is_dict else {}
    if not anew and not items and not own:
        return value
    other = _copied(value)
    for name, each in own.items():
        object.__setattr__(other, name, each)  # a frozen one's too
    for key, each in items.items():
        other[key] = each
    return other


def _copied(value: Any) -> Any:
    try:
        return copy.copy(value)
    except TypeError:  # its constructor takes something else
        cls: Any = type(value)
        other = cls.__new__(cls)
        vars(other).update(vars(value))
        kind = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        for key, each in value.items():
            kind.__setitem__(other, key, each)
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
    """Switches autocast off, whatever scopes are entered inside."""
    with contextlib.ExitStack() as stack:
        for device in dict.fromkeys((device_type, "cpu", "cuda")):
            stack.enter_context(torch.autocast(device, enabled=False))
        with replacing.values(vars(_this_thread), is_off=True):
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


def _in(contexts: Callable[[], contextlib.AbstractContextManager[Any]]) -> module_methods.Wrap:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def running_in_a_context(*args: Any, **kwargs: Any) -> Any:
            with contexts():
                return function(*args, **kwargs)

        return running_in_a_context

    return wrap


@contextlib.contextmanager
def applied(model: nn.Module, parts: Parts) -> Iterator[None]:
    """Calls of the model, until this is left, run as the parts say: in every thread, and those of
    copies that are made meanwhile, too."""
    modules = modules_of(model)
    forwards: dict[nn.Module, module_methods.Wrap] = {}
    calls: list[module_methods.Wrap] = []  # of the model, with its hooks
    lines: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if parts.kind == "module":
        for name in parts.units:
            forwards[modules[name]] = functools.partial(in_float32, device_type=parts.device_type)
    elif parts.kind == "operator":
        operators = _C.KeptOperators([*parts.units])
        if parts.units:
            calls.append(
                _in(lambda: contextlib.nullcontext() if operators.is_entered() else operators)
            )
    elif parts.units:
        lines = widening = _Widening(parts)
        calls.append(_in(lambda: contextlib.nullcontext() if widening.is_on() else widening))
    if parts.around and model not in forwards:
        calls.append(_in(lambda: torch.autocast(parts.device_type, dtype=parts.dtype)))
        forwards[model] = calls[-1]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_scopes_watched)
        stack.enter_context(module_methods.changed(forwards))
        for call in calls:
            stack.enter_context(module_methods.changed({model: call}, "_call_impl"))
        if parts.kind in SOURCES:
            stack.enter_context(_modes_unseen)
        stack.enter_context(lines)
        yield


_VIEWS = ("T", "mT", "H", "mH", "real", "imag")  # what a property computes of a tensor


class _Widening(TorchFunctionMode):
    """PyTorch's functions run in float32 where lines or functions call them that stay so."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self._parts = parts
        self._units = [unit.rpartition(":")[::2] for unit in parts.units]
        self._wanted: dict[str, frozenset[str]] = {}  # lines or functions, by path

    def is_on(self) -> bool:
        """Returns whether this thread runs inside this mode."""
        return self in _get_current_function_mode_stack()  # type: ignore[no-untyped-call]

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
            if file not in self._wanted:
                self._wanted[file] = frozenset(
                    at for path, at in self._units if is_file(file, path)
                )
            if (str(line) if self._parts.kind == "line" else function) in self._wanted[file]:
                return True
        return False


def users_frames(frame: types.FrameType | None) -> Iterator[tuple[str, int, str]]:
    """File, line and function of the frames that are not PyTorch's nor jit_amp's, from the
    innermost to the one that calls the model. A lambda and a comprehension are the function's in
    which they are written; outside functions they have none, ``""``."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "running_as_a_model" and source_files.is_jit_amps(code.co_filename):
            return
        if is_users(frame):
            source_lines.note(frame)
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
    return _is_users(frame.f_code.co_filename)


def _is_users(path: str) -> bool:
    return source_files.is_programs(path)


@functools.cache
def shown_file(path: str) -> str:
    """The path as one would name it: from the package, or from the working directory."""
    return source_files.shown_name(path)


def is_file(path: str, shown: str) -> bool:
    """Whether a file is the one that `shown_file` gave that name to, here or elsewhere."""
    return shown_file(path) == shown or (path.endswith(os.sep + shown) and path == path_of(shown))


def path_of(shown: str) -> str:
    """The path of a file by the name that `shown_file` gave it, of one that ends so if it gave it
    elsewhere; the name, where none is known."""
    known = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files = [file for file in known if isinstance(file, str) and _is_users(file)]
    ends_so = [file for file in files if file.endswith(os.sep + shown)]
    return next((file for file in files if shown_file(file) == shown), (*ends_so, shown)[0])


def lines_of(unit: str, kind: str) -> tuple[str, int, int]:
    """Returns file, first and last line of a unit.

    Raises:
        ValueError: there is no such function.
    """
    file, _, name = unit.rpartition(":")
    path = path_of(file)
    if kind == "line":
        return path, int(name), int(name)
    for found, node in functions("".join(source_lines.lines(path))):
        if found == name:
            return path, node.lineno, node.end_lineno or node.lineno
    raise ValueError(f"precision: {file} has no function {name!r}")


def first_line(node: ast.FunctionDef) -> int:
    """Returns the first line of a function, that of its first decorator if it has one."""
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


@functools.lru_cache(maxsize=64)
def _parsed(source: str) -> ast.AST:
    return parsed(source)


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


def _is_concerned() -> bool:
    return is_off() or getattr(_this_thread, "on_scope", None) is not None


def _entered(_: bool, original: Callable[..., Any]) -> Any:
    """torch.autocast calls it once when it is entered, and then everything is set already."""
    scope = replacing.scope_of_caller()
    if scope is not None and scope._enabled:
        if note := getattr(_this_thread, "on_scope", None):
            note(scope)
        if is_off():
            torch.set_autocast_enabled(scope.device, False)
    return original()


def _widenings() -> Any:
    """This thread's function modes, if they are all ours."""
    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return modes if all(isinstance(each, _Widening) for each in modes) else None


def _overridden(modes: list[Any], original: Callable[..., Any], tensors: Any) -> bool:
    with contextlib.ExitStack() as stack:
        for _ in modes:
            stack.enter_context(_pop_mode_temporarily())
        return bool(original(tensors))


_scopes_watched = replacing.functions(
    replacing.Hook(torch, "autocast_increment_nesting", _entered, _is_concerned)
)
# nn.MultiheadAttention and nn.TransformerEncoder take another way where a mode is on
# (torch/nn/modules/activation.py, transformer.py).
_modes_unseen = replacing.functions(
    replacing.Hook(torch.overrides, "has_torch_function", _overridden, _widenings)
)


@contextlib.contextmanager
def scopes_noted(note: Callable[[torch.autocast], None]) -> Iterator[None]:
    """Calls `note` with each scope that this thread enters enabled."""
    with _scopes_watched, replacing.values(vars(_this_thread), on_scope=note):
        yield
