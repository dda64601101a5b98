"""What belongs to the process, and is after a call of jit_amp what it was before."""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch

from jit_amp import _C
from jit_amp._base import replacing

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


def autocast_devices() -> list[str]:
    """The devices that autocast may be on for: by their names, of a third party's by its own."""
    third = torch._C._get_privateuse1_backend_name()
    names = ("cpu", "cuda", "xpu", "mps", "mtia", "hpu", "maia", "ipu", "xla", third)
    return [name for name in names if torch.amp.is_autocast_available(name)]


@contextlib.contextmanager
def modes() -> Iterator[None]:
    """Keeps autocast's state, and whether gradients are recorded: a user's program runs inside,
    which may enter a scope by hand and raise before it leaves it."""
    devices = autocast_devices()
    autocasts = [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices]
    is_cached, nesting = torch.is_autocast_cache_enabled(), _nesting()
    try:
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            yield
    finally:
        while _nesting() > nesting:
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()
        torch.set_autocast_cache_enabled(is_cached)
        for device, (enabled, dtype) in zip(devices, autocasts, strict=True):
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)


@contextlib.contextmanager
def no_autocast() -> Iterator[None]:
    """Autocast off, as the scopes of a program are part of it already."""
    before = {device: torch.is_autocast_enabled(device) for device in autocast_devices()}
    try:
        for device in before:
            torch.set_autocast_enabled(device, False)
        yield
    finally:
        for device, enabled in before.items():
            torch.set_autocast_enabled(device, enabled)


@functools.cache
def silent(name: str) -> _C.Replacements:
    """For ``with``: without what the logger of that name tells."""
    yes: Any = ("disabled by", __name__)  # not the True that may stand there
    return replacing.values(vars(logging.getLogger(name)), disabled=yes)


class _PassOff:
    """How many are in `without_pytorchs_pass`, and whether PyTorch's pass was on before."""

    lock, users, before = threading.Lock(), 0, False


@contextlib.contextmanager
def without_pytorchs_pass() -> Iterator[None]:
    """Without PyTorch's own autocast pass (torch/csrc/jit/passes/autocast.cpp), in the process."""
    with _PassOff.lock:
        if _PassOff.users == 0:
            _PassOff.before = torch._C._jit_set_autocast_mode(False)
        _PassOff.users += 1
    try:
        yield
    finally:
        with _PassOff.lock:
            _PassOff.users -= 1
            if _PassOff.users == 0:
                torch._C._jit_set_autocast_mode(_PassOff.before)


def _nesting() -> int:
    """Returns how many autocast scopes are open in this thread."""
    increment, decrement = torch.autocast_increment_nesting, torch.autocast_decrement_nesting
    return (increment(), decrement())[1]  # one line: an interrupt comes before it or after it


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
