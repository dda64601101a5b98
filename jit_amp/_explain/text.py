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
from jit_amp._explain.records import Place, Records, Row, Scope, Stop

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
    def scopes(self) -> str:
        """The scope in force, by the line that made it; where there are several, how many more."""
        named = [str(scope) for row in self.rows for scope in row.scopes if _counts(scope)]
        first, *others = dict.fromkeys(named) or [""]
        return f"{first} +{len(others)}" if others else first

    @property
    def elsewhere(self) -> str:
        """The dtypes that it would compute in on a machine that has the scope's device."""
        there = [row.elsewhere.computed_in for row in self.rows if row.elsewhere]
        return "/".join(dict.fromkeys(filter(None, there)))

    @property
    def precision(self) -> str:
        kinds = {row.precision for row in self.rows} - {"none"}
        return "mixed" if len(kinds) > 1 else next(iter(kinds), "none")

    @property
    def matters(self) -> tuple[float, ...]:
        """The sort key of lines: the largest is shown first."""
        flops = sum(row.flops for row in self.rows)
        moved = sum(row.cast_bytes for row in self.rows)
        return bool(self.overflows), self.seconds, flops, moved, self.error


def _counts(scope: Scope) -> bool:
    """Whether a state is worth telling: not that nothing is on around the call."""
    return scope.enabled or scope.place is not None


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


def cut_place(text: str, width: int) -> str:
    """Cut at its beginning: the number of the line stays."""
    return text if len(text) <= width else "…" + text[1 - width :]


def _head(report: Records, width: int) -> list[str]:
    title = f"{report.name}({', '.join(report.inputs)}), torch {report.torch}"
    lines = textwrap.wrap(title, width)
    if report.refusal:
        lines += ["", "jit_amp.script refuses it:", report.refusal]
    if not report.rows and not report.error:
        return lines
    lines += ["", *textwrap.wrap(verdict.verdict(report), width)]
    if report.stop:
        lines += ["", *_stop(report, report.stop, width)]
    if advice := verdict.advice(report):
        text = f"Change first: {advice.text}. Gain: {advice.gain}."
        lines += [*textwrap.wrap(text, width), textwrap.indent(advice.code, "    ")]
    return lines


def _stop(report: Records, stop: Stop, width: int) -> list[str]:
    """The error where it is long, the line, and what was given there."""
    parts = report.error.splitlines()  # the verdict has the first, if it is not long
    shown = parts[:MOST] if parts[1:] or len(parts[0]) > verdict.LONG else []
    lines = [line for part in shown for line in textwrap.wrap(part, width)]
    lines += ["…"] if len(parts) > MOST else []
    if stop.place.line:
        lines.append(cut(f"    {stop.place}  {stop.place.text}", width))
    if stop.operator:
        lines.append(f"    {stop.operator} of")
    indent = " " * (8 if stop.operator else 4)
    for operand in stop.operands:
        lines += textwrap.wrap(
            str(operand), width, initial_indent=indent, subsequent_indent=indent + "  "
        )
        if operand.place and operand.place.text:
            lines.append(cut(f"{indent}    {operand.place.text}", width))
    return lines


def text(report: Records, width: int | None, all_lines: bool) -> str:
    """See ``Report.to_text``."""
    width = max(width or shutil.get_terminal_size().columns, 40)
    lines = _head(report, width)
    if not report.rows:
        return "\n".join([*lines, *_tail(report, all_lines)] if report.error else lines)
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
    scope_width = min(max(len(each.scopes) for each in totals), 24 if width >= 100 else 12)
    scope_width = max(scope_width, 5) if scope_width else 0
    device = next((row.elsewhere.device for row in report.rows if row.elsewhere), "")
    there = max(len(device) + 3, *(len(each.elsewhere) for each in totals))
    at_width = min(max((len(str(each.place)) for each in totals), default=4), 24)
    dtype_width = min(max(len(each.dtypes) for each in totals), 17)
    names = ["line".ljust(at_width)]
    names += ["      ms      %"] if report.timing else []
    names += ["computes in".ljust(max(dtype_width, 11))[: max(dtype_width, 11)], "casts"]
    names += ["  error"] if report.numerics else []
    names += ["largest gradient"] if report.gradients else []
    names += [f"on {device}".ljust(there)] if device else []
    names += ["scope".ljust(scope_width)] if scope_width else []
    lines = [cut("  ".join([*names, "source"]), width)]
    colors = _has_colors()

    def cells(rows: Sequence[Row], at: str, what: str, scopes: str | None) -> str:
        total = LineTotal(rows[0].line, list(rows))
        made = [cut_place(at, at_width).ljust(at_width)]
        if report.timing:
            share = total.seconds / whole if whole else 0.0
            made.append(f"{1e3 * total.seconds:8.2f} {share:6.1%}")
        made.append(cut(total.dtypes, dtype_width).ljust(max(dtype_width, 11)))
        made.append(f"{total.casts or '':>5}")
        if report.numerics:
            made.append(f"{total.error:7.0e}" if total.error else " " * 7)
        if report.gradients:
            made.append(" " * 16 if total.gradient is None else f"{total.gradient:16.0e}")
        if device:
            made.append(total.elsewhere.ljust(there))
        if scope_width and scopes is not None:
            made.append(cut_place(scopes, scope_width).ljust(scope_width))
        line = cut("  ".join([*made, what]), width)
        return f"\x1b[{_COLORS[total.precision]}m{line}\x1b[0m" if colors else line

    for each in totals:
        times = f"({each.modules} x) " if each.modules > 1 else ""
        lines.append(cells(each.rows, str(each.place), times + each.place.text, each.scopes))
        if operators:
            for row in each.rows:
                where = f"  [{row.module}]" if row.module else ""
                phase = "backward: " if row.is_backward else ""
                what = f"  {phase}{row.operator.removeprefix('aten::')}: {row.reason}{where}"
                scopes = LineTotal(row.line, [row]).scopes
                lines.append(cells([row], "", what, None if scopes == each.scopes else scopes))
    return lines


def _tail(report: Records, all_lines: bool) -> list[str]:
    made = sum(row.cast_count for row in report.rows)
    moved = sum(row.cast_bytes for row in report.rows)
    counts = Counter(row.precision for row in report.rows)
    kinds = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
    lines = []
    if report.rows:
        count = f"{len(report.rows)} operator{'s' * (len(report.rows) != 1)}"
        casts = f"{made} cast{'s' * (made != 1)}"
        lines.append(f"{count}: {kinds}; {casts} of {moved / 1e6:.1f} MB")
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
        reason = textwrap.indent(report.not_compiled, "    ").strip()
        lines.append(f"torch.jit.script does not compile it: {reason}")
    hints = report.hints if all_lines else report.hints[:MOST]
    lines += [f"hint: {hint.place}: {hint.text}" for hint in hints]
    if len(hints) < len(report.hints):
        lines.append(f"{len(report.hints) - len(hints)} more hints: --all")
    return lines + [f"warning: {warning}" for warning in report.warnings]


def number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e-2 or abs(value) >= 1e6 else f"{value:.2f}"
    return str(value)
