"""Guards of sizes that torch.export cannot solve.

At its end torch.export solves the guards, to say more simply which sizes a program takes
(``DimConstraints.solve`` in torch/fx/experimental/symbolic_shapes.py). sympy cannot solve some of
them, such as whether a number of parts is even, and torch.export raises NotImplementedError. The
guards are part of the program all the same.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from jit_amp._base.process_state import silent
from jit_amp._export.sizes.small import env_of


def solve_as_far_as_possible(given: Any) -> None:
    """Tells the torch.export that is going on. Its objects alone are changed, and once.

    Args:
        given: the arguments that it traces with; those with free sizes know their ShapeEnv.
    """
    env = env_of(given)
    if env is None or "produce_guards" in vars(env):
        return
    produce = env.produce_guards

    def produce_guards(*args: Any, **kwargs: Any) -> Any:
        del env.produce_guards
        try:
            return produce(*args, **kwargs)
        finally:
            if env.dim_constraints is not None:
                _suppress(env.dim_constraints)

    env.produce_guards = produce_guards


def _suppress(constraints: Any) -> None:
    whole = constraints.solve

    def solve() -> None:
        del constraints.solve
        # It tells of each at length.
        with silent("torch.fx.experimental.symbolic_shapes"), suppress(NotImplementedError):
            whole()

    constraints.solve = solve
