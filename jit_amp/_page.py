"""The page of a report: sources, line by line, with what runs there. Jinja2 escapes all of it."""

from __future__ import annotations

import json
import linecache
import os
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from jit_amp import _float32

if TYPE_CHECKING:
    from jit_amp._explain import Place, Report, Row, Weight

AROUND = 4  # lines shown before and after those that matter
GAP = 12  # lines between two of those that are shown too
MOST = 10  # in the tables of the summary
PRECISIONS = ("reduced", "mixed", "float32", "none")


@dataclass
class Line:
    number: int
    code: Markup
    rows: list[int] = field(
        default_factory=list
    )  # of operators that run here, or in calls from here
    precision: str = ""
    casts: int = 0
    time: float = 0.0  # share of the whole
    error: float = 0.0
    bars: list[str] = field(default_factory=list)  # the scopes in force, from the outermost


@dataclass
class File:
    number: int
    path: str
    short: str
    parts: list[list[Line]]


def render(report: Report) -> str:
    """One page of HTML that needs nothing else."""
    rows = report.rows
    total = sum(row.seconds for row in rows)
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            files=list(_files(report, total)),
            total=total,
            precisions=_precisions(rows, total),
            casts=sum(row.cast_count for row in rows),
            bytes=sum(row.cast_bytes for row in rows),
            dearest=_most(rows, lambda row: row.cast_bytes, sum),
            weights=_by_dtype(report.weights),
            heaviest=sorted(report.weights, key=lambda each: -each.bytes)[:MOST],
            lossy=_most(rows, lambda row: row.numerics.introduced if row.numerics else 0.0, max),
            data=_json(
                {
                    "rows": [_compact(row, total) for row in rows],
                    "timing": report.timing,
                    "numerics": report.numerics,
                    "gradients": report.gradients,
                }
            ),
            light=colors("default", ".code"),
            dark=colors("monokai", ".dark .code"),
        )
    )


def colors(style: str, selector: str) -> str:
    formatter: Any = HtmlFormatter(style=style)
    return str(formatter.get_style_defs(selector))


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
        weights = together([w for w, _ in each])
        found.append({"number": number, "row": row, "casts": casts, "weight": weights})
    return sorted(found, key=lambda line: -line["weight"])[:MOST]


def _by_dtype(weights: Iterable[Weight]) -> list[tuple[str, int, int]]:
    """Dtype, how many, bytes: the heaviest first."""
    found: dict[str, tuple[int, int]] = {}
    for each in weights:
        count, size = found.get(each.dtype, (0, 0))
        found[each.dtype] = count + 1, size + each.bytes
    return sorted(((d, n, size) for d, (n, size) in found.items()), key=lambda each: -each[2])


def table(report: Report) -> str:
    """A table for notebooks."""
    return environment().get_template("table.html.j2").render(report=report)


def environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("jit_amp"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _json(value: Any) -> Markup:
    """JSON that no text in it can break out of."""
    text = json.dumps(value, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _compact(row: Row, total: float) -> dict[str, Any]:
    """What the page shows of an operator."""
    n, g = row.numerics, row.gradient
    return {
        "op": row.operator,
        "at": f"{row.place}",
        "stack": [
            f"{place}" + (f" {place.function}" * bool(place.function)) for place in row.stack
        ],
        "module": row.module,
        "policy": row.policy,
        "reason": row.reason,
        "precision": row.precision,
        "calls": row.calls,
        "in": list(row.operands),
        "out": list(row.results),
        "shapes": ["x".join(map(str, shape)) or "0-dim" for shape in row.shapes],
        "casts": [f"{c.count} x {c.source} to {c.target}, {c.bytes:,} bytes" for c in row.casts],
        "time": row.seconds / total if total else 0.0,
        "g": g
        and {
            "dtype": g.dtype,
            "largest": g.largest,
            "zero": g.underflows / g.elements,
            "from": g.overflow_scale,
        },
        "n": n
        and {
            "own": n.introduced,
            "total": n.total,
            "largest": n.largest,
            "bad": ", ".join(
                f"{count} {what}"
                for what, count in (
                    ("overflow", n.overflows),
                    ("underflow", n.underflows),
                    ("subnormal", n.subnormals),
                    ("nan", n.nans),
                    ("infinite", n.infinities),
                )
                if count
            ),
        },
    }


def _precisions(rows: Iterable[Row], total: float) -> list[dict[str, Any]]:
    """By precision: operators, shares of time and FLOPs, casts; where its part of a bar begins."""
    rows = list(rows)
    flops = sum(row.flops for row in rows) or 1
    found: dict[str, dict[str, Any]] = {
        kind: {"kind": kind, "count": 0, "time": 0.0, "flops": 0.0, "casts": 0, "bytes": 0}
        for kind in PRECISIONS
    }
    for row in rows:
        at = found[row.precision]
        at["count"] += 1
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


def _files(report: Report, total: float) -> Iterable[File]:
    by_file: dict[str, dict[int, Line]] = defaultdict(dict)
    scopes: dict[tuple[str, int], tuple[str, int]] = {}  # text and last line, by where they begin

    def line_at(place: Place) -> Line | None:
        if not place.line or not linecache.getline(place.file, place.line):
            return None
        return by_file[place.file].setdefault(place.line, Line(place.line, Markup("")))

    for number, row in enumerate(report.rows):
        for place in {(p.file, p.line): p for p in row.stack}.values():
            if line := line_at(place):
                line.rows.append(number)
                line.casts += row.cast_count
                line.time += row.seconds / total if total else 0.0
                line.error = max(line.error, row.numerics.introduced if row.numerics else 0.0)
                line.precision = _joined(line.precision, row.precision)
        for scope in row.scopes:
            if scope.place and line_at(scope.place):
                begin = scope.place.file, scope.place.line
                inside = [p.line for p in row.stack if p.file == begin[0] and p.line >= begin[1]]
                state = f"{scope.dtype or 'ambient dtype'}" if scope.enabled else "off"
                last = max([scopes.get(begin, ("", 0))[1], *inside[:1]])
                scopes[begin] = f"{scope.device}: {state}", last
    if report.refused_at and (line := line_at(report.refused_at)):
        line.precision = "refused"
    order = sorted(by_file, key=lambda path: ("site-packages" in path, path))
    for number, path in enumerate(order):
        lines = by_file[path]
        codes = highlighted(path)
        bars = {begin[1]: what for begin, what in scopes.items() if begin[0] == path}
        yield File(
            number,
            _float32.shown_file(path),
            os.path.basename(path),
            list(parts_of(lines, codes, bars)),
        )


def _joined(one: str, other: str) -> str:
    if not one or one == other or other == "none":
        return one or other
    return other if one == "none" else "mixed"


def parts_of(
    lines: dict[int, Line],
    codes: list[Markup],
    bars: Mapping[int, tuple[str, int]] = types.MappingProxyType({}),
) -> Iterable[list[Line]]:
    """The lines that are shown, in runs without a gap."""
    part: list[Line] = []
    shown: list[int] = []
    for number in sorted({*lines, *bars}):
        begin = max(1, number - AROUND)
        if shown and begin - shown[-1] <= GAP:
            begin = shown[-1] + 1
        shown += [
            n for n in range(begin, min(len(codes), number + AROUND) + 1) if n > (shown or [0])[-1]
        ]
    for number in shown:
        if part and number != part[-1].number + 1:
            yield part
            part = []
        line = lines.get(number) or Line(number, Markup(""))
        line.code = codes[number - 1]
        line.bars = [
            text for begin, (text, last) in sorted(bars.items()) if begin <= number <= last
        ]
        part.append(line)
    if part:
        yield part


def highlighted(path: str) -> list[Markup]:
    source = "".join(linecache.getlines(path))
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    return [
        Markup(line) for line in highlight(source, lexer, HtmlFormatter(nowrap=True)).split("\n")
    ]
