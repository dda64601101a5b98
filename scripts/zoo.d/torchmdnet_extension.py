"""Stands in for `torchmdnet.extensions`, which loads torchmd-net's compiled operator.

Its wheel's is for a build of PyTorch with CUDA. What models call, the pairs of atoms that are near,
is written here in Python.

`import torchmdnet_extension` comes before `import torchmdnet`.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor


def _pairs(
    strategy: str,
    positions: Tensor,
    batch: Tensor,
    box_vectors: Tensor,
    use_periodic: bool,
    cutoff_lower: float,
    cutoff_upper: float,
    max_num_pairs: int,
    loop: bool,
    include_transpose: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pairs, vectors, distances, and how many; filled up to `max_num_pairs` with -1 and 0."""
    if use_periodic:
        raise NotImplementedError("periodic boxes")
    row, column = torch.ones(len(positions), len(positions)).nonzero().unbind(1)
    wanted = batch[row] == batch[column]
    if not include_transpose:
        wanted &= row >= column
    if not loop:
        wanted &= row != column
    row, column = row[wanted], column[wanted]
    vectors = positions[row] - positions[column]
    is_self = (row == column)[:, None]
    distances = torch.where(is_self, 1.0, vectors).square().sum(1).sqrt()
    distances = torch.where(is_self[:, 0], 0.0, distances)
    near = (distances < cutoff_upper) & ((distances >= cutoff_lower) | is_self[:, 0])
    row, column, vectors, distances = row[near], column[near], vectors[near], distances[near]
    missing = max_num_pairs - len(row)
    pairs = torch.nn.functional.pad(torch.stack([row, column]), (0, missing), value=-1)
    return (
        pairs.int(),
        torch.nn.functional.pad(vectors, (0, 0, 0, missing)),
        torch.nn.functional.pad(distances, (0, missing)),
        torch.tensor([len(row)], dtype=torch.int32),
    )


_library = torch.library.Library("torchmdnet_extensions", "DEF")
_library.define(
    "get_neighbor_pairs(str strategy, Tensor positions, Tensor batch, Tensor box_vectors, "
    "bool use_periodic, Scalar cutoff_lower, Scalar cutoff_upper, Scalar max_num_pairs, bool loop, "
    "bool include_transpose) -> (Tensor, Tensor, Tensor, Tensor)"
)
_library.define("is_current_stream_capturing() -> bool")
_library.impl("is_current_stream_capturing", lambda: False, "CompositeImplicitAutograd")
_library.impl("get_neighbor_pairs", _pairs, "CompositeImplicitAutograd")


def is_current_stream_capturing() -> bool:
    return torch.ops.torchmdnet_extensions.is_current_stream_capturing()


def get_neighbor_pairs_kernel(
    strategy: str,
    positions: Tensor,
    batch: Tensor,
    box_vectors: Tensor,
    use_periodic: bool,
    cutoff_lower: float,
    cutoff_upper: float,
    max_num_pairs: int,
    loop: bool,
    include_transpose: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.ops.torchmdnet_extensions.get_neighbor_pairs(
        strategy, positions, batch, box_vectors, use_periodic, cutoff_lower, cutoff_upper,
        max_num_pairs, loop, include_transpose,
    )  # fmt: skip


sys.modules["torchmdnet.extensions"] = sys.modules[__name__]
