"""asteroid: separation and enhancement of speech, small, scripted and traced."""

from __future__ import annotations

# Before torchaudio.
import torchaudio_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator

import torch
from asteroid.models import (
    ConvTasNet,
    DCCRNet,
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
from ways import Args, ScriptInScope, Trace


def _speech(count: int) -> Args:
    return (torch.randn(count, 2048),)


_MODELS: dict[str, Callable[[], nn.Module]] = {
    "ConvTasNet": lambda: ConvTasNet(2, n_blocks=2, n_repeats=1, bn_chan=16, hid_chan=32,
                                     skip_chan=16, n_filters=32),
    "DPRNNTasNet": lambda: DPRNNTasNet(2, bn_chan=16, hid_size=16, chunk_size=20, n_repeats=1,
                                       n_filters=16),
    "DPTNet": lambda: DPTNet(2, n_heads=2, ff_hid=16, chunk_size=20, n_repeats=1, n_filters=16),
    "LSTMTasNet": lambda: LSTMTasNet(2, rnn_type="LSTM", n_layers=1, hid_size=16, n_filters=16),
    "SuDORMRF": lambda: SuDORMRFNet(2, bn_chan=16, num_blocks=1, upsampling_depth=2, n_filters=32),
    "SuDORMRF, improved": lambda: SuDORMRFImprovedNet(
        2, bn_chan=16, num_blocks=1, upsampling_depth=2, n_filters=32),
    "DeMask": lambda: DeMask(hidden_dims=(32,)),
    "DCCRNet": lambda: DCCRNet("mini"),
    "DCUNet": lambda: DCUNet("mini"),
}  # fmt: skip


def models() -> Iterator[Model]:
    for name, build in _MODELS.items():
        for way in (ScriptInScope(), Trace()):
            calls = Calls(_speech(2), (_speech(1), _speech(3)))
            label = "trace" if isinstance(way, Trace) else "script"
            yield Model(
                "asteroid", f"{name}, {label}", "audio", build, lambda _, calls=calls: [calls], way
            )
