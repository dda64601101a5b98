"""A line that says how far the search of `tune` is."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence

from jit_amp._precision.records import shown


class Progress:
    """Says on stderr what is done: on a terminal in one line, else every ten seconds."""

    def __init__(self, budget: float | None) -> None:
        self._budget = budget
        self._begin = self._said = time.monotonic()
        self._best = ""
        self._left = 0
        self._wrote = False

    def best(self, names: Sequence[str], error: float) -> None:
        listed = ", ".join(shown(each) for each in names[:3]) + ", ..." * (len(names) > 3)
        self._best = f"; best so far: {len(names)} in float32 ({listed}), error {error:.3g}"

    def expects(self, evaluations: int) -> None:
        """How many more evaluations there will be about."""
        self._left = evaluations

    def note(self, evaluations: int) -> None:
        elapsed = time.monotonic() - self._begin
        left = self._left * elapsed / evaluations
        if self._budget is not None:
            left = min(left, max(0.0, self._budget - elapsed))
        self.say(f"{evaluations} evaluations{self._best}; about {left:.0f} s left")

    def say(self, text: str) -> None:
        now = time.monotonic()
        if sys.stderr is None:  # as in a service
            return
        with contextlib.suppress(OSError):  # a full disk there ends no search
            if sys.stderr.isatty():
                print(f"\rtune: {text[:150]}".ljust(160), end="", file=sys.stderr, flush=True)
                self._wrote = True
            elif now - self._said > 10:
                print(f"tune: {text}", file=sys.stderr, flush=True)
                self._said = now

    def end(self) -> None:
        if self._wrote:
            with contextlib.suppress(OSError):
                print(file=sys.stderr)
