"""Models in other formats than TorchScript's, as functions: for ``jit-amp verify``."""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jit_amp._base.trees import leaves

NEEDS = {".pt2": "", ".onnx": "onnxruntime", ".xml": "openvino"}
"""The formats, by the end of a file's name, and the package that runs them besides PyTorch."""


def load(path: str) -> tuple[Callable[..., Any], bool]:
    """Returns what runs the model, and whether its results are a plain list of tensors whatever
    the model gives.

    A ``.pt2`` is what ``torch.export.save`` wrote, or a package of AOTInductor's; a ``.onnx`` is
    run by ONNX Runtime and a ``.xml`` by OpenVINO, on the CPU.

    Raises:
        ImportError: the package that runs it is not installed.
        ValueError: the file is not of its format.
    """
    kind = Path(path).suffix
    if NEEDS[kind]:
        try:
            importlib.import_module(NEEDS[kind])
        except ImportError as error:
            text = f"{path} is run by {NEEDS[kind]}, which is not installed"
            raise ImportError(text) from error
    try:
        return {".pt2": _exported, ".onnx": _onnx, ".xml": _openvino}[kind](path)
    except Exception as error:  # of any class, by the package
        first = (str(error).strip().splitlines() or [""])[0]
        raise ValueError(f"{path}: cannot be loaded: {type(error).__name__}: {first}") from error


def _exported(path: str) -> tuple[Callable[..., Any], bool]:
    with zipfile.ZipFile(path) as archive:
        is_compiled = any("aotinductor" in name for name in archive.namelist())
    if is_compiled:
        return importlib.import_module("torch._inductor").aoti_load_package(path), False
    return torch.export.load(path).module(), False


def _tensors(arguments: tuple[Any, ...]) -> list[Tensor]:
    return [each for _, each in leaves(list(arguments)) if isinstance(each, Tensor)]


def _onnx(path: str) -> tuple[Callable[..., Any], bool]:
    session = importlib.import_module("onnxruntime").InferenceSession(path)
    names = [given.name for given in session.get_inputs()]

    def run(*arguments: Any) -> list[Tensor]:
        arrays = [tensor.detach().cpu().numpy() for tensor in _tensors(arguments)]
        results = session.run(None, dict(zip(names, arrays, strict=True)))
        return [torch.from_numpy(result) for result in results]

    return run, True


def _openvino(path: str) -> tuple[Callable[..., Any], bool]:
    openvino = importlib.import_module("openvino")
    # As the model has it: without the hint the CPU computes in bfloat16 where it can.
    options = {"INFERENCE_PRECISION_HINT": openvino.Type.f32}
    model = openvino.Core().compile_model(path, "CPU", options)

    def run(*arguments: Any) -> list[Tensor]:
        results = model([tensor.detach().cpu().numpy() for tensor in _tensors(arguments)])
        return [torch.from_numpy(results[output]) for output in model.outputs]

    return run, True
