"""round_products: `x *= 0.1` rounds as in eager, in every form and on every way."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp import _C

from ..support import AMBIENTS, assert_same
from .ir import operators


class Scaled(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.dtype = dtype

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=self.dtype):
            a, b, c, d, e = (self.linear(x) for _ in range(5))
            a *= 0.57735
            b.mul_(1001)
            c[0] *= -0.3
            d[:, 1:].multiply_(x.size(0) / 3.7)
            e %= 0.37
            f = x * 1.0
            f *= 0.57735
            return a, b, c, d, e, f


def loaded(module: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def exact(module: Any, x: Tensor) -> Any:
    return jit_amp.freeze(module, example_inputs=(x,), optimize_numerics=False)


WAYS: dict[str, Callable[[Any, Tensor], Any]] = {
    "script": lambda m, x: jit_amp.script(m),
    "trace": lambda m, x: jit_amp.trace(m, (x,)),
    "saved trace": lambda m, x: jit_amp.script(loaded(jit_amp.trace(m, (x,)))),
    "exact": lambda m, x: jit_amp.freeze(m, optimize_numerics=False),
    "exact, examples": exact,
    "exact, saved": lambda m, x: loaded(exact(m, x)),
    "exact, of a trace": lambda m, x: exact(jit_amp.trace(m, (x,)), x),
    "export": lambda m, x: jit_amp.export(m, (x,)).module(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_is_eagers(way: str, dtype: torch.dtype) -> None:
    module, x = Scaled(dtype).eval().requires_grad_(False), torch.rand(40, 8)
    made = WAYS[way](module, x)
    ambients = ["none", "cpu"] if way in ("script", "trace", "saved trace") else ["none"]
    for ambient in ambients:
        for _ in range(3):
            with AMBIENTS[ambient]():
                expected = module(x)
                actual = made(x)
            assert_same(actual, expected, f"{way}, ambient {ambient}")


@pytest.mark.parametrize("way", ["script", "trace"])
def test_its_gradients_are_eagers(way: str) -> None:
    eager, x = Scaled(torch.bfloat16), torch.rand(40, 8)
    ours = WAYS[way](copy.deepcopy(eager), x)
    for _ in range(3):
        for module in (eager, ours):
            sum(y.float().pow(2).sum() for y in module(x)).backward()
        assert_same([p.grad for p in ours.parameters()], [p.grad for p in eager.parameters()], way)


def without_a_scope(x: Tensor):
    x *= 0.57735
    return x


@pytest.mark.parametrize("x", [torch.arange(64).bfloat16(), torch.rand(64), torch.rand(()).half()])
def test_without_a_scope(x: Tensor) -> None:
    expected = without_a_scope(x.clone())
    assert_same(exact(Whole().eval(), x.clone())(x.clone()), expected, "exact")
    with torch.autocast("cpu"):
        assert_same(jit_amp.script(without_a_scope)(x.clone()), expected, "script")


class Whole(nn.Module):
    def forward(self, x: Tensor):
        x = x.clone()
        x *= 0.57735
        return x


def test_integers_cannot_hold_it() -> None:
    scripted = jit_amp.script(without_a_scope)
    with pytest.raises(RuntimeError, match="can't be cast"), torch.autocast("cpu"):
        scripted(torch.arange(4))


def halved(x: Tensor, y: complex):
    x *= 0.5
    x *= 2
    return x.mul_(y)


def test_numbers_that_do_not_round_stay() -> None:
    graph = torch.jit.script(halved).graph.copy()
    assert not _C.run_pass("round_products", graph, {}, False)


def test_the_pass_writes_a_product_beside_it() -> None:
    graph = torch.jit.script(without_a_scope).graph.copy()
    assert _C.run_pass("round_products", graph, {}, False)
    assert {"aten::mul", "aten::copy_", "aten::mul_"} <= set(operators(graph))
