"""What the pages of reports and precisions share: templates, styles, and sources line by line.

It needs Jinja2 and Pygments, which are extras: import it where a page is asked for. Jinja2 escapes
all that is put into a template.
"""

from __future__ import annotations

import base64
import hashlib
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jinja2
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

AROUND = 4  # lines shown before and after those that matter
GAP = 12  # lines between two of those that are shown too


@dataclass
class Line:
    """A line of a source file. What runs there: ``own`` of it are operators that the line itself
    calls, the others run in functions that it calls."""

    number: int
    code: Markup = field(default_factory=Markup)
    rows: list[int] = field(default_factory=list)
    precision: str = ""  # of its own
    casts: int = 0
    seconds: float = 0.0  # of its own
    inclusive: float = 0.0
    error: float = 0.0
    has_own: bool = False
    bars: list[str] = field(default_factory=list)  # the scopes in force, from the outermost
    scopes: dict[str, str] = field(default_factory=dict)  # of its operators: place, and state
    scope: str = ""  # these, in short


def filled(template: str, **values: Any) -> str:
    """The text of a template with these values, and styles of code as ``light`` and ``dark``."""
    light, dark = _colors("default", ".code"), _colors("monokai", ".dark .code")
    return _environment().get_template(template).render(light=light, dark=dark, **values)


def _colors(style: str, selector: str) -> str:
    formatter: Any = HtmlFormatter(style=style)
    return str(formatter.get_style_defs(selector))


def _sha256(script: str) -> str:
    """As a policy names a script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("jit_amp._base"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["sha256"] = _sha256
    return made


def parts_of(
    lines: dict[int, Line],
    codes: Mapping[int, Markup],
    bars: Mapping[int, tuple[str, int]] = types.MappingProxyType({}),
    path: str = "",
) -> Iterable[list[Line]]:
    """The lines that are shown, in runs without a gap.

    Args:
        lines: those that matter, by their numbers.
        codes: the code of each line of the file.
        bars: scopes of the file: by the line where one begins, its text and its last line.
        path: the file's, as in ``Line.scopes``.
    """
    part: list[Line] = []
    shown: list[int] = []
    for number in sorted({*lines, *bars}):
        begin = max(1, number - AROUND)
        if shown and begin - shown[-1] <= GAP:
            begin = shown[-1] + 1
        shown += [
            n for n in range(begin, number + AROUND + 1) if n in codes and n > (shown or [0])[-1]
        ]
    for number in shown:
        if part and number != part[-1].number + 1:
            yield part
            part = []
        line = lines.get(number) or Line(number)
        line.code = codes[number]
        around = [each for each in sorted(bars.items()) if each[0] <= number <= each[1][1]]
        here = {f"{path}:{begin}" for begin, _ in around}
        line.bars = [text for at, text in line.scopes.items() if at not in here]  # of callers
        line.bars += [text for _, (text, _) in around]
        part.append(line)
    if part:
        yield part


def highlighted(lines: Mapping[int, str]) -> dict[int, Markup]:
    """Lines of a source by their numbers, without their ends, as HTML."""
    numbers = sorted(lines)
    source = "\n".join(lines[number] for number in numbers)
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    made = highlight(source, lexer, HtmlFormatter(nowrap=True)).split("\n")
    return {number: Markup(code) for number, code in zip(numbers, made, strict=False)}
