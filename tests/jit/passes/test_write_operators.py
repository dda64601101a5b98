"""write_operators: operators on tensors are what they are in Python."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
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


def of_a_dictionary(x: Tensor):
    d = {"k": x}
    d["k"] += x
    d["k"] -= 1
    d["k"] *= 2
    d["k"] /= 4.0
    d["k"] = d["k"] + 1
    return d["k"]


def subtracted(x: Tensor):
    return 1.0 - x, -x + 1.0


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
    assert _C.run_pass("write_operators", graph, {}, False)
    assert operators(graph) == ["aten::pow_"]


def test_a_remainder_has_the_sign_of_the_divisor() -> None:
    graph = torch.jit.script(reminded).graph.copy()
    assert _C.run_pass("write_operators", graph, {}, False)
    assert operators(graph) == ["aten::remainder_"]


def test_masks_are_written_to() -> None:
    graph = torch.jit.script(masked).graph.copy()
    assert _C.run_pass("write_operators", graph, {}, False)
    kinds = ["bitwise_and_", "__and__", "bitwise_or_", "bitwise_xor_"]
    assert operators(graph) == [f"aten::{kind}" for kind in kinds]


def test_an_entry_of_a_dictionary_is_written_to() -> None:
    graph = torch.jit.script(of_a_dictionary).graph.copy()
    assert _C.run_pass("write_operators", graph, {}, False)
    found = [kind for kind in operators(graph) if "item" not in kind and "aten" in kind]
    assert found == [f"aten::{kind}" for kind in ("add_", "sub_", "mul_", "div_", "add")]


def test_a_number_minus_a_tensor_is_rsub() -> None:
    graph = torch.jit.script(subtracted).graph.copy()
    assert _C.run_pass("write_operators", graph, {}, False)
    found = [kind for kind in operators(graph) if "aten" in kind]
    assert found == ["aten::rsub", "aten::neg", "aten::add"]


@pytest.mark.parametrize("function", [augmented, reminded, masked, of_a_dictionary, subtracted])
def test_in_what_was_saved_they_are_seen_too(function: Callable[..., Tensor]) -> None:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(function), file)
    file.seek(0)
    loaded = torch.jit.load(file)
    graph, as_made = loaded.graph.copy(), torch.jit.script(function).graph.copy()
    for each in (graph, as_made):
        _C.run_pass("write_operators", each, {}, False)
    assert operators(graph) == operators(as_made)


def test_another_fmod_stays() -> None:
    graph = torch.jit.script(fmod).graph.copy()
    assert not _C.run_pass("write_operators", graph, {}, False)
    assert "aten::fmod_" in operators(graph)


def test_another_power_stays_whatever_stands_beside_it() -> None:
    graph = torch.jit.script(plain).graph.copy()
    assert not _C.run_pass("write_operators", graph, {}, False)
    assert "aten::pow" in operators(graph)


def test_numbers_are_not_written_to() -> None:
    assert not _C.run_pass("write_operators", torch.jit.script(of_numbers).graph.copy(), {}, False)
