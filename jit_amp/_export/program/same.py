"""Whether two exported programs compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from jit_amp._export.program.parts import parts_of


def is_same_program(a: ExportedProgram, b: ExportedProgram) -> bool:
    """Whether they compute the same for the same arguments; numbers that are known may come from
    dead operators."""
    return _form(a) == _form(b) and _computed(a) == _computed(b)


def _form(program: ExportedProgram) -> list[Any]:
    """The structure of arguments and results, and which sizes are free."""
    sizes = [
        str(tuple(value.shape)) if isinstance(value := node.meta.get("val"), Tensor) else str(value)
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs
    ]
    results = [(each.kind, each.target) for each in program.graph_signature.output_specs]
    ranges = sorted((str(size), str(of)) for size, of in program.range_constraints.items())
    return [program.call_spec, sizes, results, ranges]


def _computed(program: ExportedProgram) -> list[Any]:
    """What is computed for a result or an effect, with constants by value."""
    constants = {
        name: _Constant(program.constants[of])
        for name, of in program.graph_signature.inputs_to_lifted_tensor_constants.items()
    }
    return [_live(part.graph, constants) for part in parts_of(program)]


def _live(graph: fx.Graph, constants: Mapping[str, Any]) -> list[Any]:
    waiting = [node for node in graph.nodes if node.op == "output" or _has_effect(node)]
    live: set[fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in live:
            live.add(node)
            waiting.extend(node.all_input_nodes)
    numbers = {node: i for i, node in enumerate(x for x in graph.nodes if x in live)}

    def operands(of: Any) -> str:
        return repr(fx.map_arg(of, lambda node: f"%{numbers[node]}"))

    return [
        constants.get(node.name, node.name)
        if node.op == "placeholder"
        else (node.op, str(node.target), operands(node.args), operands(node.kwargs))
        for node in numbers
    ]


def _has_effect(node: fx.Node) -> bool:
    if node.op != "call_function":
        return False
    if node.target is torch.ops.aten.detach_.default:  # of a number, as a tensor
        return node.args[0].target is not torch.ops.aten.lift_fresh_copy.default  # type: ignore[union-attr]
    return node.is_impure() or isinstance(node.target, torch._ops.HigherOrderOperator)


@dataclass(eq=False)
class _Constant:
    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Constant):
            return NotImplemented
        one, two = self.value, other.value
        if not (isinstance(one, Tensor) and isinstance(two, Tensor)):
            return one is two
        like = (one.dtype, one.device, one.shape) == (two.dtype, two.device, two.shape)
        if not like or not torch.equal(one, two):
            return False
        return not one.is_floating_point() or torch.equal(one.signbit(), two.signbit())
