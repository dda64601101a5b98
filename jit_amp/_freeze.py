"""jit_amp.freeze."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.jit import ScriptModule
from torch.jit._recursive import wrap_cpp_module

from jit_amp import _C
from jit_amp._script import _scripted


def freeze(
    module: torch.nn.Module,
    preserved_attrs: list[str] | None = None,
    *,
    example_inputs: Sequence[Any] | None = None,
    optimize_numerics: bool = True,
) -> Any:
    """Freezes a module, as ``torch.jit.freeze`` does, with its autocast scopes resolved.

    What it returns holds stock operators only, no scope and no operator of jit_amp's, and each
    weight as a constant in the dtype in which it is used. It can be saved and loaded where jit_amp
    is not: Python, libtorch, the lite interpreter. Call it outside any autocast: its scopes are
    part of it already.

    Args:
        module: an ``nn.Module`` or ``ScriptModule`` in eval mode. It stays as it is.
        preserved_attrs: attributes and methods to keep besides ``forward``.
        example_inputs: a tuple of positional arguments of ``forward``, or a list of such tuples.
            With them, dtypes and devices are known and casts are plain or absent; the result then
            refuses tensors of other dtypes or devices than the examples'. Without, what is unknown
            is asked at run time, which is right for every input and slower.
        optimize_numerics: whether batch norms are folded into convolutions and linear layers
            before the weights are rounded.

    Raises:
        AutocastError: a scope that cannot be known when compiling, or an operator in a scope that
            cannot be exported, with the line.
        RuntimeError: the module is in training mode; what ``torch.jit.freeze`` raises.
    """
    scripted, examples = _taken(module, example_inputs)
    with torch.random.fork_rng(enabled=bool(examples)):
        frozen = _C.freeze_module(
            scripted._c, list(preserved_attrs or []), examples, optimize_numerics
        )
    return wrap_cpp_module(frozen)  # type: ignore[no-untyped-call]


def facts(module: torch.nn.Module, example_inputs: Sequence[Any]) -> torch._C.Graph:
    """What :func:`freeze` knows of each value when it decides about casts, as a graph to print.

    Args:
        module: an ``nn.Module`` or ``ScriptModule`` in eval mode. It stays as it is.
        example_inputs: a tuple of positional arguments of ``forward``, or a list of such tuples.

    Returns:
        The graph of ``forward`` with scopes resolved, constants folded and all casts in it. Where
        all examples agree, the type of a tensor is its dtype and device, ``BFloat16(device=cpu)``;
        where they differ, or nothing was seen, ``Tensor``.

    Raises:
        AutocastError, RuntimeError: as :func:`freeze`.
    """
    scripted, examples = _taken(module, example_inputs)
    with torch.random.fork_rng():
        return _C.facts(scripted._c, examples)


def _taken(module: torch.nn.Module, example_inputs: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    """The scripted module, and the examples as a list."""
    scripted = _scripted(module)
    if not isinstance(scripted, ScriptModule):
        raise TypeError(f"jit_amp.freeze takes a module, not {type(module).__name__}")
    if scripted.training:
        raise RuntimeError(
            "jit_amp.freeze takes a module in eval mode: call .eval() on it before freezing"
        )
    if example_inputs is None:
        examples: list[tuple[Any, ...]] = []
    elif isinstance(example_inputs, list):
        examples = [tuple(example) for example in example_inputs]
    else:
        examples = [tuple(example_inputs)]
    return scripted, examples
