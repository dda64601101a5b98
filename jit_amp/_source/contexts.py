"""What entering the expression of a `with` item means: the scopes that `with_items` writes.

In one piece: each kind of context manager is one method, and they call one another.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import enum
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from jit_amp._source import evaluation, syntax
from jit_amp._source.failed import Failed
from jit_amp._source.names import PLAIN, Kind, Names, tree_of
from jit_amp._source.reaching import reaches_autocast


@dataclass
class Enter:
    """The scopes of an item, and what `as` gives where that is no autocast object."""

    scopes: list[ast.expr]
    value: ast.expr | None = None


@dataclass
class Choose:
    """One of two, by what the program asks when it runs."""

    test: ast.expr
    yes: Context
    no: Context


# None: the compiler is given the item as it is.
Context = Enter | Choose | None


class Contexts(Names):
    """The expressions of one function that are entered."""

    def __init__(self, tree: ast.Module, function: Any, owner: nn.Module | None) -> None:
        super().__init__(tree, function, owner)
        self.is_changed = False
        self.seen = evaluation.Seen()
        self.evaluated: dict[int, Any] = {}  # by the id of the expression
        self.kept: list[ast.expr] = []  # so that no other gets the id of one
        self.asked: list[tuple[str, str]] = []  # paths and attributes, which the program checks
        self.elements: list[tuple[ast.expr, ast.expr]] = []  # the same, and what they are now
        self.followed: dict[str, list[ast.stmt]] = {}  # names of scopes, and what assigns them

    def is_refused(self, function: ast.expr) -> bool:
        """Whether it stands for a `with` that is refused."""
        return isinstance(function, ast.Name) and function.id.startswith(syntax.REFUSED)

    def alternatives(self, name: str, use: ast.expr, of: Callable[[ast.expr], ast.expr]) -> Context:
        """What a name that stands for scopes means where it is used."""
        raise NotImplementedError

    def _value(self, expr: ast.expr) -> Any:
        """What a static expression is. It is evaluated once."""
        return self._evaluated(expr, False).value

    def _evaluated(self, expr: ast.expr, is_context: bool) -> evaluation.Made:
        if id(expr) not in self.evaluated:
            text = ast.unparse(expr)
            self.kept.append(expr)
            outcome: Any
            try:
                outcome = self._evaluate(expr, text, is_context)
            except Failed as failed:
                outcome = failed
            self.evaluated[id(expr)] = outcome
        outcome = self.evaluated[id(expr)]
        if isinstance(outcome, Failed):
            raise outcome
        self.asked += self._weights(outcome.asked)
        own = {
            node.attr
            for node in ast.walk(expr)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if node.value.id == self.self_name
        }
        self.asked += self._attributes(outcome.names | own)
        return outcome  # type: ignore[no-any-return]

    def _evaluate(self, expr: ast.expr, text: str, is_context: bool) -> evaluation.Made:
        file = inspect.getsourcefile(self.function) or "<unknown>"
        owner = self.function.__qualname__.rpartition(".")[0].rpartition(".")[2]
        class_name = owner if self.self_name and owner != "<locals>" else ""
        code = evaluation.code_of(copy.deepcopy(expr), class_name, self.self_name, file)
        names = {**self.names, **self.values, **syntax.NAMES}
        if self.self_name:
            names[self.self_name] = self.owner
        run = functools.partial(eval, code, names)
        return evaluation.evaluated(
            text, run, self.owner, self.function.__globals__, is_context, self.seen
        )

    def _reduced(self, expr: ast.expr, is_condition: bool = False) -> ast.expr:
        """An argument as the compiler takes it: what is known of it is written out.

        Args:
            is_condition: it decides about a branch, so that csrc need not know it.
        """
        kind = self.kind(expr)
        if kind is Kind.STATIC:
            return self._written_out(expr)
        if kind is Kind.LIVE:
            if self._is_element(expr):
                may_change = is_condition or self._may_be_written(expr)
                return expr if may_change else self._checked(expr)
            if not self._is_compiled(expr):
                return self._written_out(expr)
        return self._with_reduced_parts(self._without_in(expr), is_condition)

    def _is_element(self, expr: ast.expr) -> bool:
        """Whether it is an element of a list or dictionary that TorchScript holds: of these csrc
        knows no element before it runs."""
        called = expr.func if isinstance(expr, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr == "get":
            return self.peek(called.value) is None
        return isinstance(expr, ast.Subscript) and self.peek(expr) is None

    def _may_be_written(self, expr: ast.expr) -> bool:
        """Whether the module's code may write to the list or dictionary of an element."""
        names = {node.attr for node in ast.walk(expr) if isinstance(node, ast.Attribute)} - {"get"}
        functions = (each for cls in type(self.owner).__mro__ for each in vars(cls).values())
        own = (
            f for f in functions if isinstance(f, types.FunctionType) and f.__name__ != "__init__"
        )
        return any(
            syntax.writes_to_part_of(tree, names)
            for function in own
            if not (function.__module__ or "").startswith("torch.")
            if (tree := tree_of(function)) is not None
        )

    def _checked(self, expr: ast.expr) -> ast.expr:
        """What an element is now; the program checks that it still is."""
        literal = self._literal_of(expr)
        if literal is None:
            return expr
        asked = copy.deepcopy(expr)
        if isinstance(asked, ast.Subscript):
            asked.slice = self._reduced(asked.slice)
        self.elements.append((self._with_reduced_parts(asked), literal))
        self.is_changed = True
        return literal

    def _without_in(self, expr: ast.expr) -> ast.expr:
        """``self.name in ("a", "b")`` as comparisons, which csrc knows."""
        if not (isinstance(expr, ast.Compare) and isinstance(expr.ops[0], (ast.In, ast.NotIn))):
            return expr
        [listed, *others] = expr.comparators
        if others or self.kind(listed) is not Kind.STATIC or self.kind(expr.left) is Kind.RUN:
            return expr
        members = [syntax.literal(member, expr) for member in self._value(listed)]
        if not members or None in members:
            return expr
        is_in = isinstance(expr.ops[0], ast.In)
        compared: list[ast.expr] = [
            ast.Compare(copy.deepcopy(expr.left), [ast.Eq() if is_in else ast.NotEq()], [member])
            for member in members
            if member is not None
        ]
        self.is_changed = True
        operator = ast.Or() if is_in else ast.And()
        written: ast.expr = syntax.at(ast.BoolOp(operator, compared), expr)
        return written if len(compared) > 1 else syntax.at(compared[0], expr)

    def _with_reduced_parts(self, expr: ast.expr, is_condition: bool = False) -> ast.expr:
        if isinstance(expr, ast.Call):
            expr.args = [self._reduced(each, is_condition) for each in expr.args]
            for keyword in expr.keywords:
                keyword.value = self._reduced(keyword.value, is_condition)
        elif isinstance(expr, (ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.IfExp)):
            for name, part in ast.iter_fields(expr):
                if isinstance(part, ast.expr):
                    setattr(expr, name, self._reduced(part, is_condition))
                elif isinstance(part, list) and all(isinstance(p, ast.expr) for p in part):
                    setattr(expr, name, [self._reduced(p, is_condition) for p in part])
        return expr

    def _is_compiled(self, expr: ast.expr) -> bool:
        """Whether all static parts of a live expression can be written out."""
        if not isinstance(expr, (ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.IfExp)):
            return True
        for part in ast.iter_child_nodes(expr):
            if isinstance(part, ast.expr):
                if self.kind(part) is not Kind.STATIC:
                    if not self._is_compiled(part):
                        return False
                elif syntax.has_names(part) and self._literal_of(part) is None:
                    return False
        return True

    def _literal_of(self, expr: ast.expr) -> ast.expr | None:
        value = self._value(expr)
        return expr if isinstance(value, enum.Enum) else syntax.literal(value, expr)

    def _written_out(self, expr: ast.expr) -> ast.expr:
        if not syntax.has_names(expr) or syntax.is_dtype_of(self.lookup(expr), expr):
            return expr
        literal = self._literal_of(expr)
        if literal is None:
            return expr
        self.is_changed = True
        return literal

    def _context(self, expr: ast.expr) -> Context:
        """Returns what entering the value of an expression means."""
        if isinstance(expr, ast.Name) and expr.id in self.followed:
            return self.alternatives(expr.id, expr, lambda value: value)
        if isinstance(expr, ast.IfExp):
            return self._choice(expr.test, expr.body, expr.orelse)
        if isinstance(expr, ast.Call):
            return self._called(expr)
        if isinstance(expr, ast.Name) and expr.id in self.locals and expr.id not in self.values:
            return None
        kind = self.kind(expr)
        if kind is Kind.STATIC:
            return self._evaluated_context(expr)
        if kind is Kind.RUN and self._reaches(expr):
            raise Failed(101, f"`{self._unknown(expr)}` in `{ast.unparse(expr)}`")
        return None

    def _choice(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> Context:
        is_known = self.kind(test) is Kind.STATIC
        if is_known and syntax.has_names(test):
            self.is_changed = True
            return self._context(body if self._value(test) else orelse)
        yes, no = self._context_or_itself(body), self._context_or_itself(orelse)
        if yes is None or no is None:
            return None
        self.is_changed = True
        return Choose(self._reduced(test, True), yes, no)

    def _context_or_itself(self, expr: ast.expr) -> Context:
        """Of a branch: what the compiler takes as it is, is entered as it is."""
        context = self._context(expr)
        if context is None and isinstance(expr, (ast.Call, ast.Name)):
            return Enter([expr])
        return context

    def _called(self, call: ast.Call) -> Context:
        function = call.func
        if isinstance(function, ast.Name) and function.id in self.followed:
            return self.alternatives(function.id, call, lambda value: syntax.call_of(value, call))
        if isinstance(function, ast.IfExp):
            yes, no = (syntax.call_of(each, call) for each in (function.body, function.orelse))
            return self._choice(function.test, yes, no)
        if self.kind(function) is Kind.RUN or self.is_refused(function):
            return None
        callee = self._callee(function)
        if isinstance(callee, functools.partial) and callee.func in syntax.AUTOCASTS:
            flat = syntax.of_partial(callee, call)
            if flat is not None:
                self.is_changed = True
                call, callee = flat, callee.func
        if callee in syntax.AUTOCASTS:
            return self._written_out_autocast(call, callee)
        if callee is contextlib.nullcontext:
            self.is_changed = True
            given = [*call.args, *(each.value for each in call.keywords)]
            return Enter([], self._reduced(given[0]) if given else syntax.constant(None, call))
        if callee in evaluation.GRAD_MODES:
            return self._grad_mode(call, callee)
        parts = [*call.args, *(each.value for each in call.keywords)]
        if any(self.kind(part) is Kind.RUN for part in parts):
            if reaches_autocast(callee):
                raise Failed(101, f"`{self._unknown(call)}` in `{ast.unparse(call)}`")
            return None
        if callee is contextlib.suppress:
            if parts:
                raise Failed(125, ast.unparse(call), "catches exceptions")
            self.is_changed = True
            return Enter([])
        is_class = isinstance(callee, type) and "__init__" in vars(callee)
        if is_class and not reaches_autocast(callee):
            return None  # TorchScript may have it
        if not callable(callee):
            return None
        return self._evaluated_context(call)

    def _callee(self, function: ast.expr) -> Any:
        found = self.lookup(function)
        return self._value(function) if found is None else found

    def _written_out_autocast(self, call: ast.Call, callee: Any) -> Context:
        """``torch.autocast(...)``: each argument for itself."""
        starred = [each for each in call.args if isinstance(each, ast.Starred)]
        starred += [each for each in call.keywords if each.arg is None]  # type: ignore[misc]
        if starred and not self._unpack(call):
            return self._evaluated_context(call)
        before = ast.dump(call)
        call.args = [
            each if self.is_device_type(each) else self._reduced(each) for each in call.args
        ]
        for keyword in call.keywords:
            if not self.is_device_type(keyword.value):
                keyword.value = self._reduced(keyword.value)
        if not isinstance(self.lookup(call.func), type) or self._is_local(call.func):
            call.func = syntax.at(ast.Name(syntax.OF_CLASS[callee], ast.Load()), call)
        self.is_changed |= ast.dump(call) != before
        return Enter([call])

    def _is_local(self, function: ast.expr) -> bool:
        root = function
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and root.id in self.locals

    def _unpack(self, call: ast.Call) -> bool:
        """Writes `*a` and `**b` out, whose values are known and can be."""
        args: list[ast.expr] = []
        keywords: list[ast.keyword] = []
        for each in call.args:
            if not isinstance(each, ast.Starred):
                args.append(each)
                continue
            if self.kind(each.value) is Kind.RUN:
                raise Failed(101, f"`{ast.unparse(each)}` in `{ast.unparse(call)}`")
            literals = [syntax.literal(value, each) for value in self._value(each.value)]
            if None in literals:
                return False
            args += literals  # type: ignore[arg-type]
        for keyword in call.keywords:
            if keyword.arg is not None:
                keywords.append(keyword)
                continue
            if self.kind(keyword.value) is Kind.RUN:
                raise Failed(101, f"`**{ast.unparse(keyword.value)}` in `{ast.unparse(call)}`")
            for name, value in dict(self._value(keyword.value)).items():
                literal = syntax.literal(value, call)
                if literal is None:
                    return False
                keywords.append(ast.keyword(name, literal))
        call.args, call.keywords = args, keywords
        self.is_changed = True
        return True

    def _grad_mode(self, call: ast.Call, callee: Any) -> Context:
        given = [*call.args, *(each.value for each in call.keywords)]
        if callee is torch.no_grad:
            if isinstance(self.lookup(call.func), type):
                return None  # TorchScript has it
            self.is_changed = True
            return Enter([syntax.grad_scope(False, call)])
        self.is_changed = True
        if callee is torch.enable_grad:
            return Enter([syntax.grad_scope(True, call)])
        if callee is torch.inference_mode:
            is_on = self._value(given[0]) if given else True
            return Enter([syntax.grad_scope(not is_on, call)])
        mode = self._reduced(given[0]) if given else syntax.constant(None, call)
        return Enter([syntax.call("_jit_amp_set_grad", [mode], call)])

    def _evaluated_context(self, expr: ast.expr) -> Context:
        made = self._evaluated(expr, True)
        self.is_changed = True
        value = syntax.constant(None, expr) if made.scopes in ([True], [False]) else None
        if isinstance(made.value, contextlib.nullcontext):
            value = syntax.literal(made.value.enter_result, expr)
        return Enter([syntax.scope(each, expr) for each in made.scopes], value)

    def _reaches(self, expr: ast.expr) -> bool:
        """Whether a part of an expression that is known may be a scope."""
        return any(
            self.kind(part) is Kind.STATIC and self._holds_scopes(part)
            for part in ast.walk(expr)
            if isinstance(part, (ast.Name, ast.Attribute, ast.Call))
        )

    def _holds_scopes(self, expr: ast.expr) -> bool:
        try:
            value = self._value(expr)
        except Failed:
            return False
        members = value.values() if isinstance(value, dict) else value
        members = members if isinstance(members, (list, tuple, type({}.values()))) else [value]
        return any(reaches_autocast(each) for each in members)

    def _unknown(self, expr: ast.AST) -> str:
        """The largest part of an expression that is of a value at run time alone."""
        if isinstance(expr, ast.Call):
            parts: list[ast.AST] = [*expr.args, *(each.value for each in expr.keywords)]
        elif isinstance(expr, ast.Subscript):
            parts = [expr.slice, expr.value]
        elif isinstance(expr, (ast.Name, ast.Attribute)):
            parts = []
        else:
            parts = list(ast.iter_child_nodes(expr))
        for part in parts:
            if self.kind(part) is Kind.RUN:
                return self._unknown(part)
        return ast.unparse(expr)

    def _weights(self, asked: list[tuple[torch.Tensor, str]]) -> Iterator[tuple[str, str]]:
        """Parameters and buffers of the module among tensors, by their paths."""
        if self.owner is None or not asked:
            return
        paths = {id(tensor): path for path, tensor in self.owner.named_buffers()}
        paths |= {id(tensor): path for path, tensor in self.owner.named_parameters()}
        for tensor, attribute in asked:
            if id(tensor) in paths:
                yield paths[id(tensor)], attribute

    def _attributes(self, names: set[str]) -> Iterator[tuple[str, str]]:
        """The attributes that TorchScript holds of the module among names."""
        members = vars(self.owner) if self.self_name else {}
        for name in sorted(names & members.keys()):
            value = members[name]
            asked = ast.Attribute(syntax.name(self.self_name), name, ast.Load())
            if value is not None and isinstance(value, PLAIN) and self.kind(asked) is Kind.LIVE:
                yield "", name
