"""pytorch-forecasting: models of series, with to_torchscript(), and parts of them, traced."""

from __future__ import annotations

# Before torchvision, which its dependencies import.
import torchvision_extension  # noqa: F401  # isort: skip

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import lightning.pytorch as lightning
import numpy
import pandas
import torch
from catalog import Calls, Model
from pytorch_forecasting import (
    DeepAR,
    NBeats,
    NHiTS,
    RecurrentNetwork,
    TemporalFusionTransformer,
    TimeSeriesDataSet,
)
from pytorch_forecasting.data import NaNLabelEncoder
from pytorch_forecasting.metrics import MAE, QuantileLoss
from pytorch_forecasting.models.temporal_fusion_transformer import sub_modules
from torch import Tensor, nn
from ways import Args, ToTorchScript, Trace


@cache
def _series(is_plain: bool) -> TimeSeriesDataSet:
    random = numpy.random.default_rng(0)
    table = pandas.DataFrame(
        {
            "value": random.random(120) + 0.1,
            "group": numpy.repeat(["a", "b", "c"], 40),
            "time": numpy.tile(numpy.arange(40), 3),
            "price": random.random(120),
            "day": numpy.tile((numpy.arange(40) % 7).astype(str), 3),
        }
    )
    more: dict[str, Any] = {}
    if not is_plain:
        more = {
            "static_categoricals": ["group"],
            "time_varying_known_reals": ["price"],
            "time_varying_known_categoricals": ["day"],
        }
    return TimeSeriesDataSet(
        table,
        time_idx="time",
        target="value",
        group_ids=["group"],
        min_encoder_length=8,
        max_encoder_length=8,
        min_prediction_length=4,
        max_prediction_length=4,
        time_varying_unknown_reals=["value"],
        categorical_encoders={"group": NaNLabelEncoder().fit(table["group"])},
        **more,
    )


_KEYS = (
    "encoder_cat", "encoder_cont", "encoder_target", "encoder_lengths", "decoder_cat",
    "decoder_cont", "decoder_target", "decoder_lengths", "target_scale",
)  # fmt: skip


class _Prediction(lightning.LightningModule):
    """A batch is a dictionary, and a prediction one of many results."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Tensor) -> Tensor:
        return self.model(dict(zip(_KEYS, args, strict=True)))["prediction"]


def _made(kind: Any, is_plain: bool, **options: Any) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _Prediction(kind.from_dataset(_series(is_plain), **options))


_MODELS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "NBeats": (
        lambda: _made(NBeats, True, widths=[16, 32], num_blocks=[1, 1], backcast_loss_ratio=0.1),
        True,
    ),
    "NHiTS": (lambda: _made(NHiTS, False, hidden_size=16, loss=MAE()), False),
    "RecurrentNetwork": (lambda: _made(RecurrentNetwork, False, hidden_size=8), False),
    "DeepAR": (lambda: _made(DeepAR, False, hidden_size=8), False),
    "TemporalFusionTransformer": (
        lambda: _made(
            TemporalFusionTransformer, False, hidden_size=8, attention_head_size=2,
            hidden_continuous_size=4, loss=QuantileLoss(), output_size=7,
        ),
        False,
    ),
}  # fmt: skip


def _batch(is_plain: bool, size: int) -> Args:
    loader = _series(is_plain).to_dataloader(train=False, batch_size=size, num_workers=0)
    batch = next(iter(loader))[0]
    return tuple(batch[key] for key in _KEYS)


def _rows(*sizes: int) -> Callable[[int], Args]:
    return lambda n: tuple(torch.randn(n, 5, size) for size in sizes)


_PARTS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Args]]] = {
    "AddNorm": (lambda: sub_modules.AddNorm(8, trainable_add=False), _rows(8, 8)),
    "GateAddNorm": (lambda: sub_modules.GateAddNorm(8, skip_size=8), _rows(8, 8)),
    "GatedLinearUnit": (lambda: sub_modules.GatedLinearUnit(8, 4), _rows(8)),
    "GatedResidualNetwork": (
        lambda: sub_modules.GatedResidualNetwork(8, 16, 4, context_size=3), _rows(8, 3)
    ),
    "InterpretableMultiHeadAttention": (
        lambda: sub_modules.InterpretableMultiHeadAttention(2, 8), _rows(8, 8, 8)
    ),
    "ResampleNorm": (lambda: sub_modules.ResampleNorm(8, 4), _rows(8)),
}  # fmt: skip


def models() -> Iterator[Model]:
    for name, (build, is_plain) in _MODELS.items():
        yield Model(
            "pytorch_forecasting", name, "series", build,
            lambda _, is_plain=is_plain: [
                Calls(_batch(is_plain, 4), (_batch(is_plain, 2), _batch(is_plain, 6)))
            ],
            ToTorchScript(lightning.LightningModule, "trace"),
        )  # fmt: skip
    for name, (build, args) in _PARTS.items():
        calls = Calls(args(3), (args(1), args(4)))
        yield Model(
            "pytorch_forecasting", name, "parts", build, lambda _, calls=calls: [calls], Trace()
        )
