"""Copies of what jit_amp runs, so that the user's own objects stay as they are.

A copy is Python's deepcopy, of all that belongs together with one memo: what is one object stays
one, of its own class. Before it, what deepcopy does not copy as eager would see it is noted in the
memo: tensors (a leaf stays a leaf, and what is none stays none), scripted modules, and functions
that name something with state. A Copier's ``warnings`` say what is not copied, and runs itself.
"""

from __future__ import annotations

import copy
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule
from torch.utils.data import DataLoader, Dataset

from jit_amp import _C
from jit_amp._base import source_files
from jit_amp._runs.held import (
    ITSELF,
    WITH_STATE,
    inside,
    is_of_the_process,
    is_users_file,
    methods_of,
    names_of,
    parts_of,
)
from jit_amp._script.script import _wrap
from jit_amp._source.reaching import is_full


def fresh(value: Any) -> Any:
    """The same values in other objects, which a program may write to.

    Raises:
        Exception: of any class, where something in it cannot be copied.
    """
    return Copier(shares=False).of(value)


class Copier:
    """Copies that go together: what is one object stays one.

    A copied module has buffers, attributes and gradients of its own. Where the Copier ``shares``,
    parameters are other tensors in the memory of the originals: ``shared`` has them. A copied
    function has copies of what it names, by way of other functions, files, containers and objects
    too, if that has state: modules, optimizers, tensors, generators of random numbers. Methods are
    those of the original's class: ``warnings`` say what they name.
    """

    def __init__(self, *, shares: bool = True) -> None:
        self.shared: list[Tensor] = []
        self.warnings: list[str] = []
        self.memo: dict[int, Any] = {}
        self._shares = shares
        self._kept: list[Any] = []  # so that no address in the memo is used again
        self._files: dict[int, types.ModuleType] = {}
        self._empty: list[tuple[types.FunctionType, types.FunctionType]] = []
        self._stateless: dict[int, Any] = {}
        self._classes: set[type] = set()

    def of(self, value: Any) -> Any:
        """The copy of a value; the value itself, where it holds nothing that a run could change.

        Raises:
            Exception: of any class, where something in it cannot be copied.
        """
        made = self._of(value)
        self._fill_functions()
        return made

    def of_or_itself(self, value: Any, name: str) -> Any:
        """The copy of a value, or itself: then ``warnings`` say so, and ``shared`` has what is to
        be put back."""
        made = self._of_or_itself(value, name)
        self._fill_functions()
        return made

    def _fill_functions(self) -> None:
        while self._empty:
            self._fill(*self._empty.pop())

    def _of_or_itself(self, value: Any, name: str) -> Any:
        try:
            return self._of(value)
        except Exception as error:  # of any class
            text = next(iter(str(error).splitlines()), "")
            self.warnings.append(f"{name} ran itself, and no copy ({type(error).__name__}: {text})")
            for each in inside(value):
                self._note(each, each)
                self.shared += [each] if isinstance(each, Tensor) else []
            return value

    def _of(self, value: Any) -> Any:
        if id(value) in self.memo:
            return self.memo[id(value)]
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return types.MethodType(self._of(value.__func__), self._of(value.__self__))
        if isinstance(value, functools.partial):
            arguments = [self._of(each) for each in value.args]
            named = {name: self._of(each) for name, each in value.keywords.items()}
            return functools.partial(self._of(value.func), *arguments, **named)
        if isinstance(value, ITSELF):
            return value
        self._see(value)
        return copy.deepcopy(value, self.memo)

    def _see(self, value: Any) -> None:
        """Notes the copies that deepcopy is not to make itself."""
        noted = [each for each in self._noted(value) if isinstance(each, Tensor) or _asks(each)]
        for each in noted:
            made = self.memo[id(each)]
            if isinstance(each, dict):
                dict.update(made, copy.deepcopy(dict(dict.items(each)), self.memo))
            for name, attribute in vars(each).items():
                if name not in vars(made):
                    vars(made)[name] = copy.deepcopy(attribute, self.memo)

    def _noted(self, value: Any) -> Iterator[Any]:
        seen: dict[int, Any] = {}
        ahead = [(value, False)]
        while ahead:
            each, in_module = ahead.pop()
            if id(each) in seen or id(each) in self.memo:
                continue
            seen[id(each)] = each
            self._look_at_class(type(each))
            made = self._copied_by_kind(each, in_module)
            if made is not None:
                self._note(each, made)
                yield each
            if not isinstance(each, (ScriptModule, types.FunctionType)):
                in_module |= isinstance(each, nn.Module)
                ahead += [(part, in_module) for part in parts_of(each)]

    def _copied_by_kind(self, value: Any, in_module: bool) -> Any:
        """The copy of what deepcopy is not to copy; None of others."""
        if isinstance(value, (Dataset, DataLoader)) or is_of_the_process(value):
            return value
        if isinstance(value, ScriptModule):  # not all of which deepcopy can copy
            return _wrap(_C.copied_module(value._c), value)
        if isinstance(value, types.FunctionType):
            made = self._function(value)
            return None if made is value else made
        if type(value) is nn.Parameter and self._shares:
            alias = nn.Parameter(value.data, value.requires_grad)
            self.shared.append(alias)
            return alias
        if _asks(value):
            cls: Any = type(value)
            return cls.__new__(cls)
        if isinstance(value, Tensor) and not (in_module and value.is_leaf):
            return _tensor(value)  # in a module such as what weight_norm computes
        return None

    def _look_at_class(self, cls: type) -> None:
        """Says what its methods name that has state: these are no copies."""
        if cls in self._classes:
            return
        self._classes.add(cls)
        kinds = tuple(each for each in _kinds() if each is not Tensor)
        for method in methods_of(cls):
            for _, name, value in names_of(method) if id(method) not in self.memo else ():
                held = list(inside(value)) if self._has_state(value) else []
                self.shared += [each for each in held if isinstance(each, Tensor)]
                text = (
                    f"`{name}`, which {method.__qualname__} names, ran itself, and no copy: give it"
                    " as an argument or an attribute"
                )
                moves = any(
                    isinstance(each, kinds) and not is_of_the_process(each) for each in held
                )
                if moves and text not in self.warnings:  # of a class that others inherit from
                    self.warnings.append(text)

    def _note(self, original: Any, made: Any) -> None:
        self.memo[id(original)] = made
        self._kept.append(original)

    def _function(self, function: types.FunctionType) -> Any:
        """The copy of a function, which _fill gives what it names: it may name itself."""
        if id(function) in self.memo:
            return self.memo[id(function)]
        if not self._has_state(function):
            return function
        cells = tuple(map(self._cell, function.__closure__ or ()))
        names = function.__globals__
        if not source_files.is_installed(function.__code__.co_filename) or any(
            self._held_by_file(function)
        ):
            names = vars(self._file(names))
        made = types.FunctionType(function.__code__, names, function.__name__, None, cells)
        made.__module__, made.__qualname__ = function.__module__, function.__qualname__
        self._note(function, made)
        self._empty.append((function, made))
        return made

    def _cell(self, cell: types.CellType) -> types.CellType:
        if not is_full(cell):
            return cell
        if id(cell) not in self.memo:
            self._note(cell, types.CellType())
        return self.memo[id(cell)]  # type: ignore[no-any-return]

    def _fill(self, function: types.FunctionType, made: types.FunctionType) -> None:
        names = function.__code__.co_freevars
        pairs = zip(names, function.__closure__ or (), made.__closure__ or (), strict=True)
        for name, cell, own in pairs:
            if is_full(cell) and not is_full(own):
                own.cell_contents = self._named(name, cell.cell_contents)
        if function.__defaults__:
            made.__defaults__ = tuple(self._named("a default", v) for v in function.__defaults__)
        of = function.__kwdefaults__
        made.__kwdefaults__ = of and {name: self._named(name, each) for name, each in of.items()}
        for name, each in vars(function).items():
            vars(made)[name] = self._named(name, each)
        if made.__globals__ is not function.__globals__:
            for file, name, each in names_of(function):
                if file is not None:  # and no cell, of those above
                    vars(self._file(file))[name] = self._named(name, each)

    def _held_by_file(self, function: types.FunctionType) -> Iterator[bool]:
        return (file is not None and self._has_state(v) for file, _, v in names_of(function))

    def _file(self, names: dict[str, Any]) -> types.ModuleType:
        """What stands for a Python module, by its names: _fill puts copies into it."""
        if id(names) not in self._files:
            made = self._files[id(names)] = types.ModuleType(names.get("__name__", ""))
            vars(made).update(names)
        return self._files[id(names)]

    def _named(self, name: str, value: Any) -> Any:
        """The copy of what a function names; itself where that has no state."""
        if is_users_file(value):
            return self._file(vars(value))
        if not self._has_state(value):
            return value
        return self._of_or_itself(value, f"`{name}`")

    def _has_state(self, value: Any) -> bool:
        """Whether there is something in it that a run could change, also by way of functions."""
        kinds, seen, classes = _kinds(), {}, set()
        ahead = [value]
        while ahead:
            each = ahead.pop()
            if id(each) in seen or id(each) in self._stateless:
                continue
            if isinstance(each, kinds) and not is_of_the_process(each):
                return True
            seen[id(each)] = each
            ahead += parts_of(each)
            if type(each) not in classes:
                classes.add(type(each))
                methods = methods_of(type(each))
                ahead += [named for method in methods for _, _, named in names_of(method)]
        self._stateless |= seen
        return False


def _tensor(t: Tensor) -> Tensor:
    """A tensor with the values and of the class of another; a leaf where that is one."""
    with torch.inference_mode(t.is_inference()):
        made = t.detach().clone()
        if type(made) is not type(t):
            made = made.as_subclass(type(t))
        made.requires_grad_(t.requires_grad)
        if not t.is_leaf:
            with torch.enable_grad():
                made = made.clone()
        if t.retains_grad:
            made.retain_grad()
    return made


def _asks(value: Any) -> bool:
    """Whether it is a dictionary whose keys are attributes too: deepcopy takes what it answers to
    ``__deepcopy__`` for a method, and does not expect a KeyError."""
    cls = type(value)
    return (
        isinstance(value, dict)
        and hasattr(cls, "__getattr__")
        and not (hasattr(cls, "__deepcopy__"))
    )


def _kinds() -> tuple[type, ...]:
    """Returns the kinds of values that have state."""
    numpy: Any = sys.modules.get("numpy")
    if not numpy:
        return WITH_STATE
    return (*WITH_STATE, numpy.ndarray, numpy.random.Generator, numpy.random.RandomState)
