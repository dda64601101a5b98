"""jit_amp.Report: what `explain` returns."""

from __future__ import annotations

import dataclasses
import os
import types
from dataclasses import dataclass

from jit_amp._base import arguments, extras, json_records, whole_files
from jit_amp._explain import comparison, text, verdict
from jit_amp._explain.comparison import Comparison
from jit_amp._explain.records import Records
from jit_amp._explain.verdict import Advice, Summary


@dataclass(frozen=True, repr=False)
class Report(Records):
    """What ``explain`` returns. ``print`` it, or write a page with ``to_html``.

    Where the program raises, the rows are those of what ran until then; ``error`` is what it
    raised, as text, and ``stop`` where: the line, the operator, and its operands with the lines
    that they come from. Else these are empty and None.

    ``casts`` are those of the graph that ``jit_amp.script`` would run, where TorchScript compiles
    the program: one cast for uses that eager casts each. ``refusal`` is the text of the
    ``AutocastError`` that ``jit_amp.script`` would raise, and ``refused_at`` its line.
    ``not_compiled`` is why TorchScript's compiler fails. ``weights`` are a frozen module's.
    ``inputs`` are the arguments in words, ``seconds`` is what a whole call took, with ``timing``.
    ``emulated`` are the dtypes among the rows' for which the processor has no instructions.
    """

    @property
    def summary(self) -> Summary:
        """The numbers of the whole program."""
        return verdict.summary(self)

    @property
    def verdict(self) -> str:
        """What matters, in a sentence or two."""
        return verdict.verdict(self)

    @property
    def advice(self) -> Advice | None:
        """The one change to make first, as code, with what it gains; None where there is none."""
        return verdict.advice(self)

    def compare(self, other: Report) -> Comparison:
        """Compares this report with one of the same program, after a change or in another dtype.

        Args:
            other: the report of afterwards.

        Returns:
            A ``Comparison``: ``print`` it, or write a page with ``to_html``.

        Raises:
            TypeError: ``other`` is no report.
        """
        arguments.instance("other", other, Report, "a report of jit_amp.explain")
        return comparison.compare(self, other)

    def to_json(self) -> str:
        """All of it as JSON; numbers that JSON does not have are ``"NaN"``, ``"Infinity"`` and
        ``"-Infinity"``."""
        made = dataclasses.asdict(dataclasses.replace(self, sources=()))
        del made["sources"]  # the texts of lines stand with their places
        for row, written in zip(self.rows, made["rows"], strict=True):
            written |= {"line": dataclasses.asdict(row.line), "precision": row.precision}
        made |= {"verdict": self.verdict, "io_dtype": self.io_dtype}
        made |= {"summary": dataclasses.asdict(self.summary)}
        return json_records.as_json(made, indent=1)

    @staticmethod
    def from_json(text: str) -> Report:
        """Returns the report that ``to_json`` was called on.

        Raises:
            ValueError: the text is no such JSON; which value is of another type.
        """
        arguments.instance("Report.from_json", text, (str, bytes), "the text that to_json gave")
        try:
            return json_records.read(Report, text)
        except ValueError as error:
            raise ValueError(
                f"Report.from_json: this is no report of to_json's: {error}"
            ) from error

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes one page that needs no network: the sources, line by line, with what runs there.

        Raises:
            OSError: the file cannot be written; an older one is then as it was.
            ImportError: Jinja2 or Pygments is not there: ``pip install jit_amp[explain]``.
        """
        whole_files.write_text(path, _pages().render(self))

    def to_text(self, *, width: int | None = None, all: bool = False) -> str:
        """Returns the report as a table.

        Args:
            width: of the table, in characters; the terminal's if you do not give it.
            all: all lines, and not the twenty that matter most.
        """
        return text.text(self, width, all)

    def _repr_html_(self) -> str | None:
        try:
            return str(_pages().notebook(self))
        except ImportError:
            return None  # notebooks show the text then

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        called = text.cut(f"{self.name}({', '.join(self.inputs)})", 80)
        return f"<jit_amp.Report of {called}: {text.cut(self.verdict, 160)}>"


def _pages() -> types.ModuleType:
    with extras.for_pages():
        from jit_amp._explain import page
    return page
