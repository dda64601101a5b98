"""torchvision: all models, scripted, the smallest first."""

from __future__ import annotations

# Before torchvision, which looks for operators.
import torchvision_extension  # noqa: F401  # isort: skip

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from catalog import Calls, Model, batches
from torchvision import models as of_torchvision
from ways import Args, ScriptInScope

import jit_amp


def models() -> Iterator[Model]:
    # Before they are quantized, the models of that family are others of the list.
    names = of_torchvision.list_models(exclude="quantized_*")
    return map(_of_torchvision, sorted(names, key=_size))


def _size(name: str) -> float:
    """Operations of a call, in billions."""
    operations: float = of_torchvision.get_model_weights(name).DEFAULT.meta["_ops"]
    return operations


# In autocast they take float32. That the result of roi_align is cast back to the features' dtype is
# in no policy; those who call it cast it too.
for _operator in ("torchvision::nms", "torchvision::roi_align"):
    jit_amp.policy.register(_operator, "cpu", "fp32")

# Few boxes of small images, and all of them: scores of a random model are low.
_DETECTION = {
    "min_size": 96,
    "max_size": 128,
    "rpn_pre_nms_top_n_test": 60,
    "rpn_post_nms_top_n_test": 10,  # of 91 classes, these are fewer boxes than nms loops for
    "box_score_thresh": 0.0,
    "box_detections_per_img": 10,
    "score_thresh": 0.0,
    "topk_candidates": 10,
    "detections_per_img": 10,
}
_TAKEN = {
    "faster_rcnn": ("min_size", "max_size", "rpn_", "box_"),
    "mask_rcnn": ("min_size", "max_size", "rpn_", "box_"),
    "keypoint_rcnn": ("min_size", "max_size", "rpn_", "box_"),
    "fcos": ("min_size", "max_size", "score_", "topk_", "detections_"),
    "retinanet": ("min_size", "max_size", "score_", "topk_", "detections_"),
    "ssd": ("score_", "topk_", "detections_"),
    "ssdlite": ("score_", "topk_", "detections_"),
}


_SIZES = 64, 96, 144, 224, 299
# Smaller images make maps of one pixel, and torch.export takes a size of 1 for a size of its own.
_LEAST = {"alexnet": 96, "inception_v3": 144}


def _of_torchvision(name: str) -> Model:
    builder = of_torchvision.get_model_builder(name)
    family, *file = builder.__module__.split(".")[2:]
    options: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        options["weights_backbone"] = None
    if family == "detection":
        options |= {k: v for k, v in _DETECTION.items() if k.startswith(_TAKEN[file[0]])}
    calls = {
        "detection": lambda _: [_detection()],
        "optical_flow": lambda _: [_flow()],
        "video": lambda _: map(batches, ((3, 8, 64, 64), (3, 16, 112, 112), (3, 16, 224, 224))),
    }.get(family, lambda _: (batches((3, n, n)) for n in _SIZES if n >= _LEAST.get(name, 0)))
    return Model(
        "torchvision",
        name,
        family,
        lambda: builder(**options),
        calls,
        ScriptInScope(),
        extensions=("torchvision_extension",),
    )


def _detection() -> Calls:
    """Lists of images of different sizes."""

    def images(*sizes: tuple[int, int]) -> Args:
        return ([torch.rand(3, *size) for size in sizes],)

    return Calls(
        images((80, 96), (64, 80)),
        (images((64, 64)), images((96, 64), (72, 72)), images((96, 64), (72, 72), (64, 96))),
    )


def _flow() -> Calls:
    """Two images, and how often the flow between them is refined."""

    def pair(batch: int, height: int, width: int) -> Args:
        return torch.rand(batch, 3, height, width), torch.rand(batch, 3, height, width), 3

    return Calls(pair(2, 128, 128), (pair(1, 128, 128), pair(1, 136, 160)))
