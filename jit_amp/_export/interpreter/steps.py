"""A TorchScript graph as steps that Python can run. Of each operator: what runs it, what it writes
to, and whether it is pure, as its schema says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from jit_amp._export.checked_inputs import check_kind
from jit_amp._export.interpreter.plain_operators import (
    DTYPE_OF,
    FORMAT_OF,
    LAYOUT_OF,
    NUMBER_OF,
    OF_TENSORS,
    PLAIN,
)
from jit_amp._export.interpreter.values import Frame

_PURE = ("aten::to.prim_Device", "aten::to.prim_dtype", "aten::to.prim_other")
Kernel = Callable[..., Any]
"""Runs a step: it takes the frame and the operands."""


@dataclass
class Step:
    node: torch._C.Node
    run: Kernel
    inputs: list[int]
    outputs: list[int]
    takes_truth: bool = False
    written: tuple[int, ...] = ()
    """Operands that are tensors, or hold some, and are written to."""
    is_pure: bool = False
    """Whether it is an operator of PyTorch's that gives the same for the same operands."""
    is_fixed: bool = False
    """Whether it reads what is there before any branch: attributes and constants."""
    trace: str = ""
    number: int = 0

    @property
    def writes(self) -> bool:
        """Whether the step writes to tensors."""
        return bool(self.written)


@dataclass
class Code:
    """The steps of a block of a graph."""

    parameters: list[int]
    steps: list[Step] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    blocks: dict[int, list[Code]] = field(default_factory=dict)
    """Those of the steps, by the step's place."""

    def all_steps(self) -> Iterator[Step]:
        for i, step in enumerate(self.steps):
            yield step
            for block in self.blocks.get(i, ()):
                yield from block.all_steps()

    @cached_property
    def writes(self) -> bool:
        """Whether one of its steps writes to tensors."""
        return any(step.writes for step in self.all_steps())

    def free(self) -> set[int]:
        """The values that it reads and that are not its own."""
        return self.read() - set(self.parameters)

    def read(self) -> set[int]:
        """The values that the block reads and does not make."""
        read, made = set(self.results), set[int]()
        for i, step in enumerate(self.steps):
            read.update(step.inputs)
            made.update(step.outputs)
            for block in self.blocks.get(i, ()):
                read.update(block.free())
        return read - made


@cache
def runner(text: str) -> tuple[Kernel, tuple[int, ...], bool]:
    """What runs the operator of the schema, what it writes to, and whether it is pure. Raises
    LookupError where there is none."""
    schema = torch._C.parse_schema(text)
    full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    meaning = OF_TENSORS.get(full)
    if meaning is None and not _has_tensors(schema):
        meaning = PLAIN.get(full) or PLAIN.get(schema.name)
    is_writing = bool(schema.is_mutable) and _has_tensors(schema)
    writes = tuple(i for i, x in enumerate(schema.arguments) if is_writing and _is_written(x))
    if meaning is not None:
        return plainly(meaning), writes, full in _PURE
    operator = _overload(schema)
    if operator is None or any(map(_is_changed_container, schema.arguments)):
        raise LookupError(full)
    formals = schema.arguments
    found = ((i, _converter(formal)) for i, formal in enumerate(formals))
    converts = [(i, convert) for i, convert in found if convert is not None]
    positional = sum(not formal.kwarg_only for formal in formals)
    formal_names = [formal.name for formal in formals]
    names = formal_names[positional:]
    is_conversion = full in ("aten::to.device", "aten::to.dtype", "aten::to.dtype_layout")
    keeps_results = not any(
        isinstance(r.type, (torch.IntType, torch.FloatType)) for r in schema.returns
    )

    def run(_: Frame, *operands: Any) -> Any:
        given = list(operands)
        for i, convert in converts:
            given[i] = convert(given[i])
        named = dict(zip(names, given[positional:], strict=True))
        if is_conversion and _is_as_asked(given[0], dict(zip(formal_names, given, strict=True))):
            check_kind(given[0])
            return given[0]
        made = operator(*given[:positional], **named)
        return made if keeps_results else _numbered(made)

    is_pure = not schema.is_mutable and torch.Tag.nondeterministic_seeded not in operator.tags
    return run, writes, is_pure


def _is_as_asked(x: Tensor, asked: dict[str, Any]) -> bool:
    """Whether ``x.to(...)`` is x, as it is in eager where nothing is to be converted."""
    plain = asked.get("layout") is None and asked.get("pin_memory") is None
    return (
        plain
        and not asked.get("copy")
        and asked.get("memory_format") is None
        and asked.get("dtype") in (None, x.dtype)
        and asked.get("device") in (None, x.device)
    )


def _numbered(made: Any) -> Any:
    """dtypes as the numbers that they are in TorchScript."""
    return NUMBER_OF.get(made, made) if isinstance(made, (torch.dtype, torch.layout)) else made


def _is_written(argument: Any) -> bool:
    info = argument.alias_info
    return info is not None and (info.is_write or "!" in str(argument))


def _is_changed_container(argument: Any) -> bool:
    """Whether the operator changes a list or a dictionary, and not what is in it: PyTorch's own is
    given a copy."""
    info = argument.alias_info
    return info is not None and info.is_write and argument.type.kind() in ("ListType", "DictType")


def _has_tensors(schema: Any) -> bool:
    return any("Tensor" in str(value.type) for value in (*schema.arguments, *schema.returns))


def _overload(schema: Any) -> Any:
    """PyTorch's operator; for indices that may be None, what scripting writes another one for."""
    namespace, _, name = schema.name.partition("::")
    overload = schema.overload_name or "default"
    overload = {"Tensor_hacked_twin": "Tensor", "hacked_twin": "default"}.get(overload, overload)
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return getattr(packet, overload, None)


def _converter(formal: Any) -> Callable[[Any], Any] | None:
    kind = str(formal.real_type)
    table: dict[int, Any] | None = None
    if "ScalarType" in kind:
        table = DTYPE_OF
    elif "Layout" in kind:
        table = LAYOUT_OF
    elif "MemoryFormat" in kind:
        table = FORMAT_OF
    if table is None:
        return None
    known = table
    return lambda value: known[value] if isinstance(value, int) else value


def plainly(meaning: Callable[..., Any]) -> Kernel:
    return lambda _, *operands: meaning(*operands)
