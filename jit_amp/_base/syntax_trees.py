"""Syntax trees of Python source, beside other threads.

Before Python 3.13, CPython counts the depth of the trees that it makes for all threads together:
where a thread is interrupted in the middle by the collector, and another one makes a tree, the
first raises SystemError ("AST constructor recursion depth mismatch"). Nothing is wrong with the
source, so it is read again.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeVar

from jit_amp import _C
from jit_amp._base import replacing

_Result = TypeVar("_Result")
_TRIES = 100


def beside_threads(read: Callable[[], _Result]) -> _Result:
    """What ``read`` returns, which makes syntax trees and changes nothing."""
    for _ in range(_TRIES):
        try:
            return read()
        except SystemError as error:
            if "recursion depth mismatch" not in str(error):
                raise
    return read()


def parsed(source: str) -> ast.Module:
    """``ast.parse``."""
    return beside_threads(lambda: ast.parse(source))


def _parse(_: bool, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return beside_threads(lambda: original(*args, **kwargs))


PARSE = replacing.places([replacing.Hook(ast, "parse", _parse, lambda: True)])
READ_AGAIN = _C.Replacements(PARSE)
"""For ``with``: inside, PyTorch's compiler reads source again too."""
