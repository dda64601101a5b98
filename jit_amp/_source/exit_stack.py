"""``with contextlib.ExitStack() as stack:`` as the `with` blocks that it stands for."""

from __future__ import annotations

import ast
import contextlib
import copy

from jit_amp._source import syntax
from jit_amp._source.failed import Failed
from jit_amp._source.known_branches import KnownBranches
from jit_amp._source.names import Kind


class ExitStacks(KnownBranches):
    """Rewrites a function that uses ``ExitStack`` without it."""

    def refused(self, node: ast.With, failed: Failed) -> ast.stmt:
        """What the compiler is given for a `with` that is refused."""
        raise NotImplementedError

    def _without_stack(self, node: ast.With) -> list[ast.stmt] | None:
        """A `with ExitStack() as stack` as the `with`s of what is entered on it."""
        for number, item in enumerate(node.items):
            call, name = item.context_expr, item.optional_vars
            if not (isinstance(call, ast.Call) and self.lookup(call.func) is contextlib.ExitStack):
                continue
            self.is_changed = True
            body = node.body
            if isinstance(name, ast.Name):
                try:
                    body = self._unstacked(body, name.id)
                except Failed as failed:
                    return [self.refused(node, failed)]
            rest = [*node.items[:number], *node.items[number + 1 :]]
            return list(syntax.with_of(node, rest, body))
        return None

    def _unstacked(self, body: list[ast.stmt], stack: str) -> list[ast.stmt]:
        for number, statement in enumerate(body):
            items = self._stacked_items(statement, stack)
            if items is None:
                if stack in syntax.names_in(statement):
                    raise Failed(126, ast.unparse(statement).splitlines()[0])
                continue
            rest = self._unstacked(body[number + 1 :], stack) or [syntax.at(ast.Pass(), statement)]
            return [*body[:number], *syntax.with_of(statement, items, rest)]
        return body

    def _stacked_items(self, statement: ast.stmt, stack: str) -> list[ast.withitem] | None:
        """What a statement enters; None if it is not about the stack."""
        value = getattr(statement, "value", None)
        if isinstance(statement, (ast.Expr, ast.Assign)) and syntax.is_entering(value, stack):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            return [ast.withitem(value.args[0], target)]
        if isinstance(statement, ast.If):
            branches = []
            for block in (statement.body, statement.orelse):
                inside = [self._stacked_items(each, stack) for each in block]
                if any(each is None or each[0].optional_vars for each in inside):
                    return None
                branches.append([item for each in inside if each for item in each])
            none = syntax.call("_jit_amp_nullcontext", [], statement)
            yes, no = branches
            return [
                ast.withitem(
                    syntax.at(
                        ast.IfExp(
                            copy.deepcopy(statement.test),
                            a.context_expr if a else copy.deepcopy(none),
                            b.context_expr if b else copy.deepcopy(none),
                        ),
                        statement,
                    ),
                    None,
                )
                for a, b in [*((a, None) for a in yes), *((None, b) for b in no)]
            ]
        if isinstance(statement, ast.For) and isinstance(statement.target, ast.Name):
            [inner, *others] = statement.body
            call = getattr(inner, "value", None)
            if others or not syntax.is_entering(call, stack) or statement.orelse:
                return None
            if self.kind(statement.iter) is Kind.RUN:
                unknown = self._unknown(statement.iter)
                raise Failed(101, f"`{unknown}` in `{ast.unparse(statement.iter)}`")
            items = []
            for value in list(self._value(statement.iter)):
                name = syntax.new_name("value")
                self.values[name] = value
                given = syntax.Moved(statement.target.id, syntax.name(name))
                named = syntax.at(given.visit(copy.deepcopy(call.args[0])), statement)
                items.append(ast.withitem(named, None))
            return items
        return None
