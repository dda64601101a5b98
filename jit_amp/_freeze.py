"""jit_amp.freeze, jit_amp.facts and jit_amp.optimize_for_inference."""

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
        example_inputs: a tuple of positional arguments of ``forward``, or a list of such tuples;
            their tensors may stand in lists, tuples and dictionaries. With them, dtypes and devices
            are known and casts are plain or absent; the result then refuses tensors of other dtypes
            or devices than the examples', and shapes are free. Without, what is unknown is asked at
            run time, which is right for every input and slower.
        optimize_numerics: whether batch norms, and arithmetic with numbers, are folded into
            convolutions and linear layers before the weights are rounded.

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


def optimize_for_inference(
    mod: torch.nn.Module,
    other_methods: list[str] | None = None,
    *,
    example_inputs: Sequence[Any] | None = None,
) -> Any:
    """What ``torch.jit.optimize_for_inference`` does, with the results that eager autocast gives.

    PyTorch's splits a linear layer into a product and an addition. In a scope that is still one,
    autocast then casts the product and leaves the bias float32, and so the result; in an artefact
    the result is rounded twice. Here linear layers stay whole.

    Args:
        mod: a frozen module, which is changed; any other is frozen first, in eval mode.
        other_methods: the methods besides ``forward``.
        example_inputs: as :func:`freeze` takes them, for a module that is not frozen.

    Returns:
        A module for this machine and this build of PyTorch. It cannot be saved.

    Raises:
        AutocastError, RuntimeError: as :func:`freeze`.
    """
    methods = list(other_methods or [])
    if not isinstance(mod, ScriptModule) or hasattr(mod, "training"):
        mod = freeze(mod.eval(), methods, example_inputs=example_inputs)
    for name in ("forward", *methods):
        graph = getattr(mod, name).graph
        torch._C._jit_pass_fuse_frozen_conv_add_relu(graph)
        torch._C._jit_pass_convert_frozen_ops_to_mkldnn(graph)
    return mod


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
