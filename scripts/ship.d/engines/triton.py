"""A model repository for Triton Inference Server. The server is no Python package: here its schema
reads the configuration, and PyTorch calls the model by the names and dtypes that stand there.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engines.common import Refused
from google.protobuf import text_format
from torch import Tensor
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import np_to_triton_dtype


def write_repository() -> Any:
    """jit_amp's function, from its file: the rest of jit_amp is not imported here."""
    package = importlib.util.find_spec("jit_amp")
    assert package and package.origin
    file = Path(package.origin).parent / "_cli" / "triton.py"
    spec = importlib.util.spec_from_file_location("repository", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.write_repository


class Float32(torch.nn.Module):
    """With a result that the PyTorch backend has."""

    def __init__(self, artefact: Any) -> None:
        super().__init__()
        self.artefact = artefact

    def forward(self, x: Tensor) -> Tensor:
        return self.artefact(x).float()


def check(artefact: Any, x: Tensor, work: Path) -> Tensor:
    write_repository()(work, "model", artefact, (x,))
    text = (work / "model" / "config.pbtxt").read_text()
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    (given,), (made,) = config.input, config.output
    assert config.name == "model" and config.backend == "pytorch"
    types = model_config_pb2.DataType
    assert types.Name(given.data_type) == "TYPE_" + np_to_triton_dtype(np.dtype("float32"))
    model = torch.jit.load(work / "model" / "1" / "model.pt")
    result = model(**{given.name: x})
    assert types.Name(made.data_type) == "TYPE_" + np_to_triton_dtype(result.numpy().dtype)
    assert len(given.dims) == x.dim() and len(made.dims) == result.dim()
    return result


SAYS = "the schema takes it, and the model gives what it says; no server was run"


def as_it_is(artefact: Any, x: Tensor, work: Path) -> str:
    if work.name.endswith("-bfloat16"):
        raise Refused("Triton's PyTorch backend has no bfloat16 inputs or outputs")
    assert torch.equal(check(artefact, x, work), artefact(x))
    return SAYS


def with_float32_results(artefact: Any, x: Tensor, work: Path) -> str:
    assert torch.equal(check(torch.jit.script(Float32(artefact)), x, work), artefact(x).float())
    return SAYS


ROUTES = {"as it is": as_it_is, "float32 results": with_float32_results}
