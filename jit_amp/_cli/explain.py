"""``jit-amp explain``."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import Any

import torch

import jit_amp
from jit_amp._cli.mistakes import Mistaken, is_file, mistaken_if_refused
from jit_amp._cli.running import DTYPES, loaded, print_out, step, with_scope
from jit_amp._explain.graph import dtype_name
from jit_amp._explain.limits import NEEDS, limits_of, over
from jit_amp._explain.records import REDUCED
from jit_amp._explain.report import Report


def run_explain(given: argparse.Namespace) -> int:
    limits = _limits(given)
    [model], inputs = loaded(given, given.model)
    report = _explained(given, model, inputs, given.autocast, "")
    other: Report | None = None
    if given.against:
        other = report
        report = _reference(given, model, inputs)
    compared = report.compare(other) if other else None
    shown = other or report
    if given.html:
        (compared or shown).to_html(given.html)
    if given.json:
        print_out(given, shown.to_json())
    else:
        print_out(given, compared or shown.to_text(all=given.all), is_printable=True)
    told = over(shown, limits) if limits else []
    missing = _never_ran(shown, given.autocast) if given.autocast else ""
    for each in filter(None, (*told, missing)):
        print(f"jit-amp: {each}", file=sys.stderr)
    failed = shown.refusal or shown.error or told or (limits and missing)
    return 1 if failed else 0


def _never_ran(report: Report, autocast: str) -> str:
    """What is told where nothing ran in the dtype that ``--autocast`` names."""
    asked = dtype_name(DTYPES[autocast])
    ran = {each for row in report.rows for each in (*row.results, *row.operands, row.computed_in)}
    if not report.rows or asked in ran:
        return ""
    others = [each for each in REDUCED if each in ran]
    own = f": the model's own scopes are for {others[0]}" if others else ""
    return f"--autocast {autocast}: nothing ran in {asked}{own}"


def _limits(given: argparse.Namespace) -> dict[str, float]:
    """The limits of ``--fail-over``, which have measured what they need."""
    if given.fail_over is None:
        return {}
    try:
        limits = limits_of(given.fail_over)
    except ValueError as error:
        raise Mistaken(f"--fail-over {error}") from error
    for what, names in NEEDS.items():
        if names & set(limits):
            setattr(given, what, True)
    return limits


def _explained(
    given: argparse.Namespace, model: Any, inputs: tuple[Any, ...], autocast: str | None, which: str
) -> Report:
    """The report of a model under an autocast around the call, where one is asked for."""
    scope: Any = contextlib.nullcontext()
    if autocast:
        scope = torch.autocast(given.device, dtype=DTYPES[autocast])
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        model, scope = with_scope(model, autocast, given.device), contextlib.nullcontext()
    with (
        step(f"running{which}"),
        torch.set_grad_enabled(given.gradients),
        mistaken_if_refused(),
        scope,
    ):
        report = jit_amp.explain(
            model,
            inputs,
            method=given.method,
            numerics=given.numerics,
            gradients=given.gradients,
            timing=given.timing,
        )
    return dataclasses.replace(report, command=given.command)


def _reference(given: argparse.Namespace, model: Any, inputs: tuple[Any, ...]) -> Report:
    """The report that ``--against`` names: of a file, or of the same model in another dtype."""
    if given.against in (*DTYPES, "none"):
        autocast = None if given.against == "none" else given.against
        return _explained(given, model, inputs, autocast, f" {given.against}")
    if not is_file(given.against):
        raise Mistaken(
            f"--against {given.against!r} is no file that `jit-amp explain --json` wrote, and none "
            f"of {', '.join((*DTYPES, 'none'))}"
        )
    try:
        return Report.from_json(Path(given.against).read_text(encoding="utf-8"))
    except ValueError as error:
        raise Mistaken(f"--against {given.against}: {error}") from error
