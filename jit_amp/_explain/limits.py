"""What CI asks of a report: the limits of ``jit-amp explain --fail-over``."""

from __future__ import annotations

from collections.abc import Callable

from jit_amp._explain.records import Records, Row
from jit_amp._explain.verdict import summary

LIMITS = {
    "overflows": "values that are infinite, and finite in float64",
    "underflows": "values that are zero, and not in float64",
    "nans": "values that are NaN",
    "error": "the largest error of one operator, relative to its largest entry",
    "total_error": "the largest difference from a program all in float64",
    "casts": "casts that autocast makes",
    "cast_milliseconds": "what these take",
    "milliseconds": "what all operators take",
    "gradient_underflows": "entries of gradients that are zero without a loss scale",
}
NEEDS = {
    "numerics": {"overflows", "underflows", "nans", "error", "total_error"},
    "timing": {"cast_milliseconds", "milliseconds"},
    "gradients": {"gradient_underflows"},
}


def limits_of(text: str) -> dict[str, float]:
    """The limits of ``--fail-over "overflows=0, error=1e-2"``.

    Raises:
        ValueError: a name that is none of ``LIMITS``, or no number.
    """
    limits: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, sign, value = part.partition("=")
        name = name.strip()
        if not sign or name not in LIMITS:
            raise ValueError(f"{part!r}: write name=number, of {', '.join(LIMITS)}")
        try:
            limits[name] = float(value)
        except ValueError as error:
            raise ValueError(f"{part!r}: {value.strip()!r} is no number") from error
    if not limits:
        raise ValueError(f"write name=number, of {', '.join(LIMITS)}")
    return limits


def over(report: Records, limits: dict[str, float]) -> list[str]:
    """What is over a limit, in words, with the line that is worst where one is."""
    found, told = summary(report), []
    by_row: dict[str, Callable[[Row], float]] = {
        "overflows": lambda r: r.numerics.overflows if r.numerics else 0,
        "underflows": lambda r: r.numerics.underflows if r.numerics else 0,
        "nans": lambda r: r.numerics.nans if r.numerics else 0,
        "error": lambda r: r.numerics.introduced if r.numerics else 0,
        "total_error": lambda r: r.numerics.total if r.numerics else 0,
        "casts": lambda r: r.cast_count,
        "cast_milliseconds": lambda r: r.cast_seconds,
        "milliseconds": lambda r: r.seconds,
        "gradient_underflows": lambda r: r.gradient.underflows if r.gradient else 0,
    }
    for name, limit in limits.items():
        value = getattr(found, name)
        if not value <= limit:
            worst = max(report.rows, key=by_row[name]).line
            told.append(f"{name}: {value:.4g} is over {limit:.4g}, most of it at {worst}")
    return told
