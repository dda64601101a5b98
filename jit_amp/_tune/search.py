"""The search of `tune`: a smallest set of units with which an error stays within a tolerance.

Units stand in order of suspicion, each after those inside it. The shortest beginning of that order
which holds ends with a unit that is needed; the same is asked again with that unit kept, until what
is kept holds alone. That takes about log2(n) evaluations for each unit found, and fewer where the
suspicion is right. Then, as far as 3·k·log2(n) + n/8 evaluations for k units of n allow, cheaper
units and smaller sets are looked for.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


class OutOfBudget(Exception):
    """There is no time left."""


class _Enough(Exception):
    """As many questions as there may be."""


class Watcher(Protocol):
    def best(self, names: Sequence[str], error: float) -> None: ...
    def expects(self, evaluations: int) -> None: ...


@dataclass(frozen=True)
class Unit:
    """A candidate: ``operators`` are those of it and of all that it calls."""

    name: str
    number: int  # in the order of the model
    operators: frozenset[int]
    badness: tuple[bool, float]
    work: float

    def covers(self, other: Unit) -> bool:
        return self is not other and self.operators > other.operators


class Search:
    """One search; ``found`` are the names of the result, in the order of the model."""

    def __init__(
        self,
        units: Iterable[Unit],
        error: Callable[[Iterable[str]], float],
        tolerance: float,
        progress: Watcher | None = None,
    ) -> None:
        self._error, self._tolerance, self._progress = error, tolerance, progress
        self._order = _ordered(list(units))
        self._seen: set[frozenset[str]] = set()
        self._best: list[Unit] | None = None
        self._most = math.inf  # questions
        self._kept: list[Unit] = []
        self.found: list[str] = []

    # Sets of units.

    def _without_covered(self, units: Iterable[Unit]) -> list[Unit]:
        given = list(dict.fromkeys(units))
        kept = [each for each in given if not any(other.covers(each) for other in given)]
        return sorted(kept, key=lambda each: each.number)

    def _size(self, units: Sequence[Unit]) -> tuple[int, float, int]:
        """Smaller is better. What a unit covers counts, so that one large unit is no small set."""
        operators = {number for each in units for number in each.operators}
        inside = sum(each.operators <= operators for each in self._order)
        return inside, sum(each.work for each in units), len(units)

    def _holds(self, units: Iterable[Unit]) -> bool:
        kept = self._without_covered(units)
        error = self._ask(kept)
        holds = error <= self._tolerance
        if holds and (self._best is None or self._size(kept) < self._size(self._best)):
            self._best = kept
            if self._progress:
                self._progress.best([each.name for each in kept], error)
        return holds

    def _ask(self, units: Iterable[Unit]) -> float:
        names = [each.name for each in self._without_covered(units)]
        if frozenset(names) not in self._seen and len(self._seen) >= self._most:
            raise _Enough
        error = self._error(names)
        self._seen.add(frozenset(names))
        return error

    def best(self) -> list[str]:
        """The smallest set that holds, of those that were tried; all units where none was."""
        kept = self._without_covered(self._order) if self._best is None else self._best
        return [each.name for each in kept]

    # The search.

    def run(self) -> None:
        """Raises OutOfBudget; `best` is then the best that was found."""
        found = self._smallest(self._order, [])
        found = self._without_needless(found)
        n, k = len(self._order), max(1, len(found))
        # Without the two of float32 everywhere.
        self._most = math.floor(3 * k * math.log2(max(2, n)) + n / 8) - 2
        self._kept = found
        for step in (self._make_smaller, self._make_cheaper):
            with contextlib.suppress(_Enough):
                step()
        self.found = [each.name for each in self._without_covered(self._kept)]

    def _expect(self, found: int) -> None:
        if self._progress:
            self._progress.expects(max(1, round(math.log2(len(self._order) + 1) + found + 2)))

    def _smallest(self, order: Sequence[Unit], kept: list[Unit]) -> list[Unit]:
        """Units of `order` that hold together with those kept, none of which is needless."""
        found: list[Unit] = []
        end = len(order)
        while not self._holds([*kept, *found]):
            if end == 0:  # more float32 was worse
                return list(self._best or self._without_covered(self._order))
            self._expect(len(found))
            end = self._shortest([*kept, *found], order, end) - 1
            found.append(order[end])
        return [*kept, *found]

    def _shortest(self, kept: Sequence[Unit], order: Sequence[Unit], end: int) -> int:
        """How many of the first units of `order` it takes, together with those kept."""
        fails, step = 0, 1
        while fails + step < end:
            if self._holds([*kept, *order[: fails + step]]):
                end = fails + step
                break
            fails += step
            step *= 2
        while end - fails > 1:
            middle = (fails + end) // 2
            if self._holds([*kept, *order[:middle]]):
                end = middle
            else:
                fails = middle
        return end

    def _without_needless(self, found: list[Unit]) -> list[Unit]:
        for unit in sorted(found, key=lambda each: -each.work):
            rest = [each for each in found if each is not unit]
            if self._holds(rest):
                found = rest
        return found

    # What is done as far as evaluations allow.

    def _make_smaller(self) -> None:
        """Looks for a smaller set, where units of this one are not needed if others are kept."""
        found = self._kept
        if len(found) < 2:
            return
        spare = [unit for unit in found if self._holds(self._all_but([unit]))]
        if not spare:
            return  # each of them is in every set that holds
        needed = [unit for unit in found if unit not in spare]
        others = [each for each in self._all_but(spare) if each not in needed]
        if self._holds([*needed, *others]):
            self._take_better(self._smallest(others, needed))
        if len(spare) > 1:
            errors = {each: self._ask(self._all_but([each])) for each in self._order}
            ranked = _ordered(self._order, lambda each: -errors[each])
            self._take_better(self._smallest(ranked, []))

    def _make_cheaper(self) -> None:
        """Replaces each unit by the cheapest one that does as well."""
        for unit in list(self._kept):
            rest = [each for each in self._kept if each is not unit]
            others = [
                each
                for each in sorted(self._order, key=lambda each: (each.work, each.number))
                if each.work < unit.work and each not in rest and not unit.covers(each)
            ]
            if others and self._holds([*rest, *others]):
                last = self._shortest(rest, others, len(others)) - 1
                if self._holds([*rest, others[last]]):
                    self._kept = [*rest, others[last]]

    def _all_but(self, out: Sequence[Unit]) -> list[Unit]:
        return [
            each
            for each in self._order
            if each not in out and not any(each.covers(unit) or unit.covers(each) for unit in out)
        ]

    def _take_better(self, other: list[Unit]) -> None:
        a, b = self._without_covered(self._kept), self._without_covered(other)
        if (len(b), self._size(b)) < (len(a), self._size(a)):
            self._kept = b


def _ordered(units: Sequence[Unit], rank: Callable[[Unit], float] | None = None) -> list[Unit]:
    """From the most suspicious; each unit right after those inside it."""
    if rank is None:
        by_rank = sorted(
            units, key=lambda each: (not each.badness[0], -each.badness[1], each.work, each.number)
        )
    else:
        by_rank = sorted(units, key=rank)
    made: dict[Unit, None] = {}

    def place(unit: Unit) -> None:
        if unit not in made:
            for inside in by_rank:
                if unit.covers(inside):
                    place(inside)
            made.setdefault(unit)

    for unit in by_rank:
        place(unit)
    return list(made)
