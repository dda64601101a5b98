"""Guards of sizes that torch.export cannot solve.

At its end torch.export solves the guards, to say more simply which sizes a program takes
(``DimConstraints.solve`` in torch/fx/experimental/symbolic_shapes.py). sympy cannot solve some of
them, such as whether a number of parts is even, and torch.export raises NotImplementedError. The
guards are part of the program all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from torch.fx.experimental.symbolic_shapes import DimConstraints


@contextmanager
def as_far_as_possible() -> Iterator[None]:
    """Where torch.export solves guards as far as sympy can."""
    of: Any = DimConstraints
    whole = of.solve

    def solve(constraints: DimConstraints) -> None:
        with suppress(NotImplementedError):
            whole(constraints)

    of.solve = solve
    try:
        yield
    finally:
        of.solve = whole
