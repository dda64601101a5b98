"""Copies of what explain runs, so that the user's own objects stay as they are."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule

from jit_amp import _C
from jit_amp._script import _wrap
from jit_amp._values import fresh

_Schedulers = (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
_WITH_STATE = (nn.Module, torch.optim.Optimizer, *_Schedulers, torch.amp.GradScaler, Tensor)


class Copier:
    """Copies that go together: what is one object stays one.

    A copied module has buffers, attributes and gradients of its own. Its parameters are other
    tensors in the memory of the originals: ``shared`` has them. A copied function has copies of the
    modules, optimizers and tensors that it names, also by way of other functions of its file.
    """

    def __init__(self) -> None:
        self.shared: list[Tensor] = []
        self.memo: dict[int, Any] = {}
        self._kept: list[Any] = []  # so that no address in the memo is used again
        self._functions: dict[int, Any] = {}
        self._globals: dict[int, dict[str, Any]] = {}

    def of(self, value: Any) -> Any:
        """The copy of a value; the value itself, where it holds nothing that a run could change.

        Raises:
            Exception: of any class, where something in it cannot be copied.
        """
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return types.MethodType(value.__func__, self.of(value.__self__))
        if isinstance(value, functools.partial):
            arguments = [self.of(each) for each in value.args]
            named = {name: self.of(each) for name, each in value.keywords.items()}
            return functools.partial(self.of(value.func), *arguments, **named)
        if isinstance(value, types.ModuleType | type | types.BuiltinFunctionType):
            return value
        for each in _modules_in(value):
            self._see(each)
            for scripted in _scripted_in(each):
                if id(scripted) not in self.memo:
                    self._note(scripted, _wrap(_C.copied_module(scripted._c), scripted))
        return copy.deepcopy(value, self.memo)

    def _see(self, module: nn.Module) -> None:
        for owner in module.modules():
            for parameter in owner._parameters.values():
                if type(parameter) is nn.Parameter and id(parameter) not in self.memo:
                    alias = nn.Parameter(parameter.data, parameter.requires_grad)
                    vars(alias).update(vars(parameter))
                    self._note(parameter, alias)
                    self.shared.append(alias)
            for each in vars(owner).values():  # such as what weight_norm computes
                if isinstance(each, Tensor) and not each.is_leaf and id(each) not in self.memo:
                    self._note(each, each.detach().clone())

    def _note(self, original: Any, made: Any) -> None:
        self.memo[id(original)] = made
        self._kept.append(original)

    def _function(self, function: types.FunctionType) -> Any:
        if id(function) in self._functions:
            return self._functions[id(function)]
        self._functions[id(function)] = function  # one that names itself
        if not _names_state(function, set()):
            return function
        cells = tuple(
            types.CellType(self._value(cell.cell_contents)) if _is_full(cell) else cell
            for cell in function.__closure__ or ()
        )
        names = function.__globals__
        own = self._globals.setdefault(id(names), dict(names))
        made = types.FunctionType(
            function.__code__, own, function.__name__, function.__defaults__, cells
        )
        made.__kwdefaults__ = function.__kwdefaults__
        made.__module__, made.__qualname__ = function.__module__, function.__qualname__
        vars(made).update(vars(function))
        self._functions[id(function)] = made
        for name in _named(function.__code__):
            if name in names:
                own[name] = self._value(names[name])
        return made

    def _value(self, value: Any) -> Any:
        """The copy of what a function names."""
        kinds = (*_WITH_STATE, types.FunctionType, types.MethodType, functools.partial)
        if not isinstance(value, kinds):
            return value
        if isinstance(value, Tensor) and id(value) not in self.memo:
            self._note(value, fresh(value))
        return self.memo[id(value)] if isinstance(value, Tensor) else self.of(value)


def _scripted_in(module: nn.Module) -> Iterator[ScriptModule]:
    """Scripted modules, not all of which PyTorch's deepcopy can copy, without those inside them."""
    if isinstance(module, ScriptModule):
        yield module
        return
    for each in module.children():
        yield from _scripted_in(each)


def _modules_in(value: Any) -> Iterator[nn.Module]:
    """A module, and those of a plain object's attributes."""
    if isinstance(value, nn.Module):
        yield value
    elif hasattr(value, "__dict__"):
        yield from (each for each in vars(value).values() if isinstance(each, nn.Module))


def _named(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _named(each)


def _is_full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _names_state(value: Any, seen: set[int]) -> bool:
    """Whether a function names something that a run could change, also by way of functions."""
    if isinstance(value, _WITH_STATE):
        return True
    if isinstance(value, types.MethodType):
        return _names_state(value.__self__, seen) or _names_state(value.__func__, seen)
    if isinstance(value, functools.partial):
        return _names_state(value.func, seen) or any(_names_state(a, seen) for a in value.args)
    if not isinstance(value, types.FunctionType) or id(value) in seen:
        return False
    seen.add(id(value))
    if (value.__module__ or "").partition(".")[0] == "torch" and not value.__closure__:
        return False
    cells = (cell.cell_contents for cell in value.__closure__ or () if _is_full(cell))
    names = (value.__globals__.get(name) for name in _named(value.__code__))
    return any(_names_state(each, seen) for each in (*cells, *names))
