"""Exceptions that leave a scope."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import (
    AMBIENTS,
    DEFAULT,
    assert_same,
    autocast_state,
    known_warnings_ignored,
    matrix,
)
from .test_python import seen

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def fails_in_the_operator(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ (x[:2] if fail else x)


def fails_two_deep(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = seen(x)
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", dtype=torch.bfloat16):
            b = torch.einsum("ij,jk->ik", x, x)
            if fail:
                raise ValueError("no")
            c = seen(x)
    return a, b, c, seen(x)


def fails_in_a_callee(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.float16):
        a = fails_two_deep(x, fail)
    return a, x @ x


def fails_in_a_loop(x: Tensor, fail: bool):
    y = x
    for i in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if i == 2:
                assert not fail, "no"
            y = x @ y
        y = y.float()
    return y, seen(x)


@torch.jit.ignore
def fails_in_python(x: Tensor, fail: bool) -> Tensor:
    if fail:
        with torch.autocast("cpu", dtype=torch.float16):
            raise KeyError("no")
    return x @ x


def fails_in_ignored_python(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            a = fails_in_python(x, False)
        b = fails_in_python(x, fail)
    return a, b, fails_in_python(x, False)


def fails_in_a_task(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one = torch.jit.fork(fails_in_a_callee, x, fail)
        two = torch.jit.fork(task_that_fails, x, fail)
        a = x @ x
    return a, torch.jit.wait(one), torch.jit.wait(two), seen(x)


def task_that_fails(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.jit.wait(torch.jit.fork(fails_in_a_loop, x, fail))


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", matrix(2))

    def method(self, x: Tensor, fail: bool):
        with torch.autocast("cpu", enabled=False):
            y = x @ self.weight
            if fail:
                raise RuntimeError("no")
        return y, x @ self.weight

    def forward(self, x: Tensor, fail: bool):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.method(x, fail), seen(x)


@pytest.mark.parametrize("ambient", DEFAULT)
@pytest.mark.parametrize(
    "function",
    [
        fails_in_the_operator,
        fails_two_deep,
        fails_in_a_callee,
        fails_in_a_loop,
        fails_in_ignored_python,
        fails_in_a_task,
        Fails(),
    ],
    ids=lambda function: getattr(function, "__name__", type(function).__name__),
)
def test_after_an_exception_the_state_is_restored_and_the_next_call_is_right(
    function: Callable[..., Any], ambient: str
) -> None:
    scripted, x = jit_amp.script(function), matrix()
    with known_warnings_ignored(), AMBIENTS[ambient]():
        expected = function(x, False)
        state = autocast_state()
        for fail in (True, False, True, True, False, False):
            if fail:
                with pytest.raises((RuntimeError, torch.jit.Error)):
                    scripted(x, True)
            else:
                assert_same(scripted(x, False), expected, ambient)
            assert autocast_state() == state


def always_fails(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        raise ValueError("always")


def test_an_exception_has_its_type_and_text() -> None:
    with pytest.raises(torch.jit.Error, match="ValueError: always"):
        jit_amp.script(always_fails)(matrix())
