"""Functions and methods decorated with ``torch.autocast``.

TorchScript compiles what a decorator wraps and forgets the decorator, or refuses. Here it compiles
what is wrapped too, and the scope is then put around the compiled body.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.jit import ScriptFunction, ScriptModule, _recursive, _script, _state

from jit_amp import _C, _pattern

_Around = tuple[str, Any, bool]  # device_type, dtype or None, enabled: _C's Around
lock = threading.RLock()
# The pair that fx graphs hold in place of a `with`, and what stands for it in a script.
_IN_SCRIPT = {
    torch.amp.autocast_mode._enter_autocast: _pattern.enter_autocast,
    torch.amp.autocast_mode._exit_autocast: _pattern.exit_autocast,
}
_compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
# What ignore_amp returned for a Python function, and that function.
ignoring: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_IGNORED: list[_Around] = [("cpu", None, False), ("cuda", None, False)]


def unwrap(func: Any) -> tuple[Any, list[_Around]]:
    """Returns what decorators wrap, and their scopes from the outermost.

    The decorators are ``torch.autocast`` and ``jit_amp.ignore_amp``.
    """
    scopes: list[_Around] = []
    bound_to = getattr(func, "__self__", None)
    plain = getattr(func, "__func__", func)
    while getattr(plain, "__name__", None) is not None:
        if isinstance(plain, types.FunctionType) and plain in ignoring:
            scopes += _IGNORED
            plain = ignoring[plain]
        elif found := _one_layer(plain):
            instance, plain = found
            scopes.append((instance.device, instance.fast_dtype, instance._enabled))
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


def scopes_of(autocast: Any) -> list[_Around]:
    """The scopes of a ``torch.autocast`` or of a callable that makes one; none of a nullcontext."""
    made = (
        autocast() if callable(autocast) and not isinstance(autocast, torch.autocast) else autocast
    )
    if made is None or isinstance(made, contextlib.nullcontext):
        return []
    if not isinstance(made, torch.autocast):
        raise TypeError(f"autocast: a torch.autocast or None, not {type(autocast).__name__}")
    return [(made.device, made.fast_dtype, made._enabled)]


def get_autocast(
    precision: str | None, device_type: str = "cuda"
) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Returns what makes the autocast scope of a precision's name.

    Args:
        precision: ``"amp"`` (the device's default dtype), ``"amp_bf16"`` or ``"amp_bfloat16"``;
            anything else means no autocast.
        device_type: as ``torch.autocast`` takes it.
    """
    if precision == "amp":
        return functools.partial(torch.autocast, device_type)
    if precision in ("amp_bf16", "amp_bfloat16"):
        return functools.partial(torch.autocast, device_type, dtype=torch.bfloat16)
    return contextlib.nullcontext


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


def enclosed_function(func: Any, scopes: list[_Around]) -> Any:
    """A copy of a scripted function inside scopes."""
    return _C.enclosed_function(func, pattern(), scopes)


def _try_compile_fn(original: Callable[..., Any]) -> Callable[..., Any]:
    def compile_decorated(fn: Any, loc: Any) -> Any:
        if isinstance(fn, types.FunctionType) and fn in _IN_SCRIPT:
            return original(_IN_SCRIPT[fn], loc)
        inner, scopes = unwrap(fn)
        if not scopes:
            return original(fn, loc)
        if fn not in _compiled:
            scripted = inner if isinstance(inner, ScriptFunction) else original(inner, loc)
            _compiled[fn] = enclosed_function(scripted, scopes)
        return _compiled[fn]

    return compile_decorated


def _owners(module: torch.nn.Module) -> Iterator[Any]:
    for child in module.modules():
        yield child
        yield from (
            cls for cls in type(child).__mro__ if cls.__module__ != "torch.nn.modules.module"
        )


@contextlib.contextmanager
def compiling(obj: Any) -> Iterator[None]:
    """Scripting inside compiles what ``torch.autocast`` decorators wrap."""
    with lock, contextlib.ExitStack() as undo:
        original = _recursive.try_compile_fn
        _recursive.try_compile_fn = _try_compile_fn(original)
        undo.callback(setattr, _recursive, "try_compile_fn", original)
        is_made = "_modules" in getattr(obj, "__dict__", {})
        if isinstance(obj, torch.nn.Module) and is_made and not isinstance(obj, ScriptModule):
            for owner in set(_owners(obj)):
                decorated = {}
                for name, value in list(vars(owner).items()):
                    inner, scopes = unwrap(value)
                    if scopes:
                        decorated[name] = scopes
                        _set(owner, name, inner)
                        undo.callback(_set, owner, name, value)
                if decorated and not isinstance(owner, type):
                    _tell_apart(owner, str(decorated), undo)
        yield


def _tell_apart(module: torch.nn.Module, scopes: str, undo: contextlib.ExitStack) -> None:
    """Gives the module a TorchScript type that modules of its class decorated otherwise lack.

    They would share their methods' code; a constant of another value keeps types apart.
    """
    before = dict(vars(module))
    constants = [*getattr(module, "__constants__", ()), "_scopes_of_decorators"]
    for name, value in (("__constants__", constants), ("_scopes_of_decorators", scopes)):
        vars(module)[name] = value
        undo.callback(vars(module).pop, name)
        if name in before:
            undo.callback(_set, module, name, before[name])


def _set(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, type):
        setattr(owner, name, value)
    else:
        vars(owner)[name] = value


def decorated_methods(
    module: torch.nn.Module, scripted: ScriptModule
) -> list[tuple[str, str, list[_Around]]]:
    """Path, method and scopes of every compiled method whose source is decorated."""
    found = []
    compiled = dict(scripted.named_modules())
    for path, child in module.named_modules():
        if isinstance(child, ScriptModule) or not isinstance(compiled.get(path), ScriptModule):
            continue
        for name in compiled[path]._c._method_names():
            _, scopes = unwrap(vars(child).get(name) or getattr(type(child), name, None))
            if scopes:
                found.append((path, name, scopes))
    return found
