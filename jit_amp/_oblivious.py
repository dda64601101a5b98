"""Tracing without a look at the example's sizes.

Where an operator asks torch.export about a free size (is it 1? is the tensor contiguous?),
torch.export looks at the example, and guards the answer. With ``backed_size_oblivious`` the
questions of PyTorch's Python code that can do without an answer (``guard_or_false``) get none, and
are not guarded. C++ code asks as before whether tensors are contiguous, where their sizes have a
hint (c10/core/SymbolicShapeMeta.cpp says that this is to be mended), so here they have none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.fx.experimental import _config as symbolic_shapes_config
from torch.fx.experimental.sym_node import SymNode

_lock = threading.Lock()
_has_hint = SymNode.has_hint
_users = 0


@contextmanager
def without_looking() -> Iterator[None]:
    """For what is traced inside."""
    _enter()
    try:
        with symbolic_shapes_config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
            yield
    finally:
        _leave()


def is_oblivious() -> bool:
    """Whether it is on."""
    return bool(symbolic_shapes_config.backed_size_oblivious)


def _enter() -> None:
    global _has_hint, _users
    with _lock:
        if _users == 0:
            _has_hint = SymNode.has_hint
            SymNode.has_hint = _says  # type: ignore[method-assign]
        _users += 1


def _leave() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            SymNode.has_hint = _has_hint  # type: ignore[method-assign]


def _says(self: SymNode) -> bool:
    """Other threads may trace otherwise."""
    return not is_oblivious() and _has_hint(self)
