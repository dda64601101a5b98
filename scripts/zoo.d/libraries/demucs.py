"""demucs: separation of music in time and frequency, small, traced."""

from __future__ import annotations

# Before torchaudio.
import torchaudio_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator

import torch
from catalog import Calls, Model
from demucs.hdemucs import HDemucs
from demucs.htdemucs import HTDemucs
from torch import nn
from ways import Args, Trace

_SOURCES = ["drums", "other"]


def _mix(count: int) -> Args:
    return (torch.randn(count, 2, 8192),)


_MODELS: dict[str, Callable[[], nn.Module]] = {
    "HDemucs": lambda: HDemucs(_SOURCES, channels=8, nfft=256, depth=4, dconv_lstm=9),
    "HTDemucs": lambda: HTDemucs(
        _SOURCES, channels=8, nfft=512, depth=3, t_layers=2, t_heads=2, use_train_segment=False
    ),
}


def models() -> Iterator[Model]:
    for name, build in _MODELS.items():
        calls, way = Calls(_mix(1), (_mix(2),)), Trace(check_trace=False)
        yield Model("demucs", name, "audio", build, lambda _, calls=calls: [calls], way)
