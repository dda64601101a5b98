"""The sides of a branch and the body of a loop, as torch.cond and while_loop take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import SymBool, SymFloat, Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from jit_amp._export.interpreter.values import UNINITIALIZED, is_moved


@dataclass
class Closed:
    """The values that blocks read from outside, by number and flattened."""

    numbers: list[int]
    leaves: list[Any]
    spec: Any
    written: set[int] = field(default_factory=set)
    """Of the leaves, by what runs."""
    wrote: set[int] = field(default_factory=set)
    """All memory that the last run has written to."""

    @property
    def moved(self) -> list[int]:
        """The places of the leaves that move into the branch, each tensor once."""
        first = {id(leaf): i for i, leaf in reversed(list(enumerate(self.leaves)))}
        return [
            i
            for i, leaf in enumerate(self.leaves)
            if (is_moved(leaf) or _is_unknown(leaf)) and first[id(leaf)] == i
        ]

    @property
    def operands(self) -> tuple[Any, ...]:
        """What ``torch.cond`` and ``while_loop`` are told of; the rest is fixed."""
        return tuple(as_operand(self.leaves[i]) for i in self.moved)


def _is_unknown(leaf: Any) -> bool:
    """Whether it is a number, besides an int, that only a run tells."""
    return isinstance(leaf, (SymBool, SymFloat)) and bool(free_unbacked_symbols(leaf))


def as_operand(leaf: Any) -> Any:
    """Returns a value as an operand of torch.cond, which takes tensors and ints."""
    if not _is_unknown(leaf):
        return leaf
    if isinstance(leaf, SymFloat):
        return torch.ops.aten.scalar_tensor.default(leaf, dtype=torch.float64)
    choose: Any = torch.sym_ite  # has no types
    as_int = choose(leaf, 1, 0)
    return torch.ops.aten.scalar_tensor.default(as_int, dtype=torch.int64)


def as_number(leaf: Any, operand: Any) -> Any:
    if not _is_unknown(leaf):
        return operand
    return operand.item() if isinstance(leaf, SymFloat) else operand.item() != 0


@dataclass
class Side:
    """A side of a branch: what runs it, and what it has given when it ran last."""

    run: Callable[..., tuple[Any, ...]]
    values: list[Any] = field(default_factory=list)
    decided: list[Any] = field(default_factory=list)
    """The bools among them, as numbers where they are numbers."""
    plain: list[Any] = field(default_factory=list)
    """Flattened, without the tensors and sizes."""
    spec: Any = None
    parts: list[set[int]] = field(default_factory=list)
    """Of each tensor, the operands that it may be in eager."""
    among: list[set[int]] = field(default_factory=list)
    """Of each tensor, the results before it that it may be in eager."""
    fill: dict[int, Any] = field(default_factory=dict)
    """What takes the place of a value that nobody reads."""


class Uneven(TypeError):
    """The sides have to run again, as it is now known what each has to give."""


def fill(one: Side, other: Side) -> bool:
    """Whether a side gives what nobody reads where the other gives something: it gives the like."""
    changed = False
    for side, like in ((one, other), (other, one)):
        for i, (mine, its) in enumerate(zip(side.values, like.values, strict=False)):
            if mine is UNINITIALIZED and its is not UNINITIALIZED:
                side.fill[i], changed = its, True
    return changed


def empty(like: Any) -> Any:
    if not isinstance(like, Tensor):
        return like
    size, dtype = list(like.shape), like.dtype
    return torch.ops.aten.zeros.default(size, dtype=dtype, device=like.device)


def agree(one: Side, other: Side) -> bool:
    try:
        return bool(one.spec == other.spec and one.plain == other.plain)
    except Exception:  # of any class: by PyTorch, of numbers that tensors tell
        return False


def reason(error: Exception) -> str:
    said = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    if said[0].endswith(":"):
        said[0] += f" {said[1]}" if len(said) > 1 else ""
    if type(error).__name__ == "CondOpArgsMismatchError" and "number of outputs" in said[0]:
        return "one side gives a tensor where the other gives None, or other lists of tensors"
    if "requires grad" in said[0] and "in-place" in said[0]:
        said[0] += " (inside torch.no_grad() it can be exported)"
    return f"{type(error).__name__}: {said[0]}"
