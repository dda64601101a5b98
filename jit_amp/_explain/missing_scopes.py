"""Autocasts for CUDA that PyTorch has switched off because this machine has none.

`torch.autocast("cuda")` forgets there that it was to be on. Where it is made while a program runs,
the warning tells; of one that is a decorator, or stands around the call of `explain`, the source
does, where it says nothing about `enabled`.
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from jit_amp._base import source_files
from jit_amp._explain.stops import path_of, statements_at, value_of

_WITH = [
    dis.opmap[name] for name in ("SETUP_WITH", "BEFORE_WITH", "LOAD_SPECIAL") if name in dis.opmap
]
"""What Python 3.10, 3.11 to 3.13, and 3.14 make of a `with`."""


def around() -> dict[str, torch.dtype]:
    """By device, the dtype of the innermost that is open in a function which has called this."""
    if torch.cuda.is_available():
        return {}
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if _enters_contexts(frame.f_code) and source_files.is_programs(file):
            names = {**frame.f_globals, **frame.f_locals}
            for statement in reversed(statements_at(file, frame.f_lineno)):
                for item in _items_around(statement, frame.f_lineno):
                    if dtype := _dtype_of(item.context_expr, names):
                        return {"cuda": dtype}
        frame = frame.f_back
    return {}


def _enters_contexts(code: types.CodeType) -> bool:
    """Whether a function may have a `with`: to read the source of each takes long."""
    return any(operation in code.co_code[::2] for operation in _WITH)


def _items_around(statement: ast.stmt, line: int) -> list[ast.withitem]:
    """What a `with` enters that has a line in its body."""
    if not isinstance(statement, ast.With):
        return []
    lines = [(each.lineno, each.end_lineno or each.lineno) for each in statement.body]
    return statement.items if any(first <= line <= last for first, last in lines) else []


def of_decorators(function: Callable[..., Any]) -> tuple[str, int, torch.dtype | None] | None:
    """The file and line of the decorator by which a function enters an autocast, and its dtype
    where that is one for CUDA which is switched off; None without a source."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return None
    names = getattr(inspect.unwrap(function), "__globals__", {})
    for decorator in _decorators(code):
        func = decorator.func if isinstance(decorator, ast.Call) else decorator
        if path_of(func).rpartition(".")[2] in ("autocast", "custom_fwd"):
            dtype = None if torch.cuda.is_available() else _dtype_of(decorator, names)
            return code.co_filename, decorator.lineno, dtype
    return code.co_filename, code.co_firstlineno, None


@functools.lru_cache(1024)
def _decorators(code: types.CodeType) -> list[ast.expr]:
    """The decorators of a function. They are asked for each time that it is called."""
    for statement in reversed(statements_at(code.co_filename, code.co_firstlineno)):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return statement.decorator_list
    return []


def _dtype_of(node: ast.expr, names: dict[str, Any]) -> torch.dtype | None:
    """The dtype of an autocast for CUDA that the source has on; None for anything else."""
    if not isinstance(node, ast.Call):
        return None
    made = value_of(path_of(node.func), names)
    given = {each.arg: each.value for each in node.keywords}
    takes = {torch.autocast: ["device_type", "dtype"], torch.cuda.amp.autocast: []}.get(made)
    if takes is None or len(node.args) > len(takes) or {None, "enabled"} & set(given):
        return None
    given |= dict(zip(takes, node.args, strict=False))
    device = given.get("device_type", ast.Constant("cuda" if not takes else ""))
    if not (isinstance(device, ast.Constant) and device.value == "cuda"):
        return None
    dtype = value_of(path_of(given["dtype"]), names) if "dtype" in given else None
    if "dtype" in given and not isinstance(dtype, torch.dtype):
        return None
    return dtype or torch.get_autocast_dtype("cuda")
