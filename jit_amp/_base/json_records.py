"""Data classes as JSON that every parser takes, and back."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from jit_amp._base.printable import printable, printable_lines

_T = TypeVar("_T")
_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NAMES = {"None": "null", "True": "true", "False": "false"}
_LARGEST = 2**63  # of whole numbers: beyond it they are no counts, and no numbers of lines

Lines = Annotated[str, "several lines"]
"""The type of a text that is shown as it is written; others are shown in one line."""


@dataclasses.dataclass(frozen=True)
class Check:
    """What holds of an attribute besides its type: ``Annotated[float, FINITE]``."""

    expected: str  # in words
    holds: Callable[[Any], bool]


FINITE = Check("a finite number", math.isfinite)
NOT_NEGATIVE = Check("a number that is not negative", lambda value: not value < 0)  # NaN is none
NUMBER_OF_A_LINE = Check("the number of a line", lambda value: value > 0)


def one_of(*values: str) -> Check:
    """Of a text that is one of these."""
    return Check(f"one of {', '.join(values)}", lambda value: value in values)


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


def read(kind: type[_T], text: str, *, strict: bool = False) -> _T:
    """An object of a data class, of what ``dataclasses.asdict`` and ``as_json`` made of one.

    Texts are made printable, in one line but for `Lines`.

    Args:
        kind: the class. Its attributes are texts, numbers, other such classes, ``Any``, and tuples,
            lists, dictionaries by texts and ``None`` of these.
        text: the JSON.
        strict: whether an attribute that the class has not is an error.

    Raises:
        ValueError: it is no JSON, or a value in it is of another type; the place is told.
    """
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:  # JSONDecodeError, and of numbers of thousands of digits
        raise ValueError(f"no JSON: {error}") from error
    return typing.cast(_T, _from_json_value(kind, value, "", strict))


def wrong(place: str, value: Any, expected: str) -> ValueError:
    """What to raise of a value at a place of a file."""
    return ValueError(f"{place or 'the whole'}: {_shown(value)} is not {expected}")


def _from_json_value(kind: Any, value: Any, place: str, strict: bool) -> Any:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _from_json_value(inside[0], value, place, strict)
    if kind == Lines:
        return printable_lines(_checked(str, value, place, "a text"))
    if origin is Annotated:
        made = _from_json_value(inside[0], value, place, strict)
        for check in inside[1:]:
            if not check.holds(made):
                raise wrong(place, value, check.expected)
        return made
    if origin is tuple:
        return _tuple(inside, value, place, strict)
    if origin is dict:
        _checked(Mapping, value, place, "an object")
        return {
            printable(key): _from_json_value(inside[1], each, f"{place}.{printable(key)}", strict)
            for key, each in value.items()
        }
    if kind is str:
        return printable(_checked(str, value, place, "a text"))
    if kind is bool:
        return _checked(bool, value, place, "true or false")
    if kind is int:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= _LARGEST:
            raise wrong(place, value, "a whole number")
        return value
    if kind is float:
        return _float(value, place)
    return _record(kind, value, place, strict)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of the attributes of a class, of which a file may have thousands."""
    return typing.get_type_hints(kind, include_extras=True)


def _record(kind: Any, value: Any, place: str, strict: bool) -> Any:
    _checked(Mapping, value, place, "an object")
    hints = _hints(kind)
    attributes = {each.name: each for each in dataclasses.fields(kind)}
    if strict and (unknown := sorted(set(value) - set(attributes))):
        raise ValueError(f"{_in(place, printable(unknown[0]))}: there is no such attribute")
    known = {}
    for name, each in attributes.items():
        if name in value:
            known[name] = _from_json_value(hints[name], value[name], _in(place, name), strict)
        elif each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            raise ValueError(f"{_in(place, name)}: it is missing")
    return kind(**known)


def _tuple(inside: tuple[Any, ...], value: Any, place: str, strict: bool) -> tuple[Any, ...]:
    _checked(list, value, place, "a list")
    kinds = [inside[0]] * len(value) if inside[-1] is Ellipsis else list(inside)
    if len(value) != len(kinds):
        raise wrong(place, value, f"a list of {len(kinds)}")
    return tuple(
        _from_json_value(kind, each, f"{place}[{i}]", strict)
        for i, (kind, each) in enumerate(zip(kinds, value, strict=True))
    )


def _float(value: Any, place: str) -> float:
    if isinstance(value, str) and value in _FLOATS:
        return _FLOATS[value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise wrong(place, value, "a number")


def _checked(kind: Any, value: Any, place: str, expected: str) -> Any:
    if not isinstance(value, kind):
        raise wrong(place, value, expected)
    return value


def _in(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _shown(value: Any) -> str:
    from jit_amp._base.arguments import shown  # imports torch, which some commands do without

    text = printable(shown(value))
    return _NAMES.get(text, text)
