"""torchcrepe: pitch, traced."""

from __future__ import annotations

# Before torchaudio.
import torchaudio_extension  # noqa: F401  # isort: skip

from collections.abc import Iterator

import torch
from catalog import Calls, Model
from torch import Tensor, nn
from torchcrepe.model import Crepe
from ways import Trace


class _Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.crepe = Crepe("tiny")

    def forward(self, frames: Tensor) -> Tensor:
        return self.crepe(frames, embed=True)


def models() -> Iterator[Model]:
    def calls(_: nn.Module) -> list[Calls]:
        return [Calls((torch.randn(4, 1024),), ((torch.randn(1, 1024),), (torch.randn(9, 1024),)))]

    yield Model("torchcrepe", "tiny", "audio", lambda: Crepe("tiny"), calls, Trace())
    yield Model("torchcrepe", "embedding", "audio", _Embedding, calls, Trace())
