"""What is known of the names of a function, and of expressions of them, before it runs.

`with_items` asks it. An expression is one of three kinds:

- *static*: all of it is known now, and Python can evaluate it;
- *live*: it asks attributes of the module that TorchScript holds, so the program can ask it;
- *run*: it needs an argument of the function, or what is computed when it runs.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import enum
import inspect
import textwrap
import types
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from jit_amp._base.syntax_trees import parsed
from jit_amp._source import evaluation, syntax
from jit_amp._source.evaluation import names_of

# Functions that TorchScript has, which tell of live values what is known as soon as these are.
_OPERATORS = (bool, int, float, str, len, min, max, abs, torch.device)
MISSING: Any = object()  # in place of an attribute that is not there
_NOWHERE = torch._sources.fake_range()  # type: ignore[no-untyped-call]
PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)


class Kind(enum.IntEnum):
    STATIC = 0
    LIVE = 1
    RUN = 2


class Names:
    """What each name in a function stands for."""

    def __init__(self, tree: ast.Module, function: Any, owner: nn.Module | None) -> None:
        definition = tree.body[0]
        assert isinstance(definition, ast.FunctionDef)
        self.definition, self.owner = definition, owner
        self.function = getattr(function, "__func__", function)
        self.names = names_of(self.function)
        arguments = definition.args
        listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        others = [each for each in (arguments.vararg, arguments.kwarg) if each]
        self.parameters = {each.arg for each in [*listed, *others]}
        self.self_name = listed[0].arg if owner is not None and listed else ""
        self.values: dict[str, Any] = {}  # of local names that are known
        self.count()

    def count(self) -> None:
        self.stored: Counter[str] = Counter()
        self.loaded: Counter[str] = Counter()
        for node in ast.walk(self.definition):
            if isinstance(node, ast.Name):
                (self.loaded if isinstance(node.ctx, ast.Load) else self.stored)[node.id] += 1
        self.locals = self.parameters | set(self.stored)

    def lookup(self, expr: ast.expr) -> Any:
        """What a name, or a dotted name of modules and classes, stands for; None for all else."""
        if isinstance(expr, ast.Name):
            if expr.id in self.values:
                return self.values[expr.id]
            if expr.id in syntax.NAMES:
                return syntax.NAMES[expr.id]
            if expr.id in self.locals:
                return None
            return self.names.get(expr.id, getattr(builtins, expr.id, None))
        if isinstance(expr, ast.Attribute):
            base = self.lookup(expr.value)
            if isinstance(base, (types.ModuleType, type)):
                return getattr(base, expr.attr, None)
        return None

    def peek(self, expr: ast.expr) -> Any:
        """The module or tensor that an expression of `self` stands for; None for all else."""
        if isinstance(expr, ast.Name):
            if self.self_name and expr.id == self.self_name:
                return self.owner
            value = self.values.get(expr.id)
            return value if isinstance(value, (nn.Module, torch.Tensor)) else None
        if isinstance(expr, ast.Attribute):
            base = self.peek(expr.value)
            if isinstance(base, nn.Module):
                for part in ("_modules", "_parameters", "_buffers"):
                    members = vars(base).get(part) or {}
                    if expr.attr in members:
                        return members[expr.attr]
        if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Constant):
            container: Any = self.peek(expr.value)
            if isinstance(container, (nn.ModuleList, nn.Sequential, nn.ModuleDict)):
                key: Any = expr.slice.value
                with contextlib.suppress(LookupError, TypeError):
                    return container[key]
        return None

    def kind(self, expr: ast.AST, bound: frozenset[str] = frozenset()) -> Kind:
        """``bound``: the names that a comprehension or a lambda around it gives a value."""
        if isinstance(expr, ast.Name):
            if expr.id in bound or expr.id in self.values or expr.id == self.self_name:
                return Kind.STATIC
            return Kind.RUN if expr.id in self.locals else Kind.STATIC
        if isinstance(expr, ast.Attribute):
            return self._kind_of_attribute(expr, bound)
        if isinstance(
            expr, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
        ):
            inside = {n.id for n in ast.walk(expr) if isinstance(n, ast.Name) and _is_stored(n)}
            inside |= {n.arg for n in ast.walk(expr) if isinstance(n, ast.arg)}
            kinds = [self.kind(n, bound | inside) for n in ast.iter_child_nodes(expr)]
            return Kind.RUN if Kind.RUN in kinds else Kind.STATIC
        kinds = [self.kind(each, bound) for each in ast.iter_child_nodes(expr)]
        kind = max(kinds, default=Kind.STATIC)
        if isinstance(expr, ast.Call):
            if is_one_of(self.lookup(expr.func), evaluation.KNOWN_AT_RUN_TIME):
                return Kind.RUN
            if kind is not Kind.RUN and self._is_live_method(expr.func):
                return Kind.LIVE
            is_operator = is_one_of(self.lookup(expr.func), _OPERATORS)
            is_method = isinstance(expr.func, ast.Attribute) and kinds[0] is Kind.LIVE
            return kind if kind is not Kind.LIVE or is_operator or is_method else Kind.STATIC
        if isinstance(expr, ast.Subscript) and kind is Kind.LIVE:
            return kinds[0]
        return kind

    def _kind_of_attribute(self, expr: ast.Attribute, bound: frozenset[str]) -> Kind:
        base = self.peek(expr.value)
        if isinstance(base, torch.Tensor) and expr.attr in ("dtype", "device", "is_cuda"):
            return Kind.STATIC  # and checked when it runs
        if isinstance(base, torch.jit.ScriptModule):
            return Kind.LIVE
        if not isinstance(base, nn.Module):
            return Kind.STATIC if self._is_of_object(expr) else self.kind(expr.value, bound)
        if any(expr.attr in vars(base)[p] for p in ("_modules", "_parameters", "_buffers")):
            return Kind.LIVE
        if expr.attr in vars(base):
            ignored = getattr(base, "__jit_ignored_attributes__", ())
            is_held = expr.attr not in ignored and _is_held(base, expr.attr)
            return Kind.LIVE if is_held else Kind.STATIC
        member = inspect.getattr_static(type(base), expr.attr, None)
        if isinstance(member, property) and is_live(member.fget, base):
            return Kind.LIVE
        return Kind.STATIC

    def _is_of_object(self, expr: ast.Attribute) -> bool:
        """Whether it is what an object that `self` has knows better than TorchScript: what is of
        its class, which TorchScript has not, and a dtype, which is known there at run time only."""
        value = expr.value
        owner = self.peek(value.value) if isinstance(value, ast.Attribute) else None
        if not isinstance(owner, nn.Module) or not isinstance(value, ast.Attribute):
            return False
        held = vars(owner).get(value.attr)
        if not isinstance(members := getattr(held, "__dict__", None), dict):
            return False
        if expr.attr in members:
            return isinstance(members[expr.attr], torch.dtype)
        return isinstance(inspect.getattr_static(type(held), expr.attr, MISSING), PLAIN)

    def is_device_type(self, expr: ast.expr) -> bool:
        """Whether it is ``weight.device.type``, which a scope may know at run time only."""
        device = expr.value if isinstance(expr, ast.Attribute) and expr.attr == "type" else None
        return (
            isinstance(device, ast.Attribute)
            and device.attr == "device"
            and isinstance(self.peek(device.value), torch.Tensor)
        )

    def _is_live_method(self, function: ast.expr) -> bool:
        base = self.peek(function.value) if isinstance(function, ast.Attribute) else None
        if not isinstance(base, nn.Module) or isinstance(base, torch.jit.ScriptModule):
            return False
        member = inspect.getattr_static(type(base), function.attr, None)  # type: ignore[attr-defined]
        return isinstance(member, types.FunctionType) and is_live(member, base)


def is_one_of(value: Any, functions: Iterable[Any]) -> bool:
    return any(value is each for each in functions)


def _is_stored(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _is_held(owner: nn.Module, name: str) -> bool:
    """Whether TorchScript has an attribute of the module (``infer_concrete_type_builder`` of
    torch/jit/_recursive.py): by its value, or by the annotation of its class, as an empty list."""
    value = vars(owner)[name]
    if isinstance(value, PLAIN):
        return True
    if holds_autocast(value) or callable(value):
        return False
    if isinstance(value, (list, dict, tuple)) and _has_type(owner, name):
        return True
    try:
        return bool(torch._C._jit_try_infer_type(value).success())
    except RuntimeError:
        return False


def _has_type(owner: nn.Module, name: str) -> bool:
    """Whether the class annotates an attribute with a type of TorchScript's."""
    for cls in type(owner).__mro__:
        annotation = inspect.get_annotations(cls).get(name)
        if annotation is not None:
            try:
                known = torch.jit.annotations.try_ann_to_type(annotation, _NOWHERE)  # type: ignore[no-untyped-call]
            except Exception:  # of any class: the compiler says what is wrong with it
                return False
            return known is not None
    return False


def holds_autocast(value: Any) -> bool:
    """Whether a value is, or has, an autocast object: TorchScript holds none."""
    if isinstance(value, dict):
        return any(map(holds_autocast, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(holds_autocast, value))
    return isinstance(value, torch.autocast)


def is_live(function: Any, owner: nn.Module) -> bool:
    """Whether a property or a method is of live attributes alone, as TorchScript compiles it."""
    tree = tree_of(function)
    if tree is None:
        return False
    names = Names(tree, function, owner)
    nodes = [node for statement in names.definition.body for node in ast.walk(statement)]
    if any(isinstance(node, (ast.With, ast.Lambda, ast.comprehension)) for node in nodes):
        return False
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in names.locals:
            value = names.lookup(node)
            if value is not torch and not is_one_of(value, _OPERATORS):
                return False
        if isinstance(node, ast.Call) and is_one_of(
            names.lookup(node.func), evaluation.KNOWN_AT_RUN_TIME
        ):
            return False
        if (
            isinstance(node, ast.Attribute)
            and (isinstance(names.peek(node.value), nn.Module) or names._is_of_object(node))
            and names.kind(node) is not Kind.LIVE
            and not names._is_live_method(node)
        ):
            return False
    return True


def tree_of(function: Any) -> ast.Module | None:
    try:
        tree = parsed(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    return tree if tree.body and isinstance(tree.body[0], ast.FunctionDef) else None


def asked_of_others(function: Any) -> set[str]:
    """The names that a method asks of a part of the module, or of an argument."""
    tree = tree_of(function)
    if tree is None:
        return set()
    names = Names(tree, function, None)
    own = {each.arg for each in names.definition.args.args[:1]}
    asked = filter(None, map(syntax.attribute_of, ast.walk(names.definition)))
    return {
        name
        for base, name in asked
        if not (isinstance(base, ast.Name) and base.id in own)
        if syntax.names_in(base) & names.locals
    }
