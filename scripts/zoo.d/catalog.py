"""Which models there are, how each is built without weights, and what it is called with."""

from __future__ import annotations

# Before timm and torchvision, which look for operators.
import torchvision_extension  # noqa: F401  # isort: skip

import fnmatch
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision import models

import jit_amp

Args = tuple[Any, ...]


@dataclass(frozen=True)
class Calls:
    """An example, and calls that differ from it in batch, height and width."""

    example: Args
    others: tuple[Args, ...]


@dataclass(frozen=True)
class Model:
    library: str
    name: str
    family: str
    build: Callable[[], nn.Module]
    calls: Callable[[nn.Module], Iterable[Calls]]
    """From the smallest on: what counts is the first whose example eager takes."""


def catalog(library: str, pattern: str) -> list[Model]:
    if library == "timm":
        names, make = _smallest_of_timm(), _of_timm
    else:  # before they are quantized, the models of that family are others of the list
        names, make = models.list_models(exclude="quantized_*"), _of_torchvision
    return [make(name) for name in names if fnmatch.fnmatch(name, pattern)]


def stir(model: nn.Module) -> nn.Module:
    """Gives what starts as all zeros, ones or tiny, norms above all, values as training would."""
    with torch.no_grad():
        for parameter in model.parameters():
            first = parameter.flatten()[0] if parameter.numel() else None
            if first is None or not torch.equal(parameter, first.expand_as(parameter)):
                continue
            if first == 0:
                parameter.normal_(0, 0.05)
            else:
                parameter.copy_(
                    first.clamp(min=0.1) * torch.empty_like(parameter).uniform_(0.5, 1.5)
                )
        for module in model.modules():
            if isinstance(module, _BatchNorm) and module.running_mean is not None:
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
    return model


# torchvision

# In autocast they take float32. That the result of roi_align is cast back to the features' dtype is
# in no policy; those who call it cast it too.
for _operator in ("torchvision::nms", "torchvision::roi_align"):
    jit_amp.policy.register(_operator, "cpu", "fp32")

# Few boxes of small images, and all of them: scores of a random model are low.
_DETECTION = {
    "min_size": 96,
    "max_size": 128,
    "rpn_pre_nms_top_n_test": 60,
    "rpn_post_nms_top_n_test": 20,
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


def _of_torchvision(name: str) -> Model:
    builder = models.get_model_builder(name)
    family, *file = builder.__module__.split(".")[2:]
    options: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        options["weights_backbone"] = None
    if family == "detection":
        options |= {k: v for k, v in _DETECTION.items() if k.startswith(_TAKEN[file[0]])}
    calls = {
        "detection": lambda _: [_detection()],
        "optical_flow": lambda _: [_flow()],
        "video": lambda _: map(_batches, ((3, 8, 64, 64), (3, 16, 112, 112), (3, 16, 224, 224))),
    }.get(family, lambda _: (_batches((3, n, n)) for n in (64, 96, 224, 299)))
    return Model("torchvision", name, family, lambda: builder(**options), calls)


def _smallest_of_timm() -> list[str]:
    lines = Path(__file__).with_name("timm_models.txt").read_text().splitlines()
    return " ".join(line for line in lines if not line.startswith("#")).split()


def _of_timm(name: str) -> Model:
    def calls(model: nn.Module) -> Iterator[Calls]:
        channels, *size = (getattr(model, "pretrained_cfg", None) or {}).get(
            "input_size", (3, 224, 224)
        )
        for n in (64, 96, 128, 224):
            if n < size[0]:
                yield _batches((channels, n, n))
        yield _batches((channels, *size))

    return Model(
        "timm",
        name,
        timm.models._registry._model_to_module[name],
        lambda: timm.create_model(name, pretrained=False, scriptable=True),
        calls,
    )


def _batches(shape: tuple[int, ...]) -> Calls:
    """Batches of images or videos: two; then one; then two that are higher and wider."""
    *leading, height, width = shape
    return Calls(
        (torch.rand(2, *shape),),
        ((torch.rand(1, *shape),), (torch.rand(2, *leading, height + 32, width + 64),)),
    )


def _detection() -> Calls:
    """Lists of images of different sizes."""

    def images(*sizes: tuple[int, int]) -> Args:
        return ([torch.rand(3, *size) for size in sizes],)

    return Calls(
        images((80, 96), (64, 80)), (images((64, 64)), images((96, 64), (72, 72), (64, 96)))
    )


def _flow() -> Calls:
    """Two images, and how often the flow between them is refined."""

    def pair(batch: int, height: int, width: int) -> Args:
        return torch.rand(batch, 3, height, width), torch.rand(batch, 3, height, width), 3

    return Calls(pair(2, 128, 128), (pair(1, 128, 128), pair(1, 136, 160)))
