"""Passes on graphs as text.

A case is TorchScript's IR, as `torch._C.parse_ir` reads it, with FileCheck's directives as comments
beside it:

    graph(%x : Tensor):
      # CHECK: jit_amp::cast
      %y : Tensor = aten::mm(%x, %x)
      return (%y)

The graph is verified before the pass, as of the phase that it needs, and after it.
"""

from __future__ import annotations

import torch
from torch.testing import FileCheck

from jit_amp import _C

State = dict[str, torch.dtype]
OFF: State = {}
CPU: State = {"cpu": torch.bfloat16}
CUDA: State = {"cuda": torch.float16}
BOTH: State = {"cpu": torch.bfloat16, "cuda": torch.float16}


def check(name: str, text: str, entry: State = OFF, *, exported: bool = False) -> str:
    """The pass changes the graph, says so, and leaves what `text`'s CHECK lines say."""
    graph = torch._C.parse_ir(text)
    before = str(graph)
    assert _C.run_pass(name, graph, entry, exported), "says that it changed nothing"
    after = str(graph)
    assert after != before, "changed nothing"
    FileCheck().run(text, after)
    return after


def unchanged(name: str, text: str, entry: State = OFF, *, exported: bool = False) -> None:
    """The pass leaves the graph as it is, and says so."""
    graph = torch._C.parse_ir(text)
    before = str(graph)
    assert not _C.run_pass(name, graph, entry, exported), "says that it changed something"
    assert str(graph) == before
