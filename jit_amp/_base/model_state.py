"""What a model holds, to bring it back: objects stay the same objects, and hold what they held.

That is all that one gets to from the model by attributes and containers: modules, tensors, lists,
dictionaries, sets, deques, generators of random numbers, arrays of NumPy, and plain objects. Files,
and what C++ holds, are not brought back.
"""

from __future__ import annotations

import collections
import functools
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from jit_amp import _C

_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_PLAIN_TENSORS = (Tensor, nn.Parameter, getattr(nn, "Buffer", Tensor))


def kept(model: nn.Module) -> _C.AtExit:
    """The model, its parameters and gradients included, is afterwards what it was; inside, there
    are no gradients yet."""
    state = _State()
    state.keep(model)
    parameters = list(model.parameters())  # those of scripted submodules too
    gradients = [each.grad for each in parameters]
    kept_gradients = [None if each is None else each.clone() for each in gradients]

    def drop_gradients() -> None:
        for parameter in parameters:
            parameter.grad = None

    def bring_back() -> None:
        with torch.no_grad():
            state.bring_back()
            for parameter, gradient, was in zip(parameters, gradients, kept_gradients, strict=True):
                parameter.grad = gradient
                if gradient is not None and was is not None:
                    gradient.copy_(was)

    return _C.AtExit([bring_back], drop_gradients)


class _State:
    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []
        self._seen: dict[int, Any] = {}  # and so no address is used again
        self._left: list[Any] = []

    def keep(self, value: Any) -> None:
        self._left.append(value)
        while self._left:
            each = self._left.pop()
            if id(each) not in self._seen and not isinstance(each, _CODE):
                self._seen[id(each)] = each
                self._look(each)

    def bring_back(self) -> None:
        for undo in self._undo:
            undo()

    def _look(self, value: Any) -> None:
        if isinstance(value, Tensor):
            self._undo.append(_tensor(value))
        elif isinstance(value, torch.jit.ScriptModule):
            self._left += [*value.parameters(), *value.buffers()]
        elif isinstance(value, types.MethodType):
            self._left.append(value.__self__)
        elif isinstance(value, (list, collections.deque)):
            self._undo.append(_items(value, list(value)))
            self._left += value
        elif isinstance(value, (tuple, set, frozenset)):
            if isinstance(value, set):
                self._undo.append(_members(value, set(value)))
            self._left += value
        elif isinstance(value, dict):
            self._undo.append(_mapping(value, dict(value)))
            self._left += value.values()
        else:
            self._undo += _random(value)
        if not isinstance(value, torch.jit.ScriptModule):
            self._look_at_attributes(value)

    def _look_at_attributes(self, value: Any) -> None:
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            self._left.append(own)
        for cls in type(value).__mro__:
            for name, member in vars(cls).items() if "__slots__" in vars(cls) else ():
                if isinstance(member, types.MemberDescriptorType) and hasattr(value, name):
                    was = member.__get__(value)
                    self._undo.append(functools.partial(member.__set__, value, was))
                    self._left.append(was)


def _tensor(tensor: Tensor) -> Callable[[], object]:
    values, requires_grad = tensor.detach().clone(), tensor.requires_grad
    was = tensor.data if type(tensor) in _PLAIN_TENSORS else None

    def undo() -> None:
        if was is not None and (
            (tensor.dtype, tensor.shape, tensor.stride(), tensor.data_ptr())
            != (was.dtype, was.shape, was.stride(), was.data_ptr())
        ):
            tensor.data = was
        if not _are_same(tensor, values):
            tensor.copy_(values)
        if tensor.is_leaf and tensor.requires_grad != requires_grad:
            tensor.requires_grad_(requires_grad)

    return undo


def _are_same(a: Tensor, b: Tensor) -> bool:
    try:
        return torch.equal(a, b)
    except (RuntimeError, NotImplementedError):  # of layouts that it does not know
        return False


def _items(value: Any, were: list[Any]) -> Callable[[], object]:
    def undo() -> None:
        if len(value) != len(were) or any(a is not b for a, b in zip(value, were, strict=True)):
            value.clear()
            value.extend(were)

    return undo


def _members(value: set[Any], were: set[Any]) -> Callable[[], object]:
    def undo() -> None:
        if value != were:
            value.clear()
            value.update(were)

    return undo


def _mapping(value: dict[Any, Any], were: dict[Any, Any]) -> Callable[[], object]:
    # A subclass may forbid it, or do more.
    kind: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict

    def undo() -> None:
        if list(value) == list(were) and all(
            kind.__getitem__(value, key) is each for key, each in were.items()
        ):
            return
        kind.clear(value)
        for key, each in were.items():
            kind.__setitem__(value, key, each)

    return undo


def _random(value: Any) -> Iterator[Callable[[], object]]:
    """Generators of random numbers, and arrays of NumPy."""
    if isinstance(value, torch.Generator):
        state = value.get_state()
        yield lambda: value.set_state(state)
    elif isinstance(value, random.Random):
        python = value.getstate()
        yield lambda: value.setstate(python)
    elif numpy := sys.modules.get("numpy"):
        if isinstance(value, numpy.random.Generator):
            bits = value.bit_generator.state
            yield lambda: setattr(value.bit_generator, "state", bits)
        elif isinstance(value, numpy.random.RandomState):
            old = value.get_state()
            yield lambda: value.set_state(old)
        elif isinstance(value, numpy.ndarray) and value.flags.writeable:
            values = value.copy()
            yield lambda: numpy.copyto(value, values)
