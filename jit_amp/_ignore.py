"""jit_amp.ignore_amp."""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable
from typing import Any, TypeVar, overload

import torch
from torch.jit import ScriptFunction, ScriptModule

from jit_amp import _C, _check, _decorated, _float32

_T = TypeVar("_T")


@overload
def ignore_amp(
    fn: None = None, ignore: bool = True, *, scopes: bool = False, float32: bool = False
) -> Callable[[_T], _T]: ...
@overload
def ignore_amp(
    fn: _T, ignore: bool = True, *, scopes: bool = False, float32: bool = False
) -> _T: ...
def ignore_amp(
    fn: Any = None, ignore: bool = True, *, scopes: bool = False, float32: bool = False
) -> Any:
    """Makes a function, a module or a method ignore the autocast around it, or heed it again.

    It then runs as if its body stood inside ``torch.autocast("cpu", enabled=False)`` and
    ``torch.autocast("cuda", enabled=False)``, wherever it is called from: eager, other scripted
    functions, autocast scopes. Scopes of its own still count, unless ``scopes`` is true.

    Args:
        fn (Callable | nn.Module | ScriptFunction | ScriptMethod | type | None): one of

            - what ``jit_amp.script`` returned, or a method of such a module: switched in place, at
              any time, for everything that calls it;
            - an ``nn.Module`` or a method of one: switched in place, for eager and for scripting
              afterwards. A module means its ``forward``;
            - a Python function or a class of modules: use ``ignore_amp`` as a decorator;
            - None: makes a decorator, ``@ignore_amp(ignore=False)``.

            What ``jit_amp.script`` and ``jit_amp.freeze`` copy ignores what the original does. A
            ``copy.deepcopy`` of what ``jit_amp.script`` returned does not.
        ignore: False undoes an earlier call.
        scopes: whether its own scopes, and those of what it calls, are ignored too, so that nothing
            in it runs under autocast: what ``ScriptFunction._set_ignore_amp`` does in PyTorch
            (``torch/csrc/jit/api/function_impl.h``). Only for what ``jit_amp.script`` returned.
        float32: whether its arguments in bfloat16 and float16 are cast to float32, also in tuples,
            lists, dictionaries and data classes (in TorchScript not in a NamedTuple): what autocast
            around the call has made of them is then no mixture of dtypes inside.

    Returns:
        Callable | nn.Module | ScriptFunction: ``fn``; for a Python function, a function to use in
            its place.

    Raises:
        TypeError: ``fn`` was scripted, and not by jit_amp; or ``scopes`` is true, and ``fn`` was
            not scripted; or ``fn`` cannot be called.
    """
    _check.flag("ignore", ignore)
    _check.flag("scopes", scopes)
    _check.flag("float32", float32)
    if fn is None:
        return functools.partial(ignore_amp, ignore=ignore, scopes=scopes, float32=float32)
    if isinstance(fn, ScriptFunction):
        switched = _C.ignore_function(fn, _decorated.pattern(), ignore, scopes, float32)
        _refuse_others(switched, fn)
        return fn
    if isinstance(fn, torch._C.ScriptMethod):
        _refuse_others(_ignore_method(fn.owner, fn.name, ignore, scopes, float32), fn)
        return fn
    if isinstance(fn, ScriptModule):
        _refuse_others(_ignore_method(fn._c, "forward", ignore, scopes, float32), fn)
        return fn
    if scopes:
        raise TypeError(
            "ignore_amp: scopes=True takes what jit_amp.script returned, not "
            f"{type(fn).__name__}: in eager, Python enters the scopes"
        )
    if isinstance(fn, torch.nn.Module):
        _switch(fn, "forward", ignore, float32)
        return fn
    if isinstance(fn, type) and issubclass(fn, torch.nn.Module):
        fn.forward = _switched(fn.forward, ignore, float32)
        return fn
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        _switch(owner, fn.__name__, ignore, float32)
        return getattr(owner, fn.__name__)
    if not callable(fn):
        raise TypeError(f"ignore_amp takes a function or a module, not {_check.shown(fn)}")
    return _switched(fn, ignore, float32)


def _forget_ignored(phase: str, _: dict[str, int]) -> None:
    if phase == "stop":
        _C.forget_ignored()


def keep_in_float32(owner: Any, lines: list[tuple[str, int, int]]) -> None:
    """A scripted module's forward, or these lines of it and of what it calls: each a file, the
    first line and the last."""
    _forget_after_collections()
    _C.keep_in_float32(owner, "forward", _decorated.pattern(), lines)


def _ignore_method(owner: Any, name: str, ignore: bool, scopes: bool, widens: bool) -> bool:
    """As long as it is known that a module ignores autocast, its weights are kept; so it is asked
    after each garbage collection whether the module is gone."""
    _forget_after_collections()
    return _C.ignore_method(owner, name, _decorated.pattern(), ignore, scopes, widens)


def _forget_after_collections() -> None:
    if _forget_ignored not in gc.callbacks:
        gc.callbacks.append(_forget_ignored)


def _refuse_others(switched: bool, fn: Any) -> None:
    if not switched:
        raise TypeError(
            f"ignore_amp: {type(fn).__name__} was not scripted by jit_amp: use what "
            "jit_amp.script returns for it, or decorate the Python function"
        )


def _switched(fn: Callable[..., Any], ignore: bool, widens: bool) -> Callable[..., Any]:
    inner = _decorated.ignoring.get(fn)
    if not ignore:
        return fn if inner is None else inner
    if inner is not None and (fn in _decorated.widening) == widens:
        return fn
    below = fn if inner is None else inner

    @functools.wraps(below)
    def ignoring_amp(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            if widens:
                return below(*_float32.widened(args), **_float32.widened(kwargs))
            return below(*args, **kwargs)

    _decorated.ignoring[ignoring_amp] = below
    if widens:
        _decorated.widening.add(ignoring_amp)
    return ignoring_amp


def _switch(module: torch.nn.Module, name: str, ignore: bool, widens: bool) -> None:
    """The same for one method of one module."""
    method = getattr(module, name)
    bound = getattr(method, "__self__", None) is module
    switched = _switched(method.__func__ if bound else method, ignore, widens)
    if getattr(type(module), name, None) is switched:
        vars(module).pop(name, None)
    else:
        # Bound, so that a deep copy's method is the copy's.
        vars(module)[name] = types.MethodType(switched, module) if bound else switched
