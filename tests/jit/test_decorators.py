"""`torch.autocast` as a decorator: a scope around the body."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from .support import assert_parity, known_warnings_ignored, tensors_of

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@torch.autocast("cpu", dtype=torch.bfloat16)
def decorated(x: Tensor, y: Tensor):
    return x @ y


@torch.autocast("cpu", dtype=torch.bfloat16)
@torch.autocast("cpu", enabled=False)
def decorated_twice(x: Tensor, y: Tensor):
    return x @ y


@torch.autocast("cpu", dtype=torch.float16)
def decorated_with_a_scope_inside(x: Tensor, y: Tensor):
    a = x @ y
    with torch.autocast("cpu", enabled=False):
        b = x @ y
    with torch.autocast("cpu"):
        c = x @ y
    return a, b, c


with known_warnings_ignored():

    @torch.autocast("cuda", dtype=torch.float16)
    def decorated_for_another_device(x: Tensor, y: Tensor):
        return x @ y


def calls_decorated_helpers(x: Tensor, y: Tensor):
    a = decorated(x, y)
    with torch.autocast("cpu", dtype=torch.float16):
        b = decorated(x, y)
        c = x @ y
    return a, b, c, decorated_twice(x, y), x @ y


@pytest.mark.parametrize(
    ("function", "dtypes"),
    [
        (decorated, [BF16]),
        (decorated_twice, [F32]),
        (decorated_with_a_scope_inside, [F16, F32, F16]),
        (decorated_for_another_device, [F32]),
        (calls_decorated_helpers, [BF16, BF16, F16, F32, F32]),
    ],
)
def test_a_decorator_is_a_scope_around_the_function(
    function: Callable[..., Any], dtypes: list[torch.dtype]
) -> None:
    results = assert_parity(function, (torch.randn(3, 3), torch.randn(3, 3)))
    assert [t.dtype for t in tensors_of(results["none"])] == dtypes


class DecoratedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3).requires_grad_(False)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x: Tensor):
        return self.linear(x), self.outside(x)

    @torch.autocast("cpu", enabled=False)
    def outside(self, x: Tensor):
        return self.linear(x)


class AroundDecorated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = DecoratedForward()

    def forward(self, x: Tensor):
        return self.inner(x), self.inner.linear(x)


@pytest.mark.parametrize(
    ("module", "dtypes"), [(DecoratedForward, [BF16, F32]), (AroundDecorated, [BF16, F32, F32])]
)
def test_a_decorator_is_a_scope_around_the_method(
    module: type[nn.Module], dtypes: list[torch.dtype]
) -> None:
    results = assert_parity(module(), (torch.randn(3, 3),))
    assert [t.dtype for t in tensors_of(results["none"])] == dtypes


def test_scripting_leaves_a_decorated_function_and_its_class_as_they_were() -> None:
    forward = DecoratedForward.forward
    module, x = AroundDecorated(), torch.randn(3, 3)
    jit_amp.script(module)
    jit_amp.script(decorated)
    assert DecoratedForward.forward is forward
    assert "forward" not in vars(module.inner)
    assert module(x)[0][0].dtype == BF16
    assert decorated(x, x).dtype == BF16
