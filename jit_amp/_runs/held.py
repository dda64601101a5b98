"""What an object holds, and what the code of a function names: all that a copy has to reach."""

from __future__ import annotations

import collections
import contextlib
import dis
import functools
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from jit_amp._base import source_files
from jit_amp._source.reaching import codes, is_full

_Schedulers = (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
WITH_STATE = (
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
ITSELF = (
    *_PLAIN,
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.CodeType,
    Dataset,
    DataLoader,
)
"""What is not copied: it does not change, or is only read."""


def is_of_the_process(value: Any) -> bool:
    """Whether a generator of random numbers is the process's own: see _kept.py."""
    if isinstance(value, torch.Generator):
        own = torch.default_generator, *torch.cuda.default_generators
        return any(value is each for each in own)
    if isinstance(value, random.Random):
        return value is getattr(random, "_inst", None)
    mtrand: Any = sys.modules.get("numpy.random.mtrand")
    return mtrand is not None and value is mtrand._rand


def inside(value: Any) -> Iterator[Any]:
    """All that a value holds, itself too, each once."""
    seen: dict[int, Any] = {}
    ahead = [value]
    while ahead:
        each = ahead.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            yield each
            ahead += parts_of(each)


def parts_of(value: Any) -> list[Any]:
    """What an object holds or names itself, without what is plain."""
    if isinstance(value, ITSELF):
        return []
    found: list[Any] = []
    if isinstance(value, types.FunctionType):
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        found = [*defaults, *(each for _, _, each in names_of(value))]
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


def names_of(
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
        ahead += [vars(each)] if is_users_file(each) else []
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
            if is_users_file(each):
                ahead.append(vars(each))
            if name in names and (is_own or isinstance(each, (*WITH_STATE, *_FUNCTIONS))):
                yield names, name, each


def _is_torchs(function: types.FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] == "torch"


def is_users_file(value: Any) -> bool:
    """Returns whether a Python module is the user's."""
    if not isinstance(value, types.ModuleType):
        return False
    file = getattr(value, "__file__", None)
    return file is not None and not source_files.is_installed(file)


def methods_of(cls: type) -> Iterator[types.FunctionType]:
    """Returns the methods of the user's classes."""
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
