"""cast_io: where the casts of freeze(io_dtype=) stand, and to what inputs are cast."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..deploy.test_io_dtype import Linear, Plain, X, assert_gives, frozen, made, nodes


@torch.no_grad()
def test_an_input_in_which_examples_differ_stays() -> None:
    module = made(Linear)
    result = frozen(module, example_inputs=[(X,), (X.bfloat16(),)])
    assert_gives(result, (X,), module(X).float())
    assert len(nodes(result, "aten::to")) == 2  # autocast's, and that of the result


@torch.no_grad()
def test_weights_of_several_dtypes_tell_nothing() -> None:
    module = made(Plain)
    module.linear.bfloat16()
    module.norm.double()
    result = frozen(module)
    with pytest.raises(RuntimeError, match="dtype"):
        result(X)


@torch.no_grad()
def test_with_examples_nothing_is_asked_when_it_runs() -> None:
    module = made(Linear).bfloat16()
    result = frozen(module, example_inputs=(X.bfloat16(),))
    assert len(nodes(result, "aten::to")) == 2
    assert [str(n.sourceRange()).count("<jit_amp io_dtype") for n in nodes(result, "aten::to")] == [
        1,
        1,
    ]
    asked = [n for n in nodes(result, "prim::If") if "io_dtype" in str(n.sourceRange())]
    assert not asked
    with pytest.raises(torch.jit.Error, match="`x`: expected float32 on cpu, got bfloat16"):
        result(X.bfloat16())


class Methods(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return self.encode(x) + 0.001  # in bfloat16

    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Bare(Linear):
    """The same without a scope."""

    def forward(self, x: Tensor) -> Tensor:
        return self.encode(x) + 0.001

    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        return self.linear(x)


@torch.no_grad()
def test_methods_that_are_kept() -> None:
    """forward calls one of them, and has from it what it had."""
    module: Any = made(Methods)
    result = frozen(module, preserved_attrs=["encode"], example_inputs=(X,))
    assert_gives(result, (X,), module(X).float())
    assert_gives(result.encode, (X,), module.encode(X).float())
    assert not torch.equal(module(X).float(), module.encode(X).float() + 0.001)
    bare: Any = made(Bare).bfloat16()
    for options in ({}, {"example_inputs": (X.bfloat16(),)}):
        result = frozen(bare, preserved_attrs=["encode"], **options)
        assert_gives(result, (X,), bare(X.bfloat16()).float())
        assert_gives(result.encode, (X,), bare.encode(X.bfloat16()).float())


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Linear()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * 1.001


@torch.no_grad()
def test_a_part_that_is_kept() -> None:
    module = made(Outer)
    result = frozen(module, preserved_attrs=["inner"], example_inputs=(X,))
    assert_gives(result, (X,), module(X).float())
    assert_gives(result.inner, (X,), module.inner(X).float())


@torch.no_grad()
def test_a_trace() -> None:
    """Its graph says of the input that it is bfloat16."""
    plain, x = made(Plain).bfloat16(), X.bfloat16()
    for trace in (torch.jit.trace, jit_amp.trace):
        for options in ({}, {"example_inputs": (x,)}):
            result = frozen(trace(plain.linear, (x,)), **options)
            assert_gives(result, (X,), plain.linear(x).float())
    result = frozen(jit_amp.trace(made(Linear), (X,)), example_inputs=(X,))
    assert_gives(result, (X,), made(Linear)(X).float())
