"""Traces inside scripted code, and scripted code inside traces."""

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import (
    assert_parity_with,
    dtypes_of,
    matrix,
)
from .test_calls import product_in_half

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def to_be_traced(x: Tensor, y: Tensor):
    return x @ y, torch.cat([x, y.to(torch.bfloat16)]), torch.softmax(x, 0)


traced = torch.jit.trace(to_be_traced, (matrix(), matrix(1)))


def calls_a_trace(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = traced(x, y)
        with torch.autocast("cpu", enabled=False):
            b = traced(x, y)
    with torch.autocast("cuda", dtype=torch.float16), torch.autocast("cpu", dtype=torch.float16):
        c = traced(x, y)
    return a, b, c, traced(x, y)


def calls_what_was_traced(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = to_be_traced(x, y)
        with torch.autocast("cpu", enabled=False):
            b = to_be_traced(x, y)
    with torch.autocast("cuda", dtype=torch.float16), torch.autocast("cpu", dtype=torch.float16):
        c = to_be_traced(x, y)
    return a, b, c, to_be_traced(x, y)


def test_scopes_reach_into_a_traced_function() -> None:
    results = assert_parity_with(calls_what_was_traced, calls_a_trace, (matrix(), matrix(1)))
    assert [each[0].dtype for each in results["none"]] == [BF16, F32, F16, F32]


class Calling(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            a = self.inner(x)
            with torch.autocast("cpu", enabled=False):
                b = self.inner(x)
        return a, b, self.inner(x)


@pytest.mark.usefixtures("no_weight_cache")
def test_scopes_reach_into_a_traced_module() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Softmax(-1), nn.Linear(4, 4))
    trace = torch.jit.trace(model, matrix())
    results = assert_parity_with(Calling(model), Calling(trace), (matrix(),))
    assert dtypes_of(results["none"]) == [F16, F32, F32]


scripted_in_a_trace = jit_amp.script(product_in_half)


def traces_a_scripted_callee(x: Tensor):
    return scripted_in_a_trace(x), x @ x


def test_a_trace_keeps_the_scopes_of_a_lowered_callee() -> None:
    trace = torch.jit.trace(traces_a_scripted_callee, (matrix(),))
    results = assert_parity_with(traces_a_scripted_callee, trace, (matrix(1),))
    assert dtypes_of(results["none"]) == [F16, F32]
