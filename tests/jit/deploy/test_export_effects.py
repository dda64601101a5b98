"""export: a program writes to a tensor, sets a buffer or changes a list, and asks or reads before
or after that."""

from __future__ import annotations

import copy
from typing import Any, List  # noqa: UP035  # as TorchScript reads them

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same

X = torch.rand(3, 8, generator=torch.Generator().manual_seed(0))


class AskedBefore(nn.Module):
    """A condition is what the tensor was when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("done", torch.tensor(False))
        self.register_buffer("n", torch.tensor(0))

    def forward(self, x: Tensor):
        was, some = bool(self.done), bool(self.n)
        self.done.fill_(True)
        self.n += 1
        if was:
            x = x * 2
        if some:
            x = x + 1
        return x, was


class AskedInALoop(nn.Module):
    def forward(self, x: Tensor):
        ahead = x.sum() > 0
        y = x
        for _ in range(2):
            if bool(ahead):
                y = y * 2
            ahead.logical_not_()
        return y


class EqualBools(nn.Module):
    def forward(self, x: Tensor):
        a, b = bool(x.sum() > 0), bool(x.max() > 0.5)
        if a == b:
            x = x * 2
        if a ^ b:
            x = x + 1
        if a != True:  # noqa: E712
            x = x - 3
        return x


class Removed(nn.Module):
    def forward(self, x: Tensor):
        sizes: List[int] = [1, 2, 3]  # noqa: UP006
        sizes.remove(2)
        return x * sizes[1]


class Told(nn.Module):
    """A text that is printed may have anything in it."""

    def forward(self, x: Tensor):
        print(f"the sum is {x.sum()}")
        return x * 2


class TwoOfOne(nn.Module):
    """Results of a branch that are one tensor; nothing is written to."""

    def forward(self, x: Tensor):
        if x.sum() > 0:
            a = x + 1
            b = a
        else:
            a, b = x - 1, x * 2
        return a * b, a, b


RIGHT = [AskedBefore, AskedInALoop, EqualBools, Removed, Told, TwoOfOne]


@pytest.mark.parametrize("kind", RIGHT, ids=lambda x: x.__name__)
def test_it_is_as_eager_in_each_call(kind: Any) -> None:
    with torch.no_grad():
        module = kind()
        run = jit_amp.export(copy.deepcopy(module), (X.clone(),)).module()
        for x in (X, -X, X * 0.1, X):
            assert_same(run(x.clone()), module(x.clone()), kind.__name__)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # PyTorch's, of its own tree of results
def test_results_that_are_one_tensor_can_be_decomposed() -> None:
    with torch.no_grad():
        run = jit_amp.export(TwoOfOne(), (X,)).run_decompositions({}).module()
        for x in (X, -X):
            assert_same(run(x), TwoOfOne()(x), "decomposed")


class Written(TwoOfOne):
    def forward(self, x: Tensor):
        if x.sum() > 0:
            a = x + 1
            b = a
        else:
            a, b = x - 1, x * 2
        a.add_(1)
        return a, b


class WrittenAfterALoop(nn.Module):
    def forward(self, x: Tensor):
        a, b = x * 1, x * 2
        while a.sum() > 1:
            a = a * 0.5
            b = a
        a.add_(1)
        return a, b


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        zeros = torch.zeros(8)
        self.register_buffer("a", zeros)
        self.register_buffer("b", zeros)

    def forward(self, x: Tensor):
        y = x * self.b + self.a
        self.a = x[0] * 2
        return y


class BecomeOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(8))
        self.register_buffer("b", torch.ones(8))

    def forward(self, x: Tensor):
        self.a.add_(1)
        y = x * self.b + self.a
        t = x[0] * 2
        self.a = t
        self.b = t
        return y


class Raises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x: Tensor):
        if x.sum() < 0:
            self.n += 1
            raise ValueError("negative")
        return x * self.n


class Keyed(nn.Module):
    def forward(self, x: Tensor):
        text = f"{x.sum()}"
        return x * len(text)


REFUSED = {
    Written: "JA501", WrittenAfterALoop: "JA502", Shared: "shares its memory with another one",
    BecomeOne: "two buffers that are set to one tensor", Raises: "raises then", Keyed: "JA504",
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED, ids=lambda x: x.__name__)
def test_what_would_be_lost_is_refused(kind: Any) -> None:
    with pytest.raises(jit_amp.AutocastError, match=REFUSED[kind]), torch.no_grad():
        jit_amp.export(kind(), (X.clone(),))


@torch.jit.script
def times(x: Tensor, n: Tensor):
    return x * int(n)


def through_a_view(x: Tensor):
    n = torch.as_tensor(x.shape[0]) + 0
    n.view(1).add_(2)
    return times(x, n)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_number_is_forgotten_when_a_view_of_it_is_written_to() -> None:
    trace = torch.jit.trace(through_a_view, (X,), check_trace=False)
    with torch.no_grad():
        try:
            run = jit_amp.export(trace, (X,)).module()
        except jit_amp.AutocastError:  # it is not known then
            return
        assert_same(run(X), trace(X), "a trace")


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = torch.tensor(3)

    def forward(self, x: Tensor):
        y = times(x, self.n)
        self.n.add_(1)
        return y


def test_a_constant_that_is_written_to_is_no_known_number() -> None:
    """The trace itself keeps the number of its first calls: PyTorch takes it for a constant."""
    with torch.no_grad():
        trace = torch.jit.trace(Counts(), (X,), check_trace=False)
        run = jit_amp.export(copy.deepcopy(trace), (X,)).module()
        for n in (4, 5, 6):  # 3 was the tracer's
            assert_same(run(X), X * n, "a trace")


class Small(nn.Module):
    def forward(self, x: Tensor):
        if x.size(0) == 1:
            x = x * 2
        return x


def test_strict_keeps_the_guard_against_a_size_of_one() -> None:
    run = jit_amp.export(Small(), (X,), strict=True).module()
    assert_same(run(X), Small()(X), "strict")
    with pytest.raises(AssertionError, match="Guard failed"):
        run(X[:1])
