"""Places of the source that Python knows, as an error shows them."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import os
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from jit_amp import _C, _evaluation

# What no error shows where there is a line of somebody else's.
_C.set_package_folders([os.path.dirname(file) + os.sep for file in (torch.__file__, __file__)])


def of_function(function: Any) -> str:
    """The line of a function's definition; empty where it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return shown(code.co_filename, code.co_firstlineno) if code else ""


def of_leaving_a_with(obj: Any) -> str:
    """The first line that leaves a branch inside a `with`; of the function where there is none."""
    return _first_of(obj, lambda tree, _: next(_leaving(tree, False, False), 1))


def of_a_partial_autocast(obj: Any) -> str:
    """The first `with` that calls a `functools.partial` of torch.autocast; empty without one."""

    def is_partial(node: ast.expr, resolve: Callable[[str], Any]) -> bool:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            return False
        made = resolve(node.func.id)
        return isinstance(made, functools.partial) and made.func is torch.autocast

    def find(tree: ast.AST, resolve: Callable[[str], Any]) -> int | None:
        withs = (node for node in ast.walk(tree) if isinstance(node, ast.With))
        items = (item.context_expr for node in withs for item in node.items)
        return next((each.lineno for each in items if is_partial(each, resolve)), None)

    return _first_of(obj, find)


def _first_of(obj: Any, find: Callable[[ast.AST, Callable[[str], Any]], int | None]) -> str:
    """A line of a function, or of a module's forward, as shown; empty where there is none."""
    function = getattr(type(obj), "forward", None) if isinstance(obj, nn.Module) else obj
    try:
        lines, first = inspect.getsourcelines(function)  # type: ignore[arg-type]
        tree = ast.parse(textwrap.dedent("".join(lines)))
        file = inspect.getsourcefile(function) or ""  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):
        return ""
    line = find(tree, _evaluation.names_of(function).get)
    return "" if line is None else shown(file, first + line - 1)


def _leaving(node: ast.AST, in_with: bool, in_branch: bool) -> Iterator[int]:
    if isinstance(node, (ast.Return, ast.Break, ast.Continue)) and in_with and in_branch:
        yield node.lineno
    in_branch = in_branch or (in_with and isinstance(node, (ast.If, ast.For, ast.While)))
    in_with = in_with or isinstance(node, ast.With)
    for child in ast.iter_child_nodes(node):
        yield from _leaving(child, in_with, in_branch)


def shown(file: str, line: int) -> str:
    """A line of a file, as an error shows it."""
    text = linecache.getline(file, line).rstrip()
    return f'  File "{file}", line {line}\n{text}'
