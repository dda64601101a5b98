"""OpenVINO on the CPU, by its front end for TorchScript.

That one drops the artefact's check of its inputs, and takes arrays of any dtype: the inputs' types
are those given here, and they have to be the artefact's. With shared weights, the constant of a
bfloat16 weight with channels last points to a copy that is gone.

Its CPU plug-in computes in bfloat16 where the CPU can, whatever the model has, unless it is told
otherwise.

Not by the front end for torch.export: it fails on a slice of everything, as in `x[:, 0]`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino
import torch
from torch import Tensor

TYPES = {torch.float16: openvino.Type.f16, torch.bfloat16: openvino.Type.bf16}


def run(compiled: openvino.CompiledModel, x: Tensor) -> Tensor:
    request = compiled.create_infer_request()
    request.infer([x.numpy()])
    result = request.get_output_tensor(0)
    bits = torch.from_numpy(np.array(result.data).view(np.int16))
    for dtype, kind in TYPES.items():
        if result.get_element_type() == kind:
            return bits.view(dtype)
    return torch.from_numpy(np.array(result.data))


def compiled(
    artefact: Any, x: Tensor, work: Path, options: dict[str, Any]
) -> openvino.CompiledModel:
    shape = openvino.PartialShape([-1, *x.shape[1:]])
    model = openvino.convert_model(
        artefact, input=[(shape, openvino.Type.f32)], share_weights=False
    )
    openvino.save_model(model, work / "model.xml", compress_to_fp16=False)
    return openvino.Core().compile_model(work / "model.xml", "CPU", options)


def in_its_dtypes(artefact: Any, x: Tensor, work: Path) -> Tensor:
    return run(compiled(artefact, x, work, {"INFERENCE_PRECISION_HINT": openvino.Type.f32}), x)


def as_it_comes(artefact: Any, x: Tensor, work: Path) -> str:
    """Whatever the plug-in takes: told, not judged."""
    model = compiled(artefact, x, work, {})
    off = (run(model, x).double() - artefact(x).double()).abs().max().item()
    return f"runs, {off:.2g} off, in {model.get_property('INFERENCE_PRECISION_HINT').to_string()}"


ROUTES = {"precision hint float32": in_its_dtypes, "no precision hint": as_it_comes}
