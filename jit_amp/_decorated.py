"""The scopes of functions and methods decorated with ``torch.autocast``."""

from __future__ import annotations

import contextlib
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.jit import _script, _state

from jit_amp import _C, _check, _pattern

# device_type, dtype or None, enabled, cache_enabled or None: _C's Around
Around = tuple[str, Any, bool, "bool | None"]
# What ignore_amp returned for a Python function, and that function; those that are given float32.
ignoring: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
widening: weakref.WeakSet[Any] = weakref.WeakSet()
# The dtype of a precision's name; None is the device's default. The last names are for no autocast.
_DTYPES: dict[str | None, torch.dtype | None] = {
    "amp": None,
    **dict.fromkeys(("amp_bf16", "amp_bfloat16", "bf16", "bfloat16", "bf16-mixed"), torch.bfloat16),
    **dict.fromkeys(("amp_fp16", "amp_float16", "fp16", "float16"), torch.float16),
    **dict.fromkeys(("16-mixed", "16"), torch.float16),
}
_NO_AUTOCAST = ("fp32", "float32", "32-true", "32", "no", "", None)
# The dtype of names that stand for a model that is in this dtype itself.
_WHOLE_MODELS: dict[str | None, str] = {
    **dict.fromkeys(("bf16-true", "pure_bf16"), "torch.bfloat16"),
    **dict.fromkeys(("16-true", "pure_fp16"), "torch.float16"),
    **dict.fromkeys(("64-true", "64", "fp64", "float64"), "torch.float64"),
}
WIDENS: Around = ("float32 inputs", None, False, None)  # passes/source/wrap.h, kWidens
IGNORED: list[Around] = [("cpu", None, False, None), ("cuda", None, False, None)]


def unwrap(func: Any) -> tuple[Any, list[Around]]:
    """Returns what decorators wrap, and their scopes from the outermost.

    The decorators are ``torch.autocast`` and ``jit_amp.ignore_amp``.
    """
    scopes: list[Around] = []
    bound_to = getattr(func, "__self__", None)
    plain = getattr(func, "__func__", func)
    while getattr(plain, "__name__", None) is not None:
        if isinstance(plain, types.FunctionType) and plain in ignoring:
            scopes += [*IGNORED, *([WIDENS] if plain in widening else [])]
            plain = ignoring[plain]
        elif found := _one_layer(plain):
            instance, plain = found
            scopes.append(_of(instance))
        else:
            break
        bound_to = getattr(plain, "__self__", bound_to)
        plain = getattr(plain, "__func__", plain)
    if scopes and bound_to is not None and not hasattr(plain, "__self__"):
        plain = types.MethodType(plain, bound_to)
    return (plain if scopes else func), scopes


def _one_layer(func: Any) -> tuple[torch.autocast, Any] | None:
    """The autocast object and the function of one layer (torch/amp/autocast_mode.py)."""
    code = getattr(func, "__code__", None)
    if code is None or code.co_name != "decorate_autocast":
        return None
    cells = dict(zip(code.co_freevars, func.__closure__, strict=True))
    return cells["autocast_instance"].cell_contents, cells["func"].cell_contents


class GradientMode(NamedTuple):
    """A decorator such as ``torch.no_grad()``."""

    decorator: str
    records: bool


def gradient_modes_above_autocast(func: Any) -> list[GradientMode]:
    """Finds ``torch.no_grad`` and its like where they decorate what autocast has decorated.

    Returns:
        list[GradientMode]: from the outermost, the last of which is the one that holds; empty where
            other decorators, or none, are above autocast's.
    """
    modes = []
    plain = getattr(func, "__func__", func)
    while layer := _gradient_mode_layer(plain):
        mode, plain = layer
        modes.append(mode)
    return modes if unwrap(plain)[1] else []


def _gradient_mode_layer(func: Any) -> tuple[GradientMode, Any] | None:
    """The mode and the function of one layer (torch/utils/_contextlib.py)."""
    code = getattr(func, "__code__", None)
    if code is None or code.co_name != "decorate_context":
        return None
    cells = dict(zip(code.co_freevars, func.__closure__, strict=True))
    if "ctx_factory" not in cells or "func" not in cells:
        return None
    manager = getattr(cells["ctx_factory"].cell_contents, "__self__", None)
    below = cells["func"].cell_contents
    if isinstance(manager, torch.no_grad):
        return GradientMode("torch.no_grad()", False), below
    if isinstance(manager, torch.enable_grad):
        return GradientMode("torch.enable_grad()", True), below
    if isinstance(manager, torch.set_grad_enabled):
        return GradientMode(f"torch.set_grad_enabled({manager.mode})", manager.mode), below
    if isinstance(manager, torch.inference_mode):
        records = not manager.mode
        return GradientMode(f"torch.inference_mode({'False' if records else ''})", records), below
    return None


def scopes_of(autocast: Any) -> list[Around]:
    """The scopes of a ``torch.autocast`` or of a callable that makes one; none of a nullcontext."""
    made = (
        autocast() if callable(autocast) and not isinstance(autocast, torch.autocast) else autocast
    )
    if made is None or isinstance(made, contextlib.nullcontext):
        return []
    if not isinstance(made, torch.autocast):
        raise TypeError(f"autocast: a torch.autocast or None, not {_check.shown(autocast)}")
    return [_of(made) if made is autocast else (*_of(made)[:3], None)]


def _of(made: torch.autocast) -> Around:
    """What eager enters: an instance keeps the cache's setting that it was made under."""
    return made.device, made.fast_dtype, made._enabled, made._cache_enabled


def get_autocast(
    precision: str | int | None, device_type: str = "cuda"
) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Returns a function that makes the autocast scope for the name of a precision.

    For configuration files: ``with get_autocast("bf16", "cpu")():``, or as ``autocast`` of
    ``jit_amp.script``.

    Args:
        precision: ``"amp"`` (the device's default dtype); ``"amp_bf16"``, ``"amp_bfloat16"``,
            ``"bf16"``, ``"bfloat16"`` or ``"bf16-mixed"``; ``"amp_fp16"``, ``"amp_float16"``,
            ``"fp16"``, ``"float16"``, ``"16-mixed"`` or ``16``; ``"fp32"``, ``"float32"``,
            ``"32-true"``, ``32``, ``"no"``, ``""`` or None for no autocast.
        device_type: the device's name, as ``torch.autocast`` takes it.

    Returns:
        Callable[[], ContextManager]: a function without arguments. It returns a ``torch.autocast``,
            or a ``nullcontext`` where the name stands for no autocast.

    Raises:
        ValueError: another name. ``"bf16-true"``, ``"16-true"``, ``"64-true"`` and their like are
            no autocast: the model is cast to that dtype.
    """
    _check.instance("device_type", device_type, str, "a device type such as 'cpu' or 'cuda'")
    name: Any = (
        str(precision) if type(precision) is int and precision in (16, 32, 64) else precision
    )
    if isinstance(name, str) and name in _WHOLE_MODELS:
        dtype = _WHOLE_MODELS[name]
        raise ValueError(
            f"precision: {precision!r} is no autocast, but a model whose weights and inputs are "
            f"{dtype.removeprefix('torch.')}: model.to({dtype}), and no scope"
        )
    _check.choice("precision", name, (*_DTYPES, *_NO_AUTOCAST))
    if name in _NO_AUTOCAST:
        return contextlib.nullcontext
    return functools.partial(torch.autocast, device_type, dtype=_DTYPES[name])


def pattern() -> torch._C.Graph:
    """A graph with one scope. It is compiled anew where PyTorch has forgotten its classes since
    (``torch._C._jit_clear_class_registry``, as test suites call it): their methods are gone.
    """
    graph = _script.script(_pattern.scope).graph
    [made] = [n.output().type() for n in graph.nodes() if n.kind() == "prim::CreateObject"]
    if _state._python_cu.get_class(made.annotation_str) != made:
        _state._jit_caching_layer.pop(_pattern.scope, None)
        _state._script_classes.pop(torch.amp.autocast_mode.autocast, None)
        graph = _script.script(_pattern.scope).graph
    return graph


def wrapped_function(func: Any, scopes: list[Around]) -> Any:
    """A copy of a scripted function inside scopes."""
    wrapped = _C.wrapped_function(func, pattern(), scopes)
    vars(wrapped).update(vars(func))
    return wrapped
