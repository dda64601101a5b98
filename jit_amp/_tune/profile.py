"""One run of a model under autocast that tells, of each part, how much low precision hurts there.

Each operator that runs in the reduced dtype also runs in float32. The float32 results are carried
on within a part, and begin anew where another part is entered or left: so what is told of a part is
its own doing. A result that overflows is replaced by the largest number, so that one overflow does
not hide those after it. All of it is for ordering a search, which measures.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import enable_reentrant_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

from jit_amp import _C
from jit_amp._base import module_methods
from jit_amp._precision import in_float32
from jit_amp._precision.reads import Read, forget, note
from jit_amp._tune.flow import Flow, computes_in

OFTEN = 16  # calls of an operator on one line, after which it is looked at ever more seldom
PER_ELEMENT = 8  # floating point operations in whose time one element is read or written


@dataclass
class Part:
    """What was seen of one part; ``operators`` are numbers of those in it and what it calls."""

    name: str
    operators: set[int] = field(default_factory=set)
    has_own: bool = False  # operators that are in no smaller part
    has_scopes: bool = False  # in it and what it calls
    error: float = 0.0  # relative to the largest entry, the worst of its own operators
    overflows: int = 0
    underflows: int = 0
    worst: str = ""  # the operator of that error
    place: str = ""  # where it is called
    overflow_at: str = ""
    given_overflow_of: str = ""  # what overflowed before it, and gave it the largest number
    overflow_after: str = ""  # what overflows for its results are in the reduced dtype
    raised: str = ""  # what it raises in the reduced dtype
    work: float = 0.0  # of all its operators
    lines: dict[int, tuple[str, int]] = field(default_factory=dict)  # of its own operators

    @property
    def badness(self) -> tuple[bool, float]:
        return self.overflows > 0 or bool(self.raised), self.error


class Profile(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that profiles one run of the model.

    ``works`` are those of the operators of all parts, by number; ``reads``, what is read on a line.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or PyTorch imports its compiler, which takes seconds

    def __init__(self, kind: str, device_type: str, dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.parts: dict[str, Part] = {}
        self.ran = 0  # operators that computed in the reduced dtype
        self._kind, self._device_type, self._dtype = kind, device_type, dtype
        is_third = device_type == torch._C._get_privateuse1_backend_name()
        device = "PrivateUse1" if is_third else device_type.upper()
        self._key = f"Autocast{device}"  # a dispatch key of PyTorch's
        self._exact: Any = WeakTensorKeyDictionary()  # a tensor, and what it is in float32
        self._flow = Flow(dtype)
        self._can_stay = functools.cache(in_float32.is_operator)
        self._stack: list[str] = []
        self.works: list[float] = []
        self.reads: dict[tuple[str, int], Read] = {}
        self._calls: Counter[tuple[str, str, Any]] = Counter()

    # Modules.

    @contextlib.contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        names: dict[nn.Module, str] = {}
        for name, module in in_float32.modules_of(model).items():
            names.setdefault(module, name)
        forwards = {
            module: functools.partial(self._watched, name=name) for module, name in names.items()
        }
        forget()
        scopes = in_float32.scopes_noted(self.note_scope)
        noting = _C.KeptOperators([]) if self._kind == "operator" else contextlib.nullcontext()
        with module_methods.changed(forwards), scopes, noting, self:
            yield
        for part in self.parts.values():
            part.work = sum(self.works[number] for number in part.operators)

    def with_operators(self) -> list[Part]:
        """The parts that have operators of their own in the reduced dtype."""
        return [part for part in self.parts.values() if part.has_own]

    def _watched(self, forward: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(forward)
        def running_as_a_part(*args: Any, **kwargs: Any) -> Any:
            self._begin_anew((args, kwargs))
            self._stack.append(name)
            try:
                result = self._run(forward, args, kwargs)
            finally:
                self._stack.pop()
            self._begin_anew(result)
            return result

        @functools.wraps(forward)
        def running_as_a_model(*args: Any, **kwargs: Any) -> Any:
            return running_as_a_part(*args, **kwargs)

        return running_as_a_part if name else running_as_a_model

    def _run(self, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What does not run in the reduced dtype runs in float32."""
        try:
            return forward(*args, **kwargs)
        except Exception as error:  # of a model: of any class
            if self._kind != "module":
                raise
            try:
                result = in_float32.in_float32(forward, self._device_type)(*args, **kwargs)
            except Exception:
                raise error from None
            parts = self._parts_of(list(dict.fromkeys(reversed(self._stack))))
            parts[0].has_own = True
            parts[0].raised = f"raises {type(error).__name__}: {str(error)[:60]}"
            self._count(parts, 0.0)
            return result

    def _parts_of(self, names: Iterable[str]) -> list[Part]:
        return [self.parts.setdefault(name, Part(name)) for name in names]

    def _count(self, parts: Iterable[Part], work: float) -> int:
        """Adds an operator to each of the parts; returns its number."""
        self.works.append(work)
        for each in parts:
            each.operators.add(len(self.works) - 1)
        return len(self.works) - 1

    def _begin_anew(self, value: Any) -> None:
        for each in tree_flatten(value)[0]:
            if isinstance(each, Tensor):
                self._exact.pop(each, None)

    # Operators.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
        reduced = any(each.dtype is self._dtype for each in tensors)
        reduced |= kwargs.get("dtype") is self._dtype
        result = None
        if not self._stack or not (reduced or any(each in self._exact for each in tensors)):
            result = self._run_with_autocast(func, args, kwargs)
            if not self._stack or not self._is_reduced(result):
                return result
        with torch.autocast(self._device_type, enabled=False):
            exact = self._run_exactly(func, args, kwargs)
            try:
                result = func(*args, **kwargs) if result is None else result
            except RuntimeError:  # there is no such operator in this dtype
                if exact is None:
                    raise
                result = tree_map_only(Tensor, self._narrowed, exact)
            return self._observed(func, args, kwargs, result, exact, self._is_reduced(result))

    def _is_reduced(self, result: Any) -> bool:
        leaves = tree_flatten(result)[0]
        return any(isinstance(each, Tensor) and each.dtype is self._dtype for each in leaves)

    def _run_with_autocast(self, func: Any, args: Any, kwargs: Any) -> Any:
        """As outside a mode: what the operator itself calls, as that of a whole
        nn.TransformerEncoderLayer does, is autocast there."""
        if self._has_kernel(func):
            return func(*args, **kwargs)
        with enable_reentrant_dispatch():
            is_enabled = torch.is_autocast_enabled(self._device_type)
        before = torch.is_autocast_enabled(self._device_type)  # never in a mode
        torch.set_autocast_enabled(self._device_type, is_enabled)
        try:
            return func(*args, **kwargs)
        finally:
            torch.set_autocast_enabled(self._device_type, before)

    def _has_kernel(self, func: Any) -> bool:
        """Whether autocast casts for it."""
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), self._key))

    def _run_exactly(self, func: Any, args: Any, kwargs: Any) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            return None
        writes = func._schema.is_mutable

        def exact(tensor: Tensor) -> Tensor:
            found = self._exact.get(tensor)
            if found is not None:
                return found.clone() if writes else found  # type: ignore[no-any-return]
            wide = tensor.float() if tensor.dtype in in_float32.REDUCED else tensor
            return wide.clone() if writes and wide is tensor else wide

        kept = {
            key: torch.float32 if value in in_float32.REDUCED else value
            for key, value in kwargs.items()
            if not isinstance(value, Tensor)
        }
        tensors = {key: value for key, value in kwargs.items() if isinstance(value, Tensor)}
        try:
            return func(
                *tree_map_only(Tensor, exact, args), **kept, **tree_map_only(Tensor, exact, tensors)
            )
        except Exception:  # of any operator, of any library: there is nothing to compare with
            return None

    def _narrowed(self, exact: Tensor) -> Tensor:
        if not exact.is_floating_point():
            return exact
        limit = torch.finfo(self._dtype).max
        return exact.clamp(-limit, limit).to(self._dtype)

    def _observed(
        self, func: Any, args: Any, kwargs: Any, result: Any, exact: Any, reduced: bool
    ) -> Any:
        part, names, place = self._note(func, args, kwargs, result, reduced)
        name = func._overloadpacket.__name__
        given, (results, form) = tree_flatten((args, kwargs))[0], tree_flatten(result)
        casts = func._overloadpacket in flop_registry or self._has_kernel(func)
        made_of = frozenset[str]() if casts else self._flow.made_of(given)
        if part and (overflow := self._flow.overflow_in(given)):
            for each in self._parts_of(n for n in names if n not in overflow.parts):
                each.given_overflow_of = each.given_overflow_of or overflow.text
        if exact is None:
            self._flow.note(given, results, made_of.union(names))
            return result
        self._calls[part.name if part else "", place, func] += 1
        calls = self._calls[part.name if part else "", place, func]
        looks = calls <= OFTEN or calls & (calls - 1) == 0
        wanted = tree_flatten(exact)[0]
        changes = not func._schema.is_mutable and not func.is_view
        overflows: list[int] = []
        for i, (a, b) in enumerate(zip(results, wanted, strict=False)):
            if not (_is_dense(a) and _is_dense(b) and a.is_floating_point()):
                continue
            if a.shape != b.shape or not b.is_floating_point() or not a.numel():
                continue
            if not looks:
                self._exact[a] = b
                continue
            fine = a.isfinite()
            if part and self._measure(part, a, b, fine, name, place):
                overflows.append(i)
            if changes and not bool(fine.all()):
                largest = torch.finfo(a.dtype).max
                safe = b.nan_to_num(0.0, largest, -largest).clamp(-largest, largest).to(a.dtype)
                results[i] = a = torch.where(fine | ~b.isfinite(), a, safe)
            if a.dtype in (*in_float32.REDUCED, torch.float32) and b.dtype is torch.float32:
                self._exact[a] = b
        self._flow.note(given, results, made_of.union(names))
        if overflows:
            for each in self._parts_of(made_of.difference(names)):
                each.overflow_after = each.overflow_after or f"{name} at {place}"
            self._flow.note_overflow([results[i] for i in overflows], f"{name} at {place}", names)
        return torch.utils._pytree.tree_unflatten(results, form) if changes else result

    def _note(
        self, func: Any, args: Any, kwargs: Any, result: Any, reduced: bool
    ) -> tuple[Part | None, list[str], str]:
        """The part that the operator belongs to, where it runs in the reduced dtype; that one and
        those around it; its line."""
        names, file, line = self._names(sys._getframe(3))
        place = f"{in_float32.shown_file(file)}:{line}" if file else ""
        self.ran += computes_in(func, result, (self._dtype,))
        if not names:
            return None, names, place
        parts = self._parts_of(names)
        if not reduced:
            return parts[0] if parts[0].has_own else None, names, place
        parts[0].has_own = True
        number = self._count(parts, _work(func, args, kwargs, result))
        if file:
            parts[0].lines[number] = file, line
            if self._kind != "module":
                self._note_reads(sys._getframe(3), (file, line))
        return parts[0], names, place

    def _names(self, frame: types.FrameType | None) -> tuple[list[str], str, int]:
        """The parts that run in a frame, from the innermost; the user's file and line there."""
        calls = list(in_float32.users_frames(frame))
        file, line, _ = calls[0] if calls else ("", 0, "")
        if self._kind == "module":
            return list(dict.fromkeys(reversed(self._stack))), file, line
        if self._kind == "operator":
            operator = _C.running_operator()
            return [operator] if self._can_stay(operator) else [], file, line
        names = [
            f"{in_float32.shown_file(path)}:{at if self._kind == 'line' else function}"
            for path, at, function in calls
            if self._kind == "line" or function
        ]
        return list(dict.fromkeys(names)), file, line

    def note_scope(self, _: torch.autocast) -> None:
        if self._stack:
            for part in self._parts_of(self._names(sys._getframe(1))[0]):
                part.has_scopes = True

    def _note_reads(self, frame: types.FrameType | None, at: tuple[str, int]) -> None:
        while frame is not None and not in_float32.is_users(frame):
            frame = frame.f_back
        if frame is not None:
            read = self.reads.setdefault(at, Read())
            read.times += 1
            if read.times <= OFTEN:
                note(read, frame)

    def _measure(
        self, part: Part, a: Tensor, b: Tensor, fine: Tensor, name: str, place: str
    ) -> int:
        sound = fine & b.isfinite()
        scale = b.abs().nan_to_num(0.0, 0.0, 0.0).max().item()
        overflows = int((~fine & b.isfinite()).sum())
        if overflows:
            part.overflow_at = part.overflow_at or f"{name} at {place}"
            part.overflows += overflows
        part.underflows += int(((a == 0) & (b != 0)).sum())
        apart = torch.where(sound, a.float() - b, 0.0).abs().max().item()
        error = apart / scale if scale else 0.0
        if error > part.error:
            part.error, part.worst, part.place = error, name, place
        return overflows


def _is_dense(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.layout is torch.strided
        and not (value.is_nested or value.is_quantized)
    )


def _work(func: Any, args: Any, kwargs: Any, result: Any) -> float:
    """Floating point operations, and the time of reading and writing as so many of them."""
    tensors = [each for each in tree_flatten((args, kwargs, result))[0] if isinstance(each, Tensor)]
    moved = PER_ELEMENT * sum(each.numel() for each in tensors)
    if count := flop_registry.get(func._overloadpacket):
        return float(count(*args, **kwargs, out_val=result) + moved)
    if "lstm" in str(func) or "rnn" in str(func):
        sizes = sorted(each.numel() for each in tensors if each.dim() == 2)
        steps = tensors[0].numel() // max(1, tensors[0].shape[-1])
        return float(2 * sum(sizes[-2:]) * steps + moved)
    return float(moved)


def of(
    runs: Iterable[Callable[[], Any]],
    model: nn.Module,
    kind: str,
    device_type: str,
    dtype: torch.dtype,
) -> Profile:
    """A profile of the first of these runs in which an operator runs in the reduced dtype."""
    profile = Profile(kind, device_type, dtype)
    with profile.watching(model):
        for run in runs:
            run()
            if profile.ran:
                break
    return profile


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that compute in a reduced dtype."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ran = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.ran += computes_in(func, result, in_float32.REDUCED)
        return result
