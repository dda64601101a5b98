"""Decorators that are lost in what PyTorch has compiled before."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from torch.jit import ScriptModule, _state

from jit_amp._script.compilation import compiled_here
from jit_amp._script.members import FUNCTIONS, only_switch_gradients, scopes_of
from jit_amp._script.wrapped import refuse_calls_of_its_own, refuse_decorator, refuse_forgotten
from jit_amp._source.decorators import Around


def forgotten_scopes(module: ScriptModule) -> Iterator[tuple[str, str, list[Around]]]:
    """The scopes of decorators that plain ``torch.jit.script`` has forgotten, as it does all.

    Yields:
        the path of a module, the name of a method of it, and the scopes.

    Raises:
        AutocastError: a decorator that enters autocast in a way of its own.
    """
    graphs = []
    for path, part in module.named_modules(remove_duplicate=False):
        part = vars(part).get("_actual_script_module", part)
        if not isinstance(part, ScriptModule) or part in compiled_here:
            continue
        for name in part._c._method_names():
            function = _python_method(part, name)
            if function is not None:
                refuse_forgotten(function)
                if scopes := scopes_of(function):
                    yield path, name, scopes
        if cls := _python_class(part):
            refuse_calls_of_its_own(part, cls)
            # A file's functions have no more than their names.
            graphs += [part._c._get_method(name).graph for name in part._c._method_names()]
    for called in _functions_called(graphs):
        refuse_forgotten(called)
        if not only_switch_gradients(scopes_of(called)):
            refuse_decorator(called, "a decorator, and PyTorch has compiled it without")


def _functions_called(graphs: list[Any]) -> Iterator[Any]:
    """The Python functions that graphs call, and these in turn, as far as PyTorch knows them."""
    python = {name: function for function, name in _state._jit_caching_layer.items()}
    ahead, seen = [*graphs], set()
    while ahead:
        for call in ahead.pop().findAllNodes("prim::CallFunction", recurse=True):
            name = next(call.inputs()).type().annotation_str
            if name not in seen:
                seen.add(name)
                compiled = _state._python_cu.find_function(name)
                ahead += [] if compiled is None else [compiled.graph]
                if name in python:
                    yield _as_it_is_called(python[name])


def _as_it_is_called(function: Any) -> Any:
    """The function of its file that leads to a function that PyTorch has compiled: of what is under
    ``torch.jit.script_if_tracing`` PyTorch knows no decorator above it."""
    named = getattr(function, "__globals__", {}).get(getattr(function, "__name__", ""))
    below = named
    while below is not None and below is not function:
        below = getattr(below, "__original_fn", getattr(below, "__wrapped__", None))
    return named if below is function else function


def _python_class(module: ScriptModule) -> Any:
    """The class that a module was compiled from, where PyTorch tells; None for one of a file."""
    return getattr(getattr(module, "_concrete_type", None), "py_class", None)


def _python_method(module: ScriptModule, name: str) -> Any:
    """What a method was compiled from, where PyTorch tells: nothing of a trace, nor of a file."""
    method = getattr(vars(module).get(name), "__wrapped__", None)
    cls = _python_class(module)
    if method is not None or cls is None or name == "forward":  # a trace has such a forward
        return method
    if accessor := re.fullmatch("__(.+)_(getter|setter)", name):
        value = inspect.getattr_static(cls, accessor[1], None)
        if isinstance(value, property):
            return value.fget if accessor[2] == "getter" else value.fset
    overloaded = re.sub(r"__\d+$", "", name)
    found = inspect.getattr_static(cls, name, inspect.getattr_static(cls, overloaded, None))
    return found if isinstance(found, FUNCTIONS) else None
