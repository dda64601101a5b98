"""Copies of what jit_amp runs, so that the user's own objects stay as they are.

A copy is Python's deepcopy, of all that belongs together with one memo: what is one object stays
one, of its own class. Before it, what deepcopy does not copy as eager would see it is noted in the
memo: tensors (a leaf stays a leaf, and what is none stays none), scripted modules, and functions
that name something with state. A Copier's ``warnings`` say what is not copied, and runs itself.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dis
import functools
import random
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
from jit_amp._script.script import _wrap
from jit_amp._source.reaching import codes, is_full

_Schedulers = (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
_WITH_STATE = (
    nn.Module,
    torch.optim.Optimizer,
    *_Schedulers,
    torch.amp.GradScaler,
    Tensor,
    torch.Generator,
    random.Random,
)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
_CONTAINERS = (list, tuple, set, frozenset, collections.deque)
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_ITSELF = (
    *_PLAIN,
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.CodeType,
    Dataset,
    DataLoader,
)
"""What is not copied: it does not change, or is only read."""


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
            for each in _inside(value):
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
        if isinstance(value, _ITSELF):
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
            made = self._made(each, in_module)
            if made is not None:
                self._note(each, made)
                yield each
            if not isinstance(each, (ScriptModule, types.FunctionType)):
                in_module |= isinstance(each, nn.Module)
                ahead += [(part, in_module) for part in _parts(each)]

    def _made(self, value: Any, in_module: bool) -> Any:
        """The copy of what deepcopy is not to copy; None of others."""
        if isinstance(value, (Dataset, DataLoader)) or _is_processs(value):
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
        for method in _methods_of(cls):
            for _, name, value in _names_of(method) if id(method) not in self.memo else ():
                held = list(_inside(value)) if self._has_state(value) else []
                self.shared += [each for each in held if isinstance(each, Tensor)]
                text = (
                    f"`{name}`, which {method.__qualname__} names, ran itself, and no copy: give it"
                    " as an argument or an attribute"
                )
                moves = any(isinstance(each, kinds) and not _is_processs(each) for each in held)
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
            for file, name, each in _names_of(function):
                if file is not None:  # and no cell, of those above
                    vars(self._file(file))[name] = self._named(name, each)

    def _held_by_file(self, function: types.FunctionType) -> Iterator[bool]:
        return (file is not None and self._has_state(v) for file, _, v in _names_of(function))

    def _file(self, names: dict[str, Any]) -> types.ModuleType:
        """What stands for a Python module, by its names: _fill puts copies into it."""
        if id(names) not in self._files:
            made = self._files[id(names)] = types.ModuleType(names.get("__name__", ""))
            vars(made).update(names)
        return self._files[id(names)]

    def _named(self, name: str, value: Any) -> Any:
        """The copy of what a function names; itself where that has no state."""
        if _is_file(value):
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
            if isinstance(each, kinds) and not _is_processs(each):
                return True
            seen[id(each)] = each
            ahead += _parts(each)
            if type(each) not in classes:
                classes.add(type(each))
                methods = _methods_of(type(each))
                ahead += [named for method in methods for _, _, named in _names_of(method)]
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
    """What has state."""
    numpy: Any = sys.modules.get("numpy")
    if not numpy:
        return _WITH_STATE
    return (*_WITH_STATE, numpy.ndarray, numpy.random.Generator, numpy.random.RandomState)


def _is_processs(value: Any) -> bool:
    """Whether a generator of random numbers is the process's own: see _kept.py."""
    if isinstance(value, torch.Generator):
        own = torch.default_generator, *torch.cuda.default_generators
        return any(value is each for each in own)
    if isinstance(value, random.Random):
        return value is getattr(random, "_inst", None)
    mtrand: Any = sys.modules.get("numpy.random.mtrand")
    return mtrand is not None and value is mtrand._rand


def _inside(value: Any) -> Iterator[Any]:
    """All that a value holds, itself too, each once."""
    seen: dict[int, Any] = {}
    ahead = [value]
    while ahead:
        each = ahead.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            yield each
            ahead += _parts(each)


def _parts(value: Any) -> list[Any]:
    """What an object holds or names itself, without what is plain."""
    if isinstance(value, _ITSELF):
        return []
    found: list[Any] = []
    if isinstance(value, types.FunctionType):
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        found = [*defaults, *(each for _, _, each in _names_of(value))]
    elif isinstance(value, types.MethodType):
        found = [value.__func__, value.__self__]
    elif isinstance(value, functools.partial):
        found = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, dict):
        found = [*dict.keys(value), *dict.values(value)]
    elif isinstance(value, _CONTAINERS):
        kind: Any = next(each for each in _CONTAINERS if isinstance(value, each))
        found = list(kind.__iter__(value))  # a class of its own may forbid, or do more
    with contextlib.suppress(Exception):  # of classes that answer for others
        found += vars(value).values()
    for each in type(value).__mro__:
        for name in _slots(each):
            with contextlib.suppress(Exception):
                found.append(getattr(value, name))
    return [each for each in found if type(each) not in _PLAIN]


@functools.lru_cache(4096)
def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if not name.startswith("__"))


def _names_of(
    function: types.FunctionType,
) -> Iterator[tuple[dict[str, Any] | None, str, Any]]:
    """What a function names: around it (None), in its file and in others that it names, with the
    names of that file. A library's own objects, besides modules and their like, are its own."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    around = {name: cell.cell_contents for name, cell in cells if is_full(cell)}
    is_own = not source_files.is_installed(function.__code__.co_filename)
    own_codes = [] if _is_torchs(function) else list(codes(function.__code__))
    of_its_file = {name for code in own_codes for name in _of_its_file(code)}
    named = {name: None for code in own_codes for name in code.co_names}  # in their order
    ahead: list[dict[str, Any]] = [function.__globals__]
    for name, each in around.items():
        yield None, name, each
        ahead += [vars(each)] if _is_file(each) else []
    seen: set[int] = set()
    while ahead:
        names = ahead.pop()
        if id(names) in seen:
            continue
        seen.add(id(names))
        for name in named:
            if names is function.__globals__ and name not in of_its_file:
                continue
            each = names.get(name)
            if _is_file(each):
                ahead.append(vars(each))
            if name in names and (is_own or isinstance(each, (*_WITH_STATE, *_FUNCTIONS))):
                yield names, name, each


def _is_torchs(function: types.FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] == "torch"


def _is_file(value: Any) -> bool:
    """Whether it is a Python module of the user's."""
    if not isinstance(value, types.ModuleType):
        return False
    file = getattr(value, "__file__", None)
    return file is not None and not source_files.is_installed(file)


def _methods_of(cls: type) -> Iterator[types.FunctionType]:
    """The methods of the user's classes."""
    for each in (each for base in cls.__mro__ for each in vars(base).values()):
        method = getattr(each, "fget", None) or getattr(each, "__func__", None) or each
        if isinstance(method, types.FunctionType) and not source_files.is_installed(
            method.__code__.co_filename
        ):
            yield method


def _of_its_file(code: types.CodeType) -> Iterator[str]:
    """What the code names of its own file: no attributes."""
    for each in dis.get_instructions(code):
        if each.opname.endswith(("_GLOBAL", "_NAME")):
            yield str(each.argval)
