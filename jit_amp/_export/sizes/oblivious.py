"""Tracing without a look at the example's sizes.

Where an operator asks torch.export about a free size (is it 1? is the tensor contiguous?),
torch.export looks at the example, and guards the answer. With ``backed_size_oblivious`` the
questions of PyTorch's Python code that can do without an answer (``guard_or_false``) get none, and
are not guarded. C++ code asks as before whether tensors are contiguous, where their sizes have a
hint (c10/core/SymbolicShapeMeta.cpp says that this is to be mended), so here they have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.fx.experimental import _config as symbolic_shapes_config
from torch.fx.experimental.sym_node import SymNode

from jit_amp._base import replacing


@contextmanager
def without_looking() -> Iterator[None]:
    """Traces what is inside without asking whether sizes are 0 or 1."""
    with _NO_HINTS, symbolic_shapes_config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
        yield


def is_oblivious() -> bool:
    """Returns whether ``without_looking`` is in force."""
    return bool(getattr(symbolic_shapes_config, "backed_size_oblivious", False))  # none in 2.6


def _says(_: bool, original: Any, node: SymNode) -> bool:
    return False


_NO_HINTS = replacing.functions(replacing.Hook(SymNode, "has_hint", _says, is_oblivious))
