"""The data that `explain` gathers: rows of operators, their casts, scopes and numbers."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch

from jit_amp._base import source_files
from jit_amp._base.json_records import FINITE, Lines

REDUCED = ("bfloat16", "float16")
IO_DTYPE = {f"<jit_amp io_dtype of {what}>": what for what in ("inputs", "results")}
"""What a frozen module has in place of a file: csrc/passes/source/cast_io.cpp."""
NUMBER = "number"
"""Among the dtypes of operands, for a Python number: PyTorch makes a tensor of it, whose dtype
decides nothing where there is another operand of its kind."""
FLOATING = (*REDUCED, "float32", "float64")


@dataclass(frozen=True)
class Place:
    """A line of a source file; ``function`` is what it stands in, empty for the outermost.

    ``text`` is the line itself, without what is around it, as it was compiled or read when it was
    explained; empty where it is not known.
    """

    file: str
    line: int
    column: int
    function: str = ""
    text: str = ""

    def __str__(self) -> str:
        if self.io_dtype:
            return f"io_dtype of {self.io_dtype}"
        return f"{os.path.basename(self.file)}:{self.line}" if self.line else "?"

    @property
    def io_dtype(self) -> str:
        """``"inputs"`` or ``"results"`` where ``freeze(io_dtype=)`` has written a cast of these."""
        return IO_DTYPE.get(self.file, "")


@dataclass(frozen=True)
class Source:
    """A part of a source file, from a line on: what is around the lines of a report."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Scope:
    """The autocast state in force for one device, and the line that made it, if one did.

    ``is_elsewhere`` is of a scope that PyTorch has switched off because this machine does not have
    its device.
    """

    device: str
    enabled: bool
    dtype: str | None  # None: the one around the call
    place: Place | None  # None: what is around the call
    is_elsewhere: bool = False

    def __str__(self) -> str:
        at = str(self.place) if self.place else "around the call"
        return at if self.enabled or self.is_elsewhere else f"{at} off"


@dataclass(frozen=True)
class Elsewhere:
    """What an operator would do on a machine that has the device of a scope, where this one has it
    not; ``policy`` is empty outside of such scopes, where what comes from inside has that dtype."""

    device: str
    policy: str
    computed_in: str  # as `Row.computed_in`


@dataclass(frozen=True)
class Operand:
    """An argument of the operator that raised; where Python itself raised, a tensor of that line.

    ``place`` is the line of the operator that gave it last, ``made_by``. ``origin`` is what else is
    known of it, as ``"argument x"`` or ``"linear.weight"``, a parameter. ``value`` has what is no
    tensor, in words.
    """

    name: str  # in the operator's schema, or in the line
    dtype: str = ""
    shape: tuple[int, ...] = ()
    device: str = ""
    made_by: str = ""
    place: Place | None = None
    origin: str = ""
    value: str = ""

    def __str__(self) -> str:
        if not self.dtype:
            return f"{self.name}: {self.value}"
        sizes = ", ".join(map(str, self.shape))
        told = f"{self.name}: {self.dtype}[{sizes}]"
        if self.place:
            return f"{told} of {self.made_by.removeprefix('aten::')} at {self.place}"
        return f"{told}, {self.origin}" if self.origin else told


@dataclass(frozen=True)
class Stop:
    """Where a program raised: the user's line, and the operator, if one raised."""

    place: Place
    stack: tuple[Place, ...]  # from the outermost call
    operator: str  # "" where Python itself raised
    operands: tuple[Operand, ...]

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """The operands that are tensors."""
        return tuple(operand for operand in self.operands if operand.dtype)


@dataclass(frozen=True)
class Cast:
    """Casts of one kind that autocast made for an operator.

    ``bytes`` are read and written; ``bytes_of_weights`` are those of leaves that require grad.
    """

    source: str
    target: str
    count: int
    bytes: int
    bytes_of_weights: int = 0


@dataclass(frozen=True)
class Numerics:
    """An operator's results beside the same operator in float64.

    ``introduced`` is its own error, on the operands that it had, and ``total`` that against a
    program which is all in float64: largest differences, relative to the largest entry. Both are
    infinite where a result is, or is NaN, and float64's is finite. ``overflows`` are infinite here
    and not in float64, ``underflows`` zero here and not there.
    """

    introduced: float
    total: float
    largest: float
    elements: int
    nans: int
    infinities: int
    overflows: int
    underflows: int
    subnormals: int


@dataclass(frozen=True)
class Gradient:
    """The gradients of an operator's results, of all its calls together, in their own dtype.

    ``largest`` is the largest entry with a loss scale of 1, ``underflows`` counts those that are
    zero with it and not with a larger one, and ``overflow_scale`` is the smallest of the scales 1,
    16, 256, ... 2**24 with which some entry is not finite; None: it is with all of them.
    """

    dtype: str
    largest: float
    elements: int
    underflows: int
    overflow_scale: Annotated[float, FINITE] | None


@dataclass(frozen=True)
class Row:
    """One operator of the program, at one place of it."""

    operator: str
    place: Place
    stack: tuple[Place, ...]  # from the outermost call to `place`
    module: str  # path of the submodule whose code it is; "" for the module itself
    scopes: tuple[Scope, ...]
    policy: str  # "lower", "fp32", ...; "" outside every enabled scope
    reason: str
    calls: int
    operands: tuple[str, ...]  # dtypes; "several" where calls differ, "number" of Python's
    results: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the results of the first call
    devices: tuple[str, ...]
    casts: tuple[Cast, ...]
    flops: int  # of products and convolutions, all calls together
    seconds: Annotated[float, FINITE]
    numerics: Numerics | None
    gradient: Gradient | None
    cast_seconds: Annotated[float, FINITE] = 0.0  # of `seconds`, those of its casts
    is_backward: bool = False  # run by autograd: `place` is that of what it differentiates
    operand_shapes: tuple[tuple[int, ...], ...] = ()  # of the first call
    elsewhere: Elsewhere | None = None

    @property
    def line(self) -> Place:
        """The innermost line that is neither PyTorch's own nor Python's."""
        return line_in(self.stack)

    @property
    def cast_count(self) -> int:
        """How many casts autocast made for it."""
        return sum(cast.count for cast in self.casts)

    @property
    def cast_bytes(self) -> int:
        """How much these read and wrote."""
        return sum(cast.bytes for cast in self.casts)

    @property
    def computed_in(self) -> str:
        """The dtype that it computed in, ``"mixed"`` where operands have a reduced one and another;
        empty where it computed with no floating-point numbers."""
        floating = [dtype for dtype in self.results if dtype in FLOATING]
        if self.policy == "lower" and floating and all(dtype in REDUCED for dtype in floating):
            return floating[0]  # a cast of autocast's own cache is not made again
        cast = {c.source: c.target for c in self.casts}
        kinds = {cast.get(d, d) for d in self._deciding or self.results if d in FLOATING}
        if not kinds and NUMBER in self.operands:  # of integers and a real number
            kinds = set(self.results) & set(FLOATING)
        if kinds & set(REDUCED) and len(kinds) > 1:
            return "mixed"
        return max(kinds, key=FLOATING.index, default="")

    @property
    def _deciding(self) -> list[str]:
        """The operands' dtypes that PyTorch's promotion looks at: of tensors without dimensions
        only where no other has any."""
        floating = [each in FLOATING for each in self.operands]
        has_sizes = [bool(shape) for shape in self.operand_shapes]
        known = len(has_sizes) == len(floating)
        if not known or not any(map(all, zip(floating, has_sizes, strict=True))):
            return [d for d in self.operands if d != NUMBER]
        return list(itertools.compress(self.operands, has_sizes))

    @property
    def precision(self) -> str:
        """What it computed in: ``"reduced"``, ``"float32"``, ``"mixed"`` or ``"none"``."""
        dtype = self.computed_in
        if not dtype or dtype == "mixed":
            return dtype or "none"
        return "reduced" if dtype in REDUCED else "float32"


def line_in(stack: Sequence[Place]) -> Place:
    """The innermost line of a stack that is neither PyTorch's own nor Python's."""
    own = [place for place in stack if place.line and not source_files.is_of_runtime(place.file)]
    return own[-1] if own else stack[-1]


def own_line_in(stack: Sequence[Place]) -> Place:
    """The innermost line of the user's own files; of a library's where there is none."""
    with_line = [place for place in stack if place.line]
    return source_files.own_in(with_line, lambda place: place.file) or line_in(stack)


@dataclass(frozen=True)
class CompiledCast:
    """A cast as jit_amp runs it where no gradient is recorded: once for all of its users.

    ``at_run_time`` is of a frozen module's: whether it is made is asked at each call, because
    nothing that was frozen, and no example, tells the dtype of what it casts.
    """

    users: tuple[Place, ...]
    in_loop: bool
    at_run_time: bool


@dataclass(frozen=True)
class Weight:
    """A tensor that is part of a frozen module's code: a weight, as it was folded and rounded."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    users: tuple[Place, ...]


@dataclass(frozen=True)
class Hint:
    """Something that could be better, and what to write."""

    place: Place
    text: str


@dataclass(frozen=True)
class Records:
    """What ``explain`` has gathered of one call of a program; `Report` says what each is."""

    name: str
    rows: tuple[Row, ...]
    warnings: tuple[Lines, ...] = ()
    hints: tuple[Hint, ...] = ()
    casts: tuple[CompiledCast, ...] = ()
    weights: tuple[Weight, ...] = ()
    refusal: Lines = ""
    refused_at: Place | None = None
    error: Lines = ""  # that the program raised: class and text
    stop: Stop | None = None
    timing: bool = False
    numerics: bool = False
    gradients: bool = False
    not_compiled: Lines = ""
    inputs: tuple[str, ...] = ()
    command: str = ""  # that wrote it, where jit-amp did
    seconds: Annotated[float, FINITE] = 0.0
    records_gradients: bool = False
    emulated: tuple[str, ...] = ()
    torch: str = field(default=torch.__version__)
    sources: tuple[Source, ...] = field(default=(), compare=False, repr=False)

    @property
    def io_dtype(self) -> str:
        """Which inputs and results ``freeze(io_dtype=)`` has cast, in words; empty for none."""
        told = []
        for what in IO_DTYPE.values():
            casts = [row for row in self.rows if row.place.io_dtype == what and row.calls]
            before = " and ".join(sorted({row.operands[0] for row in casts}))
            after = " and ".join(sorted({row.results[0] for row in casts}))
            if casts:
                told.append(f"{what} are cast from {before} to {after}")
        return "; ".join(told)
