"""run_tasks: tasks run where they are started."""

from __future__ import annotations

import torch
from torch import Tensor

from jit_amp import _C

from .ir import operators


def inner(x: Tensor):
    return x.cos()


def outer(x: Tensor):
    task = torch.jit.fork(inner, x.sin())
    return torch.jit.wait(task).tan()


def starts(x: Tensor):
    task = torch.jit.fork(outer, x)
    y = x.exp()
    return torch.jit.wait(task) + y


def none(x: Tensor):
    return x.cos()


def flat(function: object) -> torch._C.Graph:
    return _C.flattened(torch.jit.script(function), "fix_attributes")


def test_a_task_of_a_task_stands_where_it_is_started() -> None:
    graph = flat(starts)
    assert _C.run_pass("run_tasks", graph, {}, False)
    wait, done = "aten::wait", "jit_amp::completed"
    assert [kind for kind in operators(graph) if kind != "prim::Constant"] == [
        "aten::sin", "aten::cos", done, wait, "aten::tan", done, "aten::exp", wait, "aten::add",
    ]  # fmt: skip
    assert "Future[Tensor]" in str(next(graph.findNode(done).outputs()).type())


def test_a_graph_without_tasks_stays() -> None:
    graph = flat(none)
    before = str(graph)
    assert not _C.run_pass("run_tasks", graph, {}, False)
    assert str(graph) == before
