"""ultralytics: the smallest model of each task, fused and traced as `export` does it."""

from __future__ import annotations

# Before torchvision, which ultralytics imports.
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Iterator
from typing import Any

import torch
from catalog import Calls, Model
from torch import nn
from ultralytics.nn import tasks
from ways import Args, Scoped, Trace

_TASKS = {
    "": tasks.DetectionModel,
    "-seg": tasks.SegmentationModel,
    "-pose": tasks.PoseModel,
    "-obb": tasks.OBBModel,
    "-cls": tasks.ClassificationModel,
}
_NAMES = (
    *(f"yolov8n{task}" for task in _TASKS),
    *(f"yolo11n{task}" for task in _TASKS),
    "yolov5n",
    "yolov9t",
    "yolov10n",
    "yolo12n",
)


def _exported(name: str) -> nn.Module:
    _, dash, task = name.partition("-")
    model = _TASKS[dash + task](f"{name}.yaml", verbose=False)
    for parameter in model.parameters():
        parameter.requires_grad = False
    model = model.eval().float().fuse(verbose=False)
    for module in model.modules():
        if hasattr(module, "export"):
            module.export, module.format, module.dynamic = True, "torchscript", False
    return model


class _Export(Trace):
    """After a dry run, in which a head keeps what belongs to the size of an image."""

    def compile(self, jit: Any, model: nn.Module, example: Args) -> Any:
        with torch.no_grad():
            inner = model.model if isinstance(model, Scoped) else model
            inner(*example)
        return super().compile(jit, model, example)


def models() -> Iterator[Model]:
    def calls(_: nn.Module) -> list[Calls]:
        return [Calls((torch.rand(2, 3, 64, 64),), ((torch.rand(1, 3, 64, 64),),))]

    for name in _NAMES:
        yield Model(
            "ultralytics", name, "vision", lambda name=name: _exported(name), calls,
            _Export(strict=False), extensions=("torchvision_extension",),
        )  # fmt: skip
