"""join_weights: the weights of a recurrent network that cuDNN runs, in one piece."""

from __future__ import annotations

import io
import warnings

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same

real = pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="cuDNN is asked")
KINDS = "lstm", "gru", "rnn_tanh", "rnn_relu"
NETWORKS = {
    "lstm": lambda: nn.LSTM(8, 16),
    "lstm, both directions": lambda: nn.LSTM(8, 16, bidirectional=True, num_layers=2),
    "lstm, projected": lambda: nn.LSTM(8, 16, proj_size=4, num_layers=2, bidirectional=True),
    "lstm, no bias": lambda: nn.LSTM(8, 16, bias=False),
    "lstm, projected, no bias": lambda: nn.LSTM(8, 16, proj_size=4, bias=False),
    "gru": lambda: nn.GRU(8, 16, num_layers=2),
    "rnn": lambda: nn.RNN(8, 16),
    "rnn, relu": lambda: nn.RNN(8, 16, nonlinearity="relu", batch_first=True),
}


class InScope(nn.Module):
    def __init__(self, inner: nn.Module, device: str, enabled: bool) -> None:
        super().__init__()
        self.inner, self.device, self.enabled = inner, device, enabled

    def forward(self, x: Tensor):
        with torch.autocast(self.device, dtype=torch.float16, enabled=self.enabled):
            return self.inner(x)[0]


def weights(frozen: torch.jit.ScriptModule) -> list[Tensor]:
    """Of the recurrent networks in it."""
    nodes = [node for kind in KINDS for node in frozen.graph.findAllNodes(f"aten::{kind}")]
    found = []
    for each in [node.namedInput("params") for node in nodes]:
        found += each.toIValue() or [weight.toIValue() for weight in each.node().inputs()]
    return found


def pieces(tensors: list[Tensor]) -> int:
    return len({each.untyped_storage().data_ptr() for each in tensors})


@real
@pytest.mark.cuda
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_joined(name: str, enabled: bool) -> None:
    """Also in a file; the module's own are where they were."""
    torch.manual_seed(0)
    module = InScope(NETWORKS[name](), "cuda", enabled).eval().cuda()
    x = torch.randn(5, 3, 8, device="cuda")
    before = [each.data_ptr() for each in module.parameters()]
    with torch.no_grad():
        expected = module(x)
        frozen = jit_amp.freeze(module, example_inputs=(x,))
        assert [each.data_ptr() for each in module.parameters()] == before
        held = io.BytesIO()
        torch.jit.save(frozen, held)
        held.seek(0)
        for each in (frozen, torch.jit.load(held)):
            assert len(weights(each)) == len(before)
            assert pieces(weights(each)) == 1
            assert not set(before) & {weight.data_ptr() for weight in weights(each)}
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for _ in range(3):
                    assert_same(each(x), expected, name)


class Twice(nn.Module):
    def __init__(self, enabled: bool) -> None:
        super().__init__()
        self.inner, self.enabled = nn.GRU(8, 16), enabled

    def forward(self, x: Tensor, y: Tensor):
        with torch.autocast("cuda", dtype=torch.float16, enabled=self.enabled):
            return self.inner(x)[0], self.inner(y)[0]


@real
@pytest.mark.cuda
@pytest.mark.parametrize("enabled", [True, False])
def test_a_network_that_is_called_twice(enabled: bool) -> None:
    """The second call's weights may be views of the first's (share_parts.h)."""
    module = Twice(enabled).eval().cuda()
    x, y = torch.randn(2, 5, 3, 8, device="cuda")
    with torch.no_grad():
        frozen = jit_amp.freeze(module, example_inputs=(x, y))
        for _ in range(3):
            assert_same(frozen(x, y), module(x, y), "twice")


@pytest.mark.cuda
def test_left_where_cudnn_does_not_run() -> None:
    module, x = InScope(nn.GRU(8, 16), "cuda", True).eval().cuda(), torch.randn(5, 3, 8).cuda()
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=False):
        frozen = jit_amp.freeze(module, example_inputs=(x,))
    assert pieces(weights(frozen)) == len(weights(frozen)) == 4
