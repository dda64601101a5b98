"""asteroid: separation and enhancement of speech, small, traced; functions of it are scripted."""

from __future__ import annotations

# Before torchaudio.
import torchaudio_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator

import torch
from asteroid.models import (
    ConvTasNet,
    DCUNet,
    DeMask,
    DPRNNTasNet,
    DPTNet,
    LSTMTasNet,
    SuDORMRFImprovedNet,
    SuDORMRFNet,
)
from catalog import Calls, Model
from torch import nn
from ways import Args, Trace


def _speech(count: int) -> Args:
    return (torch.randn(count, 2048),)


_MODELS: dict[str, Callable[[], nn.Module]] = {
    "ConvTasNet": lambda: ConvTasNet(2, n_blocks=2, n_repeats=1, bn_chan=16, hid_chan=32,
                                     skip_chan=16, n_filters=32),
    "DPRNNTasNet": lambda: DPRNNTasNet(2, bn_chan=16, hid_size=16, chunk_size=20, n_repeats=1,
                                       n_filters=16, rnn_type="GRU"),
    "DPTNet": lambda: DPTNet(2, n_heads=2, ff_hid=16, chunk_size=20, n_repeats=1, n_filters=16,
                             rnn_type="GRU"),
    "LSTMTasNet": lambda: LSTMTasNet(2, rnn_type="gru", n_layers=1, hid_size=16, n_filters=16),
    "SuDORMRF": lambda: SuDORMRFNet(2, bn_chan=16, num_blocks=1, upsampling_depth=2, n_filters=32),
    "SuDORMRF, improved": lambda: SuDORMRFImprovedNet(
        2, bn_chan=16, num_blocks=1, upsampling_depth=2, n_filters=32),
    "DeMask": lambda: DeMask(hidden_dims=(32,)),
    "DCUNet": lambda: DCUNet("mini", fix_length_mode="pad"),
}  # fmt: skip


def models() -> Iterator[Model]:
    for name, build in _MODELS.items():
        calls = Calls(_speech(2), (_speech(1), _speech(3)))
        yield Model("asteroid", name, "audio", build, lambda _, calls=calls: [calls], Trace())
