"""Whether a program's comparison of sizes would come out otherwise for a size of 0 or 1.

torch.export takes a free size for at least two, and answers such comparisons without a guard: the
exported program would then give a batch of one what the program gives to larger ones.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import sympy  # type: ignore[import-untyped]  # torch requires it
from torch import SymInt

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


def depends_on_small_sizes(compare: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    """Whether the comparison's answer changes if one of the sizes in it is 0 or 1 instead, and is
    the same for all from 2 on. Where it is not, torch.export itself guards what it was.

    Args:
        compare: one of COMPARISONS.
        a, b: numbers, or lists; others depend on nothing.
    """
    if isinstance(a, list) and not isinstance(b, list):  # whether it is in the list
        return any(depends_on_small_sizes(operator.eq, x, b) for x in a)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return any(depends_on_small_sizes(operator.eq, x, y) for x, y in zip(a, b, strict=True))
    symbolic = [x for x in (a, b) if isinstance(x, SymInt)]
    if not symbolic or not all(isinstance(x, (SymInt, int, float)) for x in (a, b)):
        return False
    known: Any = symbolic[0].node.shape_env
    sizes = dict(getattr(known, "backed_var_to_val", None) or known.var_to_val)  # 2.11 has this
    expressions = [x.node.expr if isinstance(x, SymInt) else sympy.sympify(x) for x in (a, b)]
    symbols = set().union(*(each.free_symbols for each in expressions))

    def answer(values: dict[Any, Any]) -> bool | None:
        try:
            return bool(compare(*(each.xreplace(values) for each in expressions)))
        except (TypeError, ZeroDivisionError):  # of a symbol without a value; of a division by it
            return None

    def changes(symbol: Any, values: tuple[int, ...]) -> bool:
        return any(answer({**sizes, symbol: sympy.Integer(x)}) is not now for x in values)

    now = answer(sizes)
    return any(changes(each, (0, 1)) and not changes(each, _LARGER) for each in symbols)
