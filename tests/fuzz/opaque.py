"""An operator of which nothing can be known: the dtype of its result depends on a size."""

from __future__ import annotations

import torch
from torch import Tensor

LIBRARY = torch.library.Library("jit_amp_fuzz", "DEF")
LIBRARY.define("odd(Tensor x) -> Tensor")


def odd(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16) if x.numel() % 2 else x.clone()


LIBRARY.impl("odd", odd, "CompositeExplicitAutograd")
