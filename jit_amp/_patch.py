"""What `Precision.to_code` gives: a diff of the source of a model."""

from __future__ import annotations

import ast
import difflib
import inspect
import linecache
import os
import textwrap
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from torch import nn

from jit_amp import _float32

if TYPE_CHECKING:
    from jit_amp._precision import Precision


def of(precision: Precision, model: nn.Module) -> str:
    """The diff; empty where nothing stays in float32."""
    changed: dict[str, list[str]] = {}

    def lines_of(path: str) -> list[str]:
        if path not in changed:
            changed[path] = list(linecache.getlines(path))
        return changed[path]

    if precision.kind == "module" and precision.units:
        _ignore_in_init(precision, model, lines_of)
    by_file: dict[str, list[str]] = {}
    for unit in precision.units if precision.kind != "module" else ():
        file, _, name = unit.rpartition(":")
        by_file.setdefault(_float32.path_of(file), []).append(name)
    for path, names in by_file.items():
        if precision.kind == "line":
            _enclose(precision, path, [int(name) for name in names], lines_of)
        else:
            _decorate(path, names, lines_of)
    return "".join(_diff(path, lines) for path, lines in changed.items())


def _diff(path: str, lines: list[str]) -> str:
    relative = os.path.relpath(path)
    shown = path if relative.startswith(os.pardir) else relative
    text = difflib.unified_diff(linecache.getlines(path), lines, shown, shown)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline\n" for line in text)


def _ignore_in_init(
    precision: Precision, model: nn.Module, lines_of: Callable[[str], list[str]]
) -> None:
    cls = type(model)
    if cls.__module__.split(".")[0] == "torch":
        raise ValueError(f"to_code: {cls.__qualname__} is PyTorch's: write a class of your own")
    init = vars(cls).get("__init__")
    try:
        path, first = inspect.getsourcefile(cls), inspect.getsourcelines(init)[1]  # type: ignore[arg-type]
    except (TypeError, OSError) as error:
        raise ValueError(
            f"to_code: {cls.__qualname__} has no __init__ of its own with a source"
        ) from error
    lines = lines_of(str(path))
    node = _function_at(lines, first)
    own = [_written("self", unit, model) for unit in precision.units]
    indent = " " * node.body[0].col_offset
    last = node.end_lineno or node.lineno
    added = [f"{indent}jit_amp.ignore_amp({each}, float32=True)\n" for each in own]
    if not lines[last - 1].endswith("\n"):
        lines[last - 1] += "\n"
    lines[last:last] = added
    _import(lines, "jit_amp")


def _written(model: str, path: str, root: nn.Module) -> str:
    """A submodule as one writes it: ``self.blocks[2].attention``."""
    written, owner = model, root
    for part in path.split(".") if path else []:
        indexed = part.isdigit() and hasattr(owner, "__getitem__")
        keyed = isinstance(owner, nn.ModuleDict) or not part.isidentifier()
        written += f"[{part}]" if indexed else f"[{part!r}]" if keyed else f".{part}"
        owner = getattr(owner, part)
    return written


def _function_at(lines: Iterable[str], first: int) -> ast.FunctionDef:
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.FunctionDef):
            begin = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if begin <= first <= node.lineno:
                return node
    raise ValueError(f"to_code: line {first} has no function any more")


def _decorate(path: str, names: list[str], lines_of: Callable[[str], list[str]]) -> None:
    lines = lines_of(path)
    found = [
        (node, name)
        for name, node in _float32.functions("".join(lines))
        if name in names or name.rpartition(".")[2] in names
    ]
    if not found:
        raise ValueError(f"to_code: {path} has no function {names[0]!r}")
    for node, _ in sorted(found, key=lambda each: -each[0].lineno):
        begin = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        indent = " " * node.col_offset
        lines.insert(begin - 1, f"{indent}@jit_amp.ignore_amp(float32=True)\n")
    _import(lines, "jit_amp")


def _enclose(
    precision: Precision, path: str, numbers: list[int], lines_of: Callable[[str], list[str]]
) -> None:
    lines = lines_of(path)
    source = "".join(lines)
    names = {each.line: set(each.names) for each in precision.lines if each.file == path}
    for number in sorted(numbers, reverse=True):
        statement = _statement_at(ast.parse(source), number)
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        text = _with_casts(lines[first - 1 : last], statement, names.get(number, set()))
        indent = " " * statement.col_offset
        scope = f'{indent}with torch.autocast("{precision.device_type}", enabled=False):\n'
        lines[first - 1 : last] = [scope, *textwrap.indent(text, "    ").splitlines(keepends=True)]
    _import(lines, "torch")


def _statement_at(tree: ast.AST, number: int) -> ast.stmt:
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= number <= (node.end_lineno or 0)
    ]
    if not found:
        raise ValueError(f"to_code: there is no line {number} any more")
    return max(found, key=lambda node: (node.lineno, node.col_offset))


def _with_casts(lines: list[str], statement: ast.stmt, names: set[str]) -> str:
    """The statement's lines, with `.float()` at the names in it that are in the reduced dtype."""
    ends = [
        (node.end_lineno - statement.lineno, node.end_col_offset)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names
        if node.end_lineno is not None and node.end_col_offset is not None
    ]
    changed = [line.encode() for line in lines]
    for row, column in sorted(ends, reverse=True):
        changed[row] = changed[row][:column] + b".float()" + changed[row][column:]
    return b"".join(changed).decode()


def _import(lines: list[str], module: str) -> None:
    """Puts an import below the others, where there is none."""
    tree = ast.parse("".join(lines))
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    if any(
        isinstance(node, ast.Import) and any(each.name == module for each in node.names)
        for node in imports
    ):
        return
    begin = tree.body[0]
    is_doc = isinstance(begin, ast.Expr) and isinstance(begin.value, ast.Constant)
    after = imports[-1].end_lineno if imports else begin.end_lineno if is_doc else 0
    lines.insert(after or 0, f"import {module}\n")
