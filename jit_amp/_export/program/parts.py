"""The graphs of an exported program: its own, and those of torch.cond's sides and the like."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx
from torch.export import ExportedProgram


def parts_of(program: ExportedProgram) -> Iterator[fx.GraphModule]:
    """Returns the graph modules of a program, its own first."""
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            yield module
