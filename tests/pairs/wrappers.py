"""What trainers and decorators put around a model's code, in the shapes that they have."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from jit.support import tree_map
from torch import nn

Function = Callable[..., Any]
M = TypeVar("M", bound=nn.Module)


def amp() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def in_float32(value: Any) -> Any:
    return tree_map(lambda t: t.float() if t.is_floating_point() else t, value)


# Accelerate: an instance's forward.


class OutputsInFloat32:
    """A callable object around a function, as Accelerate's ConvertOutputsToFp32."""

    def __init__(self, function: Function) -> None:
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return in_float32(self.function(*args, **kwargs))


def outputs_in_float32(function: Function) -> Function:
    converted = OutputsInFloat32(function)

    def forward(*args: Any, **kwargs: Any) -> Any:
        return converted(*args, **kwargs)

    vars(forward)["__wrapped__"] = converted
    return forward


def prepare(module: M) -> M:
    """Binds functions anew, as Accelerate does for a forward that is a method."""
    under = types.MethodType(amp()(module.forward.__func__), module)
    module.forward = types.MethodType(outputs_in_float32(under.__func__), module)
    return module


def prepare_bound(module: M) -> M:
    """The same around the bound method."""
    module.forward = outputs_in_float32(amp()(module.forward))
    return module


# Fabric: a module around the module.


class PrecisionModule(nn.Module):
    """Enters the precision's context, and casts the results back."""

    def __init__(self, module: nn.Module, context: Callable[[], Any] = amp) -> None:
        super().__init__()
        self.module, self.context = module, context

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self.context():
            output = self.module(*args, **kwargs)
        return in_float32(output)


# Decorators.


def in_own_context(function: Function) -> Function:
    """Enters what the module's `ctx` gives."""

    @functools.wraps(function)
    def inside(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.ctx():
            return function(self, *args, **kwargs)

    return inside


def by_attribute(function: Function) -> Function:
    """Has autocast by `getattr`."""

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with getattr(torch, "autocast")("cpu", dtype=torch.bfloat16):  # noqa: B009
            return function(*args, **kwargs)

    return inside


def by_exit_stack(function: Function) -> Function:
    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            stack.enter_context(amp())
            return function(*args, **kwargs)

    return inside


def auto_fp16(*names: str) -> Callable[[Function], Function]:
    """Casts arguments, and enters autocast where the module says so, as mmengine's."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def inside(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not getattr(self, "fp16_enabled", False):
                return function(self, *args, **kwargs)
            with amp():
                return in_float32(function(self, *[each.bfloat16() for each in args], **kwargs))

        return inside

    return decorate


class Proxy:
    """A callable object in a function's place, as wrapt's decorators make it."""

    def __init__(self, wrapped: Function, instance: Any = None) -> None:
        self.__wrapped__, self._instance = wrapped, instance

    def __get__(self, instance: Any, owner: type | None = None) -> Proxy:
        return Proxy(self.__wrapped__.__get__(instance, owner), instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with amp():
            return self.__wrapped__(*args, **kwargs)


class CallableDecorator:
    """A decorator that is a class, and knows nothing of methods."""

    def __init__(self, function: Function) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with amp():
            return self.function(*args, **kwargs)


# Other instance attributes.


def under(function: Function, *args: Any, **kwargs: Any) -> Any:
    with amp():
        return function(*args, **kwargs)


def bind_partial(module: M) -> M:
    module.forward = functools.partial(under, module.forward)
    return module


def bind_method(module: M) -> M:
    module.forward = types.MethodType(amp()(type(module).forward), module)
    return module


def bind_closure(module: M) -> M:
    forward = module.forward
    module.forward = lambda *args: under(forward, *args)
    return module


# Compiled where jit_amp is installed.


def script_if_installed(module: nn.Module) -> Any:
    is_installed = torch.jit.script.__module__.startswith("jit_amp")
    return torch.jit.script(module) if is_installed else module
