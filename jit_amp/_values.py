"""What programs take and give: tensors in tuples, lists and dictionaries.

PyTorch's pytree is not used here because it takes a subclass of dict for one value, and models give
these.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any


def leaves(value: Any, path: str = "result") -> Iterator[tuple[str, Any]]:
    """What is inside ``value``, each with how one would write it: ``result[0]['logits']``."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, each in enumerate(value):
            yield from leaves(each, f"{path}[{i}]")
    else:
        yield path, value


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
