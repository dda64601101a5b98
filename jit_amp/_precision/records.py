"""The data of a `Precision`: the units that stay in float32, and what was measured of others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

ROOT = "(the model itself)"
NOUNS = {"module": "modules", "function": "functions", "line": "lines", "operator": "operators"}


@dataclass(frozen=True)
class Kept:
    """A unit that stays in float32."""

    unit: str
    why: str
    error_with: float  # of the result
    error_without: float  # of the result without this unit
    work: float  # what it costs: its share of what autocast saves


@dataclass(frozen=True)
class Measured:
    """A set of units that was tried."""

    units: tuple[str, ...]
    error: float
    saved: float  # the share of what autocast saves that is left


@dataclass(frozen=True)
class Point:
    """A point of the curve: with less of the work in float32, no error that was measured is
    smaller."""

    units: tuple[str, ...]
    error: float
    share: float  # of the work that autocast would save, which is in float32


@dataclass(frozen=True)
class Sensitivity:
    """What low precision does in one unit: its own error, relative to the largest value."""

    unit: str
    error: float  # infinite where values are beyond the dtype's largest
    why: str
    work: float
    has_scopes: bool = False  # in it and what it calls


@dataclass(frozen=True)
class Line:
    """A source line that runs something in the reduced dtype, or would."""

    file: str
    line: int
    units: tuple[str, ...]  # whose code it is
    stays: bool  # in float32, for some of these
    names: tuple[str, ...] = ()  # expressions that are in the reduced dtype there
    hidden: tuple[str, ...] = ()  # those that may hold such, and are no tensors
    text: str = ""  # of the line, when it was tuned
    within: tuple[str, ...] = ()  # the units that run it, also through what they call


@dataclass(frozen=True)
class Found:
    """All that a search has found. `Precision` has the attributes' meanings, and what is done with
    them."""

    name: str
    units: tuple[str, ...]
    error: float
    evaluations: int
    dtype: str
    device_type: str
    kind: str
    around: bool
    metric: str
    tolerance: float
    error_plain: float
    saved: float
    finished: bool
    candidates: int
    seed: int
    kept: tuple[Kept, ...] = ()
    measured: tuple[Measured, ...] = ()
    sensitivities: tuple[Sensitivity, ...] = ()
    lines: tuple[Line, ...] = ()
    curve: tuple[Point, ...] = ()
    error_float32: float = math.nan  # of float32 everywhere
    torch: str = torch.__version__


def shown(unit: str) -> str:
    return unit or ROOT


def shown_error(error: float) -> str:
    return "not measured" if math.isnan(error) else f"{error:.3g}"
