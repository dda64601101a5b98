"""Branches of which an exported program has one side: those on how many elements there are, which
the values of tensors tell."""

from __future__ import annotations

from typing import Any

from torch import SymBool, SymInt
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from jit_amp import _C


class OneWay(Exception):
    """A branch on sizes, both sides of which no program can have: ``jit_amp._export.tracer`` tries
    again, with one of them and a check."""

    def __init__(self, number: int, side: int, line: str, error: _C.AutocastError) -> None:
        super().__init__(number, side, line, error)
        self.number, self.side, self.line, self.error = number, side, line, error


# Of expressions of ints, of which torch.export keeps what is checked; it drops those of floats.
_KEPT = frozenset({
    "Add", "And", "BooleanFalse", "BooleanTrue", "CleanDiv", "Equality", "FloorDiv",
    "GreaterThan", "Integer", "LessThan", "Max", "Min", "Mod", "Mul", "NegativeOne", "Not", "One",
    "Or", "PythonMod", "StrictGreaterThan", "StrictLessThan", "Symbol", "Unequality", "Zero",
})  # fmt: skip


def is_of_ints(condition: SymBool) -> bool:
    parts = [condition.node.expr]
    for each in parts:
        parts.extend(each.args)
        if type(each).__name__ not in _KEPT or (each.is_Symbol and not each.is_integer):
            return False
    return True


_FLOATS = frozenset({
    "CeilToInt", "FloorToInt", "IntTrueDiv", "RoundDecimal", "RoundToInt", "ToFloat",
    "TruncToFloat", "TruncToInt",
})  # fmt: skip


def has_floats(number: SymInt) -> bool:
    """Returns whether a number of floating point is involved."""
    parts = [number.node.expr]
    for each in parts:
        parts.extend(each.args)
        name = type(each).__name__
        if name in _FLOATS or "Float" in name or (each.is_Symbol and not each.is_integer):
            return True
    return False


def side_alone(condition: Any, error: _C.AutocastError) -> int | None:
    """The side that a program can have alone, where the condition is about how many elements
    tensors have which values tell, such as the boxes that a detector keeps: that for some, if the
    other is for none; or, if one side was refused, the other, if that is not for none."""
    if not isinstance(condition, SymBool) or not free_unbacked_symbols(condition):
        return None
    if not is_of_ints(condition):
        return None
    expression = condition.node.expr
    symbols = sorted(expression.free_symbols, key=str)
    made: set[bool] = set()
    for start, apart in ((1, 0), (1, 1), (2, 5), (7, -1), (10**9, 3)):
        values = {symbol: max(1, start + i * apart) for i, symbol in enumerate(symbols)}
        try:
            made.add(bool(expression.subs(values)))
        except Exception:  # of any class: by sympy, of numbers that cannot be
            return None
    refused = error.__dict__.get("side")
    if len(made) == 1:
        some = 0 if made == {True} else 1
        return None if refused == some else some
    return None if refused is None else 1 - refused
