"""The page of a report: sources, line by line, with what runs there. Jinja2 escapes all of it."""

from __future__ import annotations

import ast
import json
import os
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from jit_amp._base import html, source_files
from jit_amp._base.html import Line, highlighted, parts_of
from jit_amp._base.syntax_trees import parsed
from jit_amp._explain import text
from jit_amp._explain.page_tree import short_number, tree
from jit_amp._explain.records import Place, Records, Row, Scope, Weight

MOST = 6  # in the tables of the summary
INLINE = 2_000_000  # characters of a page that a notebook holds
PRECISIONS = ("reduced", "mixed", "float32", "none")


@dataclass
class File:
    number: int
    path: str
    short: str
    is_own: bool
    seconds: float
    operators: int
    parts: list[list[Line]]


def render(report: Records) -> str:
    """Returns the report as one page of HTML that needs nothing else."""
    rows = report.rows
    total = sum(row.seconds for row in rows)
    files = list(_files(report))
    return html.filled(
        "page.html.j2",
        report=report,
        own=[file for file in files if file.is_own],
        libraries=[file for file in files if not file.is_own],
        total=total,
        has_scopes=any(line.scope for file in files for part in file.parts for line in part),
        precisions=_precisions(rows, total),
        casts=sum(row.cast_count for row in rows),
        bytes=sum(row.cast_bytes for row in rows),
        dearest=_most(rows, lambda row: row.cast_bytes, sum),
        weights=_by_dtype(report.weights),
        heaviest=sorted(report.weights, key=lambda each: -each.bytes)[:MOST],
        lossy=_most(rows, lambda row: row.numerics.introduced if row.numerics else 0.0, max),
        gradients=_gradients(rows) if report.gradients else [],
        data=_json(
            {
                "rows": [_compact(row, total) for row in rows],
                "tree": tree(rows, total),
                "timing": report.timing,
                "numerics": report.numerics,
                "gradients": report.gradients,
            }
        ),
    )


def notebook(report: Records) -> str:
    """Returns a summary with the page to be unfolded, for a notebook."""
    totals = text.lines_of(report.rows)
    kept = sorted(totals, key=lambda each: each.matters, reverse=True)[: text.MOST]
    page = render(report)
    return html.filled(
        "notebook.html.j2",
        report=report,
        lines=kept,
        count=len(totals),
        total=sum(row.seconds for row in report.rows),
        page=page if len(page) <= INLINE else "",
    )


def _most(
    rows: Sequence[Row], weight: Callable[[Row], float], together: Callable[[list[float]], float]
) -> list[dict[str, Any]]:
    """The lines whose operators weigh most together, with the number of the heaviest of each."""
    by_line: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for number, row in enumerate(rows):
        if weight(row):
            by_line[row.line.file, row.line.line].append((weight(row), number))
    found: list[dict[str, Any]] = []
    for each in by_line.values():
        _, number = max(each)
        row = rows[number]
        casts = sum(rows[n].cast_count for _, n in each)
        seconds = sum(rows[n].cast_seconds for _, n in each)
        weights = together([w for w, _ in each])
        found.append(
            {"number": number, "row": row, "casts": casts, "weight": weights, "seconds": seconds}
        )
    return sorted(found, key=lambda line: -line["weight"])[:MOST]


def _gradients(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The lines whose gradients overflow with the smallest scale, or are lost most without one."""
    found: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        g = row.gradient
        if g and (g.overflow_scale or g.underflows):
            lost = g.underflows / g.elements
            found.append({"number": number, "row": row, "gradient": g, "lost": lost})
    found.sort(key=lambda each: (each["gradient"].overflow_scale or 2.0**32, -each["lost"]))
    return found[:MOST]


def _by_dtype(weights: Iterable[Weight]) -> list[tuple[str, int, int]]:
    """Returns dtype, number and bytes of the tensors, the heaviest first."""
    found: dict[str, tuple[int, int]] = {}
    for each in weights:
        count, size = found.get(each.dtype, (0, 0))
        found[each.dtype] = count + 1, size + each.bytes
    return sorted(((d, n, size) for d, (n, size) in found.items()), key=lambda each: -each[2])


def _json(value: Any) -> Markup:
    """JSON that no text in it can break out of. Numbers that are not finite are texts."""
    text = json.dumps(value, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _compact(row: Row, total: float) -> dict[str, Any]:
    """Returns what the page shows of an operator."""
    n, g = row.numerics, row.gradient
    return {
        "op": row.operator.removeprefix("aten::"),
        "at": f"{row.place}",
        "stack": [
            f"{place}" + (f" {place.function}" * bool(place.function)) for place in row.stack
        ],
        "module": row.module,
        "policy": row.policy,
        "reason": ("run by autograd; " if row.is_backward else "") + row.reason,
        "precision": row.precision,
        "calls": row.calls,
        "in": list(row.operands),
        "out": list(row.results),
        "shapes": ["x".join(map(str, shape)) or "0-dim" for shape in row.shapes],
        "scope": [
            f"{scope.device} {_state(scope)}, {_maker(scope)}"
            for scope in row.scopes
            if scope.place or scope.enabled
        ],
        "there": f"on {row.elsewhere.device}: {row.elsewhere.computed_in}"
        if row.elsewhere and row.elsewhere.computed_in
        else "",
        "casts": [f"{c.count} x {c.source} to {c.target}, {c.bytes:,} bytes" for c in row.casts],
        "ms": 1e3 * row.seconds,
        "time": row.seconds / total if total else 0.0,
        "g": g
        and {
            "dtype": g.dtype,
            "largest": short_number(g.largest),
            "zero": g.underflows / g.elements,
            "from": g.overflow_scale,
        },
        "n": n
        and {
            "own": short_number(n.introduced),
            "total": short_number(n.total),
            "largest": f"{n.largest:.3g}",
            "bad": {
                what: count
                for what, count in (
                    ("overflow", n.overflows),
                    ("underflow", n.underflows),
                    ("subnormal", n.subnormals),
                    ("nan", n.nans),
                    ("infinite", n.infinities),
                )
                if count
            },
        },
    }


def _precisions(rows: Iterable[Row], total: float) -> list[dict[str, Any]]:
    """By precision: operators, shares of time and FLOPs, casts; where its part of a bar begins."""
    rows = list(rows)
    flops = sum(row.flops for row in rows) or 1
    found: dict[str, dict[str, Any]] = {
        kind: {
            "kind": kind, "count": 0, "time": 0.0, "seconds": 0.0, "flops": 0.0, "casts": 0,
            "bytes": 0,
        }
        for kind in PRECISIONS
    }  # fmt: skip
    for row in rows:
        at = found[row.precision]
        at["count"] += 1
        at["seconds"] += row.seconds
        at["time"] += row.seconds / total if total else 0.0
        at["flops"] += row.flops / flops
        at["casts"] += row.cast_count
        at["bytes"] += row.cast_bytes
    count = sum(at["count"] for at in found.values()) or 1
    begin = 0.0
    for at in found.values():
        at["begin"], at["width"] = begin, at["time"] if total else at["count"] / count
        begin += at["width"]
    return [at for at in found.values() if at["count"]]


# The sources.


def _files(report: Records) -> Iterable[File]:
    by_file: dict[str, dict[int, Line]] = defaultdict(dict)
    scopes: dict[tuple[str, int], str] = {}  # text, by where they begin
    sources = _Sources(report)

    def line_at(place: Place) -> Line | None:
        if not sources.has(place):
            return None
        return by_file[place.file].setdefault(place.line, Line(place.line))

    for number, row in enumerate(report.rows):
        own = row.line
        for place in {(p.file, p.line): p for p in row.stack}.values():
            if line := line_at(place):
                line.rows.append(number)
                line.inclusive += row.seconds
                if (place.file, place.line) == (own.file, own.line) or row.place == place:
                    line.has_own = True
                    line.seconds += row.seconds
                    line.casts += row.cast_count
                    error = row.numerics.introduced if row.numerics else 0.0
                    line.error = max(line.error, error)
                    line.precision = _joined(line.precision, row.precision)
        for scope in row.scopes:
            told = f"{scope.device}: {_state(scope)}"
            if scope.place and line_at(scope.place):
                scopes[scope.place.file, scope.place.line] = told
            if (scope.place or scope.enabled) and (line := line_at(own)):
                at = scope.place and f"{scope.place.file}:{scope.place.line}"
                line.scopes[at or "around the call"] = f"{told}, {_maker(scope)}"
                short = str(scope).replace(os.path.basename(own.file), "") if at else str(scope)
                line.scope = ", ".join(dict.fromkeys([*filter(None, [line.scope]), short]))
    for at in (report.refused_at, report.stop.place if report.stop else None):
        if at and (line := line_at(at)):
            line.precision = "refused"
    order = sorted(by_file, key=lambda path: (not source_files.is_users(path), path))
    for number, path in enumerate(order):
        lines = by_file[path]
        bars = {
            begin: (what, sources.end_of_scope(path, begin))
            for (file, begin), what in scopes.items()
            if file == path
        }
        yield File(
            number,
            _shown(path),
            os.path.basename(path),
            source_files.is_users(path),
            sum(line.seconds for line in lines.values()),
            len({number for line in lines.values() for number in line.rows}),
            list(parts_of(lines, highlighted(sources.lines[path]), bars, path)),
        )


def _state(scope: Scope) -> str:
    if scope.is_elsewhere:
        return f"{scope.dtype}, not on this machine"
    return (scope.dtype or "ambient dtype") if scope.enabled else "off"


def _maker(scope: Scope) -> str:
    return f"by {scope.place}" if scope.place else "around the call"


class _Sources:
    """Lines of source files, as far as the report knows them, and where statements in them end."""

    def __init__(self, report: Records) -> None:
        self.lines: dict[str, dict[int, str]] = defaultdict(dict)
        self._ends: dict[str, dict[int, int]] = defaultdict(dict)
        for source in report.sources:
            for number, line in enumerate(source.text.split("\n"), source.line):
                self.lines[source.file].setdefault(number, line)
            for begin, end in _scopes_in(source.text):
                begin, end = begin + source.line - 1, end + source.line - 1
                self._ends[source.file].setdefault(begin, end)

    def has(self, place: Place) -> bool:
        """Whether the line is known, if only by its own text."""
        if place.line and place.text:
            self.lines[place.file].setdefault(place.line, place.text)
        return place.line in self.lines.get(place.file, ())

    def end_of_scope(self, file: str, begin: int) -> int:
        """The last line of the `with`, or of the decorated function, that begins at a line; that
        line itself for what is entered by hand."""
        return self._ends[file].get(begin, begin)


def _scopes_in(source: str) -> Iterator[tuple[int, int]]:
    try:
        tree = parsed(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                yield item.context_expr.lineno, node.end_lineno or node.lineno
            yield node.lineno, node.end_lineno or node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                yield decorator.lineno, node.end_lineno or node.lineno


def _shown(path: str) -> str:
    """The path as one would name it: from the package, or from the working directory. The files of
    a saved module are named by PyTorch, with numbers."""
    path = re.sub(r"\.?___torch_mangle_\d+", "", path)
    return source_files.shown_name(path)


def _joined(one: str, other: str) -> str:
    if not one or one == other or other == "none":
        return one or other
    return other if one == "none" else "mixed"
