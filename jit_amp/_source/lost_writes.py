"""Writes that PyTorch's compiler drops before anybody sees the graph.

``z = y.type_as(x)`` may be ``y`` itself, and the operator's schema says that it is a new tensor. So
TorchScript takes ``z += 1`` for a write that nobody reads, where ``z`` is not used later
(torch/csrc/jit/passes/dead_code_elimination.cpp, which constant propagation runs when a function is
compiled). What it leaves jit_amp sees to (csrc/passes/quirks/operators/tell_aliases.h); what it
drops is found here, in the source, so that it can be refused.

So it takes a write to the tensors of a list, ``torch._foreach_add_([y], 1)``, where nobody reads
the list. The same becomes of ``mask[0] &= other``: of ``&=``, ``|=``, ``^=`` and ``**=`` the
compiler makes an operator that gives a new tensor, which nobody reads where the target is a part of
a tensor; nor where it is a name that is not used later, though the tensor has another name,
``z = mask; z &= y``.
"""

from __future__ import annotations

import ast
import collections
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch.jit import ScriptFunction, _state

from jit_amp import _C
from jit_amp._source.compiled_source import Text, compiled, known_nones, tree_of

# Operators that may return their operand, or share its memory, and whose schemas do not say so.
_MAY_RETURN_AN_OPERAND = {row[0] for row in _C.operator_traits() if row[2] == "maybe_operand"}
# Attributes of a tensor that share its memory; others, as `shape`, are no tensors.
_VIEWS = {"H", "T", "data", "imag", "mH", "mT", "real"}

_TENSORS = str(torch._C.ListType(torch._C.TensorType.get()))
_NUMBERS = ("int", "float", "bool", "complex")
_IS_TENSOR = ("Tensor", "torch.Tensor")
# Operators of which the compiler makes ones that give a new tensor.
_ANEW = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Pow)


class Suspect(NamedTuple):
    """A Python function with a write that may be dropped, and all that it does with it."""

    name: str  # and that of its class
    text: Text


class Write(NamedTuple):
    """A statement that writes to what may be another tensor too."""

    line: int
    text: str
    of: int  # how many writes of its kind the line has,
    places: int  # and how many statements and calls make them
    makes_anew: bool  # by an operator that gives a new tensor, to a name


def refuse(scripted: Any, suspects: Sequence[Suspect], is_wrapped: bool) -> None:
    """Refuses what has scopes, or gets one around it, and writes that PyTorch has dropped: of
    the texts that its functions were compiled from, or of ``suspects``, which show none."""
    made = scripted if isinstance(scripted, ScriptFunction) else scripted._c
    if not (is_wrapped or _C.has_scopes(made)):
        return
    classes = _python_classes(scripted)
    unseen = {suspect.text[:2]: suspect for suspect in suspects}
    for function in _C.compiled_functions(made):
        texts = function.texts or set(_texts_of_all_dropped(function, suspects, classes))
        for text in sorted(texts):
            unseen.pop(text[:2], None)
            if not _may_have(text[2]):
                continue
            for write in _suspected(text, known_nones(text, function.arguments)):
                kept = function.anew if write.makes_anew else function.writes
                spans = kept.get((text[0], write.line), [])
                # there are more where the compiler unrolls a loop
                if len(set(spans)) < write.places or len(spans) % write.of:
                    _refuse(text, write)
    for suspect in unseen.values():
        _refuse(suspect.text, _suspected(suspect.text)[0])


def _refuse(text: Text, write: Write) -> NoReturn:
    _C.refuse(210, [f'  File "{text[0]}", line {write.line}\n    {write.text}'])


def suspected(function: Callable[..., Any], text: Text) -> tuple[Suspect, ...]:
    """A Python function, with its text, if it has writes that PyTorch's compiler may drop."""
    name = function.__qualname__.rpartition("<locals>.")[2]
    return (Suspect(name, text),) if _suspected(text) else ()


def _text_of(function: Any) -> list[Text]:
    try:
        lines, first = inspect.getsourcelines(function)
        return [(inspect.getsourcefile(function) or "", first, "".join(lines))]
    except (OSError, TypeError):  # the compiler says what is wrong with it
        return []


def _python_classes(scripted: Any) -> dict[str, type]:
    """The Python classes of modules that PyTorch has compiled, by the names of their types."""
    modules: Iterable[Any] = scripted.modules() if isinstance(scripted, torch.nn.Module) else ()
    known = ((each, getattr(each, "_concrete_type", None)) for each in modules)
    return {m._c.qualified_name: concrete.py_class for m, concrete in known if concrete is not None}


def _texts_of_all_dropped(
    function: _C.CompiledFunction, suspects: Sequence[Suspect], classes: dict[str, type]
) -> Iterator[Text]:
    """The text of a function that no node is left of: it has just been compiled, or PyTorch knows
    from which function of Python it was (torch/jit/_state.py)."""
    owner, _, name = function.qualified_name.rpartition(".")
    in_python = f"{owner.rpartition('.')[2]}.{name}" if "self" in function.arguments else name
    yield from (each.text for each in suspects if each.name == in_python)
    cls = classes.get(owner) or _state._get_python_class(owner)  # type: ignore[no-untyped-call]
    if cls is not None:
        accessor = re.fullmatch(r"__(.+)_(?:g|s)etter", name)
        member = inspect.getattr_static(cls, accessor[1] if accessor else name, None)
        if isinstance(member, property):
            member = member.fset if name.endswith("_setter") else member.fget
        yield from _text_of(getattr(member, "__func__", member))
    else:
        functions = list(_state._jit_caching_layer.items())
        yield from (
            text
            for python, qualified_name in functions
            if qualified_name == function.qualified_name
            for text in _text_of(python)
        )


@functools.lru_cache(maxsize=4096)
def _suspected(text: Text, nones: frozenset[tuple[str, bool]] = frozenset()) -> tuple[Write, ...]:
    """The writes that may be dropped. ``nones``: what is known to be None, or not to be."""
    if not _may_have(text[2]):
        return ()
    tree, lines = tree_of(text), text[2].split("\n")
    nodes = list(compiled(tree, dict(nones)))
    aliases: set[str] = set()
    assigned = [pair for node in nodes for pair in _assigned(node)]
    for _ in assigned:  # in any order: a name that is one anywhere is one
        more = {name.id for t, value in assigned if _is_alias(value, aliases) for name in _names(t)}
        if more <= aliases:
            break
        aliases |= more
    numbers = _numbers(nodes, assigned)

    def is_suspect(target: ast.expr, makes_anew: bool) -> bool:
        if makes_anew:  # an element of a list or a dictionary is set nevertheless
            return isinstance(target, (ast.Name, ast.Subscript))
        return isinstance(target, ast.List) or _is_alias(target, aliases)

    found: list[tuple[int, bool, bool]] = []
    places: set[tuple[int, bool, int]] = set()
    for node in nodes:
        makes_anew = _makes_anew(node)
        for line, targets in _written(node):
            to_a_name = makes_anew and isinstance(targets[0], ast.Name)
            is_lost = any(is_suspect(each, makes_anew) for each in targets)
            if not any(_name(each) in numbers for each in targets):
                found.append((line, to_a_name, is_lost))
                places.add((line, to_a_name, id(node)))
    of = collections.Counter(each[:2] for each in found)
    of_places = collections.Counter(each[:2] for each in places)
    return tuple(
        Write(
            text[1] + line - 1,
            lines[line - 1].strip(),
            of[line, to_a_name],
            of_places[line, to_a_name],
            to_a_name,
        )
        for line, to_a_name, is_lost in found
        if is_lost
    )


_ANEW_IN_TEXT = re.compile(r"[&|^]=|\*\*=")
_CALLED_IN_TEXT = re.compile(r"\b(\w+)[\s\\]*\(")


def _may_have(text: str) -> bool:
    """Whether a text may have such a write: it calls an operator whose result may be an operand, or
    one that writes to the tensors of a list, or has a statement that makes a new tensor. Most have
    none of these, and are not parsed for it."""
    return bool(_ANEW_IN_TEXT.search(text)) or any(
        name in _MAY_RETURN_AN_OPERAND or any(is_list for *_, is_list in _writes_to(name))
        for name in set(_CALLED_IN_TEXT.findall(text))
    )


def _name(value: ast.expr) -> str:
    return value.id if isinstance(value, ast.Name) else ""


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else _name(call.func)


def _makes_anew(node: ast.AST) -> bool:
    return isinstance(node, ast.AugAssign) and isinstance(node.op, _ANEW)


def _numbers(nodes: list[ast.AST], assigned: list[tuple[ast.expr, ast.expr]]) -> set[str]:
    """Names that are given numbers alone: constants, sizes, and what is computed of them."""
    values: dict[str, list[ast.expr]] = {}
    for target, value in assigned:
        for name in _names(target):
            values.setdefault(name.id, []).append(value)
    types = {
        node.arg: ast.unparse(node.annotation) if node.annotation else ""
        for node in nodes
        if isinstance(node, ast.arg)
    }
    of_parameters = {name for name, type_ in types.items() if type_ in _NUMBERS}
    tensors = {name for name, type_ in types.items() if type_ in _IS_TENSOR}
    numbers: set[str] = set()
    for _ in range(len(values) + 1):
        more = {
            name
            for name, given in values.items()
            if all(_is_number(each, numbers, tensors) for each in given)
        }
        more = (more | (of_parameters - values.keys())) - (types.keys() - of_parameters)
        if more == numbers:
            break
        numbers = more
    return numbers


def _is_number(value: ast.expr, numbers: set[str], tensors: set[str]) -> bool:
    if isinstance(value, ast.Constant):
        return True
    if isinstance(value, ast.Name):
        return value.id in numbers
    if isinstance(value, ast.Attribute):  # of an object it may be anything
        return value.attr in ("shape", "ndim") and _name(value.value) in tensors
    if isinstance(value, ast.Subscript):
        return isinstance(value.value, ast.Attribute) and _is_number(value.value, numbers, tensors)
    if isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute):
            is_size = value.func.attr in ("size", "dim", "numel", "item")
            return is_size and _name(value.func.value) in tensors
        return _name(value.func) in (*_NUMBERS, "len", "round", "range")
    operands = [each for each in ast.iter_child_nodes(value) if isinstance(each, ast.expr)]
    is_operator = isinstance(value, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp))
    return is_operator and all(_is_number(each, numbers, tensors) for each in operands)


def _assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """What a statement gives a name to, and what it takes that from."""
    if isinstance(node, ast.Assign):
        return [(target, node.value) for target in node.targets]
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return [(node.target, node.value)]
    if isinstance(node, ast.For):
        return [(node.target, node.iter)]
    return []


def _names(target: ast.expr) -> Iterator[ast.Name]:
    return (each for each in _single(target) if isinstance(each, ast.Name))


def _single(target: ast.expr) -> Iterator[ast.expr]:
    """What a target assigns to: several, if it unpacks."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _single(each)
    else:
        yield target


def _is_alias(value: ast.expr, aliases: set[str]) -> bool:
    """Whether it is such a result: by name, the call itself, or a part or view of one; or has or
    may be one."""
    if isinstance(value, ast.Name):
        return value.id in aliases
    if isinstance(value, ast.Call):
        name = _called(value)
        if name in _MAY_RETURN_AN_OPERAND:
            return True
        return any(
            _may_share_memory(name, is_method) and _is_alias(operand, aliases)
            for operand, is_method in _operands(value)
        )
    if isinstance(value, ast.Attribute):
        return value.attr in _VIEWS and _is_alias(value.value, aliases)
    if isinstance(value, (ast.Tuple, ast.List)):
        return any(_is_alias(each, aliases) for each in value.elts)
    if isinstance(value, ast.Dict):
        return any(_is_alias(each, aliases) for each in value.values)
    if isinstance(value, ast.IfExp):
        return _is_alias(value.body, aliases) or _is_alias(value.orelse, aliases)
    return isinstance(value, ast.Subscript) and _is_alias(value.value, aliases)


def _operands(call: ast.Call) -> Iterator[tuple[ast.expr, bool]]:
    """What an operator may be of, and whether as its method: the object that it is a method of, or,
    as of ``torch.reshape``, its first argument, which may be named."""
    if isinstance(call.func, ast.Attribute):
        yield call.func.value, True
    named = [each.value for each in call.keywords if each.arg in ("input", "self")]
    for operand in call.args[:1] or named:
        yield operand, False


@functools.cache
def _schemas(name: str) -> list[Any]:
    schemas: list[Any] = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    return schemas


@functools.cache
def _may_share_memory(name: str, is_method: bool) -> bool:
    """Whether what an operator of a tensor returns may be a view of it, as its schemas say. What
    TorchScript has none of, as a method such as ``float``, may return the tensor itself."""
    known = [each for each in _schemas(name) if not any(a.is_out for a in each.arguments)]
    is_view = any(result.alias_info for each in known for result in each.returns)
    return is_view if _schemas(name) else is_method and name != "tolist"


@functools.cache
def _writes_to(name: str) -> frozenset[tuple[int | None, str, bool]]:
    """The arguments that an operator writes to, as its schemas say: position, if it has one, name,
    and whether it is a list of tensors."""
    return frozenset(
        (None if argument.is_out else position, argument.name, str(argument.type) == _TENSORS)
        for schema in _schemas(name)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
        if argument.is_out or name.endswith("_") or str(argument.type) == "Tensor"
    )


def _written(node: ast.AST) -> Iterator[tuple[int, list[ast.expr]]]:
    """The writes of a statement or a call: the line at which the compiler's graph has each, and
    what it may be to."""
    if isinstance(node, ast.AugAssign):
        yield node.lineno, [node.target]
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            line = node.lineno if isinstance(target, ast.Subscript) else node.value.lineno
            yield from ((line, [part]) for part in _subscripts(target))
    elif isinstance(node, ast.For):
        yield from ((node.lineno, [part]) for part in _subscripts(node.target))
    elif isinstance(node, ast.Call):
        object_ = node.func.value if isinstance(node.func, ast.Attribute) else None
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        targets = []
        for position, name, is_list in _writes_to(_called(node)):
            given = [named.get(name), named.get("input") if name == "self" else None]
            if position is not None:  # of a function, or of a method
                given += [*node.args[position:][:1], *[object_, *node.args][position:][:1]]
            targets += [ast.List([x]) if is_list else x for x in given if x is not None]
        if targets:
            yield node.lineno, targets


def _subscripts(target: ast.expr) -> Iterator[ast.expr]:
    """The parts of tensors that an assignment writes to."""
    return (each for each in _single(target) if isinstance(each, ast.Subscript))
