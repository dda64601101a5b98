"""Places of the source that Python knows, as an error shows them."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from typing import Any

from torch import nn


def of_function(function: Any) -> str:
    """The line of a function's definition; empty where it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return _shown(code.co_filename, code.co_firstlineno) if code else ""


def of_leaving_a_with(obj: Any) -> str:
    """The first line that leaves a branch inside a `with`; of the function where there is none."""
    function = getattr(type(obj), "forward", None) if isinstance(obj, nn.Module) else obj
    try:
        lines, first = inspect.getsourcelines(function)  # type: ignore[arg-type]
        tree = ast.parse(textwrap.dedent("".join(lines)))
        file = inspect.getsourcefile(function) or ""  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):
        return ""
    line = next(_leaving(tree, False, False), 1)
    return _shown(file, first + line - 1)


def _leaving(node: ast.AST, in_with: bool, in_branch: bool) -> Iterator[int]:
    if isinstance(node, (ast.Return, ast.Break, ast.Continue)) and in_with and in_branch:
        yield node.lineno
    in_branch = in_branch or (in_with and isinstance(node, (ast.If, ast.For, ast.While)))
    in_with = in_with or isinstance(node, ast.With)
    for child in ast.iter_child_nodes(node):
        yield from _leaving(child, in_with, in_branch)


def _shown(file: str, line: int) -> str:
    text = linecache.getline(file, line).rstrip()
    return f'  File "{file}", line {line}\n{text}'
