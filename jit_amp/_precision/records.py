"""The data of a `Precision`: the units that stay in float32, and what was measured of others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch

from jit_amp._base.json_records import FINITE, NOT_NEGATIVE, NUMBER_OF_A_LINE, Check, one_of

ROOT = "(the model itself)"
NOUNS = {"module": "modules", "function": "functions", "line": "lines", "operator": "operators"}


def _has_autocast(device_type: str) -> bool:
    try:
        return bool(torch.amp.is_autocast_available(device_type))
    except RuntimeError:  # it is the name of no device
        return False


_Share = Annotated[float, FINITE]
_Device = Annotated[str, Check("a device type of autocast's", _has_autocast)]
_Error = Annotated[float, NOT_NEGATIVE]


@dataclass(frozen=True)
class Kept:
    """A unit that stays in float32."""

    unit: str
    why: str
    error_with: _Error  # of the result
    error_without: _Error  # of the result without this unit
    work: _Share  # what it costs: its share of what autocast saves


@dataclass(frozen=True)
class Measured:
    """A set of units that was tried."""

    units: tuple[str, ...]
    error: _Error
    saved: _Share  # the share of what autocast saves that is left


@dataclass(frozen=True)
class Point:
    """A point of the curve: with less of the work in float32, no error that was measured is
    smaller."""

    units: tuple[str, ...]
    error: _Error
    share: _Share  # of the work that autocast would save, which is in float32


@dataclass(frozen=True)
class Sensitivity:
    """What low precision does in one unit: its own error, relative to the largest value."""

    unit: str
    error: _Error  # infinite where values are beyond the dtype's largest
    why: str
    work: _Share
    has_scopes: bool = False  # in it and what it calls


@dataclass(frozen=True)
class Line:
    """A source line that runs something in the reduced dtype, or would."""

    file: str
    line: Annotated[int, NUMBER_OF_A_LINE]
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
    error: _Error
    evaluations: int
    dtype: Annotated[str, one_of("bfloat16", "float16")]
    device_type: _Device
    kind: Annotated[str, one_of("module", "function", "line", "operator")]
    around: bool
    metric: str
    tolerance: Annotated[float, FINITE]
    error_plain: _Error
    saved: _Share
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
