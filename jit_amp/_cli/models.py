"""The models and the data that a command names.

A model is a TorchScript file, or ``package.module:name`` of a module, of a function, or of a class
or factory that is called without arguments and gives one; ``path/file.py:name`` names a file.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from jit_amp import _C
from jit_amp._base import arguments as arguments
from jit_amp._base.syntax_trees import parsed
from jit_amp._cli.mistakes import Mistaken, is_file, said


def model_of(name: str) -> Any:
    """Returns the model that a name on the command line stands for: the same one for each command,
    as weights by chance are made from the random seed 0."""
    torch.manual_seed(0)
    if is_file(name) and not name.endswith(".py"):
        try:
            loaded = torch.jit.load(name)  # type: ignore[no-untyped-call]
        except Exception as error:  # of a file that is damaged: of any class
            text = f"{name}: no TorchScript file, as torch.jit.save writes it: {said(error)}"
            raise Mistaken(text) from error
        _C.forget_damaged_places(loaded._c)
        return loaded
    module, colon, attribute = name.partition(":")
    if module.endswith(".py") and not (Path(module).is_file() and attribute):
        raise Mistaken(_of_python_file(name, Path(module), attribute))
    if not colon:
        raise Mistaken(
            f"{name!r} is no file, and no package.module:name, such as net:Net of net.py"
        )
    if not module or not attribute:
        raise Mistaken(f"{name!r} names no model: write package.module:name")
    found = named(module, attribute)
    is_model = isinstance(found, (nn.Module, torch.jit.ScriptFunction))
    if not is_model and (isinstance(found, type) or not _takes_something(found)):
        found = _called(name, found)  # by a class, or a factory
    if not isinstance(found, (nn.Module, torch.jit.ScriptFunction)) and not inspect.isroutine(
        found
    ):
        raise Mistaken(
            f"{name} gives {arguments.shown(found)}: write the name of a module, of a function, or "
            "of a class or factory that gives one"
        )
    return found


def _of_python_file(name: str, path: Path, attribute: str) -> str:
    """Returns what to write for a Python file."""
    if not path.is_file():
        return f"{name!r}: there is no file {str(path)!r}"
    if not attribute:
        try:
            body = parsed(path.read_text(encoding="utf-8")).body
        except (SyntaxError, ValueError) as error:
            return f"{name}: {said(error)}"
        kinds = (ast.ClassDef, ast.FunctionDef)
        names = [each.name for each in body if isinstance(each, kinds) and each.name[0] != "_"]
        if not names:
            return f"{name!r} is Python, and defines no class and no function"
        attribute = names[-1]
        others = f"; it has {', '.join(names)}" if len(names) > 1 else ""
    else:
        others = ""
    folder = "" if str(path.parent) == "." else f"in the folder {path.parent}: "
    return f"{name!r} is Python: write {folder}{path.stem}:{attribute}{others}"


def named(module: str, attribute: str) -> Any:
    """What a module of that name, or a file, has of that name."""
    sys.path.insert(0, os.getcwd())
    if module.endswith(".py"):
        if not is_file(module):
            raise Mistaken(f"{module}: there is no such file")
        sys.path.insert(0, str(Path(module).resolve().parent))
        module = Path(module).stem
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise Mistaken(f"{module}: {error}") from error
    except (SyntaxError, TypeError) as error:  # of that file; a relative name
        raise Mistaken(f"{module}: {said(error)}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Mistaken(f"{module} has no `{attribute}`")
        found = getattr(found, part)
    return found


def data_of(name: str) -> Any:
    """Returns the batches of ``--data``."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise Mistaken(f"--data {name!r} is no package.module:name, and no file.py:name")
    found = named(module, attribute)
    return _called(name, found) if callable(found) and not hasattr(found, "__iter__") else found


def _called(name: str, factory: Any) -> Any:
    if not callable(factory):
        return factory
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise Mistaken(
            f"{name} is called without arguments, and does not take that ({error}): write a "
            "function without arguments that makes the model"
        ) from error
    except ValueError:  # has no signature
        pass
    return factory()


def _takes_something(function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    required = (each.default is each.empty for each in parameters if each.kind not in _VARIADIC)
    return any(required)


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
