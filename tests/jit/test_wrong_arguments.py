"""An argument that cannot be meant: the error names it, what was given, and what is accepted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp import policy


class Scoped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)

    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        return x


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def function(x: Tensor) -> Tensor:
    return x + 1


X = torch.ones(2, 4)
WRONG: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda m: jit_amp.script(3), TypeError, "script: 3 is not a function or an nn.Module"),
    (lambda m: jit_amp.script(None), TypeError, "script: None is not a function"),
    (lambda m: jit_amp.script(math), TypeError, "script: <module 'math"),
    (lambda m: jit_amp.script(X), TypeError, "script: an object of type Tensor is not"),
    (lambda m: jit_amp.script(m, autocast="cpu"), TypeError, "torch.autocast or None, not 'cpu'"),
    (lambda m: jit_amp.lowered_graph(3), TypeError, "lowered_graph: 3 is not a function"),
    (
        lambda m: jit_amp.lowered_graph(m, "backward"),
        ValueError,
        "method: 'backward' is none of 'forward', 'other'",
    ),
    (lambda m: jit_amp.lowered_graph(m, 3), ValueError, "method: 3 is none of 'forward', 'other'"),
    (lambda m: jit_amp.lowered_graph(m, ambient=3), TypeError, "ambient: 3 is not a device type"),
    (
        lambda m: jit_amp.lowered_graph(m, ambient=("cpu", "xpu")),
        ValueError,
        "ambient: 'xpu' is none of 'cpu', 'cuda'",
    ),
    (lambda m: jit_amp.trace(3, (X,)), TypeError, "trace: 3 is not a function or an nn.Module"),
    (lambda m: jit_amp.trace(m), TypeError, "trace: example_inputs, or example_kwarg_inputs"),
    (lambda m: jit_amp.trace(m, 3), TypeError, "example_inputs: 3 is not a tuple of arguments"),
    (lambda m: jit_amp.trace_module(m, None), AttributeError, "expected a dictionary"),
    (lambda m: jit_amp.freeze(function), TypeError, "freeze takes a module, not <function"),
    (lambda m: jit_amp.freeze(Scoped), TypeError, "Scoped is a class: make an instance of it"),
    (lambda m: jit_amp.freeze(m.train()), RuntimeError, "freeze takes a module in eval mode"),
    (lambda m: jit_amp.freeze(m, "linear"), TypeError, "preserved_attrs: 'linear' is not a list"),
    (lambda m: jit_amp.freeze(m, [3]), TypeError, "preserved_attrs: 3 is not a name"),
    (lambda m: jit_amp.freeze(m, 3), TypeError, "preserved_attrs: 3 is not a list of names"),
    (
        lambda m: jit_amp.freeze(m, ["scael"]),
        RuntimeError,
        "Unknown name: scael. preserved_attrs: the module has "
        "'forward', 'linear', 'other', 'scale', 'training'",
    ),
    (
        lambda m: jit_amp.freeze(m, ["linear.wieght"]),
        RuntimeError,
        "Unknown name: linear.wieght. preserved_attrs: the module has 'bias', 'forward'",
    ),
    (
        lambda m: jit_amp.freeze(m, None, "no"),
        TypeError,
        "optimize_numerics: 'no' is not True or False",
    ),
    (
        lambda m: jit_amp.freeze(m, example_kwarg_inputs=X),
        TypeError,
        "example_kwarg_inputs: an object of type Tensor is not a dictionary of arguments",
    ),
    (lambda m: jit_amp.freeze(m, example_inputs=()), TypeError, "an example without `x`"),
    (lambda m: jit_amp.freeze(m, example_inputs=3), TypeError, "an example that forward does not"),
    (
        lambda m: jit_amp.freeze(m, example_inputs=[]),
        ValueError,
        "example_inputs: a list of no examples; leave it out",
    ),
    (lambda m: jit_amp.facts(function), TypeError, "jit_amp.facts takes a module, not <function"),
    (
        lambda m: jit_amp.optimize_for_inference(3),
        TypeError,
        "jit_amp.optimize_for_inference takes a module, not 3",
    ),
    (
        lambda m: jit_amp.optimize_for_inference(m, "other"),
        TypeError,
        "other_methods: 'other' is not a list of names; write ['other']",
    ),
    (
        lambda m: jit_amp.optimize_for_inference(jit_amp.freeze(m), ["other"]),
        ValueError,
        "other_methods: 'other' is none of 'forward'",
    ),
    (
        lambda m: jit_amp.optimize_for_inference(jit_amp.freeze(m), example_inputs=X),
        TypeError,
        "the module is frozen already",
    ),
    (lambda m: jit_amp.get_autocast(3), ValueError, "precision: 3 is none of 'amp', 'amp_bf16'"),
    (
        lambda m: jit_amp.get_autocast(torch.bfloat16),
        ValueError,
        "precision: torch.bfloat16 is none of 'amp'",
    ),
    (lambda m: jit_amp.get_autocast("amp_"), ValueError, "precision: 'amp_' is none of"),
    (lambda m: jit_amp.get_autocast("bf16", 3), TypeError, "device_type: 3 is not a device type"),
    (lambda m: jit_amp.ignore_amp(3), TypeError, "ignore_amp takes a function or a module, not 3"),
    (lambda m: jit_amp.ignore_amp(m, "no"), TypeError, "ignore: 'no' is not True or False"),
    (lambda m: jit_amp.ignore_amp(m, scopes=2), TypeError, "scopes: 2 is not True or False"),
    (lambda m: policy.register(3, "cpu", "lower"), TypeError, "op: 3 is not an operator's name"),
    (lambda m: policy.register("a::", "cpu", "lower"), ValueError, "op: 'a::' has no namespace"),
    (
        lambda m: policy.register("a::b", ["cpu"], "lower"),
        ValueError,
        "device_type: ['cpu'] is none of 'cpu', 'cuda'",
    ),
    (
        lambda m: policy.register("a::b", "cpu", "half"),
        ValueError,
        "policy: 'half' is none of 'lower', 'fp32', 'promote', 'untouched', 'opaque'",
    ),
    (lambda m: policy.unregister(3, "cpu"), TypeError, "op: 3 is not an operator's name"),
    (lambda m: policy.table(torch.device("cpu")), ValueError, "device_type: device(type='cpu')"),
    (
        lambda m: policy.drift("hpu"),
        ValueError,
        "device_type: 'hpu' is none of 'cpu', 'cuda', 'xpu', 'mps'",
    ),
]


@pytest.fixture
def module() -> Iterator[nn.Module]:
    yield Scoped().eval()


@pytest.mark.parametrize(("call", "kind", "message"), WRONG, ids=[each[2] for each in WRONG])
def test_the_error_says_what_was_given(
    call: Callable[[Any], Any], kind: type[Exception], message: str, module: nn.Module
) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        call(module)


def test_a_module_without_scopes_is_checked_as_well() -> None:
    with pytest.raises(RuntimeError, match=r"Unknown name: nope\. preserved_attrs: the module has"):
        jit_amp.freeze(Plain().eval(), ["nope"])


def test_what_a_submodule_has_is_preserved_by_its_path(module: nn.Module) -> None:
    frozen = jit_amp.freeze(module, ("linear.weight", "other", "scale"))
    assert frozen.linear.weight.shape == (4, 4)
    assert frozen.scale == 2.0
    assert torch.equal(frozen.other(X), X)
