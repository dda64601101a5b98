"""Whether all scopes of a function are written as TorchScript takes them.

Most are: ``with torch.autocast("cpu", dtype=torch.bfloat16):``. Then `with_items` has nothing to
write, and need not look at what stands inside. Here only statements are looked at, and not all
their expressions: that is a small part of what the compiler itself takes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch

from jit_amp._source import syntax
from jit_amp._source.evaluation import names_of

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def statements(block: list[Any]) -> Iterator[ast.stmt]:
    """The statements of a block and of those inside, in any order."""
    ahead = list(block)
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in _BLOCKS:
            ahead += getattr(node, name, ())


def has_with(tree: ast.Module) -> bool:
    return any(isinstance(each, ast.With) for each in statements(tree.body))


def are_plain(tree: ast.Module, source: str, function: Any, is_method: bool) -> bool:
    """Whether there is nothing to write for a function's scopes: each calls autocast itself with
    constants and dtypes of PyTorch's, and no branch may depend on what is known when compiling.

    Args:
        tree: the function's source, as ast parses it.
        source: the same as text.
        function: the function.
        is_method: whether its first argument is the module.
    """
    [definition] = tree.body
    code = getattr(function, "__code__", None)
    if not isinstance(definition, ast.FunctionDef) or "enter_context" in source:
        return False
    if code is None or code.co_name != definition.name:  # of a decorator's wrapper
        return False
    own = {*code.co_varnames, *code.co_cellvars}
    given = own - {*code.co_varnames[: int(is_method)]}
    names = _Names(own, names_of(function))
    inside = list(statements(definition.body))
    if any(isinstance(each, _DEFINITIONS) for each in inside):
        return False
    return all(
        all(names.is_plain(item) for item in each.items)
        if isinstance(each, ast.With)
        else not isinstance(each, ast.If) or _is_of_run_time(each, given, own - given)
        for each in inside
    )


class _Names:
    """What names of the file stand for."""

    def __init__(self, own: set[str], others: dict[str, Any]) -> None:
        self.own, self.others = own, others

    def value(self, expr: ast.expr) -> Any:
        """Of a name of the file, or a dotted one of a module there; None for all else."""
        if isinstance(expr, ast.Name):
            return None if expr.id in self.own else self.others.get(expr.id)
        base = self.value(expr.value) if isinstance(expr, ast.Attribute) else None
        is_module = isinstance(base, type(torch)) or base in syntax.AUTOCASTS
        return getattr(base, expr.attr, None) if is_module else None  # type: ignore[attr-defined]

    def is_plain(self, item: ast.withitem) -> bool:
        call = item.context_expr
        if item.optional_vars is not None or not isinstance(call, ast.Call):
            return False
        called = self.value(call.func)
        if not any(called is each for each in syntax.AUTOCASTS):
            return False
        given = [*call.args, *(each.value for each in call.keywords if each.arg)]
        is_whole = len(given) == len(call.args) + len(call.keywords)  # no `**options`
        return is_whole and all(map(self._is_literal, given))

    def _is_literal(self, expr: ast.expr) -> bool:
        if isinstance(expr, ast.Constant):
            return True
        is_torchs = isinstance(expr, ast.Attribute) and self.value(expr.value) is torch
        return is_torchs and isinstance(self.value(expr), torch.dtype)


def _is_of_run_time(branch: ast.If, given: set[str], module: set[str]) -> bool:
    """Whether nothing is known of a branch when compiling, or it holds nothing that depends on it:
    it asks what the function is given, or has computed, and does not ask the module."""
    inside = statements([*branch.body, *branch.orelse])
    if not any(isinstance(each, (ast.With, ast.Return)) for each in inside):
        return True
    asked = syntax.names_in(branch.test)
    return bool(asked & given) and not asked & module
