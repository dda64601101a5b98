"""jit_amp.ignore_amp."""

from __future__ import annotations

import copyreg
import functools
import gc
import inspect
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

import torch
from torch.jit import ScriptFunction, ScriptModule

from jit_amp import _C
from jit_amp._base import arguments
from jit_amp._precision import in_float32
from jit_amp._script import indexed
from jit_amp._source import decorators

_T = TypeVar("_T")
INSIDE = "_jit_amp_inside_"  # before the name of a method: passes/source/wrap.h, kInside


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

            What ``jit_amp.script`` and ``jit_amp.freeze`` copy ignores what the original does, and
            so does a ``copy.deepcopy``; an ``nn.Module`` keeps it in ``pickle`` and ``torch.save``
            too. Switched, an ``nn.Module`` is of a class that is made for it, below its own.
        ignore: False undoes an earlier call.
        scopes: whether its own scopes, and those of what it calls, are ignored too, so that nothing
            in it runs under autocast: what ``ScriptFunction._set_ignore_amp`` does in PyTorch
            (``torch/csrc/jit/api/function_impl.h``). Only for what ``jit_amp.script`` returned.
        float32: whether its arguments in bfloat16 and float16 are cast to float32, also in tuples,
            lists, dictionaries and data classes (in TorchScript not in data classes, nor in a
            NamedTuple that is in a list, a dictionary or an Optional): what autocast around the
            call has made of them is then no mixture of dtypes inside.

    Returns:
        Callable | nn.Module | ScriptFunction: ``fn``; for a Python function, a function to use in
            its place.

    Raises:
        TypeError: ``fn`` was scripted, and not by jit_amp; or ``scopes`` is true, and ``fn`` was
            not scripted; or ``fn`` cannot be called.
    """
    arguments.flag("ignore", ignore)
    arguments.flag("scopes", scopes)
    arguments.flag("float32", float32)
    if fn is None:
        return functools.partial(ignore_amp, ignore=ignore, scopes=scopes, float32=float32)
    if isinstance(fn, ScriptFunction):
        switched = _C.ignore_function(fn, decorators.pattern(), ignore, scopes, float32)
        _refuse_others(switched, fn)
        return fn
    if isinstance(fn, torch._C.ScriptMethod):
        _refuse_others(_ignore_method(fn.owner, fn.name, ignore, scopes, float32), fn)
        return fn
    if isinstance(fn, ScriptModule):
        _refuse_others(_ignore_method(fn._c, "forward", ignore, scopes, float32), fn)
        return ignores_in_copies(fn)
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
        raise TypeError(f"ignore_amp takes a function or a module, not {arguments.shown(fn)}")
    return _switched(fn, ignore, float32)


def _forget_ignored(phase: str, _: dict[str, int]) -> None:
    if phase == "stop":
        _C.forget_ignored()


def keep_in_float32(owner: Any, lines: list[tuple[str, int, int]]) -> None:
    """A scripted module's forward, or these lines of it and of what it calls: each a file, the
    first line and the last."""
    _forget_after_collections()
    _C.keep_in_float32(owner, "forward", decorators.pattern(), lines, [])


def keep_operators(scripted: ScriptModule, operators: Iterable[str]) -> None:
    """The same for operators that the forward of a scripted or traced module calls.

    Raises:
        ValueError: it calls one of them nowhere.
    """
    operators = list(operators)
    graph: Any = scripted.inlined_graph
    for name in operators:
        if not graph.findAllNodes(name, recurse=True):
            raise ValueError(
                f"precision: TorchScript calls {name} nowhere in {scripted.original_name}, as it "
                "writes a few operators otherwise than eager: give jit_amp.trace the precision, or "
                "use Precision.apply"
            )
    if operators:
        _forget_after_collections()
        _C.keep_in_float32(scripted._c, "forward", decorators.pattern(), [], operators)


def _ignore_method(owner: Any, name: str, ignore: bool, scopes: bool, widens: bool) -> bool:
    """As long as it is known that a module ignores autocast, its weights are kept; so it is asked
    after each garbage collection whether the module is gone."""
    _forget_after_collections()
    names = [each for each in (name, INSIDE + name) if owner._has_method(each)]
    pattern = decorators.pattern()
    switched = [_C.ignore_method(owner, n, pattern, ignore, scopes, widens) for n in names]
    return bool(names) and all(switched)


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
    inner = decorators.ignoring.get(fn)
    if not ignore:
        return fn if inner is None else inner
    if inner is not None and (fn in decorators.widening) == widens:
        return fn
    below = fn if inner is None else inner

    @functools.wraps(below)
    def ignoring_amp(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            if widens:
                return below(*in_float32.widened(args), **in_float32.widened(kwargs))
            return below(*args, **kwargs)

    decorators.ignoring[ignoring_amp] = below
    if widens:
        decorators.widening.add(ignoring_amp)
    return ignoring_amp


def _switch(module: torch.nn.Module, name: str, ignore: bool, widens: bool) -> None:
    """Switches ``ignore_amp`` for one method of one module."""
    own = vars(module).get(name)
    if own is not None:  # a callable of the user's
        bound = getattr(own, "__self__", None) is module
        switched = _switched(own.__func__ if bound else own, ignore, widens)
        vars(module)[name] = types.MethodType(switched, module) if bound else switched
        return
    base, switches = _switches.get(type(module), (type(module), {}))
    switches = {**switches, name: (ignore, widens)}
    method = getattr(base, name)
    if _switched(method, ignore, widens) is method:
        del switches[name]
    object.__setattr__(module, "__class__", _kind(base, switches) if switches else base)


Switches = dict[str, tuple[bool, bool]]  # of methods: ignore, widens
# The classes that modules have instead of their own, and these.
_switches: weakref.WeakKeyDictionary[type, tuple[type, Switches]] = weakref.WeakKeyDictionary()
_kinds: weakref.WeakKeyDictionary[type, Any] = weakref.WeakKeyDictionary()


def _kind(base: type, switches: Switches) -> type:
    """The class of modules some of whose methods are switched.

    Methods are found in it, and not in the module, so that copies and replicas of the module call
    them with themselves (as torch/nn/utils/parametrize.py does it).
    """
    known = _kinds.setdefault(base, weakref.WeakValueDictionary())
    key = tuple(sorted(switches.items()))
    made: type | None = known.get(key)
    if made is None:
        members: dict[str, Any] = {
            name: _switched(getattr(base, name), *how) for name, how in switches.items()
        }
        members |= {
            "__module__": base.__module__,
            "__qualname__": base.__qualname__,
            "__doc__": base.__doc__,
            "__annotations__": inspect.get_annotations(base),
            "__reduce_ex__": _reduce,
        }
        made = type(base)(base.__name__, (base,), members)
        _switches[made] = base, switches
        known[key] = made
    return made


def _reduce(self: Any, protocol: Any) -> Any:
    """As the module's own class has it; a file names that."""
    kind: Any = next(each for each in type(self).__mro__ if each in _switches)
    function, given, *rest = super(kind, self).__reduce_ex__(protocol)
    if function is not copyreg.__newobj__ or given[0] is not kind:  # type: ignore[attr-defined]
        return function, given, *rest
    return _new, (*_switches[kind], *given[1:]), *rest


def _new(base: type, switches: Switches, *given: Any) -> Any:
    return base.__new__(_kind(base, switches), *given)


def ignores_in_copies(module: ScriptModule, of: Any = None) -> ScriptModule:
    """The scripted module, whose copies, and those of modules below it, ignore what it does. Parts
    of `of`, which were scripted before, are left as they are.

    What is ignored is known by the module, and the copies that PyTorch makes are others. So it
    gets a class below its own, which says so to them.
    """
    others = set(of.modules()) if isinstance(of, torch.nn.Module) else ()
    for each in module.modules():
        if not isinstance(each, ScriptModule) or isinstance(each, _WithoutCalls) or each in others:
            continue
        actual = vars(each).get("_actual_script_module")
        if actual is None:
            indexed.find_scripted_parts(each)
            object.__setattr__(each, "__class__", _kind_below(type(each), _Copied))
            continue
        ignores_in_copies(actual, of)
        if type(each).__module__.startswith("torch."):  # a trace, and no class of the user's
            object.__setattr__(each, "__class__", _kind_below(type(each), _WithoutCalls))
    return module


class _WithoutCalls:
    """Its graph without calls, to look at, has what is called, and no programs of jit_amp's."""

    @property
    def inlined_graph(self: Any) -> Any:
        return inlined(self.graph.copy(), super().inlined_graph)  # type: ignore[misc]


class _Copied(_WithoutCalls):
    """What PyTorch gives for a copy or a replica, ignoring what its original does."""

    def __copy__(self: Any) -> Any:
        return self._ignoring(super().__copy__())  # type: ignore[misc]

    def __deepcopy__(self: Any, memo: Any) -> Any:
        return self._ignoring(super().__deepcopy__(memo))  # type: ignore[misc]

    def _replicate_for_data_parallel(self: Any) -> Any:
        return self._ignoring(super()._replicate_for_data_parallel())  # type: ignore[misc]

    def _ignoring(self: Any, copy: Any) -> Any:
        _C.copy_ignored(self._c, copy._c)
        return ignores_in_copies(copy)


def has_programs(by_pytorch: Any) -> bool:
    """Whether a graph without calls, as PyTorch makes it, has programs of jit_amp's in it."""
    return bool(by_pytorch.findAllNodes("jit_amp::program", recurse=True))


def inlined(graph: torch._C.Graph, by_pytorch: Any) -> Any:
    """A graph without calls: PyTorch's, but where that has programs of jit_amp's in their place."""
    if not has_programs(by_pytorch):
        return by_pytorch
    _C.inline_sources(graph)
    return graph


@functools.cache
def _kind_below(kind: type, first: type) -> type:
    members = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind)(kind.__name__, (first, kind), members)
