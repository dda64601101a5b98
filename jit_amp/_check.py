"""Checks of arguments: what is wrong, the value that was given, and what is accepted."""

from __future__ import annotations

import reprlib
import types
from collections.abc import Iterable
from typing import Any

import torch


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
    except RuntimeError:
        known = False
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
