"""freeze(target="server") on CUDA: attention that is written by hand.

The pretended device has PyTorch's kernel of single operators for it, which rounds otherwise than a
GPU's; which kernels a GPU takes is for scripts/gpu.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import jit_amp

from ..support import captured, text_of
from .test_attention import FUSED, SUM, causal, is_fused, made, nothing_left, ran

pytestmark = pytest.mark.cuda
EXACT = (
    *("plain", "scaled", "scaled before", "divided", "twice", "dropout", "a bias before"),
    *("masked", "masked by triu", "a float32 softmax", "bmm", "baddbmm of nothing", "einsum"),
    *("einsum of tokens", "columns", "from the right", "one head of keys", "one matrix"),
)
CONSTANT = "self.causal[:8, :8].float().masked_fill(~self.causal[:8, :8], {})"
# Here a float32 tensor, or a number, would have to be rounded, or a number of a tensor be known.
LEFT = (
    *("a bias", "a bias, scaled", "two biases", "a bias of keys", "in float32", "baddbmm"),
    *("masked in place", "masked low", "masked by zeros", "where", "where not", "columns, masked"),
    "masked and biased",
)
LEFT_AT_RUN_TIME = {
    "a negative scale": "s = q @ k.mT * -0.35\n" + SUM,
    "a scale of nothing": "s = q @ k.mT * float(n - n)\n" + SUM,
    "a width of 4": "q, k, v = q[..., :4], k[..., :4], v[..., :4]\ns = q @ k.mT\n" + SUM,
}
# What kernels of a GPU do not take as it is.
COPIED = {
    "an offset": "y = torch.cat([q, q, q], -1)\ns = y[..., 4:12] @ y[..., 5:13].mT\n" + SUM,
    "strides": "y = torch.cat([q, q[..., :4]], -1)\ns = y[..., :8] @ k.mT\n" + SUM,
    "a mask with an offset": "m = self.bias.to(q.dtype)[:, 1:n + 1, 1:n + 1]\ns = q @ k.mT + m\n"
    + SUM,
    "a permuted mask": "m = self.bias.to(q.dtype).mT[:, :n, :n]\ns = q @ k.mT + m\n" + SUM,
    "a mask of rows": "m = self.bias.to(q.dtype)[:, :n, :1]\ns = q @ k.mT + m\n" + SUM,
    "a mask of keys": "m = self.bias.to(q.dtype)[0, 0, :n]\ns = q @ k.mT + m\n" + SUM,
    "the lowest number": (
        "m = torch.zeros(n, n, dtype=q.dtype, device=q.device)\n"
        "m[:, 2:] = -3.3895313892515355e38\nm[3] = -3.3895313892515355e38\n"
        "s = q @ k.mT + m\n" + SUM
    ),
}


def on_gpu(body: str, folder: Path, dtype: str = "bfloat16") -> Any:
    return made(
        body.replace('"cpu"', '"cuda"').replace(
            "dtype=q.dtype)", "dtype=q.dtype, device=q.device)"
        ),
        folder,
        dtype,
        "cuda",
    )


def inputs(n: int, batch: int = 2) -> tuple[Tensor, Tensor]:
    torch.manual_seed(n)
    return torch.randn(batch, n, 16).cuda(), causal(n).cuda()


def server(model: Any) -> Any:
    return jit_amp.freeze(model, example_inputs=inputs(4), target="server")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", EXACT)
def test_fused(name: str, dtype: str, tmp_path: Path) -> None:
    """At every length, without waiting for the GPU, and no further from float64 than eager."""
    (tmp_path / "exact").mkdir()
    exact_model = made(FUSED[name], tmp_path / "exact", dtype).double()
    model = on_gpu(FUSED[name], tmp_path, dtype)
    with torch.no_grad():
        frozen = server(model)
        given = inputs(70, 24)  # of few numbers luck decides
        exact = exact_model(given[0].cpu().double(), given[1].cpu())
        for _ in range(3):
            actual, eager = frozen(*given), model(*given)
            assert (actual.dtype, actual.shape) == (eager.dtype, eager.shape)
            error, eagers = ((y.cpu().double() - exact).square().mean() for y in (actual, eager))
            assert error <= eagers * 1.02, (error, eagers)
        for small in (inputs(1), inputs(5, 3)):
            torch.testing.assert_close(frozen(*small), model(*small), rtol=0.05, atol=0.03)
        assert is_fused(frozen, *given)
        assert "aten::_local_scalar_dense" not in ran(frozen, *given)


@pytest.mark.parametrize("name", LEFT)
def test_left(name: str, tmp_path: Path) -> None:
    model, given = on_gpu(FUSED[name], tmp_path), inputs(40)
    with torch.no_grad():
        frozen = server(model)
        assert "scaled_dot_product" not in text_of(frozen.graph)
        torch.testing.assert_close(frozen(*given), model(*given), rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    ("low", "is_exact"), [("-math.inf", True), ("-1e3", True), ("-1e9", False)]
)
def test_a_constant_mask(low: str, is_exact: bool, tmp_path: Path) -> None:
    """In float32, and taken where float16 has each of its numbers."""
    body = f"m = {CONSTANT.format(low)}\ns = q @ k.mT + m\n" + SUM
    model, given = on_gpu(body, tmp_path, "float16"), inputs(8)
    with torch.no_grad():
        frozen = jit_amp.freeze(model, example_inputs=given, target="server")
        assert ("scaled_dot_product" in text_of(frozen.graph)) == is_exact
        torch.testing.assert_close(frozen(*given), model(*given), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", ["masked", "masked by triu"])
def test_a_query_that_may_look_at_nothing(name: str, tmp_path: Path) -> None:
    """NaN as in eager, and in no other row."""
    body = FUSED[name].replace(
        ".triu(1)", ".triu(1).index_fill(0, torch.tensor([3]).to(q.device), -math.inf)"
    )
    model = on_gpu(body, tmp_path)
    given = (inputs(9)[0], nothing_left(9).cuda())
    with torch.no_grad():
        frozen = server(model)
        assert is_fused(frozen, *given)
        actual, eager = frozen(*given), model(*given)
    assert eager.isnan().any() and not eager.isnan().all()
    torch.testing.assert_close(actual, eager, rtol=0.05, atol=0.03, equal_nan=True)


@pytest.mark.parametrize("body", LEFT_AT_RUN_TIME.values(), ids=LEFT_AT_RUN_TIME)
def test_what_kernels_do_not_take(body: str, tmp_path: Path) -> None:
    model = on_gpu(body, tmp_path)
    with torch.no_grad():
        frozen, given = server(model), inputs(9)
        assert "scaled_dot_product" in text_of(frozen.graph)
        assert not is_fused(frozen, *given)
        torch.testing.assert_close(frozen(*given), model(*given), rtol=0.05, atol=0.03)


@pytest.mark.parametrize("name", COPIED)
@pytest.mark.parametrize("n", [8, 9])
def test_what_is_copied_for_kernels(name: str, n: int, tmp_path: Path) -> None:
    model = on_gpu(COPIED[name], tmp_path)
    with torch.no_grad():
        frozen, given = server(model), inputs(n)
        assert is_fused(frozen, *given)
        torch.testing.assert_close(frozen(*given), model(*given), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -float("inf")])
def test_a_query_that_is_not_finite(value: float, tmp_path: Path) -> None:
    """Each of its scores is minus infinity, or one is NaN or infinity: eager gives NaN."""
    body = (
        "q = torch.where(x[:, None, :, :1] > 9.0, x[:, None, :, :1] * {}, q)\ns = q @ k.abs().mT\n"
    )
    model = on_gpu(body.format(f"float('{value}')") + SUM, tmp_path)
    x, mask = inputs(9)
    x[0, 5, 0] = 10.0
    with torch.no_grad():
        frozen = server(model)
        assert is_fused(frozen, x, mask)
        actual, eager = frozen(x, mask), model(x, mask)
    assert eager.isnan().any() and not eager.isnan().all()
    torch.testing.assert_close(actual, eager, rtol=0.05, atol=0.05, equal_nan=True)


@pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="decided on a GPU")
@pytest.mark.parametrize("name", ["scaled", "masked"])
def test_a_cuda_graph(name: str, tmp_path: Path) -> None:
    model = on_gpu(FUSED[name], tmp_path)
    x, mask = inputs(64)
    with torch.no_grad():
        frozen = server(model)
        graph, result = captured(frozen, x, mask)
        x.copy_(torch.randn(2, 64, 16))
        graph.replay()
        torch.testing.assert_close(result, model(x, mask), rtol=0.05, atol=0.03)
