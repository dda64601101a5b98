"""Whether a program's comparison of sizes would come out otherwise for a size of 0 or 1.

torch.export takes a free size for at least two, and answers such comparisons without a guard: the
exported program would then give a batch of one what the program gives to larger ones.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import sympy  # type: ignore[import-untyped]  # torch requires it
import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch.utils import _pytree as pytree

from jit_amp._graph_steps import Step
from jit_amp._graph_values import TooLong
from jit_amp._meanings import for_real

# A list, and what may be in it, come in this order.
_FINDS = ("aten::__contains__", "aten::index", "aten::count")

_LARGER = (2, 3, 4, 5, 7, 8, 16, 31, 64, 1000, 4096)

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
} | dict.fromkeys(_FINDS, operator.eq)


# Operators that ask what a number is, as a place in a list, a key or in a text; and others that
# compare sizes.
_NUMBERS = frozenset(
    f"aten::{name}"
    for name in (
        "__getitem__", "_set_item", "Delete", "insert", "pop", "get", "str", "format",
        "percentFormat",
    )
)  # fmt: skip
QUESTIONS = _NUMBERS | {"aten::is_same_size", "aten::sort", "aten::sorted"}
_MOST = 4  # sizes in a comparison that are varied together


def depends_on_small_sizes(compare: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    """Whether the comparison's answer changes if sizes in it are 0 or 1 instead, and is the same
    for all from 2 on. Where it is not, torch.export itself guards what it was.

    Args:
        compare: one of COMPARISONS.
        a, b: numbers, or lists of them; others depend on nothing.
    """
    if isinstance(a, list) and not isinstance(b, list):  # whether it is in the list
        return any(depends_on_small_sizes(operator.eq, x, b) for x in a)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return any(depends_on_small_sizes(operator.eq, x, y) for x, y in zip(a, b, strict=True))
    symbolic = [x for x in (a, b) if isinstance(x, (SymInt, SymFloat))]
    if not symbolic or not all(isinstance(x, (SymInt, SymFloat, int, float)) for x in (a, b)):
        return False
    sizes = example_sizes(symbolic[0])
    expressions = [_expression(x) for x in (a, b)]
    symbols = sorted(set().union(*(each.free_symbols for each in expressions)), key=str)

    def answer(values: dict[Any, Any]) -> bool | None:
        try:
            return bool(compare(*(each.xreplace({**sizes, **values}) for each in expressions)))
        except (TypeError, ZeroDivisionError):  # of a symbol without a value; of a division by it
            return None

    now = answer({})
    steady = [
        each for each in symbols if all(answer({each: sympy.Integer(x)}) is now for x in _LARGER)
    ]
    small = (None, sympy.Integer(0), sympy.Integer(1))
    for values in itertools.product(small, repeat=len(steady[:_MOST])):
        given = {s: x for s, x in zip(steady, values, strict=False) if x is not None}
        if given and answer(given) is not now:
            return True
    return False


def asks_of_small_sizes(kind: str, operands: Iterable[Any]) -> bool:
    """Whether an operator asks of sizes what is otherwise for 0 or 1.

    Args:
        kind: one of QUESTIONS.
        operands: what it is given.
    """
    given = list(operands)
    if kind == "aten::is_same_size":
        x, y = (list(each.shape) for each in given)
        return depends_on_small_sizes(operator.eq, x, y)
    if kind in ("aten::sort", "aten::sorted") and isinstance(given[0], list):
        pairs = itertools.permutations(given[0], 2)
        return any(depends_on_small_sizes(operator.lt, x, y) for x, y in pairs)
    values = [(x, _hint(x)) for x in given if isinstance(x, (SymInt, SymFloat))]
    return any(depends_on_small_sizes(operator.eq, x, y) for x, y in values if y is not None)


def example_sizes(of: Any) -> Any:
    """By symbol, what each free size was in the example, its hint: torch.export's own dictionary.

    Args:
        of: a SymInt, SymFloat or SymBool of the program.
    """
    known: Any = of.node.shape_env
    name = "backed_var_to_val" if hasattr(known, "backed_var_to_val") else "var_to_val"  # 2.11
    return getattr(known, name)


def check_rank(step: Step, operands: list[Any], made: Any) -> None:
    """Raises TooLong where a size of 1 in the example gives an operator's result fewer dimensions,
    as ``squeeze`` does, and torch.export has not looked at it."""
    if not isinstance(made, Tensor) or not step.node.kind().startswith("aten::"):
        return
    tensors = (x for x in pytree.tree_leaves(operands) if isinstance(x, Tensor))
    if not any(isinstance(size, SymInt) and _hint(size) == 1 for x in tensors for size in x.shape):
        return
    try:
        with for_real():
            rank = step.run({}, *pytree.tree_map(_without_symbols, operands)).dim()
    except Exception:  # of any class: of values, which these tensors do not have
        return
    if rank != made.dim():
        raise TooLong("an operator does something else for a size of 1")


def _without_symbols(x: Any) -> Any:
    """With the example's sizes, and no memory."""
    if isinstance(x, Tensor):
        return torch.empty([_hint(size) for size in x.shape], dtype=x.dtype, device="meta")
    return _hint(x)


def told(x: Any) -> Any:
    """A number as a message tells it: what it was in the example, or the expression of it."""
    is_unknown = x is not None and _hint(x) is None
    return str(x) if is_unknown else _hint(x)


def _hint(x: Any) -> Any:
    """What it was in the example; None where only a run tells."""
    return x.node._hint if isinstance(x, (SymInt, SymFloat, SymBool)) else x


def _expression(x: Any) -> Any:
    return x.node.expr if isinstance(x, (SymInt, SymFloat)) else sympy.sympify(x)
