"""Programs of one operator each, made from PyTorch's OpInfo database.

TorchScript compiles source, so each sample becomes a small Python file: the tensors are arguments,
everything else is written as a literal.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from jit.support import imported
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

_count = itertools.count()


class NotWritable(Exception):
    """The sample has no literal form."""


class _Writer:
    """Collects the tensors of a sample and writes the rest as source."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []

    def write(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return f"t{len(self.tensors) - 1}"
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        if isinstance(value, complex):
            return f"complex({value.real!r}, {value.imag!r})"
        if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
            return str(value)
        if isinstance(value, torch.device):
            return f'torch.device("{value}")'
        if isinstance(value, torch.Size):
            value = list(value)
        if isinstance(value, list):
            return "[" + ", ".join(map(self.write, value)) + "]"
        if isinstance(value, tuple):
            return "(" + "".join(self.write(v) + ", " for v in value) + ")"
        raise NotWritable(f"{type(value).__name__} has no literal")


def _spelling(op: OpInfo) -> str:
    """The dotted name by which the operator is called in source."""
    for path in (f"torch.{op.name}", f"torch.Tensor.{op.name}", f"torch.ops.aten.{op.name}"):
        found: Any = torch
        for part in path.split(".")[1:]:
            found = getattr(found, part, None)
        if found is not None and (found is op.op or path.startswith(f"torch.{op.name}")):
            return path
    raise NotWritable("no public name")


class Program:
    """One operator on one sample: source, and tensors to call it with."""

    def __init__(self, op: OpInfo, sample: SampleInput) -> None:
        writer = _Writer()
        first = writer.write(sample.input)
        rest = [writer.write(a) for a in sample.args]
        rest += [f"{name}={writer.write(value)}" for name, value in sample.kwargs.items()]
        try:
            call = f"{_spelling(op)}({', '.join([first, *rest])})"
        except NotWritable:
            if not isinstance(sample.input, torch.Tensor) or not hasattr(torch.Tensor, op.name):
                raise
            call = f"{first}.{op.name}({', '.join(rest)})"
        if call.startswith("torch.Tensor."):
            call = f"{first}.{op.name}({', '.join(rest)})"
        self.name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        self.call = call
        self.tensors = writer.tensors

    def write(self, folder: Path, scope: str) -> ModuleType:
        """Writes and imports a file with the call inside `with {scope}:`, twice.

        Its `program` is a function, its `Program` a module of which the same is the forward;
        `bare` is the function without the scope.
        """
        arguments = ", ".join(f"t{i}" for i in range(len(self.tensors)))
        source = (
            "import torch\nimport torch.nn.functional\n\n\n"
            f"def bare({arguments}):\n    return {self.call}\n\n\n"
            f"def program({arguments}):\n    with {scope}:\n        return {self.call}\n\n\n"
            f"class Program(torch.nn.Module):\n    def forward(self, {arguments}):\n"
            f"        with {scope}:\n            return {self.call}\n"
        )
        name = f"program_{next(_count)}_{re.sub(r'[^a-z0-9]+', '_', self.name.lower())}"
        return imported(source, folder / f"{name}.py")


def operators() -> list[OpInfo]:
    return list(op_db)


def programs(op: OpInfo, device: str, count: int) -> Iterator[Program]:
    """Programs of an operator's first samples that can be written as source."""
    dtypes = [d for d in (torch.float32, torch.int64, torch.bool, torch.complex64)
              if d in op.supported_dtypes(device)]  # fmt: skip
    if not dtypes:
        return
    torch.manual_seed(0)
    for sample in itertools.islice(op.sample_inputs(device, dtypes[0]), count):
        try:
            yield Program(op, sample)
        except NotWritable:
            continue


def inputs(program: Program, lower: torch.dtype) -> dict[str, list[torch.Tensor]]:
    """The program's tensors by kind: all fp32, all reduced, mixed both ways, fp64."""

    def cast(*dtypes: torch.dtype) -> list[torch.Tensor]:
        kinds = itertools.cycle(dtypes)
        out = []
        for t in program.tensors:
            t = t.detach()
            out.append(t.to(next(kinds)) if t.is_floating_point() else t)
        return out

    kinds = {"fp32": cast(torch.float32), "reduced": cast(lower), "fp64": cast(torch.float64)}
    if sum(t.is_floating_point() for t in program.tensors) > 1:
        kinds["fp32, reduced"] = cast(torch.float32, lower)
        kinds["reduced, fp32"] = cast(lower, torch.float32)
    return kinds
