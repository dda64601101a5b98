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
import copy
import functools
import inspect
import os
import re
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch.jit import ScriptFunction, ScriptModule, _recursive, _script, _state, _trace, frontend

from jit_amp import _C
from jit_amp._base import places, replacing, source_files
from jit_amp._source import (
    decorators,
    lost_writes,
    reaching,
    scope_template,
    syntax,
    with_items,
)
from jit_amp._source import names as _scope_names
from jit_amp._source.decorators import Around

lock = threading.RLock()
_this_thread = threading.local()
# For each store of PyTorch's, which test suites exchange: the types with scopes, by Python class.
_own: weakref.WeakKeyDictionary[Any, dict[type, list[Any]]] = weakref.WeakKeyDictionary()
# Types of PyTorch's that were looked at, and have none.
_free: set[Any] = set()
# Each type of ours as PyTorch knows it.
_apart: dict[Any, Any] = {}
_wrapped_functions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
# The functions that name what is wrapped, and PyTorch's names of what they were compiled to here.
_with_wrapped: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
# The modules that were compiled here, with the scopes of their decorators.
_compiled_here: weakref.WeakSet[ScriptModule] = weakref.WeakSet()
# The TorchScript classes that have the scopes of their methods' decorators.
_wrapped_classes: weakref.WeakKeyDictionary[type, Any] = weakref.WeakKeyDictionary()
# The functions with a `with` that a compiled function or type consists of, each as it was.
_Parts = dict["weakref.ref[Any]", str]
_parts_of_functions: weakref.WeakKeyDictionary[Any, _Parts] = weakref.WeakKeyDictionary()
_parts_of_types: dict[Any, _Parts] = {}
# The default dtype under which a function was compiled: PyTorch computes its constants then.
_default_dtypes: weakref.WeakKeyDictionary[Any, torch.dtype] = weakref.WeakKeyDictionary()
# The pair that fx graphs hold in place of a `with`, and what stands for it in a script.
_IN_SCRIPT = {
    torch.amp.autocast_mode._enter_autocast: scope_template.enter_autocast,
    torch.amp.autocast_mode._exit_autocast: scope_template.exit_autocast,
}


def compiled(obj: Any, frames_up: int = 0, is_wrapped: bool = False) -> Any:
    """``torch.jit.script``, with the scopes of decorators. ``frames_up`` calls above the caller
    is the frame whose names a class may use. ``is_wrapped``: there will be a scope around it."""
    if _compilation():  # a hook of the user's compiles something in between
        return _script.script(obj, _frames_up=frames_up + 1)
    with lock, _HOOKED, overloads_kept(obj):
        compilation = _Compilation()
        with replacing.values(vars(_this_thread), compilation=compilation):
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

    with lock, _HOOKED:
        compilation = _Compilation()
        with replacing.values(vars(_this_thread), compilation=compilation):
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

    read = _Stub(resolve, definition, inner)
    read.scopes = scopes
    return read


@contextlib.contextmanager
def of_a_trace() -> Iterator[None]:
    """What PyTorch compiles for a trace that this thread makes inside, exported methods and what is
    under ``torch.jit.script_if_tracing``, is compiled as `compiled` does it."""
    with _HOOKED_IN_TRACES, replacing.values(vars(_this_thread), is_tracing=True):
        yield


def _tracing_outside_a_compilation() -> bool:
    return getattr(_this_thread, "is_tracing", False) and not _compilation()


def _making_a_module(_: bool, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with lock, _HOOKED, replacing.values(vars(_this_thread), compilation=_Compilation()):
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
        if not isinstance(part, ScriptModule) or part in _compiled_here:
            continue
        for name in part._c._method_names():
            function = _python_method(part, name)
            if function is not None:
                refuse_forgotten(function)
                if scopes := _scopes(function):
                    yield path, name, scopes
            if _python_class(part) is not None:  # a file's functions have no more than their names
                graphs.append(part._c._get_method(name).graph)
    for called in _functions_called(graphs):
        refuse_forgotten(called)
        if not _only_switch_gradients(_scopes(called)):
            _refuse_decorator(called, "a decorator, and PyTorch has compiled it without")


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
                    yield python[name]


def refuse_forgotten(function: Any) -> None:
    """Raises AutocastError where PyTorch's compiler forgets a decorator of a function that enters
    autocast in a way of its own."""
    if what := lost_layer(function, getattr(function, "__self__", None)):
        _refuse_decorator(function, what)


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
    return found if isinstance(found, _FUNCTIONS) else None


def is_compiling() -> bool:
    """Whether it is within a compilation of this thread's that this is asked."""
    return _compilation() is not None


def _compilation() -> _Compilation | None:
    return getattr(_this_thread, "compilation", None)


class _Compilation(_recursive.ConcreteTypeStore):
    """One compilation: the types that it makes, and those that it may use."""

    def __init__(self) -> None:
        super().__init__()
        self.pytorchs = _STORES_REPLACED.original
        self.own = _own.setdefault(self.pytorchs, {})
        self.methods_compiled = _Compiled(self)
        self.of_classes: dict[type, dict[str, list[Any]]] = {}  # the decorators of their members
        self.types: dict[int, Any] = {}  # of the modules that were seen, by id
        self.expected: set[Any] = set()  # decorated functions whose scopes are being seen to
        self.looked_at: set[Any] = set()  # functions
        self.suspects: list[lost_writes.Suspect] = []  # of these, whose writes PyTorch may drop
        self.sources: dict[Any, Any] = {}  # of functions, as PyTorch reads them
        self.exported: dict[type, list[str]] = {}  # the exported methods of classes
        self.definitions: dict[tuple[Any, int], with_items.Definition] = {}
        self.owners: dict[Any, torch.nn.Module] = {}  # a module of each type
        self.owner: torch.nn.Module | None = None  # whose methods are being compiled
        self.parts: list[_Parts] = [{}]  # of what is being compiled
        self.refusals: dict[str, tuple[int, list[str], str]] = {}
        self.asked: set[str] = set()  # names that modules ask of one another
        self.naming: dict[Any, Any] = {}  # to functions, what is wrapped of all that they name
        self.wrapped: set[Any] = set()  # the types of modules that do

    def get_or_create_concrete_type(self, nn_module: torch.nn.Module) -> Any:
        """The type of a module: a known one where there is one. Decorators are part of it."""
        if not self.types:  # the outermost; its parts come before it
            classes: set[Any] = {type(each) for each in nn_module.modules()}
            self.asked |= {name for each in classes for name in _asked_of_others(each)}
        refuse_calls_of_its_own(nn_module)
        builder = _recursive.infer_concrete_type_builder(nn_module)  # type: ignore[no-untyped-call]
        decorations = [*self._decorations(nn_module), *self._evaluated_scopes(nn_module)]
        if torch.get_default_dtype() is not torch.float32:  # constants are computed with it
            decorations.append(f"default dtype: {torch.get_default_dtype()}")
        if decorations:
            builder.add_ignored_attributes(sorted(decorations))
        cls = type(nn_module)
        is_wrapped = self._names_what_is_wrapped(nn_module)
        for known in self._known(cls, is_wrapped):
            is_same = known.equals(builder) and self._has_the_parts(known, nn_module)
            if is_same and self.is_as_before(_parts_of_types.get(known, {})):
                break
        else:
            known = builder.build()
            if is_wrapped:
                self.wrapped.add(known)
            self.type_store.setdefault(cls, []).append(known)
        self.types[id(nn_module)] = known
        self.owners.setdefault(known, nn_module)
        return known

    def _evaluated_scopes(self, module: torch.nn.Module) -> Iterator[str]:
        """What the scopes of the methods that will be compiled are, each as a text."""
        definitions = self.methods(module)
        assigned = {name for each in definitions.values() for name in each.assigned}
        for name, definition in definitions.items():
            if definition.signature:
                for attribute in sorted(definition.reads & assigned):
                    _C.refuse(116, [attribute], definition.place)
                yield f"{name}: {definition.signature}"

    def methods(self, module: torch.nn.Module) -> dict[str, with_items.Definition]:
        """What is compiled of a module: ``forward``, exported methods, what other modules ask of
        it, its hooks, and what these come to; by name."""
        cls = type(module)
        if cls.__module__.partition(".")[0] == "torch":
            return {}
        if cls not in self.exported:
            self.exported[cls] = _exported(cls)
        ahead = ["forward", *self.exported[cls], *sorted(self.asked & {*dir(cls)} - {"forward"})]
        found: dict[str, with_items.Definition] = {}
        seen = set(ahead)
        hooks = _hooks(module)
        ahead += hooks
        while ahead:
            name = ahead.pop(0)
            method = hooks[name] if name in hooks else _method(module, name)
            definition = None if method is None else self.definition(method, module)
            if definition is None:
                continue
            found[name] = definition
            named = [each for each in definition.attributes if each not in seen]
            ahead += sorted(each for each in named if _method(module, each) is not None)
            seen.update(named)
        return found

    def definition(
        self, function: Any, owner: torch.nn.Module | None = None
    ) -> with_items.Definition | None:
        """The source of a function, with its scopes written out; None where there is none."""
        plain = getattr(function, "__func__", function)
        if plain not in self.sources:
            try:
                self.sources[plain] = _ORIGINAL_PARSE(plain)  # type: ignore[no-untyped-call]
            except (OSError, TypeError, RuntimeError, SyntaxError):
                self.sources[plain] = None  # the compiler says what is wrong with it
        parsed = self.sources[plain]
        if parsed is None:
            return None
        key = (plain, id(owner))
        if key not in self.definitions:
            self.definitions[key] = with_items.rewritten(
                parsed.ast,
                plain,
                owner,
                lambda line: places.shown(parsed.filename, parsed.file_lineno + line - 1),
            )
            self.refusals |= self.definitions[key].refusals
        return self.definitions[key]

    def is_as_before(self, parts: _Parts) -> bool:
        """Whether the scopes of functions are what they were when something was compiled."""
        for reference, signature in parts.items():
            function = reference()
            definition = None if function is None else self.definition(function)
            if definition is None or definition.signature != signature:
                return False
        return True

    @contextlib.contextmanager
    def compiling(self, owner: torch.nn.Module | None, parts: _Parts) -> Iterator[None]:
        """What is compiled inside is the owner's, and adds to these parts."""
        before, self.owner = self.owner, owner
        self.parts.append(parts)
        try:
            yield
        finally:
            self.parts.pop()
            self.parts[-1].update(parts)
            self.owner = before

    def _decorations(self, module: torch.nn.Module) -> Iterator[str]:
        """The scopes of the module's decorated methods, each as a text. Methods that only switch
        gradients count where they are compiled: initialising weights does no more."""
        cls = type(module)
        if cls not in self.of_classes:
            self.of_classes[cls] = _decorated_members(
                vars(base) for base in reversed(cls.__mro__) if base is not torch.nn.Module
            )
            methods = getattr(cls, "_methods", {})  # under torch.jit.script_method
            self.of_classes[cls] |= _decorated_members(
                [{name: each.original_method for name, each in methods.items()}]
            )
        members = self.of_classes[cls] | _decorated_members([vars(module)])
        compiled = self.methods(module).keys() if any(members.values()) else ()
        for name, scopes in members.items():
            if scopes and (name in compiled or not _only_switch_gradients(scopes)):
                yield f"{name}: {scopes}"

    def _has_the_parts(self, known: Any, nn_module: torch.nn.Module) -> bool:
        """Whether the types of the submodules are these very types, and not only like them: that
        is enough for PyTorch, where modules that are alike are of one type."""
        for name, part in known.get_modules():
            child = nn_module._modules.get(name)
            expected = getattr(child, "_concrete_type", self.types.get(id(child)))
            is_class = not isinstance(part.jit_type, torch._C.InterfaceType)
            if is_class and expected is not None and part is not expected:
                return False
        return True

    def _names_what_is_wrapped(self, module: torch.nn.Module) -> bool:
        """Whether something stands around what is compiled of a module, or around what that names:
        PyTorch's own types of the class may be without it."""
        names = self.methods(module)
        if any(lost_layer(_member(module, name), module) for name in names):
            return True
        functions = filter(None, (_method(module, name) for name in names))
        return any(self.wrapped_function(each) is not None for each in functions)

    def wrapped_function(self, function: Any) -> Any:
        """A function around which something stands that plain TorchScript forgets, of those that a
        function names, and that these name; None where there is none."""
        function = getattr(function, "__func__", function)
        if function not in self.naming:
            self.naming[function] = None  # where they call one another
            found = map(self._itself_or_named, reaching.code_named(function))
            self.naming[function] = next(filter(None, found), None)
        return self.naming[function]

    def _itself_or_named(self, function: Any) -> Any:
        if isinstance(function, type):
            return self.refuse_if_compiled(function)
        inner, scopes, layers = decorators.look_through(function)
        if scopes or (layers and lost_layer(function, None)):
            return function
        inner = inspect.unwrap(getattr(inner, "__func__", inner))
        return self.wrapped_function(inner) if type(inner) is types.FunctionType else None

    def refuse_if_compiled(self, cls: type) -> None:
        """Refuses a TorchScript class that PyTorch has compiled before, without what is wrapped:
        there is one of it in a process."""
        known = _state._get_script_class(cls)  # type: ignore[no-untyped-call]
        if known is None or _wrapped_classes.get(cls) is known:
            return
        methods = [each for each in vars(cls).values() if isinstance(each, types.FunctionType)]
        if wrapped := next(filter(None, map(self._itself_or_named, methods)), None):
            what = (
                f"a decorator, and PyTorch has compiled `{cls.__qualname__}` before, which has it"
            )
            _refuse_decorator(wrapped, what)

    def _known(self, cls: type, is_wrapped: bool) -> Iterator[Any]:
        for known in () if is_wrapped else self.pytorchs.type_store.get(cls, ()):
            is_compiled = known in self.pytorchs.methods_compiled
            # One that has run under an ambient autocast stays as it ran, for whom it is then.
            if is_compiled and self._is_free(known) and _C.can_serve(known.jit_type):
                yield known
        yield from self.own.get(cls, ())
        yield from self.type_store.get(cls, ())

    def _is_free(self, known: Any) -> bool:
        """Whether there is no scope in a type of PyTorch's."""
        if known not in _free and not _C.have_scopes([known.jit_type])[0]:
            _free.add(known)
        return known in _free

    def finish(self, result: Any, is_wrapped: bool = False) -> None:
        """Refuses what came out with writes that PyTorch has dropped, or keeps its types."""
        if isinstance(result, (ScriptFunction, ScriptModule)):
            lost_writes.refuse(result, self.suspects, is_wrapped)
        self.keep_types()
        if isinstance(result, ScriptModule):
            self.set_apart(result)

    def keep_types(self) -> None:
        """Gives the types that were made to PyTorch's store, those with scopes to jit_amp's."""
        made: list[tuple[type, Any]] = [
            (cls, each) for cls, some in self.type_store.items() for each in some
        ]
        scopes = _C.have_scopes([each.jit_type for _, each in made])
        for (cls, each), has_scopes in zip(made, scopes, strict=True):
            is_own = has_scopes or any(_parts_of_types.get(each, {}).values())
            is_own |= each in self.wrapped
            (self.own if is_own else self.pytorchs.type_store).setdefault(cls, []).append(each)
            if has_scopes:
                _C.lower_type(each.jit_type)
            elif each in self.methods_compiled:
                self.pytorchs.methods_compiled.add(each)

    def look_at(self, function: Any) -> None:
        """Notes the writes of a function, or a method, once."""
        function = getattr(function, "__func__", function)
        if function not in self.looked_at:
            self.looked_at.add(function)
            self.suspects += lost_writes.suspected(function)

    def set_apart(self, result: ScriptModule) -> None:
        """Has PyTorch know modules of our types by these types alone, as it does those that were
        loaded: it would take them for modules of their Python class."""
        own = {each for some in self.own.values() for each in some}
        for each in result.modules():
            known: Any = getattr(each, "_concrete_type", None)
            if known in own:
                if known not in _apart:
                    _apart[known] = torch._C.ConcreteModuleType.from_jit_type(known.jit_type)
                each._concrete_type = _apart[known]


class _Compiled(set[Any]):
    """The types whose methods are compiled: of this compilation, and those that it may use."""

    def __init__(self, compilation: _Compilation) -> None:
        super().__init__()
        self._own = {each for some in compilation.own.values() for each in some}
        self._pytorchs = compilation.pytorchs

    def __contains__(self, each: object) -> bool:
        return (
            super().__contains__(each)
            or each in self._own
            or each in self._pytorchs.methods_compiled
        )


class _Stores:
    """PyTorch's store of types; in a thread that compiles for jit_amp, what it may use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_compilation() or _STORES_REPLACED.original, name)


_STORES_REPLACED = _C.Replaced(_recursive, "concrete_type_store", _Stores())


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


def _script_impl(
    compilation: _Compilation, original: Callable[..., Any], obj: Any, *args: Any, **kwargs: Any
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
def _as_function(compilation: _Compilation, function: Any) -> Iterator[bool]:
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
    parts: _Parts = {weakref.ref(function): signature} if has_with else {}
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
    compilation: _Compilation, original: Callable[..., Any], fn: Any, *args: Any, **kwargs: Any
) -> Any:
    """The definition of a function, read from its source: of the one below all decorators."""
    if fn not in compilation.expected and decorators.unwrap(fn)[1]:
        _refuse_decorator(fn, "a decorator that enters autocast")
    _unwrap(compilation, fn)
    compilation.look_at(fn)
    try:
        return original(fn, *args, **kwargs)
    except frontend.NotSupportedError as error:
        owner = getattr(fn, "__self__", compilation.owner)
        if "variable number of arguments" in str(error) and reaching.reaches_autocast(
            fn, (), owner
        ):
            _refuse_wrapper(fn, owner)
        raise


def _unwrap(compilation: _Compilation, func: Any) -> tuple[Any, list[Around]]:
    """What is compiled of a function, and the scopes around it. It is refused if anything else
    stands around it that may enter autocast."""
    owner = getattr(func, "__self__", compilation.owner)
    if what := lost_layer(func, owner):
        _refuse_decorator(func, what)
    return decorators.unwrap(func)


def refuse_calls_of_its_own(module: torch.nn.Module) -> None:
    """Refuses a module whose call, in Python, may enter autocast before it comes to `forward`."""
    cls = type(module)
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
        forward, *_ = decorators.look_through(getattr(module, "forward", None))
        besides = [forward, getattr(forward, "__func__", None)]
        is_scope = not _only_switch_gradients(scopes) or lost_layer(call, module)
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


def _refuse_decorator(fn: Any, what: str) -> NoReturn:
    name = getattr(inspect.unwrap(fn), "__qualname__", str(fn))
    _C.refuse(118, [name, what, ""], places.of_function(fn))


def _refuse_wrapper(fn: Any, owner: Any) -> NoReturn:
    """Refuses a module that stands around another one, as a trainer's does, by the line of that."""
    what, advice = (
        "`*args`, and enters autocast",
        "the module that it calls, scripted by itself, with ",
    )
    parts = list(owner.children()) if isinstance(owner, torch.nn.Module) else []
    place = places.of_function(parts[0].forward) if len(parts) == 1 else ""
    _C.refuse(118, [fn.__qualname__, what, advice], place or places.of_function(fn))


def _parse_def(compilation: _Compilation, original: Callable[..., Any], fn: Any) -> Any:
    """The source of a function, with its scopes written out."""
    parsed = original(fn)
    owner = getattr(fn, "__self__", compilation.owner)
    if not isinstance(owner, torch.nn.Module) or isinstance(owner, ScriptModule):
        owner = None
    definition = compilation.definition(fn, owner)
    if definition is None or not definition.signature:
        return parsed
    return parsed._replace(ast=copy.deepcopy(definition.tree))


def _resolving_ours(compilation: _Compilation, original: Callable[..., Any], of: Any) -> Any:
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


def _infer_type(_: _Compilation, original: Callable[..., Any], value: Any) -> Any:
    """TorchScript holds no autocast object: a `with` of one is written out."""
    if _scope_names.holds_autocast(value):
        return torch._C.InferredType("an autocast object")
    return original(value)


_FUNCTIONS = (types.FunctionType, types.MethodType, staticmethod, classmethod)


class _Stub(_recursive.ScriptMethodStub):
    """A method, or a hook, to compile, and the scopes to put around it."""

    scopes: list[Around]


class _Property(_recursive.PropertyStub):
    """A property to compile, and the scopes to put around getter and setter."""

    scopes: list[list[Around]]


def _make_stub(
    compilation: _Compilation, original: Callable[..., Any], func: Any, name: str
) -> Any:
    inner, scopes = _unwrap(compilation, func)
    _refuse_other_module(compilation.owner, func, inner, name)
    stub = _Stub(*original(inner, name))
    stub.scopes = scopes
    return stub


def _refuse_other_module(owner: Any, func: Any, inner: Any, name: str) -> None:
    """Refuses what stands around a method of another module, as in a copy of a module whose own
    `forward` was wrapped: eager runs that with the other module's weights."""
    if inner is func or owner is None or name not in vars(owner):
        return
    bound_to = getattr(inner, "__self__", owner)
    if bound_to is not owner and isinstance(bound_to, torch.nn.Module):
        _refuse_decorator(func, "a decorator around the method of another module")


def _make_overloads(
    compilation: _Compilation, original: Callable[..., Any], overloads: dict[Any, list[Any]]
) -> Any:
    """Each declared overload of a method is compiled from its one definition."""
    below = {function: _unwrap(compilation, function) for function in overloads}
    made = original({below[function][0]: each for function, each in overloads.items()})
    stubs = [_Stub(*each) for each in made]
    all_scopes = (below[function][1] for function, each in overloads.items() for _ in each)
    for stub, scopes in zip(stubs, all_scopes, strict=True):
        stub.scopes = scopes
    return stubs


def _get_property_stubs(
    compilation: _Compilation, original: Callable[..., Any], nn_module: torch.nn.Module
) -> Any:
    stubs = []
    with (
        _expecting(compilation, _accessors(type(nn_module))),
        compilation.compiling(nn_module, {}),
    ):
        left_out = _only_evaluated(compilation, nn_module)
        for stub in original(nn_module):
            if stub.def_.name().name in left_out:
                continue
            accessors = _of_property(getattr(type(nn_module), stub.def_.name().name))
            callback = _resolving(stub.resolution_callback, accessors)
            made = _Property(callback, stub.def_)
            made.scopes = [_unwrap(compilation, each)[1] for each in accessors]
            stubs.append(made)
    return stubs


def _only_evaluated(compilation: _Compilation, module: torch.nn.Module) -> set[str]:
    """The properties that scopes alone ask for: they need not be TorchScript."""
    definitions = compilation.methods(module).values()
    code = {each for definition in definitions for each in definition.code}
    used = {name for definition in definitions for name in definition.attributes}
    members = dict(inspect.getmembers_static(type(module)))
    properties = {name for name, each in members.items() if isinstance(each, property)}
    codes = {
        name: getattr(inspect.unwrap(_function_of(each)), "__code__", None)
        for name, each in members.items()
    }
    ahead = [name for name in members if codes[name] in code]
    evaluated = set(ahead)
    while ahead:  # what ran may ask for more under another condition
        named = {*getattr(codes[ahead.pop()], "co_names", ())} & properties - evaluated
        evaluated |= named
        ahead += named
    return (evaluated & properties) - used


def _function_of(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)


def _get_hook_stubs(
    compilation: _Compilation, original: Callable[..., Any], nn_module: torch.nn.Module
) -> Any:
    with compilation.compiling(nn_module, {}):
        return original(nn_module)


def _create_methods(
    compilation: _Compilation,
    original: Callable[..., Any],
    concrete_type: Any,
    methods: Any,
    properties: Any,
) -> None:
    parts: _Parts = {}
    with compilation.compiling(compilation.owners.get(concrete_type), parts):
        original(concrete_type, methods, properties)
    if parts:
        _parts_of_types.setdefault(concrete_type, {}).update(parts)
    for stub in methods:
        _wrap(concrete_type.jit_type, stub.def_.name().name, getattr(stub, "scopes", []))
    for stub in properties:
        for name, scopes in zip(
            (stub.def_.getter_name(), stub.def_.setter_name()), stub.scopes, strict=False
        ):
            _wrap(concrete_type.jit_type, name.name, scopes)


def _compile_unbound_method(
    compilation: _Compilation, original: Callable[..., Any], concrete_type: Any, fn: Any
) -> Any:
    with compilation.compiling(compilation.owners.get(concrete_type), {}):
        return original(concrete_type, fn)


def _create_script_module(
    compilation: _Compilation,
    original: Callable[..., Any],
    module: Any,
    concrete_type: Any,
    *args: Any,
) -> Any:
    """A module's type is not asked of the store where it is of a trace."""
    compilation.owners.setdefault(concrete_type, module)
    with compilation.compiling(module, {}):
        scripted = original(module, concrete_type, *args)
    _compiled_here.add(scripted)
    return scripted


def _create_hooks(
    _: _Compilation, original: Callable[..., Any], concrete_type: Any, hooks: Any, pre_hooks: Any
) -> None:
    original(concrete_type, hooks, pre_hooks)
    done = set()
    for stub in (*hooks, *pre_hooks):
        if stub.def_.name().name not in done:  # one hook may be there twice
            _wrap(concrete_type.jit_type, stub.def_.name().name, getattr(stub, "scopes", []))
        done.add(stub.def_.name().name)


def _compile_class(
    compilation: _Compilation, original: Callable[..., Any], cls: Any, rcb: Any, name: str
) -> Any:
    """A TorchScript class is compiled once in a process: its methods get their scopes there."""
    with compilation.compiling(None, {}):
        return _compile_class_of_none(compilation, original, cls, rcb, name)


def _compile_class_of_none(
    compilation: _Compilation, original: Callable[..., Any], cls: Any, rcb: Any, name: str
) -> Any:
    methods = {
        each: getattr(cls, each)
        for each, value in vars(cls).items()
        if inspect.isroutine(getattr(value, "__func__", value))
    }
    compilation.refuse_if_compiled(cls)
    decorated = {each: value for each, value in methods.items() if decorators.unwrap(value)[1]}
    with _expecting(compilation, [*decorated.values(), *_accessors(cls)]):
        made = original(cls, _resolving(rcb, [*decorated.values(), *_accessors(cls)]), name)
    if _wrapped_classes.get(cls) is not made:
        _wrapped_classes[cls] = made
        for each, value in decorated.items():
            if not isinstance(vars(cls)[each], staticmethod):
                _wrap(made, each, decorators.unwrap(value)[1])
        for each, value in vars(cls).items():
            for kind, accessor in zip(("getter", "setter"), _of_property(value), strict=False):
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
_HOOKED = _C.Replacements(
    [
        *replacing.places(replacing.Hook(*hook, _compilation) for hook in _HOOKS),
        _STORES_REPLACED,
    ]
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
_ORIGINAL_PARSE = frontend.parse_def  # type: ignore[attr-defined]


def _wrap(jit_type: Any, name: str, scopes: list[Around]) -> None:
    if scopes:
        _C.wrap_method(jit_type, name, decorators.pattern(), scopes)


@contextlib.contextmanager
def _expecting(compilation: _Compilation, functions: Iterable[Any]) -> Iterator[None]:
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


def _accessors(cls: type) -> list[Any]:
    members = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    return [each for value in members.values() for each in _of_property(value)]


def _decorated_members(owners: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The scopes of all that is a function, and of properties; those of later owners count."""
    found: dict[str, list[Any]] = {}
    for members in owners:
        for name, value in members.items():
            if isinstance(value, property):
                found[name] = [
                    s for each in _of_property(value) if (s := decorators.unwrap(each)[1])
                ]
            elif isinstance(value, _FUNCTIONS):
                found[name] = _scopes(value)
    return found


def _only_switch_gradients(scopes: list[Any]) -> bool:
    """Scopes of a method, or lists of those of a property."""
    flat = [scope for each in scopes for scope in (each if isinstance(each, list) else [each])]
    return all(map(decorators.is_of_gradients, flat))


def _scopes(function: Any) -> list[Any]:
    return decorators.unwrap(function)[1]


def _exported(cls: type) -> list[str]:
    """The methods of a class that are compiled besides `forward`."""
    wanted = torch._jit_internal.FunctionModifiers.EXPORT
    functions = inspect.getmembers_static(cls, inspect.isfunction)
    return [
        name
        for name, each in functions
        if torch._jit_internal.get_torchscript_modifier(each) is wanted  # type: ignore[no-untyped-call]
    ]


@functools.cache
def _asked_of_others(cls: type) -> frozenset[str]:
    """The names that a class's methods ask of other objects than `self`."""
    names: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == "torch":
            continue
        for member in vars(base).values():
            if isinstance(member, types.FunctionType):
                names |= _scope_names.asked_of_others(decorators.unwrap(member)[0])
    return frozenset(names)


def _member(module: torch.nn.Module, name: str) -> Any:
    """What a module has by a name, or the getter of a property."""
    member = vars(module).get(name, inspect.getattr_static(type(module), name, None))
    return member.fget if isinstance(member, property) else member


def _method(module: torch.nn.Module, name: str) -> Any:
    """A Python method of a module, or the getter of a property, below its decorators."""
    inner = decorators.unwrap(_member(module, name))[0]
    inner = getattr(inner, "__func__", inner)
    if not isinstance(inner, types.FunctionType) or isinstance(
        vars(type(module)).get(name), staticmethod
    ):
        return None
    if (inner.__module__ or "").partition(".")[0] == "torch":
        return None
    return inner


def _hooks(module: torch.nn.Module) -> dict[str, Any]:
    """The hooks of a module that are compiled, below their decorators."""
    both = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    functions = (decorators.unwrap(each)[0] for each in both)
    return {
        f"{number} {each.__name__}": each
        for number, each in enumerate(functions)
        if isinstance(each, (types.FunctionType, types.MethodType))
    }


def _of_property(value: Any) -> list[Any]:
    """Getter, and setter if there is one."""
    if not isinstance(value, property):
        return []
    return [each for each in (value.fget, value.fset) if each is not None]
