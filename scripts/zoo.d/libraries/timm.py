"""timm: the smallest models, scripted."""

from __future__ import annotations

# Before torchvision, which timm imports.
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Iterator
from pathlib import Path

import timm
from catalog import Calls, Model, batches
from torch import nn
from ways import ScriptInScope


def models() -> Iterator[Model]:
    return map(_of_timm, _smallest())


def _smallest() -> list[str]:
    lines = Path(__file__).with_name("timm_models.txt").read_text().splitlines()
    return " ".join(line for line in lines if not line.startswith("#")).split()


def _of_timm(name: str) -> Model:
    def calls(model: nn.Module) -> Iterator[Calls]:
        channels, *size = (getattr(model, "pretrained_cfg", None) or {}).get(
            "input_size", (3, 224, 224)
        )
        for n in (64, 96, 128, 224):
            if n < size[0]:
                yield batches((channels, n, n))
        yield batches((channels, *size))

    return Model(
        "timm",
        name,
        timm.models._registry._model_to_module[name],
        lambda: timm.create_model(name, pretrained=False, scriptable=True),
        calls,
        ScriptInScope(),
    )
