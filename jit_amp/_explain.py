"""jit_amp.explain: which line runs in which precision, why, and what it costs."""

from __future__ import annotations

import copy
import dataclasses
import linecache
import math
import os
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.jit import ScriptFunction, ScriptModule
from torch.jit._trace import TracerWarning as _TracerWarning
from torch.utils import flop_counter
from torch.utils._pytree import tree_leaves

from jit_amp import _C, _check, _kept
from jit_amp._packed import emulates
from jit_amp._script import _scripted
from jit_amp._trace import trace, trace_module
from jit_amp._values import as_json, fresh

TIMED_RUNS = 5  # after one that warms up
REDUCED = ("bfloat16", "float16")
_FLOATING = (*REDUCED, "float32", "float64")
_REASONS = {
    "lower": "in {device}'s list of operators that run in the scope's dtype",
    "fp32": "in {device}'s list of float32 operators",
    "fp32_opt_dtype": "in {device}'s list of operators whose result is float32, unless a dtype is"
    " given",
    "fp32_append_dtype": "in {device}'s list of operators whose result is float32",
    "promote": "promotes to the widest of its operands",
    "promote_inside": "is made of operators that promote to the widest of their operands",
    "untouched": "in no list of {device}'s: runs in the dtypes that it is given",
    "opaque": "in no list of {device}'s, and what it calls inside may be: the dispatcher's autocast"
    " decides",
    "banned": "refused by {device}'s autocast",
}


@dataclass(frozen=True)
class Place:
    """A line of a source file; ``function`` is what it stands in, empty for the outermost."""

    file: str
    line: int
    column: int
    function: str = ""

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}" if self.line else "?"

    @property
    def text(self) -> str:
        """The line itself, without what is around it."""
        return linecache.getline(self.file, self.line).strip()


@dataclass(frozen=True)
class Scope:
    """The autocast state in force for one device, and the line that made it, if one did."""

    device: str
    enabled: bool
    dtype: str | None  # None: the one around the call
    place: Place | None  # None: what is around the call


@dataclass(frozen=True)
class Cast:
    """Casts of one kind that autocast made for an operator; bytes are read and written."""

    source: str
    target: str
    count: int
    bytes: int


@dataclass(frozen=True)
class Numerics:
    """An operator's results beside the same operator in float64.

    ``introduced`` is its own error, on the operands that it had, and ``total`` that against a
    program which is all in float64: largest differences, relative to the largest entry.
    ``overflows`` are infinite here and not in float64, ``underflows`` zero here and not there.
    """

    introduced: float
    total: float
    largest: float
    elements: int
    nans: int
    infinities: int
    overflows: int
    underflows: int
    subnormals: int


@dataclass(frozen=True)
class Gradient:
    """The gradients of an operator's results, of all its calls together, in their own dtype.

    ``largest`` is the largest entry with a loss scale of 1, ``underflows`` counts those that are
    zero with it and not with a larger one, and ``overflow_scale`` is the smallest of the scales 1,
    16, 256, ... 2**24 with which some entry is not finite; None: it is with all of them.
    """

    dtype: str
    largest: float
    elements: int
    underflows: int
    overflow_scale: float | None


@dataclass(frozen=True)
class Row:
    """One operator of the program, at one place of it."""

    operator: str
    place: Place
    stack: tuple[Place, ...]  # from the outermost call to `place`
    module: str  # path of the submodule whose code it is; "" for the module itself
    scopes: tuple[Scope, ...]
    policy: str  # "lower", "fp32", ...; "" outside every enabled scope
    reason: str
    calls: int
    operands: tuple[str, ...]  # dtypes; "several" where calls differ
    results: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the results of the first call
    devices: tuple[str, ...]
    casts: tuple[Cast, ...]
    flops: int  # of products and convolutions, all calls together
    seconds: float
    numerics: Numerics | None
    gradient: Gradient | None

    @property
    def line(self) -> Place:
        """The innermost line that is not PyTorch's own."""
        own = [place for place in self.stack if place.line and not _is_pytorchs(place.file)]
        return own[-1] if own else self.place

    @property
    def cast_count(self) -> int:
        """How many casts autocast made for it."""
        return sum(cast.count for cast in self.casts)

    @property
    def cast_bytes(self) -> int:
        """How much these read and wrote."""
        return sum(cast.bytes for cast in self.casts)

    @property
    def precision(self) -> str:
        """What it computed in: ``"reduced"``, ``"float32"``, ``"mixed"`` or ``"none"``."""
        floating = [dtype for dtype in self.results if dtype in _FLOATING]
        if self.policy == "lower" and floating and all(dtype in REDUCED for dtype in floating):
            return "reduced"  # a cast of autocast's own cache is not made again
        cast = {c.source: c.target for c in self.casts}
        kinds = {cast.get(d, d) for d in self.operands or self.results if d in _FLOATING}
        reduced = kinds & set(REDUCED)
        if not kinds:
            return "none"
        return "mixed" if reduced and kinds - reduced else "reduced" if reduced else "float32"


def _is_pytorchs(file: str) -> bool:
    return file.startswith(os.path.dirname(torch.__file__) + os.sep)


@dataclass(frozen=True)
class Lowered:
    """A cast as jit_amp runs it where no gradient is recorded: once for all of its users.

    ``at_run_time`` is of a frozen module's: whether it is made is asked at each call, because
    nothing that was frozen, and no example, tells the dtype of what it casts.
    """

    users: tuple[Place, ...]
    in_loop: bool
    at_run_time: bool


@dataclass(frozen=True)
class Weight:
    """A tensor that is part of a frozen module's code: a weight, as it was folded and rounded."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    users: tuple[Place, ...]


@dataclass(frozen=True)
class Hint:
    """Something that could be better, and what to write."""

    place: Place
    text: str


@dataclass(frozen=True)
class Report:
    """What ``explain`` returns. ``print`` it, or write a page with ``to_html``.

    ``casts`` are those of the lowered graph, which has one cast for uses that eager casts each.
    ``refusal`` is the text of the ``AutocastError`` of a program that jit_amp refuses, which
    has no rows; ``refused_at`` is its line. ``weights`` are a frozen module's. ``traced_because``
    is why TorchScript's compiler failed: then the rows are those of a trace for these inputs.
    ``emulated`` are the dtypes among them for which the processor has no instructions.
    """

    name: str
    rows: tuple[Row, ...]
    warnings: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = ()
    casts: tuple[Lowered, ...] = ()
    weights: tuple[Weight, ...] = ()
    refusal: str = ""
    refused_at: Place | None = None
    timing: bool = False
    numerics: bool = False
    gradients: bool = False
    traced_because: str = ""
    emulated: tuple[str, ...] = ()
    torch: str = field(default=torch.__version__)

    def to_json(self) -> str:
        """All of it as JSON; numbers that JSON does not have are ``"NaN"``, ``"Infinity"`` and
        ``"-Infinity"``."""
        made = dataclasses.asdict(self)
        for row, written in zip(self.rows, made["rows"], strict=True):
            written |= {"line": dataclasses.asdict(row.line), "precision": row.precision}
        return as_json(made, indent=1)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes one page that needs no network: the sources, line by line, with what runs there.

        Raises:
            ImportError: Jinja2 or Pygments is not there: ``pip install jit_amp[explain]``.
        """
        try:
            from jit_amp import _page
        except ModuleNotFoundError as error:
            text = f"a page needs {error.name}: pip install jit_amp[explain]"
            raise ImportError(text) from error
        Path(path).write_text(_page.render(self), encoding="utf-8")

    def _repr_html_(self) -> str | None:
        try:
            from jit_amp import _page
        except ModuleNotFoundError:
            return None  # notebooks show the text then
        return _page.table(self)

    def __str__(self) -> str:
        return _text(self, shutil.get_terminal_size().columns, _has_colors())


@_kept.onednn()
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

    A program that ``torch.jit.script`` cannot compile is traced with the inputs, which runs a copy
    of it once more; the report says so.

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
            number, and else the mean of each result. No ``.grad`` is touched.
        timing: measure each operator, as the median of five further runs. On CUDA that is the
            time of launching it.

    Returns:
        A ``Report``. Where jit_amp refuses the program, it has the refusal and its line.

    Raises:
        TypeError: the arguments do not fit.
        ValueError: ``obj`` has no such method, or none that is compiled.
        RuntimeError: what the program raises, and what ``torch.jit.script`` does where tracing
            fails too; ``gradients`` of what requires none, or under ``torch.no_grad()``.
    """
    name = getattr(obj, "__qualname__", None) or type(obj).__qualname__
    traced_because = ""
    try:
        try:
            scripted = _scripted(obj)
        except _C.AutocastError:
            raise
        except Exception as error:  # TorchScript's compiler raises many kinds of these
            if isinstance(obj, type) or not callable(obj) or example_inputs is None:
                raise
            scripted = _traced(obj, example_inputs, method, error)
            traced_because = _first_line(error)
        if isinstance(scripted, ScriptModule):
            _check.choice("method", method, sorted(scripted._c._method_names()))
            schema = scripted._c._get_method(method).schema
            formals = schema.arguments[1:]
        elif isinstance(scripted, ScriptFunction):
            formals = scripted.schema.arguments  # type: ignore[attr-defined]
        else:
            raise TypeError(f"jit_amp.explain takes a function or a module, not {name}")
        arguments = _arguments(formals, example_inputs)
        runs = [fresh(arguments) for _ in range(1 + (1 + TIMED_RUNS if timing else 0))]
        with _kept.random_state():
            if isinstance(scripted, ScriptModule):
                rows, told = _C.explain_method(scripted._c, method, runs, numerics, gradients)
            else:
                rows, told = _C.explain_function(scripted, runs, numerics, gradients)
    except _C.AutocastError as error:
        return Report(name, (), refusal=str(error), refused_at=_line_of(str(error)))
    made = tuple(_row(row) for row in rows)
    casts = tuple(_lowered(scripted, method))
    return Report(
        name,
        made,
        tuple(told),
        (*_hints(made), *_hints_of_gradients(made), *_hints_of_casts(casts)),
        casts,
        tuple(weights_of(scripted, method)),
        timing=timing,
        numerics=numerics,
        gradients=gradients,
        traced_because=traced_because,
        emulated=_emulated(made, arguments),
    )


def _emulated(rows: Iterable[Row], arguments: Any) -> tuple[str, ...]:
    on_cpu = all(t.device.type == "cpu" for t in tree_leaves(arguments) if isinstance(t, Tensor))
    seen = {row.precision for row in rows} if on_cpu else set()
    return tuple(name for name in REDUCED if name in seen and emulates(getattr(torch, name)))


def _traced(obj: Any, given: Any, method: str, error: Exception) -> Any:
    """A trace of what TorchScript cannot compile. It is made of a copy: tracing runs it."""
    arguments, by_name = fresh(given if isinstance(given, tuple) else (given,)), None
    if isinstance(given, Mapping):
        arguments, by_name = None, fresh(dict(given))
    state = torch.get_rng_state()
    try:
        own = copy.deepcopy(obj) if isinstance(obj, torch.nn.Module) else obj
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", _TracerWarning)
            if isinstance(own, torch.nn.Module) and method != "forward":
                return trace_module(
                    own,
                    {method: arguments or by_name},
                    check_trace=False,
                    strict=False,
                    example_inputs_is_kwarg=by_name is not None,
                )
            return trace(
                own, arguments, check_trace=False, strict=False, example_kwarg_inputs=by_name
            )
    except _C.AutocastError:
        raise
    except Exception as error_of_trace:
        raise error from error_of_trace
    finally:
        torch.set_rng_state(state)


def _first_line(error: Exception) -> str:
    text = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {text}"


def _lowered(scripted: Any, method: str) -> Iterator[Lowered]:
    """The casts of the lowered graph, and those that an artefact decides about when it runs."""
    ambient = torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report has them
        if isinstance(scripted, ScriptFunction):
            graph = _C.lowered_graph(scripted, *ambient)
        else:
            graph = _C.lowered_method_graph(scripted._c, method, *ambient)

    def walk(block: Any, in_loop: bool) -> Iterator[Lowered]:
        for node in block.nodes():
            made_in = _line_of(node.sourceRange()) if node.kind() == "prim::If" else None
            at_run_time = made_in is not None and made_in.file == "<string>" and node.hasUses()
            if node.kind() == "jit_amp::cast" or at_run_time:
                users = tuple(dict.fromkeys(_places_of_users(node)))
                if users:
                    yield Lowered(users, in_loop, at_run_time)
            if not at_run_time:
                for inner in node.blocks():
                    yield from walk(inner, in_loop or node.kind() == "prim::Loop")

    yield from walk(graph, False)


def place_of(node: Any) -> Place | None:
    """The line of a graph's node; None for what nobody wrote."""
    place = _line_of(node.sourceRange())
    return None if place and place.file == "<string>" else place


def _places_of_users(node: Any) -> Iterator[Place]:
    """The lines of what uses a node's results, through what has no line of its own."""
    for use in (use for output in node.outputs() for use in output.uses()):
        if place := place_of(use.user):
            yield place
        elif use.user.kind() != "prim::Return":
            yield from _places_of_users(use.user)


def weights_of(scripted: Any, method: str) -> Iterator[Weight]:
    if not isinstance(scripted, ScriptModule) or hasattr(scripted, "training"):
        return  # not frozen: its weights are its parameters
    for node in scripted._c._get_method(method).graph.findAllNodes("prim::Constant"):
        if node.hasAttribute("value") and node.kindOf("value") == "t":
            value = node.t("value")
            users = tuple(dict.fromkeys(_places_of_users(node)))
            yield Weight(_dtype(value.dtype), tuple(value.shape), value.nbytes, users)
    for child in scripted.children():
        packed: Any = child
        if hasattr(packed, "native_bfloat16"):  # jit_amp/_packed.py
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
        tuple(Cast(_dtype(a), _dtype(b), n, size) for a, b, n, size in seen["casts"]),
        seen["calls"] * _flops(seen["name"], seen["taken"], seen["shapes"]),
        seen["seconds"],
        numbers and Numerics(**numbers),
        gradient and Gradient(**{**gradient, "dtype": _dtype(gradient["dtype"])}),
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
    name = {"cpu": "CPU", "cuda": "CUDA"}.get(device, device)
    reason = _REASONS.get(policy, "").format(device=name)
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


def _has_colors() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


_COLORS = {"reduced": 32, "mixed": 33, "float32": 36, "none": 90}


def _text(report: Report, width: int, colors: bool) -> str:
    """The report as a table, grouped by source line."""
    lines = [f"{report.name}: {len(report.rows)} operators, torch {report.torch}"]
    if report.refusal:
        return "\n".join([lines[0], "", report.refusal])

    if report.traced_because:
        lines += [
            "traced, because torch.jit.script fails:",
            report.traced_because,
        ]

    def colored(text: str, code: int) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if colors else text

    total = sum(row.seconds for row in report.rows)
    at: tuple[str, int, str] | None = None
    for row in report.rows:
        line_at = row.line
        if (line_at.file, line_at.line, row.module) != at:
            at = (line_at.file, line_at.line, row.module)
            head = f"{line_at}  {line_at.text}" + (f"  [{row.module}]" if row.module else "")
            lines += ["", colored(head[: max(width, 40)], 1)]
        dtypes = f"{' '.join(row.operands):.26}".ljust(26) + f" -> {' '.join(row.results):.10}"
        cells = [f"  {row.operator.removeprefix('aten::'):20.20}", dtypes.ljust(40)]
        casts = row.cast_count
        cells.append(f"{casts} cast{'s' * (casts > 1)}".ljust(8) if casts else " " * 8)
        if report.timing:
            cells.append(f"{row.seconds / total if total else 0:5.1%}")
        if report.numerics:
            n = row.numerics
            cells.append(f"{n.introduced:.0e} {n.total:.0e}" if n else " " * 11)
        if report.gradients:
            cells.append(f"{row.gradient.largest:.0e}" if row.gradient else " " * 5)
        cells.append(row.reason)
        line = "  ".join(cells)[: max(width, 100)]
        lines.append(colored(line, _COLORS[row.precision]))
    counts = Counter(row.precision for row in report.rows)
    made = sum(row.cast_count for row in report.rows)
    moved = sum(row.cast_bytes for row in report.rows)
    own = sum(not cast.at_run_time for cast in report.casts)
    kinds = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
    lines += ["", f"{kinds}; {made} casts of {moved / 1e6:.1f} MB in eager"]
    if own:
        lines.append(f"jit_amp: {own} casts in the graph that runs without gradients")
    if report.weights:
        of_dtype: Counter[str] = Counter()
        for weight in report.weights:
            of_dtype[weight.dtype] += weight.bytes
        held = ", ".join(f"{size / 1e3:,.1f} kB {dtype}" for dtype, size in of_dtype.most_common())
        lines.append(f"weights: {held}")
    lines += [
        f"{name} is emulated on this processor: elsewhere it is faster" for name in report.emulated
    ]
    lines += [f"hint: {hint.place}: {hint.text}" for hint in report.hints]
    lines += [f"warning: {warning}" for warning in report.warnings]
    return "\n".join(lines)
