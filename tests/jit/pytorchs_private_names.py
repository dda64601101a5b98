"""The names of PyTorch's that begin with an underscore, and that jit_amp uses in Python.

`used` reads them out of jit_amp's source. LIST has them, with the parameters that each has where
Python tells; run this file to write it anew. A release of PyTorch that changes one of them fails
test_pytorchs_private_names.py, with its name.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_suffix(".txt")


def is_private(path: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in path.split("."))


def _imported(tree: ast.AST) -> dict[str, str]:
    """What names of a file stand for, of those that it has from PyTorch."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.partition(".")[0] == "torch":
                    names[each.asname or "torch"] = each.name if each.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            for each in node.names:
                names[each.asname or each.name] = f"{node.module}.{each.name}"
    return names


def _path(node: ast.AST, names: dict[str, str]) -> str:
    """The dotted path of an expression; empty for what is not PyTorch's."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute) and (owner := _path(node.value, names)):
        return f"{owner}.{node.attr}"
    return ""


def used() -> set[str]:
    """The private names, each once and as far as it leads."""
    import jit_amp  # here: scripts/torch-names asks of a torch without it

    found: set[str] = set()
    for file in sorted(Path(jit_amp.__file__).parent.rglob("*.py")):
        tree = ast.parse(file.read_text())
        names = _imported(tree)
        paths = set(names.values())
        inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, (ast.Attribute, ast.Name)) and id(node) not in inner:
                paths.add(_path(node, names))
            # What is replaced: (module, "name", ...).
            if isinstance(node, (ast.Call, ast.Tuple)):
                elements = node.args if isinstance(node, ast.Call) else node.elts
                for owner, name in itertools.pairwise(elements):
                    if isinstance(name, ast.Constant) and str(name.value).isidentifier():
                        path = _path(owner, names)
                        paths.add(f"{path}.{name.value}" if path else "")
        found |= {path for path in paths if path and is_private(path)}
    return {path for path in found if value_of(path) is not None}


def value_of(path: str) -> Any:
    """What PyTorch has there; None if nothing."""
    parts = path.split(".")
    value: Any = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(".".join(parts[:i]))
            except ImportError:
                return None
    return value


def described(path: str) -> str:
    """A line of the list: the name, and its parameters."""
    value = value_of(path)
    try:
        parameters = ", ".join(_parameters(value)) if callable(value) else None
    except (TypeError, ValueError):
        parameters = None
    return path if parameters is None else f"{path}({parameters})"


def _parameters(value: Any) -> Iterator[str]:
    for each in inspect.signature(value).parameters.values():
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        yield stars + each.name


if __name__ == "__main__":
    LIST.write_text("".join(f"{described(path)}\n" for path in sorted(used())))
