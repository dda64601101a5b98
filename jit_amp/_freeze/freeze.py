"""jit_amp.freeze, jit_amp.facts and jit_amp.optimize_for_inference."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.jit import ScriptModule, _script
from torch.jit import _freeze as _original
from torch.jit._recursive import wrap_cpp_module
from torch.utils._pytree import tree_map

from jit_amp import _C
from jit_amp._base import arguments as _check
from jit_amp._base import process_state
from jit_amp._base.syntax_trees import READ_AGAIN
from jit_amp._freeze.packed import Packed
from jit_amp._precision.precision import Precision
from jit_amp._runs import example_runs
from jit_amp._runs.schema import bound
from jit_amp._script.script import _scripted, script

_ExampleInputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]
_CAST = (torch.bfloat16, torch.float16, torch.float32)  # what io_dtype is for


@process_state.around(process_state.out_of_inference_mode)
@process_state.around(process_state.onednn)
def freeze(
    mod: torch.nn.Module,
    preserved_attrs: list[str] | _ExampleInputs | None = None,
    optimize_numerics: bool = True,
    *,
    example_inputs: _ExampleInputs | None = None,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
    target: Literal["portable", "server"] = "portable",
    check_inputs: bool = True,
    precision: Precision | str | os.PathLike[str] | None = None,
    io_dtype: torch.dtype | None = None,
) -> ScriptModule:
    """Freezes a module, as ``torch.jit.freeze`` does, with its autocast scopes resolved.

    The frozen module holds stock operators only: no scope, and no operator of
    jit_amp's. Each weight is a constant in the dtype that it is used in. Save it with
    ``torch.jit.save`` or ``_save_for_lite_interpreter``, and load it where jit_amp is not. Call it
    outside any autocast, because its scopes are part of it already: inside of one for a device that
    it computes on, the call raises ``torch.jit.Error``.

    The first three arguments are those of ``torch.jit.freeze`` (``torch/jit/_freeze.py``).

    Args:
        mod: a module in eval mode. It stays as it is.
        preserved_attrs (list[str] | tuple | Tensor | dict | list | None): attributes and methods to
            keep besides ``forward``, as a list of strings. Anything else is taken for
            ``example_inputs``, which come second elsewhere: ``jit_amp.freeze(net, (x,))``.
        optimize_numerics: whether batch norms, and arithmetic with numbers, are folded into
            convolutions and linear layers before the weights are rounded. Results then differ from
            eager's by about a rounding; with False they are the same.
        example_inputs (tuple | Tensor | dict | list | None): a tuple of the arguments of
            ``forward``; or a tensor, if that is the only argument; or a dictionary of arguments by
            name; or a list of any of these, for several examples. Tensors may stand in lists,
            tuples and dictionaries. With examples, dtypes and devices are known, so casts are plain
            or absent, and the result refuses tensors of other dtypes or devices; shapes are free.
            Without, what is unknown is asked at run time: right for every input, and slower.
            The module runs once with each example, on copies, so that an example that it cannot
            run is told; not where it has custom operators.
        example_kwarg_inputs: arguments by name, besides those of the one example.
        target: where the frozen module will run. ``"portable"``: everywhere, phones included.
            ``"server"``: in PyTorch with oneDNN, as it is built for x86: it has operators that
            compute an activation in the convolution or linear layer before it. They are used where
            the processor computes in the dtype, and a build without them does not load the file.
            There is one rounding fewer, and convolutions compute with channels last. Weights are
            kept in the layout that is best for the shapes of the first example; calls with other
            shapes are slower.
        check_inputs: whether the frozen module starts with a check of its inputs. Without, nothing
            about them is taken for granted, neither from examples nor from what the weights
            demand: each cast asks at run time for its tensor's dtype and device, as eager does.
            So examples cannot be given. The frozen module then takes all that eager takes. It is no
            easier to convert for another engine: docs/engines.md says what is.
        precision (Precision | str | os.PathLike | None): what ``jit_amp.tune`` found for the
            module, or the file of its ``to_json``. Its units stay in float32; where the module had
            no scopes, the scope is put around it.
        io_dtype: the dtype in which the frozen module takes and gives floating-point tensors;
            ``torch.float32`` in most cases. Results in bfloat16, float16 and float32 are cast to
            it, in tuples, lists and dictionaries too. An input of this dtype is cast to the dtype
            that the example has there; without examples, to that of the module's parameters, if
            all have the same. Everything else stays: float64, integers, None.

    Returns:
        ScriptModule: frozen. Where an input is not like the examples, a call of it raises
            ``torch.jit.Error``, which names the argument. With ``io_dtype``, examples that are
            floating point stand for inputs of that dtype.

    Raises:
        ValueError: an unknown target; ``"server"`` with ``optimize_numerics=False``, or in a build
            of PyTorch without oneDNN; examples with ``check_inputs=False``; the module has no unit
            of a name in ``precision``; or an ``io_dtype`` that is not floating point.
        AutocastError: a scope that cannot be known when compiling, or an operator in a scope that
            cannot be exported; the text has the line.
        TypeError: an example does not fit ``forward``, whose signature is in the message; examples
            are given twice; ``mod`` is what ``torch.compile``, ``torch.export`` or
            ``Precision.apply`` returned; an argument has another type; or, with ``io_dtype``, a
            result is an object, whose tensors cannot be cast.
        RuntimeError: the module cannot run an example, and why; it is in training mode, or has
            nothing of a name in ``preserved_attrs``; what ``torch.jit.freeze`` raises; or
            ``PYTORCH_JIT=0`` has switched TorchScript off.
    """
    _check.compilable("freeze", mod)
    _check.choice("jit_amp.freeze: target", target, ("portable", "server"))
    preserved, example_inputs = _names_or_examples(
        "freeze", "preserved_attrs", preserved_attrs, example_inputs
    )
    _check.flag("optimize_numerics", optimize_numerics)
    if target == "server" and not optimize_numerics:
        raise ValueError(
            "jit_amp.freeze: target='server' rounds otherwise than eager: it needs "
            "optimize_numerics=True"
        )
    if target == "server" and not _has_onednn():
        raise ValueError(
            "jit_amp.freeze: target='server' needs operators of oneDNN, which this build of "
            "PyTorch does not have: leave out the target, and the frozen module runs everywhere"
        )
    _check.flag("check_inputs", check_inputs)
    if io_dtype is not None:
        _check.floating_dtype("io_dtype", io_dtype)
    if precision is not None:
        _check.module("jit_amp.freeze", mod)
        _check_mode("freeze", mod)
        mod = script(mod, None, 1, precision=precision)
    scripted, examples = _taken("freeze", mod, example_inputs, example_kwarg_inputs)
    if examples and not check_inputs:
        raise ValueError(
            "jit_amp.freeze: what examples tell holds only where inputs are checked: "
            "leave out either the examples or check_inputs=False"
        )
    _check_preserved(scripted, preserved)
    form = target if optimize_numerics else "exact"  # csrc/pipelines/pipeline.h, Target
    io, originals = None, examples
    if io_dtype is not None:
        io = io_dtype, examples
        examples = [in_dtype(example, io_dtype) for example in examples]
    if not _C.has_scopes(scripted._c):
        _C.check_examples(scripted._c, examples)
        plain = wrap_cpp_module(_C.frozen_by_pytorch(scripted._c, preserved, io))  # type: ignore[no-untyped-call]
        methods = [name for name in preserved if scripted._c._has_method(name)]
        example_runs.check("freeze", scripted, originals)
        _original.run_frozen_optimizations(plain, optimize_numerics, methods)
        try:
            _C.mend_frozen_by_pytorch(plain._c, form)
        except _C.AutocastError:  # it asks about autocast on a device that examples may tell
            if not examples:
                raise
        else:
            _C.lower_where_it_is(plain._c)  # for calls under an ambient autocast
            return plain  # type: ignore[no-any-return]
    frozen = _C.freeze_module(
        scripted._c,
        preserved,
        examples,
        form,
        bool(check_inputs),
        io,
    )
    example_runs.check("freeze", scripted, originals)
    if target == "server":
        with process_state.random_state():
            graph: Any = frozen._get_method("forward").graph
            asks = graph.findAllNodes(_ASKS_FLOAT16)
            _C.pack_weights(
                frozen, examples[:1], functools.partial(_packed, asks_float16=bool(asks))
            )
    return wrap_cpp_module(frozen)  # type: ignore[no-untyped-call, no-any-return]


def in_dtype(arguments: tuple[Any, ...], dtype: torch.dtype) -> tuple[Any, ...]:
    """Arguments of a module as ``freeze(io_dtype=dtype)`` of it takes them."""

    def cast(value: Any) -> Any:
        is_cast = isinstance(value, Tensor) and value.dtype in _CAST
        return value.detach().to(dtype) if is_cast else value

    return tree_map(cast, arguments)  # type: ignore[no-any-return]


def _has_onednn() -> bool:
    """Whether this build of PyTorch has the operators of target="server"."""
    return bool(torch._C._jit_get_schemas_for_operator("mkldnn::_linear_pointwise"))


_ASKS_FLOAT16 = "mkldnn::_is_mkldnn_fp16_supported"


def _packed(weights: list[Tensor], plans: list[list[int]], asks_float16: bool = True) -> Any:
    asks_float16 |= any(weight.dtype == torch.float16 for weight in weights)
    with READ_AGAIN:
        made = _script.script(Packed(weights, plans, asks_float16))._c
    weights.clear()  # what is scripted has a list of its own, and is to be the only one
    return made


@process_state.around(process_state.onednn)
def optimize_for_inference(
    mod: torch.nn.Module,
    other_methods: list[str] | _ExampleInputs | None = None,
    *,
    example_inputs: _ExampleInputs | None = None,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
) -> ScriptModule:
    """What ``torch.jit.optimize_for_inference`` does, with the results that eager autocast gives.

    PyTorch's (``torch/jit/_freeze.py``) splits a linear layer into a product and an addition. In a
    scope, autocast then casts the product and leaves the bias float32, and so the result; in an
    frozen module the result is rounded twice. Here linear layers stay whole.

    Args:
        mod: a frozen module, which is changed in place; any other is put in eval mode and frozen
            first.
        other_methods (list[str] | tuple | Tensor | dict | list | None): the methods besides
            ``forward``, as a list of strings. Anything else is taken for ``example_inputs``.
        example_inputs (tuple | Tensor | dict | list | None): as ``jit_amp.freeze`` takes them, for
            a module that is not frozen.
        example_kwarg_inputs: as ``jit_amp.freeze`` takes them.

    Returns:
        ScriptModule: for this machine and this build of PyTorch. It cannot be saved.

    Raises:
        AutocastError: as ``jit_amp.freeze``.
        TypeError: an argument of another type, or examples for a module that is frozen; and as
            ``jit_amp.freeze``.
        RuntimeError: as ``jit_amp.freeze``.
    """
    _check.compilable("optimize_for_inference", mod)
    _check.module("jit_amp.optimize_for_inference", mod)
    methods, example_inputs = _names_or_examples(
        "optimize_for_inference", "other_methods", other_methods, example_inputs
    )
    if not isinstance(mod, ScriptModule) or hasattr(mod, "training"):
        mod = freeze(
            mod.eval(),
            methods,
            example_inputs=example_inputs,
            example_kwarg_inputs=example_kwarg_inputs,
        )
    elif example_inputs is not None or example_kwarg_inputs is not None:
        raise TypeError("example_inputs are for freezing, and the module is frozen already")
    for name in methods:
        _check.choice("other_methods", name, sorted(mod._c._method_names()))
    for name in ("forward", *methods):
        graph = getattr(mod, name).graph
        torch._C._jit_pass_fuse_frozen_conv_add_relu(graph)
        torch._C._jit_pass_convert_frozen_ops_to_mkldnn(graph)
    return mod


@process_state.around(process_state.onednn)
def facts(
    module: torch.nn.Module,
    example_inputs: _ExampleInputs | None = None,
    *,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
) -> torch._C.Graph:
    """Returns what ``jit_amp.freeze`` knows of each value when it decides about casts, as a graph.

    Args:
        module: a module in eval mode. It stays as it is.
        example_inputs (tuple | Tensor | dict | list | None): as ``jit_amp.freeze`` takes them.
        example_kwarg_inputs: as ``jit_amp.freeze`` takes them.

    Returns:
        Graph: that of ``forward`` with scopes resolved, constants folded and all casts in it, to
            ``print``. Where all examples agree, the type of a tensor is its dtype and device,
            ``BFloat16Tensor(device=cpu)``; where they differ, or nothing was seen, ``Tensor``.

    Raises:
        AutocastError: as ``jit_amp.freeze``.
        TypeError: as ``jit_amp.freeze``.
        RuntimeError: as ``jit_amp.freeze``.
    """
    scripted, examples = _taken("facts", module, example_inputs, example_kwarg_inputs)
    graph = _C.facts(scripted._c, examples)
    example_runs.check("facts", scripted, examples)
    return graph


def _names_or_examples(
    function: str, name: str, second: Any, example_inputs: Any
) -> tuple[list[str], Any]:
    """The names, and the examples: the second argument is the one or the other."""
    is_example = isinstance(second, (Tensor, Mapping)) or (
        isinstance(second, (tuple, list)) and not all(isinstance(each, str) for each in second)
    )
    if not is_example:
        return _check.names(name, second), example_inputs
    if example_inputs is not None:
        raise TypeError(
            f"jit_amp.{function}: examples are given twice, as the second argument, {name}, and as "
            "example_inputs"
        )
    return [], second


def _check_preserved(scripted: ScriptModule, names: list[str]) -> None:
    """Whether the module has what is to be preserved: what submodules have, by its path."""
    for name in names:
        owner: Any = scripted
        for part in name.split("."):
            is_module = isinstance(owner, ScriptModule)
            if not is_module or not (owner._c.hasattr(part) or owner._c._has_method(part)):
                raise RuntimeError(
                    f"Unknown name: {name}. preserved_attrs: the module has "
                    f"{', '.join(map(repr, _own_names(owner))) if is_module else 'no attributes'}"
                )
            owner = getattr(owner, part)


def _own_names(scripted: Any) -> list[str]:
    """The methods, submodules, parameters, buffers and other attributes of a scripted module."""
    known = getattr(scripted, "_concrete_type", None)  # none in what PyTorch has frozen
    own = {*scripted._c._method_names(), *(known.get_attributes() if known else ())}
    for members in (scripted._modules, scripted._parameters, scripted._buffers):
        own.update(members.keys())
    return sorted(name for name in own if not name.startswith("_"))


def _taken(
    function: str,
    module: torch.nn.Module,
    example_inputs: Any,
    example_kwarg_inputs: Mapping[str, Any] | None,
) -> tuple[Any, list[tuple[Any, ...]]]:
    """The scripted module, and the examples: all arguments of forward, in their order."""
    _check.compilable(function, module)
    _check.module(f"jit_amp.{function}", module)
    if example_kwarg_inputs is not None:
        _check.instance(
            "example_kwarg_inputs", example_kwarg_inputs, Mapping, "a dictionary of arguments"
        )
    _check_mode(function, module)
    scripted = _scripted(module)
    if isinstance(example_inputs, list) and not example_inputs:
        raise ValueError("example_inputs: a list of no examples; leave it out, or give one")
    given = example_inputs if isinstance(example_inputs, list) else [example_inputs]
    if example_kwarg_inputs is not None and len(given) != 1:
        raise TypeError(
            "example_kwarg_inputs are of one example: give a list of dictionaries as example_inputs"
        )
    examples = []
    for example in given:
        if example is None and example_kwarg_inputs is None:
            continue
        examples.append(bound(scripted, example, example_kwarg_inputs or {}))
    return scripted, examples


def _check_mode(function: str, module: torch.nn.Module) -> None:
    if not getattr(module, "training", False):  # what is frozen has none
        return
    name = type(module).__name__
    if isinstance(module, ScriptModule):
        name = str(module.original_name)
    parts = [(path, part) for path, part in module.named_modules() if path]
    training = [f"`{path}`" for path, part in parts if getattr(part, "training", False)]
    if not parts:
        also = ""
    elif not training:
        also = ", though none of its parts is"
    elif len(training) == len(parts):
        also = ", and so are all its parts"
    else:
        shown = ", ".join(training[:4]) + ", ..." * (len(training) > 4)
        also = f", and so {'is' if len(training) == 1 else 'are'} {shown} of it"
    raise RuntimeError(
        f"jit_amp.{function} takes a module in eval mode, and this {name} is in training mode"
        f"{also}: call .eval() on the {name} before freezing"
    )
