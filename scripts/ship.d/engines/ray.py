"""Ray Data: an artefact on a data set, in two workers that load the file once each."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.cloudpickle
import ray.data
import torch
from torch import Tensor


class Predictor:
    """A worker. Ray makes it once, and calls it for each batch."""

    def __init__(self, file: str) -> None:
        torch.set_num_threads(1)
        self.model = torch.jit.load(file)
        with open(f"{file}.loads", "a") as loads:
            loads.write(f"{os.getpid()}\n")

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.no_grad():
            result = self.model(torch.from_numpy(batch["x"].copy()))
        # NumPy has no bfloat16; float32 holds all of its values.
        worker = np.full(len(result), os.getpid())
        return {"row": batch["row"], "y": result.float().numpy(), "worker": worker}


def predict(file: Path, x: Tensor, size: int) -> tuple[Tensor, Counter[int]]:
    """The results in their rows' order, and how many rows each worker did."""
    rows = [{"row": i, "x": row.numpy()} for i, row in enumerate(x)]
    data = ray.data.from_items(rows, override_num_blocks=len(x) // size)
    done = data.map_batches(
        Predictor,
        fn_constructor_args=(str(file),),
        batch_size=size,
        compute=ray.data.ActorPoolStrategy(size=2),
    ).take_all()
    done.sort(key=lambda row: row["row"])
    result = torch.from_numpy(np.stack([row["y"] for row in done]))
    return result, Counter(row["worker"] for row in done)


def start() -> None:
    if not ray.is_initialized():
        # What is here goes to the workers itself: they need not find this file.
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        # Four is a number for Ray's bookkeeping: two for the workers, and some to read with.
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.wait_for_min_actors_s = 300  # both are there before the first batch


def run(artefact: Any, x: Tensor, work: Path) -> str:
    start()
    file = work / "model.pt"
    torch.jit.save(artefact, file)
    loads = work / "model.pt.loads"
    loads.unlink(missing_ok=True)
    torch.manual_seed(1)
    many = torch.randn(16 * len(x), *x.shape[1:])
    result, workers = predict(file, many, len(x))

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as a worker has it
    alone = torch.cat([artefact(batch).float() for batch in many.split(len(x))])
    torch.set_num_threads(threads)
    if not torch.equal(result, alone):
        raise AssertionError(f"{(result - alone).abs().max()} off a single process")
    loaded = Counter(map(int, loads.read_text().split()))
    if len(workers) != 2 or set(loaded) != set(workers) or set(loaded.values()) != {1}:
        raise AssertionError(f"rows {dict(workers)}, loads {dict(loaded)}")
    return "runs, 16 batches in 2 workers, bit for bit as in one process"


ROUTES = {"": run}
