"""Questions about autocast's state in scripted code: answered as in eager, at that point."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import jit_amp

from ..support import CUDA, DEFAULT, assert_parity, text_of


def enabled_in_a_scope(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        inside = torch.is_autocast_enabled("cpu")
        with torch.autocast("cpu", enabled=False):
            disabled = torch.is_autocast_enabled("cpu")
    return inside, disabled, torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled()


def enabled_for_cuda(x: Tensor):
    with torch.autocast("cuda", enabled=False):
        return torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled()


def dtype_in_a_scope(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        inside = x.to(torch.get_autocast_dtype("cpu"))
    return inside, x.to(torch.get_autocast_dtype("cpu")), x.to(torch.get_autocast_dtype("cuda"))


def asks_a_helper(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return dtype_in_a_scope(x), torch.is_autocast_enabled("cpu")


def branches_on_the_state(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if torch.is_autocast_enabled("cpu"):
            x = x @ x
    if torch.is_autocast_enabled("cpu"):
        x = x + 1
    return x


@pytest.mark.parametrize(
    "function",
    [enabled_in_a_scope, enabled_for_cuda, dtype_in_a_scope, asks_a_helper, branches_on_the_state],
)
def test_a_question_is_answered_as_in_eager(function) -> None:
    # Not where CUDA's autocast is switched on by hand on a machine without CUDA: jit_amp takes CUDA
    # as off there, as every torch.autocast("cuda") does.
    ambients = [name for name in DEFAULT if CUDA or not name.endswith("switched_on")]
    assert_parity(function, (torch.randn(3, 3),), ambients=ambients)


def old_question(x: Tensor) -> bool:
    with torch.autocast("cpu"):
        return torch.is_autocast_cpu_enabled()


def test_the_question_that_crashes_pytorchs_own_pass_is_answered() -> None:
    scripted = jit_amp.script(old_question)
    assert [scripted(torch.ones(1)) for _ in range(3)] == [True] * 3


def test_a_question_leaves_nothing_in_the_graph() -> None:
    assert "is_autocast" not in text_of(jit_amp.lowered_graph(enabled_in_a_scope))
