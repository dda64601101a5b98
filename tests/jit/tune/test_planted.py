"""tune finds the modules that do not bear low precision, those and no other."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import jit_amp

from . import planted

F16, BF16 = torch.float16, torch.bfloat16


def found(model: nn.Module, x: torch.Tensor, dtype: torch.dtype = F16) -> jit_amp.Precision:
    result = jit_amp.tune(model.eval(), (x,), dtype=dtype)
    assert result.finished and result.error <= result.tolerance < result.error_plain
    n, k = result.candidates, len(result.units)
    assert result.evaluations <= 3 * k * (n).bit_length() + n / 8
    return result


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("bad", [{0}, {3}, {1, 2}])
def test_attention_with_large_logits(bad: set[int]) -> None:
    model = planted.Transformer([300.0 if i in bad else 1.0 for i in range(4)])
    result = found(model, torch.randn(2, 8, 16))
    assert result.units == tuple(f"blocks.{i}.attention" for i in sorted(bad))
    assert all("beyond 65504: bmm" in each.why for each in result.kept)


PARTS = {
    "variance": planted.BadNorm,
    "log-sum-exp": planted.LogSumExp,
    "overflow": planted.Overflowing,
}


@pytest.mark.parametrize("part", [*PARTS])
@pytest.mark.parametrize("others", [1, 5])
def test_one_module(part: str, others: int) -> None:
    model = planted.among_others(PARTS[part](), nn.Tanh(), others=others)
    [unit] = [name for name, each in model.named_modules() if type(each) is PARTS[part]]
    assert found(model, torch.randn(4, 16)).units == (unit,)


def test_a_variance_in_bfloat16() -> None:
    model = planted.among_others(planted.BadNorm(), nn.Tanh(), others=2)
    assert found(model, torch.randn(4, 16), BF16).units == ("5",)


def test_a_sum_of_small_terms() -> None:
    model = nn.Sequential(nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 10), planted.SumOfSmall())
    assert found(model, torch.randn(100_000, 10)).units == ("3",)


def test_an_lstm_of_many_steps() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), planted.Lstm(4, 2000), nn.Linear(4, 2))
    assert found(model, torch.randn(2, 4)).units == ("2",)


def test_two_faults_that_hide_one_another() -> None:
    model = planted.among_others(planted.Overflowing(), planted.Overflowing(), nn.Tanh(), others=2)
    assert found(model, torch.randn(4, 16)).units == ("5", "11")


@pytest.mark.parametrize("others", [1, 4])
def test_a_module_that_is_harmful_with_another_alone(others: int) -> None:
    """Either in float32 is enough: it is the one that costs less."""
    first, second = planted.Scaled(16), planted.Doubled()
    model = planted.among_others(nn.Identity(), others=others)
    model.extend([first, second, nn.Linear(16, 4)])
    result = found(model, torch.randn(4, 16))
    assert result.units == (str(len(model) - 2),)
    for kept in result.units, (str(len(model) - 3),):
        with torch.no_grad():
            assert (
                jit_amp.Precision.apply(replaced(result, kept), model)(torch.randn(4, 16))
                .isfinite()
                .all()
            )


def replaced(result: jit_amp.Precision, units: tuple[str, ...]) -> jit_amp.Precision:
    import dataclasses

    return dataclasses.replace(result, units=units)


def test_nothing_where_all_bear_it() -> None:
    model = planted.Transformer([1.0, 1.0])
    result = jit_amp.tune(model.eval(), (torch.randn(2, 8, 16),), dtype=F16)
    assert result.units == () and result.saved == 1.0 and result.evaluations == 2
