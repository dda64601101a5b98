"""ExecuTorch: its own kernels, and XNNPACK's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engines.common import exported
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torch import Tensor


def run(artefact: Any, x: Tensor, work: Path, partitioner: list[Any]) -> Tensor:
    edge = to_edge_transform_and_lower(exported(work), partitioner=partitioner)
    (work / "model.pte").write_bytes(edge.to_executorch().buffer)
    program = Runtime.get().load_program(work / "model.pte")
    return program.load_method("forward").execute([x])[0]


def portable(artefact: Any, x: Tensor, work: Path) -> Tensor:
    return run(artefact, x, work, [])


def xnnpack(artefact: Any, x: Tensor, work: Path) -> Tensor:
    return run(artefact, x, work, [XnnpackPartitioner()])


ROUTES = {"portable kernels": portable, "XNNPACK": xnnpack}
