"""Checks of arguments: what is wrong, the value that was given, and what is accepted."""

from __future__ import annotations

import reprlib
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.jit import ScriptFunction, ScriptModule

from jit_amp._base import module_methods


def instance(name: str, value: Any, kinds: type | tuple[type, ...], accepted: str) -> None:
    """Raises TypeError unless ``value`` is one of ``kinds``, which ``accepted`` says in words."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name}: {shown(value)} is not {accepted}")


def flag(name: str, value: Any) -> None:
    """Raises TypeError unless ``value`` is True or False, or the number 1 or 0."""
    if not isinstance(value, int) or value not in (0, 1):
        raise TypeError(f"{name}: {shown(value)} is not True or False")


def choice(name: str, value: Any, accepted: Iterable[str | None]) -> None:
    """Raises ValueError unless ``value`` is one of ``accepted``."""
    accepted = list(accepted)
    if not (value is None or isinstance(value, str)) or value not in accepted:
        raise ValueError(f"{name}: {shown(value)} is none of {', '.join(map(repr, accepted))}")


def floating_dtype(name: str, value: Any) -> None:
    """Raises TypeError for what is no dtype, and ValueError for one that models do not compute in:
    an integer's, or one of eight bits."""
    instance(name, value, torch.dtype, "a dtype such as torch.float32")
    accepted = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    if value not in accepted:
        raise ValueError(f"{name}: {value} is none of {', '.join(map(str, accepted))}")


def device_type(name: str, value: Any) -> None:
    """Raises unless ``value`` is a device type that autocast knows."""
    instance(name, value, str, "a device type such as 'cpu' or 'cuda'")
    try:
        known = torch.amp.autocast_mode.is_autocast_available(value)
        device = torch.device(value)
    except RuntimeError:
        known = False
    if known and device.index is not None:
        raise ValueError(
            f"{name}: {value!r} is one device, and autocast is for all of a type: write "
            f"{device.type!r}"
        )
    if not known:
        raise ValueError(
            f"{name}: {value!r} is no device type that autocast is for, such as 'cpu' or 'cuda'"
        )


def names(name: str, value: Any) -> list[str]:
    """Returns several names as a list, of none given an empty one. TypeError: it is one text, or
    holds something else."""
    if value is None:
        return []
    if isinstance(value, str):
        raise TypeError(f"{name}: {value!r} is not a list of names; write [{value!r}]")
    instance(name, value, Iterable, "a list of names")
    listed = list(value)
    for each in listed:
        instance(name, each, str, "a name: a list of strings is expected")
    return listed


def scriptable(name: str, value: Any) -> None:
    """Raises TypeError for plain values, of which TorchScript says that they are classes."""
    plain = (int, float, complex, str, bytes, types.ModuleType, torch.dtype, torch.Tensor)
    if value is None or isinstance(value, plain):
        raise TypeError(f"{name}: {shown(value)} is not a function or an nn.Module")


def compilable(function: str, value: Any) -> None:
    """Raises for a program that is none of TorchScript's and cannot become one, and says what to
    give in its place.

    Raises:
        TypeError: torch.compile, torch.export or Precision.apply returned it, or a part of it.
        RuntimeError: TorchScript is switched off, and it was not scripted.
    """
    traceable(function, value)
    _refuse_exported_modules(function, value)
    for path, part in _python_modules(value):
        if module_methods.is_changed(part):
            what = f"`{path}` of {type(value).__name__}" if path else type(value).__name__
            raise TypeError(
                f"jit_amp.{function}: {what} runs with Precision.apply at the moment, which is "
                "eager's alone: leave its `with` block, and give jit_amp.script, jit_amp.trace or "
                "jit_amp.freeze the precision, as `precision=`"
            )
    needs_torchscript(function, value)


def needs_torchscript(function: str, value: Any) -> None:
    """Raises RuntimeError where TorchScript is switched off and ``value`` was not scripted."""
    if not torch.jit._state._enabled and not isinstance(value, (ScriptModule, ScriptFunction)):
        raise RuntimeError(
            f"jit_amp.{function} needs TorchScript, which PYTORCH_JIT=0 has switched off: run it "
            "without that environment variable"
        )


def traceable(function: str, value: Any, *, takes_compiled: bool = False) -> None:
    """Raises TypeError for what can be neither scripted nor traced: what torch.compile or
    Precision.apply returned, or an ExportedProgram. `takes_compiled`: but not for modules that
    torch.compile returned."""
    not_exported(function, value)
    if what := getattr(
        type(value), "IS_NO_MODEL", ""
    ):  # of Precision, and what its `apply` returns
        raise TypeError(
            f"jit_amp.{function} does not take {what}: give the model itself; jit_amp.script, "
            "jit_amp.trace and jit_amp.freeze take the precision beside it, as `precision=`"
        )
    if not isinstance(value, nn.Module):
        if _is_compiled(value):
            raise TypeError(
                f"jit_amp.{function}: {_name_of(value)} is compiled by torch.compile already: give "
                "the function as it is before that"
            )
        return
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    for path, part in _python_modules(value):
        what = f"`{path}` of {type(value).__name__}" if path else ""
        if dynamo and isinstance(part, dynamo.OptimizedModule):
            if takes_compiled:
                continue
            original = f"{path}._orig_mod" if path else "_orig_mod"
            raise TypeError(
                f"jit_amp.{function}: {what or type(part._orig_mod).__name__} is compiled by "
                f"torch.compile already: give the module as it is before that, `{original}`"
            )
        if _is_compiled(getattr(part, "forward", None)):
            raise TypeError(
                f"jit_amp.{function}: the forward of {what or type(part).__name__} is compiled by "
                "torch.compile already: give a module whose forward is not"
            )


def below_compiled(value: Any) -> Any:
    """The module that torch.compile was given, where it returned the value; else the value."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    while dynamo and isinstance(value, dynamo.OptimizedModule):
        value = value._orig_mod
    return value


def not_compiled_in_place(function: str, value: Any) -> None:
    """Raises TypeError for a module of which ``compile()`` was called, or a part's: its calls,
    which a trace records, are of what torch.compile has made."""
    for path, part in _python_modules(value):
        if getattr(part, "_compiled_call_impl", None) is not None:
            what = f"`{path}` of {type(value).__name__}" if path else type(part).__name__
            raise TypeError(
                f"jit_amp.{function}: {what} is compiled by its compile() already, which cannot be "
                "traced: give a copy.deepcopy of the module, which is not compiled"
            )


def not_exported(function: str, value: Any) -> None:
    """Raises TypeError for an ExportedProgram."""
    export = sys.modules.get("torch.export.exported_program")
    if export and isinstance(value, export.ExportedProgram):
        raise TypeError(
            f"jit_amp.{function} does not take an ExportedProgram: give the model that it was "
            "exported from, or what jit_amp.trace makes of its module()"
        )


def _refuse_exported_modules(function: str, value: Any) -> None:
    unlift: Any = sys.modules.get("torch.export._unlift")
    kind = getattr(unlift, "_StatefulGraphModule", None)
    if kind is None:
        return
    for path, part in _python_modules(value):
        if isinstance(part, kind):
            what = f"`{path}` of {type(value).__name__}" if path else "this"
            raise TypeError(
                f"jit_amp.{function}: {what} is the module() of an ExportedProgram, which "
                "TorchScript does not compile: give the model that was exported, or jit_amp.trace "
                "it"
            )


def _python_modules(value: Any) -> Iterator[tuple[str, nn.Module]]:
    """A module and its parts, by their paths, without those that were scripted; else nothing."""
    if not isinstance(value, nn.Module) or isinstance(value, ScriptModule):
        return
    try:
        named = list(value.named_modules())
    except AttributeError:  # without a call of nn.Module.__init__, which PyTorch tells
        return
    for path, part in named:
        if not isinstance(part, ScriptModule):
            yield path, part


def _is_compiled(function: Any) -> bool:
    """Whether torch.compile returned it; torch.compiler.disable returns the like."""
    own = getattr(function, "__func__", function)
    return (
        isinstance(own, types.FunctionType)
        and hasattr(own, "_torchdynamo_orig_callable")
        and not hasattr(own, "_torchdynamo_disable")
    )


def _name_of(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def module(name: str, value: Any) -> None:
    """Raises TypeError unless ``value`` is a module, scripted or not."""
    if isinstance(value, type) and issubclass(value, torch.nn.Module):
        raise TypeError(
            f"{name} takes a module, and {value.__name__} is a class: make an instance of it"
        )
    if not isinstance(value, torch.nn.Module):
        raise TypeError(f"{name} takes a module, not {shown(value)}")


def shown(value: Any) -> str:
    """A value as an error names it: short, and without the numbers of a tensor."""
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        return f"an object of type {type(value).__name__}"
    return reprlib.repr(value)
