"""Branches and loops that an exported program holds as a whole, as ``torch.cond`` and
``torch.while_loop``, since the value of a tensor decides.

What such a block reads from outside becomes its operands; its results are copies where they would
be operands, or one another; it may write to tensors outside, and change no list, dictionary or
attribute there. What cannot be said so is refused at the line of the
branch or the loop.

In one piece: branches and loops hold one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Protocol

import torch
from torch import SymBool, Tensor
from torch.utils import _pytree as pytree

from jit_amp import _C
from jit_amp._export.interpreter.aliases import Parted
from jit_amp._export.interpreter.attributes import Attributes
from jit_amp._export.interpreter.decided import Decided, Own
from jit_amp._export.interpreter.known_values import KnownValues
from jit_amp._export.interpreter.one_sided import OneWay, is_of_ints, side_alone
from jit_amp._export.interpreter.plain_operators import PLAIN
from jit_amp._export.interpreter.sides import (
    Closed,
    Side,
    Uneven,
    agree,
    as_number,
    as_operand,
    empty,
    fill,
    reason,
)
from jit_amp._export.interpreter.steps import Code, Step
from jit_amp._export.interpreter.values import (
    UNINITIALIZED,
    Frame,
    Raised,
    TooLong,
    Truth,
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


class Running(Protocol):
    """What a branch or a loop needs of the interpreter that it stands in."""

    code: Code
    decided: Decided
    own: dict[Any, Own]
    parted: Parted
    known: KnownValues
    attributes: Attributes

    def run(self, code: Code, frame: Frame, fixed: bool = False) -> list[Any]: ...

    def refuse(self, step: Step, code: int, arguments: list[str]) -> NoReturn: ...

    def forced(self, truth: Truth) -> Any: ...


_MOVED = object()
_ENDED = -1  # a number that no value of a graph has: of False
_CHANGES = frozenset(
    f"aten::{name}"
    for name in (
        "_set_item", "append", "insert", "extend", "pop", "clear", "Delete", "reverse", "sort",
        "remove", "update", "setdefault", "popitem", "add_",
    )
) | {"prim::SetAttr"}  # fmt: skip
_OF_SIZES = frozenset(
    f"aten::{name}"
    for name in ("size", "numel", "dim", "len", "gt", "ge", "lt", "le", "eq", "ne", "__not__")
)  # fmt: skip


class WholeBlocks:
    """Runs whole blocks, the sides of branches and the bodies of loops, for the interpreter.

    Attributes:
        depth: of the blocks that are being run, one in another.
    """

    def __init__(self, interpreter: Running) -> None:
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
        parted = self._interpreter.parted
        among: list[list[set[int]]] = [parted.among([leaves[i] for i in tensors])]
        written: set[int] = set()  # of what it carries
        is_writing = any(each.writes for each in body.all_steps())

        def ask(condition: Tensor, *_: Any) -> Tensor:
            return condition.clone()

        def turn(_: Tensor, *operands: Any) -> tuple[Any, ...]:
            own = list(leaves)
            carried = operands[: len(tensors)]
            if is_writing:
                copies = [torch.ops.aten.clone.default(x) for x in carried]
                parted.part(step, [(x, {i}) for i, x in enumerate(copies)], carried)
                carried = tuple(copies)
            for i, x in zip(tensors, carried, strict=True):
                own[i] = x
            before = pytree.tree_unflatten(own, spec)
            values, flag = self._run_with_effects(
                body, closed, operands[len(tensors) :], [0, *before]
            )
            written.update(i for i, x in enumerate(carried) if storage_of(x) in closed.wrote)
            condition, after = values[0], pytree.tree_flatten(values[1:])
            if not is_alike((own, spec), after):
                raise TypeError("a number or a list that it carries changes")
            if not isinstance(condition, Truth) or not isinstance(condition.of, Tensor):
                raise TypeError("its condition is no tensor")
            goes_on = torch.ops.aten.logical_or.default(as_condition(condition.of), flag != 0)
            moved = [goes_on, *(after[0][i] for i in tensors)]
            parts.append([parted.sources(x, operands) for x in moved])
            among.append(parted.among(moved[1:]))
            if is_writing and any(map(any, among)):
                raise TypeError("it writes to tensors, and two that it carries may be one")
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
        # false, when it has ended
        self._effects.append(torch.ops.aten.to.dtype(made[0], torch.float32))
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
        for each in among:
            parted.part(step, list(zip(results, each, strict=True)), results)
        for i in written:
            parted.overtake(step, before[i])
        for i, value in zip(tensors, results, strict=True):
            leaves[i] = value
        values: list[Any] = pytree.tree_unflatten(leaves, spec)
        return values

    def branches(self, step: Step, frame: Frame, condition: Any, blocks: list[Code]) -> list[Any]:
        """Both sides, or, where one only raises, the other and an assertion."""
        for side, block in enumerate(blocks):
            raises = next((s for s in block.steps if s.node.kind() == "prim::RaiseException"), None)
            if raises is not None:
                before = block.steps[: block.steps.index(raises)]
                if any(each.writes or each.node.kind() == "prim::SetAttr" for each in before):
                    said = "a side changes something, and raises then"
                    self._interpreter.refuse(step, 501, [said])
                self._assert(condition, holds=side == 1, frame=frame, block=block, raises=raises)
                return self._interpreter.run(blocks[1 - side], frame)
        if not any(block.steps for block in blocks) and not step.outputs:
            return []
        kinds = [str(x.type()) for x in step.node.outputs()]
        if kinds == ["bool"] and (decided := self._of_bools(frame, condition, blocks)) is not None:
            return [decided]
        if (chosen := self._interpreter.decided.one_way.get(step.number)) is not None:
            said = "the program goes a way here that it could not be exported for"
            self._check(condition, holds=chosen == 0, message=f"{said}\n{step.trace}")
            return self._interpreter.run(blocks[chosen], frame)
        try:
            return self._cond(step, frame, condition, blocks, kinds)
        except _C.AutocastError as error:
            is_count = self.depth == 0 and not self._is_own(condition)
            if is_count and (chosen := side_alone(condition, error)) is not None:
                raise OneWay(step.number, chosen, step.trace, error) from error
            raise

    def _is_own(self, condition: Any) -> bool:
        """Whether it asks about a number of its own, which is no number of elements."""
        numbers = {own.number.node.expr for own in self._interpreter.own.values()}
        return isinstance(condition, SymBool) and bool(condition.node.expr.free_symbols & numbers)

    def _of_bools(self, frame: Frame, condition: Any, blocks: list[Code]) -> Any:
        """What ``and``, ``or`` and ``not`` of comparisons of sizes give, which are branches too;
        None where it is something else."""
        steps = [each for block in blocks for each in block.all_steps()]
        if not isinstance(condition, SymBool) or not all(
            each.is_fixed or each.node.kind() in _OF_SIZES for each in steps
        ):
            return None
        yes, no = (self._interpreter.run(block, frame)[0] for block in blocks)
        if type(yes) is bool and type(no) is bool:
            inverse = PLAIN["aten::__not__"](condition)
            return yes if yes == no else condition if yes else inverse
        if no is False and isinstance(yes, SymBool):
            return condition & yes
        if yes is True and isinstance(no, SymBool):
            return condition | no
        return None

    def turn(self, step: Step, frame: Frame, goes_on: Any, body: Code, counter: int) -> list[Any]:
        """One turn of a loop over a number, or none where the loop has ended before, by ``break``
        or ``return``. What the body takes is in the frame. ``counter``: which of its results counts
        the turns, if one does."""
        frame[_ENDED] = False
        ended = Code([], results=[_ENDED, *body.parameters[1:]])
        once = replace(body, parameters=[])
        if counter:
            once.results = [*body.results]
            once.results[counter] = body.parameters[counter]
        kinds = ["bool", *(str(x.type()) for x in step.node.outputs())]
        values = self._cond(step, frame, goes_on, [once, ended], kinds)
        if counter:
            values[counter] += 1
        return values

    def _assert(self, condition: Any, holds: bool, frame: Frame, block: Code, raises: Step) -> None:
        """The program goes on only where the condition is as said."""
        message = "the program raises"
        producers = {number: s for s in block.all_steps() for number in s.outputs}
        if made := producers.get(raises.inputs[0]):
            value = made.run(frame) if made.node.kind() == "prim::Constant" else None
            message = str(value or message)
        elif raises.inputs[0] in frame:
            message = str(frame[raises.inputs[0]])
        self._check(condition, holds, message)

    @staticmethod
    def _check(condition: Any, holds: bool, message: str) -> None:
        if isinstance(condition, SymBool) and not is_of_ints(condition):
            condition = as_condition(as_operand(condition))  # torch.export drops checks of floats
        if isinstance(condition, Tensor):
            holding = condition if holds else torch.ops.aten.logical_not.default(condition)
            torch.ops.aten._assert_async.msg(holding, message)
        else:
            check: Any = torch._check
            check(condition if holds else PLAIN["aten::__not__"](condition), lambda: message)

    def _cond(
        self, step: Step, frame: Frame, condition: Any, blocks: list[Code], kinds: list[str]
    ) -> list[Any]:
        """``torch.cond``: what both sides read are its operands. ``kinds``: the types of what they
        give."""
        closed = self._closed(frame, blocks)
        if isinstance(condition, Tensor):
            condition = as_condition(condition)
        truths = [i for i, kind in enumerate(kinds) if kind == "bool"]
        sides = [self._side(i, block, closed, truths) for i, block in enumerate(blocks)]
        try:
            made = self._as_cond(condition, sides, closed.operands)
        except (_C.AutocastError, Raised, TooLong, MemoryError):
            raise
        except Exception as error:
            self._interpreter.refuse(step, 501, [reason(error)])
        if not agree(*sides):
            self._interpreter.refuse(
                step, 501, ["its sides give other numbers, or lists of others"]
            )
        self._see_written(closed)
        of_both = [a | b for a, b in zip(sides[0].parts, sides[1].parts, strict=True)]
        self._interpreter.parted.part(step, list(zip(made, of_both, strict=False)), closed.operands)
        among = [a | b for a, b in zip(sides[0].among, sides[1].among, strict=True)]
        self._interpreter.parted.part(step, list(zip(made, among, strict=False)), made)
        moved_results = iter(made)
        results = [next(moved_results) if each is _MOVED else each for each in sides[0].plain]
        self._effects.append(made[-1])
        values: list[Any] = pytree.tree_unflatten(results, sides[0].spec)
        for i, one, other in zip(truths, sides[0].decided, sides[1].decided, strict=True):
            is_decided = type(one) is bool and type(other) is bool and one == other
            values[i] = one if is_decided else Truth(values[i])
        return values

    def _as_cond(
        self, condition: Any, sides: list[Side], operands: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """Once more where a side gives what nobody reads, such as the result before a return, and
        now it is known what the other gives there: the first time ends before anything is in the
        graph."""

        def run(side: Side, other: Side) -> Callable[..., tuple[Any, ...]]:
            def of(*given: Any) -> tuple[Any, ...]:
                made = side.run(*given)
                if fill(side, other):
                    raise Uneven
                return made

            return of

        for _ in range(2):
            before = [dict(side.fill) for side in sides]
            for side in sides:
                side.values = []
            try:
                made: tuple[Any, ...] = torch.ops.higher_order.cond(
                    condition, run(*sides), run(*reversed(sides)), operands
                )
            except Exception:
                if all(a.keys() == b.fill.keys() for a, b in zip(before, sides, strict=True)):
                    raise
            else:
                return made
        raise Uneven("one side gives what the other does not")

    def _side(self, number: int, block: Code, closed: Closed, truths: list[int]) -> Side:
        parted = self._interpreter.parted

        def run(*operands: Any) -> tuple[Any, ...]:
            try:
                values, flag = self._run_with_effects(block, closed, operands)
            except _C.AutocastError as error:
                error.__dict__["side"] = number  # of the outermost branch
                raise
            values = [
                pytree.tree_map(empty, side.fill[i])
                if value is UNINITIALIZED and i in side.fill
                else value
                for i, value in enumerate(values)
            ]
            side.values = list(values)
            side.decided = [values[i] for i in truths]
            for i, value in enumerate(values):
                if i in truths and value is not UNINITIALIZED:
                    # torch.cond differentiates no results that are bools
                    values[i] = torch.ops.aten.to.dtype(as_truth(value), torch.float32)
                elif isinstance(value, Truth):  # a bool that may be None
                    values[i] = self._interpreter.forced(value)
            results, side.spec = pytree.tree_flatten(values)
            side.plain = [_MOVED if is_moved(r) else r for r in results]
            moved = [r for r in results if is_moved(r)]
            side.parts = [parted.sources(r, operands) for r in moved]
            side.among = parted.among(moved)
            return (*without_aliases(moved, operands), flag)

        side = Side(run)
        return side

    def _see_written(self, closed: Closed) -> None:
        """What a branch or a loop has written to has other values than were known."""
        written = [closed.leaves[i] for i in closed.written]
        self._interpreter.known.forget(written)
        for x in written:
            forget_constant(x)
        self._interpreter.parted.watch((), written)

    def _closed(self, frame: Frame, blocks: list[Code]) -> Closed:
        """Returns what the blocks read from outside, by value."""
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
        """Runs the block on what stands for the closed values that are moved. It may write to
        tensors outside, and change no list, dictionary or attribute there."""
        stands_for = {
            id(closed.leaves[i]): as_number(closed.leaves[i], operand)
            for i, operand in zip(closed.moved, operands, strict=True)
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
            closed.wrote = parted.wrote
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
        """What the block gives, and a zero that all branches and loops in it have given: of those
        whose results nobody reads, PyTorch would drop what they write. And it loads no branch
        without results. It is no bool, of which torch.cond has no gradients."""
        before, self._effects = self._effects, []
        try:
            values = self._run_closed(block, closed, operands, parameters)
            flag: Tensor = torch.ops.aten.zeros.default([], dtype=torch.float32)
            for each in self._effects:
                flag = torch.ops.aten.add.Tensor(flag, each)
        finally:
            self._effects = before
        return values, flag

    def _hands_on_what_changes(self, values: Any, given: Any) -> bool:
        """Whether containers come out that came in: new ones stand for them afterwards."""
        ids = {id(each) for each in containers(given)}
        return any(id(each) in ids for each in containers(values)) and any(
            each.node.kind() in _CHANGES for each in self._interpreter.code.all_steps()
        )
