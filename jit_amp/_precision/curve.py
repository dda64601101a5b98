"""The curve of a `Precision`: the error against the share of the work that is in float32, and the
choice of another point of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from jit_amp._precision.records import Found, Kept, Measured, Point, Sensitivity


def curve_of(measured: Iterable[Measured]) -> tuple[Point, ...]:
    """The sets that were measured and than which none is both cheaper and more accurate, from the
    cheapest."""
    points: list[Point] = []
    for each in sorted(measured, key=lambda each: (-each.saved, each.error, len(each.units))):
        if not points or each.error < points[-1].error:
            points.append(Point(each.units, each.error, 1 - each.saved))
    return tuple(points)


def kept_of(
    units: Iterable[str],
    error: float,
    measured: Iterable[Measured],
    sensitivities: Iterable[Sensitivity],
) -> tuple[Kept, ...]:
    """What is told of each unit that stays in float32."""
    units, errors = tuple(units), {frozenset(each.units): each.error for each in measured}
    known = {each.unit: each for each in sensitivities}
    return tuple(
        Kept(
            unit,
            known[unit].why,
            error,
            errors.get(frozenset(units) - {unit}, math.nan),
            known[unit].work,
        )
        for unit in units
    )


def point_of(curve: tuple[Point, ...], tolerance: float | None, share: float | None) -> Point:
    """The cheapest point within a tolerance, or the most accurate one within a share.

    Raises:
        ValueError: there is none.
    """
    if not curve:
        raise ValueError("Precision.choose: it has no curve: nothing was measured")
    if tolerance is not None:
        for point in curve:
            if point.error <= tolerance:
                return point
        raise ValueError(
            f"tolerance: no set that was measured has an error of at most {tolerance:.3g}; the "
            f"smallest is {curve[-1].error:.3g}: tune with that tolerance"
        )
    within = [point for point in curve if point.share <= (share or 0.0)]
    if not within:
        raise ValueError(f"share: {share} is less than {curve[0].share:.3g}, the least measured")
    return within[-1]


def at(precision: Any, point: Point, tolerance: float | None) -> Any:
    """The precision with what stays in float32 at a point of its curve."""
    p: Found = precision
    order = {each.unit: i for i, each in enumerate(p.sensitivities)}
    units = tuple(sorted(point.units, key=lambda unit: order.get(unit, 0)))
    return dataclasses.replace(
        p,
        units=units,
        error=point.error,
        tolerance=max(p.tolerance, point.error) if tolerance is None else tolerance,
        saved=1 - point.share,
        kept=kept_of(units, point.error, p.measured, p.sensitivities),
        lines=tuple(
            dataclasses.replace(each, stays=not {*units}.isdisjoint(each.within))
            for each in p.lines
        ),
    )
