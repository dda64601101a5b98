"""speechbrain: layers and encoders, traced as its own tests do it, and scripted where its recipes
name a module in `jit_modules`."""

from __future__ import annotations

# Before torchaudio.
import torchaudio_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator
from typing import Any

import torch
from catalog import Calls, Model
from speechbrain.lobes.models import CRDNN, ECAPA_TDNN, Xvector
from speechbrain.lobes.models.HifiGAN import HifiganGenerator
from speechbrain.lobes.models.transformer import Conformer, Transformer
from speechbrain.nnet import CNN, RNN, activations, linear, normalization, pooling
from torch import Tensor, nn
from ways import Args, Script, Trace, Way


def _frames(batch: int, length: int) -> Args:
    return (torch.randn(batch, length, 16),)


def _wave(batch: int, length: int) -> Args:
    return (torch.randn(batch, 40 * length),)


def _masks(batch: int, length: int) -> Args:
    return (torch.rand(batch, 16, length),)


class _Encoder(nn.Module):
    """Of a sequence, with the positions that it demands."""

    def __init__(self, encoder: nn.Module, positions: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder, self.positions = encoder, positions

    def forward(self, frames: Tensor) -> Tensor:
        if self.positions is None:
            return self.encoder(frames)[0]
        return self.encoder(frames, pos_embs=self.positions(frames))[0]


def _conformer() -> nn.Module:
    from speechbrain.nnet.attention import RelPosEncXL

    encoder = Conformer.ConformerEncoder(2, 16, 32, 2, kernel_size=7)
    return _Encoder(encoder, RelPosEncXL(16))


_TRACED: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], Args]]] = {
    "BatchNorm1d": (lambda: normalization.BatchNorm1d(input_size=16), _frames),
    "CRDNN": (
        lambda: CRDNN.CRDNN(
            input_shape=[2, 12, 16], cnn_blocks=1, cnn_channels=(4,), rnn_layers=1,
            rnn_neurons=8, dnn_blocks=1, dnn_neurons=16, time_pooling=True,
        ),
        _frames,
    ),
    "ConformerEncoder": (_conformer, _frames),
    "Conv1d": (lambda: CNN.Conv1d(8, 5, input_shape=(None, None, 16)), _frames),
    "DepthwiseSeparableConv1d": (
        lambda: CNN.DepthwiseSeparableConv1d(8, 5, input_shape=(None, None, 16)), _frames
    ),
    "ECAPA_TDNN": (
        lambda: ECAPA_TDNN.ECAPA_TDNN(
            16, lin_neurons=8, channels=[16] * 4 + [48], attention_channels=8, res2net_scale=4,
            se_channels=8,
        ),
        _frames,
    ),
    "GRU": (lambda: _First(RNN.GRU(8, input_shape=(None, None, 16), bidirectional=True)), _frames),
    "HifiganGenerator": (
        lambda: HifiganGenerator(
            16, 1, "1", [[1, 3, 5]], [3], [4, 4], 16, [2, 2], inference_padding=0
        ),
        _masks,
    ),
    "LSTM": (lambda: _First(RNN.LSTM(8, input_shape=(None, None, 16))), _frames),
    "LayerNorm": (lambda: normalization.LayerNorm(input_size=16), _frames),
    "LiGRU": (lambda: _First(RNN.LiGRU(8, input_shape=(2, 12, 16))), _frames),
    "Linear": (lambda: linear.Linear(8, input_size=16), _frames),
    "Pooling1d": (lambda: pooling.Pooling1d("max", 3), _frames),
    "SincConv": (lambda: CNN.SincConv(8, 25, in_channels=1), _wave),
    "Softmax": (lambda: activations.Softmax(apply_log=True), _frames),
    "StatisticsPooling": (lambda: pooling.StatisticsPooling(), _frames),
    "TransformerEncoder": (
        lambda: _Encoder(Transformer.TransformerEncoder(2, 2, 32, d_model=16)), _frames
    ),
    "Xvector": (
        lambda: Xvector.Xvector(
            tdnn_blocks=3, tdnn_channels=[16, 16, 24], tdnn_kernel_sizes=[5, 3, 1],
            tdnn_dilations=[1, 2, 1], lin_neurons=8, in_channels=16,
        ),
        _frames,
    ),
}  # fmt: skip
_SCRIPTED = ("Conv1d", "Linear", "Softmax")


class _First(nn.Module):
    """Without the state."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, frames: Tensor) -> Tensor:
        return self.model(frames)[0]


def models() -> Iterator[Model]:
    def of(name: str, way: Way, build: Callable[[], nn.Module], args: Any) -> Model:
        calls = Calls(args(2, 12), (args(1, 12), args(2, 17)))
        return Model("speechbrain", name, "audio", build, lambda _: [calls], way)

    for name, described in _TRACED.items():
        yield of(name, Trace(), *described)
    for name in _SCRIPTED:
        yield of(f"{name}, scripted", Script(), *_TRACED[name])
