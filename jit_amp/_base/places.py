"""Places of the source that Python knows, as an error shows them."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from typing import Any

from torch import nn

from jit_amp._base.syntax_trees import parsed


def of_function(function: Any) -> str:
    """The line of a function's definition; empty where it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return shown(code.co_filename, code.co_firstlineno) if code else ""


def of_leaving_a_with(obj: Any) -> str:
    """The first line that leaves a branch inside a `with`, or before one, of a function or of a
    module's methods and those of its parts; empty where there is none."""
    for file, first, lines in _sources(obj):
        try:
            tree = parsed(textwrap.dedent("".join(lines)))
        except SyntaxError:
            continue
        scopes = [node for node in ast.walk(tree) if isinstance(node, ast.With)]
        inside = [line for scope in scopes for line in _leaving_branches(scope)]
        before = [
            line for line in _leaving_branches(tree) if any(line < scope.lineno for scope in scopes)
        ]
        for line in (*inside, *before):
            return shown(file, first + line - 1)
    return ""


def of_the_word(word: str, obj: Any) -> str:
    """The first line with a word of a function, or of a module's methods and those of its parts."""
    for file, first, lines in _sources(obj):
        for number, line in enumerate(lines):
            if word in line:
                return shown(file, first + number)
    return ""


def _sources(obj: Any) -> Iterator[tuple[str, int, list[str]]]:
    """File, number of the first line, and lines of each function that has a source."""
    for function in _functions(obj):
        try:
            lines, first = inspect.getsourcelines(function)
            yield inspect.getsourcefile(function) or "", first, lines
        except (OSError, TypeError):
            continue


def _functions(obj: Any) -> Iterator[Any]:
    if not isinstance(obj, nn.Module):
        yield obj
        return
    for cls in dict.fromkeys(type(each) for each in obj.modules()):
        if cls.__module__.partition(".")[0] != "torch":
            for name, each in inspect.getmembers_static(cls, inspect.isfunction):
                is_pytorchs = (each.__module__ or "").partition(".")[0] == "torch"
                if not (is_pytorchs or name.startswith("__")):
                    yield each


def _leaving_branches(tree: ast.AST) -> Iterator[int]:
    """Returns the lines that leave a branch or a loop."""
    for branch in ast.walk(tree):
        if isinstance(branch, (ast.If, ast.For, ast.While)):
            for node in ast.walk(branch):
                if isinstance(node, (ast.Return, ast.Break, ast.Continue)):
                    yield node.lineno


def shown(file: str, line: int) -> str:
    """Returns a line of a file as an error shows it."""
    text = linecache.getline(file, line).rstrip()
    return f'  File "{file}", line {line}\n{text}'
