"""Processes that make models ready beside each other, and are timed one after another."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone() -> Iterator[None]:
    """No other process of this machine is in such a block at the same time."""
    import fcntl  # not on Windows

    with (Path(tempfile.gettempdir()) / "jit_amp-timing").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def order(names: Iterable[str], rounds: int) -> Iterator[str]:
    """Each name once a round, in an order that rotates: each comes after every other."""
    every = list(names)
    for number in range(rounds):
        turn = number % len(every)
        yield from [*every[turn:], *every[:turn]]
