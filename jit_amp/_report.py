"""What jit_amp.explain returns."""

from __future__ import annotations

import dataclasses
import json
import linecache
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from jit_amp._values import as_json

if TYPE_CHECKING:
    from jit_amp._verdict import Advice, Comparison, Summary

REDUCED = ("bfloat16", "float16")
IO_DTYPE = {f"<jit_amp io_dtype of {what}>": what for what in ("inputs", "results")}
"""What a frozen module has in place of a file: csrc/passes/source/cast_io.cpp."""
_FLOATING = (*REDUCED, "float32", "float64")


@dataclass(frozen=True)
class Place:
    """A line of a source file; ``function`` is what it stands in, empty for the outermost."""

    file: str
    line: int
    column: int
    function: str = ""

    def __str__(self) -> str:
        if self.io_dtype:
            return f"io_dtype of {self.io_dtype}"
        return f"{os.path.basename(self.file)}:{self.line}" if self.line else "?"

    @property
    def io_dtype(self) -> str:
        """``"inputs"`` or ``"results"`` where ``freeze(io_dtype=)`` has written a cast of these."""
        return IO_DTYPE.get(self.file, "")

    @property
    def text(self) -> str:
        """The line itself, without what is around it."""
        if self.io_dtype:
            return f"({self.io_dtype} are cast, because of io_dtype)"
        return linecache.getline(self.file, self.line).strip()


@dataclass(frozen=True)
class Scope:
    """The autocast state in force for one device, and the line that made it, if one did."""

    device: str
    enabled: bool
    dtype: str | None  # None: the one around the call
    place: Place | None  # None: what is around the call


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
    overflow_scale: float | None


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
    operands: tuple[str, ...]  # dtypes; "several" where calls differ
    results: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the results of the first call
    devices: tuple[str, ...]
    casts: tuple[Cast, ...]
    flops: int  # of products and convolutions, all calls together
    seconds: float
    numerics: Numerics | None
    gradient: Gradient | None
    cast_seconds: float = 0.0  # of `seconds`, those of its casts
    is_backward: bool = False  # run by autograd: `place` is that of what it differentiates

    @property
    def line(self) -> Place:
        """The innermost line that is not PyTorch's own."""
        own = [place for place in self.stack if place.line and not is_pytorchs(place.file)]
        return own[-1] if own else self.place

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
        floating = [dtype for dtype in self.results if dtype in _FLOATING]
        if self.policy == "lower" and floating and all(dtype in REDUCED for dtype in floating):
            return floating[0]  # a cast of autocast's own cache is not made again
        cast = {c.source: c.target for c in self.casts}
        kinds = {cast.get(d, d) for d in self.operands or self.results if d in _FLOATING}
        if kinds & set(REDUCED) and len(kinds) > 1:
            return "mixed"
        return max(kinds, key=_FLOATING.index, default="")

    @property
    def precision(self) -> str:
        """What it computed in: ``"reduced"``, ``"float32"``, ``"mixed"`` or ``"none"``."""
        dtype = self.computed_in
        if not dtype or dtype == "mixed":
            return dtype or "none"
        return "reduced" if dtype in REDUCED else "float32"


def is_pytorchs(file: str) -> bool:
    """Whether a file is one of PyTorch's own."""
    return file.startswith(os.path.dirname(torch.__file__) + os.sep)


def is_installed(file: str) -> bool:
    """Whether a file is a library's, PyTorch's too, and not the user's own."""
    return f"{os.sep}site-packages{os.sep}" in file or is_pytorchs(file) or file.startswith("<")


@dataclass(frozen=True)
class Lowered:
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
class Report:
    """What ``explain`` returns. ``print`` it, or write a page with ``to_html``.

    ``casts`` are those of the graph that ``jit_amp.script`` would run, where TorchScript compiles
    the program: one cast for uses that eager casts each. ``refusal`` is the text of the
    ``AutocastError`` that ``jit_amp.script`` would raise, and ``refused_at`` its line.
    ``not_compiled`` is why TorchScript's compiler fails. ``weights`` are a frozen module's.
    ``inputs`` are the arguments in words, ``seconds`` is what a whole call took, with ``timing``.
    ``emulated`` are the dtypes among the rows' for which the processor has no instructions.
    """

    name: str
    rows: tuple[Row, ...]
    warnings: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = ()
    casts: tuple[Lowered, ...] = ()
    weights: tuple[Weight, ...] = ()
    refusal: str = ""
    refused_at: Place | None = None
    timing: bool = False
    numerics: bool = False
    gradients: bool = False
    not_compiled: str = ""
    inputs: tuple[str, ...] = ()
    command: str = ""  # that wrote it, where jit-amp did
    seconds: float = 0.0
    records_gradients: bool = False
    emulated: tuple[str, ...] = ()
    torch: str = field(default=torch.__version__)

    @property
    def summary(self) -> Summary:
        """The numbers of the whole program."""
        from jit_amp import _verdict

        return _verdict.summary(self)

    @property
    def verdict(self) -> str:
        """What matters, in a sentence or two."""
        from jit_amp import _verdict

        return _verdict.verdict(self)

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

    @property
    def advice(self) -> Advice | None:
        """The one change to make first, as code, with what it gains; None where there is none."""
        from jit_amp import _verdict

        return _verdict.advice(self)

    def compare(self, other: Report) -> Comparison:
        """Compares this report with one of the same program, after a change or in another dtype.

        Args:
            other: the report of afterwards.

        Returns:
            A ``Comparison``: ``print`` it, or write a page with ``to_html``.

        Raises:
            TypeError: ``other`` is no report.
        """
        from jit_amp import _check, _verdict

        _check.instance("other", other, Report, "a report of jit_amp.explain")
        return _verdict.compare(self, other)

    def to_json(self) -> str:
        """All of it as JSON; numbers that JSON does not have are ``"NaN"``, ``"Infinity"`` and
        ``"-Infinity"``."""
        made = dataclasses.asdict(self)
        for row, written in zip(self.rows, made["rows"], strict=True):
            written |= {"line": dataclasses.asdict(row.line), "precision": row.precision}
        made |= {"verdict": self.verdict, "io_dtype": self.io_dtype}
        made |= {"summary": dataclasses.asdict(self.summary)}
        return as_json(made, indent=1)

    @staticmethod
    def from_json(text: str) -> Report:
        """The report of what ``to_json`` gave.

        Raises:
            ValueError: the text is no such JSON.
        """
        try:
            made = _built(Report, json.loads(text))
        except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"no report, as to_json writes it: {error}") from error
        assert isinstance(made, Report)
        return made

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes one page that needs no network: the sources, line by line, with what runs there.

        Raises:
            ImportError: Jinja2 or Pygments is not there: ``pip install jit_amp[explain]``.
        """
        Path(path).write_text(_pages().render(self), encoding="utf-8")

    def to_text(self, *, width: int | None = None, all: bool = False) -> str:
        """The report as a table.

        Args:
            width: of the table, in characters; the terminal's if you do not give it.
            all: all lines, and not the twenty that matter most.
        """
        from jit_amp import _table

        return _table.text(self, width, all)

    def _repr_html_(self) -> str | None:
        try:
            return str(_pages().notebook(self))
        except ImportError:
            return None  # notebooks show the text then

    def __str__(self) -> str:
        return self.to_text()


def _pages() -> Any:
    try:
        from jit_amp import _page
    except ModuleNotFoundError as error:
        text = f"a page needs {error.name}: pip install jit_amp[explain]"
        raise ImportError(text) from error
    return _page


def _built(kind: Any, value: Any) -> Any:
    """An object of a data class, of what ``dataclasses.asdict`` and JSON made of one."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _built(inside[0], value)
    if origin is tuple:
        return tuple(_built(inside[0], each) for each in value)
    if kind is float:
        return float(value)  # "Infinity" and "NaN" too
    if not dataclasses.is_dataclass(kind):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r:.40} where an object is expected")
    hints = typing.get_type_hints(kind)
    names = [each.name for each in dataclasses.fields(kind)]
    given = {name: _built(hints[name], value[name]) for name in names if name in value}
    make: Any = kind
    return make(**given)
