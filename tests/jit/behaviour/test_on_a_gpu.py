"""What only a real GPU decides: the list in docs/devices.md names these tests.

The pretended device runs those that it has kernels for, as a rehearsal; scripts/gpu 4 runs all.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import jit_amp

from ..support import assert_same, captured, fresh, known_warnings_ignored, tensors_of

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk"),
]
REAL = torch.backends.cuda.is_built()
if not REAL and "JIT_AMP_REHEARSE" not in os.environ:
    pytest.skip("decided on a GPU: scripts/gpu 4", allow_module_level=True)
real = pytest.mark.skipif(not REAL, reason="decided on a GPU")
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


WAYS = "scripted", "frozen", "traced"


def three_ways(module: nn.Module, inputs: tuple[Any, ...], *, trace: bool = True) -> list[Any]:
    """In the order of WAYS."""
    with known_warnings_ignored():
        made = [
            jit_amp.script(copy.deepcopy(module)),
            jit_amp.freeze(
                copy.deepcopy(module), example_inputs=fresh(inputs), optimize_numerics=False
            ),
        ]
        if trace:
            made.append(jit_amp.trace(copy.deepcopy(module), fresh(inputs), check_trace=False))
    return made


def check(
    module: nn.Module, inputs: tuple[Any, ...], *, trace: bool = True, strides: bool = False
) -> None:
    """Three calls of each, bit for bit as eager."""
    with torch.no_grad():
        expected = module(*fresh(inputs))
        for name, way in zip(WAYS, three_ways(module, inputs, trace=trace), strict=False):
            for _ in range(3):
                actual = way(*fresh(inputs))
                assert_same(actual, expected, name)
                for a, b in zip(tensors_of(actual), tensors_of(expected), strict=True):
                    assert not strides or a.stride() == b.stride()


# --- recurrent networks with cuDNN ----------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module], dtype: torch.dtype, **options: Any):
        super().__init__()
        self.inner = kind(8, 16, **options)
        self.dtype = dtype

    def forward(self, x: Tensor):
        with torch.autocast("cuda", dtype=self.dtype):
            return self.inner(x)[0]


RNNS = {
    "lstm": lambda dtype: Recurrent(nn.LSTM, dtype),
    "lstm, both directions": lambda dtype: Recurrent(nn.LSTM, dtype, bidirectional=True),
    "lstm, two layers": lambda dtype: Recurrent(nn.LSTM, dtype, num_layers=2, batch_first=True),
    "lstm, projected": lambda dtype: Recurrent(nn.LSTM, dtype, proj_size=4),
    "lstm, no bias": lambda dtype: Recurrent(nn.LSTM, dtype, bias=False),
    "gru": lambda dtype: Recurrent(nn.GRU, dtype),
    "rnn": lambda dtype: Recurrent(nn.RNN, dtype),
    "rnn, relu": lambda dtype: Recurrent(nn.RNN, dtype, nonlinearity="relu"),
}


@pytest.mark.parametrize("given", [F32, F16, BF16])
@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("name", RNNS)
def test_recurrent_networks(name: str, dtype: torch.dtype, given: torch.dtype) -> None:
    """cuDNN's, in eager and of an artefact: the weights are cast, and no longer one chunk."""
    torch.manual_seed(0)
    module = RNNS[name](dtype).eval().cuda()
    check(module, (torch.randn(5, 3, 8).cuda().to(given),))


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.GRU(8, 16)

    def forward(self, x: Tensor, lengths: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
            return self.inner(packed)[0].data


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("name", RNNS)
def test_exported_recurrent_networks(name: str, dtype: torch.dtype) -> None:
    module, x = RNNS[name](dtype).eval().cuda(), torch.randn(4, 3, 8, device="cuda")
    with torch.no_grad(), known_warnings_ignored():
        expected, program = module(x), jit_amp.export(module, (x,))
        assert_same(program.module()(x), expected, "exported")


def test_packed_sequences() -> None:
    module = Packed().eval().cuda()
    check(module, (torch.randn(5, 3, 8).cuda(), torch.tensor([5, 2, 3])), trace=False)


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(8, 8), nn.GRUCell(8, 8), nn.RNNCell(8, 8)

    def forward(self, x: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            h, c = self.lstm(x)
            return h, c, self.gru(x, c), self.rnn(x, h)


def test_cells() -> None:
    """Fused kernels of CUDA's, which take one dtype."""
    check(Cells().eval().cuda(), (torch.randn(3, 8).cuda(),))


# --- what CUDA's kernels do -----------------------------------------------------------------------


class Kernels(nn.Module):
    """Those that call other operators than CPU's: CUDA_DIFFERS in scripts/observe."""

    def forward(self, x: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            h = x @ x
            return (
                h.trace(),
                h.mean(),
                h.mean(0),
                h.std(),
                h.var(0),
                torch.nn.functional.adaptive_avg_pool2d(h.unsqueeze(0), 1),
                torch.nn.functional.adaptive_avg_pool2d(h.unsqueeze(0), 2),
                h.renorm(2.0, 0, 1.0),
                torch.linalg.vector_norm(h, 3.0),
                h.float().det(),
            )


def test_kernels_that_call_other_operators() -> None:
    torch.manual_seed(0)
    check(Kernels().eval(), (torch.rand(4, 4).cuda(),))


class Strides(nn.Module):
    def forward(self, x: Tensor, y: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            return (
                torch.addcmul(x, y, y),
                torch.addcdiv(x, y, y + 2),
                torch.atan2(x, y),
                torch.cat([x, y], 1),
                torch.stack([x, y]),
                torch.where(x > 0, x, y),
            )


@pytest.mark.parametrize("dtypes", [(F32, F16), (F16, F32), (F16, F16)])
@pytest.mark.parametrize("form", ["channels last", "transposed", "expanded"])
def test_strides_after_promotion(form: str, dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    """A cast keeps strides where its operand has no gaps; results are laid out by the operands'."""
    torch.manual_seed(0)
    x, y = (torch.rand(2, 3, 4, 5).cuda().to(dtype) for dtype in dtypes)
    if form == "channels last":
        x = x.contiguous(memory_format=torch.channels_last)
    elif form == "transposed":
        x, y = x.transpose(1, 3), y.transpose(1, 3)
    else:
        x = x[:1].expand(2, 3, 4, 5)
    with torch.no_grad():
        expected = Strides()(x, y)
        for way in (
            jit_amp.script(Strides()),
            jit_amp.freeze(Strides().eval(), example_inputs=(x, y)),
            jit_amp.freeze(Strides().eval()),
        ):
            for _ in range(3):
                for actual, wanted in zip(way(x, y), expected, strict=True):
                    assert_same(actual, wanted, form)
                    assert actual.stride() == wanted.stride()


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.up, self.last = nn.ConvTranspose2d(8, 8, 2, 2), nn.Linear(8, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            h = self.up(torch.relu(self.norm(self.conv(x))))
            return torch.softmax(self.last(h.mean((2, 3))), 1)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_convolutions(memory_format: torch.memory_format) -> None:
    """cuDNN chooses by the strides of the weight; a folded batch norm is within rounding."""
    torch.manual_seed(0)
    on_cpu = Products().eval()

    def made() -> nn.Module:
        return copy.deepcopy(on_cpu).cuda().to(memory_format=memory_format)

    x = torch.rand(2, 3, 8, 8).cuda().to(memory_format=memory_format)
    with torch.no_grad():
        expected = made()(x)
        assert_same(jit_amp.script(made())(x), expected, "scripted")
        exact = jit_amp.freeze(made(), example_inputs=(x,), optimize_numerics=False)
        assert_same(exact(x), expected, "frozen")
        folded = jit_amp.freeze(made(), example_inputs=(x,))
        torch.testing.assert_close(folded(x), expected, atol=0.01, rtol=0.02)


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("given", [F32, F16])
def test_attention(given: torch.dtype) -> None:
    """By flash attention where the operands are cast."""
    torch.manual_seed(0)
    check(Attention().eval(), tuple(torch.randn(2, 4, 16, 64).cuda().to(given) for _ in range(3)))


@pytest.mark.parametrize("make", [
    lambda: nn.MultiheadAttention(16, 4, batch_first=True),
    lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
], ids=["attention", "encoder layer"])  # fmt: skip
def test_fused_layers(make: Callable[[], nn.Module]) -> None:
    """Their fast path for evaluation runs in process; exporting it is refused."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = make()
            self.pair = isinstance(self.inner, nn.MultiheadAttention)

        def forward(self, x: Tensor) -> Any:
            with torch.autocast("cuda", dtype=torch.float16):
                return self.inner(x, x, x)[0] if self.pair else self.inner(x)

    torch.manual_seed(0)
    net, x = Net().eval().cuda(), torch.randn(2, 5, 16).cuda()
    with torch.no_grad():
        trace = jit_amp.trace(copy.deepcopy(net), (x,), check_trace=False)
        for _ in range(3):
            assert_same(trace(x), net(x), "traced")


# --- the executor, the allocator and the machine --------------------------------------------------


class Pointwise(nn.Module):
    def forward(self, x: Tensor, y: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            h = x @ y
            h = torch.tanh(h * 2.0 + 1.0) * torch.sigmoid(h)
            return h + y, torch.exp(h), (h * h).sum()


@real
@pytest.mark.parametrize("on", [True, False])
def test_the_fuser(on: bool) -> None:
    """Fused kernels compute in float32 between the operators: dtypes are eager's, values near."""
    before = torch._C._jit_override_can_fuse_on_gpu(on)
    try:
        x, y = torch.rand(32, 32).cuda(), torch.rand(32, 32).cuda()
        with torch.no_grad():
            expected = Pointwise()(x, y)
            for way in three_ways(Pointwise().eval(), (x, y)):
                for _ in range(5):
                    for actual, wanted in zip(way(x, y), expected, strict=True):
                        assert actual.dtype == wanted.dtype
                        torch.testing.assert_close(actual, wanted, atol=2e-2, rtol=2e-2)
    finally:
        torch._C._jit_override_can_fuse_on_gpu(before)


@real
def test_a_cuda_graph_of_an_artefact() -> None:
    torch.manual_seed(0)
    x = torch.rand(8, 8).cuda()
    frozen = jit_amp.freeze(Pointwise().eval(), example_inputs=(x, x))
    with torch.no_grad():
        graph, result = captured(frozen, x, x)
        x.copy_(torch.rand(8, 8))
        graph.replay()
        assert_same(result, Pointwise()(x, x), "replayed")


@real
def test_an_artefact_stays_with_the_device_of_its_scope(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Products().eval()
    x = torch.rand(2, 3, 8, 8)
    frozen = jit_amp.freeze(copy.deepcopy(module).cuda(), optimize_numerics=False)
    frozen.save(tmp_path / "net.pt")
    with torch.no_grad():
        loaded = torch.jit.load(tmp_path / "net.pt", map_location="cuda")
        assert_same(loaded(x.cuda()), module.cuda()(x.cuda()), "on the device of its scope")
        with pytest.raises(torch.jit.Error, match="weights on cuda, and they are on cpu"):
            torch.jit.load(tmp_path / "net.pt", map_location="cpu")(x)


class Dropped(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            return torch.nn.functional.dropout(x @ x, 0.5, training=True), torch.rand_like(x)


def test_random_numbers_are_eagers() -> None:
    x = torch.rand(8, 8).cuda()
    scripted = jit_amp.script(Dropped())
    for _ in range(3):
        torch.manual_seed(1)
        expected = Dropped()(x)
        torch.manual_seed(1)
        assert_same(scripted(x), expected, "dropout")


def test_what_explain_sees() -> None:
    """Each operator waits for its kernels: their time is its own."""
    report = jit_amp.explain(Pointwise(), (torch.rand(64, 64).cuda(), torch.rand(64, 64).cuda()))
    assert {row.operator for row in report.rows} >= {"aten::matmul", "aten::exp"}
