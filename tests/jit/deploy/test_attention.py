"""freeze(target="server"): attention that is written by hand."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp._freeze.packed import emulates

from ..support import imported, text_of
from .packed import kernel

HEAD = """
import math
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.drop = nn.Dropout(0.1)
        self.register_buffer("causal", torch.ones(1500, 1500).tril().bool())
        self.register_buffer("bias", torch.randn(2, 1500, 1500))

    def forward(self, x: Tensor, mask: Tensor):
        with torch.autocast("{device}", dtype=torch.{dtype}):
            b, n = x.size(0), x.size(1)
            q = self.q(x).view(b, n, 2, 8).transpose(1, 2)
            k = self.k(x).view(b, n, 2, 8).transpose(1, 2)
            v = self.v(x).view(b, n, 2, 8).transpose(1, 2)
"""
# `q`, `k` and `v` are 2 heads of width 8; `mask` is True where a query may look.
SUM = "p = s.softmax(-1)\nreturn p @ v"
FUSED = {
    "plain": "s = q @ k.transpose(-2, -1)\n" + SUM,
    "scaled": "s = q @ k.transpose(-2, -1) * 0.35\n" + SUM,
    "scaled before": "s = (q * 0.35) @ k.mT\n" + SUM,
    "divided": "s = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))\n" + SUM,
    "by a tensor": "s = q @ k.mT\ns = s / torch.full([], 2.5, dtype=s.dtype)\n" + SUM,
    "twice": "s = 2 * (q @ k.transpose(2, 3)) * 0.2\n" + SUM,
    "dropout": "s = q @ k.transpose(-2, -1) * 0.35\np = self.drop(s.softmax(-1))\nreturn p @ v",
    "a bias": "s = q @ k.transpose(-2, -1) * 0.35 + self.bias[:, :n, :n]\n" + SUM,
    "a bias before": "s = self.bias[:, :n, :n].to(q.dtype) + q @ k.transpose(-2, -1)\n" + SUM,
    "a bias, scaled": "s = (q @ k.transpose(-2, -1) - self.bias[:1, :n, :n]) * 0.35\n" + SUM,
    "two biases": "s = q @ k.mT + self.bias[:, :n, :n]\ns += self.bias[0, :n, :n].half()\n" + SUM,
    "a bias of keys": "s = torch.add(q @ k.mT, self.bias[0, 0, :n], alpha=2)\n" + SUM,
    "masked": "s = q @ k.transpose(-2, -1)\ns = s.masked_fill(~mask, float('-inf'))\n" + SUM,
    "masked by zeros": (
        "s = (q @ k.mT).masked_fill(self.causal.float()[:n, :n] == 0, -math.inf) * 0.35\n" + SUM
    ),
    "masked in place": "s = q @ k.transpose(-2, -1)\ns.masked_fill_(~mask, -1e9)\n" + SUM,
    "masked low": "s = (q @ k.transpose(-2, -1)).masked_fill(~mask, -1e6) / 4\n" + SUM,
    "masked by triu": (
        "s = q @ k.mT + torch.full((n, n), float('-inf'), dtype=q.dtype).triu(1)\n" + SUM
    ),
    "masked and biased": (
        "s = q @ k.mT + self.bias[:, :n, :n]\ns = s.masked_fill(~mask, float('-inf'))\n" + SUM
    ),
    "where": "s = torch.where(mask, q @ k.transpose(-2, -1) * 0.35, -1e9)\n" + SUM,
    "where not": (
        "s = q @ k.mT\ns = torch.where(~mask, torch.full([], -1e9, dtype=s.dtype), s)\n" + SUM
    ),
    "a float32 softmax": (
        "s = q @ k.mT\np = F.softmax(s, dim=-1, dtype=torch.float32).to(q.dtype)\nreturn p @ v"
    ),
    "in float32": (
        'with torch.autocast("cpu", enabled=False):\n'
        "    s = q.float() @ k.float().mT + self.bias[:, :n, :n]\n"
        "p = s.softmax(-1).type_as(v)\nreturn p @ v"
    ),
    "bmm": (
        "q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)\n"
        "s = torch.bmm(q, k.transpose(1, 2)) * 0.35\nreturn torch.bmm(s.softmax(2), v)"
    ),
    "baddbmm": (
        "q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)\n"
        "s = torch.baddbmm(self.bias[0, :n, :n], q, k.mT, beta=0.5, alpha=0.35)\n"
        "return torch.bmm(s.softmax(-1), v)"
    ),
    "baddbmm of nothing": (
        "q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)\n"
        "s = torch.baddbmm(torch.empty(1, 1, 1, dtype=q.dtype), q, k.mT, beta=0, alpha=0.35)\n"
        "return torch.bmm(s.softmax(-1), v)"
    ),
    "einsum": (
        "s = torch.einsum('bhqd,bhkd->bhqk', q, k) * 0.35\n"
        "return torch.einsum('bhqk,bhkd->bqhd', s.softmax(-1), v)"
    ),
    "einsum of tokens": (
        "q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)\n"
        "s = torch.einsum('bqhd,bkhd->bhqk', q, k) + self.bias[:, :n, :n].to(q.dtype)\n"
        "return torch.einsum('bhqk,bkhd->bqhd', s.softmax(dim=3), v)"
    ),
    "columns": "s = k @ q.transpose(-2, -1) * 0.35\nreturn s.softmax(-2).transpose(-2, -1) @ v",
    "columns, masked": ("s = (k @ q.mT).masked_fill(~mask.t(), -1e9)\nreturn v.mT @ s.softmax(-2)"),
    "from the right": "s = q @ k.mT\nreturn v.transpose(-2, -1) @ s.softmax(-1).transpose(-2, -1)",
    "one head of keys": "k, v = k[:, :1], v[:, :1]\ns = q @ k.transpose(-2, -1) * 0.35\n" + SUM,
    "one matrix": "q, k, v = q[0, 0], k[0, 0], v[0, 0]\ns = q @ k.transpose(-2, -1)\n" + SUM,
}
# Here something else reads the scores, or what is computed is something else.
LEFT = {
    "scores": "s = q @ k.transpose(-2, -1)\nreturn s.softmax(-1) @ v, s",
    "probabilities": "s = q @ k.transpose(-2, -1)\np = s.softmax(-1)\nreturn p @ v, p",
    "probabilities of heads": "p = (q @ k.mT).softmax(-1)\nreturn p @ v, p.mean(1)",
    "a dropout that is on": "p = F.dropout((q @ k.mT).softmax(-1), 0.5, True)\nreturn p @ v",
    "a product with a tensor": "s = (q @ k.mT) * self.bias[:, :n, :n]\n" + SUM,
    "a product after": "p = (q @ k.mT).softmax(-1) * mask\nreturn p @ v",
    "a number that is not low": "s = (q @ k.mT).masked_fill(~mask, -5.0)\n" + SUM,
    "a low number and a bias": (
        "s = (q @ k.mT + self.bias[:, :n, :n]).masked_fill(~mask, -1e9)\n" + SUM
    ),
    "the wrong sum": "s = q @ k.transpose(-2, -1)\nreturn s.softmax(-1).transpose(-2, -1) @ v",
    "the wrong softmax": "s = q @ k.transpose(-2, -1)\nreturn s.softmax(-2) @ v",
    "another softmax": "s = q @ k.transpose(-2, -1)\nreturn s.softmax(-3) @ v",
    "a clamp": "s = (q @ k.transpose(-2, -1)).clamp(max=3.0)\n" + SUM,
    "float32": (
        'with torch.autocast("cpu", enabled=False):\n'
        "    p = (q.float() @ k.float().mT).softmax(-1)\n    return p @ v.float()"
    ),
    "float64": (
        "s = q @ k.mT + self.bias[:, :n, :n].double()\np = s.softmax(-1)\nreturn p.to(v.dtype) @ v"
    ),
    "written to between": "s = q @ k.mT\np = s.softmax(-1)\nv[:, :, 0] = 0\nreturn p @ v + q",
    "an einsum of sums": (
        "s = torch.einsum('bhqd,bhkd->bqk', q, k)\nreturn s.softmax(-1)[:, None] @ v"
    ),
}
LONG = 768  # from where on processors with the dtype's instructions take the operator too


def made(body: str, folder: Path, dtype: str = "bfloat16", device: str = "cpu") -> Any:
    text = HEAD.format(dtype=dtype, device=device) + "".join(
        f"            {x}\n" for x in body.splitlines()
    )
    torch.manual_seed(0)
    return imported(text, folder / "attention.py").Model().eval().to(device).requires_grad_(False)


def causal(n: int) -> Tensor:
    return torch.ones(n, n).tril().bool()


def inputs(n: int, batch: int = 1) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, n, 16, generator=torch.Generator().manual_seed(n)), causal(n)


def server(model: nn.Module, example: Any, slow_kernel: bool = False) -> Any:
    """Frozen for a processor whose PyTorch has a fast kernel, or a slow one."""
    with kernel(slow_kernel):
        return jit_amp.freeze(model, example_inputs=example, target="server")


def ran(call: Any, *given: Any) -> dict[str, int]:
    """The operators that a call runs, and how many times."""
    with torch.profiler.profile(acc_events=True) as profile:
        call(*given)
    return {event.key: event.count for event in profile.key_averages()}


def is_fused(call: Any, *given: Any) -> bool:
    return any("scaled_dot_product" in name for name in ran(call, *given))


def blocks_of(call: Any, *given: Any) -> int:
    return ran(call, *given).get("aten::baddbmm", 0)


def strides(tensor: Tensor) -> list[int]:
    """Of the dimensions where they mean something."""
    return [s for s, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def assert_as_exact(frozen: Any, model: nn.Module, given: tuple[Tensor, Tensor]) -> None:
    """No further from float64 than eager is."""
    exact = copy.deepcopy(model).double()(given[0].double(), given[1])
    eager = model(*given)
    for _ in range(3):
        actual = frozen(*given)
        assert (actual.dtype, actual.shape) == (eager.dtype, eager.shape)
        assert strides(actual) == strides(eager)
        error, eagers = ((y.double() - exact).square().mean() for y in (actual, eager))
        assert error <= eagers * 1.02, (error, eagers)  # two ways to round, where the CPU can


@pytest.mark.parametrize("name", FUSED)
def test_fused(name: str, tmp_path: Path) -> None:
    model, long = made(FUSED[name], tmp_path), inputs(LONG)
    with torch.no_grad():
        frozen = server(model, inputs(4, 2))
        assert_as_exact(frozen, model, long)
        assert is_fused(frozen, *long)
        for given in (inputs(1), inputs(5, 3), inputs(3, 0)):
            if given[0].numel() == 0 and name == "one matrix":
                continue  # there is none
            actual, eager = frozen(*given), model(*given)
            assert (actual.dtype, actual.shape) == (eager.dtype, eager.shape)
            torch.testing.assert_close(actual, eager, rtol=0.05, atol=0.03)
    assert "scaled_dot_product" not in text_of(jit_amp.freeze(model, example_inputs=long).graph)


BLOCKS = {  # inputs, and how many blocks there are: more where numbers are added in float32
    "one head after the other, in parts": (inputs(1500), (4, 6)),
    "many batches at once, then the rest": (inputs(256, 24), (2, 3)),
}
EXACT = ["in float32", "baddbmm"]  # the product is not rounded, or not alone


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("name", [name for name in FUSED if name != "one matrix"])
def test_in_blocks(name: str, blocks: str, tmp_path: Path) -> None:
    model, (given, counts) = made(FUSED[name], tmp_path), BLOCKS[blocks]
    with torch.no_grad():
        frozen = server(model, inputs(4, 2), slow_kernel=True)
        assert_as_exact(frozen, model, given)
        if emulates(torch.bfloat16) or name in EXACT:
            assert is_fused(frozen, *given) == (emulates(torch.bfloat16) or given[0].size(1) > LONG)
        else:
            assert blocks_of(frozen, *given) in counts
            assert not is_fused(frozen, *given)


def test_blocks_of_few_queries(tmp_path: Path) -> None:
    """They are faster than PyTorch's kernel everywhere, but for a few scores."""
    frozen = server(made(FUSED["masked"], tmp_path), inputs(4, 2), slow_kernel=False)
    with torch.no_grad():
        for given, is_in_blocks in (
            (inputs(256, 24), True),
            (inputs(256, 8), False),
            (inputs(100, 200), False),
            (inputs(1500), False),
        ):
            expected = is_in_blocks and not emulates(torch.bfloat16)
            assert bool(blocks_of(frozen, *given)) == expected


def test_a_mask_of_each_batch_in_blocks(tmp_path: Path) -> None:
    model = made("s = q @ k.mT\ns = s.masked_fill(~mask[:, None], -1e9)\n" + SUM, tmp_path)
    x, mask = inputs(256, 24)
    lengths = torch.arange(1, 25) * 10
    masks = mask & (torch.arange(256) < lengths[:, None])[:, None]
    with torch.no_grad():
        frozen = server(model, (x, masks), slow_kernel=True)
        assert_as_exact(frozen, model, (x, masks))
        assert bool(blocks_of(frozen, x, masks)) != emulates(torch.bfloat16)


STRANGE = {
    "a scale of nothing": "s = q @ k.mT * 0.0\n" + SUM,
    "next to nothing": "s = q @ k.mT * 1e-50\n" + SUM,
    "more than float32 has": "s = q @ k.mT * 1e39\n" + SUM,
    "too much and too little": "s = q @ k.mT * 1e30 * 1e30 * 1e-60\n" + SUM,
    "scores as float16": "s = (q @ k.mT * 1e6).half() * 0.1\np = s.softmax(-1)\nreturn p.to(v) @ v",
    "an einsum into columns": (
        "s = torch.einsum('bhqd,bhkd->bhqk', q, k) * 0.35\n"
        "return torch.einsum('bhqk,bhkd->bhdq', s.softmax(-1), v)"
    ),
    "an einsum of one batch of values": (
        "s = torch.einsum('bhqd,bhkd->bhqk', q, k) * 0.35\n"
        "return torch.einsum('bhqk,bhkd->bqhd', s.softmax(-1), v[:1])"
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_as_it_is_written(name: str, tmp_path: Path) -> None:
    """What blocks would give otherwise, or with other strides."""
    model, given = made(STRANGE[name], tmp_path), inputs(256, 24)
    with torch.no_grad():
        frozen = server(model, inputs(4, 2), slow_kernel=True)
        eager = model(*given)
        for _ in range(3):
            actual = frozen(*given)
            assert actual.stride() == eager.stride()
            torch.testing.assert_close(actual, eager, rtol=0.05, atol=0.03, equal_nan=True)


EXACTLY = {
    "a baddbmm that adds": (
        "q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)\n"
        "s = torch.baddbmm(self.bias[:1, :n, :n], q, k.mT)\nreturn torch.bmm(s.softmax(-1), v)"
    ),
    "scores that are scaled in float32": (
        "q, k = q.sign(), k.sign()\ns = (q @ k.mT).float() * 0.13\n"
        "return s.softmax(-1).to(v.dtype) @ v"
    ),
}


@pytest.mark.parametrize("name", EXACTLY)
def test_blocks_round_no_more_often(name: str, tmp_path: Path) -> None:
    model = made(EXACTLY[name], tmp_path)
    with torch.no_grad():
        frozen = server(model, inputs(4, 2), slow_kernel=True)
        assert_as_exact(frozen, model, inputs(256, 24))


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64])
def test_the_callers_default_dtype_is_not_asked(default: torch.dtype, tmp_path: Path) -> None:
    model, given = made(FUSED["a bias"], tmp_path), inputs(256, 24)
    with torch.no_grad():
        frozen = server(model, inputs(4, 2), slow_kernel=True)
        expected = frozen(*given)
        torch.set_default_dtype(default)
        try:
            assert torch.equal(frozen(*given), expected)
        finally:
            torch.set_default_dtype(torch.float32)


POOLED = {
    "one query": "return (keys @ query).softmax(-1) @ keys",
    "from the left": "return (query @ keys.mT).softmax(-1) @ keys",
}


@pytest.mark.parametrize("body", POOLED.values(), ids=POOLED)
def test_one_query_without_a_dimension(body: str, tmp_path: Path) -> None:
    model = made(f"query, keys = q[0, 0, 0], k[0, 0]\n{body}", tmp_path)
    with torch.no_grad():
        frozen = server(model, inputs(4))
        for n in (10, 200, 900):
            torch.testing.assert_close(frozen(*inputs(n)), model(*inputs(n)), rtol=0.05, atol=0.03)


def test_what_was_widened_and_then_written_to(tmp_path: Path) -> None:
    body = (
        "wide = q.float()\nwith torch.autocast('cpu', enabled=False):\n"
        "    wide.mul_(5.123)\n    s = wide @ k.float().mT\n    p = s.softmax(-1).to(v.dtype)\n"
        "return p @ v"
    )
    model = made(body, tmp_path)
    with torch.no_grad():
        assert_as_exact(server(model, inputs(4)), model, inputs(LONG))


def test_float16_overflows_as_in_eager(tmp_path: Path) -> None:
    model = made("s = (q * 1e3) @ (k * 1e3).mT * 1e-4\n" + SUM, tmp_path, "float16")
    with torch.no_grad():
        actual, eager = server(model, inputs(4))(*inputs(LONG)), model(*inputs(LONG))
    assert eager.isnan().any()
    assert torch.equal(actual.isnan(), eager.isnan())


@pytest.mark.parametrize("name", ["scaled", "masked", "a bias", "einsum"])
def test_float16(name: str, tmp_path: Path) -> None:
    model, long = made(FUSED[name], tmp_path, "float16"), inputs(LONG)
    with torch.no_grad():
        frozen = server(model, inputs(4, 2))
        assert_as_exact(frozen, model, long)
        assert is_fused(frozen, *long)


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_left(body: str, tmp_path: Path) -> None:
    given = inputs(40)
    model = made(body, tmp_path)
    with torch.no_grad():
        frozen = server(model, given)
        assert "scaled_dot_product" not in text_of(frozen.graph)
        torch.manual_seed(0)
        actual = frozen(*given)
        torch.manual_seed(0)
        torch.testing.assert_close(actual, model(*given), rtol=0.05, atol=0.05)


def nothing_left(n: int) -> Tensor:
    mask = causal(n)
    mask[3] = False
    return mask


@pytest.mark.parametrize("name", ["masked", "where", "columns, masked", "masked and biased"])
def test_a_query_that_may_look_at_nothing(name: str, tmp_path: Path) -> None:
    """Eager gives NaN for minus infinity, and a mean for a low number."""
    model = made(FUSED[name], tmp_path)
    given = (inputs(LONG)[0], nothing_left(LONG))
    with torch.no_grad():
        frozen = server(model, inputs(4))
        actual, eager = frozen(*given), model(*given)
        assert not is_fused(frozen, *given)
    assert torch.equal(actual.isnan(), eager.isnan())
    torch.testing.assert_close(actual, eager, rtol=0.05, atol=0.03, equal_nan=True)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_scores_that_are_infinite(value: float, tmp_path: Path) -> None:
    model = made(FUSED["scaled"], tmp_path)
    x, mask = inputs(LONG)
    x[0, 5, 0] = value
    with torch.no_grad():
        actual, eager = server(model, inputs(4))(x, mask), model(x, mask)
    assert eager.isnan().any()
    assert torch.equal(actual.isnan(), eager.isnan())


def test_scores_as_low_as_what_is_masked(tmp_path: Path) -> None:
    model = made("s = (q @ k.mT).masked_fill(~mask, -1e4)\n" + SUM, tmp_path)
    x, mask = inputs(LONG)
    with torch.no_grad():
        frozen = server(model, inputs(4))
        assert is_fused(frozen, x, mask)
        assert not is_fused(frozen, x * 300, mask)
        torch.testing.assert_close(frozen(x * 300, mask), model(x * 300, mask), rtol=0.05, atol=0.5)


@pytest.mark.parametrize(
    "body",
    [
        "s = q @ k.transpose(-2, -1)\np = s.softmax(-1)\nreturn p @ v[..., :4]",
        "s = q[:, :1] @ k.transpose(-2, -1)\n" + SUM,
        "q, k, v = q[None], k[None], v[None]\ns = q @ k.transpose(-2, -1)\n" + SUM,
        "s = q @ k.transpose(-2, -1)\nreturn s.softmax(1) @ v",
        "s = q @ k.transpose(-2, -1) + mask[None, None, None].float()\n" + SUM,
    ],
    ids=["narrow values", "one head of queries", "five dimensions", "a softmax", "a mask of five"],
)
def test_shapes_that_the_operator_does_not_take(body: str, tmp_path: Path) -> None:
    model, given = made(body, tmp_path), inputs(LONG)
    with torch.no_grad():
        frozen = server(model, inputs(4))
        assert "scaled_dot_product" in text_of(frozen.graph)
        assert not is_fused(frozen, *given)
        torch.testing.assert_close(frozen(*given), model(*given), rtol=0.05, atol=0.05)


def test_gradients(tmp_path: Path) -> None:
    model = made(FUSED["scaled"], tmp_path)
    frozen = server(model, inputs(4))
    gradients = []
    for call in (frozen, model):
        x, mask = inputs(6)
        call(x.requires_grad_(), mask).float().square().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0.05, atol=0.05)
