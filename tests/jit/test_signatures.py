"""The functions that torch.jit has too take its arguments, by position and by name."""

from __future__ import annotations

import inspect
import warnings

import pytest
import torch
from torch import Tensor, nn

import jit_amp

NAMES = ("script", "trace", "trace_module", "freeze", "optimize_for_inference")


@pytest.mark.parametrize("name", NAMES)
def test_the_arguments_are_pytorchs_and_then_by_name_our_own(name: str) -> None:
    pytorchs = list(inspect.signature(getattr(torch.jit, name)).parameters.values())
    ours = list(inspect.signature(getattr(jit_amp, name)).parameters.values())
    shared, own = ours[: len(pytorchs)], ours[len(pytorchs) :]
    assert [(p.name, p.kind, p.default) for p in shared] == [
        (p.name, p.kind, p.default) for p in pytorchs
    ]
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in own)


@pytest.mark.parametrize("name", [*NAMES, "load"])
def test_what_is_installed_has_pytorchs_signature(name: str) -> None:
    pytorchs = inspect.signature(getattr(torch.jit, name))
    with jit_amp.install():
        assert inspect.signature(getattr(torch.jit, name)) == pytorchs


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x) * scale


def double(x):
    return x + x


def test_all_of_traces_arguments_by_position() -> None:
    x = torch.rand(2, 4)
    unit = torch.jit._state._python_cu
    traced = jit_amp.trace(Linear(), (x,), None, True, None, 1e-5, True, False, None, unit)
    assert traced(x).dtype is torch.bfloat16
    traced = jit_amp.trace(Linear(), example_kwarg_inputs={"x": x}, _store_inputs=False)
    assert traced(x=x).dtype is torch.bfloat16
    traced = jit_amp.trace_module(
        Linear(), {"forward": {"x": x}}, None, True, None, 1e-5, True, False, None, unit, True
    )
    assert traced(x=x).dtype is torch.bfloat16


def test_scripts_arguments_by_position() -> None:
    with pytest.warns(FutureWarning, match="`optimize` is deprecated"):
        assert jit_amp.script(double, True)(torch.ones(2)).tolist() == [2, 2]  # type: ignore
    with warnings.catch_warnings(record=True) as caught:  # without MonkeyType it warns
        warnings.simplefilter("always")
        scripted = jit_amp.script(Linear(), None, 0, None, {})
    assert scripted(torch.rand(2, 4)).dtype is torch.bfloat16
    assert all("deprecated" in str(each.message) for each in caught)


def test_a_class_sees_the_names_around_it() -> None:
    def three() -> int:
        return 3

    class Sees:
        def __init__(self) -> None:
            self.number = three()

        def get(self) -> int:
            return self.number + three()

    def uses() -> int:
        return Sees().get()

    assert jit_amp.script(Sees) is Sees
    assert jit_amp.script(uses)() == 6
