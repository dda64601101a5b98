"""With JIT_AMP_VERIFY=1 each lowered program is run beside eager, on the first call's arguments."""

from __future__ import annotations

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


def test_what_cannot_be_run_twice_is_not() -> None:
    x = torch.rand(3, 3)
    torch.manual_seed(0)
    expected = draws(x)
    torch.manual_seed(0)
    assert torch.equal(jit_amp.script(draws)(x), expected)
    before = x.clone()
    jit_amp.script(writes)(x)
    assert torch.equal(x, before + 1)
