"""Which features meet at which doors: a covering array of pairs, and triples by chance.

A module holds WIDTH features. The features are written as numbers of base WIDTH; for each digit,
those of equal digit are a group, and allpairspy gives rows with one of each group such that any two
of different groups are in one. Two features differ in some digit, so they meet for one of them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from allpairspy import AllPairs

from .compose import Composed, compose
from .doors import CALLS, MAKES, Door, doors
from .features import FEATURES

WIDTH = 6
Pair = tuple[str, str]


@dataclass(frozen=True)
class Item:
    """A program at a door: what a worker is asked to check."""

    features: tuple[str, ...]
    seed: int
    door: Door

    @property
    def pairs(self) -> Iterator[Pair]:
        return pairs_of(self.features)

    def program(self) -> Composed:
        return compose(self.features, self.seed)


def pairs_of(features: Iterable[str]) -> Iterator[Pair]:
    return itertools.combinations(sorted(features), 2)


@cache
def rows(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Rows of at most WIDTH names: each two names are together in one."""
    found: list[tuple[str, ...]] = []
    digits = 1
    while WIDTH**digits < len(names):
        digits += 1
    for digit in range(digits):
        groups: list[list[str]] = [[] for _ in range(WIDTH)]
        for i, name in enumerate(names):
            groups[i // WIDTH**digit % WIDTH].append(name)
        found += [tuple(row) for row in AllPairs([group for group in groups if group])]
    return found


SCRIPTING = ("script", "script with autocast=", "install", "explain")
TRACING = ("trace", "trace, exact")
FROZEN = tuple(name for name, how in MAKES.items() if how.frozen and not how.traces)
CLASSES: tuple[tuple[str, ...], ...] = (
    (*SCRIPTING, "as it is", "deepcopy", "pickle", "saved", "inside another",
     *(call for call in CALLS if call != "vmap")),
    (*FROZEN, "elsewhere"),
    ("lite",),
    TRACING,
    ("vmap",),
)  # fmt: skip
"""Values of doors at which the same features can be."""


def at(values: tuple[str, ...]) -> tuple[str, ...]:
    """The features that can be at a class of values."""
    makes = [make for make in values if make in MAKES] or [_any_make(values)]
    return tuple(
        name
        for name, feature in FEATURES.items()
        if not set(values) <= set(feature.masks)
        and all(Door(make).takes(Composed("", (name,), 0)) for make in makes)
    )


def _any_make(values: tuple[str, ...]) -> str:
    return "exact" if "lite" in values else "script"


def wanted() -> dict[str, set[Pair]]:
    """For each make, carry and call the pairs that are to meet there."""
    return {
        value: set(pairs_of(name for name in at(values) if value not in FEATURES[name].masks))
        for values in CLASSES
        for value in values
    }


def singles(seed: int) -> list[Item]:
    """Each feature alone with each make, each carry and each call."""
    rng = random.Random(f"alone {seed}")
    items = [
        Item((name,), rng.randrange(10**6), door)
        for values in CLASSES
        for name in at(values)
        for door in _doors(values, rng)
        if door.takes(Composed("", (name,), 0)) and not _is_masked((name,), door)
    ]
    rng.shuffle(items)
    return items


def pairwise(seed: int) -> list[Item]:
    """Each pair of features with each make, each carry and each call."""
    rng = random.Random(seed)
    items: list[Item] = []
    for values in CLASSES:
        sets = [_doors(values, rng) for _ in range(40)]
        for row in rows(at(values)):
            features = tuple(rng.sample(row, len(row)))
            program = Composed("", features, 0)
            items += [
                Item(features, rng.randrange(10**6), door)
                for door in rng.choice(sets)
                if door.takes(program) and not _is_masked(features, door)
            ]
    rng.shuffle(items)
    return items


def _is_masked(features: Iterable[str], door: Door) -> bool:
    return any(set(FEATURES[name].masks) & set(door.values) for name in features)


def _doors(values: tuple[str, ...], rng: random.Random) -> list[Door]:
    """Few doors that have all values of a class between them."""
    makes = [make for make in values if make in MAKES]
    makes = makes or list(FROZEN if "lite" in values else SCRIPTING)
    possible = [door for door in doors() if door.make in makes]
    found, needed = [], set(values)
    while needed:
        rng.shuffle(possible)
        door = max(possible, key=lambda each: len(needed & set(each.values)))
        needed -= set(door.values)
        found.append(door)
    return found


def alone(pairs: dict[str, set[Pair]], seed: int) -> Iterator[Item]:
    """Pairs by themselves, at a door that has the value."""
    rng = random.Random(seed)
    for value, left in pairs.items():
        those = [door for door in doors() if value in door.values]
        for pair in sorted(left):
            program = Composed("", pair, 0)
            possible = [
                door for door in those if door.takes(program) and not _is_masked(pair, door)
            ]
            if possible:
                yield Item(pair, rng.randrange(10**6), rng.choice(possible))


def by_chance(seed: int) -> Iterator[Item]:
    """Three to seven features at any door, without end."""
    rng = random.Random(f"by chance {seed}")
    everything = list(doors())
    names = list(FEATURES)
    while True:
        features = tuple(rng.sample(names, rng.randint(3, 7)))
        door = rng.choice(everything)
        if door.takes(Composed("", features, 0)) and not _is_masked(features, door):
            yield Item(features, rng.randrange(10**6), door)


def _parts(door: Door) -> list[Pair]:
    make, carry, call = door.values
    return [(make, carry), (make, call), (carry, call)]


def of_door_pairs(modules: int, seed: int) -> list[Item]:
    """So many modules for each pair of a make, a carry and a call that there is."""
    rng = random.Random(f"door pairs {seed}")
    everything = list(doors())
    items: list[Item] = []
    needed = {
        pair: modules for door in everything for pair in itertools.combinations(door.values, 2)
    }
    names = list(FEATURES)
    while needed:
        pair = rng.choice(sorted(needed))
        door = max(
            (d for d in everything if set(pair) <= set(d.values)),
            key=lambda d: (
                sum(p in needed for p in itertools.combinations(d.values, 2)),
                rng.random(),
            ),
        )
        features = tuple(rng.sample(names, rng.randint(3, 6)))
        if not door.takes(Composed("", features, 0)) or _is_masked(features, door):
            continue
        items.append(Item(features, rng.randrange(10**6), door))
        for each in _parts(door):
            if each in needed:
                needed[each] -= 1
                if not needed[each]:
                    del needed[each]
    return items
