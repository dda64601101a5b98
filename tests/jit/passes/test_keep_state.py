"""Running statistics that a norm updates: state of an artefact, here and in what is loaded."""

from __future__ import annotations

import copy
import io
from typing import Any, Dict, List  # noqa: UP035  # as TorchScript reads them

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import jit_amp

from ..support import assert_same


class Norm(nn.Module):
    """Its bias and its mean are equal when it is made, and its weight and its variance."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        nn.init.zeros_(self.linear.bias)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        return F.batch_norm(y.float(), self.mean, self.variance, None, None, True, 0.1)


class NormWithoutScopes(Norm):
    def forward(self, x: Tensor):
        y = self.linear(x)
        return F.batch_norm(y, self.mean, self.variance, None, None, True, 0.1), self.mean * 1


class NormInALoop(Norm):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(2):
                x = F.batch_norm(self.linear(x), self.mean, self.variance, None, None, True, 0.1)
        return x, self.mean * 1, self.linear.bias * 1


class InstanceNorm(Norm):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        y = y.float()[None]
        y = F.instance_norm(y, self.mean[:3], self.variance[:3], None, None, True, 0.1)
        return y, self.linear.bias * 1


class Inside(Norm):
    """Two lists and a dictionary whose tensors are equal at first."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: List[Tensor] = [torch.zeros(4)]  # noqa: UP006
        self.others: List[Tensor] = [torch.zeros(4), torch.zeros(4)]  # noqa: UP006
        self.named: Dict[str, Tensor] = {"a": torch.zeros(4)}  # noqa: UP006

    def forward(self, x: Tensor):
        for each in self.others:
            each += 1
        self.named["a"].sub_(2)
        last = self.seen[-1]
        last *= 3
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        return y, self.seen[0] * 1, self.others[0] * 1, self.others[1] * 1, self.named["a"] * 1


class InContainersOfContainers(Norm):
    """A list that another name of it appends to; tuples that a loop over a dictionary makes."""

    def __init__(self) -> None:
        super().__init__()
        self.grid: List[List[Tensor]] = [[torch.zeros(4)], [torch.zeros(4)]]  # noqa: UP006
        self.two = (torch.zeros(4), [torch.zeros(4)])
        self.named: Dict[str, Tensor] = {"a": torch.zeros(4), "b": torch.zeros(4)}  # noqa: UP006

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        last = self.grid[1]
        last.append(y.sum(0))
        self.grid[0][0] += 1
        self.two[0].add_(1)
        self.two[1][0].add_(2)
        for name, each in self.named.items():
            each.add_(len(name))
        y = y * self.grid[0][0] * self.named["b"]
        return y, self.two[0] + self.two[1][0] * 3, torch.stack(self.grid[1])


class InsideWithoutScopes(Inside):
    def forward(self, x: Tensor):
        for each in self.others:
            each += 1
        return self.linear(x), self.seen[0] * 1, self.others[0] * 1, self.named["a"] * 1


def loaded(module: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # of sizes that PyTorch checks
@pytest.mark.parametrize(
    "cls",
    [
        Norm,
        NormWithoutScopes,
        NormInALoop,
        InstanceNorm,
        Inside,
        InsideWithoutScopes,
        InContainersOfContainers,
    ],
)
@pytest.mark.parametrize("how", ["exact", "exact, examples", "traced"])
@pytest.mark.parametrize("is_saved", [False, True])
def test_each_call_finds_what_the_last_has_left(cls: Any, how: str, is_saved: bool) -> None:
    torch.manual_seed(0)
    module = cls().eval().requires_grad_(False)
    x = torch.rand(3, 4)
    made = copy.deepcopy(module)
    if how == "traced" and cls is InContainersOfContainers:
        pytest.skip("a trace does not append")
    if how == "traced":
        made = jit_amp.trace(made, (x,), check_trace=False)
        module(x)  # the trace has run it
    examples = (x,) if "examples" in how else None
    frozen = jit_amp.freeze(made, optimize_numerics=False, example_inputs=examples)
    if is_saved:
        frozen = loaded(frozen)
    for call in range(4):
        with torch.no_grad():
            assert_same(frozen(x), module(x), f"call {call}")


class Around(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        return self.inner(x)


class InADictionary(Norm):
    def __init__(self) -> None:
        super().__init__()
        self.named: Dict[str, Tensor] = {"a": torch.zeros(4), "b": torch.zeros(4)}  # noqa: UP006

    def forward(self, x: Tensor):
        for name, each in self.named.items():
            each.add_(len(name))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x) * self.named["b"]


@pytest.mark.parametrize("cls", [Norm, Inside, InADictionary])
def test_it_can_be_frozen_again(cls: Any) -> None:
    """PyTorch freezes no module whose attributes share a tensor."""
    module = cls().eval().requires_grad_(False)
    frozen = jit_amp.freeze(copy.deepcopy(module), optimize_numerics=False)
    again = jit_amp.freeze(torch.jit.script(Around(frozen)).eval(), optimize_numerics=False)
    x = torch.rand(3, 4)
    for call in range(4):
        with torch.no_grad():
            assert_same(again(x), module(x), f"call {call}")


def assert_state_moves(module: nn.Module, is_saved: bool) -> None:
    frozen = jit_amp.freeze(copy.deepcopy(module), optimize_numerics=False)
    if is_saved:
        frozen = loaded(frozen)
    x = torch.rand(3, 4)
    for call in range(4):
        with torch.no_grad():
            assert_same(frozen(x), module(x), f"call {call}")


def test_a_norm_in_eval_mode_has_no_state() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    assert not list(jit_amp.freeze(module).named_buffers())


def test_state_has_its_name() -> None:
    module = InContainersOfContainers().eval()
    frozen = jit_amp.freeze(module)
    assert torch.equal(frozen.named["a"], module.named["a"])
    assert frozen.two[0].shape == (4,)
    assert sorted(dict(jit_amp.freeze(Norm().eval()).named_buffers())) == ["mean", "variance"]


def test_state_without_a_name_gets_one() -> None:
    """A trace has what is in a list as constants."""

    class Named(Norm):
        def __init__(self) -> None:
            super().__init__()
            self._state0 = nn.Parameter(torch.rand(()))
            self.seen = [torch.zeros(4)]

        def forward(self, x: Tensor):
            self.seen[0].add_(1)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.linear(x) * self._state0, self.seen[0] * 1

    traced = jit_amp.trace(Named().eval(), (torch.rand(3, 4),), check_trace=False)
    frozen = jit_amp.freeze(traced, ["_state0"])
    assert list(dict(frozen.named_buffers())) == ["_state1"]


class Overlapping(Norm):
    """A list of what other attributes are, which PyTorch refuses to freeze."""

    def __init__(self) -> None:
        super().__init__()
        self.both: List[Tensor] = [self.mean, self.variance]  # noqa: UP006

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        first = self.both[0]
        first += 1
        return y * self.mean + self.both[1], self.variance * 1


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_list_of_attributes_can_be_frozen(is_saved: bool) -> None:
    module = Overlapping().eval().requires_grad_(False)
    with pytest.raises(RuntimeError, match="overlaps"):
        torch.jit.freeze(torch.jit.script(copy.deepcopy(module)))
    assert_state_moves(module, is_saved)


class Twins(Norm):
    """Two lists that are equal at first."""

    def __init__(self) -> None:
        super().__init__()
        self.first = [torch.zeros(4), torch.zeros(4)]
        self.second = [torch.zeros(4), torch.zeros(4)]

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        for each in self.first:
            each += 1
        y = F.batch_norm(y.float(), self.mean, self.variance, None, None, True, 0.1)
        return y, self.second[0] * 1, self.mean * 1, self.variance * 1


@pytest.mark.parametrize("is_saved", [False, True])
def test_equal_lists_are_two(is_saved: bool) -> None:
    module = Twins().eval().requires_grad_(False)
    assert_state_moves(module, is_saved)
