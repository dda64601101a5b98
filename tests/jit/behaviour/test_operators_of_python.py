"""Operators of Python's of which TorchScript's compiler makes others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, List  # noqa: UP035  # as TorchScript reads it

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import AMBIENTS, assert_same


class Dictionary(nn.Module):
    def forward(self, x: Tensor):
        found = {"a": x, "b": x + 1}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            found["a"] = y
            found["a"] *= 0.57735
            found["a"] += x  # stays bfloat16
            found["b"] -= y
            found["b"] /= 3
            found["b"] = found["b"] * 2
            return y, found


class AllOfDictionaries(nn.Module):
    """Every operator that writes, to elements that have a second name; floats and integers."""

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            floats, inner = {"a": y - 1}, {"b": {"c": y * 3}}
            whole = {1: (y * 8).to(torch.int32)}
            a, b, n = floats["a"], inner["b"]["c"], whole[1]
            floats["a"] %= 0.37
            inner["b"]["c"] **= 2
            whole[1] %= 5
            whole[1] <<= 2
            whole[1] |= 1
            whole[1] &= whole[1] + 7
            whole[1] ^= n > 3
            whole[1] >>= 1
            return floats["a"], inner["b"]["c"], whole[1], a, b, n


class AllOfNames(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            z, n = [y * 3], (y * 8).to(torch.int32)
            seen = n[0]
            z[0] %= -0.3
            n <<= 2
            n >>= 1
            n %= -4
            return z[0], n, seen


class Subtracts(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            mask = (y > 0).to(torch.uint8)
            return 1.0 - mask, 3 - mask, y * (1.0 - mask), 0.57735 - y, 1.0 - y, -mask + 1.0


class Masks(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            mask = y > 0
            seen = mask[0]
            mask &= y < 2
            mask |= y < -2
            mask ^= x > 1
            y **= 2
            y %= 0.37
            return y, mask, seen


WAYS: dict[str, Callable[[Any, Tensor], Any]] = {
    "script": lambda m, x: jit_amp.script(m),
    "trace": lambda m, x: jit_amp.trace(m, (x,), strict=False),
    "exact": lambda m, x: jit_amp.freeze(m, optimize_numerics=False),
    "exact, examples": lambda m, x: jit_amp.freeze(m, example_inputs=(x,), optimize_numerics=False),
    "export": lambda m, x: jit_amp.export(m, (x,)).module(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [Dictionary, AllOfDictionaries, AllOfNames, Subtracts, Masks])
def test_they_are_pythons(kind: Any, way: str) -> None:
    module, x = kind().eval(), torch.randn(4, 4)
    made = WAYS[way](module, x)
    for ambient in ["none", "cpu"] if way == "script" else ["none"]:
        for _ in range(3):
            with AMBIENTS[ambient](), torch.no_grad():
                theirs, ours = x.clone(), x.clone()
                assert_same(made(ours), module(theirs), f"{way}, ambient {ambient}")
                assert_same(ours, theirs, "the input")


def subtracts_alone(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return 1.0 - x


def test_nothing_is_negated() -> None:
    """PyTorch cannot negate these integers."""
    x = torch.tensor([2, 3]).to(torch.uint16)
    scripted = jit_amp.script(subtracts_alone)
    for _ in range(3):
        assert_same(scripted(x), subtracts_alone(x), "1.0 - x")


def writes_to_a_part(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        mask = y > 0
        mask[0] &= y[0] > 1
        return mask


def raises_a_part(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        y[:, 0] **= 2
        return y


@pytest.mark.parametrize("function", [writes_to_a_part, raises_a_part])
def test_a_write_to_a_part_that_is_dropped_is_refused(function: Any) -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"JA210(.|\n)*= "):
        jit_amp.script(function)


def writes_to_an_argument(x: Tensor, mask: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mask &= x > 0.5
        return x @ x


def writes_to_a_second_name(x: Tensor, mask: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        positive = x > 0.5
        other = positive
        other |= mask
        return x @ x, positive


def writes_to_what_has_a_second_name(x: Tensor, mask: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        positive = x > 0.5
        row = positive[0]
        positive ^= mask
        return x @ x, row


def writes_to_what_is_in_a_list(x: Tensor, mask: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        squares = [x * 1, x * 2]
        for square in squares:
            square **= 2
        return x @ x, squares[0]


def writes_to_what_is_put_into_a_list(x: Tensor, mask: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x * 1
        found: List[Tensor] = []  # noqa: UP006
        found.append(y)
        y **= 2
        return x @ x, found[0]


class WritesToAnAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(3, 3, dtype=torch.bool))

    def forward(self, x: Tensor, mask: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            own = self.mask
            own &= mask
            return x @ x


@pytest.mark.parametrize(
    "program",
    [
        writes_to_an_argument,
        writes_to_a_second_name,
        writes_to_what_has_a_second_name,
        writes_to_what_is_in_a_list,
        writes_to_what_is_put_into_a_list,
        WritesToAnAttribute(),
    ],
)
def test_a_write_by_one_of_several_names_that_is_dropped_is_refused(program: Any) -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"JA210(.|\n)*= "):
        jit_amp.script(program)


def keeps_all_names(x: Tensor, mask: Tensor, flags: int, switch: bool):
    """What is read afterwards is written to; numbers are not, whatever is left of them."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        other = mask
        other &= x > 0.5
        y = x.type_as(x)
        y **= 2
        width = 2
        again = width
        width **= 2
        flags |= 4
        switch &= flags > 2
        size = x.size(0)
        size **= 2
        for i in range(2):
            flags ^= i
        return x @ x, other, mask, y, float(width + again), flags, switch, float(size)


def test_a_write_that_is_there_is_not_refused() -> None:
    scripted = jit_amp.script(keeps_all_names)
    for _ in range(3):
        given = [(torch.rand(3, 3), torch.rand(3, 3) > 0.5, 1, True) for _ in range(2)]
        for one, other in zip(given[0], given[1], strict=True):
            if isinstance(one, Tensor):
                other.copy_(one)  # type: ignore[attr-defined]
        assert_same(list(scripted(*given[0])), list(keeps_all_names(*given[1])), "a call")


def for_python_alone(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        mask = y > 0
        if not torch.jit.is_scripting():
            mask[0] &= y[0] > -1000
        return y, mask


def test_what_the_compiler_leaves_out_is_no_lost_write() -> None:
    x = torch.randn(3, 3)
    assert_same(jit_amp.script(for_python_alone)(x), for_python_alone(x), "for Python alone")


def elements(x: Tensor):
    sizes, flags = [1, 2], {"a": 1}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        sizes[0] |= 4
        flags["a"] ^= 3
        return y * sizes[0] + flags["a"]


def test_elements_of_lists_and_dictionaries_are_set() -> None:
    scripted, x = jit_amp.script(elements), torch.randn(3, 3)
    for _ in range(3):
        assert_same(scripted(x), elements(x), "elements")
