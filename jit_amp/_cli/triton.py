"""A model repository of Triton Inference Server for a frozen module."""

from __future__ import annotations

import contextlib
import functools
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jit_amp import _C
from jit_amp._base import whole_files
from jit_amp._cli.saving import put_module

# Those of Triton's PyTorch backend. It has no bfloat16.
_TYPES = {
    torch.bool: "TYPE_BOOL",
    torch.uint8: "TYPE_UINT8",
    torch.int8: "TYPE_INT8",
    torch.int16: "TYPE_INT16",
    torch.int32: "TYPE_INT32",
    torch.int64: "TYPE_INT64",
    torch.float16: "TYPE_FP16",
    torch.float32: "TYPE_FP32",
    torch.float64: "TYPE_FP64",
}
_KINDS = {"cpu": "KIND_CPU", "cuda": "KIND_GPU"}


def write_repository(
    folder: str | Path, name: str, module: torch.jit.ScriptModule, example_inputs: tuple[Any, ...]
) -> None:
    """Writes ``folder/name/config.pbtxt`` and ``folder/name/1/model.pt``.

    The frozen module is called once, with the example. Inputs are named as forward's arguments,
    outputs are ``OUTPUT__0`` and so on; their dtypes and numbers of dimensions are the example's,
    and all sizes are free. Triton does no batching of its own (``max_batch_size: 0``), and runs the
    model on the kind of device that the example is on, as a frozen module's weights do not move.

    Raises:
        TypeError: an input or output that Triton's PyTorch backend cannot have: no tensor, or of a
            dtype that it lacks, bfloat16 among them.
        ValueError: a name that is no folder's, or an example on several devices.
        OSError: a file cannot be written. Both take their names when both are complete.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise ValueError(f"jit_amp: {name!r} is not the name of a Triton model")
    arguments = module._c._get_method("forward").schema.arguments[1:]  # without self
    if len(example_inputs) != len(arguments):
        names = ", ".join(argument.name for argument in arguments)
        raise TypeError(
            "jit_amp: Triton gives a model all of its inputs: an example of each is needed "
            f"({names})"
        )
    inputs = [
        _entry(argument.name, value)
        for argument, value in zip(arguments, example_inputs, strict=True)
    ]
    devices = {value.device.type for value in example_inputs}
    if len(devices) != 1 or not devices <= set(_KINDS):
        raise ValueError(
            "jit_amp: Triton runs a model on the CPU or on a GPU: the example is on "
            + (" and ".join(sorted(devices)) or "none")
        )
    with torch.no_grad():
        given = module(*example_inputs)
    outputs = [
        _entry(f"OUTPUT__{i}", value)
        for i, value in enumerate(given if isinstance(given, (tuple, list)) else (given,))
    ]
    kind = _KINDS[devices.pop()]
    text = [f'name: "{name}"', 'backend: "pytorch"', "max_batch_size: 0"]
    text += [f"input [ {{ {entry} }} ]" for entry in inputs]
    text += [f"output [ {{ {entry} }} ]" for entry in outputs]
    text += [f"instance_group [ {{ kind: {kind} }} ]"]

    target = Path(folder) / name
    made = [each for each in (target / "1", target) if not each.exists()]
    with _C.AtExit([functools.partial(_drop_empty, each) for each in made]):
        (target / "1").mkdir(parents=True, exist_ok=True)
        paths = target / "1" / "model.pt", target / "config.pbtxt"
        with whole_files.written(*paths) as (model, config):
            put_module(module, model)
            config.write(("\n".join(text) + "\n").encode())


def _drop_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # it has its files
        folder.rmdir()


def _entry(name: str, value: Any) -> str:
    """An input or output as config.pbtxt has it, without the braces."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"jit_amp: Triton's PyTorch backend has tensors alone, and `{name}` is "
            f"{'None' if value is None else type(value).__name__}"
        )
    if value.dtype not in _TYPES:
        dtype = str(value.dtype).removeprefix("torch.")
        raise TypeError(
            f"jit_amp: Triton's PyTorch backend has no {dtype}, and `{name}` is {dtype}: freeze "
            "the model with io_dtype=torch.float32, or --io-dtype float32, and it takes and gives "
            "float32"
        )
    # A tensor without dimensions is one of one element to Triton.
    shape = f"dims: [ {', '.join(['-1'] * value.dim())} ]"
    return f'name: "{name}" data_type: {_TYPES[value.dtype]} ' + (
        shape if value.dim() else "dims: [ 1 ] reshape { shape: [ ] }"
    )
