"""torch.autocast as a decorator: of functions, methods, submodules and helpers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import jit_amp

from ..support import assert_parity, assert_same


@torch.autocast("cpu", enabled=False)
def protected(x: Tensor, w: Tensor) -> Tensor:
    return functional.linear(x.float(), w)


@torch.autocast("cpu", dtype=torch.bfloat16)
def calls_a_protected_helper(x: Tensor, w: Tensor):
    return functional.linear(x, w), protected(x, w)


@torch.autocast("cpu", dtype=torch.bfloat16)
@torch.autocast("cpu", enabled=False)
def decorated_twice(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


def plain(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


decorated_elsewhere = torch.autocast("cpu", dtype=torch.bfloat16)(plain)


def uses_both(x: Tensor, w: Tensor):
    return plain(x, w), decorated_elsewhere(x, w)


@torch.autocast("cpu", dtype=torch.bfloat16)
@torch.jit.script
def above_script(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


class Protected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @torch.autocast("cpu", enabled=False)
    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.linear(x.float()))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.linear = Protected(), Protected(), nn.Linear(4, 4)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def method(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def forward(self, x: Tensor):
        a = self.method(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return a, self.first(x), self.second(x), self.linear(x), protected(x, x)


INPUTS = (torch.randn(4, 4), torch.randn(4, 4))


@pytest.mark.parametrize(
    "function",
    [protected, calls_a_protected_helper, decorated_twice, decorated_elsewhere, uses_both],
    ids=lambda function: function.__name__,
)
def test_a_decorated_function_has_its_scope(function) -> None:
    assert_parity(function, INPUTS)


def test_a_decorator_above_torch_jit_script_has_its_scope() -> None:
    assert_same(jit_amp.script(above_script)(*INPUTS), above_script(*INPUTS), "above")


def test_a_decorator_below_jit_amp_script_has_its_scope() -> None:
    below = jit_amp.script(torch.autocast("cpu", dtype=torch.bfloat16)(plain))
    assert below(*INPUTS).dtype is torch.bfloat16


def test_decorated_methods_and_submodules_have_their_scopes() -> None:
    assert_parity(Model(), (torch.randn(4, 4),))


def test_a_decorated_module_freezes_with_its_scope() -> None:
    model, x = Model().eval(), torch.randn(4, 4)
    with torch.no_grad():
        assert_same(jit_amp.freeze(model, example_inputs=(x,))(x), model(x), "frozen")


def test_a_scope_of_a_decorator_is_saved_with_the_module(tmp_path) -> None:
    model, x = Model(), torch.randn(4, 4)
    jit_amp.script(model).save(str(tmp_path / "model.pt"))
    again = jit_amp.script(torch.jit.load(tmp_path / "model.pt"))
    assert_same(again(x), model(x), "saved and loaded")


def test_scripting_leaves_the_class_as_it_was() -> None:
    forward = Protected.forward
    jit_amp.script(Protected())
    assert Protected.forward is forward


def test_an_instances_decorated_forward_has_its_scope() -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    model.forward = torch.autocast("cpu", dtype=torch.bfloat16)(model.forward)  # type: ignore
    assert jit_amp.script(model)(x).dtype is model(x).dtype is torch.bfloat16


@pytest.mark.parametrize("precision", ["amp", "amp_bf16", "bfloat16", "fp16", "fp32", None])
def test_a_scope_around_a_whole_model(precision: str | None) -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    autocast = jit_amp.get_autocast(precision, device_type="cpu")
    scripted = jit_amp.script(model, autocast=autocast)
    with autocast():
        expected = model(x)
    for call in range(3):
        assert_same(scripted(x), expected, f"call {call}")
    assert_same(jit_amp.script(plain, autocast=autocast)(x, x.t()).dtype, expected.dtype, "plain")


def test_a_precision_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="precision: 'half' is none of"):
        jit_amp.get_autocast("half", "cpu")


def test_a_scope_around_a_whole_model_is_an_autocast() -> None:
    with pytest.raises(TypeError, match=r"autocast: a torch\.autocast or None, not 'amp_bf16'"):
        jit_amp.script(nn.Linear(4, 4), autocast="amp_bf16")


# Decorators that switch gradients, beside those of autocast and alone.

MODES = {
    "no_grad": torch.no_grad(),
    "inference_mode": torch.inference_mode(),
    "set_grad_enabled": torch.set_grad_enabled(False),
    "enable_grad": torch.enable_grad(),
    "leaving inference_mode": torch.inference_mode(False),
}
torch.set_grad_enabled(True)  # which making one of these has switched off
HALF = torch.autocast("cpu", dtype=torch.bfloat16)
ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "above": lambda mode, function: mode(HALF(function)),
    "below": lambda mode, function: HALF(mode(function)),
    "alone": lambda mode, function: mode(function),
    "around both": lambda mode, function: mode(HALF(torch.no_grad()(function))),
    "within": lambda mode, function: torch.no_grad()(HALF(mode(function))),
    "within inference": lambda mode, function: torch.inference_mode()(mode(HALF(function))),
}


def linear(x: Tensor, w: Tensor) -> Tensor:
    return functional.linear(x, w)


def called(function: Callable[..., Any], is_recording: bool, *args: Tensor) -> Tensor:
    with torch.set_grad_enabled(is_recording):
        return function(*args)


def decorated_module(decorate: Callable[[Any], Any]) -> nn.Module:
    class Decorated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        @decorate
        def method(self, x: Tensor) -> Tensor:
            return self.linear(x)

        def forward(self, x: Tensor):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.method(x), self.linear(x)

    return Decorated()


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_gradients_are_recorded_as_a_decorator_says(mode: Any, order: Any) -> None:
    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    function, module = order(mode, linear), decorated_module(lambda f: order(mode, f))
    scripted, scripted_module = jit_amp.script(function), jit_amp.script(module)
    for is_recording in (True, False, True):
        eager = called(function, is_recording, x, w)
        assert_same(called(scripted, is_recording, x, w), eager, f"{is_recording}")
        eager = called(module, is_recording, x)
        assert_same(called(scripted_module, is_recording, x), eager, f"module, {is_recording}")
        assert torch.is_grad_enabled()


@pytest.mark.parametrize("order", [ORDERS["above"], ORDERS["below"]], ids=["above", "below"])
def test_a_mode_of_a_decorator_is_frozen_exported_and_saved(order: Any, tmp_path: Path) -> None:
    module, x = decorated_module(lambda f: order(torch.no_grad(), f)).eval(), torch.randn(4, 4)
    jit_amp.script(module).save(str(tmp_path / "model.pt"))
    again = jit_amp.script(torch.jit.load(tmp_path / "model.pt"))
    for _ in range(3):
        assert_same(again(x), module(x), "saved and loaded")
    with torch.no_grad():
        frozen = jit_amp.freeze(module, example_inputs=(x,), optimize_numerics=False)
        assert_same(frozen(x), module(x), "frozen")
        assert_same(jit_amp.export(module, (x,)).module()(x), module(x), "exported")


class Initialises(nn.Module):
    """Switches gradients where nothing is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        self.linear.weight.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def test_a_method_that_is_not_compiled_makes_no_type_of_its_own() -> None:
    plain = torch.jit.script(Initialises())
    assert jit_amp.script(Initialises())._c._type() == plain._c._type()


class WithProperty(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @property
    @torch.no_grad()
    def scale(self) -> Tensor:
        return self.linear.weight.sum()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_a_property_that_switches_gradients() -> None:
    assert_parity(WithProperty(), (torch.randn(4, 4),))
