"""The values that a TorchScript graph computes with while it is exported.

Tensors and numbers are PyTorch's own, of sizes their symbols; a list or a dictionary is Python's,
and a dtype, layout or memory format the number that it is in TorchScript. The classes here stand
for what is left: objects, submodules, and conditions that only a run decides.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch._jit_internal import _qualified_name
from torch.utils import _pytree as pytree

from jit_amp._export.interpreter.holder import Holder, is_object
from jit_amp._export.interpreter.plain_operators import NUMBER_OF, fixed

Frame = dict[int, Any]  # values by their number in the graph
NUMBERS = (int, float, bool)
UNINITIALIZED = object()  # what nobody reads: after a return, for example


class Raised(RuntimeError):
    """What the program itself raises for the given inputs."""


class TooLong(RuntimeError):
    """A size has become an expression that PyTorch would reason about for hours."""


class Outside(TypeError):
    """A branch or loop as a whole changes what only the program outside of it can."""


@dataclass
class Object:
    """An object of a TorchScript class. What is in its fields is part of what it is in, as the
    elements of a list are."""

    type: str  # the qualified name
    fields: dict[str, Any] = field(default_factory=dict)
    source: Any = None  # the module's own object, which it stands for
    depth: int = 0  # of branches and loops as a whole that it was made in


@dataclass(frozen=True)
class _Form:
    """What an object is, without the values of its fields."""

    type: str
    names: tuple[str, ...]
    depth: int
    source: int
    of: Any = field(compare=False)


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


def _flattened(value: Object) -> tuple[list[Any], _Form]:
    names = tuple(sorted(value.fields))
    form = _Form(value.type, names, value.depth, id(value.source), value.source)
    return [value.fields[name] for name in names], form


def _unflattened(parts: Iterable[Any], form: _Form) -> Object:
    fields = dict(zip(form.names, parts, strict=True))
    return Object(form.type, fields, form.of, form.depth)


pytree.register_pytree_node(Object, _flattened, _unflattened)
pytree.register_pytree_node(Truth, lambda x: ([x.of], None), lambda parts, _: Truth(*parts))


def own(value: Any, holder: Holder | None = None, made: dict[int, Object] | None = None) -> Any:
    """A constant, or an attribute of ``holder``'s module, as a value of its own; with what stands
    for its tensors. ``made``: the objects that it holds."""
    made = {} if made is None else made
    if isinstance(value, Tensor):
        return value if holder is None else holder.standing_for(value)
    if isinstance(value, (torch.dtype, torch.layout)):
        return NUMBER_OF[value]
    if isinstance(value, list):
        return [own(each, holder, made) for each in value]
    if isinstance(value, tuple):
        return tuple(own(each, holder, made) for each in value)
    if isinstance(value, dict):
        return {key: own(each, holder, made) for key, each in value.items()}
    if not is_object(value):
        return value
    if id(value) not in made:
        made[id(value)] = one = Object(_type_of(value), source=value)
        for name in sorted(holder.fields) if holder is not None else ():
            if hasattr(value, name):
                one.fields[name] = own(getattr(value, name), holder, made)
    return made[id(value)]


def _type_of(value: Any) -> str:
    inner = value if isinstance(value, torch._C.ScriptObject) else getattr(value, "_c", None)
    if isinstance(inner, torch._C.ScriptObject):
        return str(inner._type().qualified_name())
    return _qualified_name(type(value))


_PLAIN_TYPES: dict[str, Any] = {
    "TensorType": Tensor,
    "IntType": (int, SymInt),
    "FloatType": (float, SymFloat),
    "BoolType": (bool, SymBool),
    "ComplexType": complex,
    "NumberType": (int, float, complex, SymInt, SymFloat),
    "StringType": str,
    "DeviceObjType": torch.device,
    "NoneType": type(None),
    "AnyListType": list,
    "AnyTupleType": tuple,
    "AnyType": object,
}


def is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of a type of TorchScript. Raises LookupError for a type of which it is not
    known."""
    name = kind.kind()
    if name == "OptionalType":
        return value is None or is_of(value, kind.getElementType())
    if name == "UnionType":
        return any(is_of(value, each) for each in kind.containedTypes())
    if name == "ListType":
        return isinstance(value, list) and all(is_of(x, kind.getElementType()) for x in value)
    if name == "TupleType":
        kinds = kind.elements()
        is_long = isinstance(value, tuple) and len(value) == len(kinds)
        return is_long and all(map(is_of, value, kinds))
    if name == "DictType":
        return isinstance(value, dict) and all(
            is_of(key, kind.getKeyType()) and is_of(each, kind.getValueType())
            for key, each in value.items()
        )
    if name == "ClassType":
        return isinstance(value, Object) and value.type == kind.qualified_name()
    if name == "EnumType":
        return isinstance(value, enum.Enum) and _qualified_name(type(value)) == kind.annotation_str
    if isinstance(value, bool) and name in ("IntType", "FloatType", "NumberType"):
        return False
    return isinstance(value, _PLAIN_TYPES[name])


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


_NO_RESULTS = {str: "a text", torch.device: "a device", complex: "a complex number"}


def outside(value: Any, forced: Any) -> Any:
    """A result of the program, as its caller has it. ``forced`` makes a number of a Truth. Raises
    TypeError, with a name and in words what it is, for what an exported program cannot return: an
    object of a TorchScript class; a text, with which ``torch.export.save`` writes a file that
    ``torch.export.load`` does not read; a device or a complex number."""
    if isinstance(value, Truth):
        return forced(value)
    if isinstance(value, Object):
        raise TypeError(value.type, "an object")
    if type(value) in _NO_RESULTS:
        raise TypeError(type(value).__name__, _NO_RESULTS[type(value)])
    if isinstance(value, (list, tuple)):
        return type(value)(outside(each, forced) for each in value)
    if isinstance(value, dict):
        return {key: outside(each, forced) for key, each in value.items()}
    return value


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
    """Lists, dictionaries and objects that can be changed, however deep."""
    if isinstance(value, (list, dict, Object)):
        yield value
    value = value.fields if isinstance(value, Object) else value
    if isinstance(value, (list, dict, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from containers(each)


def storage_of(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def aliased(x: Any, operands: Sequence[Any]) -> set[int]:
    """Returns which operands share memory with a result."""
    tensors = [(i, y) for i, y in enumerate(operands) if isinstance(y, Tensor)]
    return {i for i, y in tensors if isinstance(x, Tensor) and storage_of(x) == storage_of(y)}


def without_aliases(values: Sequence[Any], operands: Sequence[Any]) -> tuple[Any, ...]:
    """With copies in place of tensors that share memory with an operand, or with one another."""
    clone: Any = torch.ops.aten.clone.default
    made: list[Any] = []
    for x in values:
        made.append(clone(x) if aliased(x, (*operands, *made)) else x)
    return tuple(made)


def forget_constant(x: Any) -> None:
    """The value that torch.export knows of a tensor made of numbers
    (torch/_subclasses/fake_tensor.py)."""
    inner = getattr(x, "elem", x)
    if isinstance(inner, Tensor) and torch._is_functional_tensor(inner):
        inner = torch._from_functional_tensor(inner)
    if getattr(inner, "constant", None) is not None:
        inner.constant = None
