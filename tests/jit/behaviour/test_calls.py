"""Scopes in callees, which are called in scopes and out of them."""

import enum
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import jit_amp

from ..support import (
    assert_parity,
    assert_parity_with,
    assert_same,
    dtypes_of,
    known_warnings_ignored,
    matrix,
)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def innermost(x: Tensor):
    plain = x @ x
    with torch.autocast("cpu", enabled=False):
        off = x @ x
    return plain, off


def middle(x: Tensor):
    before = innermost(x)
    with torch.autocast("cpu", dtype=torch.float16):
        inside = innermost(x)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            for_another_device = innermost(x)
    return before, inside, for_another_device, innermost(x)


def outermost(x: Tensor):
    before = middle(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = middle(x)
        with torch.autocast("cpu", enabled=False):
            off = middle(x)
    return before, inside, off, middle(x)


def test_scopes_of_callees_and_of_callers_nest() -> None:
    results = assert_parity(outermost, (matrix(),))
    half = [F16, F32, F16, F32]
    assert dtypes_of(results["none"]) == [
        *([F32, F32, *half, F32, F32]),
        *([BF16, F32, *half, BF16, F32]),
        *([F32, F32, *half, F32, F32]),
        *([F32, F32, *half, F32, F32]),
    ]


def default_dtype_inside(x: Tensor):
    with torch.autocast("cpu"):
        return x @ x


def default_dtype_in_a_callee(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        inside = default_dtype_inside(x)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            off = default_dtype_inside(x)
    return inside, off, default_dtype_inside(x)


def test_a_callees_default_dtype_is_its_callers() -> None:
    results = assert_parity(default_dtype_in_a_callee, (matrix(),))
    assert dtypes_of(results["none"]) == [F16, BF16, BF16]
    assert dtypes_of(results["cpu_float16"]) == [F16, BF16, F16]


def scoped_by_arguments(x: Tensor, dtype: torch.dtype = torch.bfloat16, enabled: bool = True):
    with torch.autocast("cpu", dtype=dtype, enabled=enabled):
        return x @ x


def passed_on(x: Tensor, dtype: torch.dtype, enabled: bool):
    return scoped_by_arguments(x, enabled=enabled, dtype=dtype)


def constants_through_calls(x: Tensor):
    return (
        passed_on(x, torch.float16, True),
        passed_on(x, torch.float16, False),
        scoped_by_arguments(x),
        scoped_by_arguments(x, torch.float16),
        scoped_by_arguments(x, enabled=False),
    )


def test_constants_reach_a_scope_through_calls_and_defaults() -> None:
    results = assert_parity(constants_through_calls, (matrix(),))
    assert dtypes_of(results["none"]) == [F16, F32, BF16, F16, F32]


plain_script = torch.jit.script(middle)
lowered_script = jit_amp.script(middle)


def calls_what_pytorch_scripted(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = plain_script(x)
    return inside, plain_script(x)


def calls_what_jit_amp_scripted(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = lowered_script(x)
    return inside, lowered_script(x)


def calls_python(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = middle(x)
    return inside, middle(x)


@pytest.mark.parametrize("function", [calls_what_pytorch_scripted, calls_what_jit_amp_scripted])
def test_a_scope_reaches_into_a_scripted_callee(function: Callable[..., Any]) -> None:
    assert_parity_with(calls_python, function, (matrix(),))


def test_a_lowered_function_called_from_eager_heeds_the_scope_around() -> None:
    for _ in range(3):
        with known_warnings_ignored():
            assert_same(calls_what_jit_amp_scripted(matrix()), calls_python(matrix()), "eager")


FREED = """
import gc
import warnings

import torch
from torch import Tensor

import jit_amp

warnings.simplefilter("ignore")


def product(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


def same(x: Tensor):
    return x


def make():
    inner = jit_amp.script(product)

    def outer(x: Tensor):
        return inner(x)

    return jit_amp.script(outer)


scripted = make()
gc.collect()
others = [jit_amp.script(same) for _ in range(300)]
x = torch.randn(4, 4)
for enabled in (True, False):
    with torch.autocast("cpu", dtype=torch.float16, enabled=enabled):
        assert scripted(x).dtype == torch.bfloat16, (enabled, scripted(x).dtype)
"""


def test_a_caller_keeps_its_lowered_callee_alive(tmp_path: Path) -> None:
    script = tmp_path / "freed.py"
    script.write_text(FREED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def capturing(helper: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    def captured(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return helper(x), x @ x

    return captured


def nesting(helper: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Any]:
    inner = capturing(helper)

    def outer(x: Tensor):
        with torch.autocast("cpu", enabled=False):
            inside = helper(x), inner(x)
        return inside, helper(x), inner(x)

    return outer


def product(x: Tensor) -> Tensor:
    return x @ x


def product_in_half(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.float16):
        return x @ x


@pytest.mark.parametrize(
    ("helper", "dtypes"),
    [
        (product, [F32, BF16, BF16, F32, BF16, BF16]),
        (product_in_half, [F16, F16, BF16, F16, F16, BF16]),
    ],
)
def test_scopes_reach_into_what_a_closure_captures(
    helper: Callable[..., Any], dtypes: list[torch.dtype]
) -> None:
    results = assert_parity(nesting(helper), (matrix(),))
    assert dtypes_of(results["none"]) == dtypes


def expressions_in_a_scope(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        listed = [each @ y for each in [x, y]]
        chosen = x @ y if listed[0].sum() > 0 else y @ x
        other = [x @ y if i > 0 else x for i in range(2)]
        keyed = {str(i): x @ y for i in range(2)}
    return listed, chosen, other, keyed, [each @ y for each in [x, y]]


def test_comprehensions_and_conditional_expressions_are_in_their_scope() -> None:
    results = assert_parity(expressions_in_a_scope, (matrix(), matrix(1)))
    assert dtypes_of(results["none"]) == [*[BF16] * 3, F32, *[BF16] * 3, F32, F32]


@torch.jit._overload
def overloaded(x: int) -> int: ...


@torch.jit._overload
def overloaded(x: Tensor) -> Tensor: ...  # noqa: F811


def overloaded(x):  # noqa: F811
    if isinstance(x, Tensor):
        return x @ x
    return x + 1


@torch.jit.script_if_tracing
def scripted_if_traced(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        return x @ x


class Device(enum.Enum):
    CPU = "cpu"
    CUDA = "cuda"


def other_kinds_of_callees(x: Tensor):
    with torch.autocast(Device.CPU.value, dtype=torch.bfloat16):
        inside = overloaded(x), overloaded(1), scripted_if_traced(x)
        with torch.autocast(Device.CUDA.value, enabled=False):
            again = overloaded(x)
    return inside, again, overloaded(x)


def test_scopes_reach_into_overloads_and_enumerations_name_devices() -> None:
    results = assert_parity(other_kinds_of_callees, (matrix(),))
    assert dtypes_of(results["none"]) == [BF16, F16, BF16, F32]


def runs_an_awaitable(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        later = torch.jit._awaitable(product, x)
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.jit._awaitable_wait(later)


def test_an_awaitable_runs_in_the_scope_where_it_is_waited_for_or_is_refused() -> None:
    try:
        jit_amp.script(runs_an_awaitable)
    except jit_amp.AutocastError as refused:
        assert "awaitable" in str(refused)
    else:
        assert_parity(runs_an_awaitable, (matrix(),))
