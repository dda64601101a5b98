"""torch.export beside other threads.

While it traces, torch.fx has functions of its own in place of ``nn.Module.__call__`` and
``nn.Module.__getattr__``, for every thread of the process (torch/fx/_symbolic_trace.py, _Patcher):
a model that another thread calls then is taken for a part of the one that is traced. And it tells
every thread that it exports (torch/_export/utils.py, _compiling_state_context), where scripted
methods run otherwise. Inside `alone` both are for the thread that traces.

It also switches backends off for the process (torch/export/_trace.py, _ignore_backend_decomps), and
what jit_amp.trace records says whether they are on. So nothing is traced meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import _symbolic_trace

from jit_amp._base import replacing
from jit_amp._script import recording

_this_thread = threading.local()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """For what torch.export traces inside, but not with TorchDynamo (``strict=True``), which knows
    functions of PyTorch's by what they are."""
    _let_dynamo_know_pytorchs_functions()
    with (
        recording.tracing,
        _PATCHES,
        replacing.values(vars(_this_thread), ident=threading.get_ident()),
    ):
        yield


@functools.cache
def _let_dynamo_know_pytorchs_functions() -> None:
    """TorchDynamo looks them up by their names, once in a process: the originals must be there."""
    for module, table in (
        ("torch._dynamo.trace_rules", "get_torch_obj_rule_map"),
        ("torch._dynamo.variables.torch", "tracing_state_functions"),
    ):
        make = getattr(importlib.import_module(module), table, None)
        if callable(make):  # in this release
            make()


def _exporting_thread() -> int | None:
    return getattr(_this_thread, "ident", None)


def _patch_method(
    exporting: int,
    original: Callable[..., None],
    patcher: Any,
    cls: type,
    name: str,
    replacement: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> None:
    own = getattr(cls, name)

    @functools.wraps(replacement)
    def in_the_exporting_thread(*args: Any, **kwargs: Any) -> Any:
        is_exporting = threading.get_ident() == exporting
        return (replacement if is_exporting else own)(*args, **kwargs)

    original(patcher, cls, name, in_the_exporting_thread, *args, **kwargs)


def _is_in_another() -> bool:
    """Whether this thread traces nothing, while another one exports."""
    return _exporting_thread() is None and torch._C._len_torch_dispatch_stack() == 0


def _no(*_: Any) -> bool:
    return False


_PATCHES = replacing.functions(
    replacing.Hook(_symbolic_trace._Patcher, "patch_method", _patch_method, _exporting_thread),
    *(
        replacing.Hook(torch.compiler, name, _no, _is_in_another)
        for name in ("is_exporting", "is_compiling")
        if hasattr(torch.compiler, name)  # the first is not in 2.6
    ),
)
