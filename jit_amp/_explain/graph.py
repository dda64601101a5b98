"""What a graph tells a report: lines of its nodes, casts that jit_amp makes, weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.jit import ScriptFunction, ScriptModule

from jit_amp import _C
from jit_amp._explain.records import CompiledCast, Place, Weight
from jit_amp._explain.sources import place_of as _shown
from jit_amp._freeze.packed import LARGE_WEIGHT


def lowered_casts(scripted: Any, method: str) -> Iterator[CompiledCast]:
    """The casts of the lowered graph, and those that a frozen module decides about when it runs."""
    ambient = torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report has them
        if isinstance(scripted, ScriptFunction):
            graph = _C.lowered_graph(scripted, *ambient)
        else:
            graph = _C.lowered_method_graph(scripted._c, method, *ambient)

    def walk(block: Any, in_loop: bool) -> Iterator[CompiledCast]:
        for node in block.nodes():
            at_run_time = _decides_about_cast(node)
            if node.kind() == "jit_amp::cast" or at_run_time:
                users = tuple(dict.fromkeys(_places_of_users(node, _users_place_of)))
                if users:
                    yield CompiledCast(users, in_loop, at_run_time)
            if not at_run_time:
                for inner in node.blocks():
                    yield from walk(inner, in_loop or node.kind() == "prim::Loop")

    yield from walk(graph, False)


OURS = "<jit_amp "
"""In place of a file, before the name of what jit_amp wrote into a graph: csrc/core/graphs.cpp."""


def _decides_about_cast(node: Any) -> bool:
    """Whether the node is a cast that a frozen module decides about when it runs."""
    file = _C.place_of(node)[0] if node.kind() == "prim::If" else ""
    return file.startswith(OURS + "cast") and node.hasUses()


def place_of(node: Any) -> Place | None:
    """The line of a graph's node; None for what nobody wrote, and for what is in no file."""
    site = _C.place_of(node)
    file, line = site[:2]
    if not line:
        return _users_line(node)  # of what was traced
    return None if file == "<string>" or file.startswith(OURS) else _shown(site)


def _users_place_of(node: Any) -> Place | None:
    """The same, of the innermost call that stands in no file of PyTorch's, if there is one."""
    place = place_of(node)
    return place and (_users_line(node) or place)


def _users_line(node: Any) -> Place | None:
    line = _C.users_line(node)
    return _shown(line) if line else None


def _places_of_users(
    node: Any, place_of: Callable[[Any], Place | None] = place_of
) -> Iterator[Place]:
    """The lines of what uses a node's results, through what has no line of its own."""
    seen: set[str] = set()  # results of nodes that were passed: many paths lead to one
    pending = [_users(node)]
    while pending:
        user = next(pending[-1], None)
        if user is None:
            pending.pop()
        elif place := place_of(user):
            yield place
        elif user.kind() != "prim::Return":
            results = {output.debugName() for output in user.outputs()}
            if not results <= seen:
                seen |= results
                pending.append(_users(user))


def _users(node: Any) -> Iterator[Any]:
    return (use.user for output in node.outputs() for use in output.uses())


def weights_of(scripted: Any, method: str) -> Iterator[Weight]:
    if not isinstance(scripted, ScriptModule) or hasattr(scripted, "training"):
        return  # not frozen: its weights are its parameters
    for node in scripted._c._get_method(method).graph.findAllNodes("prim::Constant"):
        if node.hasAttribute("value") and node.kindOf("value") == "t":
            value = node.t("value")
            if not value.numel():  # of a check: csrc/passes/freeze/guard_autocast.h
                continue
            users = tuple(dict.fromkeys(_places_of_users(node)))
            yield Weight(dtype_name(value.dtype), tuple(value.shape), value.nbytes, users)
    for child in scripted.children():
        packed: Any = child
        if hasattr(packed, "native_bfloat16"):  # jit_amp/_freeze/packed.py
            for i in range(len(packed.plans)):
                value = packed.dense(i)
                if value.numel() < LARGE_WEIGHT:  # a constant too
                    continue
                yield Weight(dtype_name(value.dtype), tuple(value.shape), value.nbytes, ())


def place_of_error(error: _C.AutocastError) -> Place | None:
    """The line that is refused; None where no line is known."""
    return Place(error.file, error.line or 0, 0) if error.file else None


def dtype_name(dtype: Any) -> str:
    return "several" if dtype is None else str(dtype).removeprefix("torch.")
