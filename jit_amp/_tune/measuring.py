"""One search: runs of the model with sets of units in float32, and what they measure."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from jit_amp import _C
from jit_amp._base import (
    arguments,
    model_state,
    module_methods,
    process_state,
    source_lines,
)
from jit_amp._base.trees import leaves
from jit_amp._precision import in_float32
from jit_amp._precision.precision import Precision
from jit_amp._precision.reads import Read
from jit_amp._precision.records import Kept, Line, Measured, Sensitivity
from jit_amp._tune import fingerprint, profile
from jit_amp._tune.batches import arguments_of, batches_of, copied
from jit_amp._tune.metrics import RELATIVE, TOLERANCES, difference, distance, tensors_of, worst
from jit_amp._tune.progress import Progress
from jit_amp._tune.resume import MeasuredFile, sizes_of
from jit_amp._tune.search import OutOfBudget, Search, Unit


class Run:
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
        self.metric: Callable[..., Any] = difference if metric is None else metric
        self.metric_name = RELATIVE if metric is None else _name_of(metric)
        self.of_model = metric is not None and arguments_of(metric) == 1
        self.batches = batches_of(model, data)
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
        self.file = MeasuredFile(resume) if resume is not None else None

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
            "output in float32": self.value if self.of_model else sizes_of(self.references),
        }

    def _codes_noted(self) -> contextlib.AbstractContextManager[None]:
        if not self.file:
            return contextlib.nullcontext()
        return fingerprint.codes_noted(self.codes, self.kind == "line")

    # Running the model.

    def _parts(self, names: Sequence[str]) -> in_float32.Parts:
        return in_float32.Parts(self.kind, tuple(names), self.device_type, self.dtype, self.around)

    def _undone(self) -> _C.AtExit:
        """The model, the random state and the modes, which a metric may leave changed, are
        afterwards what they were; seeded inside."""
        return process_state.all_of(
            process_state.random_state(),
            model_state.kept(self.model),
            process_state.modes(),
            begin=functools.partial(torch.manual_seed, self.seed),
        )

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
        return copied(tensors_of(outputs) if self.metric is difference else outputs)

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
                    error = self.metric(batch.given_to(self.model), copied(reference))
                    errors.append(_number(self.metric_name, error))
                    if not errors[-1] < math.inf:
                        break
            return worst(errors)

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
            found = distance(value, self.value) if self.of_model else value
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
        error = distance(value, self.value) if self.of_model else value
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
                source_lines.line(file, line),
            )
            for (file, line), (names, stays) in sorted(found.items())
            for read in [self.reads.get((file, line), Read())]
        )


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


def _noting_calls(model: nn.Module, calls: list[None]) -> contextlib.AbstractContextManager[None]:
    def noted(forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def running_noted(*args: Any, **kwargs: Any) -> Any:
            calls.append(None)
            return forward(*args, **kwargs)

        return running_noted

    return module_methods.changed({model: noted})


_NO_GRAPH = "does not require grad"  # what autograd says where nothing is recorded
