"""jit_amp.script and jit_amp.lowered_graph."""

from __future__ import annotations

import functools
import os
import re
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar, overload

import torch
from torch.jit import ScriptFunction, ScriptModule
from torch.jit import _script as _original
from torch.jit._recursive import wrap_cpp_module
from torch.jit._script import RecursiveScriptClass

from jit_amp import _C
from jit_amp._base import arguments, places
from jit_amp._precision import precision as _precisions
from jit_amp._precision.precision import Precision
from jit_amp._script import compiled_before, compiling, ignore_amp, wrapped
from jit_amp._source import decorators, lost_writes
from jit_amp._source.decorators import Around

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Class = TypeVar("_Class", bound=type)


def _scripted(obj: Any, frames_up: int = 0, is_wrapped: bool = False) -> Any:
    """Returns `obj` as a ScriptFunction or ScriptModule, autocast decorators being scopes of it; or
    what else torch.jit.script makes of it: with PYTORCH_JIT=0, or of an object of another class.
    `is_wrapped`: there will be a scope around it."""
    if isinstance(obj, (ScriptFunction, ScriptModule)):
        if python := getattr(obj, "_torchdynamo_inline", None):  # what a function was compiled from
            wrapped.refuse_forgotten(python)
        lost_writes.refuse(obj, (), is_wrapped)
        return _with_decorators(obj)
    try:
        return _with_decorators(compiling.compiled(obj, frames_up + 1, is_wrapped))
    except _C.AutocastError:
        raise
    except RuntimeError as error:
        _refuse_what_has_a_code(_being_compiled(error, obj), str(error))
        raise
    except OSError as error:
        if "source" not in str(error):
            raise
        name = getattr(obj, "__qualname__", type(obj).__qualname__)
        raise OSError(
            f"{name}: TorchScript reads the source of what it compiles, and there is none, as in a "
            f"REPL or `python -c`: put it in a file, or use jit_amp.trace ({error})"
        ) from error


def _with_decorators(scripted: Any) -> Any:
    """The same; or, where PyTorch has compiled decorated methods before, a copy with the scopes of
    their decorators."""
    forgotten = (
        compiled_before.forgotten_scopes(scripted) if isinstance(scripted, ScriptModule) else ()
    )
    module: Any = None
    done: set[tuple[str, str]] = set()
    for path, name, scopes in forgotten:
        if module is None:
            module = _C.own_copy(scripted._c)
        part = functools.reduce(lambda part, step: part.getattr(step), _steps(path), module)
        key = part._type().annotation_str, name
        if key not in done:  # once in each type
            done.add(key)
            _C.wrap_method(part._type(), name, decorators.pattern(), scopes)
    if module is None:
        return scripted
    copy = _wrap(module, scripted)
    lost_writes.refuse(copy, (), False)
    return copy


def _steps(path: str) -> list[str]:
    return path.split(".") if path else []


_OTHER_TYPE = re.compile(
    r"Expected a value of type '(.*?)' for argument '(\w+)' but instead found type '(.*?)'"
)


def _being_compiled(error: BaseException, obj: Any) -> Any:
    """The function that PyTorch was compiling, for what calls it; ``obj`` if there was none."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if code.co_name == "_script_impl" and code.co_filename == _original.__file__:
            obj = frame.f_locals.get("obj", obj)
    return obj


def _refuse_what_has_a_code(obj: Any, said: str) -> None:
    """Raises AutocastError for what PyTorch's compiler raises because of autocast."""
    name = getattr(obj, "__qualname__", type(obj).__qualname__)
    where = said[said.index('  File "') :].rstrip() if '  File "' in said else ""
    of_autocast = "Python type: 'torch.amp.autocast_mode.autocast'"  # an attribute
    if "value of type 'autocast'" in said or of_autocast in said:
        _C.refuse(117, [name, said.strip()])
    if "nullcontext.__aenter__" in said:  # its object, where `with` takes one that is written
        _C.refuse(112, [], places.of_the_word("nullcontext", obj))
    if "With item expression must return an object" in said:
        _C.refuse(111, [], where)
    if ".autocast self, " in said and (other := _OTHER_TYPE.search(said)):
        wanted, argument, found = other.groups()
        if argument != "device_type":
            _C.refuse(102, [argument, found, wanted], where)
        if found == "NoneType":
            _C.refuse(105, [], where)
        _, _, rest = said.partition("Expected a value")
        _C.refuse(119, [name, ("Expected a value" + rest).rstrip()])
    if "is called recursively" in said:
        _C.refuse(203, [], where)
    is_of_graphs = "INTERNAL ASSERT FAILED" in said and "sugared_value.cpp" not in said
    if is_of_graphs and (where := places.of_leaving_a_with(obj)):
        _C.refuse(208, [name], where)


def lower_types(modules: Iterable[Any]) -> None:
    """Lowers scripted modules where they are, whose types nobody else has."""
    types = [each._c._type() for each in modules if isinstance(each, ScriptModule)]
    for jit_type, has_scopes in zip(types, _C.have_scopes(types), strict=True):
        if has_scopes:
            _C.lower_type(jit_type)


def _wrap(module: torch._C.ScriptModule, like: ScriptModule) -> Any:
    """Wraps a copy of `like`'s C++ module, with the Python attributes that `like` has besides."""
    wrapped = wrap_cpp_module(module)  # type: ignore[no-untyped-call]
    originals = dict(like.named_modules(remove_duplicate=False))
    for path, copy in list(wrapped.named_modules()):
        original = originals[path]
        _take_attributes(copy, vars(original).get("_actual_script_module", original))
        if "_actual_script_module" in vars(original):  # of a class of the user's
            outer = object.__new__(type(original))
            vars(outer)["_actual_script_module"] = copy
            _take_attributes(outer, original)
            if not path:
                wrapped = outer
            else:
                parent, _, name = path.rpartition(".")
                functools.reduce(getattr, _steps(parent), wrapped)._modules[name] = outer
    return wrapped


def _take_attributes(copy: ScriptModule, original: ScriptModule) -> None:
    for name, value in vars(original).items():
        if name not in vars(copy) and not isinstance(value, torch._C.ScriptMethod):
            if isinstance(value, types.MethodType) and value.__self__ is original:
                value = types.MethodType(value.__func__, copy)
            vars(copy)[name] = value


@overload
def script(  # type: ignore[overload-overlap]  # a module can be called too
    obj: torch.nn.Module,
    optimize: None = None,
    _frames_up: int = 0,
    _rcb: Callable[[str], Any] | None = None,
    example_inputs: Any = None,
    *,
    autocast: Any = None,
    precision: Precision | str | os.PathLike[str] | None = None,
) -> ScriptModule: ...
@overload
def script(  # type: ignore[overload-overlap]  # and so can a class
    obj: _Class,
    optimize: None = None,
    _frames_up: int = 0,
    _rcb: Callable[[str], Any] | None = None,
    example_inputs: Any = None,
    *,
    autocast: Any = None,
    precision: Precision | str | os.PathLike[str] | None = None,
) -> _Class: ...
@overload
def script(
    obj: Callable[_P, _R],
    optimize: None = None,
    _frames_up: int = 0,
    _rcb: Callable[[str], Any] | None = None,
    example_inputs: Any = None,
    *,
    autocast: Any = None,
    precision: Precision | str | os.PathLike[str] | None = None,
) -> ScriptFunction[_P, _R]: ...
def script(
    obj: Any,
    optimize: None = None,
    _frames_up: int = 0,
    _rcb: Callable[[str], Any] | None = None,
    example_inputs: Any = None,
    *,
    autocast: Any = None,
    precision: Precision | str | os.PathLike[str] | None = None,
) -> Any:
    """Scripts a function or a module whose autocast scopes mean what they mean in eager.

    A scope is a ``with torch.autocast(...)`` block, or a function with that decorator. Results have
    the dtypes and values of a run in eager, on any device, whatever autocast is on around the call.
    Where gradients are recorded, gradients are eager's too.

    Which operator is cast to what follows PyTorch: ``ATen/autocast_mode.h`` for CUDA,
    ``aten/src/ATen/autocast_mode.cpp`` for CPU, and the dispatcher itself for other devices.

    Args:
        obj (Callable | nn.Module | ScriptFunction | ScriptModule): a Python function, an
            ``nn.Module``, or what ``torch.jit.script``, ``torch.jit.trace`` or ``torch.jit.load``
            returned for one. It stays as it is, and so do other scripted instances of its class.
        optimize: as ``torch.jit.script`` takes it.
        _frames_up: as ``torch.jit.script`` takes it.
        _rcb: as ``torch.jit.script`` takes it.
        example_inputs: as ``torch.jit.script`` takes it.
        autocast (torch.autocast | Callable | None): a scope to put around the function, or around
            all that is called of the module from outside: ``forward`` and its other methods, such
            as those under ``@torch.jit.export``. Also what ``jit_amp.get_autocast`` returned.
        precision (Precision | str | os.PathLike | None): what ``jit_amp.tune`` found for the
            module, or the file of its ``to_json``. Its units stay in float32; where the module had
            no scopes, the scope is put around it. What ``torch.jit.save`` writes of the result
            does not know it: ``jit_amp.freeze`` makes a file that does.

    Returns:
        ScriptFunction | ScriptModule: its parameters and buffers are the very tensors of ``obj``.
            What has no scope is what ``torch.jit.script`` returns. What jit_amp has
            scripted before is returned as it is.

    Raises:
        AutocastError: a scope that cannot be known when compiling; the text has the line.
        TypeError: ``autocast`` is no autocast scope; or ``obj`` is no function and no module, or an
            object of a TorchScript class whose methods have scopes, or what ``torch.compile``,
            ``torch.export`` or ``Precision.apply`` returned; or ``precision`` is no precision, or
            not given for a module.
        ValueError: the module has no unit of a name in ``precision``, or it was found for a device
            besides CPU and CUDA.
        RuntimeError: what ``torch.jit.script`` raises; or ``autocast`` or ``precision`` while
            ``PYTORCH_JIT=0`` has switched TorchScript off. Without these, ``obj`` is returned then.
    """
    arguments.scriptable("script", obj)
    if torch.jit._state._enabled:
        arguments.compilable("script", obj)
    elif autocast is not None or precision is not None:
        arguments.needs_torchscript("script with autocast or precision", obj)
    if precision is not None:
        return _scripted_with(obj, autocast, _precisions.loaded(precision), _frames_up + 1)
    scopes = decorators.scopes_of(autocast)
    if optimize is not None:
        warnings.warn("`optimize` is deprecated and does nothing", FutureWarning, stacklevel=2)
    if _rcb is not None:  # it is PyTorch's compiler that asks, for what a program calls
        return _original.script(obj, None, _frames_up + 1, _rcb, example_inputs)
    if example_inputs is not None:
        with compiling.overloads_kept(obj):
            obj = _original.script(obj, None, _frames_up + 1, None, example_inputs)
    return inside(obj, scopes, frames_up=_frames_up + 1)


def inside(
    obj: Any, scopes: list[Around], methods: Sequence[str] | None = None, frames_up: int = 0
) -> Any:
    """What `script` returns of `obj` inside scopes. They are around these methods of a module; None
    is for all that are called from outside of it."""
    scripted = _scripted(obj, frames_up + 1, bool(scopes))
    if isinstance(scripted, RecursiveScriptClass) and _C.object_has_scopes(scripted._c):
        raise TypeError(
            f"jit_amp.script: an object of {type(obj).__name__}, whose methods have autocast "
            "scopes, can be used by scripted functions and modules, and not be scripted by itself"
        )
    if not isinstance(scripted, (ScriptFunction, ScriptModule)):
        return scripted
    if isinstance(scripted, ScriptFunction):
        if scopes:
            scripted = decorators.wrapped_function(scripted, scopes)
        if _C.leave_function(scripted):
            return scripted
        lowered = _C.lower_function(scripted)
        vars(lowered).update(vars(scripted))  # name, doc string, what torch.compile inlines
        return lowered
    module = scripted._c
    if scopes:
        module = _C.own_copy(module)
        names = list(_public_methods(module) if methods is None else methods)
        if not names:
            raise TypeError(
                f"script: autocast: {type(obj).__name__} has no method to put it around: neither "
                "`forward` nor one under @torch.jit.export is compiled"
            )
        _C.wrap_from_outside(module, names, decorators.pattern(), scopes)
    elif _C.lower_where_it_is(module):
        return ignore_amp.ignores_in_copies(scripted, obj)
    return ignore_amp.ignores_in_copies(_wrap(_C.lower_module(module), scripted), obj)


def _public_methods(module: torch._C.ScriptModule) -> Iterator[str]:
    """The methods that are called from outside, if any, but not those that Python has for itself:
    `__len__`, `__setstate__`."""
    for name in module._method_names():
        if not name.startswith(ignore_amp.INSIDE) and not re.fullmatch("__.*__", name):
            yield name


def _scripted_with(obj: Any, autocast: Any, precision: Precision, frames_up: int) -> Any:
    """A scripted module of its own, in which what the precision says stays in float32."""
    arguments.module("script: precision", obj)
    if autocast is not None:
        raise TypeError("script: autocast and precision: the precision has the scope")
    if precision.device_type not in ("cpu", "cuda"):
        raise ValueError(
            f"script: precision: it was found for {precision.device_type}, where TorchScript keeps"
            " nothing in float32: use precision.apply(model)"
        )
    scopes: list[Around] = []
    if precision.around:
        around = torch.autocast(precision.device_type, dtype=getattr(torch, precision.dtype))
        scopes = decorators.scopes_of(around)
    precision.check_units(obj)
    scripted = inside(obj, scopes, ["forward"], frames_up + 1)
    if scripted is obj:
        scripted = ignore_amp.ignores_in_copies(_wrap(_C.lower_module(scripted._c), scripted))
    modules = dict(obj.named_modules(remove_duplicate=False))
    if precision.kind == "operator":
        ignore_amp.keep_operators(scripted, precision.units)
        return scripted
    for unit, lines in precision.kept_in_script():
        # Scripted, a shared module is several.
        for path in [name for name, module in modules.items() if module is modules[unit]]:
            owner = functools.reduce(getattr, _steps(path), scripted)
            ignore_amp.keep_in_float32(owner._c, lines)
    return scripted


def lowered_graph(
    obj: Callable[..., Any] | torch.nn.Module,
    method: str = "forward",
    *,
    ambient: str | tuple[str, ...] = (),
) -> torch._C.Graph:
    """Returns the graph that a call of ``jit_amp.script(obj)`` runs where no gradient is recorded.

    Casts stand in it as ``jit_amp::cast``. No scope is left, unless one is for a device besides CPU
    and CUDA. ``print`` it.

    Args:
        obj: what ``jit_amp.script`` takes.
        method: the name of the method, where ``obj`` is a module.
        ambient: the device, or the devices, whose autocast is on around the call: ``"cpu"``,
            ``"cuda"``, or a tuple of them.

    Returns:
        Graph: one of its own; changing it changes nothing that runs.

    Raises:
        AutocastError: as ``jit_amp.script``.
        TypeError: as ``jit_amp.script``.
        RuntimeError: as ``jit_amp.script``; or ``PYTORCH_JIT=0`` has switched TorchScript off.
        ValueError: another name in ``ambient``, or a method that ``obj`` does not have.
    """
    arguments.scriptable("lowered_graph", obj)
    arguments.compilable("lowered_graph", obj)
    ambient = (ambient,) if isinstance(ambient, str) else ambient
    arguments.instance("ambient", ambient, (tuple, list, set), "a device type or a tuple of them")
    for device in ambient:
        arguments.choice("ambient", device, ("cpu", "cuda"))
    scripted = _scripted(obj, 1)
    on = ("cpu" in ambient, "cuda" in ambient)
    if isinstance(scripted, ScriptFunction):
        return _C.lowered_graph(scripted, *on)
    arguments.choice("method", method, sorted(scripted._c._method_names()))
    return _C.lowered_method_graph(scripted._c, method, *on)
