"""Functions that plain torch.jit.script has compiled, in what jit_amp makes of a program."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same, saved_and_loaded


def under_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def entering(*args: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return function(*args)

    return entering


@under_autocast
def product(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


def calls_product(x: Tensor, y: Tensor) -> Tensor:
    return product(x, y)


class Calls(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return calls_product(x, x)


@pytest.mark.filterwarnings("ignore:The input to trace is already a ScriptModule")
@pytest.mark.parametrize("make", [jit_amp.script, lambda m: jit_amp.trace(m, (torch.rand(2, 2),))])
def test_a_forgotten_decorator_of_a_function_that_is_called_is_refused(make: Any) -> None:
    plain = torch.jit.script(Calls())
    with pytest.raises(jit_amp.AutocastError, match="JA118"):
        make(plain)


@jit_amp.ignore_amp
def ignoring(x: Tensor) -> Tensor:
    return x @ x


@torch.jit.script_if_tracing
def if_tracing(x: Tensor) -> Tensor:
    return ignoring(x)


class CallsIfTracing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return if_tracing(x)


def test_what_is_below_script_if_tracing_is_compiled_anew() -> None:
    x, module = torch.rand(2, 2), CallsIfTracing()
    torch.jit.script(module)
    for _ in range(3):
        assert_same(jit_amp.script(module)(x), module(x), "after PyTorch has compiled it")


class CallsIgnoring(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return ignoring(x)


def test_a_function_of_a_file_is_not_the_one_that_has_its_name_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a process that has loaded it, and in which PyTorch has compiled the function."""
    x, module = torch.rand(2, 2), CallsIgnoring()
    loaded = saved_and_loaded(jit_amp.script(module))
    (call,) = loaded.graph.findAllNodes("prim::CallFunction")
    name = next(call.inputs()).type().annotation_str
    known = weakref.WeakKeyDictionary({ignoring: name})
    monkeypatch.setattr(torch.jit._state, "_jit_caching_layer", known)
    for _ in range(3):
        assert_same(jit_amp.script(loaded)(x), module(x), "a file")


@jit_amp.ignore_amp
@torch.jit.script_if_tracing
def ignored_if_tracing(x: Tensor) -> Tensor:
    return x @ x


class CallsIgnoredIfTracing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return ignored_if_tracing(x)


class Called(nn.Linear):
    def __call__(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result: Tensor = super().__call__(x)
        return result


class HasCalled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = Called(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return self.linear(x)


@pytest.mark.parametrize("module", [CallsIgnoredIfTracing, HasCalled])
def test_what_stands_around_code_that_pytorch_has_compiled_is_refused(module: Any) -> None:
    plain = torch.jit.script(module())
    with pytest.raises(jit_amp.AutocastError, match="JA118"):
        jit_amp.script(plain)
