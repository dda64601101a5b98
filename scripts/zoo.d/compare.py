"""One model in all its forms, against eager autocast."""

from __future__ import annotations

import copy
import functools
import gc
import io
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import torch
from artefact import Dtypes, casts_at_run_time, distance, held_twice, same, within_rounding
from catalog import Model, stir
from stock import Stock
from torch import Tensor, nn
from torch.export import Dim
from torch.jit.mobile import _load_for_lite_interpreter
from torch.utils import _pytree as pytree
from ways import Args, scope

import jit_amp
from jit_amp._base.trees import leaves

FORMS: dict[str, dict[str, Any]] = {
    "exact, example": {"optimize_numerics": False, "example": True},
    "exact": {"optimize_numerics": False, "example": False},
    "folded, example": {"optimize_numerics": True, "example": True},
    "folded": {"optimize_numerics": True, "example": False},
    "server, example": {"optimize_numerics": True, "example": True, "target": "server"},
}
"""The frozen forms of a model."""

COLUMNS = ("explained", "in process", *FORMS, "export", "installed")

RIVALS = ("converter", "torch.export")
"""What else makes an ExportedProgram: PyTorch's converter of the artefact "exact, example", and
torch.export of the eager model, called in a scope."""

Run = Callable[..., Any]


class Skip(Exception):
    """Why a model says nothing about jit_amp."""


@dataclass(frozen=True)
class Miss:
    stage: str
    """What was done: compile, freeze, run, other input, gradients, elsewhere, lite, in a scope."""
    cause: str
    detail: str = ""
    is_pytorchs: bool = False
    """Whether the model without autocast misses there too, in PyTorch's hands."""


@dataclass(frozen=True)
class Call:
    """What eager gives for arguments: under autocast, and in float32."""

    args: Args
    expected: Any
    full: Any


def compare(
    model: Model,
    report: Callable[[str, Any], None],
    columns: Collection[str] = COLUMNS,
    with_rivals: bool = False,
) -> None:
    """Reports what it is "doing", the misses of each form and numbers, as they are known.

    Args:
        columns: what is compared.
        with_rivals: whether others' ways to an ExportedProgram are tried too.

    Raises:
        Skip: PyTorch cannot make TorchScript of the model, or eager cannot run it.
    """
    torch.manual_seed(0)
    report("doing", "build")
    eager = stir(model.build().eval())
    report("doing", "eager")
    calls = _calls(eager, model)
    if "explained" in columns:
        report("doing", "explained")
        misses, times = explained(eager, model, calls[0].args)
        report("explained", [asdict(miss) for miss in misses])
        report("explained: times", times)
        if set(columns) == {"explained"}:  # which TorchScript has nothing to do with
            return
    report("doing", "torch.jit")
    example = calls[0].args
    try:
        plain = model.way.compile(torch.jit, eager, copy.deepcopy(example))
    except Exception as error:
        raise Skip(f"torch.jit: {cause_of(error)}") from error
    elements = sum(t.numel() for t in (*eager.parameters(), *eager.buffers()))
    needs_stock = not set(columns) <= {"explained", "export"}
    with Stock(model.extensions) if needs_stock else nullcontext() as stock:
        comparison = _Comparison(model, eager, plain, calls, stock)
        report("doing", "in process")
        try:
            scripted = model.way.compile_in_scope(eager, plain, copy.deepcopy(example))
        except Exception as error:
            report("in process", [asdict(Miss("compile", cause_of(error)))])
        else:
            if "in process" in columns:
                report("in process", [asdict(miss) for miss in comparison.of_scripted(scripted)])
            if "export" in columns:
                report("doing", "export")
                begin = time.monotonic()
                report("export", [asdict(miss) for miss in comparison.of_exported(scripted)])
                report("export: seconds", time.monotonic() - begin)
            for rival in RIVALS if with_rivals else ():
                report("doing", rival)
                begin = time.monotonic()
                misses = comparison.of_rival(rival, scripted)
                report(rival, float(not misses))
                report(f"{rival}: seconds", time.monotonic() - begin)
                print(model.name, rival, misses[:1] or "right", file=sys.stderr)
            for form, options in FORMS.items():
                if form not in columns:
                    continue
                report("doing", form)
                exact = not options["optimize_numerics"]
                target = options.get("target", "portable")
                try:
                    frozen = jit_amp.freeze(
                        scripted,
                        example_inputs=copy.deepcopy(example) if options["example"] else None,
                        optimize_numerics=not exact,
                        target=target,
                    )
                except Exception as error:
                    report(form, [asdict(Miss("freeze", cause_of(error)))])
                    continue
                report(f"{form}: casts", casts_at_run_time(frozen.graph))
                report(f"{form}: twice", len(held_twice(frozen.graph)))
                report(f"{form}: bytes", len(frozen.save_to_buffer()) / max(elements, 1))
                misses = comparison.of_frozen(frozen, exact, target)
                report(form, [asdict(miss) for miss in misses])
                report(f"{form}: off", comparison.off)
                del frozen  # a large model's weights fit a few times only
                gc.collect()
            del scripted
        if "installed" in columns and not model.way.has_scope:
            report("doing", "installed")
            report("installed", [asdict(miss) for miss in comparison.of_installed()])
        report("eager: off", comparison.eagers_off())


def _calls(eager: nn.Module, model: Model) -> list[Call]:
    """The example first. The others are those that eager takes."""

    plain = model.way.without_scope(eager)

    def call(args: Args) -> Call:
        with torch.set_grad_enabled(model.needs_grad):
            full = called(plain, args)
            with model.way.around_eager():
                return Call(args, called(eager, args), full)

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


class InScope(nn.Module):
    """As torch.export takes an eager model that is called under autocast."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any) -> Any:
        with scope():
            return self.model(*args)


NOT_OF_A_MODE = {
    "aten::empty.memory_format": "other operators make it, and what it holds is nothing yet",
    "aten::_transformer_encoder_layer_fwd": "the mode has autocast off in what its kernel calls",
}
"""Operators of which Dtypes sees other dtypes than a plain call has, and why."""


def _names(dtypes: set[torch.dtype]) -> str:
    return ", ".join(sorted(map(str, dtypes)))


def explained(eager: nn.Module, model: Model, args: Args) -> tuple[list[Miss], float]:
    """The misses of explain's rows, and its time as a multiple of eager's.

    A row's operator may be one that the dispatcher makes of others: those are not compared.
    """
    in_scope = InScope(copy.deepcopy(eager)).eval()  # a head may keep what it made in the scope
    with torch.set_grad_enabled(model.needs_grad):
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            called(in_scope, args)
            times.append(time.perf_counter() - begin)
        torch.manual_seed(0)
        with Dtypes() as seen:
            in_scope(*copy.deepcopy(args))
        torch.manual_seed(0)
        begin = time.perf_counter()
        try:
            rows = jit_amp.explain(in_scope, copy.deepcopy(args)).rows
        except Exception as error:
            return [Miss("explain", cause_of(error))], 0.0
        ratio = (time.perf_counter() - begin) / sorted(times)[1]
    found: defaultdict[str, set[torch.dtype]] = defaultdict(set)
    for row in rows:
        found[row.operator] |= {getattr(torch, each) for each in row.results if each != "several"}
    if not found:
        return [Miss("explain", "no rows")], ratio
    other = {
        name: dtypes
        for name, dtypes in found.items()
        if name not in NOT_OF_A_MODE and not dtypes <= seen.seen.get(name, dtypes)
    }
    misses = [
        Miss("dtypes", f"{name}: {_names(dtypes)}, eager {_names(seen.seen[name])}")
        for name, dtypes in other.items()
    ]
    if not set(found) & set(seen.seen):
        misses.append(Miss("dtypes", "no operator of a row is one of eager's"))
    return misses, ratio


class _Comparison:
    def __init__(
        self, model: Model, eager: nn.Module, plain: Any, calls: list[Call], stock: Stock | None
    ) -> None:
        self.model, self.eager, self.plain, self.calls = model, eager, plain, calls
        self.stock = stock
        self.off = 0.0  # the largest distance from eager that a call of the last form had

    def eagers_off(self) -> float:
        """The largest distance of eager autocast from float32."""
        return max(
            (
                distance(ours, precise)
                for call in self.calls
                for (_, ours), (_, precise) in zip(
                    leaves(call.expected), leaves(call.full), strict=True
                )
                if isinstance(ours, Tensor) and ours.shape == precise.shape
            ),
            default=0.0,
        )

    def of_scripted(self, scripted: Any) -> list[Miss]:
        args = self.calls[0].args
        with self.model.way.around_eager():
            expected = called(self.eager, args)
        misses = list(self._in_process(scripted, self.calls, Call(args, expected, None)))
        if misses:
            full = Call(args, called(self.eager, args), None)
            misses = self._marked(misses, self._in_process(self.plain, self._full(), full))
        return misses

    def of_frozen(self, frozen: Any, exact: bool, target: str) -> list[Miss]:
        self.off = 0.0
        misses = list(self._frozen(frozen, self.calls, exact, target))
        if misses:
            own = torch.jit.freeze(self.plain.eval(), optimize_numerics=False)
            misses = self._marked(misses, self._frozen(own, self._full(), exact=True))
        return misses

    def of_exported(self, scripted: Any) -> list[Miss]:
        # As eager was: what a model sets in its first call, a detector's levels, is known then.
        called(scripted, self.calls[0].args)

        def make(program: Any) -> Any:
            return jit_amp.export(program, copy.deepcopy(self.calls[0].args))

        return self._programs("export", lambda: make(scripted))

    def of_rival(self, rival: str, scripted: Any) -> list[Miss]:
        args = self.calls[0].args

        def converter() -> Any:
            from torch._export.converter import TS2EPConverter

            frozen = jit_amp.freeze(
                scripted, example_inputs=copy.deepcopy(args), optimize_numerics=False
            )
            return TS2EPConverter(frozen, copy.deepcopy(args)).convert()

        def of_eager() -> Any:
            free = pytree.tree_map(
                lambda x: {i: Dim.AUTO for i in range(x.dim())} if isinstance(x, Tensor) else None,
                args,
            )
            model = InScope(self.eager)
            return torch.export.export(model, copy.deepcopy(args), dynamic_shapes=(free,))

        return self._programs(rival, converter if rival == "converter" else of_eager)

    def _programs(self, stage: str, make: Callable[[], Any]) -> list[Miss]:
        """The misses of an ExportedProgram, here and saved and loaded."""
        try:
            with torch.set_grad_enabled(self.model.needs_grad):
                program = make()
            file = io.BytesIO()
            torch.export.save(program, file)
            file.seek(0)
            loaded = torch.export.load(file).module()
        except Exception as error:
            return [Miss(stage, cause_of(error))]
        # A program is for one structure of arguments: a list has as many tensors in every call.
        structure = pytree.tree_structure(self.calls[0].args)
        others = [c for c in self.calls[1:] if pytree.tree_structure(c.args) == structure]
        return [
            *self._misses("run", program.module, self.calls[:1], exact=True, times=1),
            *self._misses("other input", program.module, others, exact=True, times=1),
            *self._misses("elsewhere", lambda: loaded, self.calls[:1], exact=True, times=1),
        ]

    def of_installed(self) -> list[Miss]:
        """What plain torch.jit does is done installed too: its results, what is saved of it. And
        in a scope around the call it is as eager."""
        example = self.calls[0].args
        try:
            with jit_amp.install():
                installed = self.model.way.compile(torch.jit, self.eager, copy.deepcopy(example))
        except Exception as error:
            return [Miss("compile", cause_of(error))]
        plain = [call for call in map(self._plainly, self.calls) if call]
        misses = [
            *self._misses("run", lambda: installed, plain[:1], exact=True),
            *self._misses("other input", lambda: installed, plain[1:], exact=True),
        ]
        in_scope = list(
            self._misses("in a scope", lambda: installed, self.calls, exact=True, around=scope())
        )
        if in_scope:
            full = self._misses("in a scope", lambda: self.plain, self._full(), exact=True)
            in_scope = self._marked(in_scope, full)
        misses += in_scope
        elsewhere = list(
            self._misses("elsewhere", lambda: self._elsewhere(installed), plain, True, times=2)
        )
        if elsewhere:
            own = self._misses("elsewhere", lambda: self._elsewhere(self.plain), plain, True)
            elsewhere = self._marked(elsewhere, own)
        return misses + elsewhere

    def _plainly(self, call: Call) -> Call | None:
        try:
            with torch.set_grad_enabled(self.model.needs_grad):
                expected = called(self.plain, call.args)
        except Exception:
            return None
        return Call(call.args, expected, None)

    def _full(self) -> list[Call]:
        return [Call(call.args, call.full, call.full) for call in self.calls]

    def _marked(self, misses: list[Miss], pytorchs: Iterator[Miss]) -> list[Miss]:
        if self.model.way.has_scope:  # the plain model is another one
            return misses
        shared = {miss.stage for miss in pytorchs}
        return [
            replace(miss, is_pytorchs=miss.stage in shared or miss.cause in self._causes_of_plain())
            for miss in misses
        ]

    @cache  # noqa: B019  # one for each process
    def _causes_of_plain(self) -> set[str]:
        """What is missed where the dispatcher's autocast, which is eager's, runs what PyTorch made
        without a scope. A trace has tensors in place of sizes, and float32's constants."""
        before = torch._C._jit_set_autocast_mode(False)  # PyTorch's compiler puts in no casts
        try:
            example = copy.deepcopy(self.calls[0].args)
            again = self.model.way.compile(torch.jit, self.eager, example)
            found = self._misses("plain", lambda: again, self.calls, exact=True, around=scope())
            return {miss.cause for miss in found}
        finally:
            torch._C._jit_set_autocast_mode(before)

    def _in_process(self, scripted: Any, calls: list[Call], recorded: Call) -> Iterator[Miss]:
        yield from self._misses("run", lambda: scripted, calls[:1], exact=True)
        yield from self._misses("other input", lambda: scripted, calls[1:], exact=True)
        yield from self._misses("gradients", lambda: scripted, [recorded], exact=True, grad=True)

    def _frozen(
        self, frozen: Any, calls: list[Call], exact: bool, target: str = "portable"
    ) -> Iterator[Miss]:
        def lite() -> Run:
            file = io.BytesIO(frozen._save_to_buffer_for_lite_interpreter())
            return _load_for_lite_interpreter(file)

        yield from self._misses("run", lambda: frozen, calls[:1], exact)
        yield from self._misses("other input", lambda: frozen, calls[1:], exact, times=1)
        yield from self._misses("elsewhere", lambda: self._elsewhere(frozen), calls, exact, times=2)
        if target == "portable":
            yield from self._misses("lite", lite, calls, exact, times=1)

    def _elsewhere(self, module: Any) -> Run:
        assert self.stock is not None
        return functools.partial(self.stock.call, self.stock.load(module.save_to_buffer()))

    def _misses(
        self,
        stage: str,
        make: Callable[[], Run],
        calls: list[Call],
        exact: bool,
        times: int = 3,
        grad: bool = False,
        around: AbstractContextManager[Any] | None = None,
    ) -> Iterator[Miss]:
        """The first miss, if there is one. The executor profiles the first times that it runs."""
        try:
            run = make()
            for call in calls:
                for _ in range(times):
                    with (
                        torch.set_grad_enabled(grad or self.model.needs_grad),
                        around or nullcontext(),
                    ):
                        actual = self._as_eagers(called(run, call.args), call.expected)
                    if found := self._difference(actual, call, exact):
                        yield Miss(stage, *found)
                        return
        except Exception as error:
            yield Miss(stage, cause_of(error))

    def _as_eagers(self, actual: Any, expected: Any) -> Any:
        """Scripted, some models give losses or auxiliary results as well."""
        if isinstance(actual, tuple) and not isinstance(expected, tuple):
            return actual[1 if self.model.family == "detection" else 0]
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
        if not exact and self.model.family == "detection":
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
            around = self.model.way.around_eager()
            with torch.set_grad_enabled(self.model.needs_grad), around:
                expected = called(self.eager, call.args)
        finally:
            for parameter in needed:
                parameter.requires_grad_(True)
        return all(
            same(ours, eagers)
            for (_, ours), (_, eagers) in zip(leaves(actual), leaves(expected), strict=True)
            if isinstance(ours, Tensor)
        )


def called(run: Run, args: Args) -> Any:
    """From the same random state, and without writing to the arguments."""
    torch.manual_seed(0)
    return run(*copy.deepcopy(args))


def strides(tensor: Tensor) -> list[int]:
    """Of the dimensions where they mean something."""
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return [stride for stride, size in pairs if size > 1] if tensor.numel() else []


def cause_of(error: BaseException | None) -> str:
    """The line of an error that says what happened."""
    text = re.sub(r" \(of Python compilation unit at: \w+\)", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if lines[0].startswith("The following operation failed"):  # then source, then the error
        return lines[-1]
    if " -> " in lines[0] and len(lines) > 1:  # the signature that a call does not match
        return lines[1]
    return lines[0]
