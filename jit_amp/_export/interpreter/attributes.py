"""The attributes of a program's modules, as one run of it reads and sets them while it is
exported.

Buffers and parameters torch.export knows: a new value of one is assigned to it. Everything else
that a module has is as it is when the program is exported. So what the program sets for itself, and
reads again, is a value like others; what it reads first and sets then would be other at the next
call. Such a program is refused, or is left to ``jit_amp._export.tracer``, which asks whether the
next call does the same (``left``).
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from jit_amp import _C
from jit_amp._export.interpreter.holder import Holder
from jit_amp._export.interpreter.steps import Step
from jit_amp._export.interpreter.values import (
    Outside,
    is_same,
    own,
    settled,
    storage_of,
    without_tensors,
)

# What hands a tensor on, and does nothing else with it.
_HANDS_ON = {
    "aten::__getitem__", "aten::append", "aten::len", "prim::GetAttr", "prim::If",
    "prim::ListConstruct", "prim::ListUnpack", "prim::Loop",
}  # fmt: skip

NO_BUFFER = "which is no buffer, and which the program both writes and reads"

ONCE = " (if only the first call sets it, call the model once before exporting)"


class Lost(enum.Enum):
    """What stands for a value with tensors or symbols, which are the run's, in the next."""

    TENSORS = enum.auto()


def _to_find(value: Any) -> Any:
    return Lost.TENSORS if without_tensors(value) is None else copy.deepcopy(value)


class Attributes:
    """By path. ``found`` are values that the program finds in place of the module's; ``refuse``
    refuses a step.

    Attributes:
        left: where attributes were read and then set to something else without tensors, all that
            were set. A program is what every call does only if a call that finds these does the
            same.
    """

    def __init__(
        self,
        holder: Holder,
        found: Mapping[str, Any],
        refuse: Callable[[Step, int, list[str]], NoReturn],
    ) -> None:
        self.left: dict[str, Any] = {}
        self._holder, self._found, self._refuse = holder, found, refuse
        self._written: dict[str, Any] = {}
        self._read: dict[str, torch._C.Node] = {}  # by which node first
        self._kept: dict[str, tuple[Any, Any]] = {}  # a value, and its parts when it was read
        self._left_by: dict[str, Step] = {}
        self._assigned: dict[str, tuple[Step, Tensor, Tensor]] = {}  # with what it was
        # An attribute may be set to itself in another dtype: the tensors that it had, what was made
        # of which by a cast, what was used otherwise, and what was set so.
        self._old: dict[int, tuple[Tensor, str]] = {}
        self._cast_of: dict[int, tuple[Tensor, Tensor]] = {}
        self._used: set[str] = set()
        self._recast: set[str] = set()

    def get(self, step: Step, path: str) -> Any:
        """Returns the value of an attribute that is no module."""
        if path in self._written:
            return self._written[path]
        if self._holder.is_tensor(path):
            return self._holder.tensor(path)
        self._read.setdefault(path, step.node)
        if path not in self._kept:
            if path in self._found:
                if self._found[path] is Lost.TENSORS:
                    self._refuse(step, 503, [path, NO_BUFFER])
                value = copy.deepcopy(self._found[path])
            else:
                value = own(self._holder.attribute(path), self._holder)
            self._kept[path] = value, pytree.tree_flatten(value)
            tensors = (x for x in self._kept[path][1][0] if isinstance(x, Tensor))
            self._old.update((id(x), (x, path)) for x in tensors)
        return self._kept[path][0]

    def set(self, step: Step, path: str, value: Any, is_inside: bool) -> None:
        """``is_inside``: in a branch or loop that the program holds as a whole."""
        try:
            self._set(step, path, value, is_inside)
        except GuardOnDataDependentSymNode:
            said = "the attribute `{}`, which is set to what the values of tensors tell{}"
            self._refuse(step, 504, [said.format(path, ONCE)])

    def _set(self, step: Step, path: str, value: Any, is_inside: bool) -> None:
        if self._holder.is_tensor(path) and isinstance(value, Tensor):
            before = self._holder.tensor(path)
            if value is before:  # written in place
                return
            like = (before.dtype, before.device) == (value.dtype, value.device)
            if like and list(before.shape) == list(value.shape):
                if is_inside:
                    raise Outside("a side assigns to an attribute")
                self._holder.assign(path, value)
                self._assigned[path] = step, value, before
                return
        if path in self._kept:
            now = pytree.tree_flatten(value)
            if is_same(now, self._kept[path][1]):  # what it was
                self._kept[path] = value, now
                self._written.pop(path, None)
                self._left_by.pop(path, None)
                return
            if path not in self._used and self._is_cast(value, path):
                self._recast.add(path)
                self._written[path] = value
                return
            value = settled(value)
            if without_tensors(value) is not None:
                self._left_by[path] = step
                self._written[path] = value
                return
        if self._holder.is_tensor(path):
            to = "None" if value is None else "another dtype, device or shape"
            self._refuse(step, 503, [path, f"which is set to {to}"])
        if path in self._read:
            self._refuse(step, 503, [path, NO_BUFFER])
        self._written[path] = value

    def watch(self, step: Step, operands: list[Any], made: Any) -> None:
        """A step has run. An attribute may be replaced by itself in another dtype or on another
        device, as models do with anchors that they keep, where nothing else is done with what it
        was: a second call finds what the first has left, and comes to the same."""
        if not self._old:
            return
        kind = step.node.kind()
        taken = [x for x in pytree.tree_leaves(operands) if id(x) in self._old]
        if kind == "aten::to" and len(taken) == 1 and taken[0] is operands[0]:
            self._cast_of[id(made)] = made, operands[0]
        elif kind not in _HANDS_ON:
            self.use(taken)

    def use(self, values: Iterable[Any]) -> None:
        """Notes that the program does something with these values."""
        for path in {self._old[id(x)][1] for x in values if id(x) in self._old}:
            self._used.add(path)
            if path in self._recast:
                _C.refuse_export(self._read[path], 503, [path, NO_BUFFER])

    def now(self) -> tuple[dict[str, Any], dict[str, tuple[Any, Any]]]:
        """Returns the attributes' values, for ``put_back``."""
        return dict(self._written), dict(self._kept)

    def put_back(self, before: tuple[dict[str, Any], dict[str, tuple[Any, Any]]]) -> None:
        """Sets the attributes to these values again; raises TypeError if one was set since."""
        if self._written != before[0]:
            raise TypeError("a side writes to an attribute")
        self._written, self._kept = before

    def end(self, wrote: AbstractSet[int]) -> None:
        """The program has run, and has written to memory. Refuses what the next call would find
        changed, and a buffer that has become another one: in eager, what is written to either then
        is written to both."""
        state = {storage_of(x) for x in self._holder.root.buffers()}
        state |= {storage_of(x) for x in self._holder.root.parameters()}
        made: dict[int, set[int]] = {}  # by memory, that of the buffers which it becomes
        for _, value, before in self._assigned.values():
            made.setdefault(storage_of(value), set()).add(storage_of(before))
        for path, (step, value, before) in self._assigned.items():
            if self._holder.is_shared(before):
                said = "a buffer that shares its memory with another one, and is set to a tensor"
                self._refuse(step, 503, [path, said])
            become = made[storage_of(value)]
            if len(become) > 1 and become & wrote:
                said = "one of two buffers that are set to one tensor, and written to"
                self._refuse(step, 503, [path, said])
            both = {storage_of(value), storage_of(before)}
            if len(both & state) == 2 and both & wrote:
                self._refuse(
                    step, 503, [path, "a buffer that is set to another one, and written to"]
                )
        for path, (value, before) in self._kept.items():
            # A list that has grown, or an object that has changed.
            is_other = not is_same(pytree.tree_flatten(value), before)
            if path in self._found:
                is_other |= without_tensors(value) != without_tensors(self._found[path])
            if is_other:
                _C.refuse_export(self._read[path], 503, [path, NO_BUFFER])
        for path, step in self._left_by.items():
            if without_tensors(self._written[path]) is None:  # by now
                self._refuse(step, 503, [path, NO_BUFFER])
        if self._left_by:
            self.left = {
                path: _to_find(value)
                for path, value in self._written.items()
                if path not in self._recast  # these come to the same
            }

    def refuse_left(self) -> NoReturn:
        """A call that finds what the one before it has left does something else."""
        path, step = next(iter(self._left_by.items()))
        self._refuse(step, 503, [path, NO_BUFFER + ONCE])

    def _is_cast(self, value: Any, path: str) -> bool:
        """Whether a value for an attribute is what it was, in another dtype."""
        was, form = self._kept[path][1]
        leaves, same_form = pytree.tree_flatten(value)
        return form == same_form and all(
            self._cast_of.get(id(new), (None, None))[1] is old
            if isinstance(old, Tensor)
            else new == old
            for new, old in zip(leaves, was, strict=True)
        )
