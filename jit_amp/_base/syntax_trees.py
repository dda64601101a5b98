"""Syntax trees of Python source, beside other threads.

Before Python 3.13, CPython counts the depth of the trees that it makes for all threads together:
where a thread is interrupted in the middle by the collector, and another one makes a tree, the
first raises SystemError ("AST constructor recursion depth mismatch"). Nothing is wrong with the
source, so it is read again.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from jit_amp import _C
from jit_amp._base import replacing

_TRIES = 100


def _parse(_concern: bool, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    for _ in range(_TRIES):
        try:
            return original(*args, **kwargs)
        except SystemError as error:
            if "recursion depth mismatch" not in str(error):
                raise
    return original(*args, **kwargs)


PARSE = replacing.places([replacing.Hook(ast, "parse", _parse, lambda: True)])
READ_AGAIN = _C.Replacements(PARSE)
"""For ``with``: inside, source is read again, by PyTorch's compiler too."""


def parsed(source: str) -> ast.Module:
    """Parses source as ``ast.parse`` does, also beside other threads."""
    with READ_AGAIN:
        return ast.parse(source)
