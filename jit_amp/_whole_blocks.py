"""Branches and loops that an exported program holds as a whole, as ``torch.cond`` and
``torch.while_loop``, since the value of a tensor decides.

What such a block reads from outside becomes its operands; its results are copies where they would
be operands; and it may change nothing outside. What cannot be said so is refused at the line of the
branch or the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from jit_amp import _C
from jit_amp._graph_steps import Code, Step
from jit_amp._graph_values import (
    Frame,
    Raised,
    TooLong,
    Truth,
    aliased,
    as_condition,
    as_truth,
    containers,
    forget_constant,
    is_alike,
    is_moved,
    is_same,
    storage_of,
    without_aliases,
)
from jit_amp._meanings import PLAIN

if TYPE_CHECKING:
    from jit_amp._interpreter import Interpreter

_MOVED = object()
_CHANGES = frozenset(
    f"aten::{name}"
    for name in (
        "_set_item", "append", "insert", "extend", "pop", "clear", "Delete", "reverse", "sort",
        "remove", "update", "setdefault", "popitem", "add_",
    )
)  # fmt: skip


@dataclass
class Closed:
    """The values that blocks read from outside, by number and flattened."""

    numbers: list[int]
    leaves: list[Any]
    spec: Any
    written: set[int] = field(default_factory=set)
    """Of the leaves, by what runs."""

    @property
    def moved(self) -> list[int]:
        """Each tensor once."""
        first = {id(leaf): i for i, leaf in reversed(list(enumerate(self.leaves)))}
        return [i for i, leaf in enumerate(self.leaves) if is_moved(leaf) and first[id(leaf)] == i]

    @property
    def operands(self) -> tuple[Any, ...]:
        """What ``torch.cond`` and ``while_loop`` are told of; the rest is fixed."""
        return tuple(self.leaves[i] for i in self.moved)


class WholeBlocks:
    """Runs blocks for the interpreter.

    Attributes:
        depth: of the blocks that are being run, one in another.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self.depth = 0
        self._effects: list[Tensor] = []

    def while_loop(
        self, step: Step, frame: Frame, body: Code, goes_on: Any, carried: list[Any]
    ) -> list[Any]:
        """``torch.while_loop``, of tensors that keep their sizes and dtypes."""
        closed = self._closed(frame, [body])
        leaves, spec = pytree.tree_flatten(carried)
        tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        if body.parameters[0] in body.read() or not isinstance(goes_on, Tensor):
            self._interpreter.refuse(step, 502, [])

        parts: list[list[set[int]]] = []

        def ask(condition: Tensor, *_: Any) -> Tensor:
            return condition.clone()

        def turn(_: Tensor, *operands: Any) -> tuple[Any, ...]:
            own = list(leaves)
            for i, operand in zip(tensors, operands[: len(tensors)], strict=True):
                own[i] = operand
            before = pytree.tree_unflatten(own, spec)
            values, flag = self._run_with_effects(
                body, closed, operands[len(tensors) :], [0, *before]
            )
            condition, after = values[0], pytree.tree_flatten(values[1:])
            if not is_alike((own, spec), after):
                raise TypeError("a number or a list that it carries changes")
            if not isinstance(condition, Truth) or not isinstance(condition.of, Tensor):
                raise TypeError("its condition is no tensor")
            goes_on = torch.ops.aten.logical_or.default(as_condition(condition.of), flag)
            moved = [goes_on, *(after[0][i] for i in tensors)]
            parts.append([aliased(x, operands) for x in moved])
            return without_aliases(moved, operands)

        given = (as_condition(goes_on), *(leaves[i] for i in tensors))
        try:
            made = torch.ops.higher_order.while_loop(
                ask, turn, without_aliases(given, given), closed.operands
            )
        except (_C.AutocastError, Raised, TooLong, MemoryError):
            raise
        except Exception:  # of any class: by torch.export, about what the loop carries
            self._interpreter.refuse(step, 502, [])
        self._see_written(closed)
        self._effects.append(made[0])  # false, when it has ended
        results = list(made[1:])
        # autograd takes no writes to them
        if any(each.writes for each in self._interpreter.code.all_steps()):
            results = [torch.ops.aten.clone.default(x) for x in results]
        # It may run no times: then a result is what came in.
        before = [leaves[i] for i in tensors]
        of = [{i} | found for i, found in enumerate(parts[-1][1:])]
        self._interpreter.parted.part(
            step, list(zip(results, of, strict=True)), [*before, *closed.operands]
        )
        for i, value in zip(tensors, results, strict=True):
            leaves[i] = value
        values: list[Any] = pytree.tree_unflatten(leaves, spec)
        return values

    def branches(self, step: Step, frame: Frame, condition: Any, blocks: list[Code]) -> list[Any]:
        """Both sides, or, where one only raises, the other and an assertion."""
        for side, block in enumerate(blocks):
            raises = next((s for s in block.steps if s.node.kind() == "prim::RaiseException"), None)
            if raises is not None:
                self._assert(condition, holds=side == 1, frame=frame, block=block, raises=raises)
                return self._interpreter.run(blocks[1 - side], frame)
        if not any(block.steps for block in blocks) and not step.outputs:
            return []
        return self.cond(step, frame, condition, blocks)

    def _assert(self, condition: Any, holds: bool, frame: Frame, block: Code, raises: Step) -> None:
        """The program goes on only where the condition is as said."""
        message = "the program raises"
        producers = {number: s for s in block.all_steps() for number in s.outputs}
        if made := producers.get(raises.inputs[0]):
            value = made.run(frame) if made.node.kind() == "prim::Constant" else None
            message = str(value or message)
        elif raises.inputs[0] in frame:
            message = str(frame[raises.inputs[0]])
        if isinstance(condition, Tensor):
            holding = condition if holds else torch.ops.aten.logical_not.default(condition)
            torch.ops.aten._assert_async.msg(holding, message)
        else:
            check: Any = torch._check
            check(condition if holds else PLAIN["aten::__not__"](condition), lambda: message)

    def cond(self, step: Step, frame: Frame, condition: Any, blocks: list[Code]) -> list[Any]:
        """``torch.cond``: what both sides read are its operands."""
        closed = self._closed(frame, blocks)
        if isinstance(condition, Tensor):
            condition = as_condition(condition)
        shapes: list[tuple[Any, list[Any]]] = []
        parts: list[list[set[int]]] = []

        truths = [i for i, x in enumerate(step.node.outputs()) if str(x.type()) == "bool"]
        decided: list[list[Any]] = []  # those that a side gives as numbers

        def side(block: Code) -> Callable[..., Any]:
            def run(*operands: Any) -> tuple[Any, ...]:
                values, flag = self._run_with_effects(block, closed, operands)
                decided.append([values[i] for i in truths])
                for i, value in enumerate(values):
                    if i in truths:
                        values[i] = as_truth(value)
                    elif isinstance(value, Truth):  # a bool that may be None
                        values[i] = self._interpreter.forced(value)
                results, of = pytree.tree_flatten(values)
                shapes.append((of, [_MOVED if is_moved(r) else r for r in results]))
                moved = [r for r in results if is_moved(r)]
                parts.append([aliased(r, operands) for r in moved])
                return (*without_aliases(moved, operands), flag)

            return run

        try:
            made = torch.ops.higher_order.cond(
                condition, side(blocks[0]), side(blocks[1]), closed.operands
            )
        except (_C.AutocastError, Raised, TooLong, MemoryError):
            raise
        except Exception as error:
            said = str(error).strip().splitlines() or [""]
            self._interpreter.refuse(step, 501, [f"{type(error).__name__}: {said[0]}"])
        self._see_written(closed)
        (of, plain), (of_other, plain_other) = shapes[-2:]
        try:
            agree = of == of_other and plain == plain_other
        except Exception:  # of any class: by PyTorch, of numbers that tensors tell
            agree = False
        if not agree:
            self._interpreter.refuse(
                step, 501, ["its sides give other numbers, or lists of others"]
            )
        of_both = [a | b for a, b in zip(*parts[-2:], strict=True)]
        self._interpreter.parted.part(step, list(zip(made, of_both, strict=False)), closed.operands)
        moved_results = iter(made)
        results = [next(moved_results) if each is _MOVED else each for each in plain]
        self._effects.append(made[-1])
        values: list[Any] = pytree.tree_unflatten(results, of)
        for i, one, other in zip(truths, *decided[-2:], strict=True):
            is_decided = type(one) is bool and type(other) is bool and one == other
            values[i] = one if is_decided else Truth(values[i])
        return values

    def _see_written(self, closed: Closed) -> None:
        """What a branch or a loop has written to has other values than were known."""
        written = [closed.leaves[i] for i in closed.written]
        self._interpreter.known.forget(written)
        for x in written:
            forget_constant(x)
        self._interpreter.parted.watch((), written)

    def _closed(self, frame: Frame, blocks: list[Code]) -> Closed:
        """What the blocks read, by value."""
        outer: Frame = {}
        for block in blocks:
            outer.update({number: frame[number] for number in block.free() if number in frame})
            for inner in block.all_steps():
                ready = all(number in outer for number in inner.inputs)
                if inner.is_fixed and ready:
                    outer[inner.outputs[0]] = inner.run(
                        frame, *(outer[number] for number in inner.inputs)
                    )
        closed = Closed(list(outer), *pytree.tree_flatten(outer))
        # other tensors stand for them in the blocks
        self._interpreter.attributes.use(closed.leaves)
        self._interpreter.parted.watch(closed.leaves, ())
        return closed

    def _run_closed(
        self,
        block: Code,
        closed: Closed,
        operands: Sequence[Any],
        parameters: Sequence[Any],
    ) -> list[Any]:
        """Runs the block on what stands for the closed values that are moved. It may change nothing
        outside."""
        stands_for = {
            id(closed.leaves[i]): operand for i, operand in zip(closed.moved, operands, strict=True)
        }
        own = [stands_for.get(id(leaf), leaf) for leaf in closed.leaves]
        attributes, known = self._interpreter.attributes, self._interpreter.known
        parted = self._interpreter.parted
        before, numbers = attributes.now(), dict(known.numbers)
        inside: Frame = pytree.tree_unflatten(own, closed.spec)
        inside.update(zip(block.parameters, parameters, strict=True))
        self.depth += 1
        wrote, parted.wrote = parted.wrote, set()
        try:
            values = self._interpreter.run(block, inside, fixed=True)
            for i, operand in zip(closed.moved, operands, strict=True):
                if isinstance(operand, Tensor) and storage_of(operand) in parted.wrote:
                    closed.written.add(i)
            parted.watch(operands, ())
        finally:
            self.depth -= 1
            parted.wrote = wrote
        if self._hands_on_what_changes(values, (inside, parameters)):
            raise TypeError(
                "a list or dictionary of the program comes out, and is changed somewhere"
            )
        attributes.put_back(before)
        known.numbers = numbers
        after = pytree.tree_flatten({number: inside[number] for number in closed.numbers})
        if not is_same(after, (own, closed.spec)):
            raise TypeError("a side changes a list or dictionary")
        return values

    def _run_with_effects(
        self, block: Code, closed: Closed, operands: Sequence[Any], parameters: Sequence[Any] = ()
    ) -> tuple[list[Any], Tensor]:
        """What the block gives, and a false tensor that all branches and loops in it have given: of
        those whose results nobody reads, PyTorch would drop what they write. And it loads no branch
        without results."""
        before, self._effects = self._effects, []
        try:
            values = self._run_closed(block, closed, operands, parameters)
            flag: Tensor = torch.ops.aten.zeros.default([], dtype=torch.bool)
            for each in self._effects:
                flag = torch.ops.aten.logical_or.default(flag, each)
        finally:
            self._effects = before
        return values, flag

    def _hands_on_what_changes(self, values: Any, given: Any) -> bool:
        """Whether containers come out that came in: new ones stand for them afterwards."""
        ids = {id(each) for each in containers(given)}
        return any(id(each) in ids for each in containers(values)) and any(
            each.node.kind() in _CHANGES for each in self._interpreter.code.all_steps()
        )
