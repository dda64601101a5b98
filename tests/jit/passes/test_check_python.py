"""check_python: a call of Python is refused, by the function's name."""

import pytest
import torch
from torch import Tensor

from jit_amp import _C, AutocastError

from .ir import unchanged


@torch.jit.ignore
def in_python(x: Tensor) -> Tensor:
    return x + 1


@torch.jit.script
def calls(x: Tensor, often: bool):
    if often:
        x = in_python(x)
    return x


def test_it_is_refused_by_name() -> None:
    graph = calls.graph.copy()
    before = str(graph)
    with pytest.raises(AutocastError, match=r"`in_python` is Python code.*JA301"):
        _C.run_pass("check_python", graph, {}, True)
    assert str(graph) == before


def test_all_else_is_left_as_it_is() -> None:
    unchanged(
        "check_python",
        """
        graph(%x : Tensor):
          %y : Tensor = aten::relu(%x)
          return (%y)
        """,
    )
