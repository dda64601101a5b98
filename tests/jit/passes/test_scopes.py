"""scopes: the autocast state at each node, as it is around the call and as scopes change it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import jit_amp
from jit_amp import _C

from . import ir
from .ir import BOTH, CPU, CUDA, OFF, State

BF16, HALF = torch.bfloat16, torch.float16


def knows(graph: torch._C.Graph, entry: State, expected: str) -> None:
    """The states at what is computed; the graph stays as it is."""
    before = str(graph)
    lines = [
        line.rstrip()
        for line in _C.scopes_of(graph, entry).splitlines()
        if line.startswith("aten::")
    ]
    assert "\n".join(lines) == inspect.cleandoc(expected)
    assert str(graph) == before


BLOCKS = """
graph(%x : Tensor, %n : int, %c : bool):
  %yes : bool = prim::Constant[value=1]()
  %y : Tensor = prim::If(%c)
    block0():
      %a : Tensor = aten::mm(%x, %x)
      -> (%a)
    block1():
      -> (%x)
  prim::Loop(%n, %yes)
    block0(%i : int):
      %b : Tensor = aten::relu(%x)
      -> (%yes)
  return (%y)
"""


@pytest.mark.parametrize(
    ("entry", "state"),
    [
        (OFF, ""),
        (CPU, " cpu=BFloat16"),
        (CUDA, " cuda=Half"),
        (BOTH, " cpu=BFloat16 cuda=Half"),
        ({"cpu": HALF}, " cpu=Half"),
        ({"cpu": None}, " cpu=ambient"),
    ],
)
def test_entry(entry: State, state: str) -> None:
    """Without scopes it is the same everywhere, in blocks too."""
    knows(torch._C.parse_ir(BLOCKS), entry, f"aten::mm{state}\naten::relu{state}")


def test_in_a_task() -> None:
    """A task starts in the state of its fork."""
    graph = ir.parse("""
graph(%x : Tensor):
  %f : Future(Tensor) = prim::fork(%x)
  %r : Tensor = aten::wait(%f)
  return (%r)
with graph(%x : Tensor):
  %y : Tensor = aten::mm(%x, %x)
  return (%y)
""")
    knows(graph, CPU, "aten::mm cpu=BFloat16\naten::wait cpu=BFloat16")


def nested(x: Tensor):
    x = x.sin()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = x.cos()
        with torch.autocast("cpu", dtype=torch.float16):
            x = x.tan()
        with torch.autocast("cpu", enabled=False):
            x = x.exp()
        x = x.relu()
    return x.neg()


def two_devices(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = x.sin()
        with torch.autocast("cuda", dtype=torch.float16):
            x = x.cos()
        return x.tan()


def in_a_branch(x: Tensor, c: bool):
    if c:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = x.sin()
        x = x.cos()
    return x.tan()


def around_a_loop(x: Tensor, n: int):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(n):
            x = x.sin()
    return x.cos()


@pytest.mark.parametrize(
    ("function", "entry", "expected"),
    [
        (
            nested,
            OFF,
            """
            aten::sin
            aten::cos cpu=BFloat16
            aten::tan cpu=Half
            aten::exp cpu=off
            aten::relu cpu=BFloat16
            aten::neg
            """,
        ),
        (
            nested,
            {"cpu": HALF},
            """
            aten::sin cpu=Half
            aten::cos cpu=BFloat16
            aten::tan cpu=Half
            aten::exp cpu=off
            aten::relu cpu=BFloat16
            aten::neg cpu=Half
            """,
        ),
        (
            two_devices,
            CUDA,
            """
            aten::sin cpu=BFloat16 cuda=Half
            aten::cos cpu=BFloat16 cuda=Half
            aten::tan cpu=BFloat16 cuda=Half
            """,
        ),
        (
            two_devices,
            OFF,
            """
            aten::sin cpu=BFloat16
            aten::cos cpu=BFloat16 cuda=Half
            aten::tan cpu=BFloat16
            """,
        ),
        (
            in_a_branch,
            OFF,
            """
            aten::sin cpu=BFloat16
            aten::cos
            aten::tan
            """,
        ),
        (
            around_a_loop,
            OFF,
            """
            aten::sin cpu=BFloat16
            aten::cos
            """,
        ),
    ],
)
def test_scopes(function: Callable[..., Tensor], entry: State, expected: str) -> None:
    """Inside its `with` a scope holds, and after it what was before."""
    knows(torch.jit.script(function).graph, entry, expected)


def enabled_at_run_time(x: Tensor, c: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=c):
        return x.sin()


def dtype_at_run_time(x: Tensor, d: int):
    with torch.autocast("cpu", dtype=d):
        return x.sin()


@pytest.mark.parametrize("function", [enabled_at_run_time, dtype_at_run_time])
def test_refused(function: Callable[..., Tensor]) -> None:
    """A state that is known at run time only is not guessed."""
    graph = torch.jit.script(function).graph
    with pytest.raises(jit_amp.AutocastError, match="known only at run time"):
        _C.scopes_of(graph, OFF)
