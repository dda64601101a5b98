"""monai: networks for medical images, with torch.jit.script."""

from __future__ import annotations

# Before torchvision.
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator

import torch
from catalog import Calls, Model
from monai.networks import nets
from torch import nn
from ways import Script

Shapes = tuple[tuple[int, ...], ...]
_IMAGES: Shapes = ((1, 1, 64, 64), (2, 1, 64, 96))
_VOLUMES: Shapes = ((1, 1, 32, 32, 32), (2, 1, 32, 32, 64))

_NETWORKS: dict[str, tuple[Callable[[], nn.Module], Shapes]] = {
    "AttentionUnet": (lambda: nets.AttentionUnet(2, 1, 2, (4, 8, 16), (2, 2)), _IMAGES),
    "AutoEncoder": (lambda: nets.AutoEncoder(2, 1, 2, (4, 8), (2, 2)), _IMAGES),
    "BasicUNet": (lambda: nets.BasicUNet(2, 1, 2, (4, 4, 8, 8, 16, 4)), _IMAGES),
    "BasicUNetPlusPlus": (
        lambda: nets.BasicUNetPlusPlus(2, 1, 2, (4, 4, 8, 8, 16, 4)), _IMAGES
    ),
    "DenseNet": (lambda: nets.DenseNet(2, 1, 3, 8, 4, (2, 2, 2)), _IMAGES),
    "DynUNet": (
        lambda: nets.DynUNet(
            2, 1, 2, (3, 3, 3), (1, 2, 2), (2, 2), filters=(4, 8, 16), deep_supervision=False
        ),
        _IMAGES,
    ),
    "EfficientNetBN": (
        lambda: nets.EfficientNetBN("efficientnet-b0", False, spatial_dims=2, in_channels=1),
        _IMAGES,
    ),
    "FlexibleUNet": (
        lambda: nets.FlexibleUNet(1, 2, "efficientnet-b0", pretrained=False), _IMAGES
    ),
    "HighResNet": (lambda: nets.HighResNet(3, 1, 2), ((1, 1, 16, 16, 16), (2, 1, 16, 16, 24))),
    "Regressor": (lambda: nets.Regressor((1, 64, 64), (2,), (4, 8), (2, 2)), _IMAGES[:1]),
    "ResNet": (
        lambda: nets.ResNet("basic", (1, 1, 1, 1), [4, 8, 16, 32], 3, 1, num_classes=3), _VOLUMES
    ),
    "SEResNet50": (
        lambda: nets.SEResNet50(spatial_dims=2, in_channels=1, num_classes=3), _IMAGES
    ),
    "SegResNet": (lambda: nets.SegResNet(2, 8, 1, 2, blocks_down=(1, 2), blocks_up=(1,)), _IMAGES),
    "UNETR": (
        lambda: nets.UNETR(1, 2, (64, 64), 4, 16, 32, 2, spatial_dims=2), _IMAGES[:1]
    ),
    "UNet": (lambda: nets.UNet(3, 1, 2, (4, 8, 16), (2, 2), num_res_units=2), _VOLUMES),
    "VNet": (lambda: nets.VNet(2, 1, 2), _IMAGES),
    "ViT": (
        lambda: nets.ViT(1, (64, 64), (16, 16), 32, 64, 2, 2, classification=True, spatial_dims=2),
        _IMAGES[:1],
    ),
}  # fmt: skip


def models() -> Iterator[Model]:
    for name, (build, (first, *others)) in _NETWORKS.items():

        def calls(
            _: nn.Module, first: tuple[int, ...] = first, others: list[tuple[int, ...]] = others
        ) -> list[Calls]:
            return [Calls((torch.rand(first),), tuple((torch.rand(shape),) for shape in others))]

        yield Model("monai", name, "medical", build, calls, Script())
