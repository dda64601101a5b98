"""Data classes as JSON that every parser takes, and back."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON that every parser takes: numbers that JSON does not have are the texts ``"NaN"``,
    ``"Infinity"`` and ``"-Infinity"``."""

    def plain(each: Any) -> Any:
        if isinstance(each, float) and not math.isfinite(each):
            return "NaN" if math.isnan(each) else "Infinity" if each > 0 else "-Infinity"
        if isinstance(each, dict):
            return {key: plain(inner) for key, inner in each.items()}
        return [plain(inner) for inner in each] if isinstance(each, (list, tuple)) else each

    return json.dumps(plain(value), indent=indent, allow_nan=False)


def of_json(kind: Any, value: Any, strict: bool = False) -> Any:
    """An object of a data class, of what ``dataclasses.asdict`` and JSON made of one.

    Args:
        kind: the class; inside, the type of an attribute.
        value: what ``json.loads`` gave.
        strict: whether an attribute that the class has not is an error.

    Raises:
        TypeError: an object is something else, or lacks an attribute.
        ValueError: it has an attribute too many, or a text where a number should be.
    """
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else of_json(inside[0], value, strict)
    if origin is tuple:
        return tuple(of_json(inside[0], element, strict) for element in value)
    if kind is float:
        return float(value)  # "Infinity" and "NaN" too
    if not dataclasses.is_dataclass(kind):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r:.40} where an object is expected")
    hints = typing.get_type_hints(kind)
    names = [attribute.name for attribute in dataclasses.fields(kind)]
    if strict and (unknown := sorted(set(value) - set(names))):
        raise ValueError(f"unknown {unknown[0]!r}")
    known = {name: of_json(hints[name], value[name], strict) for name in names if name in value}
    make: Any = kind
    return make(**known)
