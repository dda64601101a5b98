"""silero-vad: the TorchScript file that it comes with, loaded with torch.jit.load."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import torch
from catalog import Calls, Model
from torch import Tensor, nn
from ways import Args, Own, declared

_FILE = str(files("silero_vad.data").joinpath("silero_vad.jit"))


class _Stream(nn.Module):
    """Two chunks, one after the other, from the initial state on."""

    def __init__(self, vad: Any) -> None:
        super().__init__()
        self.vad = vad

    def __call__(self, *args: Any) -> Any:
        """With the file run by the dispatcher's autocast, which is eager's, and not by the pass of
        PyTorch's compiler that puts in casts of its own."""
        before = torch._C._jit_set_autocast_mode(False)
        try:
            return super().__call__(*args)
        finally:
            torch._C._jit_set_autocast_mode(before)

    def forward(self, chunks: Tensor, rate: int) -> Tensor:
        self.vad.reset_states()
        first = self.vad(chunks[:, 0], rate)
        return torch.cat([first, self.vad(chunks[:, 1], rate)], 1)


class _Load(Own):
    def compile(self, jit: Any, model: nn.Module, example: Args) -> Any:
        with self.through(jit):
            return torch.jit.script(_loaded(model) if isinstance(model, _Stream) else model)

    def scoped(self, model: nn.Module, plain: Any, example: Args) -> nn.Module:
        return declared(_loaded(model), plain, example)


def _loaded(stream: nn.Module) -> nn.Module:
    """Another, with the same weights."""
    other = _Stream(torch.jit.load(_FILE).eval())
    other.load_state_dict(stream.state_dict())
    return other.eval()


def models() -> Iterator[Model]:
    for rate, samples in ((16000, 512), (8000, 256)):

        def calls(_: nn.Module, rate: int = rate, samples: int = samples) -> list[Calls]:
            return [
                Calls(
                    (torch.randn(2, 2, samples) / 9, rate),
                    ((torch.randn(3, 2, samples) / 9, rate),),
                )
            ]

        yield Model(
            "silero_vad",
            f"{rate} Hz",
            "audio",
            lambda: _Stream(torch.jit.load(_FILE)),
            calls,
            _Load(),
        )
