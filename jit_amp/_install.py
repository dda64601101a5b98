"""jit_amp.install and jit_amp.uninstall."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.jit import ScriptFunction, ScriptModule, _recursive

from jit_amp import _C
from jit_amp._freeze.freeze import freeze, optimize_for_inference
from jit_amp._script import compiling
from jit_amp._script.compilation import is_compiling
from jit_amp._script.ignore_amp import has_programs, ignore_amp
from jit_amp._script.script import lower_types, script
from jit_amp._script.trace import trace, trace_module

_NAMES = ("script", "trace", "trace_module", "freeze", "load", "optimize_for_inference")
_originals = {name: getattr(torch.jit, name) for name in _NAMES}


@functools.wraps(_originals["script"])
def _script(
    obj: Any,
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> Any:
    # Classes become types, dicts and lists shared ones: nothing there is run under autocast. For
    # a callee it is PyTorch's compiler that asks.
    plain_class = isinstance(obj, type) and not issubclass(obj, torch.nn.Module)
    is_callee = _rcb is not None or is_compiling()
    if plain_class or isinstance(obj, (dict, list)) or is_callee:
        return _originals["script"](obj, optimize, _frames_up + 1, _rcb, example_inputs)
    return script(obj, optimize, _frames_up + 1, None, example_inputs)


@functools.wraps(_originals["trace"])
def _trace(*args: Any, **kwargs: Any) -> Any:
    return trace(*args, **kwargs)


@functools.wraps(_originals["trace_module"])
def _trace_module(*args: Any, **kwargs: Any) -> Any:
    return trace_module(*args, **kwargs)


@functools.wraps(_originals["freeze"])
def _freeze(
    mod: Any,
    preserved_attrs: Any = None,
    optimize_numerics: bool = True,
    **examples: Any,
) -> Any:
    return freeze(mod, preserved_attrs, optimize_numerics, **examples)


@functools.wraps(_originals["load"])
def _load(*args: Any, **kwargs: Any) -> Any:
    loaded = _originals["load"](*args, **kwargs)
    lower_types(loaded.modules())
    return script(loaded)


@functools.wraps(_originals["optimize_for_inference"])
def _optimize_for_inference(mod: Any, other_methods: Any = None, **examples: Any) -> Any:
    return optimize_for_inference(mod, other_methods, **examples)


_OURS = {
    "script": _script,
    "trace": _trace,
    "trace_module": _trace_module,
    "freeze": _freeze,
    "load": _load,
    "optimize_for_inference": _optimize_for_inference,
}
_create_script_module: Any = _recursive.create_script_module


@functools.wraps(_create_script_module)
def _created_script_module(
    nn_module: Any, stubs_fn: Any, share_types: bool = True, is_tracing: bool = False
) -> Any:
    # The constructor of a class of torch.jit.ScriptModule calls it; and so does PyTorch's script.
    if not isinstance(nn_module, ScriptModule) or is_tracing or is_compiling():
        return _create_script_module(nn_module, stubs_fn, share_types, is_tracing)
    return script(compiling.compiled_script_methods(nn_module, stubs_fn, share_types))


_inline: Any = torch._C._jit_pass_inline


@functools.wraps(_inline)
def _inline_sources(graph: Any) -> None:
    """PyTorch's pass, for who draws a model (torch/utils/tensorboard/_pytorch_graph.py)."""
    by_pytorch = graph.copy()
    _inline(by_pytorch)
    if has_programs(by_pytorch):
        _C.inline_sources(graph)
    else:
        _inline(graph)


_scripted_function: Any = ScriptFunction
_set_ignore_amp = _scripted_function._set_ignore_amp


def _ignore(self: Any, ignore: bool) -> None:
    """PyTorch's flag; where jit_amp has scripted the function, ignore_amp with its scopes."""
    try:
        ignore_amp(self, ignore, scopes=True)
    except TypeError:
        _set_ignore_amp(self, ignore)


_OURS_INSTALLED = _C.Replacements(
    [
        *(_C.Replaced(torch.jit, name, function) for name, function in _OURS.items()),
        _C.Replaced(_scripted_function, "_set_ignore_amp", _ignore),
        _C.Replaced(_recursive, "create_script_module", _created_script_module),
        _C.Replaced(torch._C, "_jit_pass_inline", _inline_sources),
    ]
)
_holds: list[_C.Hold] = []  # what `install` has returned


def install() -> AbstractContextManager[None]:
    """Makes plain ``torch.jit`` go through jit_amp, for code that is not to be changed.

    Replaced are ``torch.jit.script``, ``trace``, ``trace_module``, ``freeze``, ``load``,
    ``optimize_for_inference``, ``ScriptFunction._set_ignore_amp``, what the constructors of classes
    of ``torch.jit.ScriptModule`` compile their ``script_method``s with, and the pass that inlines
    calls where somebody draws a model. They keep their arguments; ``freeze`` and
    ``optimize_for_inference`` take ``example_inputs`` too, by keyword. What was scripted before
    stays as it is. Calling it again changes nothing.

    It holds in every thread. Where several threads have installed it, it holds until the last of
    them has left its block.

    Returns:
        ContextManager: ``with jit_amp.install():`` brings back, at the end of the block, what
            was there before it. Without ``with`` it holds until ``jit_amp.uninstall``.
    """
    hold = _C.Hold(_OURS_INSTALLED)
    _holds[:] = [*(each for each in _holds if not each.is_released), hold]
    return hold


def uninstall() -> None:
    """Brings PyTorch's own functions back. What was scripted in between stays jit_amp's. The blocks
    of other threads, ``with jit_amp.install():``, stay as they are."""
    for hold in list(_holds):
        if not hold.is_anothers:
            hold.release()
