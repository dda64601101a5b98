"""Writes an exported program so that it can be saved.

``torch.export.save`` knows only some of Python's functions of numbers (``_SYM_OPS`` in
torch/_export/serde/serialize.py): not ``math.floor``, ``math.ceil`` and ``abs``. Here they are
expressed by functions that it knows. That is done at the end, as it makes the expressions of sizes
longer, and torch.export reasons about them for longer.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import SymInt, fx
from torch.export import ExportedProgram

from jit_amp._export.program.parts import parts_of

_torch: Any = torch  # its functions for symbols have no types
_OF_A_VALUE = {"val", "tensor_meta", "unbacked_bindings"}


def make_savable(exported: ExportedProgram) -> None:
    """Makes a program savable, in place."""
    for part in parts_of(exported):
        for node in list(part.graph.nodes):
            write = _WRITTEN.get(node.target) if node.op == "call_function" else None
            if write is None or not isinstance(x := node.args[0], fx.Node):
                continue
            is_int = isinstance(x.meta["val"], (int, SymInt))
            if is_int and node.target in (math.floor, math.ceil):
                made = x
            else:
                with part.graph.inserting_before(node):
                    made = write(_Writer(part.graph, node), x)
                made.meta["val"] = node.meta["val"]
            node.replace_all_uses_with(made)
            if part is exported.graph_module:
                exported.graph_signature.replace_all_uses(node.name, made.name)
            part.graph.erase_node(node)
        part.recompile()


class _Writer:
    """Adds nodes to the graph in place of one that is removed."""

    def __init__(self, graph: fx.Graph, instead_of: fx.Node) -> None:
        self._graph = graph
        self._meta = {k: v for k, v in instead_of.meta.items() if k not in _OF_A_VALUE}

    def __call__(self, function: Callable[..., Any], *args: Any) -> fx.Node:
        made = self._graph.call_function(function, args)
        values = [x.meta["val"] if isinstance(x, fx.Node) else x for x in args]
        made.meta.update(self._meta, val=function(*values))
        return made


def _floor(write: _Writer, x: fx.Node) -> fx.Node:
    whole = write(math.trunc, x)
    is_above = write(operator.gt, write(_torch.sym_float, whole), x)
    return write(operator.sub, whole, write(_torch.sym_ite, is_above, 1, 0))


def _ceil(write: _Writer, x: fx.Node) -> fx.Node:
    whole = write(math.trunc, x)
    is_below = write(operator.lt, write(_torch.sym_float, whole), x)
    return write(operator.add, whole, write(_torch.sym_ite, is_below, 1, 0))


def _abs(write: _Writer, x: fx.Node) -> fx.Node:
    larger = write(_torch.sym_max, x, write(operator.neg, x))
    is_int = isinstance(x.meta["val"], (int, SymInt))
    return larger if is_int else write(operator.add, larger, 0.0)  # -0.0 becomes 0.0


_WRITTEN: dict[Any, Callable[[_Writer, fx.Node], fx.Node]] = {
    math.floor: _floor,
    math.ceil: _ceil,
    abs: _abs,
    operator.abs: _abs,
}
