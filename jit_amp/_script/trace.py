"""jit_amp.trace and jit_amp.trace_module."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, ParamSpec, TypeVar, overload

import torch
from torch._jit_internal import FunctionModifiers
from torch.jit import ScriptFunction, ScriptModule, _state
from torch.jit import _trace as _original

from jit_amp import _C
from jit_amp._base import arguments, process_state
from jit_amp._precision import precision as _precisions
from jit_amp._precision.precision import Precision
from jit_amp._script import compiling, ignore_amp
from jit_amp._script.recording import recorded, state_of_trace
from jit_amp._script.script import inside, lower_types, script
from jit_amp._source import decorators

_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def trace(  # type: ignore[overload-overlap]  # a module can be called too
    func: torch.nn.Module,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = _state._python_cu,
    example_kwarg_inputs: Any = None,
    _store_inputs: bool = True,
    *,
    precision: Precision | str | os.PathLike[str] | None = None,
) -> ScriptModule: ...


@overload
def trace(
    func: Callable[_P, _R],
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = _state._python_cu,
    example_kwarg_inputs: Any = None,
    _store_inputs: bool = True,
    *,
    precision: Precision | str | os.PathLike[str] | None = None,
) -> ScriptFunction[_P, _R]: ...


def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = _state._python_cu,
    example_kwarg_inputs: Any = None,
    _store_inputs: bool = True,
    *,
    precision: Precision | str | os.PathLike[str] | None = None,
) -> Any:
    """``torch.jit.trace``, with the autocast scopes in the trace.

    Scopes that the traced code enters are part of the result, and so is an autocast around the call
    of ``trace``. The casts that autocast makes inside them are not recorded: a call casts as eager
    would for the dtypes that it gets. Parameters stay the module's own.

    The arguments are those of ``torch.jit.trace`` (``torch/jit/_trace.py``).

    Args:
        func (Callable | nn.Module): what is traced.
        example_inputs (tuple | Tensor): the arguments that it is run with: once, and with
            ``check_trace`` again.
        optimize: has no effect, in PyTorch neither.
        check_trace: whether PyTorch's check of the trace runs. It is left out where the trace waits
            for tasks, or where scripted modules run in a scope of it.
        check_inputs (list[tuple] | None): further inputs for that check.
        check_tolerance: how far results may differ in that check.
        strict: as PyTorch has it: with False, a trace may return lists and dictionaries.
        _force_outplace: PyTorch's own, as the next three.
        _module_class: PyTorch's own.
        _compilation_unit: PyTorch's own.
        _store_inputs: PyTorch's own.
        example_kwarg_inputs (dict | None): the arguments by name, in place of ``example_inputs``.
        precision (Precision | str | os.PathLike | None): what ``jit_amp.tune`` found for the
            module, or the file of its ``to_json``: the trace is of the module with that applied.

    Returns:
        ScriptFunction | ScriptModule: as ``jit_amp.script`` returns them.

    Raises:
        AutocastError: a scope that cannot be known when compiling, or an operator that ran in an
            autocast state that no ``torch.autocast`` has made; the text has the line.
        TracingCheckError: PyTorch's check found a difference.
        TypeError: what is no function and no module, or what ``torch.compile``, ``torch.export`` or
            ``Precision.apply`` returned, or no example; ``precision`` is no precision, or not given
            for a module that was not scripted.
        ValueError: the module has no unit of a name in ``precision``.
        RuntimeError: what else ``torch.jit.trace`` raises.
    """
    arguments.traceable("trace", func)
    arguments.not_compiled_in_place("trace", func)
    if precision is not None:
        found = _precisions.loaded(precision)
        # These are kept in the graph, which has each operator as the program called it.
        operators = found.units if found.kind == "operator" else ()
        with (dataclasses.replace(found, units=()) if operators else found).apply(func):
            found.check_units(func)
            traced = trace(
                func,
                example_inputs,
                optimize,
                check_trace,
                check_inputs,
                check_tolerance,
                strict,
                _force_outplace,
                _module_class,
                _compilation_unit,
                example_kwarg_inputs,
                _store_inputs,
            )
        ignore_amp.keep_operators(traced, operators)
        return traced
    if not callable(func):
        raise TypeError(f"trace: {arguments.shown(func)} is not a function or an nn.Module")
    if example_inputs is None and example_kwarg_inputs is None:
        raise TypeError("trace: example_inputs, or example_kwarg_inputs, are needed: it runs them")
    if example_inputs is not None:
        arguments.instance(
            "example_inputs", example_inputs, (Iterable, torch.Tensor), "a tuple of arguments"
        )
    return _traced(
        _original.trace,
        ["forward"],
        func,
        example_inputs,
        optimize,
        check_trace,
        check_inputs,
        check_tolerance,
        strict,
        _force_outplace,
        _module_class,
        _compilation_unit,
        example_kwarg_inputs,
        _store_inputs,
    )


def trace_module(
    mod: torch.nn.Module,
    inputs: dict[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = _state._python_cu,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
) -> ScriptModule:
    """``torch.jit.trace_module``, with the autocast scopes in the trace, as ``jit_amp.trace``.

    Args:
        mod: the module that is traced.
        inputs: the arguments of each method that is to be traced, by the method's name.
        optimize: has no effect, in PyTorch neither.
        check_trace: as ``jit_amp.trace``.
        check_inputs: as ``jit_amp.trace``, with dictionaries like ``inputs``.
        check_tolerance: as ``jit_amp.trace``.
        strict: as ``jit_amp.trace``.
        example_inputs_is_kwarg: whether ``inputs`` has dictionaries of arguments by name.
        _force_outplace: PyTorch's own, as the next three.
        _module_class: PyTorch's own.
        _compilation_unit: PyTorch's own.
        _store_inputs: PyTorch's own.

    Returns:
        ScriptModule: as ``jit_amp.script`` returns it.

    Raises:
        AutocastError: as ``jit_amp.trace``.
        TracingCheckError: as ``jit_amp.trace``.
        TypeError: what ``torch.compile``, ``torch.export`` or ``Precision.apply`` returned.
        RuntimeError: what else ``torch.jit.trace_module`` raises.
    """
    arguments.traceable("trace_module", mod)
    arguments.not_compiled_in_place("trace_module", mod)
    traced: ScriptModule = _traced(
        _original.trace_module,
        list(inputs) if isinstance(inputs, dict) else [],
        mod,
        inputs,
        optimize,
        check_trace,
        check_inputs,
        check_tolerance,
        strict,
        _force_outplace,
        _module_class,
        _compilation_unit,
        example_inputs_is_kwarg,
        _store_inputs,
    )
    return traced


def _traced(
    original: Callable[..., Any],
    methods: list[str],
    func: Any,
    inputs: Any,
    optimize: Any,
    check_trace: bool,
    *args: Any,
    **kwargs: Any,
) -> Any:
    def run(check_trace: bool) -> Any:
        try:
            return original(func, inputs, optimize, check_trace, *args, **kwargs)
        except RuntimeError as error:
            if "INTERNAL ASSERT FAILED" not in str(error):
                raise
            _refuse_what_the_tracer_fails_on(func, str(error).splitlines()[0])

    if state_of_trace():  # PyTorch's check of a trace traces again
        return run(check_trace)
    cache_enabled = None if torch.is_autocast_cache_enabled() else False
    ambient: list[decorators.Around] = [
        (device, torch.get_autocast_dtype(device), True, cache_enabled)
        for device in process_state.autocast_devices()
        if torch.is_autocast_enabled(device)
    ]
    if isinstance(func, ScriptModule):  # PyTorch says that it is no trace, and returns it
        return inside(run(check_trace), ambient, methods)
    with recorded() as state, compiling.of_a_trace():
        traced = run(check_trace)
        if not state.is_checked:
            state.recording.check()
    if not isinstance(traced, (ScriptModule, ScriptFunction)):  # PYTORCH_JIT=0
        return traced
    owner = getattr(func, "__self__", func)
    if isinstance(traced, ScriptModule):
        _C.restore_module(traced._c, decorators.pattern(), methods, ambient)
    else:
        _C.restore_function(traced, decorators.pattern(), ambient)
    lower_types(_traced_modules(func, traced))
    result = script(traced)
    if result is traced and isinstance(traced, ScriptModule):
        ignore_amp.ignores_in_copies(traced, owner)
    return result


def _refuse_what_the_tracer_fails_on(func: Any, said: str) -> NoReturn:
    """Raises AutocastError with the parts whose exported methods make the tracer fail, if any."""
    owner = getattr(func, "__self__", func)
    exporting = _exporting(owner) if isinstance(owner, torch.nn.Module) else {}
    if not exporting:
        name = getattr(func, "__qualname__", type(func).__qualname__)
        _C.refuse(403, [f"`{name}`", said, ""])
    parts: list[str] = []
    methods: list[str] = []
    attributes: dict[str, None] = {}
    for path, (module, names) in exporting.items():
        kind = type(module).__qualname__
        listed = " and ".join(f"`{name}`" for name in names)
        plural = "s" if len(names) > 1 else ""
        parts.append(f"`{path or kind}` ({kind}), which has the exported method{plural} {listed}")
        methods += [f"`{kind}.{name}`" for name in names]
        attributes |= dict.fromkeys(_annotated_otherwise(module))
    advice = f"move {' and '.join(methods)} to a module that is not traced, or "
    if attributes:
        advice = f"annotate {' and '.join(attributes)} as `torch.Tensor`, or {advice}"
    _C.refuse(403, ["; ".join(parts), said, advice])


def _exporting(root: torch.nn.Module) -> dict[str, tuple[torch.nn.Module, list[str]]]:
    """The outermost parts that have methods under ``@torch.jit.export``, and these, by path."""
    found: dict[str, tuple[torch.nn.Module, list[str]]] = {}
    for path, module in root.named_modules():
        if any(not outer or path.startswith(f"{outer}.") for outer in found):
            continue
        members = {name: inspect.getattr_static(module, name, None) for name in dir(module)}
        names = [
            name
            for name, member in members.items()
            if getattr(member, "_torchscript_modifier", None) is FunctionModifiers.EXPORT
        ]
        if names:
            found[path] = module, names
    return found


def _annotated_otherwise(root: torch.nn.Module) -> Iterator[str]:
    """The user's attributes that hold a tensor, and are not annotated as one."""
    for module in root.modules():
        members = {**vars(module), **module._parameters, **module._buffers}
        for kind in type(module).__mro__:
            if kind.__module__.startswith("torch."):
                break
            for name, annotation in vars(kind).get("__annotations__", {}).items():
                is_tensor = annotation in (torch.Tensor, torch.nn.Parameter) or (
                    str(annotation).rpartition(".")[2] in ("Tensor", "Parameter")
                )
                if isinstance(members.get(name), torch.Tensor) and not is_tensor:
                    yield f"`{kind.__qualname__}.{name}`"


def _traced_modules(func: Any, traced: Any) -> Iterator[Any]:
    """The modules whose types the trace made: all but those that were scripted before."""
    owner = getattr(func, "__self__", func)
    if isinstance(traced, ScriptModule) and isinstance(owner, torch.nn.Module):
        originals = dict(owner.named_modules(remove_duplicate=False))
        for path, each in traced.named_modules(remove_duplicate=False):
            if not isinstance(originals.get(path), ScriptModule):
                yield each
