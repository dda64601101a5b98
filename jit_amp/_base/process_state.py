"""What belongs to the process, and is after a call of jit_amp what it was before.

These contexts are entered and left from C, and what Ctrl-C interrupts while it is put back is put
back again, before the error goes on.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, TypeVar

import torch

from jit_amp import _C
from jit_amp._base import replacing

_cuda: Any = torch.cuda
_F = TypeVar("_F", bound=Callable[..., Any])


def around(context: Callable[[], AbstractContextManager[Any]]) -> Callable[[_F], _F]:
    """A decorator: each call of the function runs inside such a context."""

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def running_inside(*args: Any, **kwargs: Any) -> Any:
            with context():
                return function(*args, **kwargs)

        return running_inside  # type: ignore[return-value]

    return decorate


def all_of(*contexts: _C.AtExit, begin: Callable[[], object] | None = None) -> _C.AtExit:
    """One that enters these, calls `begin`, and leaves them in the opposite order."""

    def enter() -> None:
        for each in contexts:
            each.__enter__()
        if begin is not None:
            begin()

    return _C.AtExit([each.__exit__ for each in reversed(contexts)], enter)


def random_state() -> _C.AtExit:
    """Keeps the random state of PyTorch, Python and NumPy: a user's program runs inside."""
    devices = list(range(_cuda.device_count())) if _cuda.is_initialized() else []
    numpy = sys.modules.get("numpy")
    pythons, numpys = random.getstate(), numpy.random.get_state() if numpy else None
    torchs, cudas = torch.get_rng_state(), [_cuda.get_rng_state(each) for each in devices]

    def bring_back() -> None:
        random.setstate(pythons)
        if numpy:
            numpy.random.set_state(numpys)
        torch.set_rng_state(torchs)
        for device, state in zip(devices, cudas, strict=True):
            _cuda.set_rng_state(state, device)

    return _C.AtExit([bring_back])


def autocast_devices() -> list[str]:
    """The devices that autocast may be on for: by their names, of a third party's by its own."""
    third = torch._C._get_privateuse1_backend_name()
    names = ("cpu", "cuda", "xpu", "mps", "mtia", "hpu", "maia", "ipu", "xla", third)
    return [name for name in names if torch.amp.is_autocast_available(name)]


def modes() -> _C.AtExit:
    """Keeps autocast's state, and whether gradients are recorded: a user's program runs inside,
    which may enter a scope by hand and raise before it leaves it."""
    devices = autocast_devices()
    autocasts = [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices]
    is_cached, nesting = torch.is_autocast_cache_enabled(), _nesting()
    are_recorded = torch.is_grad_enabled()

    def bring_back() -> None:
        while _nesting() > nesting:
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()
        torch.set_autocast_cache_enabled(is_cached)
        for device, (enabled, dtype) in zip(devices, autocasts, strict=True):
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch._C._set_grad_enabled(are_recorded)

    return _C.AtExit([bring_back])


def no_autocast() -> _C.AtExit:
    """Autocast off, as the scopes of a program are part of it already."""
    before = {device: torch.is_autocast_enabled(device) for device in autocast_devices()}

    def switch_off() -> None:
        for device in before:
            torch.set_autocast_enabled(device, False)

    def bring_back() -> None:
        for device, enabled in before.items():
            torch.set_autocast_enabled(device, enabled)

    return _C.AtExit([bring_back], switch_off)


@functools.cache
def silent(name: str) -> _C.Replacements:
    """For ``with``: without what the logger of that name tells."""
    yes: Any = ("disabled by", __name__)  # not the True that may stand there
    return replacing.values(vars(logging.getLogger(name)), disabled=yes)


class _PassOff:
    """Who is in `without_pytorchs_pass`, and whether PyTorch's pass was on before."""

    lock = threading.Lock()
    users: ClassVar[set[object]] = set()
    before = True


def without_pytorchs_pass() -> _C.AtExit:
    """Without PyTorch's own autocast pass (torch/csrc/jit/passes/autocast.cpp), in the process."""
    user = object()

    def switch_off() -> None:
        with _PassOff.lock:
            if not _PassOff.users:
                _PassOff.before = torch._C._jit_set_autocast_mode(False)
            _PassOff.users.add(user)

    def bring_back() -> None:
        with _PassOff.lock:
            if _PassOff.users <= {user}:
                torch._C._jit_set_autocast_mode(_PassOff.before)
            _PassOff.users.discard(user)

    return _C.AtExit([bring_back], switch_off)


def _nesting() -> int:
    """Returns how many autocast scopes are open in this thread."""
    increment, decrement = torch.autocast_increment_nesting, torch.autocast_decrement_nesting
    return (increment(), decrement())[1]  # one line: an interrupt comes before it or after it


def out_of_inference_mode() -> AbstractContextManager[Any]:
    """Tensors that are made inside may be saved for backward later, wherever this is called."""
    if not torch.is_inference_mode_enabled():
        return contextlib.nullcontext()
    mode: AbstractContextManager[Any] = torch._C._InferenceMode(False)
    return mode


def onednn() -> _C.AtExit:
    """Keeps oneDNN switched on. Where it fails on a product of constants, PyTorch switches it off
    for the process (aten/src/ATen/native/LinearAlgebra.cpp, "switching to BLAS gemm")."""
    was_enabled = torch._C._get_mkldnn_enabled()

    def bring_back() -> None:
        if torch._C._get_mkldnn_enabled() != was_enabled:
            torch._C._set_mkldnn_enabled(was_enabled)

    return _C.AtExit([bring_back])
