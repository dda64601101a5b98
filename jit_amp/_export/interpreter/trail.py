"""Whether two runs of a program do the same: the same operators one after the other, with the same
answers to what is asked."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree


class Trail:
    """Of numbers it knows nothing, as sizes are numbers in one run and symbols in another; where
    they decide something, other operators run, or a bool is another.

    Attributes:
        value: equal for runs that did the same.
    """

    def __init__(self) -> None:
        self.value = 0

    def add(self, step: int, made: Any) -> None:
        """Takes a step that has run, with its results, into the hash."""
        self.value = hash((self.value, step, *map(_seen, pytree.tree_leaves(made))))


def _seen(made: Any) -> Any:
    if isinstance(made, Tensor):
        return made.dtype, made.device.type, made.dim()
    return made if isinstance(made, (bool, str)) or made is None else "a number"
