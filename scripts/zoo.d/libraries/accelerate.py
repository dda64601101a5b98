"""accelerate: what `Accelerator.prepare` returns in mixed precision, at every door."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import extract_model_from_parallel
from catalog import Calls, Model
from torch import Tensor, nn
from ways import Args, Prepared


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.norm(self.first(x)).relu())


class _Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        features = self.features(x).mean((2, 3))
        return {"features": features, "logits": self.head(features)}


class _Texts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 50)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(ids)))


class _Within(nn.Module):
    """A prepared model that another module holds."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.head = _prepare(_Residual()), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.part(x))


def _prepare(model: nn.Module) -> Any:
    return Accelerator(mixed_precision="bf16", cpu=True).prepare(model)


def _below(model: nn.Module) -> nn.Module:
    """A plain copy, without what `prepare` has put around `forward`."""
    parts = [extract_model_from_parallel(each, keep_fp32_wrapper=False) for each in [model]]
    for part in parts[0].modules():
        part.__dict__.pop("forward", None)
        part.__dict__.pop("_original_forward", None)
    return parts[0]


_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Args]]] = {
    "residual": (lambda: _prepare(_Residual()), lambda n: (torch.randn(n, 16),)),
    "images": (lambda: _prepare(_Images()), lambda n: (torch.randn(n, 3, 8, 8),)),
    "texts": (lambda: _prepare(_Texts()), lambda n: (torch.randint(50, (n, 4 + n)),)),
    "a prepared part": (_Within, lambda n: (torch.randn(n, 16),)),
}


def models() -> Iterator[Model]:
    for door in ("script", "install", "trace"):
        for name, (build, args) in _MODELS.items():
            calls = Calls(args(3), (args(1), args(4)))
            yield Model(
                "accelerate", f"{name}, {door}", "prepared", build,
                lambda _, calls=calls: [calls], Prepared(door, _below),
            )  # fmt: skip
