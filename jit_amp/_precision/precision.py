"""jit_amp.Precision: what `tune` finds, and what is done with it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from jit_amp._base import arguments, extras, json_records, source_lines, whole_files
from jit_amp._precision import curve, in_float32, patch
from jit_amp._precision.records import NOUNS, Found, Point, shown, shown_error


@dataclass(frozen=True, repr=False)
class Precision(Found):
    """Which units of a model stay in float32 under autocast: what ``jit_amp.tune`` returns.

    ``print`` it for a table. ``units`` are names as ``named_modules`` gives them, the model itself
    being ``""``; or ``file:function``, ``file:line``, or an operator of any overload such as
    ``aten::softmax``, by ``kind``. ``error`` is what the metric
    gives with these units in float32, and ``error_plain`` with none: NaN where the budget ended the
    search before that was measured. ``evaluations`` is how often
    the metric was evaluated. ``saved`` is the share of what autocast saves that is left. Times
    differ between machines and calls, so it is counted in the work of operators: floating point
    operations, and 8 for each element that is read or written. ``around`` is whether the model has
    no scopes of its own, so that one is put around it. ``finished`` is False where the budget ended
    the search: the units are then the best that it had found.

    ``curve`` has the points that the search has measured and none of which is both cheaper and more
    accurate than another, from the cheapest: ``point.error`` against ``point.share``, the share of
    the work that autocast would save and that is in float32. ``choose`` takes another of them.
    ``error_float32`` is the error with float32 everywhere.
    """

    IS_NO_MODEL: ClassVar[str] = "a Precision"

    def apply(self, model: nn.Module) -> Applied:
        """The model with this precision, in eager: to run, or to train.

        Use what is returned as a context, in which every call of the model runs so; or call it in
        place of the model. Afterwards the model is as it was. Gradients, hooks, ``state_dict`` and
        the optimizer's parameters are the model's own. Other threads run it so too, and deep
        copies that are made in the context, for as long; what is pickled is a plain model. Calls
        of a model that has no scopes run under ``torch.autocast(device_type, dtype)``.

        Args:
            model: a module with these units. Not one that was scripted: give those
                ``precision=``.

        Raises:
            TypeError: ``model`` is no module, or was scripted, or ``torch.compile`` returned it.
            ValueError: it has no submodule of such a name, or a source file no such function; or a
                line is another one than when it was tuned.
        """
        arguments.module("Precision.apply", model)
        if arguments.below_compiled(model) is not model:
            raise TypeError(
                "Precision.apply takes the module that torch.compile was given, and not what it"
                " returned: `_orig_mod` of it"
            )
        if isinstance(model, torch.jit.ScriptModule):
            raise TypeError(
                "Precision.apply takes a module that was not scripted: script it with"
                " jit_amp.script(model, precision=...)"
            )
        self.check_units(model)
        return Applied(model, self._units_in_float32())

    def choose(
        self,
        point: Point | None = None,
        *,
        tolerance: float | None = None,
        share: float | None = None,
    ) -> Precision:
        """The precision at another point of ``curve``; nothing is measured again.

        Args:
            point: one of ``curve``.
            tolerance: or the cheapest one with at most this error.
            share: or the most accurate one with at most this share of the work in float32, from 0
                to 1.

        Returns:
            Precision: the same with other units, and with what was measured of these.

        Raises:
            TypeError: not one of the three is given, or of another type.
            ValueError: the curve has no such point.
        """
        given = [each for each in (point, tolerance, share) if each is not None]
        if len(given) != 1:
            raise TypeError("Precision.choose takes a point of `curve`, tolerance= or share=")
        if point is None:
            arguments.instance("tolerance or share", given[0], (int, float), "a number")
            point = curve.point_of(self.curve, tolerance, share)
        else:
            arguments.instance("point", point, Point, "a point of `curve`")
            if point not in self.curve:
                raise ValueError("point: it is not one of this precision's curve")
        found = curve.at(self, point, tolerance)
        assert isinstance(found, Precision)
        return found

    def check_units(self, model: nn.Module) -> None:
        if self.kind == "module":
            names = in_float32.modules_of(model)
            if missing := [unit for unit in self.units if unit not in names]:
                raise ValueError(
                    f"precision: {type(model).__name__} has no submodule {missing[0]!r}; it was"
                    f" found for {self.name}"
                )

        if self.kind == "operator":
            for unit in self.units:
                if not in_float32.is_operator(unit):
                    raise ValueError(f"precision: PyTorch has no operator {unit!r} here")
        self._check_sources()

    def _check_sources(self) -> None:
        """Lines and functions are those that they were, where their files are known here."""
        texts = {f"{each.file}:{each.line}": each.text for each in self.lines}
        for unit in self.units if self.kind in in_float32.SOURCES else ():
            name = unit.rpartition(":")[0]
            path = in_float32.path_of(name)
            if not source_lines.lines(path, anew=True):
                continue
            _, line, _ = in_float32.lines_of(unit, self.kind)
            now, tuned = source_lines.line(path, line), texts.get(unit, "")
            if self.kind == "line" and tuned and now != tuned:
                raise ValueError(
                    f"precision: {unit} was `{tuned}` when it was tuned, and is `{now}`: its file"
                    " has changed, tune again"
                )

    def kept_in_script(self) -> list[tuple[str, list[tuple[str, int, int]]]]:
        """Paths of submodules; with each the lines that stay in float32, none for all of it.

        Raises:
            ValueError: lines of a model that has scopes, which are for eager only.
        """
        if self.kind == "module":
            return [(unit, []) for unit in self.units]
        if not self.around:
            raise ValueError(
                f"precision: {self.kind}s of a model that has scopes of its own: use it in eager,"
                " with Precision.apply, or tune units='module'"
            )
        lines = [in_float32.lines_of(unit, self.kind) for unit in self.units]
        return [("", lines)] if lines else []

    def _units_in_float32(self) -> in_float32.Parts:
        dtype = getattr(torch, self.dtype)
        return in_float32.Parts(self.kind, self.units, self.device_type, dtype, self.around)

    def to_json(self) -> str:
        """All of it as JSON; numbers that JSON does not have are ``"NaN"``, ``"Infinity"`` and
        ``"-Infinity"``."""
        return json_records.as_json(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Precision:
        """Returns the precision that ``to_json`` wrote.

        Raises:
            ValueError: ``text`` is something else; which value is of another type.
        """
        arguments.instance("Precision.from_json", text, (str, bytes), "the text that to_json gave")
        try:
            found = json_records.read(cls, text, strict=True)
            for i, unit in enumerate(found.units if found.kind == "line" else ()):
                _, colon, number = unit.rpartition(":")
                if not (colon and number.isascii() and number.isdecimal()):
                    raise json_records.wrong(f"units[{i}]", unit, "a file and the number of a line")
        except ValueError as error:
            text = f"Precision.from_json: this is not what to_json wrote: {error}"
            raise ValueError(text) from error
        return found

    def to_code(self, model: nn.Module) -> str:
        """What a person would write into the model's source, as a diff that ``patch -p0`` applies
        in the working directory.

        Modules and functions get ``jit_amp.ignore_amp(..., float32=True)``: a module at the end of
        ``__init__`` of the model's class, a function as a decorator. Lines are put into
        ``with torch.autocast(..., enabled=False)``, with ``.float()`` where they are given the
        reduced dtype; only statements that have their lines for themselves can be, and not the
        heads of compound ones, lambdas, or what reads lists of reduced tensors or properties. The
        scope around the model is left to you.

        Args:
            model: the model that it was found for.

        Raises:
            TypeError: ``model`` is no module.
            ValueError: it has no such unit; or its class has no source, or no ``__init__`` of its
                own; or what stays in float32 cannot be written, and why.
        """
        arguments.module("Precision.to_code", model)
        self.check_units(model)
        return patch.of(self, model)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes one page that needs no network: the table, the error against the share of the
        saving, each unit's own error, and the sources with the lines that stay in float32.

        Raises:
            OSError: the file cannot be written; an older one is then as it was.
            ImportError: Jinja2 or Pygments is not there: ``pip install jit_amp[explain]``.
        """
        with extras.for_pages():
            from jit_amp._precision import page
        whole_files.write_text(path, page.render(self))

    def _repr_html_(self) -> str | None:
        try:
            with extras.for_pages():
                from jit_amp._precision import page
        except ImportError:
            return None  # notebooks show the line then
        return page.notebook(self)

    def __repr__(self) -> str:
        first = ", ".join(repr(each) for each in self.units[:3]) + ", ..." * (len(self.units) > 3)
        return (
            f"<Precision of {self.name} in {self.dtype}: {len(self.units)} of {self.candidates}"
            f" {NOUNS[self.kind]} in float32{f' ({first})' if first else ''}, error"
            f" {shown_error(self.error)}>"
        )

    def __str__(self) -> str:
        return _text(self)


class Applied(contextlib.AbstractContextManager[nn.Module]):
    """A model that runs with a ``Precision``: a context, or called in place of the model."""

    IS_NO_MODEL = "what Precision.apply returned"

    def __init__(self, model: nn.Module, parts: in_float32.Parts) -> None:
        self._model, self._parts = model, parts
        self._open: list[contextlib.AbstractContextManager[None]] = []

    def __enter__(self) -> nn.Module:
        context = in_float32.applied(self._model, self._parts)
        context.__enter__()
        self._open.append(context)
        return self._model

    def __exit__(self, *raised: Any) -> None:
        self._open.pop().__exit__(*raised)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self:
            return self._model(*args, **kwargs)


def _text(p: Found) -> str:
    lines = [
        f"{p.name} in {p.dtype} on {p.device_type}: {len(p.units)} of {p.candidates}"
        f" {NOUNS[p.kind]} stay in float32",
        f"{p.metric}: {shown_error(p.error)}, tolerance {p.tolerance:.3g},"
        f" {shown_error(p.error_plain)} without;"
        f" {p.saved:.1%} of autocast's saving is kept; {p.evaluations} evaluations",
    ]
    if not p.finished:
        lines.append("stopped at the budget: the best that was found until then")
    if p.kept:
        rows = [("unit", "why it stays", "error with", "without it", "costs")]
        rows += [
            (
                shown(each.unit),
                each.why,
                shown_error(each.error_with),
                shown_error(each.error_without),
                f"{each.work:.1%}",
            )
            for each in p.kept
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines.append("")
        for row in rows:
            cells = [
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def loaded(value: Any) -> Precision:
    """The ``precision`` argument: a ``Precision``, or the path of the file of its JSON."""
    if isinstance(value, (str, os.PathLike)):
        try:
            return Precision.from_json(Path(value).read_text(encoding="utf-8"))
        except ValueError as error:  # bytes that are no text, too
            raise ValueError(f"{os.fspath(value)}: {error}") from error
    arguments.instance("precision", value, Precision, "what jit_amp.tune returned, or its file")
    return value  # type: ignore[no-any-return]
