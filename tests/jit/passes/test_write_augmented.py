"""write_augmented: `x **= y` and its like write to x, and `x %= y` is `remainder_`."""

from __future__ import annotations

import torch
from torch import Tensor

from jit_amp import _C

from .ir import operators


def augmented(x: Tensor):
    x **= 2
    return x


def reminded(x: Tensor):
    x %= 0.5
    return x


def masked(x: Tensor, y: Tensor):
    x &= y
    x |= y & y
    x ^= 3
    return x


def fmod(x: Tensor):
    x.fmod_(0.5)  # and no %=
    return x, "%="


def plain(x: Tensor):
    y = x**2  # and no **=
    return y, "**="


def of_numbers(x: float):
    x **= 2.0
    return x


def test_it_is_written_to() -> None:
    graph = torch.jit.script(augmented).graph.copy()
    assert _C.run_pass("write_augmented", graph, {}, False)
    assert operators(graph) == ["aten::pow_"]


def test_a_remainder_has_the_sign_of_the_divisor() -> None:
    graph = torch.jit.script(reminded).graph.copy()
    assert _C.run_pass("write_augmented", graph, {}, False)
    assert operators(graph) == ["aten::remainder_"]


def test_masks_are_written_to() -> None:
    graph = torch.jit.script(masked).graph.copy()
    assert _C.run_pass("write_augmented", graph, {}, False)
    kinds = ["bitwise_and_", "__and__", "bitwise_or_", "bitwise_xor_"]
    assert operators(graph) == [f"aten::{kind}" for kind in kinds]


def test_another_fmod_stays() -> None:
    graph = torch.jit.script(fmod).graph.copy()
    assert not _C.run_pass("write_augmented", graph, {}, False)
    assert "aten::fmod_" in operators(graph)


def test_another_power_stays_whatever_stands_beside_it() -> None:
    graph = torch.jit.script(plain).graph.copy()
    assert not _C.run_pass("write_augmented", graph, {}, False)
    assert "aten::pow" in operators(graph)


def test_numbers_are_not_written_to() -> None:
    assert not _C.run_pass("write_augmented", torch.jit.script(of_numbers).graph.copy(), {}, False)
