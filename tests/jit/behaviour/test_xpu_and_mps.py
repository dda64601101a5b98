"""XPU and MPS: in process scopes are entered as they run, and freezing casts by their lists.

The programs name "cpu"; they run for the device that the tests pretend.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp import policy

from ..support import assert_same, for_scope, fresh, imported, operators_of_ours

BF16, F16 = torch.bfloat16, torch.float16
DEVICES = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("xpu", "mps")]
each_device = pytest.mark.parametrize("device", DEVICES)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.group, self.last = nn.GroupNorm(2, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = torch.relu(self.norm(self.conv(x)))
            h = self.group(h) + h
            h = self.last(h.mean((2, 3)))
            return h, torch.softmax(h, 1), h.sum(), torch.cat([h, h.float()])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            q, k, v = self.inner(self.norm(x)).chunk(3, -1)
            weights = torch.softmax(q @ k.transpose(-2, -1) / 2.0, -1)
            return weights @ v, torch.exp(v), torch.nn.functional.gelu(v), v.pow(2.0)


class Nested(nn.Module):
    def forward(self, x: Tensor):
        h = x.reshape(-1, x.size(-1))
        with torch.autocast("cpu", dtype=torch.float16):
            h = h @ h.t()
            with torch.autocast("cpu", enabled=False):
                h = h.float() @ h.float()
            task = torch.jit.fork(torch.nn.functional.softplus, h)
            for _ in range(2):
                h = h @ h.softmax(-1)
            return torch.addcmul(h, h.float(), h), torch.jit.wait(task)


class Default(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu"):
            h = x.flatten(0, -2)
            h = h.to(torch.get_autocast_dtype("cpu"))
            return h @ h.t(), torch.is_autocast_enabled("cpu")


class OfItsInput(nn.Module):
    """The device is known when it runs."""

    def forward(self, x: Tensor):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            h = x.flatten(0, -2)
            return torch.mm(h, h.t()), h.log1p(), h.sum(-1)


class BesideCpu(nn.Module):
    def forward(self, x: Tensor):
        c = x.cpu().flatten(0, -2)
        h = x.flatten(0, -2)
        with torch.autocast("cpu", dtype=torch.float16), torch.autocast("cuda", enabled=False):
            return h @ h.t(), c.float() @ c.float().t(), torch.log(h)


class Volumes(nn.Module):
    """MPS has no kernel of a reduced dtype for it: its list says float32."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose3d(3, 2, 2)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.up(x.unsqueeze(2))


MODELS = [Layers, Attention, Nested, Default, OfItsInput, BesideCpu, Volumes]


def made(cls: type[nn.Module], device: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    module = for_scope(cls, device)().eval().to(device)
    return module, torch.rand(2, 3, 8, 8).to(device)


def check(function: Any, module: nn.Module, *inputs: Tensor) -> None:
    for given in inputs:
        for _ in range(3):
            assert_same(function(*fresh([given])), module(*fresh([given])), str(given.dtype))


@each_device
@pytest.mark.parametrize("cls", MODELS)
def test_scripted(cls: type[nn.Module], device: str) -> None:
    module, x = made(cls, device)
    scripted = jit_amp.script(copy.deepcopy(module))
    for ambient in (device, "cpu"):
        for enabled in (False, True):
            with torch.autocast(ambient, dtype=BF16, enabled=enabled):
                check(scripted, module, x, x.half())


@each_device
@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean")
@pytest.mark.parametrize("cls", [Layers, Attention, BesideCpu])
def test_traced(cls: type[nn.Module], device: str) -> None:
    module, x = made(cls, device)
    with torch.no_grad():
        check(jit_amp.trace(copy.deepcopy(module), (x,)), module, x)


@each_device
@pytest.mark.parametrize("examples", [True, False])
@pytest.mark.parametrize("cls", MODELS)
def test_frozen(cls: type[nn.Module], examples: bool, device: str) -> None:
    module, x = made(cls, device)
    given = (x,) if examples else None
    frozen = jit_amp.freeze(copy.deepcopy(module), example_inputs=given, optimize_numerics=False)
    with torch.no_grad():
        check(frozen, module, x, x[:1])
    assert not operators_of_ours(frozen.graph)


@pytest.mark.xpu
def test_a_batch_norm_is_folded_in_float32() -> None:
    """Not for MPS, whose batch norms give float32."""
    module, x = made(Layers, "xpu")
    frozen = jit_amp.freeze(copy.deepcopy(module), example_inputs=(x,))
    assert "aten::batch_norm" not in {node.kind() for node in frozen.graph.nodes()}
    with torch.no_grad():
        ours, eager = frozen(x)[0], module(x)[0]
    assert ours.dtype == eager.dtype
    torch.testing.assert_close(ours.cpu(), eager.cpu(), atol=0.05, rtol=0.05)


@each_device
def test_what_no_kernel_was_seen_to_do_is_refused(device: str, tmp_path: Path) -> None:
    source = f"""
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 8)

    def forward(self, x: torch.Tensor):
        with torch.autocast("{device}", dtype=torch.float16):
            return self.lstm(x)[0]
"""
    module = imported(source, tmp_path / "recurrent.py").Net().eval().to(device)
    with pytest.raises(jit_amp.AutocastError, match=rf"`aten::lstm` inside .* for {device}"):
        jit_amp.freeze(module, example_inputs=(torch.rand(2, 1, 8).to(device),))


@each_device
def test_two_accelerators_are_refused(device: str, tmp_path: Path) -> None:
    source = f"""
import torch

class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            x = x @ x
        with torch.autocast("{device}", dtype=torch.float16):
            return x @ x
"""
    module = imported(source, tmp_path / "two.py").Net().eval()
    with pytest.raises(jit_amp.AutocastError, match=rf"`aten::matmul` inside .* for {device}"):
        jit_amp.freeze(module)


@pytest.mark.parametrize(
    ("overload", "xpu", "mps"),
    [
        ("aten::mm", "lower", "lower"),
        ("aten::sum", "fp32_opt_dtype", "fp32"),
        ("aten::batch_norm", None, "fp32"),
        ("aten::norm.ScalarOpt_dim", "fp32_append_dtype", None),
        ("aten::tanh", None, None),
        ("aten::binary_cross_entropy", "banned", None),
        ("aten::grid_sampler", "promote", "promote"),
        ("aten::cudnn_convolution", None, None),
    ],
)
def test_lists(overload: str, xpu: str | None, mps: str | None) -> None:
    assert (policy.table("xpu").get(overload), policy.table("mps").get(overload)) == (xpu, mps)


def test_xpus_lists_are_cudas() -> None:
    """So what was seen to reach none of CUDA's operators reaches none of XPU's."""
    cuda, xpu = policy.table("cuda"), policy.table("xpu")
    assert xpu.items() <= cuda.items()
    assert {name for name in cuda if name not in xpu} == {
        "aten::cudnn_convolution",
        "aten::cudnn_convolution_transpose",
        "aten::_cudnn_rnn",
    }


def test_mps_has_no_operator_that_cuda_has_not() -> None:
    """But for two, of which csrc/analysis/policy.cpp knows."""
    of_dimnames = {name for name in policy.table("mps") if name.lower().endswith(("name", "list"))}
    more = policy.table("mps").keys() - policy.table("cuda").keys() - of_dimnames
    assert more == {"aten::batch_norm", "aten::_mps_convolution"}


@pytest.mark.parametrize("device", ["xpu", "mps"])
@pytest.mark.parametrize(
    ("overload", "cast"),
    [
        ("aten::relu", "untouched"),  # its tag says that it is elementary
        ("aten::add_.Tensor", "untouched"),
        ("aten::view", "untouched"),
        ("aten::tril", "untouched"),
        ("aten::linalg_inv", "refused"),
        ("aten::max_pool2d", "untouched"),  # one code for all devices
        ("aten::multinomial", "refused"),  # a kernel of the device's own
        ("aten::mm", "cast"),
        ("aten::lstm.input", "refused"),
    ],
)
def test_reach(overload: str, cast: str, device: Any) -> None:
    assert policy.reach(device)[overload].partition(":")[0] == cast


def test_a_norm_of_instances_is_one_of_batches_on_mps() -> None:
    assert policy.reach("mps")["aten::instance_norm"].startswith("refused")
    assert policy.reach("xpu")["aten::instance_norm"] == "untouched"


@each_device
def test_a_policy_cannot_be_registered(device: Any) -> None:
    """In process the dispatcher's own autocast runs there, which knows nothing of it."""
    with pytest.raises(ValueError, match=f"'{device}' is none of 'cpu', 'cuda'"):
        policy.register("aten::add", device, "lower")


class Norms(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            y = x @ x
            return (y).norm(), y.norm(2), torch.norm(y), x.norm()  # fmt: skip


class ComplexNorm(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            return x.norm()


@each_device
def test_norms_are_pythons(device: str) -> None:
    """`x.norm()` is torch.norm, a function in Python that asks for the device."""
    x = torch.rand(4, 4).to(device)
    cases = (Norms, x), (ComplexNorm, torch.rand(4, 4).to(torch.complex64).to(device))
    for kind, argument in cases:
        net = for_scope(kind, device)()
        scripted = jit_amp.script(net)
        for call in range(3):
            assert_same(scripted(argument), net(argument), f"{kind.__name__}, call {call}")
