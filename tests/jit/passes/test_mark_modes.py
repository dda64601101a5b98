"""mark_modes: a cast under torch.no_grad() is not made one with the same cast outside of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same, operators, saved_and_loaded


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)


class Before(Layers):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                target = self.first(x)
            return self.second(x), target


class After(Layers):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = self.second(x)
            with torch.no_grad():
                target = self.first(x)
        return result, target


class InABranch(Layers):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            target = x
            if x.size(0) > 1:
                with torch.no_grad():
                    target = self.first(x)
            return self.second(x), target


class RecordsInside(Layers):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            target = self.first(x)
            with torch.enable_grad():
                result = self.second(x)
            return result, target, self.first(x)


class Decorated(nn.Linear):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)


class OfAPart(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.part = Decorated(4, 4)

    def forward(self, x: Tensor):
        target = self.part(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.second(x), target


def gradient(module: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[list[bool], Tensor | None]:
    """What requires a gradient, and the input's."""
    x = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()
    results = module(x)
    flags = [each.requires_grad for each in results]
    for each in results:
        if each.requires_grad and each.grad_fn is not None:
            each.float().sum().backward()
    return flags, x.grad


@pytest.mark.parametrize("with_example", [False, True])
@pytest.mark.parametrize("model", [Before, After, InABranch, RecordsInside, OfAPart])
def test_gradients_are_eagers(model: Callable[[], nn.Module], with_example: bool) -> None:
    eager = model().eval().requires_grad_(False)
    example = (torch.rand(3, 4),) if with_example else None
    frozen = jit_amp.freeze(eager, example_inputs=example)
    flags, expected = gradient(eager)
    for module in (frozen, saved_and_loaded(frozen)):
        for _ in range(3):
            now, x_grad = gradient(module)
            assert now == flags
            assert_same(x_grad, expected, "the gradient of x")
            assert_same(module(torch.ones(3, 4)), eager(torch.ones(3, 4)), "values")


class WithoutModes(Layers):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.second(x), self.first(x)


class AllInside(Layers):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            return self.second(x), self.first(x)


@pytest.mark.parametrize("model", [WithoutModes, AllInside])
def test_casts_of_one_mode_are_one(model: Callable[[], nn.Module]) -> None:
    frozen = jit_amp.freeze(model().eval(), example_inputs=(torch.rand(3, 4),))
    assert operators(frozen.graph).count("aten::to") == 1
