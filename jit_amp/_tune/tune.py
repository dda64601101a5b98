"""jit_amp.tune: the fewest units in float32 with which a model keeps its accuracy."""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import json
import linecache
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from jit_amp._base import arguments, model_state, module_methods, process_state
from jit_amp._base.json_records import as_json
from jit_amp._base.trees import leaves
from jit_amp._precision import in_float32
from jit_amp._precision.precision import Precision
from jit_amp._precision.reads import Read
from jit_amp._precision.records import Kept, Line, Measured, Sensitivity, shown
from jit_amp._runs.copies import fresh
from jit_amp._tune import fingerprint, profile
from jit_amp._tune.search import OutOfBudget, Search, Unit

TOLERANCES = {torch.float16: 0.01, torch.bfloat16: 0.05}
RELATIVE = "largest relative error"
_COMPARED = (int, float, complex, str, bytes, type(None), enum.Enum, torch.dtype, torch.device)


@process_state.onednn()
@process_state.modes()
@process_state.random_state()  # which a DataLoader moves
def tune(
    model: nn.Module,
    data: Any,
    *,
    dtype: torch.dtype,
    device_type: str = "cpu",
    metric: Callable[..., Any] | None = None,
    tolerance: float | None = None,
    units: str = "module",
    budget: float | None = None,
    seed: int = 0,
    resume: str | os.PathLike[str] | None = None,
) -> Precision:
    """Finds the fewest units that have to stay in float32 under autocast.

    The model runs in eager. First all of it runs in float32, so that a tolerance that cannot be met
    is said at once; then under autocast, where each operator of reduced precision also runs in
    float32 beside it, which tells where values are out of range and where accuracy is lost; then
    with sets of units in float32, until a smallest one is found with which the metric holds. Of
    sets of one size it is the one that costs least. Progress goes to stderr.

    A unit that stays in float32 runs with autocast off, scopes of its own included, and its
    arguments in bfloat16 and float16 are cast to float32; all that it calls stays in float32 with
    it.

    Args:
        model: a module, in the mode in which it is to be used: eval, or training. Not a scripted
            one. Afterwards it is as it was: weights, buffers and gradients included.
        data: a tuple of example inputs, a tensor if that is the only one, or a dictionary of
            inputs by name; a list of these; or any iterable of such batches, such as a DataLoader.
            It is read once, and kept: give a part of a large one. Where a batch has more entries
            than ``forward`` takes, such as labels, only the first ones are given to it, and of a
            dictionary those whose names it has.
        dtype: ``torch.float16`` or ``torch.bfloat16``. That of the model's scopes, if it has some.
        device_type: the device of autocast: ``"cpu"``, ``"cuda"``, ...
        metric: ``metric(outputs, reference)``, a number that is larger the further the outputs
            are from the reference, which are the outputs in float32: the largest one of all
            batches counts. Or ``metric(model)``, a number such as an accuracy or a loss, which your
            own loop measures, with a backward pass if it is to be trained: the error is how far it
            is from float32's, and is infinite where it is not finite. It calls the model itself:
            other methods of a model without scopes do not run under autocast. Default: the largest
            difference of any output, relative to its largest value; outputs are tensors, numbers
            and arrays, also in tuples, lists, dictionaries, data classes and namespaces.
        tolerance: the largest error that is accepted. Default: 0.01 in float16 and 0.05 in
            bfloat16; with ``metric(model)``, 1 % of what it gives in float32.
        units: ``"module"``: submodules; ``"function"``: Python functions, as ``file:function``;
            ``"line"``: source lines, as ``file:line``, and what these call.
        budget: seconds after which it stops, with the best that it has found.
        seed: the random state before each evaluation.
        resume: a file to keep what was measured in. Where it exists, that is not measured again, so
            that an interrupted call goes on where it was and gives the same result.

    Returns:
        Precision: what to keep in float32, and why. Give it to ``jit_amp.script``, ``trace`` or
            ``freeze`` as ``precision``, or use its ``apply``.

    Raises:
        TypeError: an argument of another type; a model that was scripted, or that
            ``torch.compile``, ``torch.export`` or ``Precision.apply`` returned.
        ValueError: another name, dtype or device type; a tolerance that the model does not meet
            even when all of it is in float32, or that no set of units meets; a scope of the model's
            of another dtype; a ``metric(model)`` that does not call the model; outputs that the
            default metric cannot look into; parameters that are not initialised yet, or are in
            float16 or bfloat16 already, so that the model does not run in float32; ``resume`` is a
            file of another model or call.
        RuntimeError: what the model raises in float32.
    """
    arguments.traceable("tune", model)
    arguments.module("jit_amp.tune", model)
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            "jit_amp.tune takes a module that was not scripted: give jit_amp.script what it returns"
        )
    arguments.choice("units", units, in_float32.KINDS)
    if dtype not in TOLERANCES:
        raise ValueError(f"dtype: {dtype} is none of torch.float16, torch.bfloat16")
    arguments.device_type("device_type", device_type)
    arguments.instance("seed", seed, int, "a whole number")
    if not -(2**63) <= seed < 2**64:
        raise ValueError(
            f"seed: {seed} is not from -2**63 to 2**64 - 1, as torch.manual_seed has it"
        )
    if budget is not None:
        arguments.instance("budget", budget, (int, float), "a number of seconds")
        if not budget >= 0:
            raise ValueError(f"budget: {budget} is not a number of seconds from 0 on")
    if tolerance is not None:
        arguments.instance("tolerance", tolerance, (int, float), "a number")
        if not tolerance >= 0:
            raise ValueError(f"tolerance: {tolerance} is not a number from 0 on")
    for name, each in (*model.named_parameters(), *model.named_buffers()):
        if nn.parameter.is_lazy(each):
            raise ValueError(
                f"jit_amp.tune: {name} of {type(model).__name__} has no shape yet: call the model"
                " once with an example, which initialises it"
            )
    run = _Run(model, data, dtype, device_type, metric, units, budget, seed, resume)
    try:
        return run.tuned(tolerance)
    finally:
        run.progress.end()


@dataclass
class _Batch:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def given_to(self, model: nn.Module) -> Any:
        args, kwargs = fresh((self.args, self.kwargs))
        return model(*args, **kwargs)


class _Run:
    """One call of tune."""

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        dtype: torch.dtype,
        device_type: str,
        metric: Callable[..., Any] | None,
        kind: str,
        budget: float | None,
        seed: int,
        resume: str | os.PathLike[str] | None,
    ) -> None:
        self.model, self.dtype, self.device_type = model, dtype, device_type
        self.kind, self.budget, self.seed = kind, budget, seed
        self.begin = time.monotonic()
        self.metric: Callable[..., Any] = _difference if metric is None else metric
        self.metric_name = RELATIVE if metric is None else _name_of(metric)
        self.of_model = metric is not None and _arguments(metric) == 1
        self.batches = _batches(model, data)
        if not self.batches and not self.of_model:
            raise ValueError("data: no batches")
        self.around = True
        self.references: list[Any] = []
        self.records = False  # gradients, while the model runs
        self.value = 0.0  # of a metric(model), in float32
        self.errors: dict[tuple[str, ...], float] = {}
        self.evaluations = 0
        self.units: dict[str, Unit] = {}
        self.total = 0.0
        self.progress = Progress(budget)
        self.codes: dict[str, list[str]] = {}  # of functions that ran in float32
        self.file = _File(resume) if resume is not None else None

    def _fingerprint(self) -> dict[str, Any]:
        """What the measurements are of."""
        state = self.model.state_dict()
        inputs = [each for batch in self.batches for _, each in leaves([batch.args, batch.kwargs])]
        return {
            "torch": torch.__version__,
            "model": type(self.model).__qualname__,
            "code or attribute of the model": fingerprint.of_model(self.model),
            "weights": [fingerprint.of_value(each) for each in state.values()],
            "data": [fingerprint.of_value(each) for each in inputs],
            "dtype": str(self.dtype),
            "device_type": self.device_type,
            "metric": f"{self.metric_name} {fingerprint.of_code(self.metric)}",
            "units": self.kind,
            "training": [each.training for each in self.model.modules()],
            "seed": self.seed,
            "code": self.codes,
            "output in float32": self.value if self.of_model else _sizes(self.references),
        }

    def _codes_noted(self) -> contextlib.AbstractContextManager[None]:
        if not self.file:
            return contextlib.nullcontext()
        return fingerprint.codes_noted(self.codes, self.kind == "line")

    # Running the model.

    def _parts(self, names: Sequence[str]) -> in_float32.Parts:
        return in_float32.Parts(self.kind, tuple(names), self.device_type, self.dtype, self.around)

    @contextlib.contextmanager
    def _undone(self) -> Iterator[None]:
        """The model, the random state and the modes, which a metric may leave changed, are
        afterwards what they were; seeded inside."""
        with process_state.random_state(), model_state.kept(self.model), process_state.modes():
            torch.manual_seed(self.seed)
            yield

    def _outputs(self) -> list[Any]:
        try:
            with self._undone(), self._recording():
                return [self._kept(batch.given_to(self.model)) for batch in self.batches]
        except RuntimeError as error:
            if self.records or not torch.is_grad_enabled() or _NO_GRAPH not in str(error):
                raise
        self.records = True  # it computes gradients itself, such as forces
        return self._outputs()

    def _kept(self, outputs: Any) -> Any:
        """What the metric is given of the outputs in float32."""
        return _copied(_leaves(outputs) if self.metric is _difference else outputs)

    def _recording(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.records else torch.no_grad()

    def _measure(self, context: contextlib.AbstractContextManager[Any]) -> float:
        """One evaluation of the metric. What the model raises is raised."""
        with self._undone(), context:
            if self.of_model:
                return _number(self.metric_name, self.metric(self.model))
            errors: list[float] = []
            with self._recording():
                for batch, reference in zip(self.batches, self.references, strict=True):
                    error = self.metric(batch.given_to(self.model), _copied(reference))
                    errors.append(_number(self.metric_name, error))
                    if not errors[-1] < math.inf:
                        break
            return _worst(errors)

    def _in_float32(self) -> contextlib.AbstractContextManager[None]:
        """All of the model in float32, whatever the units are."""
        whole = in_float32.Parts("module", ("",), self.device_type, self.dtype, True)
        return in_float32.applied(self.model, whole)

    def error(self, names: Iterable[str]) -> float:
        """The error with these units in float32: measured, or as it was measured before.

        Raises:
            OutOfBudget: there is no time left for a measurement.
        """
        key = tuple(sorted(names))
        if key in self.errors:
            return self.errors[key]
        found = self.file.known(key) if self.file else None
        if found is None:
            elapsed = time.monotonic() - self.begin
            typical = elapsed / max(1, self.evaluations)
            if self.budget is not None and elapsed + typical / 2 > self.budget:
                raise OutOfBudget
            try:
                value = self._measure(in_float32.applied(self.model, self._parts(key)))
            except Exception:  # operators that are not there in the dtype: of any class
                value = math.nan
            found = _distance(value, self.value) if self.of_model else value
            if self.file:
                self.file.add(key, found)
        self.evaluations += 1
        self.errors[key] = found = math.inf if math.isnan(found) else found
        self.progress.note(self.evaluations)
        return found

    # The steps.

    def tuned(self, tolerance: float | None) -> Precision:
        tolerance = self._check_float32(tolerance)
        self.progress.say(
            f"{self.metric_name}: at most {tolerance:.3g}; float32 everywhere has"
            f" {self.errors[('',)]:.3g}"
        )
        self.in_float32 = self.errors.pop(("",))  # by the units' names that is another set
        parts = self._profiled()
        search = Search(parts, self.error, tolerance, self.progress)
        finished = True
        try:
            search.run()
            kept = search.found
        except OutOfBudget:
            kept, finished = search.best(), False
        return self._result(search, kept, tolerance, finished)

    def _check_float32(self, tolerance: float | None) -> float:
        """Measures float32 everywhere; returns the tolerance."""
        scopes: list[torch.autocast] = []
        calls: list[None] = []
        noting = _noting_calls(self.model, calls)
        scoped = in_float32.scopes_noted(scopes.append)
        try:
            with scoped, self._undone(), noting, self._in_float32(), self._codes_noted():
                if self.of_model:
                    self.value = _number(self.metric_name, self.metric(self.model))
                    self.evaluations += 1
                else:
                    self.references = self._outputs()
        except RuntimeError as raised:
            for name, held in (*self.model.named_parameters(), *self.model.named_buffers()):
                if held.dtype in TOLERANCES:
                    raise ValueError(
                        f"jit_amp.tune: {type(self.model).__name__} does not run in float32, where "
                        f"tuning begins, and its {name} is {held.dtype}: give the model in float32,"
                        f" as model.float() makes it ({raised})"
                    ) from raised
            raise
        own = [each for each in scopes if each.device == self.device_type]
        self.around = not own
        for each in own:
            if each.fast_dtype is not self.dtype:
                raise ValueError(
                    f"dtype: {self.dtype}, and the model has a scope of its own in"
                    f" {each.fast_dtype}"
                )
        if self.around and not calls:
            raise ValueError(
                f"metric: {self.metric_name} does not call the model, and autocast is around calls"
                " of the model itself: write model(x) in the metric, not another method of it, or"
                " give the model a scope of its own"
            )
        if self.of_model and not math.isfinite(self.value):
            raise ValueError(f"{self.metric_name}: {self.value} in float32")
        if tolerance is None:
            tolerance = 0.01 * abs(self.value) if self.of_model else TOLERANCES[self.dtype]
        with self._codes_noted():
            value = self._measure(self._in_float32())
        if self.file:
            self.file.begin(self._fingerprint())
        error = _distance(value, self.value) if self.of_model else value
        self.evaluations += 1
        if not error <= tolerance:
            raise ValueError(
                f"tolerance: {tolerance:.3g} cannot be met: {self.metric_name} is {error:.3g} with"
                " float32 everywhere"
                + (", against the same in another run" if self.of_model else "")
            )
        self.errors[("",)] = error
        return tolerance

    def _profiled(self) -> list[Unit]:
        """The units, from one run under autocast."""

        def run() -> None:
            with in_float32.applied(self.model, self._parts(())):
                if self.batches:
                    with self._recording():
                        self.batches[0].given_to(self.model)
                else:
                    self.metric(self.model)

        self.progress.say("looking where low precision hurts")
        with self._undone():
            parts = profile.of(run, self.model, self.kind, self.device_type, self.dtype)
        operators = {number for part in parts for number in part.operators}
        order = {name: i for i, (name, _) in enumerate(self.model.named_modules())}
        made = [
            Unit(part.name, i, frozenset(part.operators), part.badness, part.work)
            for i, part in enumerate(
                sorted(parts, key=lambda part: (order.get(part.name, 0), part.name))
            )
        ]
        self.parts = {part.name: part for part in parts}
        self.units = {unit.name: unit for unit in made}
        self.works = parts[0].works if parts else []
        self.reads = parts[0].reads if parts else {}
        self.total = sum(self.works[number] for number in operators)
        return made

    def _saved(self, names: Iterable[str]) -> float:
        kept = {number for name in names for number in self.units[name].operators}
        return 1 - sum(self.works[n] for n in kept) / self.total if self.total else 1.0

    def _result(
        self, search: Search, kept: Sequence[str], tolerance: float, finished: bool
    ) -> Precision:
        error = self.errors.get(tuple(sorted(kept)), math.nan)
        if finished and not error <= tolerance:
            raise ValueError(
                f"tolerance: {tolerance:.3g} is met by no set of {self.kind}s in float32:"
                f" {self.metric_name} is {error:.3g} with {len(kept)} of {len(self.units)}, and"
                f" {self.in_float32:.3g} with float32 everywhere"
            )
        rows = []
        for unit in kept:
            without = tuple(sorted(each for each in kept if each != unit))
            share = self.units[unit].work / self.total if self.total else 0.0
            rows.append(
                Kept(unit, self._why(unit), error, self.errors.get(without, math.nan), share)
            )
        limit = self.total or 1.0
        ordered = [self.units[name] for name in self.units]
        return Precision(
            name=type(self.model).__qualname__,
            units=tuple(kept),
            error=error,
            evaluations=self.evaluations,
            dtype=str(self.dtype).removeprefix("torch."),
            device_type=self.device_type,
            kind=self.kind,
            around=self.around,
            metric=self.metric_name,
            tolerance=tolerance,
            error_plain=self.errors.get((), math.nan),
            saved=self._saved(kept),
            finished=finished,
            candidates=len(self.units),
            seed=self.seed,
            kept=tuple(rows),
            measured=tuple(
                Measured(names, found, self._saved(names)) for names, found in self.errors.items()
            ),
            sensitivities=tuple(
                Sensitivity(
                    unit.name,
                    math.inf if unit.badness[0] else unit.badness[1],
                    self._why(unit.name),
                    unit.work / limit,
                    self.parts[unit.name].has_scopes,
                )
                for unit in ordered
            ),
            lines=self._lines(kept),
        )

    def _why(self, unit: str) -> str:
        part = self.parts[unit]
        name = str(self.dtype).removeprefix("torch.")
        limits = torch.finfo(self.dtype)
        if part.raised:
            return part.raised
        if part.overflows:
            return f"{part.overflows} values beyond {limits.max:.5g}: {part.overflow_at}"
        if part.error >= 0.5 and part.underflows:
            return f"{part.underflows} values below {limits.tiny:.2g}: {part.worst} at {part.place}"
        at = f": {part.worst} at {part.place}" if part.place else ""
        return f"its own error in {name} is {part.error:.1e}{at}"

    def _lines(self, kept: Sequence[str]) -> tuple[Line, ...]:
        staying = {number for name in kept for number in self.units[name].operators}
        found: dict[tuple[str, int], tuple[dict[str, None], bool]] = {}
        for part in self.parts.values():
            for number, (file, line) in part.lines.items():
                names, stays = found.get((file, line), ({}, False))
                names[part.name] = None
                found[file, line] = names, stays or number in staying
        return tuple(
            Line(
                in_float32.shown_file(file),
                line,
                tuple(names),
                stays,
                tuple(read.reduced),
                tuple(read.hidden),
                linecache.getline(file, line).strip(),
            )
            for (file, line), (names, stays) in sorted(found.items())
            for read in [self.reads.get((file, line), Read())]
        )


# What is given.


def _batches(model: nn.Module, data: Any) -> list[_Batch]:
    if data is None:
        return []
    if isinstance(data, (tuple, Tensor, Mapping)):
        data = [data]
    arguments.instance("data", data, Iterable, "a tuple of inputs or an iterable of batches")
    return [_batch(model, each) for each in data]


def _batch(model: nn.Module, given: Any) -> _Batch:
    args = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return _Batch((), dict(given)) if isinstance(given, Mapping) else _Batch(args, {})
    if isinstance(given, Mapping):
        takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
        names = {each.name for each in parameters}
        return _Batch((), {k: v for k, v in given.items() if takes_any or k in names})
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return _Batch(args, {})
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return _Batch(args[: sum(each.kind in by_position for each in parameters)], {})


def _arguments(metric: Callable[..., Any]) -> int:
    """How many arguments a metric takes: 1 or 2."""
    arguments.instance("metric", metric, Callable, "a function")  # type: ignore[arg-type]
    try:
        parameters = inspect.signature(metric).parameters.values()
    except (TypeError, ValueError):
        return 2
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty:
            raise TypeError(
                f"metric: {arguments.shown(metric)} needs `{each.name}` by name, and is given"
                " (model) or (outputs, reference): give it with"
                f" functools.partial(metric, {each.name}=...)"
            )
    required = [
        each
        for each in parameters
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) not in (1, 2) and not any(e.kind is e.VAR_POSITIONAL for e in parameters):
        raise TypeError(
            f"metric: {arguments.shown(metric)} takes {len(required)} arguments, and not (model) or"
            " (outputs, reference)"
        )
    return 1 if len(required) == 1 else 2


def _name_of(metric: Any) -> str:
    name = getattr(metric, "__qualname__", type(metric).__qualname__)
    return name if "<lambda>" not in name else "the metric"


def _number(name: str, value: Any) -> float:
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"metric: {name} gave {arguments.shown(value)}, which is no number"
        ) from error


# Errors.


def relative_error(outputs: Any, reference: Any) -> float:
    """The largest difference of any output, relative to its largest value; infinite where one is
    not finite and the other is, or where something else differs. Of integers and booleans, the
    share that differs.

    Raises:
        ValueError: there is no number in the outputs, or something that cannot be compared.
    """
    return _difference(outputs, _leaves(reference))


def _leaves(outputs: Any) -> list[tuple[str, Any]]:
    """What is in outputs, as what can be compared."""
    found = [(path, _compared(path, each)) for path, each in leaves(outputs, "outputs")]
    if not any(isinstance(each, (Tensor, int, float, complex)) for _, each in found):
        raise ValueError(
            f"metric: the default one compares tensors and numbers, and there is none in"
            f" {arguments.shown(outputs)}, which the model gives: give metric="
        )
    return found


def _compared(path: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.is_nested:
            value = torch.cat([each.flatten() for each in value.unbind()])
        value = value.to_dense() if value.layout is not torch.strided else value
        return (value.dequantize() if value.is_quantized else value).detach()
    if isinstance(value, _COMPARED):
        return value
    if hasattr(value, "__array__"):  # NumPy's
        with contextlib.suppress(TypeError):
            return torch.as_tensor(value)
    raise ValueError(
        f"metric: the default one cannot look into {path}, a {type(value).__qualname__}: give"
        " metric=, a function of the outputs and of what they are in float32"
    )


def _difference(outputs: Any, reference: list[tuple[str, Any]]) -> float:
    made = _leaves(outputs)
    if [path for path, _ in made] != [path for path, _ in reference]:
        return math.inf
    return _worst([_apart(a, b) for (_, a), (_, b) in zip(made, reference, strict=True)])


def _apart(a: Any, b: Any) -> float:
    if isinstance(a, (int, float, complex)) and isinstance(b, (int, float, complex)):
        a, b = torch.tensor(a), torch.tensor(b)
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return 0.0 if type(a) is type(b) and a == b else 1.0
    if a.shape != b.shape:
        return math.inf
    if not a.numel():
        return 0.0
    if not (b.is_floating_point() or b.is_complex()):
        return float((a != b).double().mean())
    wide = torch.complex128 if b.is_complex() else torch.float64
    a, b = a.detach().to(wide), b.detach().to(wide)
    same = (a == b) | (a.isnan() & b.isnan())
    fine = a.isfinite() & b.isfinite()
    if not bool((same | fine).all()):
        return math.inf
    apart = torch.where(same, 0, a - b).abs().max().item()
    scale = b.abs()[b.isfinite()].max().item() if bool(b.isfinite().any()) else 0.0
    return apart / scale if scale else (math.inf if apart else 0.0)


def _noting_calls(model: nn.Module, calls: list[None]) -> contextlib.AbstractContextManager[None]:
    def noted(forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def running_noted(*args: Any, **kwargs: Any) -> Any:
            calls.append(None)
            return forward(*args, **kwargs)

        return running_noted

    return module_methods.changed({model: noted})


def _copied(outputs: Any) -> Any:
    """Outputs that nobody writes to: neither the model, whose buffers they may be, nor a metric."""
    return in_float32.mapped(outputs, lambda tensor: tensor.detach().clone(), anew=True)


def _worst(errors: Sequence[float]) -> float:
    return max((math.inf if math.isnan(each) else each for each in errors), default=0.0)


def _distance(value: float, wanted: float) -> float:
    return abs(value - wanted) if math.isfinite(value) else math.inf


_NO_GRAPH = "does not require grad"  # what autograd says where nothing is recorded


class _File:
    """What was measured, on disk: written after each evaluation."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._errors: dict[tuple[str, ...], float] = {}
        self._before: dict[str, Any] | None = None  # what was measured there
        if not self._path.exists():
            return
        try:
            held = json.loads(self._path.read_text(encoding="utf-8"))
            self._before, measured = held["of"] | {}, held["measured"]
            self._errors = {tuple(units): float(error) for units, error in measured}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"resume: {path} is no file of jit_amp.tune's") from error

    def begin(self, of: dict[str, Any]) -> None:
        """Goes on with what was measured, if it was of the same."""
        self._of = json.loads(as_json(of))
        if self._before is None:
            self._write()
            return
        for key, value in self._of.items():
            if not _is_same(self._before.get(key), value):
                raise ValueError(f"resume: {self._path} was measured with another {key}")

    def known(self, key: tuple[str, ...]) -> float | None:
        return self._errors.get(key)

    def add(self, key: tuple[str, ...], error: float) -> None:
        self._errors[key] = error
        self._write()

    def _write(self) -> None:
        text = as_json({"of": self._of, "measured": list(self._errors.items())})
        partial = self._path.with_name(self._path.name + ".part")
        partial.write_text(text, encoding="utf-8")
        partial.replace(self._path)


def _sizes(outputs: Any) -> list[float]:
    """Of each tensor the sum of what it holds without signs."""
    found = [each for _, each in leaves(outputs) if isinstance(each, Tensor)]
    return [float(each.detach().abs().double().nan_to_num(0.0, 0.0, 0.0).sum()) for each in found]


def _is_same(before: Any, now: Any) -> bool:
    """Of code, that of the functions that ran both times; of numbers, nearly."""
    if isinstance(before, dict) and isinstance(now, dict):
        return all(before[key] == now[key] for key in before.keys() & now.keys())
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return all(_is_same(a, b) for a, b in zip(before, now, strict=True))
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=1e-3)
    return bool(before == now)


class Progress:
    """Says on stderr what is done: on a terminal in one line, else every ten seconds."""

    def __init__(self, budget: float | None) -> None:
        self._budget = budget
        self._begin = self._said = time.monotonic()
        self._best = ""
        self._left = 0
        self._wrote = False

    def best(self, names: Sequence[str], error: float) -> None:
        listed = ", ".join(shown(each) for each in names[:3]) + ", ..." * (len(names) > 3)
        self._best = f"; best so far: {len(names)} in float32 ({listed}), error {error:.3g}"

    def expects(self, evaluations: int) -> None:
        """How many more evaluations there will be about."""
        self._left = evaluations

    def note(self, evaluations: int) -> None:
        elapsed = time.monotonic() - self._begin
        left = self._left * elapsed / evaluations
        if self._budget is not None:
            left = min(left, max(0.0, self._budget - elapsed))
        self.say(f"{evaluations} evaluations{self._best}; about {left:.0f} s left")

    def say(self, text: str) -> None:
        now = time.monotonic()
        if sys.stderr.isatty():
            print(f"\rtune: {text[:150]}".ljust(160), end="", file=sys.stderr, flush=True)
            self._wrote = True
        elif now - self._said > 10:
            print(f"tune: {text}", file=sys.stderr, flush=True)
            self._said = now

    def end(self) -> None:
        if self._wrote:
            print(file=sys.stderr)
