"""What has no autocast in it is what PyTorch made of it, and right under an ambient autocast."""

from __future__ import annotations

import gc
import io
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import jit_amp

from ..support import AMBIENTS, assert_same, fresh


def residual(x: Tensor, w: Tensor):
    y = torch.mm(x, w)
    return F.softmax(y, dim=-1) + x


def calls_another(x: Tensor, w: Tensor):
    return residual(x, w) @ w


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor):
        return self.linear(F.relu(self.norm(self.conv(x))).mean((2, 3)))


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

        def hook(self, given: tuple[Tensor], result: Tensor) -> Tensor:
            return result @ result

        self.linear.register_forward_hook(hook)

    def forward(self, x: Tensor):
        return self.linear(x)


def outcome(function: Any, inputs: tuple[Tensor, ...], ambient: str) -> tuple[Any, list[Any]]:
    inputs = fresh(inputs)
    with AMBIENTS[ambient]():
        result = function(*inputs)
    result.float().pow(2).sum().backward()
    return result, [x.grad for x in inputs]


@pytest.mark.parametrize("ambients", [("none",), ("cpu", "none"), ("none", "cpu", "cuda", "cpu")])
@pytest.mark.parametrize("function", [residual, calls_another])
def test_a_function(function: Any, ambients: tuple[str, ...]) -> None:
    """Results and gradients are eager's under an ambient autocast, three calls in a row."""
    scripted = jit_amp.script(function)
    assert jit_amp.script(scripted) is scripted
    assert "jit_amp" not in str(scripted.inlined_graph)
    inputs = tuple(torch.randn(4, 4, requires_grad=True) for _ in range(2))
    for ambient in ambients:
        for call in range(3):
            expected = outcome(function, inputs, ambient)
            assert_same(outcome(scripted, inputs, ambient), expected, f"{ambient}, call {call}")


def test_a_function_runs_on_pytorchs_executor() -> None:
    scripted = jit_amp.script(residual)
    for _ in range(3):
        scripted(torch.randn(4, 4), torch.randn(4, 4))
    ran = str(torch.jit.last_executed_optimized_graph())
    assert "aten::mm" in ran and "jit_amp" not in ran
    assert "jit_amp::program" not in str(scripted.inlined_graph)


@pytest.mark.parametrize("training", [False, True])
def test_a_module(training: bool) -> None:
    module = Net().train(training)
    scripted = jit_amp.script(module)
    plain = torch.jit.script(module)
    assert scripted._c._type() == plain._c._type()
    assert jit_amp.script(scripted) is scripted
    x = torch.randn(2, 3, 6, 6)
    for ambient in ("none", "cpu", "none", "cpu"):
        with AMBIENTS[ambient]():
            assert_same(scripted(x), module(x), ambient)


def test_hooks_run() -> None:
    module, x = Hooked(), torch.randn(4, 4)
    scripted = jit_amp.script(module)
    for ambient in ("none", "cpu"):
        with AMBIENTS[ambient]():
            assert_same(scripted(x), module(x), ambient)


def test_what_was_called_under_an_ambient_autocast_before() -> None:
    """PyTorch has put its own casts in then, for good: it is another function."""

    class Late(Net):
        pass

    plain, x = torch.jit.script(Late().eval()), torch.randn(2, 3, 6, 6)
    with AMBIENTS["cpu"]():
        plain(x)
        scripted = jit_amp.script(plain)
        assert scripted is not plain
        for _ in range(3):
            assert_same(scripted(x), Late.forward(plain, x), "under the ambient autocast")


def test_a_trace(tmp_path: Path) -> None:
    module, x = Net().eval(), torch.randn(2, 3, 6, 6)
    traced = jit_amp.trace(module, x)
    torch.jit.save(traced, tmp_path / "trace.pt")
    loaded = torch.jit.load(tmp_path / "trace.pt")
    served = jit_amp.script(loaded)
    assert served is loaded
    for ambient in ("none", "cpu"):
        for made in (traced, served):
            with AMBIENTS[ambient]():
                assert_same(made(x), module(x), ambient)


@pytest.mark.filterwarnings("ignore:Lite Interpreter is deprecated")
def test_every_form_of_file_is_stock() -> None:
    """After calls under an ambient autocast too."""
    scripted_net = jit_amp.script(Net().eval())
    x = torch.randn(2, 3, 6, 6)
    for ambient in ("none", "cpu"):
        with AMBIENTS[ambient]():
            scripted_net(x)
    assert not any(name.startswith("jit_amp") for name in torch.jit.export_opnames(scripted_net))
    assert scripted_net._save_to_buffer_for_lite_interpreter()
    frozen = torch.jit.freeze(scripted_net)
    buffer = io.BytesIO()
    torch.jit.save(frozen, buffer)
    assert "jit_amp" not in str(frozen.inlined_graph)


@pytest.mark.parametrize("ambient", ["none", "cpu"])
def test_weights_are_freed_with_the_module(ambient: str) -> None:
    module = Net().eval()
    weight = weakref.ref(module.linear.weight)
    scripted = jit_amp.script(module)
    with AMBIENTS[ambient]():
        scripted(torch.randn(2, 3, 6, 6))
    del module, scripted
    gc.collect()
    assert weight() is None
