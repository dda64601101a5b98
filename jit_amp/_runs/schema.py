"""Examples bound to the schema of a program: by position, by name, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def bound(scripted: Any, example: Any, by_name: Mapping[str, Any]) -> tuple[Any, ...]:
    """One example as all arguments of forward, defaults included."""
    schema = scripted._c._get_method("forward").schema
    formals = schema.arguments[1:]  # without self
    if isinstance(example, Mapping):
        positional, named = (), {**example, **by_name}
    else:
        several = isinstance(example, (tuple, list))
        positional = tuple(example) if several else () if example is None else (example,)
        named = dict(by_name)
    wrong = misfit(formals, positional, named)
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


def misfit(formals: Any, positional: tuple[Any, ...], named: Mapping[str, Any]) -> str:
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
