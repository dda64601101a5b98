"""Makes a program that shows a difference smaller, as long as it shows the same one.

The reduction is greedy, on the syntax tree: leave out statements, functions, classes, parameters,
decorators and scopes, put a block's body in its place, put operands in the place of operators.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from .programs import Program


def reduced(program: Program, same: Callable[[Program], bool], *, seconds: float = 30.0) -> Program:
    """Returns the smallest program found for which `same` is true, as it must be of `program`."""
    end = time.monotonic() + seconds
    for candidate in _settings(program):
        if same(candidate):
            program = candidate
    smaller = True
    while smaller and time.monotonic() < end:
        smaller = False
        for edit in EDITS:
            position = 0
            while position < edit(tree := ast.parse(program.source), -1):
                if time.monotonic() > end:
                    return program
                edit(tree, position)
                candidate = replace(program, source=_written(tree))
                if candidate.source not in ("", program.source) and same(candidate):
                    program, smaller = candidate, True
                else:
                    position += 1
    return program


def _settings(program: Program) -> Iterator[Program]:
    if len(program.ambients) > 1:
        for ambient in program.ambients:
            yield replace(program, ambients=(ambient,))
    if program.gradients:
        yield replace(program, gradients=False)
    if program.freeze:
        yield replace(program, freeze=False)


def _written(tree: ast.Module) -> str:
    try:
        source = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        compile(source, "candidate", "exec")
    except (SyntaxError, ValueError):
        return ""
    return source


# Each of these makes the edit of number `position`, if there is one, and counts the edits.


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body:
                yield body


def _statements(tree: ast.Module, position: int) -> int:
    """Runs of statements, long ones first."""
    count = 0
    bodies = [body for body in _bodies(tree) if not isinstance(body[0], ast.Pass)]
    for length in (8, 4, 2, 1):
        for body in bodies:
            if length > 1 and len(body) < length:
                continue
            for start in range(len(body) - length, -1, -1):
                chosen = body[start : start + length]
                if all(isinstance(s, (ast.Import, ast.ImportFrom, ast.Return)) for s in chosen):
                    continue
                if count == position:
                    body[start : start + length] = [] if len(body) > length else [ast.Pass()]
                    return count
                count += 1
    return count


def _blocks(tree: ast.Module, position: int) -> int:
    """A block's body in the place of the block."""
    count = 0
    for body in _bodies(tree):
        for i, statement in enumerate(body):
            if not isinstance(statement, (ast.With, ast.If, ast.For, ast.While)):
                continue
            for inner in (statement.body, getattr(statement, "orelse", [])):
                if not inner:
                    continue
                if count == position:
                    body[i : i + 1] = inner
                    return count
                count += 1
            if getattr(statement, "orelse", []):
                if count == position:
                    statement.orelse = []  # type: ignore[union-attr]
                    return count
                count += 1
    return count


def _decorators(tree: ast.Module, position: int) -> int:
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for i in range(len(node.decorator_list)):
                if count == position:
                    del node.decorator_list[i]
                    return count
                count += 1
    return count


def _items(tree: ast.Module, position: int) -> int:
    """One of several `with` items, or the name of one."""
    count = 0
    for node in ast.walk(tree):
        if not isinstance(node, ast.With):
            continue
        for i, item in enumerate(node.items):
            if len(node.items) > 1:
                if count == position:
                    del node.items[i]
                    return count
                count += 1
            if item.optional_vars is not None:
                if count == position:
                    item.optional_vars = None
                    return count
                count += 1
    return count


def _parameters(tree: ast.Module, position: int) -> int:
    """A parameter of the program, and its input."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name in ("program", "inputs", "forward")
    ]
    given = next((node for node in functions if node.name == "inputs"), None)
    main = [node for node in functions if node.name != "inputs"]
    if given is None or not main or not isinstance(given.body[-1], ast.Return):
        return 0
    values = given.body[-1].value
    arguments = main[-1].args.args
    skipped = 1 if main[-1].name == "forward" else 0
    if not isinstance(values, ast.Tuple) or len(arguments) - skipped != len(values.elts):
        return 0
    if 0 <= position < len(values.elts):
        del values.elts[position]
        del arguments[position + skipped]
    return len(values.elts)


def _expressions(tree: ast.Module, position: int) -> int:
    """An operand in the place of an expression, an element less in a list."""
    count = 0
    for parent in ast.walk(tree):
        if isinstance(parent, (ast.With, ast.arg, ast.AnnAssign)):
            continue
        for name, value in ast.iter_fields(parent):
            if name in ("annotation", "returns", "decorator_list", "slice", "targets"):
                continue
            places = value if isinstance(value, list) else [value]
            for i, node in enumerate(places):
                if not isinstance(node, ast.expr):
                    continue
                operands = _operands(node)
                if isinstance(parent, ast.Return) and isinstance(node, ast.Name):
                    operands = []
                for operand in operands:
                    if count == position:
                        if isinstance(value, list):
                            value[i] = operand
                        else:
                            setattr(parent, name, operand)
                        return count
                    count += 1
            if isinstance(parent, (ast.List, ast.Tuple)) and name == "elts" and len(places) > 1:
                for i in reversed(range(len(places))):
                    if count == position:
                        del places[i]
                        return count
                    count += 1
    return count


def _operands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        found = [argument for argument in node.args if not isinstance(argument, ast.Constant)]
        if isinstance(node.func, ast.Attribute) and not _is_a_path(node.func.value):
            found.insert(0, node.func.value)
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            owner = node.func.value
            found[:0] = [] if owner.id in ("torch", "F", "nn", "self") else [owner]
        return found
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Subscript):
        return [node.value]
    if isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) == 1:
        return list(node.elts)
    return []


def _is_a_path(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _names(tree: ast.Module, position: int) -> int:
    """Another name of a value: the value's name in its place."""
    count = 0
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for body in _bodies(function):
            for i, statement in enumerate(body):
                if not (
                    isinstance(statement, ast.Assign)
                    and isinstance(statement.value, ast.Name)
                    and isinstance(statement.targets[0], ast.Name)
                ):
                    continue
                if count == position:
                    name, value = statement.targets[0].id, statement.value.id
                    body[i : i + 1] = [] if len(body) > 1 else [ast.Pass()]
                    for node in ast.walk(function):
                        if isinstance(node, ast.Name) and node.id == name:
                            node.id = value
                    return count
                count += 1
    return count


EDITS = (_statements, _parameters, _blocks, _decorators, _items, _names, _expressions)
