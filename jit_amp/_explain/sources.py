"""What a report knows of sources: places with the texts of their lines, and what is around these.

What TorchScript has compiled keeps the text that it was compiled from, in a file that is saved
too: it is what is shown, and never what is at that path today. Of what Python runs, and of what
was traced here, Python's own files are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from jit_amp._base import source_lines
from jit_amp._base.printable import printable, printable_lines
from jit_amp._explain.records import IO_DTYPE, Place, Row, Source


def place_of(site: Sequence[Any]) -> Place:
    """A place of what `watch` gives: file, line, column, function; and of what `_C` does: the text
    too, or None where Python has it."""
    file, line, column, function, *text_of = site
    text = next(iter(text_of), None)
    if file in IO_DTYPE:
        text = f"({IO_DTYPE[file]} are cast, because of io_dtype)"
    elif text is None:
        text = source_lines.line(file, line)
    return Place(printable(file), line, column, printable(function), source_lines.shown(text))


def compiled(texts: Iterable[tuple[str, int, str]]) -> tuple[Source, ...]:
    """Of what `_C` gives: file, number of the first line, text."""
    return tuple(
        Source(printable(file), line, printable_lines(text.expandtabs()))
        for file, line, text in texts
    )


def read(files: Iterable[str]) -> tuple[Source, ...]:
    """Whole files, as far as they may be opened."""
    known = ((file, "".join(source_lines.lines(file))) for file in dict.fromkeys(files))
    return compiled((file, 1, text) for file, text in known if text)


def traced_files(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    """The files of places, as `_C` gives them, whose texts Python has."""
    for row in rows:
        for file, _, _, _, text in (*row["stack"], *row["scopes"].values()):
            if text is None:
                yield file


def files_of(rows: Iterable[Row]) -> Iterable[str]:
    """The files that rows stand in."""
    for row in rows:
        yield from (place.file for place in row.stack)
        yield from (scope.place.file for scope in row.scopes if scope.place)


def with_text(place: Place | None, known: Iterable[Source]) -> Place | None:
    """The place, with the text that one of these has there."""
    if place is None:
        return None
    for source in known:
        lines = source.text.split("\n")
        if source.file == place.file and 0 <= place.line - source.line < len(lines):
            text = source_lines.shown(lines[place.line - source.line])
            return dataclasses.replace(place, text=text)
    return place
