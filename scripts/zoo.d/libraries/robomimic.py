"""robomimic: networks of robots that learn from demonstrations, small, traced."""

from __future__ import annotations

# Before torchvision.
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator

import torch
from catalog import Calls, Model
from robomimic.models.base_nets import (
    MLP,
    CoordConv2d,
    ResNet18Conv,
    RNN_Base,
    SpatialSoftmax,
)
from robomimic.models.transformers import GPT_Backbone
from torch import Tensor, nn
from ways import Args, Trace


class _Recurrent(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.net = RNN_Base(6, 16, 2, rnn_type=kind, per_step_net=MLP(16, 4, (16,)))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def _images(count: int) -> Args:
    return (torch.rand(count, 3, 32, 32),)


_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Args]]] = {
    "MLP": (lambda: MLP(6, 4, (16, 16), normalization=True), lambda n: (torch.randn(n, 6),)),
    "LSTM": (lambda: _Recurrent("LSTM"), lambda n: (torch.randn(n, 5, 6),)),
    "GRU": (lambda: _Recurrent("GRU"), lambda n: (torch.randn(n, 5, 6),)),
    "GPT": (
        lambda: GPT_Backbone(16, 8, num_layers=2, num_heads=2), lambda n: (torch.randn(n, 8, 16),)
    ),
    "ResNet18": (lambda: ResNet18Conv(3, pretrained=False), _images),
    "CoordConv": (lambda: CoordConv2d(3, 8, 3), _images),
    "SpatialSoftmax": (
        lambda: SpatialSoftmax((8, 6, 6), num_kp=4), lambda n: (torch.rand(n, 8, 6, 6),)
    ),
}  # fmt: skip


def models() -> Iterator[Model]:
    for name, (build, args) in _MODELS.items():
        calls = Calls(args(2), (args(1), args(3)))
        yield Model("robomimic", name, "robots", build, lambda _, calls=calls: [calls], Trace())
