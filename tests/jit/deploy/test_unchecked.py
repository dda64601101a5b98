"""Artefacts without a check of their inputs: nothing is believed of them, whatever they are."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same, fresh, needs_cuda
from .models import MODELS
from .test_freeze import Conv
from .test_inputs import CASES, tensors_changed

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64)


def checks(graph: torch._C.Graph) -> list[str]:
    """The messages of jit_amp's that the graph may raise with."""
    texts = [
        node.output().toIValue()
        for node in graph.findAllNodes("prim::Constant")
        if node.output().type().kind() == "StringType"
    ]
    return [text for text in texts if "This module was frozen by jit_amp" in text]


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_each_input_gives_what_eager_gives(name: str) -> None:
    make, example = CASES[name]
    module = make().eval()
    frozen = jit_amp.freeze(module, check_inputs=False)
    agreed = 0
    for given in (example(), *tensors_changed(example())):
        for n in (0, 1):
            inputs = (*given[:-1], n)
            try:
                expected = module(*copy.deepcopy(inputs))
            except (RuntimeError, KeyError, IndexError, TypeError, AttributeError):
                with pytest.raises((RuntimeError, torch.jit.Error)):
                    frozen(*inputs)
                continue
            try:
                result = frozen(*inputs)
            except RuntimeError as error:  # TorchScript's types, which eager has not
                assert "Expected a value of type" in str(error)
                continue
            assert_same(result, expected, str(inputs))
            agreed += 1
    assert agreed


@pytest.mark.parametrize("name", ["residual", "mobile net", "window attention", "attention"])
@torch.no_grad()
def test_models_take_what_eager_takes(name: str) -> None:
    """Folding batch norms is left out, so that results are the same."""
    torch.manual_seed(0)
    model = MODELS[name].make().eval()
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    frozen = jit_amp.freeze(
        jit_amp.script(model, autocast=autocast), optimize_numerics=False, check_inputs=False
    )
    assert not checks(frozen.graph)
    ran = []
    for args in (MODELS[name].example, *MODELS[name].others):
        for dtype in DTYPES:
            given = tuple(arg.to(dtype) if isinstance(arg, Tensor) else arg for arg in args)
            try:
                with autocast:
                    expected = model(*fresh(given))
            except RuntimeError:
                with pytest.raises((RuntimeError, torch.jit.Error)):
                    frozen(*fresh(given))
            else:
                assert_same(frozen(*fresh(given)), expected, f"{name} on {dtype}")
                ran.append(dtype)
    assert torch.float32 in ran and torch.float64 not in ran


def test_the_check_is_what_is_left_out() -> None:
    x = torch.randn(2, 1, 4, 4)
    assert checks(jit_amp.freeze(Conv().eval()).graph)
    assert checks(jit_amp.freeze(Conv().eval(), example_inputs=(x,)).graph)
    assert not checks(jit_amp.freeze(Conv().eval(), check_inputs=False).graph)


class Two(nn.Module):
    """Two methods, each with a scope."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)

    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x) @ x.t()


@torch.no_grad()
def test_preserved_methods_have_none_either() -> None:
    model, x = Two().eval(), torch.randn(2, 4)
    assert checks(jit_amp.freeze(model, ["other"]).other.graph)
    frozen = jit_amp.freeze(model, ["other"], check_inputs=False)
    assert not checks(frozen.forward.graph) and not checks(frozen.other.graph)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert_same(frozen.other(x.to(dtype)), model.other(x.to(dtype)), str(dtype))
    for dtype in (torch.float64, torch.int64):
        with pytest.raises(RuntimeError):
            frozen.other(x.to(dtype))


def test_examples_are_not_taken_with_it() -> None:
    """They would be believed, and nothing would tell where they are wrong."""
    with pytest.raises(ValueError, match="leave out either the examples or check_inputs=False"):
        jit_amp.freeze(Two().eval(), example_inputs=(torch.randn(2, 4),), check_inputs=False)
    with jit_amp.install():
        frozen = torch.jit.freeze(torch.jit.script(Two().eval()), check_inputs=False)
    assert not checks(frozen.graph)


class Both(nn.Module):
    """A scope for each device; the weights are on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.weight @ self.weight, x @ x.t()


@needs_cuda
@torch.no_grad()
def test_another_device_than_the_weights_is_eagers_too() -> None:
    """A CPU scope casts no tensors on a GPU; a check refuses nothing that eager takes."""
    model, x = Both().eval(), torch.randn(2, 4)
    frozen = jit_amp.freeze(model, check_inputs=False)
    for device in ("cpu", "cuda"):
        assert_same(frozen(x.to(device)), model(x.to(device)), device)
        assert_same(jit_amp.freeze(model)(x.to(device)), model(x.to(device)), device)
