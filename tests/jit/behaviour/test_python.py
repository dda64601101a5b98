"""Scopes around calls of Python."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import (
    AMBIENTS,
    DEFAULT,
    assert_gradient_parity,
    assert_parity,
    assert_same,
    autocast_state,
    dtypes_of,
    known_warnings_ignored,
    matrix,
)
from .test_calls import lowered_script

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@torch.jit.ignore
def seen(x: Tensor) -> tuple[bool, bool, Tensor, Tensor, Tensor]:
    cpu, cuda = torch.get_autocast_dtype("cpu"), torch.get_autocast_dtype("cuda")
    return (
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        x.to(cpu),
        x.to(cuda),
        x @ x,
    )


def seen_from_a_callee(x: Tensor):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return seen(x)


def sees(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        a, b = seen(x), seen_from_a_callee(x)
        with torch.autocast("cpu", enabled=False):
            c, d = seen(x), seen_from_a_callee(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                e = seen(x)
        f = seen(x)
    return a, b, c, d, e, f, seen(x)


class Sees(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", matrix(2))

    @torch.jit.ignore
    def look(self, x: Tensor) -> tuple[bool, Tensor]:
        return torch.is_autocast_enabled("cpu"), x @ self.weight

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            a = self.look(x)
            task = torch.jit.fork(self.through_a_method, x)
        with torch.autocast("cpu", enabled=False):
            b = self.through_a_method(x)
        return a, b, self.look(x), torch.jit.wait(task)

    def through_a_method(self, x: Tensor):
        return self.look(x)


def test_ignored_python_sees_the_scope() -> None:
    results = assert_parity(sees, (matrix(),))
    assert [each[0] for each in results["none"]] == [True, True, False, False, True, True, False]
    assert [each[2].dtype for each in results["none"]] == [F16, F16, F16, F16, BF16, F16, BF16]
    assert [each[4].dtype for each in results["none"]] == [F16, F16, F32, F32, BF16, F16, F32]


def test_an_ignored_method_sees_the_scope() -> None:
    results = assert_parity(Sees(), (matrix(),))
    assert [each[0] for each in results["none"]] == [True, False, False, True]
    assert dtypes_of(results["none"]) == [F16, F32, F32, F16]


class DecoratedAboveIgnored(nn.Module):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    @torch.jit.ignore
    def square(self, x: Tensor) -> Tensor:
        return x @ x

    def forward(self, x: Tensor):
        return self.square(x), x @ x


def test_an_ignored_method_keeps_its_decorator() -> None:
    assert_parity(DecoratedAboveIgnored(), (torch.randn(4, 4),))


@torch.jit.ignore
def cache_seen(x: Tensor) -> bool:
    return torch.is_autocast_cache_enabled()


def sees_the_cache(x: Tensor):
    with torch.autocast("cpu", cache_enabled=False):
        a = cache_seen(x)
        with torch.autocast("cpu", cache_enabled=True):
            b = cache_seen(x)
        with torch.autocast("cpu"):
            c = cache_seen(x)
    return a, b, c, cache_seen(x)


def test_ignored_python_sees_whether_the_cache_is_on() -> None:
    results = assert_parity(sees_the_cache, (matrix(),))
    assert results["none"] == (False, True, False, True)


@torch.jit.ignore
def opens_scopes_of_its_own(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = lowered_script(x)[0][0]
    with torch.autocast("cpu", enabled=False):
        b = x @ x
    return a, b


def python_that_opens_scopes(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        inside = opens_scopes_of_its_own(x)
        after = x @ x
    return inside, after, opens_scopes_of_its_own(x), x @ x


def test_ignored_python_may_open_scopes_and_call_scripted_code() -> None:
    results = assert_parity(python_that_opens_scopes, (matrix(),))
    assert dtypes_of(results["none"]) == [BF16, F32, F16, BF16, F32, F32]


@torch.jit.unused
def never(x: Tensor) -> Tensor:
    return x @ x


def calls_unused_python(x: Tensor, call: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = never(x) if call else x @ x
    return y, x @ x


def test_unused_python_is_no_obstacle_and_raises_when_it_is_called() -> None:
    scripted = jit_amp.script(calls_unused_python)
    x = matrix()
    for name in DEFAULT:
        with known_warnings_ignored(), AMBIENTS[name]():
            state = autocast_state()
            with pytest.raises(torch.jit.Error, match="annotated to be ignored and cannot be run"):
                scripted(x, True)
            assert autocast_state() == state
            assert_same(scripted(x, False), calls_unused_python(x, False), name)


class Multiply(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x @ y

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return gradient @ y.t(), x.t() @ gradient


class MultiplyInFloat32(Multiply):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x @ y


@torch.jit.ignore
def multiply(x: Tensor, y: Tensor) -> Tensor:
    return Multiply.apply(x, y)


@torch.jit.ignore
def multiply_in_float32(x: Tensor, y: Tensor) -> Tensor:
    return MultiplyInFloat32.apply(x, y)


def custom_gradients(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = multiply(x, y)
        b = multiply_in_float32(x @ y, y)
        with torch.autocast("cpu", enabled=False):
            c = multiply(x, y)
    return a, b, c


def leaves() -> tuple[Tensor, Tensor]:
    return matrix().requires_grad_(), matrix(1).requires_grad_()


def test_autograd_functions_in_ignored_python_are_in_the_scope() -> None:
    results = assert_parity(custom_gradients, leaves())
    assert dtypes_of(results["none"]) == [BF16, F32, F32]


def test_the_backward_of_autograd_functions_in_ignored_python_is_eagers() -> None:
    assert_gradient_parity(custom_gradients, leaves(), ambients=["none", "cpu", "cpu_off"])


@torch.jit.ignore
def stepped(weight: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return weight.add_(1.0)


def around_a_step(x: Tensor, weight: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = x @ weight
        stepped(weight)
        return first, x @ weight


def test_a_step_in_a_python_function_leaves_eagers_cast_stale() -> None:
    scripted = jit_amp.script(around_a_step)
    for _ in range(3):
        x, weight = torch.randn(2, 8), torch.randn(8, 8, requires_grad=True)
        other = weight.detach().clone().requires_grad_()
        with torch.no_grad():
            assert_same(scripted(x, weight), around_a_step(x, other), "without gradients")
