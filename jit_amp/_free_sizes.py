"""Which sizes of an exported program are free, where the caller does not say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.fx.experimental import _config as symbolic_shapes_config
from torch.utils import _pytree as pytree

from jit_amp import _C
from jit_amp._graph_values import Raised
from jit_amp._larger_hints import put_larger_hints
from jit_amp._one_way import OneWay


@dataclass
class Traced:
    """A program that torch.export has made, and what was seen on the way."""

    program: ExportedProgram
    asks_small: bool
    """Whether it asks if a size is 0 or 1."""
    records_gradients: bool
    """Whether it asks if gradients are recorded, and they are."""
    one_way: list[OneWay]
    """The branches of which it has one side."""
    some: list[str]
    """The lines of sizes that come from values by way of floats, and are taken for at least 1."""
    is_oblivious: bool
    """Whether torch.export took free sizes without a look at the example's."""
    notes: list[str] = field(default_factory=list)
    """What the caller should know of it."""


Trace = Callable[[Any, bool], Traced]
"""Of ``dynamic_shapes``, and whether there is a limit to how long expressions of sizes become."""


def freest(trace: Trace, arguments: dict[str, Any]) -> tuple[Traced, Any]:
    """With all sizes free; where that cannot be exported with the first size of each tensor, or
    with none. What is raised with all of them fixed is raised.

    Args:
        arguments: of the example, by name.

    Returns:
        Also its ``dynamic_shapes``.
    """

    def free(most: int) -> Any:
        def of(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return None
            return {i: Dim.AUTO for i in range(min(most, value.dim()))}

        return pytree.tree_map(of, arguments)

    tensors = [x for x in pytree.tree_leaves(arguments) if isinstance(x, Tensor)]
    has_ones = any(1 in x.shape for x in tensors)
    for most in (max((x.dim() for x in tensors), default=0), 1):
        shapes = free(most)
        try:
            traced = _with_ones_free(trace, shapes) if has_ones else trace(shapes, True)
            if traced.asks_small and not has_ones:
                traced = _with_ones_free(trace, shapes)
        except Exception as error:  # of any class: by torch.export, about what it could not decide
            if not may_be_of_sizes(error):
                raise
            reason = error
        else:
            if most == 1 and any(x.dim() > 1 for x in tensors):
                traced.notes.append(_fixed("all sizes but the first of each tensor are", reason))
            return traced, shapes
    traced = trace(free(0), False)
    traced.notes.append(_fixed("all sizes are", reason))
    return traced, free(0)


def _with_ones_free(trace: Trace, shapes: Any) -> Traced:
    """torch.export takes a size of one in the example for fixed, and any other for at least two,
    unless it is told to reason without looking. Where the program needs to know, it is guarded."""
    try:
        with symbolic_shapes_config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
            traced = trace(shapes, True)
    except Exception as error:
        if not may_be_of_sizes(error):
            raise
        traced = trace(shapes, True)
        if traced.asks_small:
            traced.notes.append(_SMALL)
        return traced
    put_larger_hints(traced.program)
    return traced


def guarded(trace: Trace, shapes: Any, traced: Traced) -> Traced:
    """With a guard against sizes of 0 and 1, for a program that asks for them; as it was, with a
    note, where torch.export does not take the guard beside the sizes that are to be free."""
    try:
        with symbolic_shapes_config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
            return trace(shapes, False)
    except Exception as error:
        if not may_be_of_sizes(error):
            raise
    traced.notes.append(_SMALL)
    return traced


_SMALL = (
    "the program does something else where a size is 0 or 1, and torch.export takes sizes that are "
    "free for at least two: for such inputs the exported program gives what the larger sizes get. "
    "Export another program for them, with that size fixed"
)


def may_be_of_sizes(error: Exception) -> bool:
    """Whether it may go otherwise where sizes are numbers."""
    if isinstance(error, _C.AutocastError):
        return any(f"[JA{code}]" in str(error) for code in (501, 502, 504, 505))
    return not isinstance(error, (Raised, MemoryError))


def _fixed(what: str, reason: Exception) -> str:
    said = str(reason).removeprefix("jit_amp: ").strip().splitlines()
    return (
        f"{what} fixed to the example's, as the program cannot be exported with "
        f"more of them free ({said[0] if said else type(reason).__name__}): dynamic_shapes says "
        "which you need"
    )
