"""Refuses what stands between a call and the function that is compiled, and is not known."""

from __future__ import annotations

import inspect
from typing import Any, NoReturn

import torch

from jit_amp import _C
from jit_amp._base import places, source_files
from jit_amp._script.members import only_switch_gradients
from jit_amp._source import decorators, reaching


def refuse_forgotten(function: Any) -> None:
    """Raises AutocastError where PyTorch's compiler forgets a decorator of a function that enters
    autocast in a way of its own."""
    if what := lost_layer(function, getattr(function, "__self__", None)):
        refuse_decorator(function, what)


def refuse_calls_of_its_own(module: torch.nn.Module, compiled_from: type | None = None) -> None:
    """Refuses a module whose call, in Python, may enter autocast before it comes to `forward`.

    Args:
        module: the module, or what PyTorch has compiled it to.
        compiled_from: in that case the class that it was.
    """
    cls = compiled_from or type(module)
    for name in ("__call__", "_call_impl"):
        call = inspect.getattr_static(cls, name)
        if name in vars(module) and name != "__call__":  # which Python asks of the class alone
            call = vars(module)[name]
        inner, scopes, _ = decorators.look_through(call)
        inner = getattr(inner, "__func__", inner)
        code = getattr(inspect.unwrap(inner), "__code__", None)
        if code is None or code.co_filename.startswith(
            (source_files.PYTORCH, source_files.PACKAGE)
        ):
            continue
        forward, *_ = decorators.look_through(getattr(compiled_from or module, "forward", None))
        besides = [forward, getattr(forward, "__func__", None)]
        is_scope = not only_switch_gradients(scopes) or lost_layer(call, module)
        if is_scope or reaching.reaches_autocast(inner, besides, module):
            what = f"a `{name}` that enters autocast"
        elif reaching.enters_something_unknown(inner, module):
            what = f"a `{name}` with a `with` of something that may be an autocast"
        else:
            continue
        _C.refuse(118, [cls.__qualname__, what, ""], places.of_function(call))


def lost_layer(func: Any, owner: Any) -> str:
    """What stands around a function and may enter autocast, in words; empty if nothing does.

    Args:
        func: the function or method, as it is called.
        owner: the module whose method it is, or None.
    """
    for function, below, has_scopes in decorators.look_through(func).layers:
        if has_scopes or reaching.reaches_autocast(function, below, owner):
            return "a decorator that enters autocast"
        if not reaching.can_be_seen_through(function):
            return f"a `{type(function).__qualname__}` around it, whose code cannot be seen"
        if reaching.enters_something_unknown(function, owner):
            return "a decorator with a `with` of something that may be an autocast"
    return ""


def refuse_decorator(fn: Any, what: str) -> NoReturn:
    name = getattr(inspect.unwrap(fn), "__qualname__", str(fn))
    _C.refuse(118, [name, what, ""], places.of_function(fn))


def refuse_wrapper(fn: Any, owner: Any) -> NoReturn:
    """Refuses a module that stands around another one, as a trainer's does, by the line of that."""
    what, advice = (
        "`*args`, and enters autocast",
        "the module that it calls, scripted by itself, with ",
    )
    parts = list(owner.children()) if isinstance(owner, torch.nn.Module) else []
    place = places.of_function(parts[0].forward) if len(parts) == 1 else ""
    _C.refuse(118, [fn.__qualname__, what, advice], place or places.of_function(fn))


def refuse_other_module(owner: Any, func: Any, inner: Any, name: str) -> None:
    """Refuses what stands around a method of another module, as in a copy of a module whose own
    `forward` was wrapped: eager runs that with the other module's weights."""
    if inner is func or owner is None or name not in vars(owner):
        return
    bound_to = getattr(inner, "__self__", owner)
    if bound_to is not owner and isinstance(bound_to, torch.nn.Module):
        refuse_decorator(func, "a decorator around the method of another module")
