"""Runs a composed module in eager and through a door, and says where they differ."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.util
import io
import itertools
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from artefact import distance, within_rounding
from fuzz.oracle import Difference, compare, without_scopes
from jit.support import AMBIENTS, autocast_state, restore_autocast, tensors_of, tree_map
from stock import Gone, Stock
from torch import Tensor, nn
from torch.utils.checkpoint import set_checkpoint_early_stop

import jit_amp

from .beside import Beside
from .compose import Composed
from .doors import (
    Api,
    ChildDied,
    Door,
    NotCompiled,
    PyTorch,
    called,
    in_a_child,
    lite,
    pickled,
    saved,
)
from .state import dense, difference, snapshot

CALLS = 3  # the executor changes its plan between the first ones
ROUNDING = 2.0**-4  # where eager in float32 says nothing
OTHER_ORDER = 2.0**-7  # of the terms of a sum, which is rounded to bfloat16 then
TAKES_ALL = re.compile(r"\[(?:.*, *)?:(?:,|\])")  # x[:, None]
ASKS_A_DTYPE = ("branch on a dtype", "factories of x's dtype")
GUARD = re.compile("AssertionError: jit_amp: |This module was frozen by jit_amp")
NOT_MADE = "cannot be made"
NOT_COMPILED = "it is not compiled"
CHILD_DIES = "the child of a fork dies"
OF_PYTORCH = "refused: JA207"  # its own passes fail
_CODE = re.compile(r"\[(JA\d+)\]")
_count = itertools.count()


@functools.cache
def _stock() -> Stock:
    """The process that never imports jit_amp; it stays."""
    return Stock([])


@dataclass(frozen=True)
class Outcome:
    """What came of a program at a door.

    Attributes:
        verdict: "agrees"; "raises", where eager raises at the first call, and so does ours;
            "refused", with a code that a feature allows; "PyTorch's", where PyTorch fails the
            same way on the program without its scopes; or "differs".
        kind: what differs, in few words; of a refusal its code; of what is raised its first line.
        detail: where, and how.
    """

    verdict: str
    kind: str = ""
    detail: str = ""


@contextlib.contextmanager
def loaded(source: str) -> Iterator[ModuleType]:
    """The source as a module that inspect and pickle find."""
    with tempfile.TemporaryDirectory(prefix="jit_amp_pairs_") as folder:
        name = f"pairs_program_{next(_count)}"
        path = Path(folder, f"{name}.py")
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            yield module
        finally:
            del sys.modules[name]


def seed(number: int) -> None:
    """As torch.manual_seed, which takes a millisecond to ask all devices."""
    torch.default_generator.manual_seed(number)


def fresh(value: Any) -> Any:
    return tree_map(lambda t: t.detach().clone().requires_grad_(t.requires_grad), value)


def plain(value: Any) -> Any:
    """With tensors that can be compared."""
    return tree_map(
        lambda t: t if t.layout == torch.strided and not t.is_nested else dense(t), value
    )


@dataclass
class _Call:
    """What a call returned or raised, and what it left behind."""

    raised: str = ""
    result: Any = None
    arguments: Any = None
    state: Any = None
    gradients: Any = None
    printed: str = ""


def first_line(error: BaseException) -> str:
    """The line of an error that says what happened."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    of_torchscript = lines and "TorchScript" in lines[0]
    last = lines[-1] if isinstance(error, torch.jit.Error) or of_torchscript else ""
    return f"{type(error).__name__}: {last or (lines[0] if lines else '')}"[:300]


class _Checker:
    def __init__(self, program: Composed, door: Door, module: ModuleType, api: Api) -> None:
        self.program, self.door, self.module, self.api = program, door, module, api
        seed(0)
        self.inputs: tuple[Any, ...] = module.inputs()
        self.others: list[tuple[Any, ...]] = module.others()
        if door.how.frozen and door.how.examples:
            self.others = [other for other in self.others if self.is_alike(other)]
        self.gradients = not door.how.frozen and door.call in ("plain", "ambient", "checkpoint")
        self.needs_grad = not door.how.frozen

    def is_alike(self, other: tuple[Any, ...]) -> bool:
        """An artefact with examples refuses None for a tensor, and the reverse."""
        return all((a is None) == (b is None) for a, b in zip(self.inputs, other, strict=True))

    def made(self, reference: bool = False) -> nn.Module:
        seed(1)
        vars(self.module)["REFERENCE"] = reference  # parts of it are compiled where it is not
        is_installed = self.door.how.in_python and not isinstance(self.api, PyTorch)
        with jit_amp.install() if is_installed and not reference else contextlib.nullcontext():
            made: nn.Module = self.module.Program()
        made.train(self.program.has("training mode"))
        return made if self.needs_grad else made.requires_grad_(False)

    def outer(self, inner: Any) -> nn.Module:
        seed(2)
        made: nn.Module = self.module.Outer(inner)
        made.train(self.program.has("training mode"))
        return made if self.needs_grad else made.requires_grad_(False)

    # What jit_amp makes, and that it leaves everything as it was.

    def through(self, module: nn.Module, given: tuple[Any, ...]) -> Any:
        """What the door makes of a module."""
        how = self.door.how
        examples = fresh(given)
        moves = how.traces
        if self.door.make == "scripted, frozen" and not isinstance(self.api, PyTorch):
            self.check_scripted_is_left(examples)
        before = snapshot(module, runs=moves)
        before_inputs = snapshot(_Holder(examples))
        printed = io.StringIO()
        torch.set_autocast_cache_enabled(self.program.cache)  # `autocast=` takes it from here
        try:
            with contextlib.redirect_stdout(printed), self.company():
                return how.function(self.api, module, examples)
        finally:
            torch.set_autocast_cache_enabled(True)
            if isinstance(self.api, PyTorch) or moves:
                pass
            elif found := difference(before, snapshot(module, runs=moves)):
                raise Difference("touched", f"{self.door.make}: {found}")
            elif found := difference(before_inputs, snapshot(_Holder(examples))):
                raise Difference("touched", f"{self.door.make}, examples: {found}")
            elif printed.getvalue() and self.door.make != "explain":  # it runs the program
                raise Difference("touched", f"{self.door.make} printed {printed.getvalue()!r}")

    def company(self) -> contextlib.AbstractContextManager[None]:
        is_beside = self.door.call == "beside" and not isinstance(self.api, PyTorch)
        return Beside() if is_beside else contextlib.nullcontext()

    def check_scripted_is_left(self, examples: tuple[Any, ...]) -> None:
        """What jit_amp scripted has its parameters, and their gradients, after it is frozen."""
        module = self.made().requires_grad_(True)
        scripted = jit_amp.script(module)
        before = snapshot(scripted, module)
        with contextlib.suppress(jit_amp.AutocastError):  # refused, it is left too
            jit_amp.freeze(scripted, example_inputs=examples)
        if found := difference(before, snapshot(scripted, module)):
            raise Difference("touched", f"freeze of a scripted module: {found}")

    def carried(self) -> tuple[Any, nn.Module]:
        """What is called, and eager's."""
        door = self.door
        made = self.made()
        if door.carry == "pickle":
            made = pickled(made)
        ours = self.through(made, self.inputs)
        self.like: nn.Module = made
        eager = self.made(reference=True)
        if door.how.traces:
            with torch.no_grad():  # the trace has run it
                eager.load_state_dict(made.state_dict())
        if door.carry == "deepcopy":
            ours = copy.deepcopy(ours)
            originals = dict(self.like.named_parameters())
            for name, parameter in ours.named_parameters():  # PyTorch's copy is no leaf
                parameter.detach_().requires_grad_(originals[name].requires_grad)
        if door.carry == "saved":
            ours = saved(ours)
            if not door.how.frozen and not isinstance(self.api, PyTorch):
                ours = jit_amp.script(ours)
        if door.carry == "lite":
            ours = lite(ours)
        if door.carry == "inside another":
            outer = self.outer(ours).train(ours.training)
            eager = self.outer(eager)
            before = {n: v.clone() for n, v in made.state_dict().items()}
            ours = self.through(outer, self.inputs)
            if (
                door.how.frozen
                and door.make != "optimize_for_inference"
                and not self.program.has("ignored method")  # PyTorch saves no Python
            ):
                ours = saved(ours)
            if door.how.traces:
                del before
                with torch.no_grad():
                    eager.load_state_dict(outer.state_dict(), strict=not door.how.frozen)
        if self.takes_changes and hasattr(self.module, "after"):
            for each in (ours, eager):
                self.module.after(each.inner if door.carry == "inside another" else each)
        return ours, eager

    @property
    def takes_changes(self) -> bool:
        """Whether what the door gives has parts by index, as the module in Python has them.

        PyTorch's traces, copies and loaded modules have none.
        """
        how = self.door.how
        has_none = how.frozen or how.traces or self.door.carry in ("saved", "deepcopy")
        return not has_none and not isinstance(self.api, PyTorch)

    def by_name(self, owner: Any) -> Any:
        """Calls of methods by their names, as a function of the module's arguments."""
        owner = owner.inner if self.door.carry == "inside another" else owner

        def call(*arguments: Any) -> Any:
            return self.module.by_name(owner, arguments[0])

        return call

    @property
    def has_names(self) -> bool:
        """Whether what the door gives has the methods that are called by name."""
        door = self.door
        if not hasattr(self.module, "by_name") or isinstance(self.api, PyTorch):
            return False
        if door.carry in ("elsewhere", "lite") or door.make == "optimize_for_inference":
            return False
        if door.make == "trace of PyTorch's, in a scope":  # the scope is around `forward`'s trace
            return False
        return not (door.carry == "inside another" and (door.how.frozen or door.how.traces))

    # Calls.

    def may_leave_no_grad(self) -> bool:
        """docs/limits.md: PyTorch goes on after a wait in another thread."""
        source = self.program.source
        return self.door.how.frozen and "torch.jit.wait" in source and "torch.no_grad" in source

    def run(
        self, function: Any, owner: Any, given: tuple[Any, ...], *, is_eager: bool = False
    ) -> _Call:
        arguments = fresh(given)
        seed(0)
        call = _Call()
        printed = io.StringIO()
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(printed))
            # A scripted module cannot be left in the middle, as PyTorch does when it has enough.
            stack.enter_context(set_checkpoint_early_stop(False))
            torch.set_autocast_cache_enabled(self.program.cache)
            stack.callback(torch.set_autocast_cache_enabled, True)
            before = (torch.is_grad_enabled(), *autocast_state())
            kind = "plain" if is_eager and self.door.call == "beside" else self.door.call
            try:
                call.result = called(kind, function, arguments)
            except Difference:
                raise
            except Exception as error:
                call.raised = first_line(error)
            if self.may_leave_no_grad():
                torch.set_grad_enabled(before[0])
            if call.raised:  # a scope that was entered by hand is left open, in eager too
                restore_autocast(before[1:])
            if (torch.is_grad_enabled(), *autocast_state()) != before:
                raise Difference("state of the thread", "not the same after the call")
            random = torch.get_rng_state()
        call.printed = printed.getvalue()
        call.arguments = plain(list(arguments))
        call.result = plain(call.result)
        if not call.raised and self.gradients:
            with contextlib.redirect_stdout(io.StringIO()):
                call.gradients = self.differentiate(call.result, arguments, owner)
        call.result = fresh(call.result)
        if self.door.call not in ("fork", "beside") and not call.raised:
            call.arguments.append(random)
        return call

    def differentiate(self, result: Any, arguments: Any, owner: Any) -> Any:
        leaves = {f"input {i}": t for i, t in enumerate(tensors_of(list(arguments)))}
        leaves.update(owner.named_parameters() if owner is not None else ())
        for leaf in leaves.values():
            leaf.grad = None
        parts = [t.abs().float().pow(2).sum() for t in tensors_of(result) if t.requires_grad]
        if not parts:
            return {}
        try:
            torch.autograd.backward(torch.stack(parts).sum())
        except Exception as error:
            return f"raises: {first_line(error).partition(':')[0]}"
        return {name: leaf.grad.clone() for name, leaf in leaves.items() if leaf.grad is not None}

    def check(self) -> Outcome:
        ours, eager = self.carried()
        frozen = self.door.how.frozen
        calls = [*[("call", self.inputs)] * CALLS, *(("another input", o) for o in self.others)]
        calls = [(f"{name} {n + 1}", given) for n, (name, given) in enumerate(calls)]
        reference = self.wrapped(eager) if self.door.how.wrapped else eager
        expected = [self.run(reference, eager, given, is_eager=True) for _, given in calls]
        if self.door.carry == "elsewhere":
            actual = self.elsewhere(ours, [given for _, given in calls])
        else:
            actual = self.ours(ours, ours, [given for _, given in calls])
        if self.has_names and not any(each.raised for each in (*expected, *actual)):
            named = [(f"by name {n + 1}", self.inputs) for n in range(CALLS)]
            theirs_by_name, ours_by_name = self.by_name(eager), self.by_name(ours)
            if self.door.how.wrapped and not self.door.how.traces:
                theirs_by_name = self.wrapped(theirs_by_name)
            for _, given in named:
                expected.append(self.run(theirs_by_name, eager, given, is_eager=True))
            actual += self.ours(ours_by_name, ours, [given for _, given in named])
            calls += named
        precise = None
        for n, ((where, given), theirs, mine) in enumerate(
            zip(calls, expected, actual, strict=True)
        ):
            if theirs.raised and mine.raised:
                if n == 0:
                    return Outcome("raises", theirs.raised)
                return Outcome("agrees")  # what either side left behind is not said
            if GUARD.search(mine.raised) and n >= CALLS and self.door.how.examples:
                return Outcome("agrees")
            if mine.raised:
                raise Difference("raises", f"{where}: {mine.raised}")
            if theirs.raised:
                raise Difference("eager raises", f"{where}: {theirs.raised}")
            if mine.printed != theirs.printed and self.door.carry != "elsewhere":
                raise Difference("prints", f"{where}: {mine.printed!r}, eager {theirs.printed!r}")
            if self.door.how.exact:
                compare(mine.result, theirs.result, f"{where}, result")
            else:
                if precise is None:
                    precise = self.precise([given for _, given in calls])
                self.compare_rounded(mine.result, theirs.result, precise[n], where)
            if self.door.carry != "elsewhere":
                compare(mine.arguments, theirs.arguments, f"{where}, inputs and random state")
            self.compare_gradients(mine.gradients, theirs.gradients, where)
        if not frozen and self.door.call != "fork":
            self.compare_state(ours, eager)
        return Outcome("agrees")

    def wrapped(self, eager: Any) -> Any:
        """What `autocast=` means."""

        def function(*arguments: Any) -> Any:
            with AMBIENTS["cpu"]():
                return eager(*arguments)

        return function

    def ours(self, function: Any, ours: Any, inputs: list[tuple[Any, ...]]) -> list[_Call]:
        owner = None if self.door.how.frozen else ours
        if self.door.call != "fork":
            return [self.run(function, owner, given) for given in inputs]
        try:
            answer = in_a_child(lambda: [_plainly(self.run(function, owner, g)) for g in inputs])
        except ChildDied as error:
            raise Difference(CHILD_DIES, str(error)) from None
        calls: list[_Call] = answer
        return calls

    def elsewhere(self, ours: Any, inputs: list[tuple[Any, ...]]) -> list[_Call]:
        file = io.BytesIO()
        torch.jit.save(ours, file)
        found: list[_Call] = []
        try:
            stock = _stock()
            number = stock.load(file.getvalue())
            for given in inputs:
                with torch.set_grad_enabled(self.door.call == "plain"):
                    found.append(_Call(result=plain(stock.call(number, *fresh(given)))))
            stock.forget(number)
        except Gone as error:
            _stock.cache_clear()
            raise Difference("the process elsewhere dies", str(error)) from None
        except RuntimeError as error:
            found.append(_Call(first_line(error)))
        # The first error ends the calls.
        return [*found, *[found[-1]] * (len(inputs) - len(found))]

    def precise(self, inputs: list[tuple[Any, ...]]) -> list[Any]:
        """What eager gives without scopes, in float32."""
        results: list[Any] = []
        try:
            with loaded(without_scopes(self.program.source)) as module:
                seed(1)
                eager = module.Program().eval().requires_grad_(False)
                if self.door.carry == "inside another":
                    seed(2)
                    eager = module.Outer(eager).eval().requires_grad_(False)
                for given in inputs:
                    results.append(self.run(eager, eager, given, is_eager=True).result)
        except Exception:
            pass
        return [*results, *[None] * (len(inputs) - len(results))]

    def compare_rounded(self, actual: Any, expected: Any, precise: Any, where: str) -> None:
        ours, theirs, full = (tensors_of(each) for each in (actual, expected, precise))
        empty = tree_map(lambda t: t.new_zeros(t.shape), expected)
        compare(tree_map(lambda t: t.new_zeros(t.shape), actual), empty, where)
        for i, (a, e) in enumerate(zip(ours, theirs, strict=True)):
            if a.is_complex():
                a, e = torch.view_as_real(a), torch.view_as_real(e)
            off = distance(a.detach(), e.detach())
            if off <= ROUNDING:
                continue
            if len(full) == len(theirs) and full[i] is not None:
                p = torch.view_as_real(full[i]) if full[i].is_complex() else full[i]
                if p.shape == e.shape and within_rounding(a.detach(), e.detach(), p.detach()):
                    continue
            raise Difference(
                "values", f"{where}[{i}]: off by {off:.2g}: {a.tolist()}, eager {e.tolist()}"
            )

    def compare_gradients(self, actual: Any, expected: Any, where: str) -> None:
        if actual is None or expected is None:
            return
        if isinstance(actual, str) or isinstance(expected, str):
            if type(actual) is not type(expected):
                theirs_alone = isinstance(expected, str)
                if not theirs_alone:
                    raise Difference("backward raises", f"{where}: {actual}")
            return
        actual = {name.replace("inner.", ""): g for name, g in actual.items()}
        expected = {name.replace("inner.", ""): g for name, g in expected.items()}
        if actual.keys() != expected.keys():
            names = f"{sorted(actual)}, eager {sorted(expected)}"
            raise Difference("gradients' names", f"{where}: {names}")
        exact = "torch.jit.fork" not in self.program.source
        for name, theirs in expected.items():
            if exact:
                try:
                    compare(actual[name], theirs, f"{where}, gradient of {name}")
                except Difference as found:
                    # docs/training.md: the gradient of a slice that Python leaves out
                    slices = found.kind == "values" and TAKES_ALL.search(self.program.source)
                    if slices and distance(actual[name], theirs) <= OTHER_ORDER:
                        continue
                    raise Difference(f"gradients' {found.kind}", found.detail) from None
            elif distance(actual[name], theirs) > ROUNDING:
                raise Difference("gradients' values", f"{where}, {name}")

    def compare_state(self, ours: Any, eager: nn.Module) -> None:
        """Buffers and attributes after the calls."""
        theirs, mine = dict(eager.named_modules()), dict(ours.named_modules())
        for path, child in theirs.items():
            if path not in mine:
                continue
            for name, value in [*vars(child).items(), *child.named_buffers(recurse=False)]:
                if name in ("training", "call_super_init") or name.startswith("_"):
                    continue
                if not _is_data(value) or not hasattr(mine[path], name):
                    continue
                actual = getattr(mine[path], name)
                if self.door.how.traces and not isinstance(actual, Tensor):
                    continue
                try:
                    compare(_unaliased(actual), _unaliased(value), f"{path}.{name}")
                except Difference as found:
                    raise Difference(f"attributes' {found.kind}", found.detail) from None


def _plainly(call: _Call) -> _Call:
    """A call that another process can read: it does not know the program's classes."""
    return replace(call, result=_as_lists(call.result), arguments=_as_lists(call.arguments))


def _as_lists(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_lists(each) for each in value]
    if isinstance(value, dict):
        return {key: _as_lists(each) for key, each in value.items()}
    return value


class _Holder(nn.Module):
    """Makes arguments an attribute, for snapshot."""

    def __init__(self, values: Any) -> None:
        super().__init__()
        self.values = values


def _is_data(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_data(each) for each in value)
    if isinstance(value, dict):
        return all(_is_data(each) for each in value.values())
    return isinstance(value, (Tensor, bool, int, float, str, type(None)))


def _unaliased(value: Any) -> Any:
    return tree_map(lambda t: plain(t.detach()), value)


def _eagers_error(program: Composed, module: ModuleType) -> str:
    """What eager raises, outside any autocast."""
    made = module.Program().train(program.has("training mode"))
    try:
        made(*module.inputs())
    except Exception as error:
        return first_line(error)
    return ""


def _is_eagers(error: Exception, program: Composed, module: ModuleType) -> bool:
    """Whether eager raises what freezing tells of an example."""
    plain = [text.replace("'", "") for text in (_eagers_error(program, module), first_line(error))]
    eagers, told = plain
    return bool(eagers) and told.endswith(eagers.partition(": ")[2])


def outcome(program: Composed, door: Door, api: Api | None = None) -> Outcome:
    """What comes of a program at a door; no verdict of PyTorch's."""
    api = api or Api()
    with contextlib.ExitStack() as stack:
        # What a program has entered by hand before it raised, it leaves to the next one.
        stack.callback(restore_autocast, autocast_state())
        stack.enter_context(torch.set_grad_enabled(torch.is_grad_enabled()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        module = stack.enter_context(loaded(program.source))
        try:
            return _Checker(program, door, module, api).check()
        except Difference as found:
            return Outcome("differs", found.kind, found.detail)
        except NotCompiled as error:
            return Outcome("PyTorch's", NOT_COMPILED, str(error))
        except jit_amp.AutocastError as error:
            match = _CODE.search(str(error))
            code = match[1] if match else "no code"
            allowed = program.refusals(door.how.frozen)
            if code in allowed:
                return Outcome("refused", code, str(error))
            return Outcome("differs", f"refused: {code}", str(error))
        except Exception as error:
            runs = (door.make == "explain" or door.how.traces) and not isinstance(api, PyTorch)
            if runs and first_line(error) == _eagers_error(program, module):
                return Outcome("raises", first_line(error))
            if "the module cannot run example" in str(error) and _is_eagers(error, program, module):
                return Outcome("raises", first_line(error))
            return Outcome("differs", NOT_MADE, f"{first_line(error)}\n{error}")


def check(program: Composed, door: Door) -> Outcome:
    """What comes of a program at a door."""
    found = outcome(program, door)
    first = found.detail.startswith("call 1,")  # it runs as it is written
    no_grad = "torch.no_grad" in program.source
    if found.kind == "requires_grad" and door.how.frozen and no_grad and not first:
        return Outcome("PyTorch's", found.kind, "its executor differentiates there: docs/limits.md")
    if found.verdict != "differs" or not _may_be_pytorchs(found.kind, program, door):
        return found
    if (
        found.kind == "backward raises"
        and door.call == "checkpoint"
        and program.has("no scope at all")
    ):
        return Outcome("PyTorch's", found.kind, "docs/training.md, Checkpoints")
    saves = found.kind == "eager raises" and "Inference tensors cannot be saved" in found.detail
    if saves and "torch.jit.script" in program.source:
        return Outcome("PyTorch's", found.kind, "what it made of a scripted part for gradients")
    if door.how.traces and (why := _tracers_loss(found.kind, program, door)):
        return Outcome("PyTorch's", found.kind, why)
    if found.kind == "values" and program.has("no scope at all") and _loses_writes(program):
        return Outcome("PyTorch's", found.kind, "its compiler drops the write")
    bare = Composed(without_scopes(program.source), program.features, program.seed)
    before = torch._C._jit_set_autocast_mode(False)
    try:
        theirs = outcome(bare, pytorchs(door), PyTorch())
    finally:
        torch._C._jit_set_autocast_mode(before)
    alike = NOT_MADE if found.kind == OF_PYTORCH else found.kind
    if theirs.verdict == "differs" and theirs.kind == alike:
        return Outcome("PyTorch's", found.kind, theirs.detail)
    return found


def pytorchs(door: Door) -> Door:
    """The door, like this one, at which PyTorch without jit_amp can be asked.

    A process with jit_amp has operators of its own; another could not load them. What PyTorch has
    frozen it does not compile inside another module, what autocast does around TorchScript it does
    not differentiate, and what it has compiled keeps other tensors in a checkpoint's second run.
    """
    make = door.make
    if door.how.wrapped:
        make = "trace" if door.how.traces else "script"
    inside = door.carry == "inside another" and door.how.frozen
    carry = "as it is" if inside or door.carry == "elsewhere" else door.carry
    call = "plain" if door.call in ("ambient", "checkpoint", "beside") else door.call
    return Door(make, carry, call)


def _loses_writes(program: Composed) -> bool:
    return any(name.startswith("lost write") for name in program.features)


def _tracers_loss(kind: str, program: Composed, door: Door) -> str:
    """What PyTorch's tracer does not record, where the program without scopes does not show it."""
    of_gradients = kind == "requires_grad" or kind.startswith("gradients'")
    if of_gradients and re.search(r"torch\.(no_grad|enable_grad|inference_mode)", program.source):
        return "a trace has no no_grad"
    casts = ("write to float's result", "write to to's result", "write to type_as' result")
    of_casts = any(name.endswith(casts) for name in program.features)
    if of_casts and door.call == "ambient" and kind.endswith(("dtype", "values")):
        return "a cast that gave its operand when it was traced is one value with it"
    asks = any(map(program.has, ASKS_A_DTYPE))
    if asks and door.call == "ambient" and kind.endswith(("dtype", "values")):
        return "what Python asked while it was traced was answered then"
    if not kind.endswith("values"):
        return ""
    if door.call == "ambient" and "torch.is_autocast_enabled(" in program.source:
        return "what Python asked while it was traced was answered then"
    if program.has("attention") and door.call in ("no_grad", "inference_mode"):
        return "attention asks Python whether gradients are recorded, and computes otherwise"
    if _loses_writes(program):
        return "the tracer drops the write, and warns of it"
    return ""


def _may_be_pytorchs(kind: str, program: Composed, door: Door) -> bool:
    """Errors may be. Wrong values may be where no scope is, and in a trace, which keeps sizes."""
    errors = (NOT_MADE, "raises", "backward raises", "eager raises")
    if kind in (OF_PYTORCH, *errors, CHILD_DIES):  # a child, where an error of the frozen is told
        return True
    if kind.startswith(("refused", "touched")):
        return False
    return door.how.traces or door.call in ("vmap",) or program.has("no scope at all")


def assert_agrees(path: str, features: tuple[str, ...], *door: str) -> None:
    """Checks the module that stands in the file of a test."""
    found = check(Composed(Path(path).read_text(), features, 0), Door(*door))
    assert found.verdict != "differs", f"{found.kind}\n{found.detail}"
