"""Pieces of a function's syntax tree, as `with_items` reads and writes them."""

from __future__ import annotations

import ast
import contextlib
import copy
import enum
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

import torch

from jit_amp._source import scope_template
from jit_amp._source.evaluation import Scope
from jit_amp._source.failed import Failed

_cpu_autocast: Any = torch.cpu.amp.autocast  # type: ignore[attr-defined]
AUTOCASTS: tuple[Any, ...] = (torch.autocast, torch.cuda.amp.autocast, _cpu_autocast)
# What the names that are written here stand for: the file of the program may have none for it.
NAMES: dict[str, Any] = {
    "_jit_amp_torch": torch,
    "_jit_amp_autocast": torch.autocast,
    "_jit_amp_cuda_autocast": torch.cuda.amp.autocast,
    "_jit_amp_cpu_autocast": _cpu_autocast,
    "_jit_amp_set_grad": scope_template.set_grad,
    "_jit_amp_nullcontext": contextlib.nullcontext,
}
OF_CLASS: dict[Any, str] = {
    torch.autocast: "_jit_amp_autocast",
    torch.cuda.amp.autocast: "_jit_amp_cuda_autocast",
    _cpu_autocast: "_jit_amp_cpu_autocast",
}


def target(node: ast.AST) -> str:
    """Returns the one name that a statement assigns, if there is just one."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target = node.target
    else:
        return ""
    return target.id if isinstance(target, ast.Name) else ""


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def has_names(expr: ast.AST) -> bool:
    return bool(names_in(expr))


def attribute_of(node: ast.AST) -> tuple[ast.expr, str] | None:
    """What a node asks an attribute of, and its name: ``a.b``, or ``getattr(a, "b")``."""
    if isinstance(node, ast.Attribute):
        return node.value, node.attr
    is_getattr = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr"
    if is_getattr and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):  # type: ignore[attr-defined]
        return node.args[0], str(node.args[1].value)  # type: ignore[attr-defined]
    return None


_READS = ("get", "keys", "values", "items", "index", "count", "copy")


def written_to(node: ast.AST) -> list[ast.expr]:
    """The lists and dictionaries that a node may write to: by an index, or by a method."""
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return [node.value]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return [] if node.func.attr in _READS else [node.func.value]
    return []


def writes_to_part_of(tree: ast.AST, names: set[str]) -> bool:
    """Whether a function may write to a list or dictionary that is an attribute of one of these
    names, or is part of one: also by a local name."""
    nodes = list(ast.walk(tree))
    own: set[str] = set()  # local names of these, or of their parts

    def is_part(value: ast.AST) -> bool:
        return any(
            (isinstance(each, ast.Attribute) and each.attr in names)
            or (isinstance(each, ast.Name) and each.id in own)
            for each in ast.walk(value)
        )

    before = -1
    while before != len(own):
        before = len(own)
        for node in nodes:
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.For, ast.NamedExpr)):
                value = node.iter if isinstance(node, ast.For) else node.value
                if value is not None and is_part(value):
                    given = node.targets if isinstance(node, ast.Assign) else [node.target]
                    own |= {name for each in given for name in names_in(each)}
    return any(is_part(written) for node in nodes for written in written_to(node))


def entered_by(node: ast.AST) -> list[ast.expr]:
    """What a `with`, or a stack of contexts, enters."""
    if isinstance(node, ast.With):
        return [item.context_expr for item in node.items]
    if isinstance(node, ast.Call) and is_entering(node):
        return node.args
    return []


def is_entering(node: Any, stack: str = "") -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "enter_context"
        and isinstance(node.func.value, ast.Name)
        and (not stack or node.func.value.id == stack)
        and len(node.args) == 1
        and not node.keywords
    )


REFUSED = "_jit_amp_refused_"  # how names begin that stand for what is refused
_counter = itertools.count()


def new_name(purpose: str) -> str:
    """A name that no program and no other function has."""
    return f"_jit_amp_{purpose}_{next(_counter)}"


def at(node: Any, like: ast.AST) -> Any:
    """A new node with the place of another; parts that have none get it too."""
    ast.copy_location(node, like)
    for each in ast.walk(node):
        if "lineno" in each._attributes and not hasattr(each, "lineno"):
            ast.copy_location(each, like)
    return node


def name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def constant(value: Any, like: ast.AST) -> ast.expr:
    constant: ast.expr = at(ast.Constant(value), like)
    return constant


def call(name: str, arguments: Sequence[ast.expr], like: ast.AST) -> ast.expr:
    made: ast.expr = at(ast.Call(ast.Name(name, ast.Load()), list(arguments), []), like)
    return made


def call_of(function: ast.expr, like: ast.Call) -> ast.Call:
    """A call of another function, with the same arguments."""
    arguments = copy.deepcopy((like.args, like.keywords))
    made: ast.Call = at(ast.Call(function, *arguments), like)
    return made


def with_of(like: ast.AST, items: list[ast.withitem], body: list[ast.stmt]) -> Iterator[ast.stmt]:
    if items:
        yield at(ast.With(items, body), like)
    else:
        yield from body


def literal(value: Any, like: ast.AST) -> ast.expr | None:
    """A value in TorchScript's words; None where it has none for it."""
    made: ast.expr
    if isinstance(value, enum.Enum) and isinstance(value, (str, int)):
        value = value.value
    if isinstance(value, torch.dtype):
        made = ast.Attribute(
            ast.Name("_jit_amp_torch", ast.Load()), str(value).rpartition(".")[2], ast.Load()
        )
    elif isinstance(value, torch.device):
        device = ast.Attribute(ast.Name("_jit_amp_torch", ast.Load()), "device", ast.Load())
        made = ast.Call(device, [ast.Constant(str(value))], [])
    elif isinstance(value, (int, float)) and type(value) is not bool and value < 0:
        made = ast.UnaryOp(ast.USub(), ast.Constant(-value))
    elif value is None or type(value) in (bool, int, float, str):
        made = ast.Constant(value)
    else:
        return None
    located: ast.expr = at(made, like)
    return located


def scope(entered: Scope, like: ast.AST) -> ast.expr:
    """Returns a scope as TorchScript writes it."""
    if isinstance(entered, bool):
        return grad_scope(entered, like)
    made = call("_jit_amp_autocast", [], like)
    assert isinstance(made, ast.Call)
    names = ("device_type", "dtype", "enabled", "cache_enabled")
    for name, value in zip(names, entered, strict=True):
        if value is None and name in ("dtype", "cache_enabled"):
            continue
        written = literal(value, like)
        if written is None:
            raise Failed(102, name, type(value).__name__, "another")
        made.keywords.append(ast.keyword(name, written))
    return made


def grad_scope(mode: bool, like: ast.AST) -> ast.expr:
    """A scope in which gradients are recorded, or are not."""
    if mode:
        return call("_jit_amp_set_grad", [constant(True, like)], like)
    function = ast.Attribute(ast.Name("_jit_amp_torch", ast.Load()), "no_grad", ast.Load())
    made: ast.expr = at(ast.Call(function, [], []), like)
    return made


def is_dtype_of(value: Any, expr: ast.expr) -> bool:
    """``torch.bfloat16``, which TorchScript takes as it is."""
    return (
        isinstance(value, torch.dtype)
        and isinstance(expr, ast.Attribute)
        and isinstance(expr.value, ast.Name)
        and getattr(torch, expr.attr, None) is value
    )


def of_partial(made: functools.partial[Any], call: ast.Call) -> ast.Call | None:
    """The call that a call of a partial is, if its arguments can be written out."""
    args = [literal(value, call) for value in made.args]
    named = {name: literal(value, call) for name, value in made.keywords.items()}
    given = {each.arg for each in call.keywords}
    if None in given or None in args or None in named.values():
        return None
    keywords = [
        ast.keyword(name, value)
        for name, value in named.items()
        if name not in given and value is not None
    ]
    function = ast.Name(OF_CLASS[made.func], ast.Load())
    all_args = [*(each for each in args if each is not None), *call.args]
    flat: ast.Call = at(ast.Call(function, all_args, [*keywords, *call.keywords]), call)
    return flat


def of_path(expr: ast.expr, path: str, like: ast.AST) -> ast.expr:
    """What a module, as an expression, has at a path."""
    for name in path.split("."):
        if name.isidentifier():
            expr = ast.Attribute(expr, name, ast.Load())
        else:
            key = int(name) if name.isdecimal() else name
            expr = ast.Subscript(expr, ast.Constant(key), ast.Load())
    located: ast.expr = at(expr, like)
    return located


class Moved(ast.NodeTransformer):
    """An expression in which a name stands for another expression."""

    def __init__(self, name: str, other: ast.expr) -> None:
        self.name, self.other = name, other

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.other) if node.id == self.name else node


class Placed(ast.NodeTransformer):
    """An expression of another function, at a place of this one."""

    def __init__(self, like: ast.AST) -> None:
        self.like = like

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if "lineno" in node._attributes:
            ast.copy_location(node, self.like)
        return super().generic_visit(node)
