"""What is said of a model, and which there are."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from ways import Args, Way

LIBRARIES = sorted(
    path.stem for path in Path(__file__).with_name("libraries").glob("[!_]*.py")
)  # fmt: skip


@dataclass(frozen=True)
class Calls:
    """An example, and calls that differ from it in sizes."""

    example: Args
    others: tuple[Args, ...] = ()


@dataclass(frozen=True)
class Model:
    library: str
    name: str
    family: str
    build: Callable[[], nn.Module]
    calls: Callable[[nn.Module], Iterable[Calls]]
    """From the smallest on: what counts is the first whose example eager takes."""
    way: Way
    needs_grad: bool = False
    """Whether a call computes gradients itself."""
    extensions: tuple[str, ...] = ()
    """What a process imports for operators that the model calls."""


def catalog(library: str, pattern: str = "*") -> list[Model]:
    """Imports the library."""
    models = import_module(f"libraries.{library}").models()
    return [model for model in models if fnmatch.fnmatch(model.name, pattern)]


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


def batches(shape: tuple[int, ...]) -> Calls:
    """Batches of images or videos: two; then one; then two that are higher and wider."""
    *leading, height, width = shape
    return Calls(
        (torch.rand(2, *shape),),
        ((torch.rand(1, *shape),), (torch.rand(2, *leading, height + 32, width + 64),)),
    )
