"""torchmd-net: potentials, with torch.jit.script; with forces too, as gradients of the energy."""

from __future__ import annotations

# Before torchmdnet, and before torchvision, which its dependencies import.
import torchmdnet_extension  # noqa: F401  # isort: skip
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Iterator
from typing import Any

import torch
from catalog import Calls, Model
from torch import nn
from torchmdnet.models.model import create_model
from ways import Args, Script

import jit_amp

_EXTENSION = "torchmdnet_extensions::get_neighbor_pairs"
_OPTIONS: dict[str, Any] = {
    "precision": 32,
    "embedding_dimension": 16,
    "num_layers": 2,
    "num_rbf": 8,
    "rbf_type": "expnorm",
    "trainable_rbf": False,
    "activation": "silu",
    "cutoff_lower": 0.0,
    "cutoff_upper": 5.0,
    "max_z": 20,
    "max_num_neighbors": 32,
    "aggr": "add",
    "neighbor_embedding": True,
    "attn_activation": "silu",
    "num_heads": 2,
    "distance_influence": "both",
    "equivariance_invariance_group": "O(3)",
    "output_model": "Scalar",
    "output_mlp_num_layers": 0,
    "reduce_op": "add",
    "prior_model": None,
    "derivative": False,
    "atom_filter": -1,
    "prior_args": None,
    "charge": False,
    "spin": False,
}
_KINDS = ("graph-network", "transformer", "equivariant-transformer", "tensornet")


def _atoms(counts: tuple[int, ...]) -> Args:
    n = sum(counts)
    batch = torch.cat([torch.full((count,), i) for i, count in enumerate(counts)])
    return torch.randint(1, 18, (n,)), 2 * torch.randn(n, 3), batch


def models() -> Iterator[Model]:
    # Its kernel computes distances: none of what it calls computes in bfloat16.
    jit_amp.policy.register(_EXTENSION, "cpu", "untouched")

    def calls(_: nn.Module) -> list[Calls]:
        return [Calls(_atoms((5, 7)), (_atoms((6,)), _atoms((4, 3, 8))))]

    for kind in _KINDS:
        for derivative in (False, True):
            options = {**_OPTIONS, "model": kind, "derivative": derivative}
            yield Model(
                "torchmdnet",
                kind + ", forces" * derivative,
                "potentials",
                lambda options=options: create_model(dict(options)),
                calls,
                Script(),
                needs_grad=derivative,
                extensions=("torchmdnet_extension",),
            )
