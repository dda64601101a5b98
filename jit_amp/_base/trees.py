"""What programs take and give: tensors in tuples, lists, dictionaries and other objects.

PyTorch's pytree is not used here because it takes a subclass of dict for one value, and models give
these.
"""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Iterator, Mapping
from typing import Any


def leaves(value: Any, path: str = "result") -> Iterator[tuple[str, Any]]:
    """What is inside ``value``, each with how one would write it: ``result[0]['logits']``."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple, collections.deque)):
        for i, each in enumerate(value):
            yield from leaves(each, f"{path}[{i}]")
    elif isinstance(value, types.SimpleNamespace) or is_data(value):
        for name, each in attributes(value).items():
            yield from leaves(each, f"{path}.{name}")
    else:
        yield path, value


def is_data(value: Any) -> bool:
    """Whether it is of a data class, which is no module."""
    is_module = hasattr(type(value), "_call_impl")
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and not is_module


def attributes(value: Any) -> dict[str, Any]:
    """Those that are set; of a data class, its fields."""
    if not is_data(value):
        return dict(vars(value))
    names = [each.name for each in dataclasses.fields(value)]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}
