"""Evaluates what a program says of a scope, as Python would, while its code is compiled.

`with_items` calls it for the expression of a `with` item. An expression runs once. While it runs,
this thread's calls are watched: which arguments ``torch.autocast`` is made with, which scopes are
entered, and whether the state around the call is asked for, which is known at run time only. What
the expression changes in the program is put back, and told.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import gc
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch.autograd import grad_mode
from torch.overrides import TorchFunctionMode

from jit_amp._base import process_state, source_files
from jit_amp._source.failed import Failed
from jit_amp._source.undoing import undone

# What a `with` enters, from the outermost: an autocast scope as its constructor's arguments, or
# whether gradients are recorded.
Scope = tuple[str, "torch.dtype | None", bool, "bool | None"] | bool
GRAD_MODES: tuple[type, ...] = (
    grad_mode.no_grad,
    grad_mode.enable_grad,
    grad_mode.set_grad_enabled,
    grad_mode.inference_mode,
)
# Functions that tell the state around a call (torch/csrc/autograd/init.cpp and its like).
_ASKS_THE_STATE = {
    getattr(torch, name)
    for name in dir(torch)
    if name.startswith(("is_autocast", "get_autocast", "is_grad_enabled", "is_inference_mode_en"))
    if isinstance(getattr(torch, name), types.BuiltinFunctionType)
} | {torch.is_grad_enabled}
# Python functions of which TorchScript has operators of its own, with answers of its own.
_jit: Any = torch.jit
KNOWN_AT_RUN_TIME = _ASKS_THE_STATE | {_jit.is_scripting, _jit.is_tracing}
# Builtin functions that do something to the world.
_EFFECTS = ("print", "open", "input", "exec", "eval", "setattr", "delattr", "__import__")
_OWN_FILES = {contextlib.__file__, functools.__file__, __file__, undone.__code__.co_filename}
_TRUSTED = {
    method.__code__
    for cls in (torch.autocast, *GRAD_MODES)
    for name in ("__init__", "__new__", "__enter__", "__exit__")
    if isinstance(method := vars(cls).get(name), types.FunctionType)
}


class Seen:
    """What was seen while expressions of one function were evaluated.

    Attributes:
        code: the Python functions that were called.
        made: autocast objects that were made, by id, with the arguments of their constructor: what
            is left out is asked of the scopes around, where the program makes them.
    """

    def __init__(self) -> None:
        self.code: set[types.CodeType] = set()
        self.made: dict[int, tuple[torch.autocast, Scope]] = {}

    def scope_of(self, autocast: torch.autocast) -> Scope:
        """An autocast object as its constructor's arguments; as it is, if it was there before."""
        _, scope = self.made.get(id(autocast), (autocast, None))
        if scope is not None:
            return scope
        return autocast.device, autocast.fast_dtype, autocast._enabled, autocast._cache_enabled

    def depends_on_its_place(self, value: Any) -> bool:
        """Whether it is, or has, an autocast object that takes its dtype from the scopes around."""
        if isinstance(value, (dict, list, tuple)):
            members = value.values() if isinstance(value, dict) else value
            return any(map(self.depends_on_its_place, members))
        return isinstance(value, torch.autocast) and self.scope_of(value)[1] is None  # type: ignore[index]


class Made(NamedTuple):
    """What an expression gives: an object, and as a context manager its scopes, outermost first."""

    value: Any
    scopes: list[Scope]
    asked: list[tuple[torch.Tensor, str]]  # tensors, and which attribute of them it depends on
    names: set[str]  # attributes of `self` that the code that ran names, PyTorch's aside


def evaluated(
    text: str,
    run: Callable[[], Any],
    owner: Any,
    names: Mapping[str, Any],
    is_context: bool,
    seen: Seen,
) -> Made:
    """Runs a piece of the user's program once, and returns what it gives.

    Args:
        text: the expression, as an error names it.
        run: evaluates it.
        owner: the module whose code it is, or None.
        names: the globals that it may change.
        is_context: whether its result is for a `with`. Where it is no object of PyTorch's, it is
            entered and left to see which scopes it enters.
        seen: what earlier expressions of the function have shown, to which this one adds.

    Raises:
        Failed: it raised, asked for the state of autocast around the call, or changed something;
            or the context manager does something besides.
    """
    watch, weights = _Watch(seen), _Weights()
    # In a function of its own: an interrupt at the line of a `try` that begins a `with` is not
    # heard by the contexts (CPython 3.11).
    with undone(text, owner, names) as changed:
        value, scopes = _ran(run, text, is_context, (weights, watch), changed)
    if watch.asked:
        raise Failed(101, f"`{watch.asked}` in `{text}`")
    if watch.foreign:
        raise Failed(125, text, f"calls `{watch.foreign}`")
    seen.code |= watch.code
    own = (code for code in watch.code if not source_files.is_pytorchs(code.co_filename))
    return Made(value, scopes, weights.asked, {name for code in own for name in _of_self(code)})


def _ran(
    run: Callable[[], Any],
    text: str,
    is_context: bool,
    seen: tuple[_Weights, _Watch],
    changed: Callable[[Any], str],
) -> tuple[Any, list[Scope]]:
    """What an expression gives, and its scopes as a context manager."""
    weights, watch = seen
    try:
        with process_state.modes(), weights, watch:
            value = run()
            return value, _scopes(value, watch, changed) if is_context else []
    except Failed as failed:
        raise Failed(failed.code, text, *failed.said) from None
    except Exception as error:
        said = " ".join(str(error).split())
        name = type(error).__name__
        raise Failed(123, text, f"{name}: {said}" if said else name) from error


def _of_self(code: types.CodeType) -> Iterator[str]:
    """The attributes that a function names of its first argument, or of `self`."""
    owners = {"self", *code.co_varnames[: min(code.co_argcount, 1)]}
    loaded: Any = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and loaded in owners:
            yield str(instruction.argval)
        is_name = instruction.opname.startswith(("LOAD_FAST", "LOAD_NAME", "LOAD_DEREF"))
        loaded = instruction.argval if is_name else None
        if isinstance(loaded, tuple):  # two names in one
            loaded = loaded[-1]
    if "getattr" in code.co_names:
        yield from (each for each in code.co_consts if isinstance(each, str))


def _scopes(value: Any, watch: _Watch, changed: Callable[[Any], str]) -> list[Scope]:
    """The scopes of a context manager, and those that were entered while it was made."""
    entered = watch.scopes(besides=value)
    known = _known_scopes(value, watch.seen)
    if known or isinstance(value, contextlib.nullcontext):
        return entered + known
    kind = type(value)
    if not (hasattr(kind, "__enter__") and hasattr(kind, "__exit__")):
        raise TypeError(f"'{kind.__name__}' object is no context manager")
    if isinstance(value, contextlib.suppress) and not value._exceptions:  # type: ignore[attr-defined]
        return entered
    if isinstance(value, contextlib.suppress) or not isinstance(kind.__enter__, types.FunctionType):
        raise Failed(125, f"is a `{kind.__module__}.{kind.__qualname__}`")
    watch.strict = True
    with contextlib.ExitStack() as stack:
        stack.enter_context(value)
        watch.strict = False
        if change := changed(value):  # which its end may take back
            raise Failed(124, change)
        watch.strict = True
        return watch.scopes()


def _known_scopes(value: Any, seen: Seen) -> list[Scope]:
    """Returns the scopes that an object of one of PyTorch's own classes stands for."""
    if isinstance(value, torch.autocast):
        if type(value).__enter__ is not torch.autocast.__enter__ and not type(
            value
        ).__module__.startswith("torch."):
            return []
        return [seen.scope_of(value)]
    if (mode := gradient_mode(value)) is not None:
        return [mode]
    return []


def gradient_mode(value: Any) -> bool | None:
    """Whether gradients are recorded inside; None for all else."""
    if type(value) is grad_mode.no_grad:
        return False
    if type(value) is grad_mode.enable_grad:
        return True
    if type(value) is grad_mode.set_grad_enabled:
        return bool(value.mode)
    if type(value) is grad_mode.inference_mode:
        return not value.mode
    return None


class _Weights(TorchFunctionMode):
    """Notes of which tensors the dtype or the device is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[torch.Tensor, str]] = []

    def __torch_function__(
        self, function: Any, kinds: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        name = getattr(getattr(function, "__self__", None), "__name__", "")
        if name in ("dtype", "device", "is_cuda", "is_cpu") and arguments:
            self.asked.append((arguments[0], "dtype" if name == "dtype" else "device"))
        return function(*arguments, **(named or {}))


class _Watch:
    """Watches the calls of this thread while it is open."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.code: set[types.CodeType] = set()
        self.strict = False  # whether calls of other functions in C are noted
        self.asked = ""  # what tells the state around the call
        self.foreign = ""  # what else a context manager calls
        self.open: list[Any] = []  # context managers, in the order in which they were entered
        self.depth = 0  # of calls in methods of torch.autocast

    def __enter__(self) -> _Watch:
        # What a collection calls is not the expression's.
        self.is_collecting = gc.isenabled()
        gc.disable()
        self.before: Any = sys.getprofile()
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_collecting:
            gc.enable()
        if callable(self.before):
            sys.setprofile(self.before)
        else:  # None, or a profiler in C
            sys.setprofile(None)
            if self.before is not None:
                self.before.enable()

    def scopes(self, besides: Any = None) -> list[Scope]:
        """Returns the scopes that are open."""
        instances = [each for each in self.open if each is not besides]
        return [scope for each in instances for scope in _known_scopes(each, self.seen)]

    def _seen(self, frame: types.FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call":
            self.code.add(code)
        if code in _TRUSTED:
            if event == "call":
                self.depth += 1
                self._called(frame)
            elif event == "return":
                self.depth -= 1
        elif code in _ASKS_FOR_DEVICES and event in ("call", "return"):
            self.depth += 1 if event == "call" else -1
        elif event == "c_call" and not self.depth and code.co_filename not in _OWN_FILES:
            self._called_c(argument)

    def _called(self, frame: types.FrameType) -> None:
        given = frame.f_locals
        instance = given.get("self")
        name = frame.f_code.co_name
        if (
            isinstance(instance, torch.autocast)
            and frame.f_code is torch.autocast.__init__.__code__
        ):
            names = ("device_type", "dtype", "enabled", "cache_enabled")
            scope: Any = tuple(given[name] for name in names)
            self.seen.made[id(instance)] = instance, scope
        elif name == "__enter__" or (
            name == "__init__" and isinstance(instance, grad_mode.set_grad_enabled)
        ):
            if not any(each is instance for each in self.open):
                self.open.append(instance)
        elif name == "__exit__":
            self.open = [each for each in self.open if each is not instance]

    def _called_c(self, function: Any) -> None:
        try:
            is_asking = function in _ASKS_THE_STATE
        except TypeError:  # a method of something that has no hash
            is_asking = False
        name = getattr(function, "__qualname__", str(function))
        module = getattr(function, "__module__", None)
        full = f"{module}.{name}" if module and module != "builtins" else name
        if is_asking:
            self.asked = self.asked or f"torch.{function.__name__}()"
        if self.strict and not self.foreign:
            owner = getattr(function, "__self__", None)
            is_builtin = module == "builtins" or isinstance(owner, types.ModuleType)
            if is_builtin and (module or owner.__name__) == "builtins":  # type: ignore[union-attr]
                if name in _EFFECTS:
                    self.foreign = name
            elif full != "sys.exc_info" and (is_builtin or not isinstance(owner, _HARMLESS)):
                self.foreign = full


def _codes_of(names: Iterable[str]) -> Iterator[types.CodeType]:
    for name in names:
        found: Any = torch
        for part in name.split("."):
            found = getattr(found, part, None)
        code = getattr(inspect.unwrap(found), "__code__", None) if callable(found) else None
        if code is not None:
            yield code


# What tells which devices there are, of which a build for them asks the driver.
_ASKS_FOR_DEVICES = frozenset(
    _codes_of(
        f"{device}.{name}"
        for device in ("cuda", "xpu", "mps", "mtia", "backends.mps", "accelerator")
        for name in (
            "is_available", "device_count", "is_bf16_supported", "is_built", "current_accelerator",
            "get_device_capability",
        )
    )
)  # fmt: skip

# What has methods in C that do nothing to the world.
_HARMLESS = (
    str,
    int,
    float,
    tuple,
    dict,
    list,
    set,
    frozenset,
    type,
    types.GeneratorType,
    type(None),
)


def names_of(function: Any) -> dict[str, Any]:
    """What a function's names stand for: globals, and what it closes over."""
    names = dict(getattr(function, "__globals__", {}))
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
        with contextlib.suppress(ValueError):  # it is empty
            names[name] = cell.cell_contents
    return names


class _Mangled(ast.NodeTransformer):
    """An expression of a class body: ``self.__name`` and ``super()`` as Python compiles them."""

    def __init__(self, class_name: str, self_name: str) -> None:
        self.class_name, self.self_name = class_name.lstrip("_"), self_name

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr.startswith("__") and not node.attr.endswith("__") and self.class_name:
            node.attr = f"_{self.class_name}{node.attr}"
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            node.args = [
                ast.copy_location(ast.Name(name, ast.Load()), node)
                for name in ("__class__", self.self_name)
            ]
        return node


def code_of(expr: ast.expr, class_name: str, self_name: str, file: str) -> types.CodeType:
    """An expression, to be evaluated with the names of its function."""
    body = _Mangled(class_name, self_name).visit(expr)
    return compile(ast.fix_missing_locations(ast.Expression(body)), file, "eval")
