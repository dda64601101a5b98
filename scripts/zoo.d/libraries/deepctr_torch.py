"""deepctr-torch: models of clicks, small, traced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from unittest import mock

import torch
from catalog import Calls, Model
from torch import Tensor, nn
from ways import Args, Trace

with mock.patch.object(threading.Thread, "start"):  # it asks a server for its latest version
    from deepctr_torch import models as deepctr
from deepctr_torch.inputs import DenseFeat, SparseFeat

_COLUMNS = [
    *(SparseFeat(f"C{i}", vocabulary_size=10, embedding_dim=8) for i in range(4)),
    *(DenseFeat(f"I{i}", 1) for i in range(3)),
]
_SPARSE = _COLUMNS[:4]


def _rows(count: int) -> Args:
    return (torch.cat([torch.randint(10, (count, 4)).float(), torch.rand(count, 3)], 1),)


def _both(kind: str, **options: object) -> Callable[[], nn.Module]:
    return lambda: getattr(deepctr, kind)(_COLUMNS, _COLUMNS, **options)


class _Loss(nn.Module):
    """A training step's loss."""

    def __init__(self) -> None:
        super().__init__()
        self.model = _both("DeepFM", dnn_hidden_units=(16,))()

    def forward(self, rows: Tensor) -> Tensor:
        clicks = self.model(rows).squeeze().float()
        return nn.functional.mse_loss(clicks, torch.zeros_like(clicks))


_DNN = {"dnn_hidden_units": (16, 16)}
_MODELS: dict[str, Callable[[], nn.Module]] = {
    "DeepFM": _both("DeepFM", **_DNN),
    "DeepFM, batch norm": _both("DeepFM", **_DNN, dnn_use_bn=True),
    "WDL": _both("WDL", **_DNN),
    "DCN": _both("DCN", **_DNN),
    "DCNMix": _both("DCNMix", **_DNN),
    "xDeepFM": _both("xDeepFM", **_DNN, cin_layer_size=(8, 8)),
    "AutoInt": _both("AutoInt", **_DNN, att_layer_num=1),
    "NFM": _both("NFM", **_DNN),
    "AFM": lambda: deepctr.AFM(_COLUMNS, _SPARSE),
    "PNN": lambda: deepctr.PNN(_COLUMNS, **_DNN),
    "FiBiNET": _both("FiBiNET", **_DNN),
    "IFM": _both("IFM", **_DNN),
    "loss": _Loss,
}


def models() -> Iterator[Model]:
    for name, build in _MODELS.items():
        calls = Calls(_rows(4), (_rows(2), _rows(7)))
        yield Model("deepctr_torch", name, "clicks", build, lambda _, calls=calls: [calls], Trace())
