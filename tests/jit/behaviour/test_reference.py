"""With JIT_AMP_VERIFY=1 each lowered program is run beside eager, on the first call's arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import jit_amp


def draws(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.rand_like(x) + x @ x


def writes(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
    x.add_(1)
    return y


@torch.library.custom_op("jit_amp_tests::noise", mutates_args=())
def noise(x: Tensor) -> Tensor:
    return torch.rand_like(x)


def draws_by_an_operator_of_a_library(x: Tensor):
    """It runs in a node that holds a graph: what autocast does to it is unknown."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.ops.jit_amp_tests.noise(x) + x @ x


@pytest.mark.parametrize("drawing", [draws, draws_by_an_operator_of_a_library])
def test_random_numbers_are_drawn_once(drawing: Callable[[Tensor], Tensor]) -> None:
    x = torch.rand(3, 3)
    torch.manual_seed(0)
    expected = drawing(x)
    torch.manual_seed(0)
    assert torch.equal(jit_amp.script(drawing)(x), expected)


def test_writes_are_done_once() -> None:
    x = torch.rand(3, 3)
    before = x.clone()
    jit_amp.script(writes)(x)
    assert torch.equal(x, before + 1)
