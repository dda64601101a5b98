"""Ways out of a scope: return, break, continue."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ..support import (
    assert_parity,
    dtypes_of,
    matrix,
    refusal,
)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def returns_from_two_scopes(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ x
        with torch.autocast("cpu", dtype=torch.float16):
            return a, x @ x


def returns_from_the_only_statement_of_a_loop(x: Tensor):
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x
    return x


def returns_from_a_loop(x: Tensor):
    for i in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        if i == 2:
            return y, x @ x
    return x, x


def returns_from_either_branch(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if x.sum() > 0:
            return x @ y
        else:
            return y @ x


def returns_nothing(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x.add_(x @ x)
        return


def loop_in_a_scope(x: Tensor):
    y = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for i in range(4):
            if i == 1:
                continue
            y = x @ y
            if i == 2:
                break
            y = y + x
    return y, x @ x


def loop_of_scopes(x: Tensor):
    y = x
    for i in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ y.float()
        if i == 2:
            break
        y = x @ y.float()
    return y, x @ x


def conditions_in_a_scope(x: Tensor):
    count = 0
    y = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        while (x @ y).dtype == torch.bfloat16 and count < 3:
            y = x @ y
            count += 1
    while (x @ x).dtype == torch.bfloat16 and count < 5:
        count += 1
    return y, count


def scope_that_may_not_be_entered(x: Tensor, times: int):
    y = x
    for _ in range(times):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
    return y, x @ x


@pytest.mark.parametrize(
    ("function", "more", "dtypes"),
    [
        (returns_from_two_scopes, [], [BF16, F16]),
        (returns_from_the_only_statement_of_a_loop, [], [BF16]),
        (returns_from_a_loop, [], [BF16, F32]),
        (returns_from_either_branch, [matrix(1)], [BF16]),
        (returns_nothing, [], []),
        (loop_in_a_scope, [], [BF16, F32]),
        (loop_of_scopes, [], [BF16, F32]),
        (conditions_in_a_scope, [], [BF16]),
        (scope_that_may_not_be_entered, [0], [F32, F32]),
        (scope_that_may_not_be_entered, [2], [BF16, F32]),
    ],
)
def test_a_scope_ends_however_it_is_left(
    function: Callable[..., Any], more: list[Any], dtypes: list[torch.dtype]
) -> None:
    results = assert_parity(function, (matrix(), *more))
    assert dtypes_of(results["none"]) == dtypes


def test_conditions_are_evaluated_in_their_scope() -> None:
    results = assert_parity(conditions_in_a_scope, (matrix(),))
    assert results["none"][1] == 3
    assert results["cpu"][1] == 5


def returns_before_a_scope(x: Tensor, early: bool):
    if early:
        return x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
    return y


def continues_before_a_scope(x: Tensor):
    y = x
    for i in range(3):
        if i == 1:
            continue
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ y
    return y


@pytest.mark.parametrize("function", [returns_before_a_scope, continues_before_a_scope])
def test_leaving_before_a_scope_is_more_than_pytorchs_compiler_can(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(RuntimeError, match="INTERNAL ASSERT FAILED"):
        torch.jit.script(function)
    assert "PyTorch's own compiler fails" in refusal(function)
