"""vit-pytorch: vision transformers of many papers, each in a file of its own, traced."""

from __future__ import annotations

# Before torchvision.
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
from catalog import Calls, Model
from torch import nn
from ways import Trace

_VIT = {
    "image_size": 32,
    "patch_size": 8,
    "num_classes": 10,
    "dim": 32,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 64,
}
_LATE_CLASS = {**_VIT, "cls_depth": 1}
_MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {
    # the class, the side of its images, its arguments
    "ViT": ("vit.ViT", 32, _VIT),
    "SimpleViT": ("simple_vit.SimpleViT", 32, _VIT),
    "CaiT": ("cait.CaiT", 32, _LATE_CLASS),
    "DeepViT": ("deepvit.DeepViT", 32, _VIT),
    "XCiT": ("xcit.XCiT", 32, _LATE_CLASS),
    "ParallelViT": ("parallel_vit.ViT", 32, _VIT),
    "ViT, patch merger": (
        "vit_with_patch_merger.ViT",
        32,
        {**_VIT, "patch_merge_layer": 1, "patch_merge_num_tokens": 4},
    ),
    "ViT, small datasets": ("vit_for_small_dataset.ViT", 32, _VIT),
    "PiT": ("pit.PiT", 32, {**_VIT, "depth": (1, 1)}),
    "MaxViT": (
        "max_vit.MaxViT",
        32,
        {
            "num_classes": 10,
            "dim_conv_stem": 16,
            "dim": 16,
            "dim_head": 8,
            "depth": (1, 1),
            "window_size": 4,
        },
    ),
    "LeViT": (
        "levit.LeViT",
        64,
        {
            "image_size": 64,
            "num_classes": 10,
            "stages": 2,
            "dim": (32, 48),
            "depth": 1,
            "heads": (2, 2),
            "mlp_mult": 2,
        },
    ),
    "CvT": (
        "cvt.CvT",
        64,
        {
            "num_classes": 10,
            **{f"s{stage}_emb_dim": 16 * min(stage, 2) for stage in (1, 2, 3)},
            **{f"s{stage}_depth": 1 for stage in (1, 2, 3)},
        },
    ),
    "NesT": (
        "nest.NesT",
        32,
        {
            "image_size": 32,
            "patch_size": 4,
            "dim": 16,
            "heads": 2,
            "num_hierarchies": 2,
            "block_repeats": (1, 1),
            "num_classes": 10,
        },
    ),
    "RegionViT": (
        "regionvit.RegionViT",
        64,
        {"dim": (16,) * 4, "depth": (1,) * 4, "window_size": 2, "num_classes": 10},
    ),
}


def _build(path: str, options: dict[str, Any]) -> Callable[[], nn.Module]:
    module, cls = path.split(".")
    return lambda: getattr(import_module(f"vit_pytorch.{module}"), cls)(**options)


def _images(side: int) -> Calls:
    return Calls((torch.rand(2, 3, side, side),), ((torch.rand(1, 3, side, side),),))


def models() -> Iterator[Model]:
    for name, (path, side, options) in _MODELS.items():
        calls = [_images(side)]
        build = _build(path, options)
        yield Model("vit_pytorch", name, "transformers", build, lambda _, c=calls: c, Trace())
