"""Everything that is frozen is loaded, and run, by a process that never imported jit_amp.

``watched`` wraps ``jit_amp.freeze``: what it returns is loaded there too. The first calls of such a
module by a test are then made there as well, and give the same, bit for bit.
tests/jit/conftest.py does so for every test of this folder.
"""

from __future__ import annotations

import functools
import io
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from stock import Gone, Stock
from torch import Tensor
from torch.jit import RecursiveScriptModule

from .support import assert_same, fresh, tensors_of, tree_map

# What another process has to load as well: operators and classes of a test's own.
_OF_OTHERS = re.compile(
    r"Unknown builtin op: (?!aten::|prim::|jit_amp::)|Unknown type name '?__torch__\.torch\.classes"
)
CALLS = 4  # of one module: PyTorch's executor has optimized it by the third
_call = RecursiveScriptModule.__call__


class Elsewhere:
    """The process, and what it has loaded.

    Attributes:
        loaded: modules that were loaded there.
        run: calls that gave the same there.
    """

    def __init__(self) -> None:
        self.stock: Stock | None = None
        self.numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.graphs: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.with_state: weakref.WeakSet[Any] = weakref.WeakSet()  # more than constants
        self.left: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # calls
        self.is_on = False  # while a test of this folder runs
        self.loaded = 0
        self.run = 0
        self._pid = os.getpid()

    def stop(self) -> None:
        if self.stock is not None:
            self.stock.stop()
            self.stock = None

    def load(self, module: Any) -> None:
        """Has the process load a module that was just frozen."""
        file = io.BytesIO()
        torch.jit.save(module, file)
        if self.stock is None:
            self.stock = Stock([], threads=torch.get_num_threads())
        try:
            number = self.stock.load(file.getvalue())
        except Gone:
            self.stock = None
            self.numbers.clear()
            raise
        except RuntimeError as error:
            if _OF_OTHERS.search(str(error)):
                return
            raise
        self.loaded += 1
        if not module._c._has_method("forward"):  # it is `forward` that is called there
            return
        self.numbers[module] = number
        self.graphs[module] = str(module.graph)
        self.left.setdefault(module, CALLS)
        if _has_state(module):
            self.with_state.add(module)
        stock = self.stock
        weakref.finalize(module, self._forget, stock, number)

    def _forget(self, stock: Stock, number: int) -> None:
        if self.stock is stock and os.getpid() == self._pid:
            stock.forget(number)

    def runs(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call can be made there: one of the tests' own thread, outside any autocast
        and any transform, of plain tensors."""
        return (
            self.is_on
            and module in self.numbers
            and self.left[module] > 0
            and self.stock is not None
            and os.getpid() == self._pid
            and threading.current_thread() is threading.main_thread()
            and not any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))
            and self.graphs[module] == str(module.graph)  # PyTorch optimizes some in place
            and not torch._C._jit_can_fuse_on_cpu()
            and not torch._C._jit_llga_enabled()
            and not torch._C._is_tracing()
            and torch._C._len_torch_dispatch_stack() == 0
            and torch._C._len_torch_function_stack() == 0
            and torch._C._functorch.maybe_current_level() is None
            and not _has_named_tuples([*args, *kwargs.values()])  # whose class it does not know
            and all(
                type(each) in (Tensor, torch.nn.Parameter)
                and each.device.type == "cpu"
                and not each.is_inference()
                for each in tensors_of([*args, *kwargs.values()])
            )
        )

    def call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the module gives; and that it gives the same there."""
        given = fresh((args, kwargs))
        self.left[module] -= 1
        if module in self.with_state:  # which the test may have changed
            self.load(module)
        random = torch.get_rng_state()
        try:
            result = _call(module, *args, **kwargs)
        except Exception:
            self.numbers.pop(module, None)  # it may have written to its state by then
            raise
        if not torch.equal(random, torch.get_rng_state()) or not _is_data(result):
            self.numbers.pop(module, None)
            return result
        assert self.stock
        there = self.stock.call(self.numbers[module], *given[0], **given[1])
        where = "in a process without jit_amp"
        assert_same(tree_map(_numbers, there), tree_map(_numbers, result), where)
        for a, b in zip(tensors_of(there), tensors_of(result), strict=True):
            assert torch.equal(a.isnan(), b.isnan()), where
        self.run += 1
        return result


def _has_named_tuples(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_named_tuples(each) for each in value.values())
    if isinstance(value, (list, tuple)):
        return hasattr(value, "_fields") or any(_has_named_tuples(each) for each in value)
    return False


def _has_state(module: Any) -> bool:
    return any(
        each._concrete_type.get_attributes() or torch._C.BufferDict(each._c).items()
        for each in module.modules()
    )


def _numbers(t: Tensor) -> Tensor:
    """What is equal to itself, with what assert_same compares besides."""
    found = t.detach().masked_fill(t.detach().isnan(), 0)
    return found.requires_grad_(t.requires_grad)


def _is_data(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_data(each) for each in value)
    if isinstance(value, dict):
        return all(_is_data(each) for each in value.values())
    if isinstance(value, Tensor):
        return value.layout == torch.strided and not value.is_nested
    return isinstance(value, (bool, int, float, complex, str, type(None)))


def watched(function: Callable[..., Any], elsewhere: Elsewhere) -> Callable[..., Any]:
    """`jit_amp.freeze`, whose results are loaded there."""

    @functools.wraps(function)
    def watching(*args: Any, **kwargs: Any) -> Any:
        frozen = function(*args, **kwargs)
        if threading.active_count() == 1 and elsewhere.is_on:
            elsewhere.load(frozen)
        return frozen

    return watching


@contextmanager
def calls_are_made(elsewhere: Elsewhere) -> Iterator[None]:
    """Calls of what was loaded there are made there too."""

    def calling(self: Any, *args: Any, **kwargs: Any) -> Any:
        if elsewhere.runs(self, args, kwargs):
            return elsewhere.call(self, args, kwargs)
        elsewhere.numbers.pop(self, None)
        return _call(self, *args, **kwargs)

    RecursiveScriptModule.__call__ = calling
    yield
    RecursiveScriptModule.__call__ = _call
