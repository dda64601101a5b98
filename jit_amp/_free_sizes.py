"""Which sizes of an exported program are free, where the caller does not say."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.export import Dim
from torch.fx.experimental import _config as symbolic_shapes_config
from torch.utils import _pytree as pytree

from jit_amp._larger_hints import put_larger_hints
from jit_amp._tracer import Traced, Tracer, may_be_of_sizes


def freest(trace: Tracer, arguments: dict[str, Any]) -> tuple[Traced, Any]:
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


def _with_ones_free(trace: Tracer, shapes: Any) -> Traced:
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


def guarded(trace: Tracer, shapes: Any, traced: Traced) -> Traced:
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


def _fixed(what: str, reason: Exception) -> str:
    said = str(reason).removeprefix("jit_amp: ").strip().splitlines()
    return (
        f"{what} fixed to the example's, as the program cannot be exported with "
        f"more of them free ({said[0] if said else type(reason).__name__}): dynamic_shapes says "
        "which you need"
    )
