"""One process of test_ddp.py: trains with DistributedDataParallel, eager's and jit_amp's models.

The first prints, as JSON, in which variants the parameters after 20 steps are not the same bit for
bit, for each process.
"""

import contextlib
import copy
import gc
import json
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import jit_amp

warnings.simplefilter("ignore")
STEPS = 20


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.unused = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(2, 2)
        self.norm = nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = F.gelu(self.first(x))
            return self.second(self.norm(h) + h)


VARIANTS = {
    "as it is": {},
    "find_unused_parameters": {"find_unused_parameters": True},
    "static_graph": {"static_graph": True},
    "no_sync": {},
    "fp16_compress_hook": {},
}


def trained(model: nn.Module, variant: str, rank: int) -> list[Tensor]:
    options = VARIANTS[variant]
    if "find_unused_parameters" not in options:
        for parameter in model.unused.parameters():
            parameter.requires_grad_(False)
    replica = DistributedDataParallel(model, **options)
    if variant == "fp16_compress_hook":
        replica.register_comm_hook(None, fp16_compress_hook)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        x = torch.randn(4, 8, generator=generator)
        local = variant == "no_sync" and step % 2 == 0
        with replica.no_sync() if local else contextlib.nullcontext():
            F.cross_entropy(replica(x).float(), torch.arange(4)).backward()
        if not local:
            optimiser.step()
            optimiser.zero_grad()
    return [parameter.detach().clone() for parameter in model.parameters()]


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Model()
    different = []
    for variant in VARIANTS:
        expected = trained(copy.deepcopy(model), variant, rank)
        for name, make in (
            ("scripted", jit_amp.script),
            ("traced", lambda module: jit_amp.trace(module, (torch.randn(4, 8),))),
        ):
            actual = trained(make(copy.deepcopy(model)), variant, rank)
            if not all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True)):
                different.append(f"{name}, {variant}")
    moved = not torch.equal(expected[0], next(model.parameters()))
    reports: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(reports, {"rank": rank, "different": different, "moved": moved})
    if rank == 0:
        print(json.dumps(reports), flush=True)
    gc.collect()  # replicas end before what they speak through
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
