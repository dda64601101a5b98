"""One model in all its forms, against eager autocast."""

from __future__ import annotations

import copy
import gc
import io
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from artefact import casts_at_run_time, distance, held_twice, same, within_rounding
from catalog import Args, Model, stir
from torch import Tensor, nn
from torch.jit.mobile import _load_for_lite_interpreter

import jit_amp
from jit_amp._values import leaves

FORMS: dict[str, dict[str, Any]] = {
    "exact, example": {"optimize_numerics": False, "example": True},
    "exact": {"optimize_numerics": False, "example": False},
    "folded, example": {"optimize_numerics": True, "example": True},
    "folded": {"optimize_numerics": True, "example": False},
    "server, example": {"optimize_numerics": True, "example": True, "target": "server"},
}
"""The frozen forms of a model."""

Run = Callable[..., Any]


class Skip(Exception):
    """Why a model says nothing about jit_amp."""


@dataclass(frozen=True)
class Miss:
    stage: str
    """What was done: script, freeze, run, other input, reload, lite."""
    cause: str
    detail: str = ""
    is_pytorchs: bool = False
    """Whether the model without autocast misses there too when PyTorch freezes it."""


@dataclass(frozen=True)
class Call:
    """What eager gives for arguments: under autocast, and in float32."""

    args: Args
    expected: Any
    full: Any


def scope() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def compare(model: Model, report: Callable[[str, Any], None]) -> None:
    """Reports what it is "doing", the misses of each form and numbers, as they are known.

    Raises:
        Skip: torch.jit.script cannot script the model, or eager cannot run it.
    """
    torch.manual_seed(0)
    report("doing", "build")
    eager = stir(model.build().eval())
    report("doing", "torch.jit.script")
    try:
        plain = torch.jit.script(eager)
    except Exception as error:
        raise Skip(f"torch.jit.script: {cause_of(error)}") from error
    report("doing", "eager")
    comparison = _Comparison(eager, plain, _calls(eager, model), model.family)
    report("doing", "script")
    try:
        scripted = jit_amp.script(eager, autocast=scope())
    except Exception as error:
        report("script", [asdict(Miss("script", cause_of(error)))])
        return
    report("script", [asdict(miss) for miss in comparison.of_scripted(scripted)])
    elements = sum(t.numel() for t in (*eager.parameters(), *eager.buffers()))
    for form, options in FORMS.items():
        report("doing", form)
        example = comparison.calls[0].args if options["example"] else None
        exact = not options["optimize_numerics"]
        target = options.get("target", "portable")
        try:
            frozen = jit_amp.freeze(
                scripted, example_inputs=example, optimize_numerics=not exact, target=target
            )
        except Exception as error:
            report(form, [asdict(Miss("freeze", cause_of(error)))])
            continue
        report(f"{form}: casts", casts_at_run_time(frozen.graph))
        report(f"{form}: twice", len(held_twice(frozen.graph)))
        report(f"{form}: bytes", len(frozen.save_to_buffer()) / elements)
        report(form, [asdict(miss) for miss in comparison.of_frozen(frozen, exact, target)])
        report(f"{form}: off", comparison.off)
        del frozen  # a large model's weights fit a few times only
        gc.collect()
    report("eager: off", comparison.eagers_off())


def _calls(eager: nn.Module, model: Model) -> list[Call]:
    """The example first. The others are those that eager takes."""

    def call(args: Args) -> Call:
        with torch.no_grad():
            full = eager(*copy.deepcopy(args))
            with scope():
                return Call(args, eager(*copy.deepcopy(args)), full)

    reason: Exception | None = None
    for given in model.calls(eager):
        try:
            calls = [call(given.example)]
        except Exception as error:
            reason = error
            continue
        for other in given.others:
            try:
                calls.append(call(other))
            except Exception:
                continue
        return calls
    raise Skip(f"eager: {cause_of(reason)}")


class _Comparison:
    def __init__(self, eager: nn.Module, plain: Any, calls: list[Call], family: str) -> None:
        self.eager, self.plain, self.calls, self.family = eager, plain, calls, family
        self.off = 0.0  # the largest distance from eager that a call of the last form had

    def eagers_off(self) -> float:
        """The largest distance of eager autocast from float32."""
        return max(
            distance(ours, precise)
            for call in self.calls
            for (_, ours), (_, precise) in zip(
                leaves(call.expected), leaves(call.full), strict=True
            )
            if isinstance(ours, Tensor) and ours.shape == precise.shape
        )

    def of_scripted(self, scripted: Any) -> list[Miss]:
        args = self.calls[0].args
        with scope():
            expected = self.eager(*copy.deepcopy(args))
        called = [Call(args, expected, None)]
        return [
            *self._misses("run", lambda: scripted, self.calls, exact=True),
            *self._misses("run with gradients", lambda: scripted, called, exact=True, grad=True),
        ]

    def of_frozen(self, frozen: Any, exact: bool, target: str) -> list[Miss]:
        self.off = 0.0
        misses = list(self._stages(frozen, self.calls, exact, target))
        if misses:
            calls = [Call(call.args, call.full, call.full) for call in self.calls]
            own = torch.jit.freeze(self.plain, optimize_numerics=False)
            shared = {miss.stage for miss in self._stages(own, calls, exact=True)}
            misses = [replace(miss, is_pytorchs=miss.stage in shared) for miss in misses]
        return misses

    def _stages(
        self, frozen: Any, calls: list[Call], exact: bool, target: str = "portable"
    ) -> Iterator[Miss]:
        def reloaded() -> Run:
            return torch.jit.load(io.BytesIO(frozen.save_to_buffer()))

        def lite() -> Run:
            file = io.BytesIO(frozen._save_to_buffer_for_lite_interpreter())
            return _load_for_lite_interpreter(file)

        yield from self._misses("run", lambda: frozen, calls[:1], exact)
        yield from self._misses("other input", lambda: frozen, calls[1:], exact, times=1)
        yield from self._misses("reload", reloaded, calls, exact, times=2)
        if target == "portable":
            yield from self._misses("lite", lite, calls, exact, times=1)

    def _misses(
        self,
        stage: str,
        make: Callable[[], Run],
        calls: list[Call],
        exact: bool,
        times: int = 3,
        grad: bool = False,
    ) -> Iterator[Miss]:
        """The first miss, if there is one. The executor profiles the first times that it runs."""
        try:
            run = make()
            for call in calls:
                for _ in range(times):
                    with torch.set_grad_enabled(grad):
                        actual = self._as_eagers(run(*copy.deepcopy(call.args)), call.expected)
                    if found := self._difference(actual, call, exact):
                        yield Miss(stage, *found)
                        return
        except Exception as error:
            yield Miss(stage, cause_of(error))

    def _as_eagers(self, actual: Any, expected: Any) -> Any:
        """Scripted, some models give losses or auxiliary results as well."""
        if isinstance(actual, tuple) and not isinstance(expected, tuple):
            return actual[1 if self.family == "detection" else 0]
        return actual

    def _difference(self, actual: Any, call: Call, exact: bool) -> tuple[str, str] | None:
        """Cause and detail."""
        pairs = list(zip(leaves(actual), leaves(call.expected), strict=False))
        if len(list(leaves(actual))) != len(list(leaves(call.expected))):
            return "another structure", ""
        for (where, ours), (at, eagers) in pairs:
            if where != at or type(ours) is not type(eagers):
                return "another structure", f"{where}: {type(ours)}, eager {at}: {type(eagers)}"
            if not isinstance(ours, Tensor):
                if ours != eagers:
                    return "another value", f"{where}: {ours}, eager {eagers}"
            elif ours.dtype != eagers.dtype:
                return f"{ours.dtype}, eager {eagers.dtype}", where
        if not exact and self.family == "detection":
            return None  # which boxes are chosen may depend on a rounding
        full = call.expected if call.full is None else call.full
        for (where, ours), (_, eagers), (_, precise) in zip(
            leaves(actual), leaves(call.expected), leaves(full), strict=True
        ):
            if not isinstance(ours, Tensor):
                continue
            if ours.shape != eagers.shape:
                return "another shape", f"{where}: {list(ours.shape)}, eager {list(eagers.shape)}"
            if strides(ours) != strides(eagers):
                return "other strides", f"{where}: {ours.stride()}, eager {eagers.stride()}"
            self.off = max(self.off, distance(ours, eagers))
            if not (same(ours, eagers) if exact else within_rounding(ours, eagers, precise)):
                if exact and self._is_of_constants(actual, call):
                    return "values: those of eager with weights that need no gradient", where
                return "values", f"{where}: off by {distance(ours, eagers):.1e} of the largest"
        return None

    def _is_of_constants(self, actual: Any, call: Call) -> bool:
        """Whether it is what eager gives for weights that need no gradient: a cast of one that does
        needs one too, even under no_grad, and ATen's linear may take another kernel for it."""
        needed = [p for p in self.eager.parameters() if p.requires_grad]
        for parameter in needed:
            parameter.requires_grad_(False)
        try:
            with torch.no_grad(), scope():
                expected = self.eager(*copy.deepcopy(call.args))
        finally:
            for parameter in needed:
                parameter.requires_grad_(True)
        return all(
            same(ours, eagers)
            for (_, ours), (_, eagers) in zip(leaves(actual), leaves(expected), strict=True)
            if isinstance(ours, Tensor)
        )


def strides(tensor: Tensor) -> list[int]:
    """Of the dimensions where they mean something."""
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return [stride for stride, size in pairs if size > 1] if tensor.numel() else []


def cause_of(error: BaseException | None) -> str:
    """The line of an error that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if lines[0].startswith("The following operation failed"):  # then source, then the error
        return lines[-1]
    if " -> " in lines[0] and len(lines) > 1:  # the signature that a call does not match
        return lines[1]
    return lines[0]
