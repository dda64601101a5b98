"""Operators that return an operand, or a view of it, though their schemas say that it is new.

The table (csrc/analysis/traits.inc, `maybe_operand`) is to have all of them. With `--sweep` alone:
each operator of PyTorch is called with what its schema takes, in a process of its own, as some
crash.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import multiprocessing
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
from torch import Tensor

from jit_amp import _C

# Of numbers, of PyTorch's own tests, or of no strided tensor.
OTHERS = {"_nested_compute_contiguous_strides_offsets", "_pack_sequence", "set"}
CALLS = 24  # of an overload with an operand


def operands() -> list[Tensor]:
    floats = torch.rand(4, 4)
    return [
        floats,
        floats[0],
        floats[0, 0],
        floats.long(),
        floats[0].bool(),
        floats.bfloat16(),
        floats.reshape(1, 1, 4, 4),
        floats.reshape(2, 2, 4),
    ]


def choices(argument: Any, x: Tensor) -> list[Any]:
    """What to give for an argument; nothing, if that is not known."""
    if argument.has_default_value():
        return [argument.default_value]
    kind = str(argument.type)
    known: dict[str, list[Any]] = {
        "Tensor": [x],
        "List[Tensor]": [[x, x], [x]],
        "int": [0, 1, -1],
        "number": [1, 1.0],
        "float": [1.0, 0.0],
        "bool": [False, True],
        "List[int]": [list(x.shape), [0], [0, 1], [1]],
        "str": ["mean"],
    }
    return [None] if kind.startswith("Optional") else known.get(kind, [])


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor) and value.layout == torch.strided:
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors(each)


def returns_an_operand(schema: Any) -> bool:
    packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"))
    operator = getattr(packet, schema.overload_name or "default")
    for x in operands():
        calls = itertools.product(*(choices(each, x) for each in schema.arguments))
        for call in itertools.islice(calls, CALLS):
            try:
                result = operator(*call)
            except Exception:
                continue
            if any(each.numel() and each.data_ptr() == x.data_ptr() for each in tensors(result)):
                return True
    return False


def ask(schemas: list[Any], answer: Connection) -> None:
    faulthandler.disable()
    os.close(2)  # their warnings
    signal.alarm(10)
    answer.send(any(returns_an_operand(each) for each in schemas))


@pytest.mark.filterwarnings("ignore")
def test_the_table_has_all_that_may_return_an_operand(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--sweep"):
        pytest.skip("with --sweep")
    known = {row[0] for row in _C.operator_traits() if row[2] == "maybe_operand"}
    said_new = defaultdict(list)
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        given_and_made = (*schema.arguments, *schema.returns)
        if schema.name != name and all(each.alias_info is None for each in given_and_made):
            said_new[name].append(schema)
    context = multiprocessing.get_context("fork")
    found = set()
    for name in sorted(said_new.keys() - known - OTHERS):
        if "_test_" in name:  # PyTorch's own
            continue
        receive, answer = context.Pipe(duplex=False)
        process = context.Process(target=ask, args=(said_new[name], answer))
        process.start()
        answer.close()
        with contextlib.suppress(EOFError):  # it crashed, or takes too long
            found |= {name} if receive.recv() else set()
        process.join()
    assert not found
