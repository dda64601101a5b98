"""export: a branch or loop as a whole, whose result is a tensor that the program has already."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("day", torch.zeros(4))
        self.register_buffer("night", torch.zeros(4))

    def layer(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Kept(Net):
    def forward(self, x: Tensor):
        y = self.layer(x)
        h = y
        if bool(x.max() > 100):
            y = y.clamp(-1, 1)
        y *= 2
        return y + h


class OfTheModule(Net):
    def forward(self, x: Tensor):
        t = self.day if bool(x.max() > 100) else self.night
        t.add_(1)
        return self.layer(x)


class OfTheCaller(Net):
    def forward(self, x: Tensor):
        t = x
        if bool(x.max() > 100):
            t = x * 2
        t.add_(1)
        return self.layer(t)


class APart(Net):
    def forward(self, x: Tensor):
        y = self.layer(x)
        t = y[0] if bool(x.max() > 100) else y[1]
        y.mul_(3)
        return t + y


class KeptBesideALoop(Net):
    def forward(self, x: Tensor):
        y = self.layer(x)
        h = y
        while bool(y.sum() < -100):
            y = y * 2
        y += 1
        return y, h


class AList(Net):
    """The list that a branch gives is one that came in."""

    def forward(self, x: Tensor):
        first, second = [self.layer(x)], [x * 2]
        chosen = second
        if bool(x.max() > 0):
            chosen = first
        chosen[0] = x * 5
        return first[0]


@pytest.mark.parametrize(
    ("cls", "code"),
    [
        (Kept, 501),
        (OfTheModule, 501),
        (OfTheCaller, 501),
        (APart, 501),
        (KeptBesideALoop, 502),
        (AList, 501),
    ],
)
def test_what_is_written_to_besides_is_refused(cls: Any, code: int) -> None:
    place = rf"(?s)\[JA{code}\].*File .*{re.escape(__file__)}"
    with pytest.raises(jit_amp.AutocastError, match=place):
        jit_amp.export(cls().eval(), (torch.rand(3, 4),))


class Replaced(Net):
    """What the result was made of is not used any more."""

    def forward(self, x: Tensor):
        y = self.layer(x)
        if bool(x.max() > 100):
            y = y.clamp(-1, 1)
        y *= 2
        return y


class ReplacedByALoop(Net):
    def forward(self, x: Tensor):
        y = self.layer(x)
        while bool(y.sum() < -100):
            y = y * 2
        y += 1
        return y


class WrittenBefore(Net):
    def forward(self, x: Tensor):
        y = self.layer(x)
        y += 1
        h = y
        if bool(x.max() > 100):
            y = y.clamp(-1, 1)
        return y + h


class WrittenWithin(Net):
    def forward(self, x: Tensor):
        if bool(x.max() > 0):
            self.day.add_(1)
        return self.layer(x) + self.day


class WritesToItsOwn(Net):
    """A later branch writes to what it has made itself."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor):
        y = self.layer(x).float()
        h = x
        if bool(x.max() > 100):
            h = x * 0.5
        if bool(x.max() > 0.5):
            z = h.clone()
            z.add_(1)
            h = self.relu(z * y)
        return y + h


class WritesOut(Net):
    def forward(self, x: Tensor):
        y = self.layer(x).float().detach()
        h = y
        if bool(x.max() > 100):
            h = y * 0.5
        out = torch.empty_like(x)
        torch.add(h, 1, out=out)
        return y + out


class TwiceInAList(Net):
    def forward(self, x: Tensor):
        both = [x, x]
        y = both[0] * 2 if bool(x.max() > 100) else both[1] * 3
        return self.layer(y)


@pytest.mark.parametrize(
    "cls",
    [
        Replaced,
        ReplacedByALoop,
        WrittenBefore,
        WrittenWithin,
        WritesToItsOwn,
        WritesOut,
        TwiceInAList,
    ],
)
def test_other_writes_are_eagers(cls: Any) -> None:
    torch.manual_seed(0)
    module = cls().eval()
    program = jit_amp.export(copy.deepcopy(module), (torch.rand(3, 4),)).module()
    for call in range(3):
        x = torch.rand(3, 4) * (1 if call else 200)
        assert_same(program(x.clone()), module(x.clone()), f"call {call}")
