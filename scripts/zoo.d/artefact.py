"""What is in a frozen graph, how near what it gives is to eager's, and eager's dtypes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from jit_amp._base.trees import leaves


def same(actual: Tensor, expected: Tensor) -> bool:
    both_nan = (actual != actual) & (expected != expected)
    return bool(((actual == expected) | both_nan).all())


def distance(a: Tensor, b: Tensor) -> float:
    """The largest difference, in parts of the largest number; NaNs in both at the same place, or
    the same infinity, are no difference."""
    if not a.numel():
        return 0.0
    a, b = a.double(), b.double()
    difference = (a - b).abs().masked_fill((a == b) | ((a != a) & (b != b)), 0)
    size = b.abs()[b.isfinite()]
    return float(difference.max() / max(float(size.max()) if size.numel() else 0.0, 1e-30))


def within_rounding(actual: Tensor, eagers: Tensor, precise: Tensor) -> bool:
    """Whether a folded result is as near to the float32 one as eager autocast's.

    A cast to bfloat16, of 8 significant bits, moves a number by up to 2**-9 of its size. How many
    of these add up, and how much later layers make of them, is the model's: what eager's own casts
    add up to is its distance from float32. Folding rounds as often, but other numbers (the product
    of two weights, and not one of them), so its distance is of the same size, not the same. The
    largest of few varies by more than their mean: four times eager's, and four roundings more.
    """
    return distance(actual, precise) <= 4 * distance(eagers, precise) + 2**-7


class Dtypes(TorchDispatchMode):
    """The dtypes that the results of eager's operators have."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: defaultdict[str, set[torch.dtype]] = defaultdict(set)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        dtypes = {each.dtype for _, each in leaves(result) if isinstance(each, Tensor)}
        self.seen[func.name()] |= dtypes
        return result


def casts_at_run_time(graph: torch._C.Graph) -> int:
    """How many branches are left whose condition asks for a dtype, or is known and not resolved.

    Checks of a call's inputs, which raise, and their conditions are not counted.
    """
    return sum(
        node.kind() == "prim::If"
        and not _is_a_condition(node)
        and _is_about_dtypes(node.input())
        and not any(inner.kind() == "prim::RaiseException" for inner in _inside(node))
        for node in nodes(graph)
    )


def _is_a_condition(node: torch._C.Node) -> bool:
    """Or a text, of an error."""
    results = list(node.outputs())
    plain = (torch.BoolType, torch.StringType)
    return bool(results) and all(isinstance(r.type(), plain) for r in results)


def _is_about_dtypes(condition: torch._C.Value) -> bool:
    waiting, seen = [condition], set()
    is_known = True
    while waiting:
        value = waiting.pop()
        if value.debugName() in seen:
            continue
        seen.add(value.debugName())
        node = value.node()
        if node.kind() in ("prim::dtype", "aten::is_floating_point", "aten::is_complex"):
            return True
        for given in node.inputs():
            if isinstance(given.type(), (torch.TensorType, torch.ListType)):
                is_known = False  # a list may be written to
            else:
                waiting.append(given)
        for block in node.blocks():
            waiting.extend(block.outputs())
        is_known = is_known and node.kind() not in ("prim::Param", "aten::is_grad_enabled")
    return is_known


def _inside(node: torch._C.Node) -> Iterator[torch._C.Node]:
    for block in node.blocks():
        yield from nodes(block)


def held_twice(graph: torch._C.Graph) -> list[tuple[int, ...]]:
    """Shapes of the float32 weights of two and more dimensions that are there in bfloat16 too."""
    held: dict[tuple[int, ...], list[Tensor]] = {}
    for node in nodes(graph):
        if node.kind() == "prim::Constant":
            for _, value in leaves(node.output().toIValue()):
                if isinstance(value, Tensor) and value.dim() >= 2:
                    held.setdefault(tuple(value.shape), []).append(value)
    return [
        shape
        for shape, tensors in held.items()
        for wide in tensors
        if wide.dtype is torch.float32
        and any(t.dtype is torch.bfloat16 and torch.equal(t, wide.bfloat16()) for t in tensors)
    ]


def nodes(block: Any) -> Iterator[torch._C.Node]:
    """All nodes of a graph, those in blocks too."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes(inner)
