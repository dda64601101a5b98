"""What a loop carries may be written to under another name: casts and writes around loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import jit_amp

from ..support import DEFAULT, assert_parity, text_of

BF16 = torch.bfloat16


def no_iteration(x: Tensor, y: Tensor, n: int):
    z = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = x @ y
        for _ in range(n):
            z = y + 1
        z.fill_(0.5)
        return before, x @ y, z


def fill(z: Tensor):
    z.fill_(0.5)


def written_by_a_helper(x: Tensor, y: Tensor, n: int):
    z = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = x @ y
        for _ in range(n):
            z = y + 1
        fill(z)
        return before, x @ y


def written_in_the_next_iteration(x: Tensor, y: Tensor, n: int):
    z, u = y + 1, y + 2
    before, after = x, x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(n):
            before = u @ y
            z.fill_(0.5)
            after = u @ y
            z = x + 1
            u = z
    return before, after, z


def written_where_it_was_before_the_loop(x: Tensor, y: Tensor, n: int):
    z, w = y + 1, y + 2
    before, after = x, x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(n):
            before = w @ y
            z.fill_(0.5)
            after = w @ y
            z = w
    return before, after, z


def written_in_a_list(x: Tensor, y: Tensor, n: int):
    z = [x]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = x @ y
        for _ in range(n):
            z = [y + 1]
        z[0].fill_(0.5)
        return before, x @ y, z


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize(
    "function",
    [
        no_iteration,
        written_by_a_helper,
        written_in_the_next_iteration,
        written_where_it_was_before_the_loop,
        written_in_a_list,
    ],
)
def test_a_write_to_what_a_loop_carries(function, n: int) -> None:
    assert_parity(function, (torch.randn(4, 4), torch.randn(4, 4), n), ambients=DEFAULT)


def test_nothing_is_left_of_the_marks() -> None:
    for function in (no_iteration, written_in_the_next_iteration):
        assert "carried" not in text_of(jit_amp.lowered_graph(function))


def result_beside_what_the_body_reads(x: Tensor, y: Tensor, n: int):
    for i in range(3):
        t = torch.neg(y)
        u = torch.neg(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(i):
                u = t @ t
        x = t * u
    return x


def test_a_loop_among_the_operands_of_an_operator() -> None:
    """PyTorch's interpreter, without its optimizations, has moved `t` away when the loop runs."""
    inputs = (torch.randn(4, 4), torch.randn(4, 4), 1)
    assert_parity(result_beside_what_the_body_reads, inputs)
