"""own_callstacks: an error in an artefact is an error, and names the user's lines."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp


class Program(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def part(self, x: Tensor, rows: int):
        return x.reshape(rows, 4)  # with 5 rows it fails

    def forward(self, x: Tensor, rows: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.part(self.linear(x), rows)


class WithoutScope(Program):
    def forward(self, x: Tensor, rows: int):
        return self.part(self.linear(x), rows)


def server(module: nn.Module) -> Any:
    return jit_amp.freeze(module, target="server")


@pytest.mark.parametrize("make", [Program, WithoutScope])
@pytest.mark.parametrize("freeze", [jit_amp.freeze, server, jit_amp.optimize_for_inference])
def test_an_error_in_an_artefact_is_an_error(
    freeze: Callable[..., Any], make: Callable[[], nn.Module]
) -> None:
    for _ in range(20):
        frozen = freeze(make().eval())
        gc.collect()
        others = [bytes(200) for _ in range(1000)]  # where the functions were
        for _ in range(3):
            with pytest.raises(RuntimeError, match="with 5 rows it fails") as raised:
                frozen(torch.rand(3, 4), 5)
        del others
    assert " in part" in str(raised.value)
