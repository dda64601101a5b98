"""A classifier of scikit-learn's digits: tuned, it is as accurate as in float32."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import jit_amp


class Pool(nn.Module):
    """The energy of each channel, divided by their length, whose square float16 cannot hold."""

    def forward(self, x: Tensor) -> Tensor:
        energy = (16 * x).square().sum((2, 3))
        return energy / energy.square().sum(1, keepdim=True).sqrt()


def classifier() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), Pool(), nn.Linear(32, 10),
    )  # fmt: skip


@functools.cache
def trained() -> tuple[nn.Sequential, Tensor, Tensor]:
    """In float32, with the pictures and digits that it has not seen."""
    torch.manual_seed(0)
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None]
    digits = torch.tensor(data.target)
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(120):
        batch = torch.randint(1200, (100,))
        optimizer.zero_grad()
        F.cross_entropy(10 * model(images[batch]), digits[batch]).backward()
        optimizer.step()
    return model.eval(), images[1200:], digits[1200:]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_accuracy_is_float32s(dtype: torch.dtype) -> None:
    model, images, digits = trained()

    def accuracy(model: nn.Module) -> float:
        with torch.no_grad():
            return (model(images).argmax(1) == digits).float().mean().item()

    in_float32 = accuracy(model)
    assert in_float32 > 0.9
    found = jit_amp.tune(model, (images,), dtype=dtype, metric=accuracy, tolerance=0.002)
    assert abs(accuracy(found.apply(model)) - in_float32) <= 0.002  # one picture of 597
    if dtype == torch.float16:
        # Its operand in float32 is enough for the pool, and the activation before it costs less.
        assert found.units in (("4",), ("5",)) and found.error_plain > 0.5
    frozen = jit_amp.freeze(model, example_inputs=(images,), precision=found)
    assert abs(accuracy(frozen) - in_float32) <= 0.002
