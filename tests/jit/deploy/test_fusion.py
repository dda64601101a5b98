"""Artefacts under `torch.jit.enable_onednn_fusion(True)`: what it fails on, said otherwise.

Each model has one construct that the fusion fails on, or gets another dtype of, where it is as
PyTorch's freezing leaves it. `test_it_fails_without` shows that; when it does not any more, PyTorch
has mended it, and the pass that it names can go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import jit_amp

from ..support import text_of
from .test_elsewhere import assert_close, onednn_fusion

BF16 = torch.bfloat16


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.register_buffer("scale", torch.tensor(0.1))
        self.register_buffer("offset", torch.linspace(0, 1, 6))


class MaxPool(Base):
    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(self.conv(x), 2)


class AveragePool(Base):
    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(x), 2)


class ReluBeforeFlatten(Base):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.conv(x)).flatten(1)


class ReluBeforeIndex(Base):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.conv(x))[:, 0]


class TimesScale(Base):
    """float32, without dimensions."""

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.conv(x)


class ByScale(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.scale / self.conv(x).exp()


class ScaleInPlace(Base):
    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x *= self.scale
        return x


class OffsetInPlace(Base):
    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x += self.offset
        return x


class Silu(Base):
    """A server's artefact has it twice: in the layer, and in a branch that is not taken."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.linear(self.conv(x)))


class TimesNumber(Base):
    """The tracer makes a float64 constant of the number."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x) * 0.25
        return x @ x.transpose(-2, -1)


MODELS = (
    MaxPool,
    AveragePool,
    ReluBeforeFlatten,
    ReluBeforeIndex,
    TimesScale,
    ByScale,
    ScaleInPlace,
    OffsetInPlace,
    Silu,
    TimesNumber,
)
# What names the fault, by the pass that goes around it: an error, or the dtype that comes out.
WITHOUT: dict[type[Base], tuple[str, str | torch.dtype]] = {
    MaxPool: ("write_strides", "could not set attribute to the op"),
    AveragePool: ("write_strides", "could not set attribute to the op"),
    ReluBeforeFlatten: ("write_activations", "could not add op to the graph"),
    ReluBeforeIndex: ("write_activations", "could not add op to the graph"),
    TimesScale: ("keep_zero_dim", torch.float32),
    ByScale: ("keep_zero_dim", torch.float32),
    ScaleInPlace: ("keep_in_place", torch.float32),
    OffsetInPlace: ("keep_in_place", torch.float32),
}


class Autocast(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(x)


def called(module: Any, x: Tensor) -> Tensor:
    """Observed, fused, fused."""
    for _ in range(3):
        result = module(x)
    return result


@pytest.mark.parametrize("target", ["portable", "server"])
@pytest.mark.parametrize("made", [torch.jit.script, jit_amp.trace], ids=["scripted", "traced"])
@pytest.mark.parametrize("make", MODELS)
@torch.no_grad()
def test_it_runs(make: Callable[[], nn.Module], made: Any, target: str) -> None:
    model, x = Autocast(make()).eval().requires_grad_(False), torch.randn(2, 3, 8, 8)
    source = jit_amp.trace(model, x) if made is jit_amp.trace else model
    expected = model(x)
    frozen = jit_amp.freeze(source, example_inputs=(x,), target=target)
    assert_close(called(frozen, x), expected)
    again = jit_amp.freeze(source, example_inputs=(x,), target=target)
    with onednn_fusion():
        assert_close(called(again, x), expected)


@pytest.mark.parametrize("make", WITHOUT)
@torch.no_grad()
def test_it_fails_without(make: type[Base]) -> None:
    model, x = make().eval().requires_grad_(False).to(BF16), torch.randn(2, 3, 8, 8).to(BF16)
    model.scale, model.offset = model.scale.float(), model.offset.float()
    assert model(x).dtype == BF16
    plain = torch.jit.freeze(torch.jit.script(model))
    _, fault = WITHOUT[make]
    with onednn_fusion():
        if isinstance(fault, str):
            with pytest.raises(RuntimeError, match=fault):
                called(plain, x)
        else:
            assert called(plain, x).dtype == fault


class Padded(Base):
    """With arithmetic on what is made in a branch that the first call does not take."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if x.size(2) % 2 == 1:
            x = F.pad(x, (0, 1)) * 0.5
        return x.relu()


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


BRANCHES = [(Padded, (2, 3, 8, 8)), (Encoder, (2, 3, 16))]


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(("make", "shape"), BRANCHES)
@torch.no_grad()
def test_a_branch_that_is_not_taken_is_not_in_a_trace(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    """What docs/limits.md says to do. The fusion asks for a dtype that nobody has seen."""
    model, x = make().eval().requires_grad_(False), torch.randn(shape)
    plain = torch.jit.freeze(torch.jit.script(model))
    under = Autocast(model).eval()
    traced = jit_amp.freeze(jit_amp.trace(under, x), example_inputs=(x,))
    server = jit_amp.freeze(under, example_inputs=(x,), target="server")
    assert_close(called(server, x), under(x))
    with onednn_fusion():
        with pytest.raises(RuntimeError, match="bad optional access"):
            called(plain, x)
        assert_close(called(traced, x), under(x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4, num_layers=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


def test_freezing_runs_nothing_that_is_fused() -> None:
    """What is computed while freezing was optimised when it ran a second time, and crashed."""
    scripted = jit_amp.script(Recurrent().eval(), autocast=torch.autocast("cpu", dtype=BF16))
    x = torch.randn(3, 2, 4)
    with onednn_fusion(), torch.no_grad():
        for target in ("portable", "server", "portable"):
            frozen = jit_amp.freeze(scripted, example_inputs=(x,), target=target)
            assert_close(frozen(x), scripted(x))


class Residual(nn.Module):
    def __init__(self, activation: nn.Module, in_place: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, padding=1)
        self.head, self.activation, self.in_place = nn.Linear(8, 8), activation, in_place

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = self.second(x)
        if self.in_place:
            y += x
        else:
            y = x + y
        y = self.activation(self.activation(y).mean([2, 3]))
        return self.activation(self.head(y) + y)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU(inplace=True), nn.SiLU()], ids=repr)
def test_the_server_form_has_what_it_takes(activation: nn.Module, in_place: bool) -> None:
    """Sums and silu stand in branches that are not taken."""
    model, x = Residual(activation, in_place).eval(), torch.randn(2, 3, 8, 8)
    scripted = jit_amp.script(model, autocast=torch.autocast("cpu", dtype=BF16))
    with onednn_fusion(), torch.no_grad():
        frozen = jit_amp.freeze(scripted, example_inputs=(x,), target="server")
        assert '"add"' in text_of(frozen.graph)
        for given in (x, x, x, x[:1], x[:0]):
            assert_close(frozen(given), scripted(given))
