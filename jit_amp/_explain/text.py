"""The report of explain as text, and the lines that matter in it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jit_amp._explain import verdict
from jit_amp._explain.records import Place, Records, Row

MOST = 20
_COLORS = {"reduced": 32, "mixed": 33, "float32": 36, "none": 90}


@dataclass
class LineTotal:
    """All operators of one source line; ``modules`` is how often a module that calls them is
    repeated, with other numbers in its path: layers."""

    place: Place
    rows: list[Row]

    @property
    def seconds(self) -> float:
        return sum(row.seconds for row in self.rows)

    @property
    def casts(self) -> int:
        return sum(row.cast_count for row in self.rows)

    @property
    def error(self) -> float:
        return max((row.numerics.introduced for row in self.rows if row.numerics), default=0.0)

    @property
    def overflows(self) -> int:
        return sum(row.numerics.overflows for row in self.rows if row.numerics)

    @property
    def gradient(self) -> float | None:
        return max((row.gradient.largest for row in self.rows if row.gradient), default=None)

    @property
    def overflow_scale(self) -> float | None:
        scales = (row.gradient.overflow_scale for row in self.rows if row.gradient)
        return min(filter(None, scales), default=None)

    @property
    def modules(self) -> int:
        paths = {row.module for row in self.rows}
        return max(Counter(re.sub(r"\d+", "*", path) for path in paths).values())

    @property
    def dtypes(self) -> str:
        return "/".join(dict.fromkeys(row.computed_in for row in self.rows if row.computed_in))

    @property
    def precision(self) -> str:
        kinds = {row.precision for row in self.rows} - {"none"}
        return "mixed" if len(kinds) > 1 else next(iter(kinds), "none")

    @property
    def matters(self) -> tuple[float, ...]:
        """The larger, the more."""
        flops = sum(row.flops for row in self.rows)
        moved = sum(row.cast_bytes for row in self.rows)
        return bool(self.overflows), self.seconds, flops, moved, self.error


def lines_of(rows: Iterable[Row]) -> list[LineTotal]:
    """The lines that operators stand on, in the order in which they first ran."""
    found: dict[tuple[str, int], LineTotal] = {}
    for row in rows:
        at = row.line
        found.setdefault((at.file, at.line), LineTotal(at, [])).rows.append(row)
    return list(found.values())


def _has_colors() -> bool:
    return sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _head(report: Records, width: int) -> list[str]:
    title = f"{report.name}({', '.join(report.inputs)}), torch {report.torch}"
    lines = textwrap.wrap(title, width)
    if report.refusal:
        lines += ["", "jit_amp.script refuses it:", report.refusal]
    if not report.rows:
        return lines
    lines += ["", *textwrap.wrap(verdict.verdict(report), width)]
    if advice := verdict.advice(report):
        text = f"Change first: {advice.text}. Gain: {advice.gain}."
        lines += [*textwrap.wrap(text, width), textwrap.indent(advice.code, "    ")]
    return lines


def text(report: Records, width: int | None, all_lines: bool) -> str:
    """See ``Report.to_text``."""
    width = max(width or shutil.get_terminal_size().columns, 40)
    lines = _head(report, width)
    if not report.rows:
        return "\n".join(lines)
    totals = lines_of(report.rows)
    kept = totals
    if not all_lines:
        kept = sorted(totals, key=lambda each: each.matters, reverse=True)[:MOST]
    lines += ["", *_table(report, kept, width, all_lines)]
    if len(kept) < len(totals):
        lines.append(
            f"{len(kept)} of {len(totals)} lines; jit-amp explain --all and "
            "report.to_text(all=True) show all"
        )
    lines += ["", *_tail(report, all_lines)]
    return "\n".join(lines)


def _table(report: Records, totals: Sequence[LineTotal], width: int, operators: bool) -> list[str]:
    whole = sum(row.seconds for row in report.rows)
    at_width = min(max((len(str(each.place)) for each in totals), default=4), 24)
    dtype_width = min(max(len(each.dtypes) for each in totals), 17)
    names = ["line".ljust(at_width)]
    names += ["      ms      %"] if report.timing else []
    names += ["computes in".ljust(max(dtype_width, 11))[: max(dtype_width, 11)], "casts"]
    names += ["  error"] if report.numerics else []
    names += ["largest gradient"] if report.gradients else []
    lines = [cut("  ".join([*names, "source"]), width)]
    colors = _has_colors()

    def cells(rows: Sequence[Row], at: str, what: str) -> str:
        total = LineTotal(rows[0].line, list(rows))
        made = [cut(at, at_width).ljust(at_width)]
        if report.timing:
            share = total.seconds / whole if whole else 0.0
            made.append(f"{1e3 * total.seconds:8.2f} {share:6.1%}")
        made.append(cut(total.dtypes, dtype_width).ljust(max(dtype_width, 11)))
        made.append(f"{total.casts or '':>5}")
        if report.numerics:
            made.append(f"{total.error:7.0e}" if total.error else " " * 7)
        if report.gradients:
            made.append(" " * 16 if total.gradient is None else f"{total.gradient:16.0e}")
        line = cut("  ".join([*made, what]), width)
        return f"\x1b[{_COLORS[total.precision]}m{line}\x1b[0m" if colors else line

    for each in totals:
        times = f"({each.modules} x) " if each.modules > 1 else ""
        lines.append(cells(each.rows, str(each.place), times + each.place.text))
        if operators:
            for row in each.rows:
                where = f"  [{row.module}]" if row.module else ""
                phase = "backward: " if row.is_backward else ""
                what = f"  {phase}{row.operator.removeprefix('aten::')}: {row.reason}{where}"
                lines.append(cells([row], "", what))
    return lines


def _tail(report: Records, all_lines: bool) -> list[str]:
    made = sum(row.cast_count for row in report.rows)
    moved = sum(row.cast_bytes for row in report.rows)
    counts = Counter(row.precision for row in report.rows)
    kinds = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
    lines = [f"{len(report.rows)} operators: {kinds}; {made} casts of {moved / 1e6:.1f} MB"]
    if report.weights:
        of_dtype: Counter[str] = Counter()
        for weight in report.weights:
            of_dtype[weight.dtype] += weight.bytes
        held = ", ".join(f"{size / 1e3:,.1f} kB {dtype}" for dtype, size in of_dtype.most_common())
        lines.append(f"weights: {held}")
    if report.io_dtype:
        lines.append(f"io_dtype: {report.io_dtype}")
    lines += [
        f"{name} is emulated on this processor: elsewhere it is faster" for name in report.emulated
    ]
    if report.not_compiled:
        lines.append(f"torch.jit.script does not compile it: {report.not_compiled}")
    hints = report.hints if all_lines else report.hints[:MOST]
    lines += [f"hint: {hint.place}: {hint.text}" for hint in hints]
    if len(hints) < len(report.hints):
        lines.append(f"{len(report.hints) - len(hints)} more hints: --all")
    return lines + [f"warning: {warning}" for warning in report.warnings]


def number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e-2 or abs(value) >= 1e6 else f"{value:.2f}"
    return str(value)
