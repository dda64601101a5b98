"""cast_tensors: the tensors in a value cast, as freeze(io_dtype=) has it done to arguments."""

from typing import Any, Dict, List, Optional, Tuple  # noqa: UP035  # as TorchScript's

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..deploy.test_io_dtype import (
    BF16,
    F32,
    F64,
    Pair,
    X,
    assert_gives,
    frozen,
    in_dtype,
    loaded,
    made,
)
from ..support import assert_same


class Inputs(nn.Module):
    """Tells of what size the elements of its arguments are."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        ids: Tensor,
        batch: Dict[str, Tensor],  # noqa: UP006
        several: List[Tensor],  # noqa: UP006
        pair: Pair,
        deep: Tuple[Optional[Tensor], List[Pair]],  # noqa: UP006, UP045
        scale: float = 2.0,
    ):
        sizes = [x.element_size(), mask.element_size(), batch["x"].element_size()]
        sizes += [batch["mask"].element_size(), ids.element_size(), pair.logits.element_size()]
        sizes += [element.element_size() for element in several]
        maybe = deep[0]
        if maybe is not None:
            sizes.append(maybe.element_size())
        sizes += [element.logits.element_size() for element in deep[1]]
        y = self.linear(x) * scale + batch["x"] + several[0] + pair.logits
        return y * mask, sizes, list(batch.keys()), deep


def taken(x: torch.dtype, mask: torch.dtype) -> tuple[Any, ...]:
    """Arguments whose numbers are exact in bfloat16."""
    value = X.bfloat16()
    return (
        value.to(x),
        value.to(mask),
        torch.arange(8),
        {"mask": value.to(mask), "x": value.to(x)},
        [value.to(x), value.to(x)],
        Pair(value.to(x), 1),
        (value.to(x), [Pair(value.to(x), 2)]),
    )


@pytest.mark.parametrize("scoped", [False, True])
@torch.no_grad()
def test_inputs_are_cast_to_what_the_examples_have(scoped: bool) -> None:
    module = made(Inputs).bfloat16()
    example = taken(BF16, F64)
    assert module(*example)[1] == [2, 8, 2, 8, 8, 2, 2, 2, 2, 2]
    around = torch.autocast("cpu", dtype=torch.bfloat16)
    reference = jit_amp.script(module, autocast=around) if scoped else module
    result = frozen(reference, example_inputs=example)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=scoped):
        expected = in_dtype(module(*example), F32)
    for form in (result, loaded(result)):
        assert_gives(form, taken(F32, F64), expected, f"scoped {scoped}")


@torch.no_grad()
def test_an_input_stays_that_is_float32_in_the_example() -> None:
    """Of a dictionary that is told by its key."""
    module = made(Inputs).bfloat16()
    expected = in_dtype(module(*taken(BF16, F32)), F32)
    assert expected[1] == [2, 4, 2, 4, 8, 2, 2, 2, 2, 2]
    assert_gives(frozen(module, example_inputs=taken(BF16, F32)), taken(F32, F32), expected)


class Same(nn.Module):
    def forward(self, x: Tensor, some: List[Tensor]):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.t()
        return x, some, [some[0], y], y, y


def test_what_has_the_dtype_stays_what_it_is() -> None:
    for options in ({}, {"example_inputs": (X, [X])}):
        result = frozen(made(Same), **options)
        x = X.clone().requires_grad_()
        some = [X.clone()]
        same, listed, other, y, again = result(x, some)
        assert same is x
        assert listed[0] is some[0] and other[0] is some[0]
        assert y.requires_grad and y.dtype == again.dtype == F32
        (gradient,) = torch.autograd.grad(y.sum(), x)
        reference = x.detach().clone().requires_grad_()
        (expected,) = torch.autograd.grad(Same()(reference, some)[3].float().sum(), reference)
        assert_same(gradient, expected, "gradient")
