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
)
from jit_amp._base.trees import leaves
from jit_amp._precision import curve, in_float32
from jit_amp._precision.precision import Precision
from jit_amp._precision.records import Measured
from jit_amp._tune import fingerprint, profile, reasons
from jit_amp._tune.batches import Batch, arguments_of, batches_of, copied
from jit_amp._tune.metrics import (
    RELATIVE,
    TOLERANCES,
    check_elements,
    difference,
    distance,
    tensors_of,
    worst,
)
from jit_amp._tune.progress import Progress
from jit_amp._tune.resume import MeasuredFile, sizes_of
from jit_amp._tune.search import OutOfBudget, Search
from jit_amp._tune.units import Units


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
        self.progress = Progress(budget)
        self.codes: dict[str, list[str]] = {}  # of functions that ran in float32
        self.file = MeasuredFile(resume) if resume is not None else None

    def _fingerprint(self) -> dict[str, Any]:
        """Returns what the measurements depend on."""
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

    def _units_in_float32(self, names: Sequence[str]) -> in_float32.Parts:
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
                value = self._measure(in_float32.applied(self.model, self._units_in_float32(key)))
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
        self._profile()
        search = Search(self.units.all, self.error, tolerance, self.progress)
        finished = True
        try:
            search.run()
            kept = search.found
        except OutOfBudget:
            kept, finished = search.best(), False
        return self._result(kept, tolerance, finished)

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
        if self.references and self.metric is difference:
            check_elements(self.references)
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

    def _profile(self) -> None:
        """Finds the units, in one run under autocast."""

        self.progress.say("looking where low precision hurts")
        runs = [functools.partial(self._run_under_autocast, each) for each in self._batches()]
        with self._undone():
            seen = profile.of(runs, self.model, self.kind, self.device_type, self.dtype)
        self._check_that_something_ran(seen.ran, seen.with_operators())
        self.units = Units(self.model, seen, self.dtype)

    def _batches(self) -> Sequence[Batch | None]:
        """None is a run of the metric, which has no batches."""
        batches: list[Batch | None] = [*self.batches]
        return batches or [None]

    def _run_under_autocast(self, batch: Batch | None) -> None:
        with in_float32.applied(self.model, self._units_in_float32(())):
            self._run(batch)

    def _run(self, batch: Batch | None) -> None:
        if batch is None:
            self.metric(self.model)
        else:
            with self._recording():
                batch.given_to(self.model)

    def _check_that_something_ran(self, ran: int, parts: list[profile.Part]) -> None:
        """Raises ValueError where autocast made no difference, or none in a unit."""
        state = (*self.model.parameters(), *self.model.buffers())
        if any(each.dtype in in_float32.REDUCED for each in state):
            ran -= self._reduced_in_float32()
        if ran <= 0 and not any(part.raised for part in parts):
            inputs = [(batch.args, batch.kwargs) for batch in self.batches]
            raise ValueError(reasons.nothing_ran(self.model, inputs, self.dtype, self.device_type))
        if not parts:
            raise ValueError(reasons.no_units(self.model, self.kind, self.dtype))

    def _reduced_in_float32(self) -> int:
        """How many operators run in a reduced dtype where autocast is off."""
        counting = profile.Counting()
        with self._undone(), self._in_float32(), counting:
            for batch in self._batches():
                self._run(batch)
                if counting.ran:
                    break
        return counting.ran

    def _result(self, kept: Sequence[str], tolerance: float, finished: bool) -> Precision:
        error = self.errors.get(tuple(sorted(kept)), math.nan)
        if finished and not error <= tolerance:
            raise ValueError(
                f"tolerance: {tolerance:.3g} is met by no set of {self.kind}s in float32:"
                f" {self.metric_name} is {error:.3g} with {len(kept)} of {len(self.units.all)}, and"
                f" {self.in_float32:.3g} with float32 everywhere"
            )
        measured = tuple(
            Measured(names, found, self.units.saved(names)) for names, found in self.errors.items()
        )
        sensitivities = self.units.sensitivities()
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
            saved=self.units.saved(kept),
            finished=finished,
            candidates=len(self.units.all),
            seed=self.seed,
            kept=curve.kept_of(kept, error, measured, sensitivities),
            measured=measured,
            sensitivities=sensitivities,
            lines=self.units.lines(kept),
            curve=curve.curve_of(measured),
            error_float32=self.in_float32,
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
