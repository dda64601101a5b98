"""What an exported program takes for granted, as it could not be exported otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import SymInt


@dataclass(frozen=True)
class Decided:
    """What the program takes for granted, with a check, as it could not be exported otherwise."""

    one_way: Mapping[int, int] = field(default_factory=dict)
    """By a step's number, the side of a branch that it has alone."""
    some: frozenset[tuple[int, int]] = frozenset()
    """Which of the numbers of their own, by their keys, are at least 1."""


@dataclass(frozen=True)
class Own:
    """A number that was replaced by a symbol of its own."""

    number: SymInt
    key: tuple[int, int]
    """The step that made it, and how many that step had made before."""
    line: str
