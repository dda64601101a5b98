"""What flows from part to part of a model under autocast, in the reduced dtype."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten
from torch.utils.weak import WeakTensorKeyDictionary


class Overflow(NamedTuple):
    text: str  # which operator it was, and where
    parts: frozenset[str]  # that it was in


class Flow:
    """Which parts' results a tensor is made of, and which overflow it holds.

    A result in the reduced dtype is made of the parts that computed it and of what these computed
    it of, back to the last operator for which autocast casts: that one has its operands in the
    reduced dtype in any case.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype, self._largest = dtype, torch.finfo(dtype).max
        self._made_of: Any = WeakTensorKeyDictionary()  # names of parts
        self._overflows: Any = WeakTensorKeyDictionary()

    def made_of(self, values: Iterable[Any]) -> frozenset[str]:
        """The parts that values in the reduced dtype are made of."""
        return frozenset[str]().union(*(self._made_of.get(v, ()) for v in self._reduced(values)))

    def overflow_in(self, values: Iterable[Any]) -> Overflow | None:
        """An overflow, of which the largest number of the dtype is in one of the values."""
        found = (self._overflows.get(each) for each in self._reduced(values))
        return next((each for each in found if each), None)

    def note(self, given: list[Any], results: list[Any], parts: frozenset[str]) -> None:
        """What an operator gives is made of these parts, and may hold an overflow that it is
        given."""
        overflow = self.overflow_in(given)
        for each in self._reduced(results):
            self._made_of[each] = parts
            if overflow and each.numel() and each.abs().max().item() >= self._largest:
                self._overflows[each] = overflow

    def note_overflow(self, results: list[Any], text: str, parts: Iterable[str]) -> None:
        """These had values beyond the dtype's largest number, which they hold in their place."""
        for each in self._reduced(results):
            self._overflows[each] = Overflow(text, frozenset(parts))

    def _reduced(self, values: Iterable[Any]) -> list[Tensor]:
        return [each for each in values if isinstance(each, Tensor) and each.dtype is self._dtype]


def computes_in(func: Any, result: Any, dtypes: Iterable[torch.dtype]) -> bool:
    """Whether an operator gives elements in one of the dtypes, and is no mere cast or view."""
    if func is torch.ops.aten._to_copy.default or func.is_view:
        return False
    return any(
        isinstance(each, Tensor) and each.dtype in dtypes and each.numel() > 0
        for each in tree_flatten(result)[0]
    )
