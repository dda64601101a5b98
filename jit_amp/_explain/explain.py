"""jit_amp.explain: which line runs in which precision, why, and what it costs."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.jit import ScriptFunction, ScriptModule
from torch.utils import flop_counter
from torch.utils._pytree import tree_leaves

from jit_amp import _C
from jit_amp._base import arguments as _check
from jit_amp._base import process_state
from jit_amp._explain import watch
from jit_amp._explain.records import (
    REDUCED,
    Cast,
    Gradient,
    Hint,
    Lowered,
    Numerics,
    Place,
    Row,
    Scope,
    Weight,
)
from jit_amp._explain.report import Report
from jit_amp._freeze.packed import emulates
from jit_amp._runs import example_arguments
from jit_amp._runs.copies import fresh
from jit_amp._script.script import _scripted

TIMED_RUNS = 5  # after one that warms up
_REASONS = {
    "lower": "in {device}'s list of operators that run in the scope's dtype",
    "fp32": "in {device}'s list of float32 operators",
    "fp32_opt_dtype": "in {device}'s list of operators whose result is float32, unless a dtype is"
    " given",
    "fp32_append_dtype": "in {device}'s list of operators whose result is float32",
    "promote": "promotes to the widest of its operands",
    "promote_inside": "is made of operators that promote to the widest of their operands",
    "untouched": "in no list of {device}'s: runs in the dtypes of its inputs",
    "opaque": "jit_amp has no rule for it on {device}: PyTorch's own autocast decides when it runs",
    "banned": "refused by {device}'s autocast",
}
_STATED = {
    "lower": "runs in the scope's dtype",
    "fp32": "runs in float32",
    "promote": "promotes to the widest of its operands",
    "untouched": "runs in the dtypes of its inputs",
    "opaque": "is the dispatcher's to decide about",
}


@process_state.onednn()
@process_state.modes()
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
        A ``Report``. Where jit_amp refuses the program, it has the refusal and its line.

    Raises:
        TypeError: the arguments do not fit, the function is asynchronous, or ``obj`` is an
            ``ExportedProgram``.
        ValueError: ``obj`` has no such method, or none that is compiled.
        RuntimeError: what the program raises, and what ``torch.jit.script`` does where tracing
            fails too; ``gradients`` of what requires none, or under ``torch.no_grad()``, or of a
            program that has freed its graph by ``backward()``.
    """
    _check.not_exported("explain", obj)
    name = getattr(obj, "__qualname__", None) or type(obj).__qualname__
    if isinstance(obj, ScriptModule):
        name = str(obj._c._type().name())  # of its class
    if isinstance(obj, (ScriptModule, ScriptFunction)):
        report = _of_compiled(obj, name, example_inputs, method, numerics, gradients, timing)
    else:
        report = _of_python(obj, name, example_inputs, method, numerics, gradients, timing)
    found = (
        *_hints(report.rows),
        *_hints_of_gradients(report.rows),
        *_hints_of_casts(report.casts),
    )
    return dataclasses.replace(
        report,
        hints=found,
        timing=timing,
        numerics=numerics,
        gradients=gradients,
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
    """What TorchScript has compiled, by its graph."""
    is_module = isinstance(scripted, ScriptModule)
    if is_module:
        _check.choice("method", method, sorted(scripted._c._method_names()))
        formals = scripted._c._get_method(method).schema.arguments[1:]
    else:
        formals = scripted.schema.arguments
    arguments = _arguments(formals, example_inputs)
    runs = [fresh(arguments) for _ in range(_runs(timing))]
    try:
        with process_state.random_state():
            if is_module:
                rows, told = _C.explain_method(scripted._c, method, runs, numerics, gradients)
            else:
                rows, told = _C.explain_function(scripted, runs, numerics, gradients)
    except _C.AutocastError as error:
        return Report(name, (), refusal=str(error), refused_at=_line_of(str(error)))
    return Report(
        name,
        tuple(_row(row) for row in rows if row["calls"] or told),
        tuple(told),
        casts=tuple(_lowered(scripted, method)),
        weights=tuple(weights_of(scripted, method)),
        inputs=_in_words([formal.name for formal in formals], arguments),
    )


def _of_python(
    obj: Any,
    name: str,
    example_inputs: Any,
    method: str,
    numerics: bool,
    gradients: bool,
    timing: bool,
) -> Report:
    """What Python runs, by what it does."""
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
    report = Report(
        name,
        tuple(map(_row, ran.rows)),
        tuple(ran.warnings),
        inputs=given.in_words,
        seconds=ran.seconds,
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
        return dataclasses.replace(report, casts=tuple(_lowered(scripted, method)))
    except _C.AutocastError as error:
        return dataclasses.replace(report, refusal=str(error), refused_at=_line_of(str(error)))
    except Exception as error:  # TorchScript's compiler raises many kinds of these
        return dataclasses.replace(report, not_compiled=_first_line(error))


def _runs(timing: bool) -> int:
    return 1 + (1 + TIMED_RUNS if timing else 0)


def _in_words(names: Sequence[str], arguments: Sequence[Any]) -> tuple[str, ...]:
    pairs = zip(names, arguments, strict=False)
    return tuple(f"{name}: {example_arguments.in_words(value)}" for name, value in pairs)


def _first_line(error: Exception) -> str:
    text = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {text}"


def _lowered(scripted: Any, method: str) -> Iterator[Lowered]:
    """The casts of the lowered graph, and those that a frozen module decides about when it runs."""
    ambient = torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report has them
        if isinstance(scripted, ScriptFunction):
            graph = _C.lowered_graph(scripted, *ambient)
        else:
            graph = _C.lowered_method_graph(scripted._c, method, *ambient)

    def walk(block: Any, in_loop: bool) -> Iterator[Lowered]:
        for node in block.nodes():
            at_run_time = _decides_about_cast(node)
            if node.kind() == "jit_amp::cast" or at_run_time:
                users = tuple(dict.fromkeys(_places_of_users(node, _users_place_of)))
                if users:
                    yield Lowered(users, in_loop, at_run_time)
            if not at_run_time:
                for inner in node.blocks():
                    yield from walk(inner, in_loop or node.kind() == "prim::Loop")

    yield from walk(graph, False)


OURS = "<jit_amp "
"""In place of a file, before the name of what jit_amp wrote into a graph: csrc/core/graphs.cpp."""


def _decides_about_cast(node: Any) -> bool:
    """Whether the node is a cast that a frozen module decides about when it runs."""
    made_in = _line_of(node.sourceRange()) if node.kind() == "prim::If" else None
    return made_in is not None and made_in.file.startswith(OURS + "cast") and node.hasUses()


def place_of(node: Any) -> Place | None:
    """The line of a graph's node; None for what nobody wrote, and for what is in no file."""
    place = _line_of(node.sourceRange())
    is_shown = place and place.file != "<string>" and not place.file.startswith(OURS)
    return place if is_shown else None


def _users_place_of(node: Any) -> Place | None:
    """The same, of the innermost call that stands in no file of PyTorch's, if there is one."""
    place = place_of(node)
    line = _C.users_line(node) if place else None
    return Place(*line) if line else place


def _places_of_users(
    node: Any, place_of: Callable[[Any], Place | None] = place_of
) -> Iterator[Place]:
    """The lines of what uses a node's results, through what has no line of its own."""
    for use in (use for output in node.outputs() for use in output.uses()):
        if place := place_of(use.user):
            yield place
        elif use.user.kind() != "prim::Return":
            yield from _places_of_users(use.user, place_of)


def weights_of(scripted: Any, method: str) -> Iterator[Weight]:
    if not isinstance(scripted, ScriptModule) or hasattr(scripted, "training"):
        return  # not frozen: its weights are its parameters
    for node in scripted._c._get_method(method).graph.findAllNodes("prim::Constant"):
        if node.hasAttribute("value") and node.kindOf("value") == "t":
            value = node.t("value")
            if not value.numel():  # of a check: csrc/passes/freeze/guard_autocast.h
                continue
            users = tuple(dict.fromkeys(_places_of_users(node)))
            yield Weight(_dtype(value.dtype), tuple(value.shape), value.nbytes, users)
    for child in scripted.children():
        packed: Any = child
        if hasattr(packed, "native_bfloat16"):  # jit_amp/_freeze/packed.py
            for i in range(len(packed.plans)):
                value = packed.dense(i)
                if value.numel() < 32768:  # a constant too: csrc/passes/server/pack_weights.h
                    continue
                yield Weight(_dtype(value.dtype), tuple(value.shape), value.nbytes, ())


def _hints_of_casts(casts: Iterable[Lowered]) -> Iterator[Hint]:
    for place in dict.fromkeys(each.users[0] for each in casts if each.at_run_time):
        yield Hint(
            place,
            "whether something is cast here is asked at each call: freeze with example_inputs, "
            "which tell the dtype",
        )
    for each in casts:
        if each.in_loop and not each.at_run_time:
            yield Hint(
                each.users[0],
                "a cast in a loop, which changes in it or is written to: it is made in each round",
            )


def _arguments(formals: Any, given: Any) -> tuple[Any, ...]:
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


def _line_of(error: str) -> Place | None:
    for line in error.splitlines():
        parts = line.strip().split('"')
        if line.strip().startswith("File ") and len(parts) == 3 and "line " in parts[2]:
            number = parts[2].partition("line ")[2].split(",")[0].strip()
            return Place(parts[1], int(number), 0)
    return None


def _dtype(dtype: Any) -> str:
    return "several" if dtype is None else str(dtype).removeprefix("torch.")


def _row(seen: dict[str, Any]) -> Row:
    stack = tuple(Place(*place) for place in seen["stack"])
    scopes = tuple(
        Scope(
            device,
            enabled,
            None if dtype is None else _dtype(dtype),
            Place(*seen["scopes"][device]) if device in seen["scopes"] else None,
        )
        for device, (enabled, dtype, _) in seen["states"].items()
    )
    policy, reason = _why(seen, scopes)
    numbers, gradient = seen["numerics"], seen["gradient"]
    return Row(
        seen["name"],
        stack[-1],
        stack,
        seen["module"],
        scopes,
        policy,
        reason,
        seen["calls"],
        tuple(map(_dtype, seen["operands"])),
        tuple(map(_dtype, seen["results"])),
        tuple(map(tuple, seen["shapes"])),
        tuple(seen["devices"]),
        tuple(Cast(_dtype(a), _dtype(b), *numbers) for a, b, *numbers in seen["casts"]),
        seen["calls"] * _flops(seen["name"], seen["taken"], seen["shapes"]),
        seen["seconds"],
        numbers and Numerics(**numbers),
        gradient and Gradient(**{**gradient, "dtype": _dtype(gradient["dtype"])}),
        seen["cast_seconds"],
        seen.get("is_backward", False),
    )


def _flops(name: str, operands: list[list[int]], results: list[list[int]]) -> int:
    """What PyTorch's flop_counter counts for the operator; 0 for what is not a product."""
    operator = name.removeprefix("aten::").partition(".")[0]
    if not results or len(operands) < 2:
        return 0
    if operator in ("mm", "matmul", "bmm", "linear", "mv", "dot"):
        return 2 * math.prod(results[0]) * (operands[0][-1] if operands[0] else 1)
    if operator in ("addmm", "baddbmm", "addmv"):
        return 2 * math.prod(results[0]) * operands[1][-1]
    if operator.startswith(("conv1d", "conv2d", "conv3d", "convolution", "_convolution")):
        return _convolution_flops(operands, results[0], False)
    if operator.startswith("conv_transpose"):
        return _convolution_flops(operands, results[0], True)
    if operator == "scaled_dot_product_attention" and len(operands) > 2:
        query, key, value = operands[:3]
        if min(map(len, (query, key, value))) > 1:
            return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
    return 0


def _convolution_flops(operands: list[list[int]], result: list[int], transposed: bool) -> int:
    x, weight = operands[:2]
    batch = [1] if len(x) < len(weight) else []
    return int(flop_counter.conv_flop_count(batch + x, weight, batch + result, transposed))


def _why(seen: dict[str, Any], scopes: tuple[Scope, ...]) -> tuple[str, str]:
    """The policy for the device that the operator ran on, and its reason in a sentence."""
    if what := Place(*seen["stack"][-1]).io_dtype:
        return "", f"io_dtype: {what} are cast here, in no line of the program"
    enabled = {scope.device: scope for scope in scopes if scope.enabled}
    ran = [device for device in seen["devices"] if device in enabled]
    if not enabled:
        off = [str(scope.place) for scope in scopes if scope.place]
        return "", f"autocast is off here, by {off[0]}" if off else "outside every scope"
    if not seen["calls"]:
        device = next(iter(enabled))
    elif not ran:
        return "", f"autocast is on for {', '.join(enabled)}, and its tensors are elsewhere"
    else:
        device = ran[0]
    policy = seen["policies"].get(device, "")
    name = {d: d.upper() for d in ("cpu", "cuda", "xpu", "mps")}.get(device, device)
    reason = _REASONS.get(policy, "").format(device=name)
    if not seen["is_call"] and (stated := _C.stated_policy(seen["name"], device)):
        reason = f"policy.register says that it {_STATED[stated]}"
    if policy == "opaque" and seen["is_call"]:
        reason = "a call of code that is not in the graph: the dispatcher's autocast decides"
    return policy, reason + ("" if seen["calls"] else "; did not run on these inputs")


def _hints(rows: Iterable[Row]) -> Iterator[Hint]:
    for row in rows:
        there_and_back = [c for c in row.casts if c.source in REDUCED and c.target == "float32"]
        if there_and_back and row.calls > 1:
            yield Hint(
                row.line,
                f"{row.operator} casts {there_and_back[0].source} to float32 in a loop, and what "
                "follows casts it back: keep one dtype in the loop",
            )
        if row.policy == "fp32" and any(c.source in REDUCED for c in row.casts):
            yield Hint(
                row.line,
                f"{row.operator} runs in float32 only because autocast lists it: if a reduced "
                "dtype is enough, put it into `with torch.autocast(..., enabled=False):`",
            )
        if row.policy == "opaque" and row.casts == () and not row.operator.startswith("aten::"):
            yield Hint(
                row.line,
                f"{row.operator} is unknown to autocast's lists: "
                f'jit_amp.policy.register("{row.operator}", ...) says what is to be done to it, '
                "and lets it be frozen",
            )
        if row.numerics and row.numerics.overflows:
            yield Hint(
                row.line,
                f"{row.numerics.overflows} results of {row.operator} overflow {row.results[0]}, "
                "and are finite in float64",
            )


def _hints_of_gradients(rows: Sequence[Row]) -> Iterator[Hint]:
    overflowing = [row for row in rows if row.gradient and row.gradient.overflow_scale]
    if overflowing:  # gradients come about from the last line to the first
        least = min(row.gradient.overflow_scale or 0.0 for row in overflowing if row.gradient)
        for row in reversed(overflowing):
            if row.gradient and row.gradient.overflow_scale == least:
                yield Hint(
                    row.line,
                    f"gradients overflow {row.gradient.dtype} here first, with a loss scale of "
                    f"{least:.0f}: torch.amp.GradScaler, which begins with 65536, skips such steps "
                    "and lowers its scale",
                )
                break
    for row in rows:
        if row.gradient and row.gradient.underflows > row.gradient.elements / 10:
            yield Hint(
                row.line,
                f"{row.gradient.underflows / row.gradient.elements:.0%} of the gradients of "
                f"{row.operator} underflow {row.gradient.dtype} without a loss scale: "
                "torch.amp.GradScaler chooses one",
            )
