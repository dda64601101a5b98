"""jit_amp.freeze, jit_amp.facts and jit_amp.optimize_for_inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch.jit import ScriptModule, _script
from torch.jit import _freeze as _original
from torch.jit._recursive import wrap_cpp_module

from jit_amp import _C
from jit_amp._packed import Packed
from jit_amp._script import _scripted


def freeze(
    mod: torch.nn.Module,
    preserved_attrs: list[str] | None = None,
    optimize_numerics: bool = True,
    *,
    example_inputs: Any = None,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
    target: Literal["portable", "server"] = "portable",
    check_inputs: bool = True,
) -> Any:
    """Freezes a module, as ``torch.jit.freeze`` does, with its autocast scopes resolved.

    What it returns holds stock operators only, no scope and no operator of jit_amp's, and each
    weight as a constant in the dtype in which it is used. It can be saved and loaded where jit_amp
    is not: Python, libtorch, the lite interpreter. Call it outside any autocast: its scopes are
    part of it already.

    Args:
        mod: an ``nn.Module`` or ``ScriptModule`` in eval mode. It stays as it is.
        preserved_attrs: attributes and methods to keep besides ``forward``.
        optimize_numerics: whether batch norms, and arithmetic with numbers, are folded into
            convolutions and linear layers before the weights are rounded.
        example_inputs: a tuple of arguments of ``forward``; or a tensor, if that is the only one;
            or a dictionary of arguments by name; or a list of any of these, for several examples.
            Their tensors may stand in lists, tuples and dictionaries. With examples, dtypes and
            devices are known and casts are plain or absent; the result refuses tensors of other
            dtypes or devices than the examples', and shapes are free. Without, what is unknown is
            asked at run time, which is right for every input and slower.
        example_kwarg_inputs: a dictionary of arguments by name, besides those of the one example.
        target: where the artefact will run. ``"portable"``: everywhere, phones included.
            ``"server"``: in PyTorch for x86, which has operators that compute an activation in the
            convolution or linear layer before it. They are used where the processor computes in the
            dtype, and results are rounded once less.
        check_inputs: whether the artefact starts with a check of its inputs. Without it nothing
            about them is taken for granted, neither from examples nor from what the weights
            demand: each cast asks at run time for its tensor's dtype and device, as eager does.
            So examples cannot be given. The artefact then takes all that eager takes. It is no
            easier to convert for another engine: docs/engines.md says what is.

    Raises:
        ValueError: an unknown target, ``"server"`` with ``optimize_numerics=False``, or examples
            with ``check_inputs=False``.
        AutocastError: a scope that cannot be known when compiling, or an operator in a scope that
            cannot be exported, with the line.
        TypeError: an example does not fit ``forward``; its signature is in the message.
        RuntimeError: the module is in training mode; what ``torch.jit.freeze`` raises.
    """
    if target not in ("portable", "server"):
        raise ValueError(f"jit_amp.freeze: target is 'portable' or 'server', not {target!r}")
    if target == "server" and not optimize_numerics:
        raise ValueError(
            "jit_amp.freeze: target='server' rounds otherwise than eager: it needs "
            "optimize_numerics=True"
        )
    scripted, examples = _taken(mod, example_inputs, example_kwarg_inputs)
    if examples and not check_inputs:
        raise ValueError(
            "jit_amp.freeze: what examples tell holds only where the artefact checks its inputs: "
            "leave out either the examples or check_inputs=False"
        )
    if not _C.has_scopes(scripted._c):
        _C.check_examples(scripted._c, examples)
        frozen = _original.freeze(scripted, preserved_attrs, optimize_numerics)
        _C.lower_where_it_is(frozen._c)  # for calls under an ambient autocast
        return frozen
    frozen = _C.freeze_module(
        scripted._c,
        list(preserved_attrs or []),
        examples,
        optimize_numerics,
        target == "server",
        check_inputs,
    )
    if target == "server" and examples:
        _pack(frozen, examples[0])
    return wrap_cpp_module(frozen)  # type: ignore[no-untyped-call]


def _pack(frozen: Any, example: tuple[Any, ...]) -> None:
    """Packs the weights for the shapes that the example gives the layers' inputs."""
    packable = _C.packable_weights(frozen, example)
    if packable:
        packed = _script.script(
            Packed([each.weight for each in packable], [each.plan for each in packable])
        )
        packed.pack()
        _C.use_packed(frozen, packable, packed._c)


def optimize_for_inference(
    mod: torch.nn.Module,
    other_methods: list[str] | None = None,
    *,
    example_inputs: Any = None,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
) -> Any:
    """What ``torch.jit.optimize_for_inference`` does, with the results that eager autocast gives.

    PyTorch's splits a linear layer into a product and an addition. In a scope that is still one,
    autocast then casts the product and leaves the bias float32, and so the result; in an artefact
    the result is rounded twice. Here linear layers stay whole.

    Args:
        mod: a frozen module, which is changed; any other is frozen first, in eval mode.
        other_methods: the methods besides ``forward``.
        example_inputs, example_kwarg_inputs: as :func:`freeze` takes them, for a module that is not
            frozen.

    Returns:
        A module for this machine and this build of PyTorch. It cannot be saved.

    Raises:
        AutocastError, RuntimeError: as :func:`freeze`.
    """
    methods = list(other_methods or [])
    if not isinstance(mod, ScriptModule) or hasattr(mod, "training"):
        mod = freeze(
            mod.eval(),
            methods,
            example_inputs=example_inputs,
            example_kwarg_inputs=example_kwarg_inputs,
        )
    for name in ("forward", *methods):
        graph = getattr(mod, name).graph
        torch._C._jit_pass_fuse_frozen_conv_add_relu(graph)
        torch._C._jit_pass_convert_frozen_ops_to_mkldnn(graph)
    return mod


def facts(
    module: torch.nn.Module,
    example_inputs: Any = None,
    *,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
) -> torch._C.Graph:
    """What :func:`freeze` knows of each value when it decides about casts, as a graph to print.

    Args:
        module: an ``nn.Module`` or ``ScriptModule`` in eval mode. It stays as it is.
        example_inputs, example_kwarg_inputs: as :func:`freeze` takes them.

    Returns:
        The graph of ``forward`` with scopes resolved, constants folded and all casts in it. Where
        all examples agree, the type of a tensor is its dtype and device, ``BFloat16(device=cpu)``;
        where they differ, or nothing was seen, ``Tensor``.

    Raises:
        AutocastError, RuntimeError: as :func:`freeze`.
    """
    scripted, examples = _taken(module, example_inputs, example_kwarg_inputs)
    return _C.facts(scripted._c, examples)


def _taken(
    module: torch.nn.Module, example_inputs: Any, example_kwarg_inputs: Mapping[str, Any] | None
) -> tuple[Any, list[tuple[Any, ...]]]:
    """The scripted module, and the examples: all arguments of forward, in their order."""
    scripted = _scripted(module)
    if not isinstance(scripted, ScriptModule):
        raise TypeError(f"jit_amp.freeze takes a module, not {type(module).__name__}")
    if scripted.training:
        raise RuntimeError(
            "jit_amp.freeze takes a module in eval mode: call .eval() on it before freezing"
        )
    given = example_inputs if isinstance(example_inputs, list) else [example_inputs]
    if example_kwarg_inputs is not None and len(given) != 1:
        raise TypeError(
            "example_kwarg_inputs are of one example: give a list of dictionaries as example_inputs"
        )
    examples = []
    for example in given:
        if example is None and example_kwarg_inputs is None:
            continue
        examples.append(_arguments(scripted, example, example_kwarg_inputs or {}))
    return scripted, examples


def _arguments(scripted: Any, example: Any, by_name: Mapping[str, Any]) -> tuple[Any, ...]:
    """One example as all arguments of forward, defaults included."""
    schema = scripted._c._get_method("forward").schema
    formals = schema.arguments[1:]  # without self
    if isinstance(example, Mapping):
        positional, named = (), {**example, **by_name}
    else:
        several = isinstance(example, (tuple, list))
        positional = tuple(example) if several else () if example is None else (example,)
        named = dict(by_name)
    wrong = _misfit(formals, positional, named)
    if wrong:
        takes = ", ".join(
            f"{f.name}: {f.type.annotation_str}"
            + (f" = {f.default_value}" if f.has_default_value() else "")
            for f in formals
        )
        raise TypeError(f"{wrong}: forward takes ({takes})")
    arguments = list(positional)
    for formal in formals[len(positional) :]:
        arguments.append(named.get(formal.name, formal.default_value))
    return tuple(arguments)


def _misfit(formals: Any, positional: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """What is wrong with the number and the names of an example's arguments, if anything."""
    names = [formal.name for formal in formals]
    if len(positional) > len(names):
        return f"an example of {len(positional)} arguments"
    if unknown := [name for name in named if name not in names]:
        return f"an example with an argument `{unknown[0]}`"
    if twice := [name for name in names[: len(positional)] if name in named]:
        return f"an example with `{twice[0]}` by position and by name"
    missing = [
        formal.name
        for formal in formals[len(positional) :]
        if formal.name not in named and not formal.has_default_value()
    ]
    return f"an example without `{missing[0]}`" if missing else ""
