"""What fails in the middle of a call leaves the thread's state, and the next call is right."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import jit_amp

from ..support import AMBIENTS, assert_same, autocast_state

BF16 = torch.bfloat16
HUGE = 2**45  # rows that no memory holds


def cast_then_multiply(x: Tensor, w: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = w @ w
        with torch.autocast("cpu", enabled=False):
            z = w @ w
        return F.linear(x, y), z, torch.is_autocast_enabled("cpu")


def wide_cast_in_a_branch(x: Tensor, w: Tensor):
    y = w
    if x.size(0) > 2:
        with torch.autocast("cpu", dtype=torch.float16):
            for _ in range(2):
                y = torch.cumsum(x.half(), 1)  # to float32
    with torch.autocast("cpu"):
        return y, w @ w


library = torch.library.Library("jit_amp_faults", "DEF")
library.define("may_fail(Tensor x) -> Tensor")


@torch.library.impl(library, "may_fail", "CPU")
def may_fail(x: Tensor) -> Tensor:
    if bool(x.abs().max() > 1e3):
        raise ValueError("too much")
    return x.clone()


def custom_operator(x: Tensor, w: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        with torch.autocast("cpu", enabled=False):
            y = torch.ops.jit_amp_faults.may_fail(y)
        return y @ w


def good(function: Callable[..., Any]) -> tuple[Tensor, Tensor]:
    return torch.ones(2, 4), torch.randn(4, 4)


BAD: dict[Callable[..., Any], tuple[Tensor, str]] = {
    cast_then_multiply: (torch.ones(1, 4).expand(HUGE, 4), "allocate"),
    wide_cast_in_a_branch: (torch.ones(1, 1).expand(HUGE, 4), "allocate"),
    custom_operator: (torch.full((2, 4), 1e4), "too much"),
}


@pytest.mark.parametrize("first", [True, False], ids=["in the first call", "later"])
@pytest.mark.parametrize("ambient", ["none", "cpu_float16", "cpu_off"])
@pytest.mark.parametrize("function", BAD)
def test_an_operator_or_a_cast_fails(
    function: Callable[..., Any], ambient: str, first: bool
) -> None:
    lowered, (x, w) = jit_amp.script(function), good(function)
    bad, message = BAD[function]
    with AMBIENTS[ambient]():
        before = autocast_state()
        if not first:
            lowered(x, w)
        for _ in range(3):
            with pytest.raises((RuntimeError, ValueError), match=message):
                function(bad, w)
            with pytest.raises((RuntimeError, ValueError), match=message):
                lowered(bad, w)
            assert autocast_state() == before
            assert_same(lowered(x, w), function(x, w), "after the failure")


interruptions: list[BaseException] = []


@torch.jit.ignore
def interrupted(x: Tensor) -> Tensor:
    if interruptions:
        raise interruptions.pop()
    return x


def calls_python(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = interrupted(x @ x)
        return y @ y, torch.is_autocast_enabled("cpu")


@pytest.fixture
def nothing_left() -> Iterator[None]:
    yield
    interruptions.clear()


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("none left")])
def test_the_first_run_is_interrupted(error: BaseException) -> None:
    lowered, x = jit_amp.script(calls_python), torch.randn(4, 4)
    before = autocast_state()
    for _ in range(3):
        interruptions.append(error)
        with pytest.raises(BaseException, match=str(error) or None):
            lowered(x)
        assert not interruptions
        assert autocast_state() == before
        assert_same(lowered(x), calls_python(x), "after the interruption")
