"""What runs in place of PyTorch's compiler's functions in a thread that compiles for jit_amp.

In one piece: one table at the end has a row for each function that stands in another's place.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.jit import ScriptFunction, ScriptModule, _recursive, _script, _state, frontend

from jit_amp import _C
from jit_amp._base import replacing, syntax_trees
from jit_amp._script.compilation import (
    STORES_REPLACED,
    Compilation,
    Parts,
    compiled_here,
    current_compilation,
    parts_of_types,
    wrapped_classes,
)
from jit_amp._script.members import accessors_of, function_of, functions_of_property
from jit_amp._script.wrapped import (
    lost_layer,
    refuse_decorator,
    refuse_other_module,
    refuse_wrapper,
)
from jit_amp._source import decorators, reaching, scope_template, syntax
from jit_amp._source import names as _scope_names
from jit_amp._source.decorators import Around

_wrapped_functions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
# The functions that name what is wrapped, and PyTorch's names of what they were compiled to here.
_with_wrapped: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_parts_of_functions: weakref.WeakKeyDictionary[Any, Parts] = weakref.WeakKeyDictionary()
# The default dtype under which a function was compiled: PyTorch computes its constants then.
_default_dtypes: weakref.WeakKeyDictionary[Any, torch.dtype] = weakref.WeakKeyDictionary()
# The pair that fx graphs hold in place of a `with`, and what stands for it in a script.
_IN_SCRIPT = {
    torch.amp.autocast_mode._enter_autocast: scope_template.enter_autocast,
    torch.amp.autocast_mode._exit_autocast: scope_template.exit_autocast,
}


def _script_impl(
    compilation: Compilation, original: Callable[..., Any], obj: Any, *args: Any, **kwargs: Any
) -> Any:
    """What torch.jit.script does, also for a function that a function calls."""
    if isinstance(obj, types.FunctionType) and obj.__name__ in compilation.refusals:
        _C.refuse(*compilation.refusals[obj.__name__])
    if isinstance(obj, types.FunctionType) and obj in _IN_SCRIPT:
        obj = _IN_SCRIPT[obj]
    if isinstance(obj, (types.FunctionType, types.MethodType)):
        inner, scopes = _unwrap(compilation, obj)
    else:
        inner, scopes = decorators.unwrap(obj)
    # PyTorch compiles what is below torch.jit.script_if_tracing.
    while isinstance(inner, types.FunctionType) and hasattr(inner, "__script_if_tracing_wrapper"):
        inner, below = _unwrap(compilation, inner.__original_fn)  # type: ignore[attr-defined]
        scopes = [*scopes, *below]
    if isinstance(inner, types.FunctionType):  # PyTorch may know it, and not ask for its definition
        compilation.look_at(inner)
        with _as_function(compilation, inner) as is_as_before:
            if not is_as_before:
                _wrapped_functions.pop(obj, None)
            return _script_function(original, obj, inner, scopes, *args, **kwargs)
    if scopes:
        return _script_function(original, obj, inner, scopes, *args, **kwargs)
    return original(obj, *args, **kwargs)  # of a class: see `compiled` for the frames between


@contextlib.contextmanager
def _as_function(compilation: Compilation, function: Any) -> Iterator[bool]:
    """A function is compiled inside. Gives whether its scopes, and the default dtype, are what they
    were when PyTorch has compiled it; if not, PyTorch forgets that it has."""
    own = compilation.definition(function)
    signature = own.signature if own is not None else ""
    known = _parts_of_functions.get(function)
    is_as_before = not signature if known is None else compilation.is_as_before(known)
    is_wrapped = compilation.wrapped_function(function) is not None
    name = _state._jit_caching_layer.get(function)
    if is_wrapped and _with_wrapped.get(function) != name:  # PyTorch has compiled it
        is_as_before = False
    default_dtype = torch.get_default_dtype()
    is_as_before &= _default_dtypes.get(function, torch.float32) is default_dtype
    if not is_as_before:
        _state._jit_caching_layer.pop(function, None)
    has_with = own is not None and own.has_with
    parts: Parts = {weakref.ref(function): signature} if has_with else {}
    if known is not None and is_as_before:
        parts |= known
    with compilation.compiling(None, parts):
        yield is_as_before
    if default_dtype is not torch.float32 or function in _default_dtypes:
        _default_dtypes[function] = default_dtype
    if parts or known:
        _parts_of_functions[function] = parts
    if is_wrapped:
        _with_wrapped[function] = _state._jit_caching_layer.get(function)


def _script_function(
    original: Callable[..., Any],
    obj: Any,
    inner: Any,
    scopes: list[Around],
    *args: Any,
    **kwargs: Any,
) -> Any:
    if not scopes:
        return original(obj, *args, **kwargs)
    if obj not in _wrapped_functions:
        scripted = inner if isinstance(inner, ScriptFunction) else original(inner)
        _wrapped_functions[obj] = decorators.wrapped_function(scripted, scopes)
    return _wrapped_functions[obj]


def _get_jit_def(
    compilation: Compilation, original: Callable[..., Any], fn: Any, *args: Any, **kwargs: Any
) -> Any:
    """The definition of a function, read from its source: of the one below all decorators."""
    if fn not in compilation.expected and decorators.unwrap(fn)[1]:
        refuse_decorator(fn, "a decorator that enters autocast")
    _unwrap(compilation, fn)
    compilation.look_at(fn)
    try:
        return original(fn, *args, **kwargs)
    except frontend.NotSupportedError as error:
        owner = getattr(fn, "__self__", compilation.owner)
        if "variable number of arguments" in str(error) and reaching.reaches_autocast(
            fn, (), owner
        ):
            refuse_wrapper(fn, owner)
        raise


def _unwrap(compilation: Compilation, func: Any) -> tuple[Any, list[Around]]:
    """What is compiled of a function, and the scopes around it. It is refused if anything else
    stands around it that may enter autocast."""
    owner = getattr(func, "__self__", compilation.owner)
    if what := lost_layer(func, owner):
        refuse_decorator(func, what)
    return decorators.unwrap(func)


def _parse_def(compilation: Compilation, original: Callable[..., Any], fn: Any) -> Any:
    """The source of a function, with its scopes written out: a tree of which the compiler may
    change the definition, as it does for what is left out."""
    parsed = compilation.source(fn) or original(fn)
    owner = getattr(fn, "__self__", compilation.owner)
    if not isinstance(owner, torch.nn.Module) or isinstance(owner, ScriptModule):
        owner = None
    definition = compilation.definition(fn, owner)
    tree = parsed.ast if definition is None else definition.tree
    return parsed._replace(ast=_with_own_definition(tree))


def _with_own_definition(tree: ast.Module) -> ast.Module:
    """The same statements in a definition of its own (``get_jit_def`` of torch/jit/frontend.py
    changes the body's list and the arguments)."""
    definition = copy.copy(tree.body[0])
    assert isinstance(definition, ast.FunctionDef)
    definition.body, arguments = [*definition.body], copy.copy(definition.args)
    arguments.args = [*map(copy.copy, arguments.args)]
    arguments.kwonlyargs = [*map(copy.copy, arguments.kwonlyargs)]
    definition.args = arguments
    return ast.Module([definition], [])


def _resolving_ours(compilation: Compilation, original: Callable[..., Any], of: Any) -> Any:
    """What names stand for, also those that `_source.with_items` writes."""
    resolve = original(of)

    def resolve_ours(name: str) -> Any:
        if name in compilation.refusals:
            return _refusing(name)
        return syntax.NAMES[name] if name in syntax.NAMES else resolve(name)

    return resolve_ours


def _refusing(name: str) -> Any:
    """A function that is refused as soon as it is to be compiled."""

    def refused() -> None: ...

    refused.__name__ = refused.__qualname__ = name
    return refused


def _infer_type(_: Compilation, original: Callable[..., Any], value: Any) -> Any:
    """TorchScript holds no autocast object: a `with` of one is written out."""
    if _scope_names.holds_autocast(value):
        return torch._C.InferredType("an autocast object")
    return original(value)


class Stub(_recursive.ScriptMethodStub):
    """A method, or a hook, to compile, and the scopes to put around it."""

    scopes: list[Around]


class _Property(_recursive.PropertyStub):
    """A property to compile, and the scopes to put around getter and setter."""

    scopes: list[list[Around]]


def _make_stub(compilation: Compilation, original: Callable[..., Any], func: Any, name: str) -> Any:
    inner, scopes = _unwrap(compilation, func)
    refuse_other_module(compilation.owner, func, inner, name)
    stub = Stub(*original(inner, name))
    stub.scopes = scopes
    return stub


def _make_overloads(
    compilation: Compilation, original: Callable[..., Any], overloads: dict[Any, list[Any]]
) -> Any:
    """Each declared overload of a method is compiled from its one definition."""
    below = {function: _unwrap(compilation, function) for function in overloads}
    made = original({below[function][0]: each for function, each in overloads.items()})
    stubs = [Stub(*each) for each in made]
    all_scopes = (below[function][1] for function, each in overloads.items() for _ in each)
    for stub, scopes in zip(stubs, all_scopes, strict=True):
        stub.scopes = scopes
    return stubs


def _get_property_stubs(
    compilation: Compilation, original: Callable[..., Any], nn_module: torch.nn.Module
) -> Any:
    stubs = []
    with (
        _expecting(compilation, accessors_of(type(nn_module))),
        compilation.compiling(nn_module, {}),
    ):
        left_out = _only_evaluated(compilation, nn_module)
        for stub in original(nn_module):
            if stub.def_.name().name in left_out:
                continue
            accessors = functions_of_property(getattr(type(nn_module), stub.def_.name().name))
            callback = _resolving(stub.resolution_callback, accessors)
            made = _Property(callback, stub.def_)
            made.scopes = [_unwrap(compilation, each)[1] for each in accessors]
            stubs.append(made)
    return stubs


def _only_evaluated(compilation: Compilation, module: torch.nn.Module) -> set[str]:
    """The properties that scopes alone ask for: they need not be TorchScript."""
    definitions = compilation.methods(module).values()
    code = {each for definition in definitions for each in definition.code}
    used = {name for definition in definitions for name in definition.attributes}
    members = dict(inspect.getmembers_static(type(module)))
    properties = {name for name, each in members.items() if isinstance(each, property)}
    codes = {
        name: getattr(inspect.unwrap(function_of(each)), "__code__", None)
        for name, each in members.items()
    }
    ahead = [name for name in members if codes[name] in code]
    evaluated = set(ahead)
    while ahead:  # what ran may ask for more under another condition
        named = {*getattr(codes[ahead.pop()], "co_names", ())} & properties - evaluated
        evaluated |= named
        ahead += named
    return (evaluated & properties) - used


def _get_hook_stubs(
    compilation: Compilation, original: Callable[..., Any], nn_module: torch.nn.Module
) -> Any:
    with compilation.compiling(nn_module, {}):
        return original(nn_module)


def _create_methods(
    compilation: Compilation,
    original: Callable[..., Any],
    concrete_type: Any,
    methods: Any,
    properties: Any,
) -> None:
    parts: Parts = {}
    with compilation.compiling(compilation.owners.get(concrete_type), parts):
        original(concrete_type, methods, properties)
    if parts:
        parts_of_types.setdefault(concrete_type, {}).update(parts)
    for stub in methods:
        _wrap(concrete_type.jit_type, stub.def_.name().name, getattr(stub, "scopes", []))
    for stub in properties:
        for name, scopes in zip(
            (stub.def_.getter_name(), stub.def_.setter_name()), stub.scopes, strict=False
        ):
            _wrap(concrete_type.jit_type, name.name, scopes)


def _compile_unbound_method(
    compilation: Compilation, original: Callable[..., Any], concrete_type: Any, fn: Any
) -> Any:
    with compilation.compiling(compilation.owners.get(concrete_type), {}):
        return original(concrete_type, fn)


def _create_script_module(
    compilation: Compilation,
    original: Callable[..., Any],
    module: Any,
    concrete_type: Any,
    *args: Any,
) -> Any:
    """A module's type is not asked of the store where it is of a trace."""
    compilation.owners.setdefault(concrete_type, module)
    with compilation.compiling(module, {}):
        scripted = original(module, concrete_type, *args)
    compiled_here.add(scripted)
    return scripted


def _create_hooks(
    _: Compilation, original: Callable[..., Any], concrete_type: Any, hooks: Any, pre_hooks: Any
) -> None:
    original(concrete_type, hooks, pre_hooks)
    done = set()
    for stub in (*hooks, *pre_hooks):
        if stub.def_.name().name not in done:  # one hook may be there twice
            _wrap(concrete_type.jit_type, stub.def_.name().name, getattr(stub, "scopes", []))
        done.add(stub.def_.name().name)


def _compile_class(
    compilation: Compilation, original: Callable[..., Any], cls: Any, rcb: Any, name: str
) -> Any:
    """A TorchScript class is compiled once in a process: its methods get their scopes there."""
    with compilation.compiling(None, {}):
        return _compile_class_of_none(compilation, original, cls, rcb, name)


def _compile_class_of_none(
    compilation: Compilation, original: Callable[..., Any], cls: Any, rcb: Any, name: str
) -> Any:
    methods = {
        each: getattr(cls, each)
        for each, value in vars(cls).items()
        if inspect.isroutine(getattr(value, "__func__", value))
    }
    compilation.refuse_if_compiled(cls)
    decorated = {each: value for each, value in methods.items() if decorators.unwrap(value)[1]}
    with _expecting(compilation, [*decorated.values(), *accessors_of(cls)]):
        made = original(cls, _resolving(rcb, [*decorated.values(), *accessors_of(cls)]), name)
    if wrapped_classes.get(cls) is not made:
        wrapped_classes[cls] = made
        for each, value in decorated.items():
            if not isinstance(vars(cls)[each], staticmethod):
                _wrap(made, each, decorators.unwrap(value)[1])
        for each, value in vars(cls).items():
            for kind, accessor in zip(
                ("getter", "setter"), functions_of_property(value), strict=False
            ):
                _wrap(made, f"__{each}_{kind}", decorators.unwrap(accessor)[1])
    return made


_HOOKS: list[tuple[Any, str, Callable[..., Any]]] = [
    (_script, "_script_impl", _script_impl),
    (_script, "_compile_and_register_class", _compile_class),
    (_recursive, "_compile_and_register_class", _compile_class),
    (_recursive, "make_stub", _make_stub),
    (_recursive, "make_stubs_for_overloads", _make_overloads),
    (_recursive, "get_property_stubs", _get_property_stubs),
    (_recursive, "get_hook_stubs", _get_hook_stubs),
    (_recursive, "create_methods_and_properties_from_stubs", _create_methods),
    (_recursive, "compile_unbound_method", _compile_unbound_method),
    (_recursive, "create_script_module_impl", _create_script_module),
    (_recursive, "create_hooks_from_stubs", _create_hooks),
    (_script, "get_jit_def", _get_jit_def),
    (_recursive, "get_jit_def", _get_jit_def),
    (frontend, "get_jit_def", _get_jit_def),
    (frontend, "parse_def", _parse_def),
    (torch._jit_internal, "createResolutionCallbackFromClosure", _resolving_ours),
    (torch._jit_internal, "createResolutionCallbackForClassMethods", _resolving_ours),
    (torch._C, "_jit_try_infer_type", _infer_type),
]
HOOKED = _C.Replacements(
    [
        *replacing.places(replacing.Hook(*hook, current_compilation) for hook in _HOOKS),
        *syntax_trees.PARSE,
        STORES_REPLACED,
    ]
)


def _wrap(jit_type: Any, name: str, scopes: list[Around]) -> None:
    if scopes:
        _C.wrap_method(jit_type, name, decorators.pattern(), scopes)


@contextlib.contextmanager
def _expecting(compilation: Compilation, functions: Iterable[Any]) -> Iterator[None]:
    decorated = {each for each in functions if decorators.unwrap(each)[1]}
    compilation.expected |= decorated
    yield
    compilation.expected -= decorated


def _resolving(rcb: Callable[[str], Any], functions: Iterable[Any]) -> Callable[[str], Any]:
    """`rcb`, with the names that decorated functions know below their decorators."""
    inner = [
        torch._jit_internal.createResolutionCallbackFromClosure(below)
        for below, scopes in map(decorators.unwrap, functions)
        if scopes
    ]

    def resolve(name: str) -> Any:
        found = rcb(name)
        for other in inner:
            found = other(name) if found is None else found
        return found

    return resolve if inner else rcb
