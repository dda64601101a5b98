"""What is known of tensors while a program is exported, beside what torch.export sees of them.

torch.export looks on at tensors without values. Some values are known all the same: small tensors
that are made of numbers, as how much a detection model scales a picture of a fixed size, or the
range of dimensions that a norm is over; the sizes that a trace has as tensors; and what is computed
of them. Where the program asks for such a value, nothing has to be decided at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import SymInt, Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from jit_amp._export.interpreter.plain_operators import (
    MOST_EXACT,
    OF_WHOLE_NUMBERS,
    PLAIN,
    SYMBOLS,
    Quotient,
    for_real,
)
from jit_amp._export.interpreter.steps import Step
from jit_amp._export.interpreter.values import NUMBERS, storage_of

MOST_KNOWN = 64  # elements of a tensor


class KnownValues:
    """The tensors are kept, so that another one does not get the place of theirs.

    Attributes:
        numbers: by the tensor's id, the number or symbol that it is; of a tensor of floats a whole
            one, or a Quotient.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, tuple[Tensor, Any]] = {}
        self._tensors: dict[int, tuple[Tensor, Tensor]] = {}

    def is_number(self, tensor: Tensor, number: Any) -> None:
        self.numbers[id(tensor)] = tensor, number

    def number(self, x: Tensor) -> Any:
        """The number that a tensor is, of the tensor's kind, or None where that is not known."""
        number = self.numbers.get(id(x), (x, None))[1]
        if isinstance(number, Quotient):
            return None
        is_float = x.is_floating_point() and number is not None
        return PLAIN["aten::Float"](number) if is_float else number

    def real(self, x: Tensor) -> Tensor | None:
        """Returns a tensor with the value that a tensor of torch.export's stands for, if it is
        known."""
        if known := self._tensors.get(id(x)):
            return known[1]
        if known_number := self.numbers.get(id(x)):
            tensor, number = known_number
            if type(number) in NUMBERS and tensor.device.type == "cpu":
                with for_real():
                    return torch.tensor(number, dtype=tensor.dtype)
        return None

    def read(self, x: Tensor, how: Callable[[Tensor], Any]) -> Any:
        """What ``how`` reads of its values, or None where they are not known."""
        real = self.real(x)
        if real is None:
            return None
        with for_real():
            return how(real)

    def forget(self, written: Iterable[Any]) -> None:
        """What shares memory with these is not known any more."""
        storages = {storage_of(x) for x in written if isinstance(x, Tensor)}
        self._tensors = _elsewhere(self._tensors, storages)
        self.numbers = _elsewhere(self.numbers, storages)

    def learn(self, step: Step, operands: list[Any], made: Any) -> None:
        """Records what is known of the results of a step that has run."""
        before = self.numbers
        if "running_mean" in step.node.schema():  # norms do not say that they write to statistics
            self.forget(pytree.tree_leaves(operands))
            return
        if step.writes:
            self.forget(pytree.tree_leaves([operands[i] for i in step.written]))
        if step.node.kind() in ("aten::tensor", "aten::as_tensor"):
            numbers = pytree.tree_leaves(operands[0])
            if len(numbers) > MOST_KNOWN or any(type(x) not in NUMBERS for x in numbers):
                return
            if isinstance(made, Tensor) and made.device.type == "cpu":
                with for_real():
                    self._tensors[id(made)] = made, torch.tensor(operands[0], dtype=made.dtype)
            return
        self._learn_number(step, operands, made, before)
        results = pytree.tree_leaves(made)
        is_small = all(isinstance(x, Tensor) and _is_small(x) for x in results)
        if not (results and is_small and step.is_pure and _has_values(step)):
            return
        given = pytree.tree_leaves(operands)
        is_of_numbers = not any(isinstance(x, Tensor) for x in given)
        if is_of_numbers and any(x.is_floating_point() for x in results):
            return  # whole ones tell dimensions and sizes
        if all(self._is_known(x) for x in given):
            real = self._real_result(step, operands)
            if real is None:
                return
            self._tensors.update(
                {
                    id(x): (x, y)
                    for x, y in zip(results, pytree.tree_leaves(real), strict=True)
                    if x.dtype is y.dtype
                }
            )

    def _real_result(self, step: Step, operands: Any) -> Any:
        """What the step gives for known values; None where it raises."""
        try:
            with for_real():
                return step.run({}, *pytree.tree_map_only(Tensor, self.real, operands))
        except Exception:  # of any class: it may be in a branch that no call takes
            return None

    def _is_known(self, x: Any) -> bool:
        return self.real(x) is not None if isinstance(x, Tensor) else not isinstance(x, SYMBOLS)

    def _learn_number(
        self, step: Step, operands: list[Any], made: Any, known: dict[int, tuple[Tensor, Any]]
    ) -> None:
        """In a trace sizes are tensors, and so is what a program computes of them. The numbers are
        computed beside them, whole ones, as those of tensors are exact; also where a tensor is of
        floats, as one that is divided and rounded up. ``known``: before the step.
        """
        if not any(isinstance(x, Tensor) and id(x) in known for x in operands):
            return
        numbers = [known.get(id(x), (x, None))[1] if isinstance(x, Tensor) else x for x in operands]
        kind = step.node.kind()
        compute = OF_WHOLE_NUMBERS.get(kind.removesuffix("_"))
        is_out = step.writes and not kind.endswith("_")  # given a tensor to write to besides
        if compute is None or is_out or not isinstance(made, Tensor) or made.dtype not in _EXACT:
            return
        number = compute(*map(_whole, numbers))
        if made.dtype is torch.float32 and not _is_exact(step, number, operands):
            return
        if type(number) in (int, SymInt) or (made.is_floating_point() and type(number) is Quotient):
            self.is_number(made, number)


_EXACT = frozenset({torch.int32, torch.int64, torch.float32, torch.float64})


def _whole(x: Any) -> Any:
    return int(x) if isinstance(x, float) and x.is_integer() else x


def _is_exact(step: Step, number: Any, operands: list[Any]) -> bool:
    """Whether float32 has the number; torch.export guards what it does not know."""
    x = number.above if isinstance(number, Quotient) else number
    becomes_float = not any(isinstance(y, Tensor) and y.is_floating_point() for y in operands)
    if not (becomes_float or step.node.kind().startswith("aten::mul")):
        return True
    if isinstance(x, SymInt) and free_unbacked_symbols(x):
        return False
    return type(x) in (int, SymInt) and bool(x <= MOST_EXACT)


def _elsewhere(
    known: dict[int, tuple[Tensor, Any]], storages: set[int]
) -> dict[int, tuple[Tensor, Any]]:
    """Returns the pairs whose tensor has none of these storages."""
    return {key: pair for key, pair in known.items() if storage_of(pair[0]) not in storages}


def _has_values(step: Step) -> bool:
    """Whether an operator gives the same values each time, as one of a user's need not."""
    kind = step.node.kind()
    return kind.startswith("aten::") and "empty" not in kind


def _is_small(x: Tensor) -> bool:
    sizes = [size for size in x.shape if not isinstance(size, SymInt)]
    return len(sizes) == x.dim() and x.device.type == "cpu" and math.prod(sizes) <= MOST_KNOWN
