"""jit_amp.explain: which line runs in which precision, why, and what it costs."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.jit import ScriptFunction, ScriptModule
from torch.utils._pytree import tree_leaves

from jit_amp import _C
from jit_amp._base import arguments as arguments
from jit_amp._base import process_state
from jit_amp._base.printable import printable, printable_lines
from jit_amp._explain import sources, stops, watch
from jit_amp._explain.graph import lowered_casts, place_of_error, weights_of
from jit_amp._explain.hints import hints_of, hints_of_casts, hints_of_gradients
from jit_amp._explain.records import REDUCED, Row
from jit_amp._explain.report import Report
from jit_amp._explain.rows import rows_of
from jit_amp._freeze.packed import emulates
from jit_amp._runs import example_arguments
from jit_amp._runs.copies import fresh
from jit_amp._script.script import _scripted

TIMED_RUNS = 5  # after one that warms up


@process_state.around(process_state.onednn)
@process_state.around(process_state.modes)
def explain(
    obj: Any,
    example_inputs: Any = None,
    *,
    method: str = "forward",
    numerics: bool = False,
    gradients: bool = False,
    timing: bool = False,
) -> Report:
    """Runs a program once as eager would, and tells of each operator what autocast did there.

    It is Python that runs, so a program that ``torch.jit.script`` cannot compile is explained too;
    where it can, the report has the casts of the lowered graph as well.

    Args:
        obj: a function, an ``nn.Module``, or what ``script``, ``trace``, ``freeze``
            or PyTorch's made of one. It stays as it is: what runs has buffers of its own.
        example_inputs: a tuple of arguments, or a tensor if that is the only one; a dictionary of
            arguments by name.
        method: the method, where ``obj`` is a module.
        numerics: run each operator beside itself in float64: where accuracy is lost, where
            something overflows. Slow, and all results are kept, with a copy in float64.
        gradients: run autograd back through the program, with loss scales from 1 to 2**24: where
            gradients overflow or underflow. The loss is what the program returns, if that is one
            number, and else the sum of the means of its results. No ``.grad`` is touched. Of a
            training step, give the function that returns the loss, without ``backward()``.
        timing: measure each operator, as the median of five further runs. On CUDA that is the
            time of launching it.

    Returns:
        A ``Report``. Where the program raises, it tells of what ran until then, and has the error,
        its line, and the operands there with the lines that they come from. Where jit_amp refuses
        the program, it has the refusal and its line.

    Raises:
        TypeError: the arguments do not fit, the function is asynchronous, or ``obj`` is an
            ``ExportedProgram``.
        ValueError: ``obj`` has no such method, or none that is compiled.
        RuntimeError: ``gradients`` of what requires none, or under ``torch.no_grad()``, or of a
            program that has freed its graph by ``backward()``.
    """
    arguments.not_exported("explain", obj)
    name = getattr(obj, "__qualname__", None) or type(obj).__qualname__
    if isinstance(obj, ScriptModule):
        name = str(obj._c._type().name())  # of its class
    if isinstance(obj, (ScriptModule, ScriptFunction)):
        report = _of_compiled(obj, name, example_inputs, method, numerics, gradients, timing)
    else:
        report = _of_python(obj, name, example_inputs, method, numerics, gradients, timing)
    found = (
        *hints_of(report.rows),
        *hints_of_gradients(report.rows),
        *hints_of_casts(report.casts),
    )
    return dataclasses.replace(
        report,
        name=printable(report.name),
        inputs=tuple(map(printable, report.inputs)),
        warnings=tuple(map(printable_lines, report.warnings)),
        not_compiled=printable_lines(report.not_compiled),
        hints=found,
        timing=timing and not report.error,
        numerics=numerics,
        gradients=gradients and not report.error,
        records_gradients=torch.is_grad_enabled(),
        emulated=_emulated(report.rows, example_inputs),
    )


def _emulated(rows: Iterable[Row], arguments: Any) -> tuple[str, ...]:
    """The reduced dtypes that ran on a CPU which has no instructions for them."""
    if any(t.device.type != "cpu" for t in tree_leaves(arguments) if isinstance(t, Tensor)):
        return ()
    seen: set[str] = set()
    for row in rows:
        seen.update(row.operands if row.computed_in == "mixed" else [row.computed_in])
    found = [name for name in REDUCED if name in seen]
    with ThreadPoolExecutor(1) as other:  # an explain around this one watches what this thread runs
        emulated = list(other.map(emulates, [getattr(torch, name) for name in found]))
    return tuple(itertools.compress(found, emulated))


def _of_compiled(
    scripted: Any,
    name: str,
    example_inputs: Any,
    method: str,
    numerics: bool,
    gradients: bool,
    timing: bool,
) -> Report:
    """Explains what TorchScript has compiled, by its graph."""
    is_module = isinstance(scripted, ScriptModule)
    if is_module:
        arguments.choice("method", method, sorted(scripted._c._method_names()))
        formals = scripted._c._get_method(method).schema.arguments[1:]
    else:
        formals = scripted.schema.arguments
    inputs = _bound_arguments(formals, example_inputs)
    runs = [fresh(inputs) for _ in range(_runs(timing))]
    text, stop = "", None
    try:
        with process_state.random_state():
            if is_module:
                found = _C.explain_method(scripted._c, method, runs, numerics, gradients)
            else:
                found = _C.explain_function(scripted, runs, numerics, gradients)
        seen, told, texts, raises, failed = found
        known = sources.compiled(texts)
        rows = rows_of(seen)
        if raises:
            try:
                raises()
            except _C.AutocastError:
                raise
            except Exception as error:
                text = stops.text_of(error)
                stop = stops.of_compiled(error, rows, failed, scripted, known)
    except _C.AutocastError as error:
        known = sources.compiled(_texts_of(scripted))
        at = sources.with_text(place_of_error(error), known)
        return Report(name, (), refusal=str(error), refused_at=at, sources=known)
    stopped_at = failed[0] if failed else None
    return Report(
        name,
        tuple(row for i, row in enumerate(rows) if row.calls or told or i == stopped_at),
        tuple(dict.fromkeys(told)),
        error=printable_lines(text),
        stop=stop,
        casts=tuple(lowered_casts(scripted, method)),
        weights=tuple(weights_of(scripted, method)),
        inputs=_in_words([formal.name for formal in formals], inputs),
        sources=(*known, *sources.read(sources.traced_files(seen))),
    )


def _texts_of(scripted: Any) -> Iterator[tuple[str, int, str]]:
    """What it was compiled from, as far as that is told."""
    with contextlib.suppress(_C.AutocastError):
        for function in _C.compiled_functions(getattr(scripted, "_c", scripted)):
            yield from function.texts


def _of_python(
    obj: Any,
    name: str,
    example_inputs: Any,
    method: str,
    numerics: bool,
    gradients: bool,
    timing: bool,
) -> Report:
    """Explains what Python runs, by watching its operators."""
    called = example_arguments.called(obj, method)
    with process_state.random_state():
        given = example_arguments.given(called, example_inputs, isinstance(obj, torch.nn.Module))
        ran = watch.run(
            obj if isinstance(obj, torch.nn.Module) else called,
            method if isinstance(obj, torch.nn.Module) else "forward",
            given.args,
            given.kwargs,
            runs=_runs(timing),
            numerics=numerics,
            gradients=gradients,
        )
    rows = tuple(rows_of(ran.rows))
    report = Report(
        name,
        rows,
        tuple(ran.warnings),
        error=printable_lines(ran.error),
        stop=ran.stop,
        inputs=given.in_words,
        seconds=ran.seconds,
        sources=sources.read(sources.files_of(rows)),
    )
    return _with_the_graph(report, obj, method) if ran.has_scopes else report


def _with_the_graph(report: Report, obj: Any, method: str) -> Report:
    """The report with the casts of the lowered graph, where there is one."""
    try:
        with process_state.random_state():
            scripted = _scripted(obj)
        if not isinstance(scripted, (ScriptModule, ScriptFunction)):
            return report  # PYTORCH_JIT=0
        if isinstance(scripted, ScriptModule) and method not in scripted._c._method_names():
            return report
        return dataclasses.replace(report, casts=tuple(lowered_casts(scripted, method)))
    except _C.AutocastError as error:
        place = place_of_error(error)
        known = (*report.sources, *sources.read([place.file] if place else ()))
        at = sources.with_text(place, known)
        return dataclasses.replace(report, refusal=str(error), refused_at=at, sources=known)
    except Exception as error:  # TorchScript's compiler raises many kinds of these
        return dataclasses.replace(report, not_compiled=stops.text_of(error))


def _runs(timing: bool) -> int:
    return 1 + (1 + TIMED_RUNS if timing else 0)


def _in_words(names: Sequence[str], arguments: Sequence[Any]) -> tuple[str, ...]:
    pairs = zip(names, arguments, strict=False)
    return tuple(f"{name}: {example_arguments.in_words(value)}" for name, value in pairs)


def _bound_arguments(formals: Any, given: Any) -> tuple[Any, ...]:
    is_by_name = isinstance(given, Mapping)
    by_name = dict(given) if is_by_name else {}
    nothing = given is None or is_by_name
    positional = () if nothing else given if isinstance(given, tuple) else (given,)
    arguments = list(positional)
    for formal in formals[len(positional) :]:
        if formal.name not in by_name and not formal.has_default_value():
            raise TypeError(f"jit_amp.explain: example_inputs without `{formal.name}`")
        arguments.append(by_name.pop(formal.name, formal.default_value))
    if by_name or len(arguments) > len(formals):
        takes = ", ".join(f"{f.name}: {f.type.annotation_str}" for f in formals)
        raise TypeError(f"jit_amp.explain: example_inputs do not fit ({takes})")
    return tuple(arguments)
