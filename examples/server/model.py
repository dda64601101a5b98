"""A network of convolutions and a transformer. Its configuration says whether autocast is on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict  # noqa: UP035 (TorchScript reads annotations, and older releases know this)

import torch
from torch import Tensor, nn


@dataclass
class Config:
    classes: int = 10
    width: int = 64
    layers: int = 2
    amp: bool = True
    dtype: str = "bfloat16"


class Net(nn.Module):
    """Takes images of shape (N, 3, H, W) in float32, and returns a dictionary: ``scores`` of shape
    (N, classes) in float32 and, if they are asked for, ``features`` of shape (N, width)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.stem = nn.Sequential(
            nn.Conv2d(3, config.width, 7, stride=4, padding=3),
            nn.BatchNorm2d(config.width),
            nn.ReLU(),
            nn.Conv2d(config.width, config.width, 3, stride=2, padding=1),
        )
        layer = nn.TransformerEncoderLayer(
            config.width, nhead=4, dim_feedforward=4 * config.width, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(config.width), nn.Linear(config.width, config.classes)

    def forward(self, images: Tensor, with_features: bool = False) -> Dict[str, Tensor]:  # noqa: UP006
        if images.size(1) != 3:
            raise ValueError("images have three channels")
        config = self.config
        with torch.autocast("cpu", dtype=getattr(torch, config.dtype), enabled=config.amp):
            tokens = self.stem(images).flatten(2).transpose(1, 2)
            features = self.norm(self.encoder(tokens).mean(1))
            scores = self.head(features)
        results = {"scores": scores.float().softmax(-1)}
        if with_features:
            results["features"] = features
        return results
