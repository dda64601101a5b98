"""Where a size of 0 or 1 gives an operator's result another shape than torch.export knows.

``squeeze`` drops a dimension: torch.export traces it for the example, and need not look at the
size. The exported program calls the same operator, so that the result has the dimensions of the
call; but what the program has asked of it, or of what was computed from it, was answered for the
example. Of other operators' questions, the shape of the result tells whether the answer matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy  # type: ignore[import-untyped]  # torch requires it
import torch
from torch import SymBool, SymInt, Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.utils import _pytree as pytree

from jit_amp._export.interpreter.plain_operators import for_real
from jit_amp._export.interpreter.steps import Step
from jit_amp._export.interpreter.values import TooLong
from jit_amp._export.sizes.small import GUARDED, NO_VALUE, UNSEEN, hint, refuses_one

_ASKS = frozenset(f"aten::{name}" for name in ("dim", "is_same_size", "len", "size", "stride"))
_SOME = 3  # a size that only a run tells


class Ranks:
    """Watches how many dimensions the tensors of a run have."""

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[Tensor, list[SymInt]]] = {}  # by id

    def asks(self, step: Step, operands: list[Any]) -> int:
        """Guards that the sizes are not 1, or checks it where only a run tells, if a step that is
        about to run asks.

        Returns:
            0 if it does not ask, else as depends_on_small_sizes has it.
        """
        if not self._sizes or step.node.kind() not in _ASKS:
            return 0
        found = [size != 1 for size in self._sizes_of(operands)]
        is_taken = any(map(statically_known_true, found))
        for each in found:
            if isinstance(each, SymBool) and free_unbacked_symbols(each):
                torch._check(each)
            else:
                bool(each)
        return UNSEEN if is_taken else GUARDED if found else 0

    def watch(self, step: Step, operands: list[Any], made: Any) -> None:
        """Compares the dimensions of the results of a step with those of its operands.

        Raises:
            TooLong: a size of 1 in the example has given fewer dimensions than torch.export knows.
        """
        results = [x for x in pytree.tree_leaves(made) if isinstance(x, Tensor)]
        if not results:
            return
        sizes = self._sizes_of(operands) if self._sizes else []
        if isinstance(made, Tensor) and not step.writes:
            sizes += _dropped(step, operands, made)
        if sizes:
            self._sizes.update((id(x), (x, sizes)) for x in results)

    @staticmethod
    def matter(step: Step, operands: list[Any], made: Any, guards: Iterable[Any]) -> bool:
        """Whether the guards of a step that has run have to refuse sizes of 0 and 1: the shapes
        that it has made, as torch.export knows them, would be others."""
        if not step.node.kind().startswith("aten::"):
            return False  # the program asks
        refusing = [guard.expr for guard in guards if refuses_one(guard.expr)]
        symbols = set().union(*(guard.free_symbols for guard in refusing))
        small = ({symbol: size} for symbol in symbols for size in (0, 1))
        return any(_makes_the_same(step, operands, made, sizes) is False for sizes in small)

    @staticmethod
    def is_needless(step: Step, operands: list[Any], made: Any, guard: Any) -> bool:
        """Whether a step that has run need not guard that a size, which the program has computed of
        several free ones, is not 1: what it makes would have the same shape. The number of windows
        in a batch is such a size."""
        expression = guard.expr
        if not step.node.kind().startswith("aten::") or not isinstance(expression, sympy.Ne):
            return False
        computed = [x for x in expression.args if x != 1]
        if len(computed) != 1 or len(computed[0].free_symbols) < 2:
            return False
        return _makes_the_same(step, operands, made, {computed[0]: 1}) is True

    def _sizes_of(self, operands: Any) -> list[SymInt]:
        held = [self._sizes.get(id(x)) for x in pytree.tree_leaves(operands)]
        return [size for each in held if each for size in each[1]]


def _dropped(step: Step, operands: list[Any], made: Tensor) -> list[SymInt]:
    """The sizes that drop a dimension if they are 1."""
    if not step.node.kind().startswith("aten::"):
        return []
    tensors = [x for x in pytree.tree_leaves(operands) if isinstance(x, Tensor)]
    sizes = {
        size.node.expr: size
        for size in (size for x in tensors for size in [*x.shape])
        if isinstance(size, SymInt)
    }
    ones = [expr for expr, size in sizes.items() if hint(size) == 1]
    if ones and _has_another_rank(step, operands, made, {}):
        raise TooLong("an operator does something else for a size of 1")
    if len(tensors) != 1 or _memory(made) != _memory(tensors[0]):
        return []
    return [
        size
        for expr, size in sizes.items()
        if expr not in ones and _has_another_rank(step, operands, made, {expr: 1})
    ]


def _makes_the_same(
    step: Step, operands: list[Any], made: Any, sizes: Mapping[Any, int]
) -> bool | None:
    """Whether an operator makes the shapes that torch.export knows; None where it makes no tensors,
    or raises: then it does so when the program is called, too.

    Args:
        sizes: by expression; others are the example's.
    """
    ran, known = (
        [x for x in pytree.tree_leaves(each) if isinstance(x, Tensor)]
        for each in (_run_for(step, operands, sizes), made)
    )
    return [[*x.shape] for x in ran] == _shapes(known, sizes) if ran else None


def _shapes(tensors: list[Tensor], sizes: Mapping[Any, int]) -> list[list[Any]]:
    """Nothing where one has no value for these sizes."""
    try:
        return [[hint(size, sizes) for size in x.shape] for x in tensors]
    except NO_VALUE:
        return []


def _memory(x: Tensor) -> int | None:
    """What tells the memory of a tensor from that of others."""
    return x.untyped_storage()._cdata if x.layout == torch.strided else None


def _has_another_rank(
    step: Step, operands: list[Any], made: Tensor, sizes: Mapping[Any, int]
) -> bool:
    """Whether an operator gives another number of dimensions than it has made."""
    found = _run_for(step, operands, sizes)
    return isinstance(found, Tensor) and found.dim() != made.dim()


def _run_for(step: Step, operands: list[Any], sizes: Mapping[Any, int]) -> Any:
    """What an operator makes, without memory; None where it raises.

    Args:
        sizes: by expression; others are the example's.
    """

    def without_symbols(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return hint(x, sizes)
        shape = [hint(size, sizes) for size in x.shape]
        known = [_SOME if size is None else size for size in shape]
        return torch.empty(known, dtype=x.dtype, device="meta")

    try:
        with for_real():
            return step.run({}, *pytree.tree_map(without_symbols, operands))
    except Exception:  # of any class: of values, which these tensors do not have; of other sizes
        return None
