"""Properties, and a module's first parameter, written as attributes that TorchScript can ask.

``self.device`` of a module whose property returns ``next(self.parameters()).device`` becomes
``self.linear.weight.device``. So a scope follows the module to another device.
"""

from __future__ import annotations

import ast
import inspect
import types

import torch
from torch import nn

from jit_amp._source import syntax
from jit_amp._source.names import Kind, Names, is_one_of, tree_of


class Simplified(ast.NodeTransformer):
    """Writes attributes for what Python computes of them, where that can be asked when it runs."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.code: set[types.CodeType] = set()

    def of(self, expr: ast.expr) -> ast.expr:
        result: ast.expr = self.visit(expr)
        return result

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """``next(self.parameters())``."""
        is_next = is_one_of(self.names.lookup(node.func), (next,)) and len(node.args) == 1
        first = self._first_tensor(node.args[0]) if is_next else None
        if first is None:
            self.generic_visit(node)
        return first or node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """``list(self.parameters())[0]``."""
        listed, index = node.value, node.slice
        first = None
        is_first = isinstance(index, ast.Constant) and index.value == 0
        if (
            is_first
            and isinstance(listed, ast.Call)
            and len(listed.args) == 1
            and is_one_of(self.names.lookup(listed.func), (list, tuple))
        ):
            first = self._first_tensor(listed.args[0])
        if first is None:
            self.generic_visit(node)
        return first or node

    def _first_tensor(self, call: ast.expr) -> ast.expr | None:
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            return None
        owner, method = self.names.peek(call.func.value), call.func.attr
        if call.args or call.keywords or method not in ("parameters", "buffers"):
            return None
        if not isinstance(owner, nn.Module) or isinstance(owner, torch.jit.ScriptModule):
            return None
        named = owner.named_parameters if method == "parameters" else owner.named_buffers
        path = next((name for name, _ in named()), None)
        if path is None:
            return None
        return syntax.of_path(call.func.value, path, call)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """A property that returns one expression of `self`."""
        self.generic_visit(node)
        owner = self.names.peek(node.value)
        if not isinstance(owner, nn.Module) or isinstance(owner, torch.jit.ScriptModule):
            return node
        member = inspect.getattr_static(type(owner), node.attr, None)
        if not isinstance(member, property) or node.attr in vars(owner):
            return node
        tree = tree_of(member.fget)
        body = tree.body[0].body if tree is not None else []  # type: ignore[attr-defined]
        if tree is None or len(body) - _has_text(body) != 1:
            return node
        returned = body[-1].value if isinstance(body[-1], ast.Return) else None
        if returned is None:
            return node
        inside = Names(tree, member.fget, owner)
        others = syntax.names_in(returned) - {inside.self_name}
        if any(
            not is_one_of(inside.lookup(syntax.name(each)), (next, list, torch)) for each in others
        ):
            return node
        simplified = Simplified(inside)
        expr = simplified.of(returned)
        if inside.kind(expr) is Kind.STATIC and not any(
            isinstance(inside.peek(each.value), torch.Tensor)
            for each in ast.walk(expr)
            if isinstance(each, ast.Attribute)
        ):
            return node
        self.code |= {member.fget.__code__, *simplified.code}  # type: ignore[union-attr]
        moved: ast.expr = syntax.Moved(inside.self_name, node.value).visit(expr)
        located: ast.expr = syntax.at(syntax.Placed(node).visit(moved), node)
        return located


def _has_text(body: list[ast.stmt]) -> bool:
    """Returns whether a function begins with a doc string."""
    value = getattr(body[0], "value", None) if isinstance(body[0], ast.Expr) else None
    return isinstance(value, ast.Constant)
