"""``jit-amp verify``: whether models give the same, in whatever format."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import jit_amp
from jit_amp import _C
from jit_amp._base.json_records import as_json
from jit_amp._base.printable import printable
from jit_amp._cli import formats
from jit_amp._cli.calls import Call, StateAfter, calls_of, state_of, written
from jit_amp._cli.inputs import check_call, inputs_of
from jit_amp._cli.mistakes import Mistaken, is_file, mistaken_if_refused, said
from jit_amp._cli.models import model_of
from jit_amp._cli.running import DTYPES, on_device, print_out, step
from jit_amp._explain.graph import dtype_name, place_of
from jit_amp._explain.records import REDUCED, Place
from jit_amp._precision.precision import loaded

CALLS = 3  # of each form


def _comparison(
    path: str, a: Any, b: Any, steps: float, computed_in: torch.dtype | None = None
) -> dict[str, Any]:
    """One output of both: whether it agrees, and how far apart it is in steps of its dtype; or, in
    that of the reduced dtype in which the reference computes."""
    found: dict[str, Any] = {"output": path, "agrees": True, "off": 0.0, "why": ""}
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        found["agrees"] = type(a) is type(b) and a == b
        found["why"] = "" if found["agrees"] else f"{a!r} and {b!r}"
    elif (a.dtype, a.shape) != (b.dtype, b.shape):
        found["agrees"] = False
        found["why"] = f"{a.dtype} {list(a.shape)} and {b.dtype} {list(b.shape)}"
    elif not torch.equal(a, b):
        off = _steps_apart(a.detach().cpu(), b.detach().cpu())
        dtype, told = a.dtype, ""
        if computed_in and a.dtype.is_floating_point and a.dtype.itemsize > computed_in.itemsize:
            off *= torch.finfo(a.dtype).eps / torch.finfo(computed_in).eps
            dtype, told = computed_in, ", in which the first model computes"
        found["off"], found["agrees"] = off, off <= steps
        found["why"] = f"{off:.3g} steps of {dtype_name(dtype)} apart{told}"
    return found


def _steps_apart(a: Tensor, b: Tensor) -> float:
    """How far, in steps of the dtype at the largest entry; infinite where it is no rounding."""
    if not (a.dtype.is_floating_point or a.is_complex()):
        return float("inf")
    wide = torch.complex128 if a.is_complex() else torch.float64
    apart = (a != b) & ~(a.isnan() & b.isnan())
    x, y = a.to(wide)[apart], b.to(wide)[apart]
    if not x.numel():
        return 0.0
    if not (x.isfinite().all() and y.isfinite().all()):
        return float("inf")
    scale = a.to(wide)[a.isfinite()].abs().max().item()
    return (x - y).abs().max().item() / max(scale, 1e-30) / torch.finfo(a.dtype).eps


def _callable_of(name: str, device: str) -> Any:
    """A model, or what runs a file of another format."""
    if not (is_file(name) and Path(name).suffix in formats.NEEDS):
        return on_device(model_of(name), device)
    try:
        run, is_flat = formats.load(name)
    except (ImportError, ValueError) as error:
        raise Mistaken(str(error)) from error
    return _Foreign(run, is_flat)


class _Foreign:
    """A model of another format. ``is_flat``: it gives a list of tensors in any case."""

    def __init__(self, run: Callable[..., Any], is_flat: bool) -> None:
        self.run, self.is_flat = run, is_flat

    def __call__(self, *arguments: Any) -> Any:
        return self.run(*arguments)


def _forms(model: Any, name: str, plain: bool) -> Iterator[tuple[str, Any]]:
    """The model, and what is saved and loaded of it."""
    yield name, model
    if isinstance(model, torch.jit.ScriptModule) and not plain:
        file = io.BytesIO()
        torch.jit.save(model, file)
        file.seek(0)
        loaded = torch.jit.load(file)  # type: ignore[no-untyped-call]
        yield f"{name}, saved and loaded", loaded
        mobile = importlib.import_module("torch.jit.mobile")
        try:
            lite = io.BytesIO(model._save_to_buffer_for_lite_interpreter())
            yield f"{name}, lite interpreter", mobile._load_for_lite_interpreter(lite)
        except RuntimeError as error:
            print(f"{name}: no lite form: {printable(said(error))}", file=sys.stderr)


def run_verify(given: argparse.Namespace) -> int:
    if given.precision and given.autocast:
        raise Mistaken("--autocast and --precision: the precision has the scope")
    with step("loading"):
        first, *others = (_callable_of(n, given.device) for n in (given.first, *given.second))
        inputs = inputs_of(given.input, given.device)
        for name, model in zip((given.first, *given.second), (first, *others), strict=True):
            if not isinstance(model, _Foreign):
                check_call(name, model, "forward", inputs)
        if isinstance(first, torch.jit.ScriptModule) and _C.has_scopes(first._c):
            first = jit_amp.script(first)  # its scopes as eager means them
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        with mistaken_if_refused():
            run = loaded(given.precision).apply(first) if given.precision else first
        scope: Any = contextlib.nullcontext()
        if given.autocast:
            scope = torch.autocast(given.device, dtype=DTYPES[given.autocast])
        named = list(zip(given.second, others, strict=True))
        # All before the first call, which may write to buffers.
        forms = [each for name, model in named for each in _forms(model, name, given.plain)]
        before = state_of(first, inputs)
        with scope:
            computed_in = _computed_in(run, inputs)
            expected = calls_of(run, first, inputs, _steps_of(given.first))
        for form, called in forms:
            actual = calls_of(called, called, inputs, _steps_of(form))
            for number, (a, b) in enumerate(zip(expected, actual, strict=True), 1):
                found = _compared_calls(before, a, b, called, given.steps, computed_in)
                rows += [{**row, "form": form, "call": number} for row in found]
            _say_what_is_not_seen(form, before, expected, actual)
    ordered = sorted(rows, key=lambda row: (row["agrees"], -row["off"]))
    worst = ordered[0] if rows else None
    lines = {path: at for m in (first, *others) for path, at in _lines_of_outputs(m).items()}
    if worst:
        place = lines.get(worst["output"])
        worst["line"] = str(place) if place else None
    wrong = [row for row in rows if not row["agrees"]]
    if given.json:
        print_out(given, as_json({"agrees": not wrong, "worst": worst, "rows": rows}))
    else:
        agree = f"{len(rows) - len(wrong)} of {len(rows)} outputs agree"
        print_out(given, f"{agree}, of three calls of each form")
        if worst and (wrong or worst["off"]):
            made_in = f", made in {place}: {place.text}" if place else ""
            form = worst.get("form", "")
            print_out(given, f"worst: {worst['output']} of {form}: {worst['why']}{made_in}")
        if len(others) > 1:
            print_out(given, _table_of_forms(ordered))
    return 1 if wrong else 0


def _computed_in(model: Any, inputs: tuple[Any, ...]) -> torch.dtype | None:
    """The coarsest reduced dtype in which products and convolutions of a model run, as explain sees
    it; None where there is none, or it cannot be seen."""
    if isinstance(model, _Foreign):
        return None
    try:
        rows = jit_amp.explain(model, inputs).rows
    except Exception:  # of any class: what the model raises is told where it is called
        return None
    ran = {row.computed_in for row in rows if row.flops}
    found = [getattr(torch, name) for name in REDUCED if name in ran]
    return max(found, key=lambda dtype: torch.finfo(dtype).eps, default=None)


def _steps_of(name: str) -> list[contextlib.AbstractContextManager[None]]:
    return [step(f"{name}, call {call + 1}") for call in range(CALLS)]


def _compared_calls(
    before: StateAfter,
    expected: Call,
    actual: Call,
    called: Any,
    steps: float,
    computed_in: torch.dtype | None,
) -> Iterator[dict[str, Any]]:
    """Each output of two calls, and each argument and buffer that one of them has written to."""
    for path, a, b in written(before, expected.after, actual.after, _is_same):
        yield _comparison(f"{path} after the call", a, b, steps, computed_in)
    outputs = actual.outputs
    is_flat = isinstance(called, _Foreign) and called.is_flat
    if is_flat and len(outputs) == len(expected.outputs):
        outputs = [(path, b) for (path, _), (_, b) in zip(expected.outputs, outputs, strict=True)]
    if [path for path, _ in outputs] != [path for path, _ in expected.outputs]:
        why = f"{[p for p, _ in expected.outputs]} and {[p for p, _ in outputs]}"
        yield {"output": "output", "agrees": False, "off": 0.0, "why": why}
        return
    for (path, a), (_, b) in zip(expected.outputs, outputs, strict=True):
        yield _comparison(path, a, b, steps, computed_in)


def _is_same(a: Any, b: Any) -> bool:
    return bool(_comparison("", a, b, 0)["agrees"])


def _say_what_is_not_seen(
    form: str, before: StateAfter, expected: list[Call], actual: list[Call]
) -> None:
    last = expected[-1].after
    if actual[-1].after.buffers is None and last.buffers:
        names = [each for each, *_ in written(before, last, last, _is_same) if "buffer" in each]
        if names:
            print(f"{form}: {names[0]} is written to, and cannot be seen there", file=sys.stderr)


def _table_of_forms(rows: list[dict[str, Any]]) -> str:
    """A line for each form, with its worst output; the worst form first."""
    worst: dict[str, dict[str, Any]] = {}
    for row in rows:  # sorted
        worst.setdefault(row["form"], row)
    lines = [("form", "agrees", "worst output", "")]
    for form, row in worst.items():
        lines.append((form, "yes" if row["agrees"] else "no", row["output"], row["why"] or "equal"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _lines_of_outputs(model: Any) -> dict[str, Place]:
    """The source line that makes each output, as far as the graph says it."""

    def walk(value: Any, path: str) -> Iterator[tuple[str, Place]]:
        node = value.node()
        inputs = list(node.inputs())
        if node.kind() in ("prim::TupleConstruct", "prim::ListConstruct"):
            for i, each in enumerate(inputs):
                yield from walk(each, f"{path}[{i}]")
        elif node.kind() == "prim::DictConstruct":
            for key, each in zip(inputs[::2], inputs[1::2], strict=True):
                yield from walk(each, f"{path}[{key.toIValue()!r}]")
        elif place := place_of(node):
            yield path, place

    graph = getattr(model, "inlined_graph", None)
    return dict(walk(next(graph.outputs()), "output")) if graph else {}
