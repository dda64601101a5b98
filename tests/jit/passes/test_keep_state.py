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
    [Norm, NormWithoutScopes, NormInALoop, InstanceNorm, Inside, InsideWithoutScopes],
)
@pytest.mark.parametrize("how", ["exact", "exact, examples", "traced"])
@pytest.mark.parametrize("is_saved", [False, True])
def test_each_call_finds_what_the_last_has_left(cls: Any, how: str, is_saved: bool) -> None:
    torch.manual_seed(0)
    module = cls().eval().requires_grad_(False)
    x = torch.rand(3, 4)
    made = copy.deepcopy(module)
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


def test_a_norm_in_eval_mode_has_no_state() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    assert not list(jit_amp.freeze(module).named_buffers())


def test_buffers_have_names_of_their_own() -> None:
    class Named(Norm):
        def __init__(self) -> None:
            super().__init__()
            self._state0 = 0.5

        def forward(self, x: Tensor):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.linear(x) * self._state0
            return F.batch_norm(y.float(), self.mean, self.variance, None, None, True, 0.1)

    module = Named().eval()
    frozen = jit_amp.freeze(module, ["_state0"])
    assert sorted(dict(frozen.named_buffers())) == ["_state1", "_state2"]
