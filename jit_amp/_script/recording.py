"""The scopes of a trace, recorded while PyTorch makes it."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.jit import ScriptFunction, ScriptModule
from torch.jit import _trace as _original

from jit_amp import _C
from jit_amp._base import process_state, replacing
from jit_amp._precision import in_float32

_autocast = torch.amp.autocast_mode.autocast
_autocast_file = torch.amp.autocast_mode.__file__
_this_thread = threading.local()


def waits(traced: Any) -> bool:
    """Whether it waits for tasks: a trace that is run as it is may then go on in another thread."""
    return bool(traced.inlined_graph.findAllNodes("aten::wait", recurse=True))


def holds_scripted(python: Any, traced: Any) -> bool:
    """Whether scripted modules or functions run in a scope of it. PyTorch's check runs the trace as
    it is, where what they call stands in no scope, or in one that the tracer's names for operators
    escape; and Python runs what PyTorch's own pass has made of them."""
    owner = getattr(python, "__self__", python)
    modules = owner.modules() if isinstance(owner, torch.nn.Module) else ()
    is_scripted = any(isinstance(each, ScriptModule) for each in modules)
    if not is_scripted and not any(
        graph.findAllNodes("prim::CallFunction") for graph in graphs_of(traced)
    ):
        return False
    return "jit_amp::enter" in str(traced.inlined_graph)


def graphs_of(traced: Any) -> Iterator[Any]:
    """The graphs of a traced function; or those of the module whose method it is, and below it."""
    if isinstance(traced, ScriptFunction):
        yield traced.graph
        return
    ahead = [traced.owner]
    while ahead:
        module = ahead.pop()
        yield from (module._get_method(name).graph for name in module._method_names())
        ahead += [each for _, each in torch._C.ModuleDict(module).items()]


class TraceState:
    """What is known of the trace that a thread makes."""

    def __init__(self) -> None:
        self.recording = _C.TraceRecording()
        self.is_checked = False
        # What was given to the autocast objects that were made: whether a dtype, and cache_enabled.
        self.given: weakref.WeakKeyDictionary[Any, tuple[bool, Any]] = weakref.WeakKeyDictionary()
        self.without_dtype: weakref.WeakSet[Any] = weakref.WeakSet()  # that are being made
        self.entered: dict[int, list[int]] = {}  # the scopes that an object has open, by its id


@contextlib.contextmanager
def recorded() -> Iterator[TraceState]:
    """Inside, traces hold their scopes, and nothing but their own casts of weights.

    torch.autocast objects are seen when this thread makes, enters and leaves them, by the functions
    that their methods call. Classes stay as they are: TorchScript compiles that class from its
    Python members, in this thread too.
    """
    cache_enabled = functools.partial(
        torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled()
    )
    with tracing, _WATCHED:  # PyTorch's tracer has what it is tracing in a global variable
        state = TraceState()
        undo = _C.AtExit([state.recording.stop, cache_enabled])
        with undo, replacing.values(vars(_this_thread), trace=state):
            # A cast that was made before would be a constant, or not to be differentiated.
            torch.clear_autocast_cache()
            torch.set_autocast_cache_enabled(False)
            yield state


def _users_line() -> tuple[str, int, str]:
    """File and number of the line that enters a scope, and what a refusal shows of it."""
    frame = replacing.caller()
    while frame.f_back and frame.f_code.co_filename == _autocast_file:
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    return file, line, f'  File "{file}", line {line}\n{linecache.getline(file, line)}'


def state_of_trace() -> TraceState | None:
    return getattr(_this_thread, "trace", None)


def _asking_for_a_dtype(
    state: TraceState, original: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Called by __init__ where it was given no dtype, before all else."""
    frame = replacing.caller()
    if frame.f_code is _autocast.__init__.__code__ and frame.f_locals["dtype"] is None:
        state.without_dtype.add(frame.f_locals["self"])
    return original(*args, **kwargs)


def _making(state: TraceState, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Called by __init__, which keeps no word of whether a dtype and cache_enabled were given."""
    frame = replacing.caller()
    if frame.f_code is _autocast.__init__.__code__:
        names = frame.f_locals
        scope = names["self"]
        state.given[scope] = scope not in state.without_dtype, names["cache_enabled"]
        state.without_dtype.discard(scope)
    return original(*args, **kwargs)


def _entering(state: TraceState, original: Callable[..., Any]) -> Any:
    """Called once by __enter__."""
    if (scope := replacing.scope_of_caller()) is not None and torch._C._is_tracing():
        made_before = True, scope._cache_enabled
        dtype_given, cache_enabled = state.given.get(scope, made_before)
        enabled = scope._enabled and not in_float32.is_off()
        number = _C.record_enter(
            (scope.device, scope.fast_dtype, enabled, cache_enabled),
            dtype_given,
            *_users_line(),
        )
        if number is not None:
            state.entered.setdefault(id(scope), []).append(number)
    return original()


def _leaving(state: TraceState, original: Callable[..., Any]) -> Any:
    """Called once by __exit__."""
    scope = replacing.scope_of_caller()
    # An object may be open in several threads: a decorator has one.
    if scope is not None and state.entered.get(id(scope)):
        number = state.entered[id(scope)].pop()
        _C.record_exit(number, (scope.device, scope.prev_fastdtype, scope.prev, None))
    return original()


def _checking(
    state: TraceState,
    original: Callable[..., None],
    inputs: Any,
    python: Any,
    traced: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    """PyTorch's check of a trace, which follows it at once: not where it would be wrong."""
    if not state.is_checked:
        state.is_checked = True
        state.recording.check()
    # PyTorch's own pass would change what is compared, under an ambient autocast.
    ambient = any(torch.is_autocast_enabled(device) for device in process_state.autocast_devices())
    with process_state.without_pytorchs_pass() if ambient else contextlib.nullcontext():
        if not waits(traced) and not holds_scripted(python, traced):
            original(inputs, python, traced, *args, **kwargs)


_WATCHED = replacing.functions(
    replacing.Hook(torch, "get_autocast_dtype", _asking_for_a_dtype, state_of_trace),
    replacing.Hook(torch.amp.autocast_mode, "is_autocast_available", _making, state_of_trace),
    replacing.Hook(torch, "autocast_increment_nesting", _entering, state_of_trace),
    replacing.Hook(torch, "autocast_decrement_nesting", _leaving, state_of_trace),
    replacing.Hook(_original, "_check_trace", _checking, state_of_trace),
)
tracing = threading.RLock()


def _in_child() -> None:
    """A thread that traced is not there in a forked child, unless it is the one that forked. A fork
    does not wait for it: a trace runs the user's code, which may wait for what forks."""
    global tracing
    if state_of_trace() is None:
        tracing = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
