"""``nullcontext`` in what TorchScript compiles: it has no such class, and needs none.

``with autocast(...) if amp else nullcontext():`` is what it says, an `if` with a `with` in one
branch; and that is what the compiler is given. A name that stands for such a choice, and is used
for nothing but `with`, is read the same way.
"""

from __future__ import annotations

import ast
import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_Resolve = Callable[[str], Any]


def rewritten(tree: ast.Module, resolve: _Resolve) -> ast.Module:
    """A function's source with its choices of a context written out; the tree itself, where there
    are none. ``resolve`` tells what a name outside the function stands for."""
    if not any(_is_null(node, resolve) for node in ast.walk(tree)):
        return tree
    tree = copy.deepcopy(tree)
    names = _chosen_names(tree, resolve)
    changed: ast.Module = _Rewrite(resolve, names).visit(tree)
    return ast.fix_missing_locations(changed)


def resolver(function: Any) -> _Resolve:
    """What the names of a function stand for."""
    names = getattr(function, "__globals__", {})
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    closed = dict(zip(code.co_freevars, cells, strict=False)) if code else {}

    def resolve(name: str) -> Any:
        with contextlib.suppress(KeyError, ValueError):
            return closed[name].cell_contents
        return names.get(name)

    return resolve


def _is_null(node: ast.AST, resolve: _Resolve) -> bool:
    """Whether it is a call of contextlib.nullcontext, whose result nobody uses."""
    if not isinstance(node, ast.Call) or node.args or node.keywords:
        return False
    function = node.func
    if isinstance(function, ast.Name):
        return resolve(function.id) is contextlib.nullcontext
    is_member = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
    if not is_member:
        return False
    owner = resolve(function.value.id)  # type: ignore[attr-defined]
    return getattr(owner, function.attr, None) is contextlib.nullcontext  # type: ignore[attr-defined]


def _is_choice(node: ast.AST, resolve: _Resolve) -> bool:
    return isinstance(node, ast.IfExp) and (
        _is_null(node.body, resolve) or _is_null(node.orelse, resolve)
    )


def _chosen_names(tree: ast.Module, resolve: _Resolve) -> set[str]:
    """The names that stand for a choice: assigned once, and used for `with` alone."""
    assigned: Counter[str] = Counter()
    chosen, entered, used = set(), Counter[str](), Counter[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (assigned if isinstance(node.ctx, ast.Store) else used)[node.id] += 1
        if isinstance(node, ast.arg):
            assigned[node.arg] += 1
        if isinstance(node, ast.Assign) and _is_choice(node.value, resolve):
            chosen |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        if isinstance(node, ast.With):
            contexts = (item.context_expr for item in node.items if not item.optional_vars)
            entered.update(each.id for each in contexts if isinstance(each, ast.Name))
    return {name for name in chosen if assigned[name] == 1 and used[name] == entered[name]}


class _Rewrite(ast.NodeTransformer):
    def __init__(self, resolve: _Resolve, names: Iterable[str]) -> None:
        self.resolve, self.names = resolve, set(names)
        self.choices: dict[str, ast.IfExp] = {}

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """``ctx = a if c else b`` becomes ``ctx = bool(c)``: what the `with` then asks."""
        [target, *others] = node.targets
        is_chosen = isinstance(target, ast.Name) and target.id in self.names and not others
        if not is_chosen or not isinstance(node.value, ast.IfExp):
            return node
        self.choices[target.id] = node.value  # type: ignore[attr-defined]
        call = ast.Call(ast.Name("bool", ast.Load()), [node.value.test], [])
        return ast.copy_location(ast.Assign([target], ast.copy_location(call, node.value)), node)

    def visit_With(self, node: ast.With) -> Any:
        self.generic_visit(node)
        return list(self._entered(node, node.items, node.body))

    def _entered(
        self, at: ast.With, items: list[ast.withitem], body: list[ast.stmt]
    ) -> Iterator[ast.stmt]:
        """The statements of a `with` of these items."""
        plain: list[ast.withitem] = []
        for number, item in enumerate(items):
            choice = self._choice(item)
            if choice is None and not self._is_left_out(item):
                plain.append(item)
                continue
            inner = list(self._entered(at, items[number + 1 :], body))
            if choice is not None:
                inner = [self._branches(at, *choice, inner)]
            yield from self._with(at, plain, inner)
            return
        yield from self._with(at, plain, body)

    def _is_left_out(self, item: ast.withitem) -> bool:
        return not item.optional_vars and _is_null(item.context_expr, self.resolve)

    def _choice(self, item: ast.withitem) -> tuple[ast.expr, ast.IfExp] | None:
        """What an item asks, and the choice."""
        context = item.context_expr
        if item.optional_vars:
            return None
        if _is_choice(context, self.resolve):
            assert isinstance(context, ast.IfExp)
            return context.test, context
        if isinstance(context, ast.Name) and context.id in self.choices:
            return context, self.choices[context.id]
        return None

    def _branches(
        self, at: ast.With, test: ast.expr, choice: ast.IfExp, body: list[ast.stmt]
    ) -> ast.stmt:
        def branch(context: ast.expr, body: list[ast.stmt]) -> list[ast.stmt]:
            item = ast.withitem(copy.deepcopy(context), None)
            return list(self._entered(at, [item], body))

        yes, no = branch(choice.body, body), branch(choice.orelse, copy.deepcopy(body))
        return ast.copy_location(ast.If(copy.deepcopy(test), yes, no), at)

    @staticmethod
    def _with(at: ast.With, items: list[ast.withitem], body: list[ast.stmt]) -> Iterator[ast.stmt]:
        if items:
            yield ast.copy_location(ast.With(items, body), at)
        else:
            yield from body
