"""What TorchScript's compiler does otherwise in a thread while it compiles for jit_amp.

It forgets decorators: what ``torch.autocast`` and ``jit_amp.ignore_amp`` wrap is compiled here as
the function below them, and their scopes are then put around what became of it. A decorator that
enters autocast in a way of its own is refused.

It gives the compiler the scopes that stand for the items of a `with` (`_source.with_items`). What
came out is part of a module's type, and of what is known of a function: where other values are
known the next time, both are compiled anew.

It shares the types of modules: one whose methods have scopes is kept in a store of jit_amp's, and
no module that plain ``torch.jit.script`` makes has it. All others are PyTorch's own, as ever.

PyTorch's functions that see to this run otherwise in that thread alone (`_base.replacing`). No
class and no module is touched.
"""

from __future__ import annotations

import contextlib
import functools
import os
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.jit import ScriptModule, _recursive, _script, _trace, frontend

from jit_amp import _C
from jit_amp._base import replacing
from jit_amp._script.compilation import Compilation, current_compilation, lock, this_thread
from jit_amp._script.hooks import HOOKED, Stub
from jit_amp._script.wrapped import refuse_forgotten
from jit_amp._source import decorators


def compiled(obj: Any, frames_up: int = 0, is_wrapped: bool = False) -> Any:
    """``torch.jit.script``, with the scopes of decorators. ``frames_up`` calls above the caller
    is the frame whose names a class may use. ``is_wrapped``: there will be a scope around it."""
    if current_compilation():  # a hook of the user's compiles something in between
        return _script.script(obj, _frames_up=frames_up + 1)
    with lock, HOOKED, overloads_kept(obj):
        compilation = Compilation()
        with replacing.values(vars(this_thread), compilation=compilation):
            result = _script.script(obj, _frames_up=frames_up + 1)
        compilation.finish(result, is_wrapped)
    return result


def compiled_script_methods(
    module: ScriptModule, stubs_of: Callable[[Any], Any], share_types: bool
) -> ScriptModule:
    """What the constructor of a class of ``torch.jit.ScriptModule`` compiles: the methods under
    ``torch.jit.script_method``, with the scopes of their other decorators. PyTorch has read their
    sources with the class; they are read again, for their scopes."""

    def read_again(part: torch.nn.Module) -> list[Any]:
        stubs = stubs_of(part)
        return [_of_script_method(each) for each in stubs] if part is module else stubs

    with lock, HOOKED:
        compilation = Compilation()
        with replacing.values(vars(this_thread), compilation=compilation):
            result: ScriptModule = _recursive.create_script_module(  # type: ignore[no-untyped-call]
                module, read_again, share_types
            )
        compilation.finish(result)
    return result


def _of_script_method(stub: Any) -> Any:
    if stub.original_method is None:  # a text, of `define`
        return stub
    refuse_forgotten(stub.original_method)
    inner, scopes = decorators.unwrap(stub.original_method)
    name = stub.original_method.__name__
    definition = frontend.get_jit_def(inner, name, self_name="ScriptModule")  # type: ignore[no-untyped-call]
    closure = torch._jit_internal.createResolutionCallbackFromClosure(inner)

    def resolve(name: str) -> Any:
        value = closure(name)
        return stub.resolution_callback(name) if value is None else value

    read = Stub(resolve, definition, inner)
    read.scopes = scopes
    return read


@contextlib.contextmanager
def of_a_trace() -> Iterator[None]:
    """What PyTorch compiles for a trace that this thread makes inside, exported methods and what is
    under ``torch.jit.script_if_tracing``, is compiled as `compiled` does it."""
    with _HOOKED_IN_TRACES, replacing.values(vars(this_thread), is_tracing=True):
        yield


def _tracing_outside_a_compilation() -> bool:
    return getattr(this_thread, "is_tracing", False) and not current_compilation()


def _making_a_module(_: bool, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with lock, HOOKED, replacing.values(vars(this_thread), compilation=Compilation()):
        return original(*args, **kwargs)


def _scripting_if_tracing(
    _: bool, original: Callable[..., Any], obj: Any, *args: Any, **kwargs: Any
) -> Any:
    if torch._C._is_tracing() and isinstance(obj, types.FunctionType):
        return compiled(obj)
    return original(obj, *args, **kwargs)


def overloads_kept(obj: Any) -> _C.AtExit:
    """Takes out what PyTorch's compiler leaves in the modules that it compiles
    (torch/jit/_recursive.py, infer_methods_to_compile)."""
    name = "__overloads__"
    is_made = isinstance(obj, torch.nn.Module) and "_modules" in vars(obj)
    undo: list[Callable[[], object]] = []
    for module in obj.modules() if is_made else ():
        members: dict[str, Any] = vars(module)
        if name in members:
            undo.append(functools.partial(members.__setitem__, name, members[name]))
        else:
            undo.append(functools.partial(members.pop, name, None))
    return _C.AtExit(undo)


def _wait_before_fork() -> None:
    """A fork waits for other threads' compilations: a child has neither these threads, nor what
    they have replaced, nor a type that one of them has compiled by half. A child that is forked
    within a compilation goes on with it."""
    lock.acquire()
    _C.take_turn()


def _go_on_after_fork() -> None:
    _C.leave_turn()
    lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_wait_before_fork,
        after_in_parent=_go_on_after_fork,
        after_in_child=_go_on_after_fork,
    )


_HOOKED_IN_TRACES = replacing.functions(
    *(
        replacing.Hook(module, name, hook, _tracing_outside_a_compilation)
        for module, name, hook in (
            (_trace, "make_module", _making_a_module),
            (_script, "_script_impl", _scripting_if_tracing),
        )
    )
)
