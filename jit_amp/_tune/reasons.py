"""What `tune` says: why a unit stays in float32, and why there was nothing to measure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from jit_amp._base.trees import leaves
from jit_amp._precision import in_float32
from jit_amp._tune.profile import Part


def of_unit(part: Part, parts: Iterable[Part], dtype: torch.dtype) -> str:
    """Why low precision hurts in a unit: what is out of range there or in the units inside it, what
    it is given that is, or what is computed of its results; else its own error."""
    limits = torch.finfo(dtype)
    inside = [each for each in parts if each is part or each.operators < part.operators]
    inside.sort(key=lambda each: each is not part)
    if part.raised:
        return part.raised
    beyond = f"values beyond {limits.max:.5g}"
    for each in inside:
        if each.overflows:
            return f"{each.overflows} {beyond}: {each.overflow_at}"
    if part.given_overflow_of:
        return f"it is given {beyond}: {part.given_overflow_of}"
    if part.overflow_after:
        return f"{beyond} are computed of its results: {part.overflow_after}"
    if part.error >= 0.5 and part.underflows:
        return f"{part.underflows} values below {limits.tiny:.2g}: {part.worst} at {part.place}"
    at = f": {part.worst} at {part.place}" if part.place else ""
    return f"its own error in {_name(dtype)} is {part.error:.1e}{at}"


def no_units(model: nn.Module, kind: str, dtype: torch.dtype) -> str:
    """Operators ran in the reduced dtype, and belong to no unit."""
    return (
        f"units: no {kind} of {type(model).__name__}'s calls what ran in {_name(dtype)}, but for "
        "PyTorch's own and what torch.fx has written: tune units='module' or units='operator'"
    )


def nothing_ran(model: nn.Module, inputs: Any, dtype: torch.dtype, device_type: str) -> str:
    """No operator ran in the reduced dtype but for those that do in float32 everywhere."""
    return (
        f"jit_amp.tune: no operator of {type(model).__name__} ran in {_name(dtype)} because of "
        f"autocast, so there is nothing to tell: {_why_nothing_ran(model, inputs, device_type)}"
    )


def _why_nothing_ran(model: nn.Module, inputs: Any, device_type: str) -> str:
    state = dict(_state_of(model))
    given = tensors_in(inputs)
    tensors = [*state.values(), *given]
    floating = [each for each in tensors if each.is_floating_point()]
    devices = sorted({each.device.type for each in tensors})
    if devices and device_type not in devices:
        return (
            f"autocast for {device_type!r} casts tensors of that device, and the model and the "
            f"data are on {', '.join(devices)}: move both there, or give device_type={devices[0]!r}"
        )
    if given and not any(each.numel() for each in given):
        return "the data holds no elements"
    for name, each in state.items():
        if each.dtype in in_float32.REDUCED:
            return (
                f"its {name} is {each.dtype} already: give the model in float32, as model.float() "
                "makes it"
            )
    if floating and all(each.dtype is torch.float64 for each in floating):
        return (
            "it and the data are in float64, which autocast leaves as it is: give both in float32, "
            "as model.float() makes it"
        )
    return "autocast casts for none of the operators that it calls"


def _state_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def tensors_in(value: Any) -> list[Tensor]:
    return [each for _, each in leaves(value) if isinstance(each, Tensor)]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
