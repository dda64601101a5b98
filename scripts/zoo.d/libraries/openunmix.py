"""openunmix: separation of sources, with torch.jit.script."""

from __future__ import annotations

# Before torchaudio.
import torchaudio_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator

import torch
from catalog import Calls, Model
from openunmix.model import OpenUnmix, Separator
from torch import nn
from ways import Args, Script


def _spectral(unidirectional: bool = False, layers: int = 2) -> nn.Module:
    return OpenUnmix(65, 2, 32, layers, unidirectional=unidirectional, max_bin=40)


def _separator(niter: int = 0, residual: bool = False, softmask: bool = False) -> nn.Module:
    targets = {"vocals": _spectral(), "drums": _spectral(True)}
    return Separator(
        targets, niter=niter, residual=residual, softmask=softmask, n_fft=128, n_hop=32
    )


def models() -> Iterator[Model]:
    def of(name: str, build: Callable[[], nn.Module], args: Callable[[int, int], Args]) -> Model:
        calls = Calls(args(1, 12), (args(2, 20),))
        return Model("openunmix", name, "audio", build, lambda _: [calls], Script())

    def spectrograms(batch: int, frames: int) -> Args:
        return (torch.rand(batch, 2, 65, frames),)

    def audio(batch: int, frames: int) -> Args:
        return (torch.randn(batch, 2, 64 * frames),)

    yield of("OpenUnmix", _spectral, spectrograms)
    yield of("OpenUnmix, one direction", lambda: _spectral(True, 3), spectrograms)
    yield of("Separator", _separator, audio)
    yield of("Separator, residual", lambda: _separator(residual=True), audio)
    yield of("Separator, softmask, EM", lambda: _separator(1, softmask=True), audio)
