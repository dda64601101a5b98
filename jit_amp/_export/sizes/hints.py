"""What those who look at an exported program next are told of its free sizes: that they are at
least 2, as torch.export's own programs have it.

torch.export remembers of each free size what it was in the example, its hint. A program can be
exported so that a size of 1 stays free, but AOTInductor, or ``run_decompositions`` of a loaded
file, takes a hint of 1 for a size that is always 1, without a guard; and of a size that may be 1,
their operators ask whether it is, and guard that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy  # type: ignore[import-untyped]  # torch requires it
import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from jit_amp._export.program.parts import parts_of
from jit_amp._export.sizes.small import example_sizes, holds, refuses_one

_TRIED = range(2, 65)


def put_larger_hints(exported: ExportedProgram) -> dict[Any, bool]:
    """Gives each free size of 0 or 1 the smallest hint from 2 on that the program's guards let in,
    and all of 2 or more that range. The guards stay as they are.

    Returns:
        The symbols for which there is none, whose hint stays; and of each whether a guard says that
        it equals a number.
    """
    symbolic = list(_symbolic(exported))
    if not symbolic:
        return {}
    env = symbolic[0].node.shape_env
    sizes = example_sizes(env)
    guards = [guard.expr for guard in env.guards]
    small = [symbol for symbol, size in sizes.items() if size in (0, 1)]
    kept: dict[Any, bool] = {}
    for symbol in small:
        of_it = [guard for guard in guards if symbol in guard.free_symbols]
        bounds = exported.range_constraints.get(symbol)
        for size in _TRIED:
            values = {**sizes, symbol: sympy.Integer(size)}
            is_within = bounds is None or bounds.lower <= size <= bounds.upper
            if is_within and all(holds(guard, values) for guard in of_it):
                sizes[symbol] = sympy.Integer(size)
                break
        else:
            kept[symbol] = any(x.is_Equality and x.free_symbols == {symbol} for x in of_it)
    for each in symbolic if small else ():
        value = each.node.expr.xreplace(dict(sizes))
        if each.node._hint is not None and not value.free_symbols:
            each.node._hint = each.node.pytype(value)
    for symbol, bounds in exported.range_constraints.items():
        if sizes.get(symbol, 0) >= 2:
            exported.range_constraints[symbol] = bounds & ValueRanges(2, int_oo)
            env.constrain_symbol_range(symbol, 2, int_oo)
    return kept


def is_for_larger_alone(exported: ExportedProgram) -> bool:
    """Whether a guard refuses a size of 1, and lets in all that are larger."""
    one = next(_symbolic(exported), None)
    if one is None:
        return False

    return any(refuses_one(guard.expr) for guard in one.node.shape_env.guards)


def _symbolic(exported: ExportedProgram) -> Iterator[SymInt | SymFloat | SymBool]:
    for part in parts_of(exported):
        for node in part.graph.nodes:
            for value in pytree.tree_leaves(node.meta.get("val")):
                found = [value]
                if isinstance(value, Tensor):
                    found = [*value.shape]
                    if value.layout == torch.strided:
                        found += [*value.stride(), value.storage_offset()]
                yield from (x for x in found if isinstance(x, (SymInt, SymFloat, SymBool)))
