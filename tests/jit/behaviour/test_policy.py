"""Policies: the tables say what the running dispatcher does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from jit_amp import _C

# Overloads with an autocast kernel in torch 2.11 only, from 2.15 on, up to 2.13, or with CUDA only.
OF_SOME_RELEASES = {
    "aten::index_copy.dimname",
    "aten::prod.dim_Dimname",
    "aten::cumprod.dimname",
    "aten::cumsum.dimname",
    "aten::log_softmax.Dimname",
    "aten::softmax.Dimname",
    "aten::sum.dim_DimnameList",
    "aten::linalg_matrix_sqrth",
    "aten::cholesky",
    "aten::qr",
    "aten::_cudnn_rnn",
}

KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA", "xpu": "AutocastXPU", "mps": "AutocastMPS"}


def registered(device: str) -> set[str]:
    """The overloads for which the dispatcher has an autocast kernel."""
    kernels = torch._C._dispatch_get_registrations_for_dispatch_key(KEYS[device])
    return {kernel for kernel in kernels if kernel.startswith("aten::")}  # others' have no table


@pytest.mark.parametrize("device", KEYS)
def test_the_table_has_every_overload_that_the_dispatcher_has(device: str) -> None:
    missing = registered(device) - set(_C.policy_table(device))
    assert not missing, f"opaque until the table has them: {sorted(missing)}"


@pytest.mark.parametrize("device", KEYS)
def test_the_table_has_no_overload_that_the_dispatcher_has_not(device: str) -> None:
    gone = set(_C.policy_table(device)) - registered(device) - OF_SOME_RELEASES
    assert not gone, f"this torch does not cast them: {sorted(gone)}"


@pytest.mark.parametrize("device", ["hpu", "meta"])
def test_other_devices_have_no_table(device: str) -> None:
    assert _C.policy_table(device) == {}


@pytest.mark.parametrize(
    ("overload", "cpu", "cuda"),
    [
        ("aten::mm", "lower", "lower"),
        ("aten::sum", None, "fp32_opt_dtype"),
        ("aten::sum.dim_IntList", None, "fp32_opt_dtype"),
        ("aten::prod.dim_int", "fp32", "fp32_opt_dtype"),
        ("aten::norm.ScalarOpt_dim", None, "fp32_append_dtype"),
        ("aten::norm.ScalarOpt_dtype", None, None),
        ("aten::log", None, "fp32"),
        ("aten::avg_pool3d", "fp32", None),
        ("aten::fft_fft", "fp32", None),
        ("aten::binary_cross_entropy", "fp32", "banned"),
        ("aten::cat", "promote", None),
        ("aten::addcmul", None, "promote"),
        ("aten::cudnn_convolution", None, "lower"),
        ("aten::add.Tensor", None, None),
    ],
)
def test_the_devices_have_lists_of_their_own(
    overload: str, cpu: str | None, cuda: str | None
) -> None:
    assert _C.policy_table("cpu").get(overload) == cpu
    assert _C.policy_table("cuda").get(overload) == cuda


# The category of an entry, seen from outside: which dtypes a kernel below autocast is handed.


@dataclass(frozen=True)
class Call:
    function: Callable[..., Any]
    overload: str
    arguments: tuple[Any, ...]


def randn(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape).to(dtype)


def calls(dtype: torch.dtype) -> list[Call]:
    a, b, v = randn(3, 3, dtype=dtype), randn(3, 3, dtype=dtype), randn(3, 3, 3, dtype=dtype)
    image = randn(1, 2, 5, 5, dtype=dtype)
    volume = randn(1, 2, 4, 4, 4, dtype=dtype)
    unit = a.float().sigmoid().to(dtype)
    return [
        Call(torch.mm, "aten::mm", (a, b)),
        Call(torch.bmm, "aten::bmm", (v, v)),
        Call(torch.matmul, "aten::matmul", (a, b)),
        Call(torch.addmm, "aten::addmm", (a, a, b)),
        Call(torch.baddbmm, "aten::baddbmm", (v, v, v)),
        Call(torch._C._nn.linear, "aten::linear", (a, b, b[0])),
        Call(torch.conv2d, "aten::conv2d", (image, image)),
        Call(torch.prelu, "aten::prelu", (a, a[0])),
        Call(torch.cdist, "aten::cdist", (a, b)),
        Call(torch.prod, "aten::prod", (a,)),
        Call(torch.trace, "aten::trace", (a,)),
        Call(torch.inverse, "aten::inverse", (a,)),
        Call(torch.quantile, "aten::quantile.scalar", (a, 0.5)),
        Call(torch._C._nn.mse_loss, "aten::mse_loss", (a, b)),
        Call(torch._C._nn.avg_pool3d, "aten::avg_pool3d", (volume, 2)),
        Call(torch._C._nn.reflection_pad2d, "aten::reflection_pad2d", (image, (1, 1, 1, 1))),
        Call(torch._C._nn.binary_cross_entropy, "aten::binary_cross_entropy", (unit, unit)),
        Call(torch.cat, "aten::cat", ([a, b],)),
        Call(torch.stack, "aten::stack", ([a, b],)),
        Call(torch.index_copy, "aten::index_copy", (a, 0, torch.tensor([0]), b[:1])),
        Call(torch.sum, "aten::sum", (a,)),
        Call(torch.log, "aten::log", (unit,)),
        Call(torch.relu, "aten::relu", (a,)),
        Call(torch.add, "aten::add.Tensor", (a, b)),
    ]


def dtype_by_policy(policy: str | None, given: torch.dtype) -> torch.dtype:
    if policy == "lower":
        return torch.bfloat16
    return torch.float32 if policy == "fp32" else given


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
def test_a_cpu_entrys_policy_is_the_dtype_that_eager_computes_in(given: torch.dtype) -> None:
    table = _C.policy_table("cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = {call.overload: call.function(*call.arguments).dtype for call in calls(given)}
    assert actual == {name: dtype_by_policy(table.get(name), given) for name in actual}
