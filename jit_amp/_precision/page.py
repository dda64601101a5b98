"""The page of a `Precision`. Jinja2 escapes all of it."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from jit_amp._base import html, source_files, source_lines
from jit_amp._precision import in_float32
from jit_amp._precision.records import NOUNS, Found, shown, shown_error

WIDTH, HEIGHT, LEFT, BELOW = 520, 240, 60, 34
MOST = 200  # bars


def render(precision: Found) -> str:
    """Returns the precision as one page of HTML that needs nothing else."""
    return html.filled(
        "precision.html.j2",
        p=precision,
        shown=shown,
        shown_error=shown_error,
        curve=_curve(precision),
        bars=_bars(precision),
        left_out=max(0, len(precision.sensitivities) - MOST),
        files=_files(precision),
    )


LARGE = 2_000_000  # characters of a page, above which a notebook has it not in it


def notebook(precision: Found) -> str:
    """What a notebook shows: what stays, the curve, and the page, folded."""
    whole = render(precision)
    return html.filled(
        "precision_notebook.html.j2",
        p=precision,
        noun=NOUNS[precision.kind],
        shown=shown,
        shown_error=shown_error,
        page=whole if len(whole) <= LARGE else "",
    )


def _height(error: float, low: float, high: float) -> float:
    """From 0 at the bottom to 1; infinite errors are above all others."""
    if math.isinf(error):
        return 1.0
    if high <= low:
        return 0.0
    return 0.9 * (math.log10(max(error, 10**low)) - low) / (high - low)


def _curve(p: Found) -> dict[str, Any]:
    """Points of what was tried: error, on a logarithmic scale, against the share of the saving."""
    errors = [each.error for each in p.measured if 0 < each.error < math.inf] + [
        each for each in (p.tolerance,) if each > 0
    ]
    low = math.floor(math.log10(min(errors, default=1e-3)))
    high = max(low + 1, math.ceil(math.log10(max(errors, default=1.0))))

    def place(saved: float, error: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - 10) * min(1.0, max(0.0, 1 - saved))
        return x, (HEIGHT - BELOW) * (1 - _height(error, low, high)) + 8

    points = [
        {
            "x": place(each.saved, each.error)[0],
            "y": place(each.saved, each.error)[1],
            "holds": each.error <= p.tolerance,
            "chosen": set(each.units) == set(p.units),
            "text": f"{len(each.units)} in float32, {1 - each.saved:.1%} of the work: error"
            f" {each.error:.3g}",
        }
        for each in p.measured
    ]
    # Between two of its points the curve is the cheaper one's error.
    corners: list[tuple[float, float]] = []
    for each in p.curve:
        x, y = place(1 - each.share, each.error)
        corners += [(x, corners[-1][1]), (x, y)] if corners else [(x, y)]
    ticks = [(place(1, 10.0**e)[1], f"1e{e}") for e in range(low, high + 1)]
    step = max(1, len(ticks) // 6)
    return {
        "points": points,
        "corners": " ".join(f"{x:.1f},{y:.1f}" for x, y in corners),
        "ticks": ticks[::step],
        "tolerance": place(1, p.tolerance)[1],
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "bottom": HEIGHT - BELOW + 8,
    }


def _bars(p: Found) -> list[dict[str, Any]]:
    finite = [each.error for each in p.sensitivities if 0 < each.error < math.inf]
    low, high = math.log10(min(finite, default=1e-4)), math.log10(max(finite, default=1.0))
    ordered = sorted(p.sensitivities, key=lambda each: (-each.error, each.unit))[:MOST]
    return [
        {
            "unit": shown(each.unit),
            "width": 100 * (0.05 + 0.95 * _height(each.error, low, high)) if each.error else 0,
            "error": "out of range" if math.isinf(each.error) else f"{each.error:.1e}",
            "stays": each.unit in p.units,
            "why": each.why,
            "work": each.work,
        }
        for each in ordered
    ]


def _files(p: Found) -> list[dict[str, Any]]:
    by_file: dict[str, dict[int, Any]] = defaultdict(dict)
    for each in p.lines:
        path = in_float32.path_of(each.file)
        now = source_lines.line(path, each.line)
        if now and now == (each.text or now):
            by_file[path][each.line] = each
    made = []
    for path in sorted(by_file, key=lambda each: (not source_files.is_users(each), each)):
        known = by_file[path]
        lines = {number: html.Line(number) for number in known}
        for number, line in lines.items():
            line.precision = "float32" if known[number].stays else "reduced"
        known_lines = enumerate(source_lines.lines(path), 1)
        texts = {number: source_lines.whole(text) for number, text in known_lines}
        parts = list(html.parts_of(lines, html.highlighted(texts)))
        for part in parts:
            for line in part:
                line.bars = (
                    [", ".join(shown(unit) for unit in known[line.number].units)]
                    if line.number in known
                    else []
                )
        made.append({"path": in_float32.shown_file(path), "parts": parts})
    return made
