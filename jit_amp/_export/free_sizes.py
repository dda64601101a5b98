"""Which sizes of an exported program are free, where the caller does not say."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim
from torch.utils import _pytree as pytree

from jit_amp._base.process_state import silent
from jit_amp._export.checked_inputs import keeps_conditions
from jit_amp._export.sizes.hints import is_for_larger_alone, put_larger_hints
from jit_amp._export.sizes.oblivious import without_looking
from jit_amp._export.sizes.small import UNSEEN
from jit_amp._export.tracer import NotForItsExample, Traced, Tracer, has_size, may_be_of_sizes


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
            return {i: Dim.AUTO for i, size in enumerate(value.shape[:most]) if size}

        return pytree.tree_map(of, arguments)

    if not keeps_conditions():
        traced = _for_its_example(trace, trace(free(0), False))
        version = torch.__version__.partition("+")[0]
        traced.notes.append(
            f"all sizes are fixed: programs of PyTorch {version} keep no conditions on free ones, "
            "those of 2.10 do"
        )
        if any(x is None for x in pytree.tree_leaves(arguments)):
            traced.notes.append(
                f"what is None in the example has to be None: PyTorch {version} does not check it"
            )
        return traced, free(0)
    tensors = [x for x in pytree.tree_leaves(arguments) if isinstance(x, Tensor)]
    for most in (max((x.dim() for x in tensors), default=0), 1):
        shapes = free(most)
        try:
            traced = _with_small_sizes(trace, shapes)
        except Exception as error:  # of any class: by torch.export, about what it could not decide
            if not may_be_of_sizes(error):
                raise
            reason = error
        else:
            if most == 1 and any(x.dim() > 1 for x in tensors):
                traced.notes.append(_fixed("all sizes but the first of each tensor are", reason))
            return traced, shapes
    traced = _for_its_example(trace, trace(free(0), False))
    traced.notes.append(_fixed("all sizes are", reason))
    return traced, free(0)


def as_told(trace: Tracer, shapes: Any) -> Traced:
    """Traces with those sizes free that the caller names.

    Args:
        shapes: ``dynamic_shapes`` of torch.export.export.
    """
    free = (x for x in pytree.tree_leaves(shapes) if not (x is None or isinstance(x, int)))
    if not keeps_conditions() and any(x is not Dim.STATIC for x in free):
        raise ValueError(
            f"jit_amp.export: dynamic_shapes: programs of PyTorch {torch.__version__} keep no"
            " conditions on free sizes: write {} for fixed ones, or export with 2.10 or newer"
        )
    looks = has_size(0, (trace.args, trace.kwargs)) or not keeps_conditions()
    traced = None if looks else _oblivious(trace, shapes, False)
    if traced is None:
        return _as_pytorch_does(trace, shapes, False)
    put_larger_hints(traced.program)
    return traced


def _with_small_sizes(trace: Tracer, shapes: Any) -> Traced:
    """Where the example has sizes of one, these are free too if the program can be for others."""
    traced = _oblivious(trace, shapes, True)
    if traced is None:
        traced = _as_pytorch_does(trace, shapes, True)
        ones = trace.ones()
        if not ones or traced.asks == UNSEEN:
            return traced
        choices = [ones]
        is_told = True
    else:
        kept = put_larger_hints(traced.program)
        if not kept:
            return traced
        ones = trace.ones(traced.program)
        others = {place: size for place, size in ones.items() if not kept.get(size)}
        choices = [ones] if len(others) == len(ones) else [ones, others]
        is_told = not all(kept.values())
    for chosen in choices:
        if chosen and (larger := _by_a_larger_example(trace, chosen, shapes, traced)):
            return larger
    if is_told:
        traced.notes.append(_ONES)
    return traced


def _oblivious(trace: Tracer, shapes: Any, is_bounded: bool) -> Traced | None:
    """On its own torch.export takes a size of one in the example for fixed, and any other for at
    least two. It guards that a size which is computed, as of a map of features, stays one or never
    becomes it, though most often an operator only asks how the map lies in memory. Told to reason
    without looking it does none of it, and guards what must be known.

    Returns:
        None if torch.export cannot, or the program raises for its own example: what torch.export
        had to decide without it was decided otherwise.
    """
    try:
        with without_looking():
            traced = trace(shapes, is_bounded)
            if not traced.asks and is_for_larger_alone(traced.program):
                # An operator asks whether an argument's size is 1, and torch.export alone answers
                # that without a guard.
                traced = replace(trace, are_large=True)(shapes, is_bounded)
        return _for_its_example(trace, traced)
    except Exception as error:
        if not may_be_of_sizes(error):
            raise
    return None


def _as_pytorch_does(trace: Tracer, shapes: Any, is_bounded: bool) -> Traced:
    """With the example's sizes looked at, and a note where the program asks for others."""
    traced = _for_its_example(trace, trace(shapes, is_bounded))
    if traced.asks == UNSEEN:
        traced.notes.append(_SMALL)
    return traced


def _for_its_example(trace: Tracer, traced: Traced) -> Traced:
    """Runs the program once on its own example.

    Raises:
        NotForItsExample: it raises.
    """
    if (error := trace.failure(traced.program)) is not None:
        raise NotForItsExample(error)
    return traced


def _by_a_larger_example(
    trace: Tracer, ones: Collection[tuple[int, int]], shapes: Any, traced: Traced
) -> Traced | None:
    """PyTorch's own operators may ask whether a size is 1, most often to choose a memory format.
    With twos in the place of the example's ones torch.export does not guard that. The program is
    taken if nothing else goes otherwise, and if it gives the same for the example.

    Args:
        ones: which of them.
        traced: the program with guards.
    """
    try:
        # An attempt may fail, and PyTorch logs shapes that do not fit.
        with silent("torch._subclasses.fake_tensor"), without_looking():
            larger = replace(trace.with_twos(ones), are_large=True)(shapes, True)
    except MemoryError:
        raise
    except Exception:  # of any class: by the program too, which may be for ones alone
        return None
    if larger.asks == UNSEEN or larger.trail != traced.trail:
        return None
    if not trace.gives_the_same(traced.program, larger.program):
        return None
    larger.program.example_inputs = trace.args, trace.kwargs
    return larger


_ONES = (
    "sizes that are 0 or 1 in the example stay so, as the program, or an operator of PyTorch's, "
    "does something else for others: export with larger ones for a program that takes those"
)
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
