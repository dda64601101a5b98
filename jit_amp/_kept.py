"""What belongs to the process, and is after a call of jit_amp what it was before."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

_cuda: Any = torch.cuda


@contextlib.contextmanager
def random_state() -> Iterator[None]:
    """Keeps the random state of PyTorch, Python and NumPy: a user's program runs inside."""
    devices = list(range(_cuda.device_count())) if _cuda.is_initialized() else []
    numpy = sys.modules.get("numpy")
    pythons, numpys = random.getstate(), numpy.random.get_state() if numpy else None
    try:
        with torch.random.fork_rng(devices, device_type="cuda"):
            yield
    finally:
        random.setstate(pythons)
        if numpy:
            numpy.random.set_state(numpys)


@contextlib.contextmanager
def out_of_inference_mode() -> Iterator[None]:
    """Tensors that are made inside may be saved for backward later, wherever this is called."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False):
        yield


@contextlib.contextmanager
def onednn() -> Iterator[None]:
    """Keeps oneDNN switched on. Where it fails on a product of constants, PyTorch switches it off
    for the process (aten/src/ATen/native/LinearAlgebra.cpp, "switching to BLAS gemm")."""
    was_enabled = torch._C._get_mkldnn_enabled()
    try:
        yield
    finally:
        if torch._C._get_mkldnn_enabled() != was_enabled:
            torch._C._set_mkldnn_enabled(was_enabled)
