"""Which features meet at which doors: all pairs in few modules, and triples by chance.

A module holds at most WIDTH features. They are the points of a plane, column by column, and a
module is a line of it: two points are on one line, or in one column, which is a smaller plane.
Features that are refused would hide what they are with; their pairs are modules of their own.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from .compose import Composed, compose
from .doors import CALLS, MAKES, Door, doors
from .features import FEATURES

WIDTH = 8
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
    if len(names) <= WIDTH:
        return [names]
    height = next(n for n in _primes() if n * n >= len(names) and n * WIDTH >= len(names))
    columns = [names[i : i + height] for i in range(0, len(names), height)]
    lines = [
        tuple(
            column[(slope * x + start) % height]
            for x, column in enumerate(columns)
            if (slope * x + start) % height < len(column)
        )
        for slope in range(height)
        for start in range(height)
    ]
    return lines + [row for column in columns for row in rows(column)]


def _primes() -> Iterator[int]:
    return (n for n in itertools.count(2) if all(n % d for d in range(2, n)))


SCRIPTING = (
    "script", "script with autocast=", "install", "explain", "installed parts",
    "script, after PyTorch", "script of PyTorch's", "trace of PyTorch's, in a scope",
)  # fmt: skip
TRACING = ("trace", "trace in a scope", "trace, exact")
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
        value: {
            pair
            for pair in pairs_of(name for name in at(values) if value not in FEATURES[name].masks)
            if not _are_apart(pair)
        }
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
        if _fits((name,), door)
    ]
    rng.shuffle(items)
    return items


def pairwise(seed: int, refused: Collection[tuple[str, str]] = ()) -> list[Item]:
    """Each pair of features with each make, each carry and each call.

    Args:
        refused: features with the makes that refuse them, which are left out there.
    """
    rng = random.Random(seed)
    items: list[Item] = []
    for values in CLASSES:
        sets = [_doors(values, rng) for _ in range(40)]
        for row in rows(at(values)):
            for door in rng.choice(sets):
                names = [name for name in row if (name, door.make) not in refused]
                features = _fitting(rng.sample(names, len(names)), door)
                if len(features) > 1:
                    items.append(Item(features, rng.randrange(10**6), door))
    rng.shuffle(items)
    return items


def _fits(features: tuple[str, ...], door: Door) -> bool:
    """Whether the features may come to the door."""
    is_masked = any(set(FEATURES[name].masks) & set(door.values) for name in features)
    return not is_masked and not _are_apart(features) and door.takes(Composed("", features, 0))


def _fitting(features: Iterable[str], door: Door) -> tuple[str, ...]:
    """The features, without those that cannot come to the door with the ones before them."""
    found: tuple[str, ...] = ()
    for name in features:
        if _fits((*found, name), door):
            found = (*found, name)
    return found


def _are_apart(features: tuple[str, ...]) -> bool:
    chosen = [FEATURES[name] for name in features]
    forgets = any(each.two_dtypes for each in chosen) and any(each.own_cache for each in chosen)
    return forgets or any(set(each.apart) & set(features) for each in chosen)


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
    """Pairs by themselves, at doors that have between them the values given."""
    rng = random.Random(seed)
    everything = list(doors())
    values_of: dict[Pair, set[str]] = {}
    for value, left in pairs.items():
        for pair in left:
            values_of.setdefault(pair, set()).add(value)
    for pair, values in sorted(values_of.items()):
        possible = [door for door in everything if _fits(pair, door)]
        while True:
            rng.shuffle(possible)
            door = max(possible, key=lambda each: len(values & set(each.values)), default=None)
            if door is None or not values & set(door.values):
                break
            values -= set(door.values)
            yield Item(pair, rng.randrange(10**6), door)


def by_chance(seed: int) -> Iterator[Item]:
    """Three to seven features at any door, without end."""
    rng = random.Random(f"by chance {seed}")
    everything = list(doors())
    names = list(FEATURES)
    while True:
        features = tuple(rng.sample(names, rng.randint(3, 7)))
        door = rng.choice(everything)
        if _fits(features, door):
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
        if not _fits(features, door):
            continue
        items.append(Item(features, rng.randrange(10**6), door))
        for each in _parts(door):
            if each in needed:
                needed[each] -= 1
                if not needed[each]:
                    del needed[each]
    return items
