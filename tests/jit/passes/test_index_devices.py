"""index_devices: a device that is made of a name and an index is made of one string."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import jit_amp

from ..support import AMBIENTS, assert_same
from .ir import check, unchanged, values_of


def test_written_as_one_string() -> None:
    graph = check(
        "index_devices",
        """
graph(%index : int):
  %name : str = prim::Constant[value="cpu"]()
  # CHECK: aten::format
  # CHECK-NEXT: Device = aten::device(%{{[0-9]+}})
  %d : Device = aten::device(%name, %index)
  return (%d)
""",
    )
    assert values_of(graph, 0)[0] == torch.device("cpu", 0)


def test_a_name_alone_stays() -> None:
    unchanged(
        "index_devices",
        """
graph(%name : str):
  %d : Device = aten::device(%name)
  return (%d)
""",
    )


class Indexed(nn.Module):
    def forward(self, x: Tensor, index: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        return y.to(torch.device("cpu", index)), y.to(torch.device("cpu", 0))


def test_a_program_with_a_scope() -> None:
    net, x = Indexed(), torch.rand(4, 4)
    scripted = jit_amp.script(net)
    for ambient in AMBIENTS.values():
        with ambient():
            for call in range(3):
                assert_same(scripted(x, 0), net(x, 0), f"call {call}")
