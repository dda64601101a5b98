"""One compilation in a thread: the types of modules that have scopes, and what it has seen."""

from __future__ import annotations

import contextlib
import inspect
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.jit import ScriptFunction, ScriptModule, _recursive, _state, frontend

from jit_amp import _C
from jit_amp._base import places
from jit_amp._script.members import (
    asked_of_others,
    decorated_members,
    exported_of,
    hooks_of,
    member_of,
    method_of,
    only_switch_gradients,
)
from jit_amp._script.wrapped import lost_layer, refuse_calls_of_its_own, refuse_decorator
from jit_amp._source import decorators, lost_writes, reaching, with_items

lock = threading.RLock()
this_thread = threading.local()
# For each store of PyTorch's, which test suites exchange: the types with scopes, by Python class.
_own: weakref.WeakKeyDictionary[Any, dict[type, list[Any]]] = weakref.WeakKeyDictionary()
# Types of PyTorch's that were looked at, and have none.
_free: set[Any] = set()
# Each type of ours as PyTorch knows it.
_apart: dict[Any, Any] = {}
# The modules that were compiled here, with the scopes of their decorators.
compiled_here: weakref.WeakSet[ScriptModule] = weakref.WeakSet()
# The TorchScript classes that have the scopes of their methods' decorators.
wrapped_classes: weakref.WeakKeyDictionary[type, Any] = weakref.WeakKeyDictionary()
# The functions with a `with` that a compiled function or type consists of, each as it was.
Parts = dict["weakref.ref[Any]", str]
parts_of_types: dict[Any, Parts] = {}


def is_compiling() -> bool:
    """Whether it is within a compilation of this thread's that this is asked."""
    return current_compilation() is not None


def current_compilation() -> Compilation | None:
    return getattr(this_thread, "compilation", None)


class Compilation(_recursive.ConcreteTypeStore):
    """One compilation: the types that it makes, and those that it may use."""

    def __init__(self) -> None:
        super().__init__()
        self.pytorchs = STORES_REPLACED.original
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
        self.parts: list[Parts] = [{}]  # of what is being compiled
        self.refusals: dict[str, tuple[int, list[str], str]] = {}
        self.asked: set[str] = set()  # names that modules ask of one another
        self.naming: dict[Any, Any] = {}  # to functions, what is wrapped of all that they name
        self.wrapped: set[Any] = set()  # the types of modules that do

    def get_or_create_concrete_type(self, nn_module: torch.nn.Module) -> Any:
        """The type of a module: a known one where there is one. Decorators are part of it."""
        if not self.types:  # the outermost; its parts come before it
            classes: set[Any] = {type(each) for each in nn_module.modules()}
            self.asked |= {name for each in classes for name in asked_of_others(each)}
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
            if is_same and self.is_as_before(parts_of_types.get(known, {})):
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
            self.exported[cls] = exported_of(cls)
        ahead = ["forward", *self.exported[cls], *sorted(self.asked & {*dir(cls)} - {"forward"})]
        found: dict[str, with_items.Definition] = {}
        seen = set(ahead)
        hooks = hooks_of(module)
        ahead += hooks
        while ahead:
            name = ahead.pop(0)
            method = hooks[name] if name in hooks else method_of(module, name)
            definition = None if method is None else self.definition(method, module)
            if definition is None:
                continue
            found[name] = definition
            named = [each for each in definition.attributes if each not in seen]
            ahead += sorted(each for each in named if method_of(module, each) is not None)
            seen.update(named)
        return found

    def definition(
        self, function: Any, owner: torch.nn.Module | None = None
    ) -> with_items.Definition | None:
        """The source of a function, with its scopes written out; None where there is none."""
        plain = getattr(function, "__func__", function)
        parsed = self.source(plain)
        if parsed is None:
            return None
        key = (plain, id(owner))
        if key not in self.definitions:
            self.definitions[key] = with_items.rewritten(
                parsed.ast,
                parsed.source,
                plain,
                owner,
                lambda line: places.shown(parsed.filename, parsed.file_lineno + line - 1),
            )
            self.refusals |= self.definitions[key].refusals
        return self.definitions[key]

    def source(self, function: Any) -> Any:
        """The source of a function as PyTorch's compiler parses it, once; None where there is
        none, and the compiler says why. Nobody changes it."""
        plain = getattr(function, "__func__", function)
        if plain not in self.sources:
            try:
                self.sources[plain] = ORIGINAL_PARSE(plain)  # type: ignore[no-untyped-call]
            except (OSError, TypeError, RuntimeError, SyntaxError):
                self.sources[plain] = None
        return self.sources[plain]

    def is_as_before(self, parts: Parts) -> bool:
        """Whether the scopes of functions are what they were when something was compiled."""
        for reference, signature in parts.items():
            function = reference()
            definition = None if function is None else self.definition(function)
            if definition is None or definition.signature != signature:
                return False
        return True

    @contextlib.contextmanager
    def compiling(self, owner: torch.nn.Module | None, parts: Parts) -> Iterator[None]:
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
            self.of_classes[cls] = decorated_members(
                vars(base) for base in reversed(cls.__mro__) if base is not torch.nn.Module
            )
            methods = getattr(cls, "_methods", {})  # under torch.jit.script_method
            self.of_classes[cls] |= decorated_members(
                [{name: each.original_method for name, each in methods.items()}]
            )
        members = self.of_classes[cls] | decorated_members([vars(module)])
        compiled = self.methods(module).keys() if any(members.values()) else ()
        for name, scopes in members.items():
            if scopes and (name in compiled or not only_switch_gradients(scopes)):
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
        if any(lost_layer(member_of(module, name), module) for name in names):
            return True
        functions = filter(None, (method_of(module, name) for name in names))
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
        if known is None or wrapped_classes.get(cls) is known:
            return
        methods = [each for each in vars(cls).values() if isinstance(each, types.FunctionType)]
        if wrapped := next(filter(None, map(self._itself_or_named, methods)), None):
            what = (
                f"a decorator, and PyTorch has compiled `{cls.__qualname__}` before, which has it"
            )
            refuse_decorator(wrapped, what)

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
            is_own = has_scopes or any(parts_of_types.get(each, {}).values())
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
            if source := self.source(function):
                text = source.filename or "", source.file_lineno, source.source
                self.suspects += lost_writes.suspected(function, text)

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

    def __init__(self, compilation: Compilation) -> None:
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
        return getattr(current_compilation() or STORES_REPLACED.original, name)


STORES_REPLACED = _C.Replaced(_recursive, "concrete_type_store", _Stores())
ORIGINAL_PARSE = frontend.parse_def  # type: ignore[attr-defined]
