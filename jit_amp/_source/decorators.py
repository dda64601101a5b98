"""The scopes of functions and methods decorated with ``torch.autocast``."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.jit import ScriptFunction, _script, _state

from jit_amp import _C
from jit_amp._base import arguments
from jit_amp._base.syntax_trees import READ_AGAIN
from jit_amp._source import scope_template
from jit_amp._source.evaluation import gradient_mode

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
# passes/source/wrap.h: kWidens, kWidensResults and kGradients.
WIDENS: Around = ("float32 inputs", None, False, None)
WIDENS_RESULTS: Around = ("float32 results", None, False, None)
_GRADIENTS = "gradients"
_AMP_FILE = torch.amp.autocast_mode.__file__
_CONTEXTS_FILE = torch.utils._contextlib.__file__
IGNORED: list[Around] = [("cpu", None, False, None), ("cuda", None, False, None)]


class Layer(NamedTuple):
    """What stands around a function and is not known.

    Attributes:
        function: a function, or another object that can be called.
        below: everything that it stands around, which is looked at for itself.
        has_scopes: whether there is one of autocast below.
    """

    function: Any
    below: list[Any]
    has_scopes: bool


class Unwrapped(NamedTuple):
    """What a call of a function passes through.

    Attributes:
        function: the one to compile: the innermost where a layer is known, else as it was given.
        scopes: of the layers that are known, from the outermost.
        layers: those that are not, from the outermost.
    """

    function: Any
    scopes: list[Around]
    layers: list[Layer]


def unwrap(func: Any) -> tuple[Any, list[Around]]:
    """Returns what decorators wrap, and their scopes from the outermost."""
    function, scopes, _ = look_through(func)
    return function, scopes


def look_through(func: Any) -> Unwrapped:
    """Looks through all that stands between a call of `func` and the function that is compiled.

    Known are ``torch.autocast``, ``jit_amp.ignore_amp``, ``torch.no_grad`` and its like,
    ``torch.amp.custom_fwd`` without ``cast_inputs``, what Hugging Face Accelerate puts around
    ``forward``, and functions that hand on all that they are given.
    """
    scopes: list[Around] = []
    others: list[tuple[Any, int, int]] = []  # and where they stand, in `scopes` and in `passed`
    bound_to = getattr(func, "__self__", None)
    plain = _unbound(func)
    passed = [func, plain]
    while (layer := _layer(plain)) is not None:
        plain, own = layer
        if own is None:
            others.append((passed[-1], len(scopes), len(passed)))
        else:
            scopes += own
        bound_to = getattr(plain, "__self__", bound_to)
        passed.append(plain)
        plain = _unbound(plain)
        passed.append(plain)
    layers = [
        Layer(function, passed[place:], not all(map(is_of_gradients, scopes[number:])))
        for function, number, place in others
    ]
    scopes = _effective(scopes)
    if scopes and bound_to is not None and not hasattr(plain, "__self__"):
        plain = types.MethodType(plain, bound_to)
    return Unwrapped(plain if scopes else func, scopes, layers)


def _effective(scopes: list[Around]) -> list[Around]:
    """Without those for gradients that have no effect: inside of ``torch.inference_mode()`` nothing
    but ``torch.inference_mode(False)`` has them recorded."""
    effective, infers = [], False
    for scope in scopes:
        _, _, records, infers_itself = scope
        if is_of_gradients(scope):
            infers = infers if infers_itself is None else infers_itself
            if infers and records:
                continue
        effective.append(scope)
    return effective


def _unbound(func: Any) -> Any:
    """The function of a method; not that of a proxy, which says that it is a method."""
    is_bound = type(func) in (types.MethodType, staticmethod, classmethod)
    return func.__func__ if is_bound else func


def is_of_gradients(scope: Around) -> bool:
    return scope[0] == _GRADIENTS


def _layer(func: Any) -> tuple[Any, list[Around] | None] | None:
    """What is below the outermost layer, and the layer's scopes, or None where it is not known;
    None where there is no layer."""
    if isinstance(func, (type, torch.nn.Module, ScriptFunction)):
        return None
    if type(func) is types.FunctionType:
        if func in ignoring:
            return ignoring[func], [*IGNORED, *([WIDENS] if func in widening else [])]
        for known in (_autocast_layer, _gradient_mode_layer, _custom_fwd_layer, _passing_layer):
            if (layer := known(func)) is not None:
                return layer
    if _is_results_in_float32(func):
        return func.model_forward, [WIDENS_RESULTS]
    below = inspect.getattr_static(func, "__wrapped__", None)
    if below is None or not callable(func):
        return None
    return func.__wrapped__, None  # a proxy computes it


def _cells(func: types.FunctionType) -> dict[str, Any]:
    """Returns the variables that a function closes over."""
    cells = zip(func.__code__.co_freevars, func.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _autocast_layer(func: types.FunctionType) -> tuple[Any, list[Around]] | None:
    """``torch.autocast`` as a decorator (torch/amp/autocast_mode.py)."""
    if func.__code__.co_name != "decorate_autocast":
        return None
    cells = _cells(func)
    if set(cells) != {"autocast_instance", "func"}:
        return None
    instance = cells["autocast_instance"]
    if not _enters_as_pytorchs(instance):
        return None
    return cells["func"], [_of(instance)]


def _enters_as_pytorchs(instance: Any) -> bool:
    """Whether it is an autocast that no class of the user's has changed."""
    enter = type(instance).__enter__
    return isinstance(instance, torch.autocast) and enter.__module__.startswith("torch.")


def _gradient_mode_layer(func: types.FunctionType) -> tuple[Any, list[Around]] | None:
    """``torch.no_grad`` and its like (torch/utils/_contextlib.py), whose code has the name of its
    context from torch 2.15 on."""
    if func.__code__.co_filename != _CONTEXTS_FILE:
        return None
    cells = _cells(func)
    if set(cells) != {"ctx_factory", "func"}:
        return None
    manager = getattr(cells["ctx_factory"], "__self__", None)
    mode = gradient_mode(manager)
    if mode is None:
        return None
    infers = not mode if type(manager) is torch.inference_mode else None
    return cells["func"], [(_GRADIENTS, None, mode, infers)]


def _custom_fwd_layer(func: types.FunctionType) -> tuple[Any, list[Around]] | None:
    """``torch.amp.custom_fwd``, where it casts nothing (torch/amp/autocast_mode.py)."""
    if func.__code__.co_name != "decorate_fwd" or func.__code__.co_filename != _AMP_FILE:
        return None
    cells = _cells(func)
    return (cells["fwd"], []) if cells.get("cast_inputs", func) is None else None


def _template(function: Any) -> tuple[types.CodeType, types.CodeType]:
    def all_arguments(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def all_behind_the_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    return all_arguments.__code__, all_behind_the_first.__code__


def _instructions(code: types.CodeType) -> tuple[bytes, int, int]:
    return code.co_code, code.co_argcount, code.co_flags & 0xFF  # without those of __future__


_PASSING_ON = set(map(_instructions, _template(None)))


def _passing_layer(func: types.FunctionType) -> tuple[Any, list[Around]] | None:
    """A function that does nothing but hand on to another one what it is given."""
    if _instructions(func.__code__) not in _PASSING_ON:
        return None
    [below] = _cells(func).values()
    is_function = isinstance(below, (types.FunctionType, types.MethodType))
    return (below, []) if is_function or _is_results_in_float32(below) else None


def _is_results_in_float32(value: Any) -> bool:
    """Whether it is what Accelerate casts results with (accelerate/utils/operations.py)."""
    cls = type(value)
    name = f"{cls.__module__}.{cls.__qualname__}"
    return name == "accelerate.utils.operations.ConvertOutputsToFp32"


def scopes_of(autocast: Any) -> list[Around]:
    """The scopes of a ``torch.autocast`` or of a callable that makes one; none of a nullcontext."""
    made = (
        autocast() if callable(autocast) and not isinstance(autocast, torch.autocast) else autocast
    )
    if made is None or isinstance(made, contextlib.nullcontext):
        return []
    if not isinstance(made, torch.autocast):
        raise TypeError(f"autocast: a torch.autocast or None, not {arguments.shown(autocast)}")
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
    arguments.instance("device_type", device_type, str, "a device type such as 'cpu' or 'cuda'")
    name: Any = (
        str(precision) if type(precision) is int and precision in (16, 32, 64) else precision
    )
    if isinstance(name, str) and name in _WHOLE_MODELS:
        dtype = _WHOLE_MODELS[name]
        raise ValueError(
            f"precision: {precision!r} is no autocast, but a model whose weights and inputs are "
            f"{dtype.removeprefix('torch.')}: model.to({dtype}), and no scope"
        )
    arguments.choice("precision", name, (*_DTYPES, *_NO_AUTOCAST))
    if name in _NO_AUTOCAST:
        return contextlib.nullcontext
    return functools.partial(torch.autocast, device_type, dtype=_DTYPES[name])


def pattern() -> torch._C.Graph:
    """A graph with one scope of each kind. It is compiled anew where PyTorch has forgotten its
    classes since (``torch._C._jit_clear_class_registry``, as test suites call it): their methods
    are gone."""
    with READ_AGAIN:
        graph = _script.script(scope_template.scope).graph
        made = [n.output().type() for n in graph.nodes() if n.kind() == "prim::CreateObject"]
        if any(_state._python_cu.get_class(each.annotation_str) != each for each in made):
            _state._jit_caching_layer.pop(scope_template.scope, None)
            for cls in (torch.amp.autocast_mode.autocast, scope_template.set_grad):
                _state._script_classes.pop(cls, None)
            graph = _script.script(scope_template.scope).graph
    return graph


def wrapped_function(func: Any, scopes: list[Around]) -> Any:
    """Returns a copy of a scripted function inside scopes."""
    wrapped = _C.wrapped_function(func, pattern(), scopes)
    vars(wrapped).update(vars(func))
    return wrapped
