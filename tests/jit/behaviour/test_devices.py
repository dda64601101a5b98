"""CPU and CUDA in one program, and what is CUDA's alone."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import (
    DEVICES,
    PLACES,
    Place,
    assert_parity,
    assert_same,
    for_scope,
    fresh,
    tree_map,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*CUDA is not available")
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def in_cudas(x: Tensor, y: Tensor):
    with torch.autocast("cuda", dtype=torch.float16):
        return x @ x, torch.tanh(y), x.sum(), torch.softmax(y.half(), 0), y @ y


def in_both(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cuda", dtype=torch.float16):
        a, b = x @ x, y @ y
        return a, b, torch.cat([a, x]), torch.cat([b, y]), torch.pow(b, 2), torch.pow(a, 2)


def one_inside_the_other(x: Tensor, y: Tensor):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        a = y @ y
        with torch.autocast("cpu", dtype=torch.float16):
            b = x @ x
            with torch.autocast("cuda", enabled=False):
                return a, b, y @ y, (y @ y) + 1.0, x @ x
    return a, a, a, a, a


def moved(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cuda", dtype=torch.float16):
        a = x @ x
        return a.to(y.device), (y @ y).cpu() + a.cpu(), a.to(y) * y


PAIRS = [
    ("cpu", "cpu"),
    pytest.param("cpu", "cuda", marks=pytest.mark.cuda),
    pytest.param("cuda", "cpu", marks=pytest.mark.cuda),
    pytest.param("cuda", "cuda", marks=pytest.mark.cuda),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("function", [in_cudas, in_both, one_inside_the_other, moved])
def test_mixed_devices(function: Callable[..., Any], first: str, second: str) -> None:
    inputs = torch.randn(4, 4, device=first), torch.randn(4, 4, device=second)
    assert_parity(function, inputs)
    trace = jit_amp.trace(function, fresh(inputs))
    # `a.to(y)` is a constant dtype in a trace.
    wide = [] if function is moved else [tree_map(torch.Tensor.double, inputs)]
    for others in (inputs, *wide):
        for _ in range(3):
            assert_same(trace(*fresh(others)), function(*fresh(others)), "traced")


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu"), torch.autocast("cuda"):
            return self.norm(self.linear(x)), self.linear(x)


@pytest.mark.cuda
def test_a_module_that_is_moved_after_scripting() -> None:
    module = Mixed()
    scripted = jit_amp.script(copy.deepcopy(module))
    for device in ("cpu", "cuda", "cpu"):
        x = torch.randn(2, 4, device=device)
        module.to(device), scripted.to(device)
        for _ in range(3):
            assert_same(scripted(x), module(x), device)


@pytest.mark.cuda
@torch.no_grad()
@pytest.mark.parametrize("examples", [False, True])
def test_an_artefact_on_another_device_than_it_was_frozen_for(examples: bool) -> None:
    """Right there, or refused: its weights were cast for the device that they were on."""
    module = Mixed().eval()
    given = (torch.randn(2, 4),) if examples else None
    file = io.BytesIO()
    torch.jit.save(jit_amp.freeze(copy.deepcopy(module), example_inputs=given), file)
    for device in ("cpu", "cuda"):
        file.seek(0)
        artefact = torch.jit.load(file, map_location=device)
        x = torch.randn(2, 4, device=device)
        for _ in range(3):
            if device == "cpu":
                assert_same(artefact(x), module.to(device)(x), device)
            else:
                with pytest.raises(Exception, match=r"jit_amp: .*cpu"):
                    artefact(x)


@pytest.mark.cuda
def test_bfloat16_on_a_gpu_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises where eager does: when the scope is entered, and not before or elsewhere."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_: False)

    def scoped(x: Tensor, flag: bool):
        with torch.autocast("cuda", dtype=torch.float16):
            y = x @ x
        if flag:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                y = x @ x
        return y

    for device in ("cuda", "cpu"):
        x = torch.randn(3, 3, device=device)
        for each in (x, x.clone().requires_grad_()):
            scripted = jit_amp.script(scoped)
            for _ in range(3):
                assert_same(scripted(each, False), scoped(each, False), device)
                for function in (scoped, scripted):
                    with pytest.raises(RuntimeError, match="does not support bfloat16"):
                        function(each, True)


# What TorchScript compiles to another operator than the one that eager runs.


def norms(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        return x.norm(), x.norm(2), x.norm(p=1.0, dim=0), torch.norm(x), x.norm(2, 0, True)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", [F32, F16, torch.float64, torch.complex64])
def test_norm_is_pythons(dtype: torch.dtype, place: Place) -> None:
    x = torch.randn(3, 3).to(dtype).to(place.tensors)
    assert_parity(for_scope(norms, place.scope), (x,))


def powers(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        z = x.clone()
        view = z[0]
        view **= 2
        z **= y
        return z, z**2, view


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", [F32, F16])
def test_powers_are_written_in_place(dtype: torch.dtype, place: Place) -> None:
    inputs = torch.rand(3, 3).to(dtype).to(place.tensors), torch.rand(3, 3).to(place.tensors)
    assert_parity(for_scope(powers, place.scope), inputs)


def powers_in_a_comment(x: Tensor, y: Tensor):
    z = (x  # not `**=`
         ** y)  # fmt: skip
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return z @ y, x


def test_a_power_that_is_only_spoken_of_is_not_written() -> None:
    assert_parity(powers_in_a_comment, (torch.rand(3, 3), torch.rand(3, 3)))


# What a trace must not take over from autocast.


def reductions(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        total = x.sum(), torch.prod(x), x.sum(0), torch.sum(x, 1, dtype=torch.float64)
        return total, torch.softmax(x, 0), x.cumsum(0), torch.log_softmax(x, 1), torch.cumprod(x, 0)


def vector_norms(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.norm(x), torch.linalg.vector_norm(x, dim=0), torch.linalg.matrix_norm(x)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("function", [reductions, vector_norms])
def test_a_trace_has_no_dtype_that_autocast_gave(function: Any, place: Place) -> None:
    function = for_scope(function, place.scope)
    x = torch.rand(3, 3, device=place.tensors)
    for made_with in (x, x.half()):
        trace = jit_amp.trace(function, (made_with,))
        for other in (x, x.half(), x.double(), x.bfloat16()):
            for _ in range(3):
                assert_same(trace(other), function(other), f"{made_with.dtype}, {other.dtype}")


@pytest.mark.parametrize("device", DEVICES)
def test_a_trace_sums_integers(device: str) -> None:
    def total(x: Tensor):
        with torch.autocast("cuda", dtype=torch.float16), warnings.catch_warnings():
            return x.sum(), torch.prod(x)

    x = torch.rand(3, 3, device=device)
    assert_same(jit_amp.trace(total, (x,))(x.long()), total(x.long()), "integers")


class OfWeights(nn.Module):
    """Autocast concerns weights alone, which are cast when freezing."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            return x + self.weight @ self.weight


class WithoutScopes(OfWeights):
    def forward(self, x: Tensor):
        return x + self.weight @ self.weight


@pytest.mark.cuda
@pytest.mark.parametrize(("on", "to"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_weights_stay_where_they_were_cast(on: str, to: str, tmp_path: Path) -> None:
    x = torch.rand(4, 4)
    for kind in (OfWeights, WithoutScopes):
        net = kind().eval()
        net.requires_grad_(False)
        jit_amp.freeze(net.to(on), optimize_numerics=False).save(tmp_path / "net.pt")
        there = torch.jit.load(tmp_path / "net.pt")
        moved = torch.jit.load(tmp_path / "net.pt", map_location=to)
        for call in range(3):
            assert_same(there(x.to(on)), net.to(on)(x.to(on)), f"where it was, call {call}")
        if kind is WithoutScopes:
            with torch.no_grad():  # what is constant was computed where it was frozen
                expected = x.to(to) + (net.to(on).weight @ net.weight).to(to)
            assert_same(moved(x.to(to)), expected, "without scopes it may be moved")
            continue
        for _ in range(3):
            with pytest.raises(torch.jit.Error, match=f"weights on {on}, and they are on {to}"):
                moved(x.to(to))
