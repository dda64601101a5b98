"""Whether Python code may enter autocast, as far as its names tell.

`contexts` asks it of what a `with` calls, and `_script.wrapped` of what stands between a call and
the function that TorchScript compiles. Nothing is run. A name stands for a global, an import, what
a function closes over, or an attribute of an object that is known: of `self`, and of what it holds.

In one piece: a name, an attribute, a call and a class are looked up by one another.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dis
import functools
import inspect
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from jit_amp._base import source_files
from jit_amp._base.syntax_trees import parsed
from jit_amp._source.evaluation import names_of

_MOST_ELEMENTS = 1000  # of a list or dictionary that are looked at
_amp: Any = torch.amp.autocast_mode
# Functions of PyTorch's that enter autocast, or ask whether it is on.
_OF_AUTOCAST = {_amp._enter_autocast, _amp.custom_fwd, _amp.custom_bwd}
_OF_AUTOCAST |= {
    function
    for name in dir(torch)
    if "autocast" in name and callable(function := getattr(torch, name))
    if isinstance(function, types.BuiltinFunctionType)
}
# Functions that find an attribute by a string, or run one.
_BY_A_STRING = {"getattr", "__getattribute__", "attrgetter", "methodcaller", "__dict__", "vars"}
_BY_A_STRING |= {"globals", "__import__", "import_module", "eval", "exec"}
_DATA = (str, bytes, int, float, complex, type(None), torch.Tensor, torch.dtype, torch.device)
_METHODS = ("__init__", "__enter__", "__call__")


def reaches_autocast(value: Any, besides: Iterable[Any] = (), owner: Any = None) -> bool:
    """Whether code may enter autocast: itself, what it closes over, and what it names.

    Args:
        value: a function, a class, or any other object that may be called or entered.
        besides: functions and objects that are left out, with all that they reach.
        owner: the module that a function gets as its argument.
    """
    return _Search(besides, owner).reaches(value)


class _Search:
    def __init__(self, besides: Iterable[Any], owner: Any) -> None:
        self.besides = {id(each) for each in besides}
        self.owners = [] if owner is None else [owner]  # what any function may be given
        self.seen: set[tuple[int, int]] = set()
        self.of_classes: dict[tuple[type, str], Any] = {}  # their attributes
        self.kept: list[Any] = []  # what is seen, so that no id is used twice

    def reaches(self, value: Any, receiver: Any = None) -> bool:
        """`receiver`: the object whose method it is."""
        key = id(value), id(receiver)
        if key in self.seen or id(value) in self.besides:
            return False
        self.seen.add(key)
        self.kept += [value, receiver]
        if type(value) is types.MethodType:
            owner = value.__self__
            return self.reaches(value.__func__, owner) or self.reaches(owner)
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if type(value) is types.FunctionType:
            return self._function(value, receiver)
        return self._object(value)

    def _any(self, values: Iterable[Any]) -> bool:
        return any(map(self.reaches, values))

    def _object(self, value: Any) -> bool:
        if isinstance(value, torch.autocast) or value in _OF_AUTOCAST_IDS:
            return True
        if isinstance(value, type) and issubclass(value, torch.autocast):
            return True
        if isinstance(value, (*_DATA, types.ModuleType)):
            return False
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            elements = value.values() if isinstance(value, dict) else value
            return len(value) <= _MOST_ELEMENTS and self._any(list(elements))
        if isinstance(value, contextlib._GeneratorContextManagerBase):
            return self._any((value.func, value.args, value.kwds))
        if isinstance(value, functools.partial):
            self.owners += filter(_has_attributes, value.args)
            return self._any((value.func, value.args, value.keywords))
        cls = value if isinstance(value, type) else type(value)
        if _is_pytorchs(cls):
            return False
        names = _METHODS[1:] if isinstance(value, nn.Module) else _METHODS
        methods = (inspect.getattr_static(cls, name, None) for name in names)
        functions = [each for each in methods if isinstance(each, types.FunctionType)]
        if (wrapper := wrapper_of(value)) is not None and self.reaches(wrapper):
            return True
        return any(self.reaches(each, None if cls is value else value) for each in functions)

    def _function(self, value: types.FunctionType, receiver: Any) -> bool:
        if value in _OF_AUTOCAST:
            return True
        is_pytorchs = source_files.is_pytorchs(value.__code__.co_filename) or _is_pytorchs(value)
        closed = _closed_over(value)
        if is_pytorchs and not closed:
            return False
        defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        names = set(_names(value.__code__))
        if names & _BY_A_STRING:
            texts = {each for each in _constants(value.__code__) if isinstance(each, str)}
            if names & {"eval", "exec"} and any("autocast" in text for text in texts):
                return True
            texts |= {each for each in (*closed, *defaults) if isinstance(each, str)}
            names |= {part for text in texts for part in text.split(".")}
        known = [*_named(value.__code__, value.__globals__, names), *closed, *defaults]
        objects = [each for each in (receiver, *self.owners, *known) if _has_attributes(each)]
        return self._any(known) or self._attributes(objects, names)

    def _attributes(self, objects: list[Any], names: set[str]) -> bool:
        """The attributes of these names, of objects and of what these hold by these names."""
        ahead, seen = objects, set()
        while ahead:
            each = ahead.pop()
            if id(each) in seen or id(each) in self.besides:
                continue
            seen.add(id(each))
            self.kept.append(each)
            wanted = set(names)
            while wanted:
                member, is_property = self._member(each, wanted.pop())
                if member is None or id(member) in self.besides:
                    continue
                if self.reaches(member, each):
                    return True
                if _has_attributes(member):
                    ahead.append(member)
                if is_property:  # what it gives has a name in it
                    further = set(_names(member.__code__)) - names
                    names |= further
                    wanted |= further
        return False

    def _member(self, value: Any, name: str) -> tuple[Any, bool]:
        """An attribute, as far as it can be had without running code: of a property its getter,
        and whether it is one."""
        found = _own_member(value, name)
        if found is None:
            key = type(value), name
            if key not in self.of_classes:
                self.of_classes[key] = inspect.getattr_static(type(value), name, None)
            found = self.of_classes[key]
        if isinstance(found, property):
            return found.fget, isinstance(found.fget, types.FunctionType)
        if isinstance(found, functools.cached_property):
            return found.func, True
        if isinstance(found, types.MemberDescriptorType):  # a slot
            return getattr(value, name, None), False
        return getattr(found, "__func__", found), False


def code_named(function: Any) -> Iterator[Any]:
    """The functions and classes that a function's names stand for, but for those of PyTorch."""
    code = function.__code__
    named = _named(code, function.__globals__, {*_names(code)})
    for value in (*named, *_closed_over(function)):
        if isinstance(value, type) and not _is_pytorchs(value):
            yield value
        elif isinstance(value, (types.FunctionType, types.MethodType)):
            inner = inspect.unwrap(getattr(value, "__func__", value))
            if not source_files.is_pytorchs(getattr(inner, "__code__", code).co_filename):
                yield value


def wrapper_of(value: Any) -> Any:
    """What a proxy of wrapt's calls with what it stands for; None for all else."""
    is_proxy = not isinstance(value, type) and type(value) is not value.__class__
    return getattr(value, "_self_wrapper", None) if is_proxy else None


def can_be_seen_through(function: Any) -> bool:
    """Whether what calls an object is Python's code, or does nothing of its own."""
    cls = type(function)
    if cls in (types.FunctionType, types.MethodType) or cls.__module__ == "functools":
        return True
    call = inspect.getattr_static(cls, "__call__", None)
    return isinstance(call, types.FunctionType) or wrapper_of(function) is not None


class _Identities:
    """The builtin functions among these, which are told by identity: any object is asked."""

    def __init__(self, functions: Iterable[Any]) -> None:
        self.ids = {id(each) for each in functions}

    def __contains__(self, value: object) -> bool:
        return id(value) in self.ids


_OF_AUTOCAST_IDS = _Identities(_OF_AUTOCAST)


def _is_pytorchs(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "").partition(".")[0] == "torch"


def _has_attributes(value: Any) -> bool:
    """Whether it is an object of a program's own, whose attributes a function may ask for."""
    others = (type, types.ModuleType, types.FunctionType, types.MethodType, *_DATA)
    if isinstance(value, (*others, torch.jit.ScriptModule)):
        return False
    return isinstance(value, nn.Module) or not _is_pytorchs(type(value))


def _own_member(value: Any, name: str) -> Any:
    """An attribute that an object has itself, a module's parts among them."""
    own = getattr(value, "__dict__", None)
    if not isinstance(own, dict):
        return None
    if name not in own and isinstance(value, nn.Module):
        for part in ("_modules", "_parameters", "_buffers"):
            if name in own.get(part, ()):
                return own[part][name]
    return own.get(name)


def _has(value: Any, name: str) -> bool:
    of_class = inspect.getattr_static(type(value), name, None)
    return of_class is not None or _own_member(value, name) is not None


def _closed_over(function: types.FunctionType) -> list[Any]:
    """What a function closes over, but for the class that `super()` needs."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [cell.cell_contents for name, cell in cells if name != "__class__" and is_full(cell)]


def is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields a function's code, and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def _names(code: types.CodeType) -> Iterator[str]:
    for each in codes(code):
        yield from each.co_names


def _constants(code: types.CodeType) -> Iterator[Any]:
    for each in codes(code):
        for constant in each.co_consts:
            yield from constant if isinstance(constant, tuple) else (constant,)


_IMPORT = dis.opmap["IMPORT_NAME"]


def _imported(code: types.CodeType) -> Iterator[Any]:
    """The modules that a function imports itself, as far as they are loaded."""
    for each in codes(code):
        has_imports = _IMPORT in each.co_code[::2]  # each second byte is an operation
        for instruction in dis.get_instructions(each) if has_imports else ():
            if instruction.opname == "IMPORT_NAME":
                parts = str(instruction.argval).split(".")
                for length in range(1, len(parts) + 1):
                    yield sys.modules.get(".".join(parts[:length]))


def _named(code: types.CodeType, names: dict[str, Any], asked: set[str]) -> Iterator[Any]:
    """What a function's names stand for: globals, and attributes of modules among them."""
    found = [names[name] for name in asked if name in names]
    found += [each for each in _imported(code) if each is not None]
    modules: set[int] = set()
    while found:
        value = found.pop()
        if not isinstance(value, types.ModuleType):
            yield value
        elif id(value) not in modules:
            modules.add(id(value))
            found += [vars(value)[name] for name in asked if name in vars(value)]


def enters_something_unknown(function: Any, owner: Any = None) -> bool:
    """Whether a function has a `with` of an object that its names do not tell: of an argument, or
    of an attribute that its owner does not have."""
    if isinstance(function, functools.partial):
        return enters_something_unknown(function.func, next(iter(function.args), None))
    if type(function) is not types.FunctionType:
        wrapper = wrapper_of(function)
        called = inspect.getattr_static(type(function), "__call__") if wrapper is None else wrapper
        if type(called) is not types.FunctionType:
            return False
        return enters_something_unknown(called, function if wrapper is None else None)
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    try:
        lines, _ = inspect.getsourcelines(code)
        tree = parsed(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):
        return any(each.opname in _ENTERING for each in dis.get_instructions(code))
    definition = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)), None)
    if definition is None:
        return False
    return _Entered(definition, names_of(function), owner).is_unknown()


_ENTERING = ("BEFORE_WITH", "SETUP_WITH", "LOAD_SPECIAL")


class _Entered:
    """What a function's `with` statements, and its stacks of contexts, enter."""

    def __init__(self, definition: ast.FunctionDef, names: dict[str, Any], owner: Any) -> None:
        self.definition, self.names, self.owner = definition, names, owner
        listed = definition.args
        positional = [each.arg for each in (*listed.posonlyargs, *listed.args)]
        others = [each.arg for each in (listed.vararg, listed.kwarg) if each is not None]
        self.parameters = {*positional, *others, *(each.arg for each in listed.kwonlyargs)}
        first = positional[0] if positional else listed.vararg.arg if listed.vararg else ""
        self.first = first if owner is not None else ""
        self.assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(definition):
            for target, value in _assignments(node):
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        self.assigned.setdefault(name.id, []).append(value)
        stored = {
            node.id
            for node in ast.walk(definition)
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        }
        self.locals = self.parameters | stored

    def is_unknown(self) -> bool:
        return any(not self._is_known(each, set()) for each in self._entered())

    def _entered(self) -> Iterator[ast.expr]:
        for node in ast.walk(self.definition):
            if isinstance(node, (ast.With, ast.AsyncWith)):
                yield from (item.context_expr for item in node.items)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr == "__enter__":
                    yield node.func.value
                if node.func.attr == "enter_context":
                    yield from node.args

    def _is_known(self, expr: ast.expr, seen: set[str]) -> bool:
        if isinstance(expr, (ast.Await, ast.Starred, ast.Subscript, ast.NamedExpr)):
            return self._is_known(expr.value, seen)
        if isinstance(expr, ast.Call):
            if isinstance(expr.func, ast.Name) and hasattr(builtins, expr.func.id):
                return all(self._is_known(each, seen) for each in expr.args[:1])
            return self._is_known(expr.func, seen)
        if isinstance(expr, ast.IfExp):
            return self._is_known(expr.body, seen) and self._is_known(expr.orelse, seen)
        if isinstance(expr, ast.BoolOp):
            return all(self._is_known(each, seen) for each in expr.values)
        if isinstance(expr, ast.Attribute):
            is_own = self.first and _is_name_of(expr.value, self.first)
            if is_own and not _has(self.owner, expr.attr):
                return False
            return self._is_known(expr.value, seen)
        if isinstance(expr, ast.Name):
            if expr.id in seen or expr.id == self.first:
                return True
            if expr.id in self.parameters:
                return False
            if expr.id in self.locals:
                values = self.assigned.get(expr.id, [])
                return bool(values) and all(self._is_known(v, {*seen, expr.id}) for v in values)
            return expr.id in self.names or hasattr(builtins, expr.id)
        return isinstance(expr, (ast.Constant, ast.Lambda, ast.Dict, ast.List, ast.Tuple))


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets of a statement, and what they are given."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    if isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    if isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if item.optional_vars is not None:
                yield item.optional_vars, item.context_expr


def _is_name_of(expr: ast.expr, name: str) -> bool:
    """Whether it is the name, or the first of the arguments that the name stands for."""
    if isinstance(expr, ast.Subscript):
        expr = expr.value
    return isinstance(expr, ast.Name) and expr.id == name
