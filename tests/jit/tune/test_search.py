"""The search alone, on errors that are made up."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable

import pytest

from jit_amp._tune.search import OutOfBudget, Search, Unit


def units(works: list[float], badness: list[float]) -> list[Unit]:
    return [
        Unit(str(i), i, frozenset([i]), (False, badness[i]), work) for i, work in enumerate(works)
    ]


class Counted:
    """An error that counts its different questions."""

    def __init__(self, error: Callable[[frozenset[str]], float]) -> None:
        self.error, self.asked = error, set[frozenset[str]]()

    def __call__(self, names: Iterable[str]) -> float:
        self.asked.add(frozenset(names))
        return self.error(frozenset(names))


def bound(n: int, k: int) -> float:
    return 3 * max(k, 1) * math.log2(n) + n / 8


@pytest.mark.parametrize("seed", range(60))
def test_no_larger_than_the_smallest_and_no_dearer(seed: int) -> None:
    """Of each conflict one unit has to stay in float32, as where two are harmful together."""
    rng = random.Random(seed)
    n = rng.randint(9, 12)
    conflicts = [rng.sample(range(n), rng.choice([1, 1, 2, 2])) for _ in range(rng.randint(1, 3))]
    works = [rng.choice([1.0, 2.0, 5.0, 9.0]) for _ in range(n)]

    def error(names: frozenset[str]) -> float:
        return float(sum(not any(str(i) in names for i in each) for each in conflicts))

    asked = Counted(error)
    search = Search(units(works, [rng.random() for _ in range(n)]), asked, 0.5)
    search.run()
    sizes = [
        (k, sum(works[i] for i in some))
        for k in range(n + 1)
        for some in itertools.combinations(range(n), k)
        if error(frozenset(map(str, some))) <= 0.5
    ]
    found = (len(search.found), sum(works[int(name)] for name in search.found))
    assert found[0] == min(sizes)[0]
    assert len(asked.asked) + 2 <= bound(n, max(3, found[0]))
    if found[0] == 1 and n > 10:
        assert found == min(sizes)


@pytest.mark.parametrize("n", [24, 1000])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("suspicion", ["right", "none"])
def test_evaluations(n: int, k: int, suspicion: str) -> None:
    rng = random.Random(n + k)
    wanted = {str(i) for i in rng.sample(range(n), k)}
    badness = [1.0 * (suspicion == "right" and str(i) in wanted) for i in range(n)]
    asked = Counted(lambda names: float(len(wanted - names)))
    search = Search(units([1.0] * n, badness), asked, 0.0)
    search.run()
    assert set(search.found) == wanted
    assert len(asked.asked) + 2 <= bound(n, k)
    if suspicion == "right":
        assert len(asked.asked) <= 5 * k + 2


@pytest.mark.parametrize("seed", range(10))
def test_errors_that_add_up(seed: int) -> None:
    """Where no unit is at fault alone, those of the largest errors stay, whatever the suspicion."""
    rng = random.Random(seed)
    n = 10
    errors = [rng.random() ** 3 for _ in range(n)]
    tolerance = 0.3 * sum(errors)

    def error(names: frozenset[str]) -> float:
        return sum(e for i, e in enumerate(errors) if str(i) not in names)

    search = Search(units([1.0] * n, [e * rng.random() for e in errors]), error, tolerance)
    search.run()
    left, fewest = sum(errors), 0
    for each in sorted(errors, reverse=True):
        if left <= tolerance:
            break
        left, fewest = left - each, fewest + 1
    assert len(search.found) == fewest


def nested() -> list[Unit]:
    """`a` has an operator of its own, and `a.b` and `a.c` in it."""
    return [
        Unit("", 0, frozenset(range(6)), (False, 0.9), 6.0),
        Unit("a", 1, frozenset([0, 1, 2]), (False, 0.5), 3.0),
        Unit("a.b", 2, frozenset([1]), (False, 0.1), 1.0),
        Unit("a.c", 3, frozenset([2]), (False, 0.1), 1.0),
        Unit("d", 4, frozenset([3]), (False, 0.1), 1.0),
    ]


@pytest.mark.parametrize("faults", [{0}, {1}, {2}, {1, 2}, {3}, {0, 3}, {0, 1}, {4}])
def test_as_deep_as_it_takes(faults: set[int]) -> None:
    every = {unit.name: unit for unit in nested()}

    def error(names: frozenset[str]) -> float:
        return float(len(faults - {o for name in names for o in every[name].operators}))

    search = Search(nested(), error, 0.0)
    search.run()
    names = {0: "a", 1: "a.b", 2: "a.c", 3: "d", 4: ""}
    wanted = {names[fault] for fault in faults}
    assert set(search.found) == (wanted - {"a.b"} if "a" in wanted else wanted)


def test_more_float32_may_be_worse() -> None:
    """Two faults that cancel: with one in float32 the error is larger than with none."""
    errors = {frozenset[str](): 2.0, frozenset({"0"}): 5.0, frozenset({"1"}): 5.0}
    search = Search(units([1.0] * 4, [0.1] * 4), lambda n: errors.get(frozenset(n), 0.0), 1.0)
    search.run()
    assert errors.get(frozenset(search.found), 0.0) == 0.0


def test_the_best_until_the_budget() -> None:
    left = [6]

    def error(names: Iterable[str]) -> float:
        left[0] -= 1
        if left[0] < 0:
            raise OutOfBudget
        return float(len({"3", "9"} - frozenset(names)))

    search = Search(units([1.0] * 32, [1.0 / (i + 1) for i in range(32)]), error, 0.0)
    with pytest.raises(OutOfBudget):
        search.run()
    assert {"3", "9"} <= set(search.best()) and len(search.best()) < 32
