"""Whether a program's comparison of sizes would come out otherwise for a size of 0 or 1.

torch.export takes a free size for at least two, and answers such comparisons without a guard: the
exported program would then give a batch of one what the program gives to larger ones.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import sympy  # type: ignore[import-untyped]  # torch requires it
from torch import SymBool, SymFloat, SymInt, Tensor, sym_not
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo

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
GUARDED, UNSEEN = 1, 2  # by torch.export
# What an expression raises that has no value for some sizes: it divides by 0, takes the remainder
# of a negative number (torch/utils/_sympy/functions.py), or has another symbol in it.
NO_VALUE = (AssertionError, TypeError, ZeroDivisionError)


def depends_on_small_sizes(compare: Callable[[Any, Any], bool], a: Any, b: Any) -> int:
    """Whether the comparison's answer changes if sizes in it are 0 or 1 instead, and is the same
    for all from 2 on: 0 if not, else GUARDED, or UNSEEN if torch.export takes the sizes for larger
    and does not guard the answer.

    Args:
        compare: one of COMPARISONS.
        a, b: numbers, or lists of them; others depend on nothing.
    """
    if isinstance(a, list) and not isinstance(b, list):  # whether it is in the list
        return max((depends_on_small_sizes(operator.eq, x, b) for x in a), default=0)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = zip(a, b, strict=True)
        return max((depends_on_small_sizes(operator.eq, x, y) for x, y in pairs), default=0)
    symbolic = [x for x in (a, b) if isinstance(x, (SymInt, SymFloat))]
    if not symbolic or not all(isinstance(x, (SymInt, SymFloat, int, float)) for x in (a, b)):
        return 0
    sizes = example_sizes(symbolic[0].node.shape_env)
    expressions = [_expression(x) for x in (a, b)]
    symbols = sorted(set().union(*(each.free_symbols for each in expressions)), key=str)

    def answer(values: dict[Any, Any]) -> bool | None:
        try:
            return bool(compare(*(each.xreplace({**sizes, **values}) for each in expressions)))
        except NO_VALUE:
            return None

    now = answer({})
    steady = [
        each for each in symbols if all(answer({each: sympy.Integer(x)}) is now for x in _LARGER)
    ]
    small = (None, sympy.Integer(0), sympy.Integer(1))
    for values in itertools.product(small, repeat=len(steady[:_MOST])):
        given = {s: x for s, x in zip(steady, values, strict=False) if x is not None}
        if given and answer(given) is not now:
            answered = compare(a, b)
            otherwise = sym_not(answered)  # type: ignore[no-untyped-call]
            is_unseen = statically_known_true(answered) or statically_known_true(otherwise)
            return UNSEEN if is_unseen else GUARDED
    return 0


def asks_of_small_sizes(kind: str, operands: Iterable[Any]) -> int:
    """Whether an operator asks of sizes what is otherwise for 0 or 1, as depends_on_small_sizes.

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
        return max((depends_on_small_sizes(operator.lt, x, y) for x, y in pairs), default=0)
    values = [(x, hint(x)) for x in given if isinstance(x, (SymInt, SymFloat))]
    asked = (depends_on_small_sizes(operator.eq, x, y) for x, y in values if y is not None)
    return max(asked, default=0)


def example_sizes(env: Any) -> Any:
    """By symbol, what each free size was in the example, its hint: torch.export's own dictionary.

    Args:
        env: its ShapeEnv.
    """
    name = "backed_var_to_val" if hasattr(env, "backed_var_to_val") else "var_to_val"  # 2.11
    return getattr(env, name)


def env_of(given: Any) -> Any:
    """torch.export's ShapeEnv; None where no size is free.

    Args:
        given: the arguments that it traces with.
    """
    tensors = (x for x in pytree.tree_leaves(given) if isinstance(x, Tensor))
    sizes: Iterable[Any] = itertools.chain(*(x.shape for x in tensors))
    return next((size.node.shape_env for size in sizes if isinstance(size, SymInt)), None)


def holds(guard: Any, sizes: Mapping[Any, Any]) -> bool:
    """Whether an expression that torch.export guards is true for sizes, by symbol."""
    try:
        return bool(guard.xreplace(sizes) == sympy.true)
    except NO_VALUE:
        return False


def refuses_one(guard: Any) -> bool:
    """Whether an expression that torch.export guards is for sizes from 2 on."""
    if len(guard.free_symbols) != 1:
        return False
    [symbol] = guard.free_symbols

    def takes(size: int) -> bool:
        return holds(guard, {symbol: sympy.Integer(size)})

    return not takes(1) and all(map(takes, _LARGER))


def know_as_large(given: Any) -> None:
    """Tells torch.export that free sizes are at least two, where they are in the example. It does
    not guard that.

    Args:
        given: the arguments that it traces with.
    """
    env = env_of(given)
    if env is None:
        return
    for symbol, size in example_sizes(env).items():
        if size >= 2:
            env.constrain_symbol_range(symbol, 2, int_oo)
    env.guards[:] = [guard for guard in env.guards if not refuses_one(guard.expr)]


def told(x: Any) -> Any:
    """A number as a message tells it: what it was in the example, or the expression of it."""
    is_unknown = x is not None and hint(x) is None
    return str(x) if is_unknown else hint(x)


def hint(x: Any, instead: Mapping[Any, int] = MappingProxyType({})) -> Any:
    """What it was in the example; None where only a run tells.

    Args:
        instead: by expression, what else that is.
    """
    if not isinstance(x, (SymInt, SymFloat, SymBool)):
        return x
    if not instead:
        return x.node._hint
    sizes = {**example_sizes(x.node.shape_env), **instead}
    value = sympy.sympify(x.node.expr.xreplace(sizes))
    return None if value.free_symbols else x.node.pytype(value)


def _expression(x: Any) -> Any:
    return x.node.expr if isinstance(x, (SymInt, SymFloat)) else sympy.sympify(x)
