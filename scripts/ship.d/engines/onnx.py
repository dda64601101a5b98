"""ONNX, run by ONNX Runtime on the CPU: from TorchScript, and from torch.export."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
from engines.common import Refused, exported
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def
from torch import Tensor

# What the models' layers become. ONNX itself has a bfloat16 convolution since opset 22, which
# PyTorch's exporters do not write.
LAYERS = {"aten::linear": "Gemm", "aten::conv2d": "Conv", "aten::lstm": "LSTM"}
OPSET = 20


def check_kernels(artefact: Any) -> None:
    """Refuses a bfloat16 model that ONNX Runtime has no kernels for, or that ONNX has no operator
    for."""
    lacking = set()
    for operator, name in LAYERS.items():
        if not artefact.graph.findAllNodes(operator):
            continue
        constraints = onnx.defs.get_schema(name, OPSET).type_constraints
        if not any("tensor(bfloat16)" in each.allowed_type_strs for each in constraints):
            lacking.add(f"{name} of opset {OPSET} has no bfloat16")
        elif not any(
            kernel.op_name == name and "tensor(bfloat16)" in types
            for kernel in get_all_opkernel_def()
            if kernel.provider == "CPUExecutionProvider"
            for types in kernel.type_constraints.values()
        ):
            lacking.add(f"ONNX Runtime has no bfloat16 {name} for the CPU")
    if lacking:
        raise Refused("; ".join(sorted(lacking)))


def run(path: Path, x: Tensor) -> Tensor:
    onnx.checker.check_model(onnx.load(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    try:
        session.run(None, {name: x.double().numpy()})
    except onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument:
        pass
    else:
        raise AssertionError("a float64 input is taken")
    return torch.from_numpy(session.run(None, {name: x.numpy()})[0])


def check(artefact: Any, work: Path) -> None:
    if work.name.endswith("-bfloat16"):
        check_kernels(artefact)


def from_torchscript(artefact: Any, x: Tensor, work: Path) -> Tensor:
    check(artefact, work)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            artefact,
            (x,),
            work / "script.onnx",
            dynamo=False,
            opset_version=OPSET,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        )
    return run(work / "script.onnx", x)


def from_export(artefact: Any, x: Tensor, work: Path) -> Tensor:
    check(artefact, work)
    program = exported(work)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(program, (), work / "export.onnx", dynamo=True, verbose=False)
    return run(work / "export.onnx", x)


ROUTES = {"from TorchScript": from_torchscript, "from torch.export": from_export}
