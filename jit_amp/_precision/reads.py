"""What a statement reads, and which of it is in the reduced dtype when it runs.

`tune` looks while the model runs under autocast; `Precision.to_code` writes casts at what was
found. No code of the user's is run: what only a property or a method of theirs could tell is
`hidden`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from jit_amp._base.syntax_trees import parsed
from jit_amp._precision import in_float32

# What is asked of a tensor without computing with it.
_ABOUT = {"dtype", "device", "shape", "ndim", "layout", "requires_grad", "is_cuda", "grad_fn"}


@dataclass
class Read:
    """Expressions, as `ast.unparse` writes them."""

    reduced: dict[str, None] = field(default_factory=dict)  # tensors in the reduced dtype
    hidden: dict[str, None] = field(default_factory=dict)  # what may hold such, and is no tensor
    times: int = 0  # that it was looked at


@functools.cache
def _tree(path: str) -> ast.AST:
    return parsed("".join(linecache.getlines(path)))


@functools.cache
def _statement_of(path: str, line: int) -> ast.stmt | None:
    return statement_at(_tree(path), line)


def forget() -> None:
    """Forgets the files that were read: they may change from run to run."""
    _tree.cache_clear()
    _statement_of.cache_clear()


def statement_at(tree: ast.AST, line: int) -> ast.stmt | None:
    """Returns the innermost statement of a line."""
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(found, key=lambda node: (node.lineno, node.col_offset), default=None)


def note(read: Read, frame: types.FrameType) -> None:
    """Adds what the statement that runs in the frame reads now."""
    try:
        statement = _statement_of(frame.f_code.co_filename, frame.f_lineno)
    except SyntaxError:  # the file is no Python: a notebook's, or changed since
        return
    for chain, may_hold in chains(statement) if statement else ():
        value: Any = None
        for node in chain:
            value = _value(node, value, frame)
            if value is _UNBOUND:
                break
            if value is _HIDDEN:
                if may_hold:
                    read.hidden[ast.unparse(chain[-1])] = None
                break
            if isinstance(value, Tensor):
                if value.dtype in in_float32.REDUCED:
                    read.reduced[ast.unparse(node)] = None
                break
        else:
            if may_hold and in_float32.widened(value) is not value:
                read.hidden[ast.unparse(chain[-1])] = None


def chains(statement: ast.stmt) -> list[tuple[list[ast.expr], bool]]:
    """What the statement reads, without the statements in it: of `self.h.t` the expressions `self`,
    `self.h` and `self.h.t`; and whether all that the last one holds is read."""
    found = _Chains()
    found.generic_visit(statement)
    return found.found


def casts(statement: ast.stmt, reduced: set[str]) -> Iterator[tuple[int, int]]:
    """Line and column after which a cast belongs: the ends of these expressions."""
    for chain, _ in chains(statement):
        for node, after in zip(chain, [*chain[1:], None], strict=True):
            if ast.unparse(node) in reduced:
                if not (isinstance(after, ast.Attribute) and after.attr in _ABOUT):
                    yield node.end_lineno or 0, node.end_col_offset or 0
                break


class _Chains(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[tuple[list[ast.expr], bool]] = []

    def generic_visit(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.stmt):
                self.visit(child)

    def _chain(self, node: Any, may_hold: bool = True, reads: bool = True) -> None:
        chain, at = [node], node
        while isinstance(at, (ast.Attribute, ast.Subscript)):
            if isinstance(at, ast.Subscript):
                self.visit(at.slice)
            at = at.value
            chain.append(at)
        if not isinstance(at, ast.Name):
            self.visit(at)
        elif reads and isinstance(node.ctx, ast.Load):
            self.found.append((chain[::-1], may_hold))

    def visit_Name(self, node: ast.Name) -> None:
        self._chain(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._chain(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._chain(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and writes(node.func.attr):
            self._chain(node.func, reads=False)
        else:
            self.visit(node.func)
        for each in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self.visit(each)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        is_chain = isinstance(node.iter, (ast.Name, ast.Attribute, ast.Subscript))
        self._chain(node.iter, may_hold=False) if is_chain else self.visit(node.iter)
        for each in node.ifs:
            self.visit(each)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Before Python 3.12 there are no places in it."""


def writes(name: str) -> bool:
    """Whether a method of tensors has the name of one that writes in place."""
    return name.endswith("_") and not name.endswith("__")


_UNBOUND, _HIDDEN = object(), object()
_ITEMS: tuple[Any, ...] = (list.__getitem__, tuple.__getitem__, dict.__getitem__)


def _value(node: ast.expr, base: Any, frame: types.FrameType) -> Any:
    """The value of the last expression of a chain; `base` is that of the one before."""
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals, frame.f_builtins):
            if node.id in names:
                return names[node.id]
        return _UNBOUND
    if isinstance(node, ast.Attribute):
        return _attribute(base, node.attr)
    assert isinstance(node, ast.Subscript)
    if isinstance(base, nn.Module):
        return None  # what it holds are modules
    if getattr(type(base), "__getitem__", None) not in _ITEMS:
        return _HIDDEN
    try:
        return base[_index(node.slice, frame)]
    except (LookupError, TypeError, ValueError):
        return _HIDDEN


def _attribute(base: Any, name: str) -> Any:
    if isinstance(base, nn.Module):
        for names in (base._parameters, base._buffers, base._modules):
            if name in names:
                return names[name]
    if isinstance(base, tuple) and name in getattr(base, "_fields", ()):
        return getattr(base, name)
    try:
        found = inspect.getattr_static(base, name)
    except AttributeError:
        return _HIDDEN
    if isinstance(found, types.MemberDescriptorType):  # of __slots__
        return getattr(base, name, None)
    is_computed = hasattr(type(found), "__set__") or isinstance(found, functools.cached_property)
    return _HIDDEN if is_computed else found


def _index(node: ast.expr, frame: types.FrameType) -> Any:
    """An index that is a constant, or the name of a number or a text."""
    if isinstance(node, ast.Name):
        found = frame.f_locals.get(node.id)
        if not isinstance(found, (int, str)):
            raise ValueError(node.id)
        return found
    return ast.literal_eval(node)
