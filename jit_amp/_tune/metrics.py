"""How far outputs are from a reference: the metrics that `tune` has, and their tolerances."""

from __future__ import annotations

import contextlib
import enum
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from jit_amp._base import arguments
from jit_amp._base.trees import leaves

TOLERANCES = {torch.float16: 0.01, torch.bfloat16: 0.05}
RELATIVE = "largest relative error"
_COMPARED = (int, float, complex, str, bytes, type(None), enum.Enum, torch.dtype, torch.device)


def relative_error(outputs: Any, reference: Any) -> float:
    """The largest difference of any output, relative to its largest value; infinite where one is
    not finite and the other is, or where something else differs. Of integers and booleans, the
    share that differs.

    Raises:
        ValueError: there is no number in the outputs, or something that cannot be compared.
    """
    return difference(outputs, tensors_of(reference))


def tensors_of(outputs: Any) -> list[tuple[str, Any]]:
    """Returns the tensors in outputs, as ones that can be compared."""
    found = [(path, _comparable(path, each)) for path, each in leaves(outputs, "outputs")]
    if not any(isinstance(each, (Tensor, int, float, complex)) for _, each in found):
        raise ValueError(
            f"metric: the default one compares tensors and numbers, and there is none in"
            f" {arguments.shown(outputs)}, which the model gives: give metric="
        )
    return found


def _comparable(path: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.is_nested:
            value = torch.cat([each.flatten() for each in value.unbind()])
        value = value.to_dense() if value.layout is not torch.strided else value
        return (value.dequantize() if value.is_quantized else value).detach()
    if isinstance(value, _COMPARED):
        return value
    if hasattr(value, "__array__"):  # NumPy's
        with contextlib.suppress(TypeError):
            return torch.as_tensor(value)
    raise ValueError(
        f"metric: the default one cannot look into {path}, a {type(value).__qualname__}: give"
        " metric=, a function of the outputs and of what they are in float32"
    )


def check_elements(references: Sequence[list[tuple[str, Any]]]) -> None:
    """Raises ValueError where the outputs of all batches are tensors without elements, which never
    differ."""
    values = [each for reference in references for _, each in reference]
    if all(isinstance(each, Tensor) and not each.numel() for each in values):
        raise ValueError(
            "data: no output of the model has an element, so the default metric compares nothing:"
            " give inputs for which there are some, or metric="
        )


def difference(outputs: Any, reference: list[tuple[str, Any]]) -> float:
    made = tensors_of(outputs)
    if [path for path, _ in made] != [path for path, _ in reference]:
        return math.inf
    return worst([_apart(a, b) for (_, a), (_, b) in zip(made, reference, strict=True)])


def _apart(a: Any, b: Any) -> float:
    if isinstance(a, (int, float, complex)) and isinstance(b, (int, float, complex)):
        a, b = torch.tensor(a), torch.tensor(b)
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return 0.0 if type(a) is type(b) and a == b else 1.0
    if a.shape != b.shape:
        return math.inf
    if not a.numel():
        return 0.0
    if not (b.is_floating_point() or b.is_complex()):
        return float((a != b).double().mean())
    wide = torch.complex128 if b.is_complex() else torch.float64
    a, b = a.detach().to(wide), b.detach().to(wide)
    same = (a == b) | (a.isnan() & b.isnan())
    fine = a.isfinite() & b.isfinite()
    if not bool((same | fine).all()):
        return math.inf
    apart = torch.where(same, 0, a - b).abs().max().item()
    scale = b.abs()[b.isfinite()].max().item() if bool(b.isfinite().any()) else 0.0
    return apart / scale if scale else (math.inf if apart else 0.0)


def worst(errors: Sequence[float]) -> float:
    return max((math.inf if math.isnan(each) else each for each in errors), default=0.0)


def distance(value: float, wanted: float) -> float:
    return abs(value - wanted) if math.isfinite(value) else math.inf
