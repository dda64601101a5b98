"""Passes on graphs as text.

A case is TorchScript's IR, as `torch._C.parse_ir` reads it, with directives of the `filecheck`
package beside it as comments (torch's own FileCheck knows neither `[[X:regex]]` nor `{{regex}}`):

    graph(%x : Tensor):
      # CHECK: [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x,
      # CHECK-NEXT: aten::mm([[X]], [[X]])
      %y : Tensor = aten::mm(%x, %x)
      return (%y)

What a node runs, a forked task or what is in a `jit_amp::scoped`, is a graph of its own. Such
graphs follow the first, each after a `with `, in the order of their nodes; the devices of a
`jit_amp::scoped` are written `devices="cpu cuda"`. A tensor constant is written `%w : TENSOR`, with
TENSOR put in; the tensors are given in the order of these lines.

A graph is verified before the pass, as of the phase that it needs, and after it.
"""

from __future__ import annotations

import torch

from jit_amp import _C

from ..support import check_ir, nodes_of, operators

State = dict[str, torch.dtype]
OFF: State = {}
CPU: State = {"cpu": torch.bfloat16}
CUDA: State = {"cuda": torch.float16}
BOTH: State = {"cpu": torch.bfloat16, "cuda": torch.float16}

# The type and the node of a tensor constant.
TENSOR = "Float(1, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
HOLDERS = ("prim::fork", "jit_amp::scoped", "jit_amp::scoped_effect")


def parse(text: str, *tensors: torch.Tensor) -> torch._C.Graph:
    """The graph, with these tensors for its constants."""
    first, *others = (
        torch._C.parse_ir(part, parse_tensor_constants=True) for part in text.split("\nwith ")
    )
    holders = [node for node in nodes_of(first) if node.kind() in HOLDERS]
    for node, graph in zip(holders, others, strict=True):
        node.g_("Subgraph", graph)
        if node.hasAttribute("devices"):
            node.ss_("devices", node.s("devices").split())
    constants = [
        node
        for node in nodes_of(first)
        if node.kind() == "prim::Constant" and node.output().type().kind() == "TensorType"
    ]
    for node, tensor in zip(constants, tensors, strict=True):
        node.t_("value", tensor)
        node.output().inferTypeFrom(tensor)
    return first


def check(
    name: str, text: str, *tensors: torch.Tensor, entry: State = OFF, stock: bool = False
) -> torch._C.Graph:
    """The pass changes the graph, says so, and leaves what `text`'s CHECK lines say, if any."""
    graph = parse(text, *tensors)
    before = str(graph)
    assert _C.run_pass(name, graph, entry, stock), "says that it changed nothing"
    assert str(graph) != before, "changed nothing"
    if "# CHECK" in text:
        check_ir(graph, text)
    return graph


def unchanged(
    name: str, text: str, *tensors: torch.Tensor, entry: State = OFF, stock: bool = False
) -> None:
    """The pass leaves the graph as it is, and says so."""
    graph = parse(text, *tensors)
    before = str(graph)
    assert not _C.run_pass(name, graph, entry, stock), "says that it changed something"
    assert str(graph) == before


def kept(name: str, text: str, *tensors: torch.Tensor) -> None:
    """The pass leaves all operators as they are, whatever it says.

    Some passes always say that they changed the graph, and may move constants about.
    """
    graph = parse(text, *tensors)
    before = operators(graph)
    _C.run_pass(name, graph, OFF, False)
    assert operators(graph) == before


def values_of(graph: torch._C.Graph, *inputs: object) -> tuple[torch.Tensor, ...]:
    """What the graph gives for these inputs, when PyTorch runs it."""
    graph = graph.copy()
    graph.makeMultiOutputIntoTuple()
    result = torch._C._create_function_from_graph("case", graph)(*inputs)
    return result if isinstance(result, tuple) else (result,)
