"""pack_weights: weights move to a submodule that asks the processor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.jit._recursive import wrap_cpp_module

from jit_amp import _C
from jit_amp._freeze.freeze import _has_onednn, _packed

from .ir import nodes_of

pytestmark = pytest.mark.skipif(not _has_onednn(), reason="only builds for x86 have the operators")


class Layer(nn.Module):
    def __init__(self, scoped: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(256, 128)
        self.scoped = scoped

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.scoped):
            return self.linear(x)


EXAMPLE = (torch.rand(8, 256),)


def frozen(scoped: bool = True) -> torch._C.ScriptModule:
    torch.manual_seed(0)
    module = torch.jit.script(Layer(scoped).eval())
    return _C.freeze_module(module._c, [], [EXAMPLE], "server", True, None)


def large(module: torch._C.ScriptModule) -> list[Tensor]:
    graph = module._get_method("forward").graph
    return [n.t("value") for n in nodes_of(graph) if n.kind() == "prim::Constant"
            and n.hasAttribute("value") and n.kindOf("value") == "t"
            and n.t("value").dim() > 1 and n.t("value").numel()]  # fmt: skip


def test_the_weight_moves_and_the_result_stays() -> None:
    module, before = frozen(), wrap_cpp_module(frozen())
    assert len(large(module)) == 1
    _C.pack_weights(module, [EXAMPLE], _packed)
    assert large(module) == []
    packed = wrap_cpp_module(module)
    for x in (*EXAMPLE, torch.rand(3, 256), torch.rand(2, 2, 256)):  # packed for the first
        torch.testing.assert_close(packed(x), before(x), rtol=2**-7, atol=2**-7)


def test_what_the_example_does_not_reach_is_plain() -> None:
    module = frozen()
    _C.pack_weights(module, [], _packed)
    assert large(module) == []
    expected = wrap_cpp_module(frozen())(*EXAMPLE)
    torch.testing.assert_close(wrap_cpp_module(module)(*EXAMPLE), expected, rtol=2**-7, atol=2**-7)


def test_what_does_not_ask_the_processor_stays() -> None:
    module = frozen(scoped=False)
    before = str(module._get_method("forward").graph)
    _C.pack_weights(module, [EXAMPLE], _packed)
    assert str(module._get_method("forward").graph) == before
