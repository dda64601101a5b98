"""What numbers are computed by in an exported program, so that it can be saved.

``torch.export.save`` knows some of Python's functions of numbers alone (``_SYM_OPS`` in
torch/_export/serde/serialize.py), and not ``math.floor``, ``math.ceil`` and ``abs``. They are said
by those that it knows, when the program is done: while it is made, the expressions of sizes stay
short.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

_torch: Any = torch  # its functions for symbols have no types


def make_savable(exported: ExportedProgram) -> None:
    parts = exported.graph_module.modules()
    for part in (each for each in parts if isinstance(each, fx.GraphModule)):
        for node in list(part.graph.nodes):
            if node.op == "call_function" and (say := _SAID.get(node.target)):
                with part.graph.inserting_before(node):
                    said = say(part.graph, node.args[0])
                said.meta.update(node.meta)
                node.replace_all_uses_with(said)
                part.graph.erase_node(node)
        part.recompile()


def _call(graph: fx.Graph, function: Callable[..., Any], *args: Any) -> fx.Node:
    made = graph.call_function(function, args)
    values = [x.meta["val"] if isinstance(x, fx.Node) else x for x in args]
    made.meta["val"] = function(*values)
    return made


def _floor(graph: fx.Graph, x: fx.Node) -> fx.Node:
    whole = _call(graph, math.trunc, x)
    is_above = _call(graph, operator.gt, _call(graph, _torch.sym_float, whole), x)
    return _call(graph, operator.sub, whole, _call(graph, _torch.sym_ite, is_above, 1, 0))


def _ceil(graph: fx.Graph, x: fx.Node) -> fx.Node:
    whole = _call(graph, math.trunc, x)
    is_below = _call(graph, operator.lt, _call(graph, _torch.sym_float, whole), x)
    return _call(graph, operator.add, whole, _call(graph, _torch.sym_ite, is_below, 1, 0))


def _abs(graph: fx.Graph, x: fx.Node) -> fx.Node:
    return _call(graph, _torch.sym_max, x, _call(graph, operator.neg, x))


_SAID: dict[Any, Callable[[fx.Graph, fx.Node], fx.Node]] = {
    math.floor: _floor,
    math.ceil: _ceil,
    abs: _abs,
    operator.abs: _abs,
}
