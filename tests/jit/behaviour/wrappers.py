"""What trainers and decorators of one's own put around `forward`, of the same shape."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

REDUCED = torch.autocast("cpu", dtype=torch.bfloat16)  # it cannot be entered within itself
Function = Callable[..., Any]


def in_float32(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    if isinstance(value, dict):
        return {key: in_float32(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        cast = map(in_float32, value)
        return type(value)(*cast) if hasattr(value, "_fields") else type(value)(cast)
    return value


class ConvertOutputsToFp32:
    """Accelerate's, which jit_amp knows by its name."""

    __module__ = "accelerate.utils.operations"

    def __init__(self, model_forward: Function) -> None:
        self.model_forward = model_forward
        functools.update_wrapper(self, model_forward)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return in_float32(self.model_forward(*args, **kwargs))


class InFloat32(ConvertOutputsToFp32):
    """One that jit_amp does not know."""

    __module__ = __name__


def results_in_float32(function: Function, cls: type = ConvertOutputsToFp32) -> Function:
    called = cls(function)

    def forward(*args: Any, **kwargs: Any) -> Any:
        return called(*args, **kwargs)

    forward.__wrapped__ = called  # type: ignore[attr-defined]
    return forward


def prepared(module: nn.Module, cls: type = ConvertOutputsToFp32) -> nn.Module:
    """As ``Accelerator(mixed_precision="bf16").prepare`` returns a module."""
    module = copy.deepcopy(module)
    reduced = torch.autocast("cpu", dtype=torch.bfloat16)
    forward = reduced(module.forward.__func__)  # type: ignore[operator]
    module.forward = types.MethodType(forward, module)
    forward = results_in_float32(module.forward.__func__, cls)  # type: ignore[attr-defined]
    module.forward = types.MethodType(forward, module)
    return module


def prepared_bound(module: nn.Module) -> nn.Module:
    """As it does for a model whose `forward` is no method."""
    module = copy.deepcopy(module)
    module.forward = results_in_float32(torch.autocast("cpu", dtype=torch.bfloat16)(module.forward))
    return module


def entering(scope_of: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """A decorator that enters what a function gives for the module."""

    def decorator(function: Function) -> Function:
        @functools.wraps(function)
        def inside(self: Any, x: Any) -> Any:
            with scope_of(self):
                return function(self, x)

        return inside

    return decorator


def own_scope(function: Function) -> Function:
    @functools.wraps(function)
    def inside(self: Any, x: Any) -> Any:
        with self.scope():
            return function(self, x)

    return inside


def scope_of_a_part(function: Function) -> Function:
    @functools.wraps(function)
    def inside(self: Any, x: Any) -> Any:
        precision = self.trainer.precision
        context = precision.context()
        with context:
            return function(self, x)

    return inside


def scope_in_a_dictionary(function: Function) -> Function:
    @functools.wraps(function)
    def inside(*args: Any) -> Any:
        with args[0].scopes["half"]():
            return function(*args)

    return inside


def by_its_name(function: Function) -> Function:
    @functools.wraps(function)
    def inside(self: Any, x: Any) -> Any:
        with getattr(torch, "autocast")("cpu", dtype=torch.bfloat16):  # noqa: B009
            return function(self, x)

    return inside


def imported_inside(function: Function) -> Function:
    @functools.wraps(function)
    def inside(self: Any, x: Any) -> Any:
        from torch import autocast

        with autocast("cpu", dtype=torch.bfloat16):
            return function(self, x)

    return inside


def imported_by_name(function: Function) -> Function:
    @functools.wraps(function)
    def inside(self: Any, x: Any) -> Any:
        with importlib.import_module("torch.amp").autocast("cpu", dtype=torch.bfloat16):
            return function(self, x)

    return inside


def in_a_stack(function: Function) -> Function:
    @functools.wraps(function)
    def inside(self: Any, x: Any) -> Any:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.scope())
            return function(self, x)

    return inside


def of_an_argument(function: Function) -> Function:
    @functools.wraps(function)
    def inside(self: Any, x: Any, scope: Any = None) -> Any:
        with scope or contextlib.nullcontext():
            return function(self, x)

    return inside


def by_hand(function: Function) -> Function:
    @functools.wraps(function)
    def inside(self: Any, x: Any) -> Any:
        before = torch.is_autocast_enabled("cpu")
        torch.set_autocast_enabled("cpu", True)
        try:
            return function(self, x)
        finally:
            torch.set_autocast_enabled("cpu", before)

    return inside


class Entering(contextlib.ContextDecorator):
    def __enter__(self) -> None:
        REDUCED.__enter__()

    def __exit__(self, *exception: Any) -> None:
        REDUCED.__exit__(*exception)


class EnteringToo(torch.no_grad):
    """A gradient mode that does more."""

    def __enter__(self) -> None:
        super().__enter__()
        REDUCED.__enter__()

    def __exit__(self, *exception: Any) -> None:
        REDUCED.__exit__(*exception)
        super().__exit__(*exception)


class Called:
    """A decorator that is an object, and a method where it stands in a class."""

    def __init__(self, function: Function) -> None:
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        with REDUCED:
            return self.function(*args)

    def __get__(self, instance: Any, owner: Any) -> Any:
        return types.MethodType(self, instance)


class Proxy:
    """As wrapt's: it says that it is what it stands for."""

    def __init__(self, function: Function, wrapper: Function) -> None:
        object.__setattr__(self, "_self_function", function)
        object.__setattr__(self, "_self_wrapper", wrapper)

    @property
    def __class__(self) -> Any:
        return type(self._self_function)

    @property
    def __wrapped__(self) -> Any:
        return self._self_function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._self_function, name)

    def __call__(self, *args: Any) -> Any:
        return self._self_wrapper(self._self_function, *args)

    def __get__(self, instance: Any, owner: Any) -> Any:
        bound = self._self_function.__get__(instance, owner)
        return self if instance is None else Proxy(bound, self._self_wrapper)


def proxied(function: Function) -> Any:
    def enters(function: Function, *args: Any) -> Any:
        with REDUCED:
            return function(*args)

    return Proxy(function, enters)


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    yield


def harmless(function: Function) -> Function:
    @functools.wraps(function)
    def inside(self: Any, x: Any) -> Any:
        with named(type(self).__name__):
            return function(self, x)

    return inside
