"""Local names that scopes depend on, and branches on what is known, before scopes are written."""

from __future__ import annotations

import ast
from typing import Any

from jit_amp._source import syntax
from jit_amp._source.contexts import Contexts
from jit_amp._source.failed import Failed
from jit_amp._source.names import Kind
from jit_amp._source.simplified import Simplified


class KnownBranches(Contexts):
    """A function whose branches on what is known are taken now."""

    relevant: set[str]  # local names that scopes depend on

    def _relevant_names(self) -> set[str]:
        """Returns the local names that scopes depend on."""
        nodes = list(ast.walk(self.definition))
        names = {
            name
            for node in nodes
            if isinstance(node, ast.With)
            for item in node.items
            for name in syntax.names_in(item.context_expr)
        }
        names |= {
            name
            for node in nodes
            if isinstance(node, ast.Call) and syntax.is_entering(node)
            for argument in node.args
            for name in syntax.names_in(argument)
        }
        while True:
            more = set(names)
            for node in nodes:
                if (target := syntax.target(node)) and target in names:
                    more |= syntax.names_in(node.value)  # type: ignore[attr-defined]
                if isinstance(node, ast.If) and self._decides(node, names):
                    more |= syntax.names_in(node.test)
            if more == names:
                return names & set(self.stored)
            names = more

    def _decides(self, node: ast.If, names: set[str]) -> bool:
        inside = [each for part in (*node.body, *node.orelse) for each in ast.walk(part)]
        return any(
            isinstance(each, (ast.With, ast.Return))
            or (isinstance(each, ast.Call) and syntax.is_entering(each))
            or syntax.target(each) in names
            for each in inside
        )

    def _simplify(self) -> None:
        """Writes properties that return one expression, and a module's first parameter, as what
        TorchScript can ask when it runs."""
        simplified = Simplified(self)
        before = ast.dump(self.definition)
        for node in list(ast.walk(self.definition)):
            if isinstance(node, ast.With):
                for item in node.items:
                    item.context_expr = simplified.of(item.context_expr)
            elif isinstance(node, ast.Call) and syntax.is_entering(node):
                node.args = [simplified.of(node.args[0])]
            elif syntax.target(node) in self.relevant:
                node.value = simplified.of(node.value)  # type: ignore[attr-defined]
            elif isinstance(node, ast.If) and self._decides(node, self.relevant):
                node.test = simplified.of(node.test)
        self.seen.code |= simplified.code
        self.is_changed |= ast.dump(self.definition) != before

    def _resolved(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """A block, without the branches that cannot be; and `values` of the names that it sets."""
        result: list[ast.stmt] = []
        for statement in block:
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                result.append(statement)
                continue
            if isinstance(statement, ast.If) and self._decides(statement, self.relevant):
                is_known, value = self._known(statement.test)
                if is_known and syntax.has_names(statement.test):
                    self.is_changed = True
                    taken = statement.body if value else statement.orelse
                    result += self._resolved(taken)
                    continue
            target = syntax.target(statement)
            if target in self.relevant and self.stored[target] == 1:
                self._learn(target, statement.value)  # type: ignore[attr-defined]
            for name in ("body", "orelse", "finalbody"):
                if isinstance(inner := getattr(statement, name, None), list):
                    setattr(statement, name, self._resolved(inner))
            result.append(statement)
        return result

    def _known(self, expr: ast.expr) -> tuple[bool, Any]:
        if self.kind(expr) is not Kind.STATIC:
            return False, None
        try:
            return True, self._value(expr)
        except Failed:  # told where a scope needs it
            return False, None

    def _learn(self, name: str, expr: ast.expr) -> None:
        """The value of a local name that is assigned once, if it is no scope."""
        if name in self.parameters or name in self.values or not syntax.has_names(expr):
            return
        if name in self._scope_names():
            return
        part = self.peek(expr)
        if part is not None:  # a weight, or a part of the module, by another name
            self.values[name] = part
            return
        is_known, value = self._known(expr)
        if is_known and not self.seen.depends_on_its_place(value):
            self.values[name] = value

    def _scope_names(self) -> set[str]:
        """Names of which a `with` enters what they stand for, or what a call of it gives."""
        names = set()
        for node in ast.walk(self.definition):
            for expr in syntax.entered_by(node):
                called = expr.func if isinstance(expr, ast.Call) else expr
                if isinstance(called, ast.Name):
                    names.add(called.id)
        return names
