"""jit_amp.trace and jit_amp.trace_module."""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, ParamSpec, TypeVar, overload

import torch
from torch._jit_internal import FunctionModifiers
from torch.jit import ScriptFunction, ScriptModule, _state
from torch.jit import _trace as _original

from jit_amp import _C
from jit_amp._base import arguments, process_state, replacing
from jit_amp._precision import in_float32
from jit_amp._precision import precision as _precisions
from jit_amp._precision.precision import Precision
from jit_amp._script import compiling, ignore_amp
from jit_amp._script.script import inside, lower_types, script
from jit_amp._source import decorators

_autocast = torch.amp.autocast_mode.autocast
_autocast_file = torch.amp.autocast_mode.__file__
_this_thread = threading.local()
_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def trace(  # type: ignore[overload-overlap]  # a module can be called too
    func: torch.nn.Module,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = _state._python_cu,
    example_kwarg_inputs: Any = None,
    _store_inputs: bool = True,
    *,
    precision: Precision | str | os.PathLike[str] | None = None,
) -> ScriptModule: ...
@overload
def trace(
    func: Callable[_P, _R],
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = _state._python_cu,
    example_kwarg_inputs: Any = None,
    _store_inputs: bool = True,
    *,
    precision: Precision | str | os.PathLike[str] | None = None,
) -> ScriptFunction[_P, _R]: ...
def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = _state._python_cu,
    example_kwarg_inputs: Any = None,
    _store_inputs: bool = True,
    *,
    precision: Precision | str | os.PathLike[str] | None = None,
) -> Any:
    """``torch.jit.trace``, with the autocast scopes in the trace.

    Scopes that the traced code enters are part of the result, and so is an autocast around the call
    of ``trace``. The casts that autocast makes inside them are not recorded: a call casts as eager
    would for the dtypes that it gets. Parameters stay the module's own.

    The arguments are those of ``torch.jit.trace`` (``torch/jit/_trace.py``).

    Args:
        func (Callable | nn.Module): what is traced.
        example_inputs (tuple | Tensor): the arguments that it is run with: once, and with
            ``check_trace`` again.
        optimize: has no effect, in PyTorch neither.
        check_trace: whether PyTorch's check of the trace runs. It is left out where the trace waits
            for tasks, or where scripted modules run in a scope of it.
        check_inputs (list[tuple] | None): further inputs for that check.
        check_tolerance: how far results may differ in that check.
        strict: as PyTorch has it: with False, a trace may return lists and dictionaries.
        _force_outplace: PyTorch's own, as the next three.
        _module_class: PyTorch's own.
        _compilation_unit: PyTorch's own.
        _store_inputs: PyTorch's own.
        example_kwarg_inputs (dict | None): the arguments by name, in place of ``example_inputs``.
        precision (Precision | str | os.PathLike | None): what ``jit_amp.tune`` found for the
            module, or the file of its ``to_json``: the trace is of the module with that applied.

    Returns:
        ScriptFunction | ScriptModule: as ``jit_amp.script`` returns them.

    Raises:
        AutocastError: a scope that cannot be known when compiling, or an operator that ran in an
            autocast state that no ``torch.autocast`` has made; the text has the line.
        TracingCheckError: PyTorch's check found a difference.
        TypeError: what is no function and no module, or what ``torch.compile``, ``torch.export`` or
            ``Precision.apply`` returned, or no example; ``precision`` is no precision, or not given
            for a module that was not scripted.
        ValueError: the module has no unit of a name in ``precision``.
        RuntimeError: what else ``torch.jit.trace`` raises.
    """
    arguments.traceable("trace", func)
    arguments.not_compiled_in_place("trace", func)
    if precision is not None:
        with _precisions.loaded(precision).apply(func):
            return trace(
                func,
                example_inputs,
                optimize,
                check_trace,
                check_inputs,
                check_tolerance,
                strict,
                _force_outplace,
                _module_class,
                _compilation_unit,
                example_kwarg_inputs,
                _store_inputs,
            )
    if not callable(func):
        raise TypeError(f"trace: {arguments.shown(func)} is not a function or an nn.Module")
    if example_inputs is None and example_kwarg_inputs is None:
        raise TypeError("trace: example_inputs, or example_kwarg_inputs, are needed: it runs them")
    if example_inputs is not None:
        arguments.instance(
            "example_inputs", example_inputs, (Iterable, torch.Tensor), "a tuple of arguments"
        )
    return _traced(
        _original.trace,
        ["forward"],
        func,
        example_inputs,
        optimize,
        check_trace,
        check_inputs,
        check_tolerance,
        strict,
        _force_outplace,
        _module_class,
        _compilation_unit,
        example_kwarg_inputs,
        _store_inputs,
    )


def trace_module(
    mod: torch.nn.Module,
    inputs: dict[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = _state._python_cu,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
) -> ScriptModule:
    """``torch.jit.trace_module``, with the autocast scopes in the trace, as ``jit_amp.trace``.

    Args:
        mod: the module that is traced.
        inputs: the arguments of each method that is to be traced, by the method's name.
        optimize: has no effect, in PyTorch neither.
        check_trace: as ``jit_amp.trace``.
        check_inputs: as ``jit_amp.trace``, with dictionaries like ``inputs``.
        check_tolerance: as ``jit_amp.trace``.
        strict: as ``jit_amp.trace``.
        example_inputs_is_kwarg: whether ``inputs`` has dictionaries of arguments by name.
        _force_outplace: PyTorch's own, as the next three.
        _module_class: PyTorch's own.
        _compilation_unit: PyTorch's own.
        _store_inputs: PyTorch's own.

    Returns:
        ScriptModule: as ``jit_amp.script`` returns it.

    Raises:
        AutocastError: as ``jit_amp.trace``.
        TracingCheckError: as ``jit_amp.trace``.
        TypeError: what ``torch.compile``, ``torch.export`` or ``Precision.apply`` returned.
        RuntimeError: what else ``torch.jit.trace_module`` raises.
    """
    arguments.traceable("trace_module", mod)
    arguments.not_compiled_in_place("trace_module", mod)
    traced: ScriptModule = _traced(
        _original.trace_module,
        list(inputs) if isinstance(inputs, dict) else [],
        mod,
        inputs,
        optimize,
        check_trace,
        check_inputs,
        check_tolerance,
        strict,
        _force_outplace,
        _module_class,
        _compilation_unit,
        example_inputs_is_kwarg,
        _store_inputs,
    )
    return traced


def _traced(
    original: Callable[..., Any],
    methods: list[str],
    func: Any,
    inputs: Any,
    optimize: Any,
    check_trace: bool,
    *args: Any,
    **kwargs: Any,
) -> Any:
    def run(check_trace: bool) -> Any:
        try:
            return original(func, inputs, optimize, check_trace, *args, **kwargs)
        except RuntimeError as error:
            if "INTERNAL ASSERT FAILED" not in str(error):
                raise
            _refuse_what_the_tracer_fails_on(func, str(error).splitlines()[0])

    if _state_of_trace():  # PyTorch's check of a trace traces again
        return run(check_trace)
    cache_enabled = None if torch.is_autocast_cache_enabled() else False
    ambient: list[decorators.Around] = [
        (device, torch.get_autocast_dtype(device), True, cache_enabled)
        for device in process_state.autocast_devices()
        if torch.is_autocast_enabled(device)
    ]
    if isinstance(func, ScriptModule):  # PyTorch says that it is no trace, and returns it
        return inside(run(check_trace), ambient, methods)
    with _recorded() as state, compiling.of_a_trace():
        traced = run(check_trace)
        if not state.is_checked:
            state.recording.check()
    if not isinstance(traced, (ScriptModule, ScriptFunction)):  # PYTORCH_JIT=0
        return traced
    owner = getattr(func, "__self__", func)
    if isinstance(traced, ScriptModule):
        _C.restore_module(traced._c, decorators.pattern(), methods, ambient)
    else:
        _C.restore_function(traced, decorators.pattern(), ambient)
    lower_types(_made(func, traced))
    result = script(traced)
    if result is traced and isinstance(traced, ScriptModule):
        ignore_amp.ignores_in_copies(traced, owner)
    return result


def _refuse_what_the_tracer_fails_on(func: Any, said: str) -> NoReturn:
    """Raises AutocastError with the parts whose exported methods make the tracer fail, if any."""
    owner = getattr(func, "__self__", func)
    exporting = _exporting(owner) if isinstance(owner, torch.nn.Module) else {}
    if not exporting:
        name = getattr(func, "__qualname__", type(func).__qualname__)
        _C.refuse(403, [f"`{name}`", said, ""])
    parts: list[str] = []
    methods: list[str] = []
    attributes: dict[str, None] = {}
    for path, (module, names) in exporting.items():
        kind = type(module).__qualname__
        listed = " and ".join(f"`{name}`" for name in names)
        plural = "s" if len(names) > 1 else ""
        parts.append(f"`{path or kind}` ({kind}), which has the exported method{plural} {listed}")
        methods += [f"`{kind}.{name}`" for name in names]
        attributes |= dict.fromkeys(_annotated_otherwise(module))
    advice = f"move {' and '.join(methods)} to a module that is not traced, or "
    if attributes:
        advice = f"annotate {' and '.join(attributes)} as `torch.Tensor`, or {advice}"
    _C.refuse(403, ["; ".join(parts), said, advice])


def _exporting(root: torch.nn.Module) -> dict[str, tuple[torch.nn.Module, list[str]]]:
    """The outermost parts that have methods under ``@torch.jit.export``, and these, by path."""
    found: dict[str, tuple[torch.nn.Module, list[str]]] = {}
    for path, module in root.named_modules():
        if any(not outer or path.startswith(f"{outer}.") for outer in found):
            continue
        members = {name: inspect.getattr_static(module, name, None) for name in dir(module)}
        names = [
            name
            for name, member in members.items()
            if getattr(member, "_torchscript_modifier", None) is FunctionModifiers.EXPORT
        ]
        if names:
            found[path] = module, names
    return found


def _annotated_otherwise(root: torch.nn.Module) -> Iterator[str]:
    """The user's attributes that hold a tensor, and are not annotated as one."""
    for module in root.modules():
        members = {**vars(module), **module._parameters, **module._buffers}
        for kind in type(module).__mro__:
            if kind.__module__.startswith("torch."):
                break
            for name, annotation in vars(kind).get("__annotations__", {}).items():
                is_tensor = annotation in (torch.Tensor, torch.nn.Parameter) or (
                    str(annotation).rpartition(".")[2] in ("Tensor", "Parameter")
                )
                if isinstance(members.get(name), torch.Tensor) and not is_tensor:
                    yield f"`{kind.__qualname__}.{name}`"


def _made(func: Any, traced: Any) -> Iterator[Any]:
    """The modules whose types the trace made: all but those that were scripted before."""
    owner = getattr(func, "__self__", func)
    if isinstance(traced, ScriptModule) and isinstance(owner, torch.nn.Module):
        originals = dict(owner.named_modules(remove_duplicate=False))
        for path, each in traced.named_modules(remove_duplicate=False):
            if not isinstance(originals.get(path), ScriptModule):
                yield each


def _waits(traced: Any) -> bool:
    """Whether it waits for tasks: a trace that is run as it is may then go on in another thread."""
    return bool(traced.inlined_graph.findAllNodes("aten::wait", recurse=True))


def _holds_scripted(python: Any, traced: Any) -> bool:
    """Whether scripted modules or functions run in a scope of it. PyTorch's check runs the trace as
    it is, where what they call stands in no scope, or in one that the tracer's names for operators
    escape; and Python runs what PyTorch's own pass has made of them."""
    owner = getattr(python, "__self__", python)
    modules = owner.modules() if isinstance(owner, torch.nn.Module) else ()
    is_scripted = any(isinstance(each, ScriptModule) for each in modules)
    if not is_scripted and not any(
        graph.findAllNodes("prim::CallFunction") for graph in _graphs(traced)
    ):
        return False
    return "jit_amp::enter" in str(traced.inlined_graph)


def _graphs(traced: Any) -> Iterator[Any]:
    """The graphs of a traced function; or those of the module whose method it is, and below it."""
    if isinstance(traced, ScriptFunction):
        yield traced.graph
        return
    ahead = [traced.owner]
    while ahead:
        module = ahead.pop()
        yield from (module._get_method(name).graph for name in module._method_names())
        ahead += [each for _, each in torch._C.ModuleDict(module).items()]


class _State:
    """What is known of the trace that a thread makes."""

    def __init__(self) -> None:
        self.recording = _C.Recording()
        self.is_checked = False
        # What was given to the autocast objects that were made: whether a dtype, and cache_enabled.
        self.given: weakref.WeakKeyDictionary[Any, tuple[bool, Any]] = weakref.WeakKeyDictionary()
        self.entered: dict[int, list[int]] = {}  # the scopes that an object has open, by its id


@contextlib.contextmanager
def _recorded() -> Iterator[_State]:
    """Inside, traces hold their scopes, and nothing but their own casts of weights.

    torch.autocast objects are seen when this thread makes, enters and leaves them, by the functions
    that their methods call. Classes stay as they are: TorchScript compiles that class from its
    Python members, in this thread too.
    """
    cache_enabled = functools.partial(
        torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled()
    )
    with _tracing, _WATCHED:  # PyTorch's tracer has what it is tracing in a global variable
        state = _State()
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


def _state_of_trace() -> _State | None:
    return getattr(_this_thread, "trace", None)


def _making(state: _State, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Called by __init__, which keeps no word of whether a dtype and cache_enabled were given."""
    frame = replacing.caller()
    if frame.f_code is _autocast.__init__.__code__:
        names = frame.f_locals
        state.given[names["self"]] = names["dtype"] is not None, names["cache_enabled"]
    return original(*args, **kwargs)


def _entering(state: _State, original: Callable[..., Any]) -> Any:
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


def _leaving(state: _State, original: Callable[..., Any]) -> Any:
    """Called once by __exit__."""
    scope = replacing.scope_of_caller()
    # An object may be open in several threads: a decorator has one.
    if scope is not None and state.entered.get(id(scope)):
        number = state.entered[id(scope)].pop()
        _C.record_exit(number, (scope.device, scope.prev_fastdtype, scope.prev, None))
    return original()


def _checking(
    state: _State,
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
        if not _waits(traced) and not _holds_scripted(python, traced):
            original(inputs, python, traced, *args, **kwargs)


_WATCHED = replacing.functions(
    replacing.Hook(torch.amp.autocast_mode, "is_autocast_available", _making, _state_of_trace),
    replacing.Hook(torch, "autocast_increment_nesting", _entering, _state_of_trace),
    replacing.Hook(torch, "autocast_decrement_nesting", _leaving, _state_of_trace),
    replacing.Hook(_original, "_check_trace", _checking, _state_of_trace),
)
_tracing = threading.RLock()


def _in_child() -> None:
    """A thread that traced is not there in a forked child, unless it is the one that forked. A fork
    does not wait for it: a trace runs the user's code, which may wait for what forks."""
    global _tracing
    if _state_of_trace() is None:
        _tracing = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
