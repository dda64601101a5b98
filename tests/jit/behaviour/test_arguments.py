"""What is written in a scope's parentheses."""

import inspect
import itertools
import linecache
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import jit_amp

from ..support import (
    assert_parity,
    dtypes_of,
    matrix,
    refusal,
)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def written(arguments: str) -> Callable[..., Any]:
    """A function whose scope is `torch.autocast(<arguments>)`."""
    source = f"""\
def scoped(x: Tensor):
    with torch.autocast({arguments}):
        inside = x @ x
    return inside, x @ x
"""
    name = f"<scope written as {arguments}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names = dict(inspect.getmodule(written).__dict__)  # type: ignore[union-attr]
    exec(compile(source, name, "exec"), names)
    return names["scoped"]


KEYWORDS = {
    "device_type": '"cpu"',
    "dtype": "torch.float16",
    "enabled": "True",
    "cache_enabled": "False",
}


@pytest.mark.parametrize("order", list(itertools.permutations(KEYWORDS)), ids="-".join)
def test_keywords_stand_in_any_order(order: tuple[str, ...]) -> None:
    function = written(", ".join(f"{key}={KEYWORDS[key]}" for key in order))
    results = assert_parity(function, (matrix(),), ambients=["none", "cpu"])
    assert dtypes_of(results["none"]) == [F16, F32]


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ('"cpu"', BF16),
        ('"cpu", torch.float16', F16),
        ('"cpu", torch.float16, False', F32),
        ('"cpu", torch.float16, True, False', F16),
        ('"cpu", torch.float16, True, None', F16),
        ('"cpu", None, True, True', BF16),
        ('"cpu", enabled=True, dtype=torch.float16', F16),
        ('"cpu", cache_enabled=None', BF16),
        ('"cpu", cache_enabled=True, enabled=False', F32),
        ('"cpu", cache_enabled=not True', BF16),
        ('"cpu", torch.half', F16),
        ('"c" + "pu", enabled=1 > 0 and not False', BF16),
    ],
)
def test_arguments_are_read_as_python_reads_them(arguments: str, dtype: torch.dtype) -> None:
    results = assert_parity(written(arguments), (matrix(),))
    assert dtypes_of(results["none"]) == [dtype, F32]


def cache_is_an_argument(x: Tensor, cached: bool):
    with torch.autocast("cpu", cache_enabled=cached):
        return x @ x


def cache_is_computed(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=x.size(0) > 3):
        return x @ x


def dtype_is_an_argument(x: Tensor, dtype: torch.dtype):
    with torch.autocast("cpu", dtype=dtype):
        return x @ x


def dtype_is_optional(x: Tensor, dtype: torch.dtype | None = None):
    with torch.autocast("cpu", dtype=dtype):
        return x @ x


def dtype_is_chosen(x: Tensor, half: bool):
    with torch.autocast("cpu", dtype=torch.float16 if half else torch.bfloat16):
        return x @ x


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (cache_is_an_argument, "cache_enabled"),
        (cache_is_computed, "cache_enabled"),
        (dtype_is_an_argument, "dtype"),
        (dtype_is_optional, "dtype"),
        (dtype_is_chosen, "dtype"),
    ],
)
def test_an_argument_that_is_known_at_run_time_only_is_refused(
    function: Callable[..., Any], name: str
) -> None:
    message = refusal(function)
    assert message.startswith(f"jit_amp: autocast's `{name}` is known only at run time")
    assert "with torch.autocast(" in message
    assert "<--- HERE" in message


@pytest.mark.parametrize("device", ['torch.device("cpu")', "x.device"])
def test_a_device_in_place_of_its_name_is_refused_as_in_eager(device: str) -> None:
    function = written(f"{device}, dtype=torch.bfloat16")
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        function(matrix())
    with pytest.raises(RuntimeError, match="Expected a value of type 'str' for argument 'device_"):
        jit_amp.script(function)


scope_made_outside = torch.autocast("cpu", dtype=torch.bfloat16)


def uses_a_scope_made_outside(x: Tensor):
    with scope_made_outside:
        return x @ x


def test_a_scope_that_is_made_outside_is_entered() -> None:
    assert_parity(uses_a_scope_made_outside, (matrix(),))
