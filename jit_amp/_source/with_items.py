"""What TorchScript's compiler is given for a `with`.

People write scopes as Python: with variables of the file, helpers that return a scope, objects that
``__init__`` made. The compiler reads the items of a `with` as TorchScript. So `rewritten`, which
`_script.compilation` calls for the source of each function, evaluates in Python what is known when
compiling (`evaluation`), and writes the scopes that came out in its place: ``torch.autocast("cpu",
dtype=torch.bfloat16)``. Nothing else of the function is touched.

What is known is evaluated once. What asks an attribute of the module that TorchScript holds, or an
argument of the function, stays as an argument of a ``torch.autocast(...)`` that is written out; and
csrc/analysis/scopes.h says whether it can be known (`names` has the kinds).

In the order in which a function passes through them: `simplified`, `known_branches`,
`exit_stack`, `contexts`, and the statements, here.

In one piece: each kind of statement is rewritten by a method of one visitor.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import hashlib
import re
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from jit_amp._base import source_files
from jit_amp._source import plain_scopes, syntax
from jit_amp._source.contexts import Choose, Context, Enter
from jit_amp._source.exit_stack import ExitStacks
from jit_amp._source.failed import Failed
from jit_amp._source.names import Kind

_REFUSED = re.compile(r"_jit_amp_(refused|scope)_\d+")


@dataclass
class Definition:
    """A function's source as the compiler is given it.

    Attributes:
        tree: the tree that was given, where there is nothing to write.
        signature: what tells it from what the source becomes where other values are known; empty
            where there is nothing to write.
        refusals: to each name that stands for a `with` that cannot be compiled, why.
        code: the Python functions that ran while expressions were evaluated.
        reads: names of attributes that these and the expressions have read.
        place: the first `with`, as an error shows it.
        has_with: whether there is a `with`, which may become another one.
    """

    tree: ast.Module
    signature: str = ""
    refusals: dict[str, tuple[int, list[str], str]] = field(default_factory=dict)
    code: set[types.CodeType] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    place: str = ""
    has_with: bool = True

    @functools.cached_property
    def attributes(self) -> set[str]:
        """The names of attributes that it uses of something with a name."""
        asked = filter(None, map(syntax.attribute_of, ast.walk(self.tree)))
        return {name for base, name in asked if isinstance(base, ast.Name)}

    @functools.cached_property
    def assigned(self) -> set[str]:
        """The names of the attributes that the function assigns."""
        return {
            node.attr
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
        }


def rewritten(
    tree: ast.Module,
    source: str,
    function: Any,
    owner: nn.Module | None,
    where: Callable[[int], str],
) -> Definition:
    """A function's source with its scopes written out.

    Args:
        tree: the source, as ast parses it. It stays as it is.
        source: the same as text.
        function: the function that it is of.
        owner: the module whose method it is.
        where: shows a line of the tree, as an error does.
    """
    if not plain_scopes.has_with(tree):
        return Definition(tree, has_with=False)
    if plain_scopes.are_plain(tree, source, function, owner is not None):
        return Definition(tree)
    changed = copy.deepcopy(tree)
    rewriting = _Rewriting(changed, function, owner, where)
    rewriting.run()
    if not rewriting.is_changed:
        return Definition(tree)
    text = _REFUSED.sub("_", ast.unparse(changed)) + str(list(rewriting.refusals.values()))
    return Definition(
        ast.fix_missing_locations(changed),
        hashlib.sha256(text.encode()).hexdigest(),
        rewriting.refusals,
        rewriting.seen.code,
        rewriting.reads(),
        where(next(node.lineno for node in ast.walk(tree) if isinstance(node, ast.With))),
    )


class _Rewriting(ExitStacks):
    """Rewrites the ``with`` statements of one function."""

    def __init__(
        self,
        tree: ast.Module,
        function: Any,
        owner: nn.Module | None,
        where: Callable[[int], str],
    ) -> None:
        super().__init__(tree, function, owner)
        self.where = where
        self.refusals: dict[str, tuple[int, list[str], str]] = {}
        self.open: list[ast.With] = []  # around the statement
        self.tests: dict[str, ast.expr] = {}  # of followed names that are a choice
        self.replaced: set[str] = set()  # followed names that a `with` has used
        self.hoisted: dict[int, list[ast.stmt]] = {}  # before a statement, by its id
        self.paths: dict[int, list[int]] = {}  # of statements: the ids of the `with`s around
        self.contexts: dict[tuple[int, int], Context] = {}

    def run(self) -> None:
        self.relevant = self._relevant_names()
        self._simplify()
        for _ in range(4):  # what is known tells of more
            before = len(self.values), sum(self.stored.values())
            self.definition.body = self._resolved(self.definition.body)
            self.count()
            if before == (len(self.values), sum(self.stored.values())):
                break
        self.followed = self._followed_names()
        checks = self._checks(self.definition.body[0])
        self.definition.body = [*checks, *self._block(self.definition.body)]
        self._drop_unused()

    def _followed_names(self) -> dict[str, list[ast.stmt]]:
        """Local names that are used for `with` alone, and the statements that assign them."""
        assignments: dict[str, list[ast.stmt]] = {}
        entered: Counter[str] = Counter()
        for node in ast.walk(self.definition):
            if target := syntax.target(node):
                assignments.setdefault(target, []).append(node)  # type: ignore[arg-type]
            for expr in syntax.entered_by(node):
                called = expr.func if isinstance(expr, ast.Call) else expr
                if isinstance(called, ast.Name):
                    entered[called.id] += 1
        followed = {
            name: assignments.get(name, [])
            for name in entered
            if name not in self.parameters and self.stored[name] == len(assignments.get(name, []))
            if self.stored[name] and self.loaded[name] == entered[name]
        }
        self._find_paths(self.definition, [])
        return {
            name: statements
            for name, statements in followed.items()
            if not self._is_plain(statements) and self._is_stable(statements)
        }

    def _find_paths(self, node: ast.AST, path: list[int]) -> None:
        self.paths[id(node)] = path
        inside = [*path, id(node)] if isinstance(node, ast.With) else path
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.stmt):
                self._find_paths(each, inside)

    def _hoist(self, statement: ast.stmt, context: Context, can_be: bool) -> None:
        """Makes autocast objects where the program makes them, if they take their dtype or the
        cache's setting from the scopes around."""
        if isinstance(context, Choose):
            self._hoist(statement, context.yes, can_be)
            self._hoist(statement, context.no, can_be)
            return
        assert context is not None
        for number, scope in enumerate(context.scopes):
            if not isinstance(scope, ast.Call):
                continue
            is_autocast = self.lookup(scope.func) in syntax.AUTOCASTS
            takes = {"dtype", "cache_enabled"} - {each.arg for each in scope.keywords}
            if is_autocast and takes and len(scope.args) < 4:
                if not can_be:
                    raise Failed(110)
                name = syntax.new_name("scope")
                made = syntax.at(ast.Assign([ast.Name(name, ast.Store())], scope), statement)
                self.hoisted.setdefault(id(statement), []).append(made)
                context.scopes[number] = syntax.at(ast.Name(name, ast.Load()), statement)

    def _is_plain(self, statements: list[ast.stmt]) -> bool:
        """One ``torch.autocast(...)``, which the compiler takes as the object that it is."""
        value = statements[0].value  # type: ignore[attr-defined]
        return (
            len(statements) == 1
            and isinstance(value, ast.Call)
            and self.lookup(value.func) in syntax.AUTOCASTS
        )

    def _is_stable(self, statements: list[ast.stmt]) -> bool:
        """Whether what the scopes are made of is the same where they are entered."""
        for statement in statements:
            for name in syntax.names_in(statement.value):  # type: ignore[attr-defined]
                times = self.stored[name] + (name in self.parameters)
                if times > 1 and name not in self.values:
                    return False
        return True

    def alternatives(self, name: str, use: ast.expr, of: Callable[[ast.expr], ast.expr]) -> Context:
        """What a followed name stands for, by the statement that has assigned it last."""
        statements = self.followed[name]
        contexts = []
        for statement in statements:
            key = id(statement), -1 if isinstance(use, ast.Name) else id(use)
            if key not in self.contexts:
                value = of(statement.value)  # type: ignore[attr-defined]
                context = self._context_or_itself(value)
                if len(statements) == 1 and isinstance(context, Choose):
                    self.tests.setdefault(name, context.test)
                    context.test = syntax.at(ast.Name(name, ast.Load()), use)
                self.contexts[key] = context
            contexts.append(self.contexts[key])
        if any(context is None for context in contexts):
            raise Failed(110)
        for statement, context in zip(statements, contexts, strict=True):
            if self.paths.get(id(statement)) != [id(each) for each in self.open]:
                self._hoist(statement, context, len(statements) == 1)
        self.is_changed = True
        self.replaced.add(name)
        result = contexts[-1]
        for number in reversed(range(len(contexts) - 1)):
            compared = ast.Compare(
                syntax.at(ast.Name(name, ast.Load()), use),
                [ast.Eq()],
                [syntax.constant(number, use)],
            )
            result = Choose(syntax.at(compared, use), contexts[number], result)
        return result

    def reads(self) -> set[str]:
        """The names of attributes on which what was evaluated may depend."""
        own = (code for code in self.seen.code if not source_files.is_pytorchs(code.co_filename))
        names = {name for code in own for name in code.co_names}
        expressions = (node for expr in self.kept for node in ast.walk(expr))
        return names | {node.attr for node in expressions if isinstance(node, ast.Attribute)}

    def _block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in block:
            result += self._statement(statement)
        return result

    def _statement(self, statement: ast.stmt) -> Iterable[ast.stmt]:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            return [statement]
        if isinstance(statement, ast.With):
            return self._with(statement)
        target = syntax.target(statement)
        checks: list[ast.stmt] = []
        if target in self.relevant and target not in self.followed:
            value = statement.value  # type: ignore[attr-defined]
            is_object = isinstance(value, ast.Call) and self.lookup(value.func) in syntax.AUTOCASTS
            with contextlib.suppress(Failed):
                if is_object:
                    self._written_out_autocast(value, self.lookup(value.func))
                elif target in self.values or self._is_setting(target, value):
                    statement.value = self._reduced(value)  # type: ignore[attr-defined]
            checks = self._checks_of_elements(statement)
        for name in ("body", "orelse", "finalbody"):
            if isinstance(inner := getattr(statement, name, None), list):
                setattr(statement, name, self._block(inner))
        for handler in getattr(statement, "handlers", ()):
            handler.body = self._block(handler.body)
        return [*checks, statement]

    def _is_setting(self, name: str, value: ast.expr) -> bool:
        """Whether a local name is a condition of scopes, and no result of the computation: of these
        nothing is evaluated."""
        if name in self.parameters or self.stored[name] > 1:
            return False
        if not isinstance(value, (ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp)):
            return self.kind(value) is Kind.LIVE
        calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
        return not any(self.kind(call) is Kind.STATIC for call in calls)

    def _with(self, node: ast.With) -> list[ast.stmt]:
        if (unstacked := self._without_stack(node)) is not None:
            return self._block(unstacked)
        try:
            contexts = []
            for item in node.items:
                contexts.append(self._context(item.context_expr))
                self.open.append(node)  # around the items behind it
            self._check_targets(node, contexts)
        except Failed as failed:
            return [self.refused(node, failed)]
        finally:
            self.open = [each for each in self.open if each is not node]
        checks = self._checks(node)
        self.open.append(node)
        body = self._block(node.body)
        self.open.pop()
        items = list(zip(node.items, contexts, strict=True))
        return [*checks, *self._entered(node, items, body)]

    def _checks(self, like: ast.stmt) -> list[ast.stmt]:
        """That weights still have the dtype, or are on the device, and attributes and elements of
        lists and dictionaries the value, that scopes depend on."""
        checks: list[ast.stmt] = []
        for path, attribute in dict.fromkeys(self.asked):
            expr: ast.expr = syntax.name(self.self_name)
            expr = syntax.of_path(expr, path, like) if path else expr
            value: Any = getattr(self.peek(expr), attribute)
            asked = syntax.at(ast.Attribute(expr, attribute, ast.Load()), like)
            if path and attribute == "device":
                asked, value = syntax.at(ast.Attribute(asked, "type", ast.Load()), like), value.type
            literal = syntax.literal(value, like)
            assert literal is not None
            checks.append(self._check(asked, literal, str(value), like))
        self.asked.clear()
        return [*checks, *self._checks_of_elements(like)]

    def _checks_of_elements(self, node: ast.stmt) -> list[ast.stmt]:
        elements, self.elements = self.elements, []
        return [
            self._check(asked, literal, ast.unparse(literal).replace("_jit_amp_", ""), node)
            for asked, literal in elements
        ]

    def _check(self, asked: ast.expr, literal: ast.expr, value: str, node: ast.stmt) -> ast.stmt:
        text = (
            f"{ast.unparse(asked)} was {value} when this was scripted, and a scope depends on"
            " it: script it again"
        )
        is_none = isinstance(literal, ast.Constant) and literal.value is None
        compared = ast.Compare(asked, [ast.Is() if is_none else ast.Eq()], [literal])
        check: ast.stmt = syntax.at(ast.Assert(compared, syntax.constant(text, node)), node)
        return check

    def _check_targets(self, node: ast.With, contexts: list[Context]) -> None:
        for item, context in zip(node.items, contexts, strict=True):
            target = item.optional_vars
            if target is None or context is None or not self._is_used(target):
                continue
            is_one = isinstance(context, Enter) and len(context.scopes) == 1
            if not is_one and (isinstance(context, Choose) or context.value is None):
                raise Failed(112)

    def _entered(
        self,
        at: ast.With,
        items: list[tuple[ast.withitem, Context]],
        body: list[ast.stmt],
    ) -> Iterator[ast.stmt]:
        """Returns the statements of a ``with`` of these items."""
        plain: list[ast.withitem] = []
        for number, (item, context) in enumerate(items):
            if context is None:
                plain.append(item)
                continue
            target = item.optional_vars
            if isinstance(context, Enter) and len(context.scopes) == 1:
                plain.append(ast.withitem(context.scopes[0], target))
                continue
            inner = list(self._entered(at, items[number + 1 :], body))
            if isinstance(context, Choose):
                inner = [self._branches(at, context, inner)]
            else:
                if target is not None and context.value is not None and self._is_used(target):
                    value = context.value
                    inner.insert(0, syntax.at(ast.Assign([target], value), at))
                plain += [ast.withitem(scope, None) for scope in context.scopes]
            yield from syntax.with_of(at, plain, inner)
            return
        yield from syntax.with_of(at, plain, body)

    def _is_used(self, target: ast.expr) -> bool:
        return not isinstance(target, ast.Name) or self.loaded[target.id] > 0

    def _branches(self, at: ast.With, choice: Choose, body: list[ast.stmt]) -> ast.stmt:
        def branch(context: Context, body: list[ast.stmt]) -> list[ast.stmt]:
            if isinstance(context, Choose):
                return [self._branches(at, context, body)]
            assert context is not None
            items = [ast.withitem(copy.deepcopy(scope), None) for scope in context.scopes]
            return list(syntax.with_of(at, items, body))

        yes, no = branch(choice.yes, body), branch(choice.no, copy.deepcopy(body))
        chosen: ast.stmt = syntax.at(ast.If(copy.deepcopy(choice.test), yes, no), at)
        return chosen

    def refused(self, node: ast.With, failed: Failed) -> ast.stmt:
        """A `with` that is refused where the compiler comes to it: it leaves out what it knows to
        be never run."""
        name = syntax.new_name("refused")
        self.refusals[name] = failed.code, list(failed.said), self.where(node.lineno)
        self.is_changed = True
        item = ast.withitem(syntax.call(name, [], node), None)
        result: ast.stmt = syntax.at(ast.With([item], node.body), node)
        return result

    def _drop_unused(self) -> None:
        """Statements that assign what only scopes have used."""
        self.count()

        class Drop(ast.NodeTransformer):
            def visit_Assign(_, node: ast.Assign) -> list[ast.stmt]:
                return [*self.hoisted.get(id(node), ()), self._assignment(node)]

            def visit_AnnAssign(_, node: ast.AnnAssign) -> list[ast.stmt]:
                return [*self.hoisted.get(id(node), ()), self._assignment(node)]

        Drop().visit(self.definition)

    def _assignment(self, node: ast.Assign | ast.AnnAssign) -> ast.stmt:
        name = syntax.target(node)
        if name in self.replaced:
            statements = self.followed[name]
            value: ast.expr
            if name in self.tests:
                value = syntax.at(
                    ast.Call(ast.Name("bool", ast.Load()), [self.tests[name]], []), node
                )
            elif len(statements) > 1:
                value = syntax.constant([each is node for each in statements].index(True), node)
            else:
                return _nothing(node)
            number: ast.stmt = syntax.at(ast.Assign([ast.Name(name, ast.Store())], value), node)
            return number
        if name in self.values and not self.loaded[name]:
            self.is_changed = True
            return _nothing(node)
        return node


def _nothing(like: ast.stmt) -> ast.stmt:
    """Returns a statement that does nothing."""
    statement: ast.stmt = syntax.at(ast.Pass(), like)
    return statement
