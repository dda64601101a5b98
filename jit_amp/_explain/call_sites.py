"""Where a program that Python runs is: the lines that lead there, the module, the open scopes."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
import weakref
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._guards import CompileContext

from jit_amp._base import source_files, source_lines
from jit_amp._explain import missing_scopes

_CALLS_MODULE = nn.Module._call_impl.__code__
_PLUMBING = {
    nn.modules.module.__file__,
    torch.amp.autocast_mode.__file__,
    torch.utils._contextlib.__file__,
    contextlib.__file__,
}

Site = tuple[str, int, int, str]  # file, line, column, function


class OpenScope(NamedTuple):
    """A scope that was entered: ``missing`` is its dtype, where this machine lacks its device."""

    device: str
    site: Site
    missing: torch.dtype | None


class Places:
    """Gives each place of a program a number: the lines that lead there, the module whose code it
    is, and the scopes that are open."""

    def __init__(self, root: Any) -> None:
        self.places: list[tuple[tuple[Site, ...], str, dict[str, OpenScope]]] = []
        self.base: types.FrameType | None = None
        self.open: list[OpenScope] = []
        self.has_scopes = False
        # Scopes that PyTorch has switched off, because this machine lacks their device.
        self.switched_off: weakref.WeakSet[torch.autocast] = weakref.WeakSet()
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
            scopes = {scope.device: scope for scope in self.open}
            self.places.append((_stack(entries), self._path(entries), scopes))
            self._codes += [frame.f_code for frame, _ in entries]
        return found

    def enter(self, scope: torch.autocast) -> None:
        self.has_scopes = True
        missing = scope.fast_dtype if scope in self.switched_off else None
        site, of_decorator = _entered_at()
        self.open.append(OpenScope(scope.device, site, missing or of_decorator))
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
        """Releases the frames."""
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


def is_shown(code: types.CodeType) -> bool:
    """Whether a line of it is one of the program: not what calls modules and enters scopes."""
    file = code.co_filename
    return file not in _PLUMBING and not (
        source_files.is_jit_amps(file) or file.startswith("<frozen")
    )


def _stack(entries: list[tuple[types.FrameType, Any]]) -> tuple[Site, ...]:
    sites: list[Site] = []
    for frame, _ in entries:
        if is_shown(frame.f_code):
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


def _entered_at() -> tuple[Site, torch.dtype | None]:
    """Where a scope is entered: the line, or the decorator; and `missing_scopes.of_decorators`."""
    frame: Any = sys._getframe(2)
    while frame.f_back and not (
        is_shown(frame.f_code) and not source_files.is_of_runtime(frame.f_code.co_filename)
    ):
        is_decorator = frame.f_code.co_name == "decorate_autocast"
        function = frame.f_locals.get("func") if is_decorator else None
        if function and (found := missing_scopes.of_decorators(function)):
            file, line, missing = found
            return (file, line, 0, ""), missing
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno, 0, ""), None
