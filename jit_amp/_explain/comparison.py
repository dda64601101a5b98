"""What differs between two reports, line by line: what `Report.compare` returns."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from jit_amp._base import extras, whole_files
from jit_amp._explain import text
from jit_amp._explain.limits import NEEDS
from jit_amp._explain.records import Place, Records, Row
from jit_amp._explain.verdict import Summary, summary, verdict


@dataclass(frozen=True)
class Change:
    """A line of a program in two reports: what each has there, by name; None where it has not."""

    place: Place
    before: dict[str, Any]
    after: dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """What ``Report.compare`` returns."""

    before: Records
    after: Records
    lines: tuple[Change, ...]  # those that differ, the largest difference first

    def __str__(self) -> str:
        return _text(self)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes one page: both verdicts, the numbers side by side, and the lines that differ.

        Raises:
            OSError: the file cannot be written; an older one is then as it was.
            ImportError: Jinja2 or Pygments is not there: ``pip install jit_amp[explain]``.
        """
        with extras.for_pages():
            from jit_amp._base import html
        page = html.filled("compare.html.j2", compared=self, number=text.number, verdict=verdict)
        whole_files.write_text(path, page)

    @property
    def numbers(self) -> list[tuple[str, Any, Any]]:
        """Each number of the summaries, before and after, of what both have measured."""
        a, b = summary(self.before), summary(self.after)
        unmeasured = {
            name
            for what, names in NEEDS.items()
            for name in names
            if not (getattr(self.before, what) and getattr(self.after, what))
        }
        if not (self.before.gradients and self.after.gradients):
            unmeasured.add("loss_scale")
        skipped = {"share", "share_of", *unmeasured}
        found = [
            (each.name, getattr(a, each.name), getattr(b, each.name))
            for each in fields(Summary)
            if each.name not in skipped
        ]
        if a.share_of == b.share_of:
            for dtype in dict.fromkeys((*a.share, *b.share)):
                name = f"{a.share_of} in {dtype}"
                found.append((name, a.share.get(dtype, 0.0), b.share.get(dtype, 0.0)))
        return found


def compare(before: Records, after: Records) -> Comparison:
    """See ``Report.compare``. A line that has moved is still itself: it is known by its file, its
    text, and which of the lines with that text it is."""
    a, b = _lines(before.rows), _lines(after.rows)
    changes = []
    for key in dict.fromkeys((*a, *b)):
        old, new = a.get(key), b.get(key)
        place = (new or old or [])[0].line
        one, other = _facts(old or []), _facts(new or [])
        if {**one, "ms": 0} != {**other, "ms": 0} or abs(one["ms"] - other["ms"]) > 0.05:
            changes.append(Change(place, one if old else {}, other if new else {}))
    return Comparison(before, after, tuple(sorted(changes, key=_size, reverse=True)))


def _lines(rows: Iterable[Row]) -> dict[tuple[str, str, int], list[Row]]:
    """The rows of each line: by file and text, and the how-manieth line of that text it is."""
    by_place: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        by_place[row.line.file, row.line.line].append(row)
    ranks: dict[tuple[str, str], int] = defaultdict(int)
    found = {}
    for file, line in sorted(by_place):
        some = by_place[file, line]
        text = some[0].line.text or str(line)
        found[os.path.basename(file), text, ranks[file, text]] = some
        ranks[file, text] += 1
    return found


def _facts(rows: Sequence[Row]) -> dict[str, Any]:
    numbers = [row.numerics for row in rows if row.numerics]
    return {
        "dtype": "/".join(dict.fromkeys(row.computed_in for row in rows if row.computed_in)),
        "casts": sum(row.cast_count for row in rows),
        "ms": round(1e3 * sum(row.seconds for row in rows), 3),
        "error": max((n.introduced for n in numbers), default=0.0),
        "overflows": sum(n.overflows for n in numbers),
    }


def _size(change: Change) -> tuple[float, ...]:
    a, b = change.before or _facts([]), change.after or _facts([])

    def apart(name: str) -> float:
        return 0.0 if a[name] == b[name] else abs(a[name] - b[name])

    differs = float(a["dtype"] != b["dtype"])
    return apart("overflows"), apart("ms"), differs, apart("casts"), apart("error")


def _text(compared: Comparison) -> str:
    """Returns the comparison of two reports as text."""
    width = max(shutil.get_terminal_size().columns, 60)
    lines = [f"before  {verdict(compared.before)}", f"after   {verdict(compared.after)}", ""]
    lines.append(f"{'':28} {'before':>12} {'after':>12}")
    for name, a, b in compared.numbers:
        lines.append(f"{name.replace('_', ' '):28.28} {text.number(a):>12} {text.number(b):>12}")
    if not compared.lines:
        return "\n".join([*lines, "", "No line differs."])
    lines += ["", f"{len(compared.lines)} lines differ; the first {text.MOST}:"]
    for change in compared.lines[: text.MOST]:
        lines.append(text.cut(f"{change.place}  {change.place.text}", width))
        both = dict.fromkeys((*change.before, *change.after))
        differs = [n for n in both if change.before.get(n) != change.after.get(n)]
        a, b = (
            {n: text.number(side.get(n, "-")) for n in differs}
            for side in (change.before, change.after)
        )
        told = [f"{n}: {a[n]} -> {b[n]}" for n in differs]
        lines.append(text.cut("    " + ", ".join(told), width))
    return "\n".join(lines)
