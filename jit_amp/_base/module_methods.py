"""Methods of single modules that run otherwise for a while, in eager.

A module gets a class below its own for that time, as torch.nn.utils.parametrize does it, so that
copies and replicas of it call the method with themselves. Deep copies that are made meanwhile run
as their original does, and for as long; what is pickled is a plain module. Several threads may
change the same module, and leave in any order.
"""

from __future__ import annotations

import copy
import copyreg
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from jit_amp import _C
from jit_amp._base import replacing

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
_HELD = "_jit_amp_methods"
_NAMES = ("forward", "_call_impl")  # the second runs hooks too
_COPIES = (copy.copy.__code__, copy.deepcopy.__code__)
_lock = threading.RLock()
_kinds: weakref.WeakValueDictionary[type, type] = weakref.WeakValueDictionary()


def changed(wraps: Mapping[nn.Module, Wrap], name: str = "forward") -> _C.AtExit:
    """Until this is left, the method of these modules is what their function makes of it.

    Args:
        wraps: to each module a function that takes the bound method and returns what runs instead.
        name: ``"forward"``, or ``"_call_impl"``, which runs hooks too.
    """
    changes: list[_Change | _Overlaid] = []

    def begin() -> None:
        for module, wrap in wraps.items():
            change = _Change(name, wrap)
            changes.append(change)
            if not change.begin(module):
                overlaid = _Overlaid(module, name, wrap)
                changes.append(overlaid)
                overlaid.begin()

    def end() -> None:
        for change in reversed(changes):
            change.end()

    return _C.AtExit([end], begin)


def is_changed(module: nn.Module) -> bool:
    """Whether a method of it is changed at the moment."""
    return _HELD in vars(module)


class _Overlaid:
    """The same for one that has such an attribute itself, or was scripted."""

    def __init__(self, module: nn.Module, name: str, wrap: Wrap) -> None:
        self._module, self._name, self._wrap = module, name, (self, wrap)
        self._hold: _C.Hold | None = None

    def begin(self) -> None:
        with _lock:
            overlays = _overlays.setdefault(self._module, {})
            if self._name not in overlays:
                overlays[self._name] = _Overlay(self._module, self._name)
            overlay = overlays[self._name]
            overlay.wraps = (*overlay.wraps, self._wrap)
        self._hold = _C.Hold(overlay.replacement)

    def end(self) -> None:
        if self._hold is not None:
            self._hold.release()
        with _lock:
            overlays = _overlays.get(self._module, {})
            overlay = overlays.get(self._name)
            if overlay is not None:
                overlay.wraps = tuple(each for each in overlay.wraps if each is not self._wrap)
                if not overlay.wraps:
                    overlays.pop(self._name, None)


class _Overlay:
    """A method that stands in a module's own attributes for a while, and what is made of it."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.wraps: tuple[tuple[_Overlaid, Wrap], ...] = ()
        below = getattr(module, name)

        @functools.wraps(below)
        def running_otherwise(*args: Any, **kwargs: Any) -> Any:
            function = below
            for _, wrap in self.wraps:
                function = wrap(function)
            return function(*args, **kwargs)

        self.replacement = replacing.values(vars(module), **{name: running_otherwise})


_overlays: weakref.WeakKeyDictionary[nn.Module, dict[str, _Overlay]] = weakref.WeakKeyDictionary()


class _Change:
    """One method of one module, and of the copies of it: the function that makes another of it."""

    def __init__(self, name: str, wrap: Wrap) -> None:
        self.name, self.wrap = name, wrap
        self.modules: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def begin(self, module: nn.Module) -> bool:
        """Changes the module, and returns whether that is possible."""
        if self.name in vars(module) or isinstance(module, torch.jit.ScriptModule):
            return False
        with _lock:
            held = vars(module).get(_HELD)
            self.modules.add(module)
            if not isinstance(held, _Held) or held.module() is not module:
                try:
                    if not _is_kind(type(module)):
                        object.__setattr__(module, "__class__", _kind(type(module)))
                except TypeError:  # a class with a memory layout of its own
                    return False
                changes = held.changes if isinstance(held, _Held) else ()  # of what it is a copy of
                held = vars(module)[_HELD] = _Held(module, changes)
            held.changes = (*held.changes, self)
            for each in held.changes:
                each.modules.add(module)
        return True

    def end(self) -> None:
        with _lock:
            for module in list(self.modules):
                held = vars(module).get(_HELD)
                if isinstance(held, _Held):
                    held.changes = tuple(each for each in held.changes if each is not self)
                    if held.changes:
                        continue
                    del vars(module)[_HELD]
                if _is_kind(type(module)):
                    object.__setattr__(module, "__class__", type(module).__mro__[2])


class _Held:
    """What is changed of a module, kept in its ``__dict__``."""

    def __init__(self, module: nn.Module | None, changes: tuple[_Change, ...]) -> None:
        self.module: Callable[[], nn.Module | None]
        self.module = weakref.ref(module) if module is not None else lambda: None
        self.changes = changes

    def __deepcopy__(self, memo: dict[int, Any]) -> _Held:
        module = self.module()
        copied = memo.get(id(module))  # which is being made
        if module is None or copied is None:
            return _Held(None, ())
        with _lock:
            for each in self.changes:
                each.modules.add(copied)
            return _Held(copied, self.changes)


class _Quiet:
    """Above the class of a module: no class of the user's hears of one below it."""

    def __init_subclass__(cls, **_: Any) -> None:
        pass


def _is_kind(cls: type) -> bool:
    return len(cls.__mro__) > 2 and _kinds.get(cls.__mro__[2]) is cls


def _kind(base: type) -> type:
    made = _kinds.get(base)
    if made is None:

        def of(name: str) -> Callable[..., Any]:
            @functools.wraps(getattr(base, name))
            def running_otherwise(self: Any, *args: Any, **kwargs: Any) -> Any:
                function = getattr(super(kind, self), name)
                held = vars(self).get(_HELD)
                for each in held.changes if isinstance(held, _Held) else ():
                    if each.name == name:
                        function = each.wrap(function)
                return function(*args, **kwargs)

            return running_otherwise

        members: dict[str, Any] = {name: of(name) for name in _NAMES}
        members |= {
            "__module__": base.__module__,
            "__qualname__": base.__qualname__,
            "__doc__": base.__doc__,
            "__reduce_ex__": _reduce,
        }
        kind: Any = type(base)(base.__name__, (_Quiet, base), members)
        made = _kinds[base] = kind
    return made


def _reduce(self: Any, protocol: Any) -> Any:
    """A copy is of the same class; what is pickled is as it would be of the module's own."""
    kind: Any = next(each for each in type(self).__mro__ if _is_kind(each))
    made = super(kind, self).__reduce_ex__(protocol)
    if sys._getframe(1).f_code in _COPIES:
        return made
    function, given, *rest = made
    if function is copyreg.__newobj__ and given == (kind,):  # type: ignore[attr-defined]
        function, given = copyreg._reconstructor, (kind.__mro__[2], object, None)  # type: ignore[attr-defined]
    if rest and isinstance(rest[0], dict):
        rest[0] = {key: value for key, value in rest[0].items() if key != _HELD}
    return function, given, *rest
