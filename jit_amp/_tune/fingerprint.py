"""Short texts that differ where weights, inputs, a model or a metric do: for `tune`'s `resume`.

Objects whose state moves by itself would differ from call to call: of what a metric's closure
holds, only what cannot be changed counts.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import hashlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from jit_amp._precision import in_float32

_PLAIN = (int, float, complex, str, bytes, torch.dtype, torch.device)


def of_value(value: Any) -> str:
    if not isinstance(value, Tensor):
        return _hash(_plain(value, ()))
    flat = value.detach().flatten().double().cpu()
    weighted = (flat * torch.arange(1, flat.numel() + 1, dtype=torch.float64)).sum()
    return f"{value.dtype} {list(value.shape)} {float(flat.sum()):.17g} {float(weighted):.17g}"


def of_model(model: nn.Module) -> str:
    """Of the attributes of its modules, besides weights, and of the code of their forwards."""
    made = []
    for name, module in model.named_modules():
        cls = type(module)
        own = {k: v for k, v in vars(module).items() if k[0] != "_" and k != "training"}
        is_torch = cls.__module__.partition(".")[0] == "torch"
        code = "" if is_torch else of_code(cls.forward)
        made.append([name, cls.__qualname__, code, _plain(own, ())])
    return _hash(made)


@contextlib.contextmanager
def codes_noted(noted: dict[str, list[str]], with_lines: bool) -> Iterator[None]:
    """Notes the code of the functions that this thread calls, and the numbers and texts of their
    modules that it reads, by file and name; PyTorch's aside."""
    before, seen = sys.getprofile(), dict[types.CodeType, dict[str, Any]]()

    def note(frame: types.FrameType, event: Any, argument: Any) -> None:
        if event == "call" and in_float32.is_users(frame):
            seen.setdefault(frame.f_code, frame.f_globals)
        if before:
            before(frame, event, argument)

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)
    counters = {
        (id(names), each.argval)
        for code, names in seen.items()
        for each in dis.get_instructions(code)
        if each.opname == "STORE_GLOBAL"
    }
    for code, names in seen.items():
        constants = {
            name: names[name]
            for name in code.co_names
            if isinstance(names.get(name), (*_PLAIN, tuple)) and (id(names), name) not in counters
        }
        name = getattr(code, "co_qualname", code.co_name)
        place = f"{in_float32.shown_file(code.co_filename)}:{name}"
        at = code.co_firstlineno if with_lines else ""
        own = [at, _of_code_object(code), _plain(constants, ())]
        noted[place] = sorted({*noted.get(place, ()), _hash(own)})


def of_code(function: Any) -> str:
    """Of what can be called: its code, its defaults, and constants of its closure."""
    return _hash(_code(function))


def _code(function: Any) -> Any:
    if isinstance(function, functools.partial):
        return [_code(function.func), _plain(function.args, ()), _plain(function.keywords, ())]
    if isinstance(function, types.MethodType):
        return [_code(function.__func__), _plain(function.__self__, ())]
    if isinstance(function, types.FunctionType):
        cells = [_constant(cell) for cell in function.__closure__ or ()]
        defaults = (function.__defaults__, function.__kwdefaults__)
        return [_of_code_object(function.__code__), _plain(defaults, ()), cells]
    if isinstance(function, nn.Module):
        return of_model(function)
    if isinstance(function, (type, types.BuiltinFunctionType)):
        return function.__qualname__
    call = vars(type(function)).get("__call__")
    is_function = isinstance(call, types.FunctionType)
    return [_of_code_object(call.__code__) if is_function else "", _plain(function, ())]


def _constant(cell: types.CellType) -> Any:
    try:
        value = cell.cell_contents
    except ValueError:  # it is empty
        return ""
    is_fixed = value is None or isinstance(value, (*_PLAIN, tuple, Tensor))
    return _plain(value, ()) if is_fixed else type(value).__qualname__


def _of_code_object(code: types.CodeType) -> Any:
    constants = [
        _of_code_object(each) if isinstance(each, types.CodeType) else _plain(each, ())
        for each in code.co_consts
    ]
    return [code.co_code.hex(), list(code.co_names), constants]


def _plain(value: Any, inside: tuple[int, ...]) -> Any:
    """What a value holds, without addresses; `inside` are the objects that it is in."""
    if value is None or value is Ellipsis or isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Tensor):
        return of_value(value)
    if isinstance(value, torch.Generator):
        return of_value(value.get_state())
    if id(value) in inside or isinstance(value, (nn.Module, type, types.ModuleType)):
        return type(value).__qualname__
    inside = (*inside, id(value))
    if isinstance(value, dict):
        return [[_plain(k, inside), _plain(each, inside)] for k, each in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted(str(_plain(each, inside)) for each in value)
    if isinstance(value, (list, tuple)):
        return [_plain(each, inside) for each in value]
    if isinstance(value, types.FunctionType):
        return _of_code_object(value.__code__)
    if hasattr(value, "tobytes"):  # NumPy's
        return hashlib.sha256(value.tobytes()).hexdigest()
    own = getattr(value, "__dict__", {})
    return [type(value).__qualname__, _plain(dict(own), inside)]


def _hash(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
