"""What of a function's text PyTorch's compiler compiles, and what it leaves out.

It leaves out code for Python alone (``if not torch.jit.is_scripting()``), a branch on whether
something is None whose type tells the answer, and what stands behind a return
(torch/csrc/jit/frontend/ir_emitter.cpp).
"""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Iterator
from typing import Any, TypeGuard

from jit_amp import _C
from jit_amp._base.syntax_trees import parsed

# File, number of the first line, text.
Text = tuple[str, int, str]

_IS_SCRIPTING = ("torch.jit.is_scripting()", "jit.is_scripting()", "is_scripting()")


@functools.lru_cache(maxsize=4096)
def tree_of(text: Text) -> ast.AST:
    try:
        return parsed(textwrap.dedent(text[2]))
    except SyntaxError:  # of a trace it is the stack
        return ast.Module([], [])


def known_nones(text: Text, arguments: dict[str, Any]) -> frozenset[tuple[str, bool]]:
    """What the text compares with None, where its type says whether it is: the compiler leaves out
    the branch that cannot be (``emitCondExpr`` of torch/csrc/jit/frontend/ir_emitter.cpp)."""
    return frozenset(
        (ast.unparse(value), type_.kind() == "NoneType")
        for value in _compared_with_none(text)
        if (type_ := _type(value, arguments)) is not None
        if type_.kind() not in ("OptionalType", "UnionType", "AnyType")
    )


@functools.lru_cache(maxsize=4096)
def _compared_with_none(text: Text) -> tuple[ast.expr, ...]:
    """Arguments, and attributes of them, that no statement gives another value."""
    nodes = list(ast.walk(tree_of(text)))
    set_ = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    set_ |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    compared = (node.left for node in nodes if _is_none_test(node))
    return tuple(each for each in compared if set_.isdisjoint(ast.unparse(each).split(".")))


def _is_none_test(node: ast.AST) -> TypeGuard[ast.Compare]:
    return (
        isinstance(node, ast.Compare)
        and len(node.ops) == 1
        and isinstance(node.ops[0], (ast.Is, ast.IsNot))
        and isinstance(node.comparators[0], ast.Constant)
        and node.comparators[0].value is None
    )


def _type(value: ast.expr, arguments: dict[str, Any]) -> Any | None:
    if isinstance(value, ast.Name):
        return arguments.get(value.id)
    if isinstance(value, ast.Attribute):
        of = _type(value.value, arguments)
        return None if of is None else _C.attribute_type(of, value.attr)
    return None


def compiled(tree: ast.AST, nones: dict[str, bool]) -> Iterator[ast.AST]:
    """As ast.walk, without what the compiler leaves out: what is for Python alone, branches that
    cannot be, and what stands behind a return."""
    ahead = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        left_out: list[ast.stmt] = []
        taken = _taken(node, nones)
        for block in (getattr(node, "body", ()), getattr(node, "orelse", ())):
            if taken is not None and block is not taken:
                left_out += block
            elif isinstance(block, list):
                ends = [i for i, each in enumerate(block) if _exits(each, nones)]
                left_out += block[ends[0] + 1 :] if ends else ()
        ahead += [each for each in ast.iter_child_nodes(node) if each not in left_out]


def _taken(node: ast.AST, nones: dict[str, bool]) -> list[ast.stmt] | None:
    """The branch of an ``if`` that the compiler takes, if it leaves out the other."""
    known = _known(node.test, nones) if isinstance(node, ast.If) else None
    return None if known is None else node.body if known else node.orelse  # type: ignore[attr-defined]


def _exits(node: ast.stmt, nones: dict[str, bool]) -> bool:
    """Whether nothing in its block that stands behind it is run."""
    taken = _taken(node, nones)
    if taken is not None:
        return any(_exits(each, nones) for each in taken)
    return isinstance(node, (ast.Return, ast.Raise, ast.Break, ast.Continue))


def _known(test: ast.expr, nones: dict[str, bool]) -> bool | None:
    """Returns what a condition is, if the compiler knows it."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        known = _known(test.operand, nones)
        return None if known is None else not known
    if isinstance(test, ast.BoolOp):
        decides = isinstance(test.op, ast.Or)
        for each in test.values:
            known = _known(each, nones)
            if known is None or known is decides:
                return known
        return not decides
    if _is_none_test(test):
        known = nones.get(ast.unparse(test.left))
        return None if known is None else known is isinstance(test.ops[0], ast.Is)
    return True if ast.unparse(test) in _IS_SCRIPTING else None
