"""What is frozen by tests of this folder is loaded and run by a process without jit_amp."""

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..elsewhere import Elsewhere


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


def test_it_is(elsewhere: Elsewhere | None) -> None:
    if elsewhere is None:
        pytest.skip("no other process has a pretended device")
    loaded, run = elsewhere.loaded, elsewhere.run
    frozen = jit_amp.freeze(Net().eval())
    for _ in range(3):
        frozen(torch.randn(2, 4))
    assert (elsewhere.loaded, elsewhere.run) == (loaded + 1, run + 3)


def test_a_difference_is_seen(elsewhere: Elsewhere | None) -> None:
    if elsewhere is None:
        pytest.skip("no other process has a pretended device")
    one, other = (jit_amp.freeze(Net().eval()) for _ in range(2))
    elsewhere.numbers[one] = elsewhere.numbers[other]
    with pytest.raises(AssertionError, match="in a process without jit_amp"):
        one(torch.randn(2, 4))


def test_an_operator_of_jit_amp_is_seen(elsewhere: Elsewhere | None) -> None:
    if elsewhere is None:
        pytest.skip("no other process has a pretended device")
    scripted = torch.jit.script(AsksForAutocast())
    with pytest.raises(RuntimeError, match="is_autocast_enabled"):
        elsewhere.load(scripted)


class AsksForAutocast(nn.Module):
    def forward(self, x: Tensor):
        return x * 2 if torch.is_autocast_enabled("cpu") else x
