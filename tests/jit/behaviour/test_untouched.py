"""What users have stays as it is: the helper that watches calls, and what it does not see."""

import contextlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..untouched import assert_untouched, snapshot, watched


class Net(nn.Module):
    """Modules with state of every kind, that forward writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("sum", torch.zeros(2, 4))
        self.row = self.sum[0]
        self.cache = [torch.zeros(2, 4)]
        self.table = {"a": torch.ones(1, requires_grad=True)}
        self.calls = 0

    @torch.jit.ignore
    def outside(self) -> float:
        return random.random() + float(np.random.rand())

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.calls += 1
            self.cache.append(self.linear(x) + self.table["a"])
            self.row.add_(1)
            self.sum.add_(torch.rand(2, 4))
            return self.cache[-1] + self.sum


class Drawing(Net):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.outside() + torch.rand(1)


class Recurrent(nn.Module):
    """LSTM's weights are in a list too, which PyTorch's freezing writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.lstm = nn.Linear(4, 4), nn.LSTM(4, 4, batch_first=True)
        self.both = [(self.linear.weight, {"b": self.linear.bias})]

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        return self.lstm(y.float())[0]


class WithoutScopes(Recurrent):
    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(self.linear(x))[0]


X = torch.rand(2, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("how", ["eager", "scripted"])
@pytest.mark.parametrize(
    "call",
    [
        lambda m: jit_amp.explain(m, (X,)),
        lambda m: jit_amp.explain(m, (X,), timing=True, numerics=True),
        lambda m: jit_amp.explain(m, (X,), gradients=True),
        lambda m: jit_amp.script(m),
        lambda m: jit_amp.lowered_graph(m),
        lambda m: jit_amp.facts(m, (X,)),
        lambda m: jit_amp.freeze(m),
        lambda m: jit_amp.freeze(m, example_inputs=(X,), target="server"),
        lambda m: jit_amp.freeze(m, ["no such"]),
        lambda m: jit_amp.freeze(m, example_inputs=(X, X)),
    ],
)
@pytest.mark.parametrize("make", [Net, Drawing, lambda: torch.jit.script(Net().eval())])
def test_a_call_leaves_all_as_it_was(make: Any, call: Callable[[Any], Any], how: str) -> None:
    """The functions are watched; a refused call leaves as much."""
    module = make().eval()
    given = jit_amp.script(module) if how == "scripted" else module
    before = snapshot(module, given, X)
    with contextlib.suppress(RuntimeError, TypeError):
        call(given)
    assert_untouched(before, snapshot(module, given, X))


@pytest.mark.parametrize("has_scopes", [True, False])
def test_freezing_what_was_scripted_leaves_its_weights_in_autograd(has_scopes: bool) -> None:
    module = (Recurrent() if has_scopes else WithoutScopes()).eval()
    x = torch.rand(2, 3, 4)
    scripted = jit_amp.script(module)
    jit_amp.freeze(scripted, example_inputs=(x,))
    jit_amp.facts(scripted, (x,))
    with pytest.raises(RuntimeError):
        jit_amp.freeze(scripted, ["no such"])
    scripted(x).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())


def test_onednn_stays_switched_on() -> None:
    """An operator stands for PyTorch's, which switches it off where it fails."""

    class Switching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return torch.ops.jit_amp_untouched.switching(x)

    jit_amp.explain(Switching(), (X,))
    assert torch._C._get_mkldnn_enabled()


@torch.library.custom_op("jit_amp_untouched::switching", mutates_args=())
def switching(x: Tensor) -> Tensor:
    torch._C._set_mkldnn_enabled(False)
    return x.clone()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.linear.weight.data.add_(1),
        lambda m: m.linear.weight.requires_grad_(False),
        lambda m: setattr(m.linear.weight, "grad", torch.zeros(4, 4)),
        lambda m: m.linear.weight.register_hook(lambda g: g),
        lambda m: setattr(m.linear, "weight", nn.Parameter(torch.zeros(4, 4))),
        lambda m: m.register_forward_hook(lambda *_: None),
        lambda m: m.sum.add_(0),
        lambda m: m.cache.append(X),
        lambda m: m.table.clear(),
        lambda m: setattr(m, "calls", 1),
        lambda m: setattr(m, "more", 1),
        lambda m: m.train(),
        lambda m: torch.rand(1),
        lambda m: random.random(),
        lambda m: np.random.rand(),
    ],
)
def test_a_function_that_changes_something_is_seen(change: Callable[[Any], Any]) -> None:
    module = Net().eval()
    with pytest.raises(AssertionError, match="a call has changed"):
        watched("freeze", change)(module)


@pytest.mark.parametrize(
    ("switch", "value", "before"),
    [
        (torch.set_grad_enabled, False, True),
        (torch.set_default_dtype, torch.float64, torch.float32),
        (torch.set_autocast_cache_enabled, False, True),
        (torch._C._set_mkldnn_enabled, False, True),
        (torch._C._jit_set_profiling_executor, False, True),
        (torch._C._jit_set_texpr_fuser_enabled, False, True),
        (torch._C._set_graph_executor_optimize, False, True),
    ],
)
def test_a_switch_of_the_process_is_seen(
    switch: Callable[[Any], Any], value: Any, before: Any
) -> None:
    try:
        with pytest.raises(AssertionError, match="a call has changed"):
            watched("freeze", lambda m: switch(value))(Net())
    finally:
        switch(before)
