"""Methods, properties and hooks of modules and classes, and which of them have scopes."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from jit_amp._source import decorators
from jit_amp._source import names as _scope_names

FUNCTIONS = (types.FunctionType, types.MethodType, staticmethod, classmethod)


def function_of(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)


def accessors_of(cls: type) -> list[Any]:
    members = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    return [each for value in members.values() for each in functions_of_property(value)]


def decorated_members(owners: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The scopes of all that is a function, and of properties; those of later owners count."""
    found: dict[str, list[Any]] = {}
    for members in owners:
        for name, value in members.items():
            if isinstance(value, property):
                found[name] = [
                    s for each in functions_of_property(value) if (s := decorators.unwrap(each)[1])
                ]
            elif isinstance(value, FUNCTIONS):
                found[name] = scopes_of(value)
    return found


def only_switch_gradients(scopes: list[Any]) -> bool:
    """Scopes of a method, or lists of those of a property."""
    flat = [scope for each in scopes for scope in (each if isinstance(each, list) else [each])]
    return all(map(decorators.is_of_gradients, flat))


def scopes_of(function: Any) -> list[Any]:
    return decorators.unwrap(function)[1]


def exported_of(cls: type) -> list[str]:
    """The methods of a class that are compiled besides `forward`."""
    wanted = torch._jit_internal.FunctionModifiers.EXPORT
    functions = inspect.getmembers_static(cls, inspect.isfunction)
    return [
        name
        for name, each in functions
        if torch._jit_internal.get_torchscript_modifier(each) is wanted  # type: ignore[no-untyped-call]
    ]


@functools.cache
def asked_of_others(cls: type) -> frozenset[str]:
    """The names that a class's methods ask of other objects than `self`."""
    names: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == "torch":
            continue
        for member in vars(base).values():
            if isinstance(member, types.FunctionType):
                names |= _scope_names.asked_of_others(decorators.unwrap(member)[0])
    return frozenset(names)


def member_of(module: torch.nn.Module, name: str) -> Any:
    """What a module has by a name, or the getter of a property."""
    member = vars(module).get(name, inspect.getattr_static(type(module), name, None))
    return member.fget if isinstance(member, property) else member


def method_of(module: torch.nn.Module, name: str) -> Any:
    """A Python method of a module, or the getter of a property, below its decorators."""
    inner = decorators.unwrap(member_of(module, name))[0]
    inner = getattr(inner, "__func__", inner)
    if not isinstance(inner, types.FunctionType) or isinstance(
        vars(type(module)).get(name), staticmethod
    ):
        return None
    if (inner.__module__ or "").partition(".")[0] == "torch":
        return None
    return inner


def hooks_of(module: torch.nn.Module) -> dict[str, Any]:
    """The hooks of a module that are compiled, below their decorators."""
    both = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    functions = (decorators.unwrap(each)[0] for each in both)
    return {
        f"{number} {each.__name__}": each
        for number, each in enumerate(functions)
        if isinstance(each, (types.FunctionType, types.MethodType))
    }


def functions_of_property(value: Any) -> list[Any]:
    """Returns the getter of a property, and its setter if there is one."""
    if not isinstance(value, property):
        return []
    return [each for each in (value.fget, value.fset) if each is not None]
