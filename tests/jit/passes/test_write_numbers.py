"""write_numbers: a number that the tracer has made a tensor of is a number again."""

from __future__ import annotations

import io

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp import _C

from ..support import assert_same
from .ir import check_ir


class Numbers(nn.Module):
    def forward(self, i: Tensor, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = i * 0.5
            return half, half.to(half.dtype) + x @ x, i * 1j, 2 - i, i / 3, i**2, x * 2


def test_a_traced_number() -> None:
    graph = torch.jit.trace(lambda i: i * 0.5 + 1, torch.arange(3)).graph
    torch._C._jit_pass_inline(graph)
    assert _C.run_pass("write_numbers", graph, {}, False)
    check_ir(
        graph,
        """
        # CHECK: float = prim::Constant[value=0.5]()
        # CHECK: aten::mul(
        # CHECK-NOT: Double(
        """,
    )
    assert not _C.run_pass("write_numbers", graph, {}, False)


@pytest.mark.parametrize("examples", [False, True])
def test_a_frozen_trace_in_a_file(examples: bool) -> None:
    model, inputs = Numbers().eval(), (torch.arange(3), torch.rand(3, 3))
    traced = jit_amp.trace(model, inputs)
    frozen = jit_amp.freeze(
        traced, optimize_numerics=False, example_inputs=inputs if examples else None
    )
    saved = io.BytesIO()
    torch.jit.save(frozen, saved)
    saved.seek(0)
    for runner in (traced, frozen, torch.jit.load(saved)):
        for call in range(3):
            assert_same(runner(*inputs), model(*inputs), f"call {call}")


def test_a_trace_in_a_file() -> None:
    model, inputs = Numbers().eval(), (torch.arange(3), torch.rand(3, 3))
    saved = io.BytesIO()
    torch.jit.save(jit_amp.trace(model, inputs), saved)
    saved.seek(0)
    served = jit_amp.script(torch.jit.load(saved))
    for call in range(3):
        assert_same(served(*inputs), model(*inputs), f"call {call}")
