"""The values that a TorchScript graph computes with while it is exported.

Tensors and numbers are PyTorch's own, of sizes their symbols; a list or a dictionary is Python's,
and a dtype, layout or memory format the number that it is in TorchScript. The classes here stand
for what is left: objects, submodules, and conditions that only a run decides.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymBool, SymInt, Tensor

from jit_amp._holder import Holder, is_object
from jit_amp._meanings import NUMBER_OF, fixed

Frame = dict[int, Any]  # values by their number in the graph
NUMBERS = (int, float, bool)


class Raised(RuntimeError):
    """What the program itself raises for the given inputs."""


class TooLong(RuntimeError):
    """A size has become an expression that PyTorch would reason about for hours."""


class Outside(TypeError):
    """A branch or loop as a whole changes what only the program outside of it can."""


class Object:
    """An object of a TorchScript class."""

    def __init__(
        self, fields: dict[str, Any] | None = None, source: Any = None, depth: int = 0
    ) -> None:
        self.fields, self.source = fields or {}, source
        self.depth = depth  # of branches and loops as a whole that it was made in

    def get(self, name: str, holder: Holder) -> Any:
        if name not in self.fields and self.source is not None:
            self.fields[name] = holder.with_own_tensors(own(getattr(self.source, name)))
        return self.fields[name]


@dataclass(frozen=True)
class Submodule:
    """A module of the program, as a value of the graph."""

    path: str

    def child(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


@dataclass
class Truth:
    """Whether a tensor of one element, or an expression of such, is not zero: not known."""

    of: Any


def own(value: Any) -> Any:
    """A constant or an attribute as a value of its own."""
    if isinstance(value, (torch.dtype, torch.layout)):
        return NUMBER_OF[value]
    if isinstance(value, list):
        return [own(each) for each in value]
    if isinstance(value, tuple):
        return tuple(own(each) for each in value)
    if isinstance(value, dict):
        return {key: own(each) for key, each in value.items()}
    return Object(source=value) if is_object(value) else value


def is_of(value: Any, kind: Any) -> bool:
    name = kind.kind()
    plain = {
        "TensorType": Tensor,
        "IntType": (int, SymInt),
        "FloatType": (float, torch.SymFloat),
        "BoolType": (bool, SymBool),
        "StringType": str,
        "ListType": list,
        "TupleType": tuple,
        "DictType": dict,
        "NoneType": type(None),
    }
    if name in ("IntType", "FloatType") and isinstance(value, bool):
        return False
    if name == "OptionalType":
        return value is None or is_of(value, kind.getElementType())
    if name == "ListType" and isinstance(value, list) and value:
        return is_of(value[0], kind.getElementType())
    return name in plain and isinstance(value, plain[name])  # type: ignore[arg-type]


def settled(value: Any) -> Any:
    """With the numbers that sizes have in the example, which torch.export guards then."""
    if isinstance(value, (list, tuple)):
        parts = [settled(each) for each in value]
        return value if all(map(operator.is_, parts, value)) else type(value)(parts)
    if isinstance(value, Object):
        value.fields = {name: settled(each) for name, each in value.fields.items()}
        return value
    return fixed(value)


def without_tensors(value: Any) -> Any:
    """A value that can be compared with others; None where tensors or symbols are in it."""
    if value is None or type(value) in (*NUMBERS, str, complex):
        return (type(value), value)
    parts: Any = None
    if isinstance(value, Object) and value.source is None:
        value = value.fields
    if isinstance(value, dict):
        parts = [*map(without_tensors, value.keys()), *map(without_tensors, value.values())]
    elif isinstance(value, (list, tuple)):
        parts = [*map(without_tensors, value)]
    return None if parts is None or None in parts else (type(value), *parts)


def is_moved(value: Any) -> bool:
    """Whether it is a result of ``torch.cond``; other values have to be equal on both sides."""
    return isinstance(value, (Tensor, SymInt))


def is_same(a: tuple[list[Any], Any], b: tuple[list[Any], Any]) -> bool:
    """Whether two flattened values have the same tensors and equal numbers."""
    return a[1] == b[1] and all(
        x is y or (not isinstance(x, Tensor) and not isinstance(y, Tensor) and x == y)
        for x, y in zip(a[0], b[0], strict=True)
    )


def is_alike(a: tuple[list[Any], Any], b: tuple[list[Any], Any]) -> bool:
    """Whether two flattened values have tensors at the same places and equal numbers."""
    return a[1] == b[1] and all(
        isinstance(y, Tensor) if isinstance(x, Tensor) else type(x) is type(y) and x == y
        for x, y in zip(a[0], b[0], strict=True)
    )


def as_condition(x: Tensor) -> Tensor:
    if x.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    x = x.reshape(())
    return x if x.dtype is torch.bool else torch.ops.aten.ne.Scalar(x, 0)


def as_truth(value: Any) -> Tensor:
    if isinstance(value, Truth) and isinstance(value.of, Tensor):
        return as_condition(value.of)
    if type(value) is bool:
        made: Tensor = torch.ops.aten.full.default([], value, dtype=torch.bool)
        return made
    raise TypeError("a condition that sizes and values decide together")


def containers(value: Any) -> Iterator[Any]:
    """Lists and dictionaries that can be changed, however deep."""
    if isinstance(value, (list, dict)):
        yield value
    if isinstance(value, (list, dict, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from containers(each)


def storage_of(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def aliased(x: Any, operands: Sequence[Any]) -> set[int]:
    """Which operands share memory with it."""
    tensors = [(i, y) for i, y in enumerate(operands) if isinstance(y, Tensor)]
    return {i for i, y in tensors if isinstance(x, Tensor) and storage_of(x) == storage_of(y)}


def without_aliases(values: Sequence[Any], operands: Sequence[Any]) -> tuple[Any, ...]:
    """With copies in place of tensors that share memory with an operand."""
    clone: Any = torch.ops.aten.clone.default
    return tuple(clone(x) if aliased(x, operands) else x for x in values)


def forget_constant(x: Any) -> None:
    """The value that torch.export knows of a tensor made of numbers
    (torch/_subclasses/fake_tensor.py)."""
    inner = getattr(x, "elem", x)
    if isinstance(inner, Tensor) and torch._is_functional_tensor(inner):
        inner = torch._from_functional_tensor(inner)
    if getattr(inner, "constant", None) is not None:
        inner.constant = None
