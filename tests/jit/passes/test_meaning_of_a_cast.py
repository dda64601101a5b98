"""What a cast means is written twice: in C++ for a call in process, and in TorchScript for an
artefact that asks at run time. They give the same, dtype and identity, for every operand."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from jit_amp import _C

from ..support import operators_of_ours

DTYPES = [
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64,
    torch.int64, torch.uint8, torch.bool,
]  # fmt: skip
TARGETS = [None, torch.bfloat16, torch.float16, torch.float32]
DEVICES = ["cpu", "meta", *(["cuda"] if torch.cuda.is_available() else [])]


def number(dtype: torch.dtype | None) -> str:
    if dtype is None:
        return "NoneType = prim::Constant()"
    return f"int = prim::Constant[value={CODES[dtype]}]()"


CODES = {torch.float16: 5, torch.float32: 6, torch.bfloat16: 15}


def made(kind: str, cpu: torch.dtype | None, cuda: torch.dtype | None) -> tuple[Any, Any]:
    """A function of one cast, in process and legalized with nothing known of its operand."""
    text = f"""
graph(%x : {kind}):
  %cpu : {number(cpu)}
  %cuda : {number(cuda)}
  %y : {kind} = jit_amp::cast(%x, %cpu, %cuda)
  return (%y)
"""
    dialect, stock = torch._C.parse_ir(text), torch._C.parse_ir(text)
    _C.run_pass("legalize", stock, {}, True)
    assert not operators_of_ours(stock)
    return (
        torch._C._create_function_from_graph("dialect", dialect),
        torch._C._create_function_from_graph("stock", stock),
    )


def dtypes_of(result: Any, given: Any) -> Any:
    """Dtypes, and which results are what was given."""
    if isinstance(result, list):
        return [dtypes_of(r, g) for r, g in zip(result, given, strict=True)]
    return None if result is None else (result.dtype, result.device, result is given)


def tensors() -> list[Tensor]:
    return [
        torch.ones(shape, dtype=dtype, device=device)
        for dtype, device, shape in itertools.product(DTYPES, DEVICES, [(), (2,)])
    ]


@pytest.mark.parametrize("cuda", TARGETS, ids=str)
@pytest.mark.parametrize("cpu", TARGETS, ids=str)
def test_of_a_tensor(cpu: torch.dtype | None, cuda: torch.dtype | None) -> None:
    dialect, stock = made("Tensor", cpu, cuda)
    for x in tensors():
        assert dtypes_of(stock(x), x) == dtypes_of(dialect(x), x), (x.dtype, x.device)


@pytest.mark.parametrize("cpu", TARGETS, ids=str)
def test_of_what_may_be_none(cpu: torch.dtype | None) -> None:
    dialect, stock = made("Tensor?", cpu, None)
    for x in [None, *tensors()]:
        assert dtypes_of(stock(x), x) == dtypes_of(dialect(x), x)


@pytest.mark.parametrize("cpu", TARGETS, ids=str)
def test_of_a_list(cpu: torch.dtype | None) -> None:
    dialect, stock = made("Tensor[]", cpu, torch.float16)
    for given in ([], tensors()):
        # Lists are copied on the way in: what is the same tensor is told by its memory.
        known = {t.data_ptr() for t in given}
        first, second = (
            [(t.dtype, t.device, t.data_ptr() in known) for t in function(given)]
            for function in (dialect, stock)
        )
        assert first == second


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("lower", [None, torch.bfloat16, torch.float16], ids=str)
def test_of_the_widest_dtype(lower: torch.dtype | None, device: str) -> None:
    text = f"""
graph(%x : Tensor, %y : Tensor):
  %lower : {number(lower)}
  %device : str = prim::Constant[value="{device}"]()
  %xs : Tensor[] = prim::ListConstruct(%x, %y)
  %w : int? = jit_amp::widest(%xs, %lower, %device)
  return (%w)
"""
    stock = torch._C.parse_ir(text)
    _C.run_pass("legalize", stock, {}, True)
    functions = [
        torch._C._create_function_from_graph(name, graph)
        for name, graph in (("dialect", torch._C.parse_ir(text)), ("stock", stock))
    ]
    for x, y in itertools.product(tensors(), repeat=2):
        outcomes = []
        for function in functions:
            try:
                outcomes.append(function(x, y))
            except (RuntimeError, torch.jit.Error):
                outcomes.append("raises")
        assert outcomes[0] == outcomes[1], (x.dtype, x.device, y.dtype, y.device)
