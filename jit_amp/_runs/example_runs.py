"""Runs of a scripted module with its examples: what it cannot run is no example."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.jit import ScriptModule
from torch.jit._fuser import optimized_execution
from torch.utils import _pytree as pytree

from jit_amp import _C
from jit_amp._base import process_state
from jit_amp._runs.copies import fresh
from jit_amp._runs.example_arguments import in_words

_PYTORCHS = ("aten", "prim", "jit_amp", "mkldnn", "quantized")
_NOT_RUN = ("aten::save", "prim::rpc_async", "prim::rpc_sync", "prim::rpc_remote")
_ERROR = re.compile(r"^(?:builtins\.|torch\.jit\.)?([\w.]+: )(.*)", re.MULTILINE | re.DOTALL)
_WRITES = (
    "prim::SetAttr",
    "prim::CallMethod",
    "prim::CallFunction",
    "prim::fork",
    "prim::awaitable",
    "jit_amp::program",
    "aten::backward",
)
_TELLS = ("prim::Print", "aten::warn")


def check(function: str, program: Any, examples: Sequence[tuple[Any, ...]]) -> None:
    """Runs a program once with each example, on copies of the examples and of all that a module
    holds, outside any autocast and without what it prints.

    A program with operators that are not PyTorch's is not run, since these may do anything, and
    neither is an example that cannot be copied.

    Args:
        function: the name of the function of jit_amp that has been given the examples.
        program (ScriptModule | ScriptFunction): what runs; of a module ``forward``.
        examples: all arguments of each, in their order.

    Raises:
        RuntimeError: the program raises for an example: which, and why.
    """
    if not examples:
        return
    module: Any = program._c if isinstance(program, ScriptModule) else None
    if module is not None:
        graph = _C.lowered_method_graph(module, "forward", False, False)
        names = [each.name for each in module._get_method("forward").schema.arguments[1:]]
    else:
        graph = _C.lowered_graph(program, False, False)
        names = [each.name for each in program.schema.arguments]
    nodes = list(_nodes(graph))
    writes = any(map(_writes, nodes))
    if not all(map(_can_run, nodes)) or (writes and not all(map(_own_constant, nodes))):
        return
    for node in nodes:
        if node.kind() in _TELLS:
            node.destroy()
    for number, example in enumerate(examples, 1):

        def arguments(example: tuple[Any, ...] = example) -> list[Any]:
            copied = pytree.tree_map_only(Tensor, _normal, fresh(example))
            if module is None:
                return [*copied]
            return [_C.copied_module(module) if writes else module, *copied]

        try:
            first = arguments()
        except Exception:  # of any class
            continue
        try:
            _run(graph, first, arguments)
        except Exception as error:
            if "INTERNAL ASSERT FAILED" in str(error):  # in PyTorch, on what it runs elsewhere
                continue
            words = ", ".join(
                f"{name}: {in_words(value)}" for name, value in zip(names, example, strict=True)
            )
            reason, lines = _reason_of(str(error))
            kind = "function" if module is None else "module"
            raise RuntimeError(
                f"jit_amp.{function}: the {kind} cannot run example {number} ({words}): {reason}"
                + (f"\n{lines}" if lines else "")
            ) from error


def _run(graph: torch._C.Graph, first: list[Any], again: Callable[[], list[Any]]) -> None:
    forward = torch._C._create_function_from_graph("forward", graph.copy())
    is_recorded = torch.is_grad_enabled()
    run_once = optimized_execution(False)
    with process_state.random_state(), process_state.modes(), process_state.no_autocast(), run_once:
        # In a function of its own: an interrupt at the line of a `try` that begins a `with` is not
        # heard by the contexts (CPython 3.11).
        _call(forward, first, again, is_recorded)


def _call(
    forward: Callable[..., Any],
    first: list[Any],
    again: Callable[[], list[Any]],
    is_recorded: bool,
) -> None:
    try:
        with torch.no_grad():
            forward(*first)
    except RuntimeError as error:
        if not is_recorded or "does not require grad" not in str(error):
            raise
        forward(*again())  # it computes gradients itself


def _can_run(node: Any) -> bool:
    """Whether all that it does beside its result is done to what a copy holds."""
    kind = node.kind()
    return kind.partition("::")[0] in _PYTORCHS and kind not in _NOT_RUN


def _writes(node: Any) -> bool:
    """Whether it may write to what a module holds, or is not known to do no such thing."""
    kind = node.kind()
    if kind.startswith(("prim::", "jit_amp::")) or kind in _WRITES:
        return kind in _WRITES
    if not kind.startswith("aten::"):
        return True
    arguments = torch._C.parse_schema(node.schema()).arguments
    return any(each.is_write or each.name == "running_mean" for each in arguments)


def _own_constant(node: Any) -> bool:
    """Gives a constant of a trace, which may be written to, a tensor of its own; False where it has
    tensors that cannot be replaced."""
    if node.kind() != "prim::Constant":
        return True
    value = node.output().toIValue()
    if isinstance(value, Tensor):
        node.t_("value", value.detach().clone())
        return True
    return not any(isinstance(each, Tensor) for each in pytree.tree_leaves(value))


def _normal(tensor: Tensor) -> Tensor:
    """A tensor that may be written to outside inference mode."""
    return tensor.clone() if tensor.is_inference() else tensor


def _nodes(block: Any) -> Iterator[Any]:
    """Those in blocks, in tasks and in what runs under the dispatcher's autocast too."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)
        if node.hasAttribute("Subgraph"):
            yield from _nodes(node.g("Subgraph"))


def _reason_of(text: str) -> tuple[str, str]:
    """What eager would say, and the lines of the program where it did."""
    after = text.rpartition("<--- HERE\n")[2]
    error = _ERROR.search(after)
    if error is None:
        return text.strip(), ""
    kind, reason = error.groups()
    reason = reason.partition("\n\nAt:\n")[0].strip()
    if kind in ("RuntimeError: ", "Error: "):
        kind, reason = "", reason.removeprefix("RuntimeError: ")
    lines = text[: len(text) - len(after) + error.start()].rstrip()
    return kind + reason, lines[lines.find('  File "') :] if '  File "' in lines else ""
