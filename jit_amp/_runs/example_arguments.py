"""The arguments that explain calls a program with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from jit_amp._base import arguments

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Given:
    """Arguments, and what one would say of them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    in_words: tuple[str, ...]


def called(obj: Any, method: str) -> Callable[..., Any]:
    """Returns what a run calls.

    Raises:
        TypeError: ``obj`` cannot be called.
        ValueError: it has no such method.
    """
    if isinstance(obj, type):
        raise TypeError(
            f"jit_amp.explain: {obj.__name__} is a class: give it a module, {obj.__name__}(...)"
        )
    if isinstance(obj, nn.Module):
        found = getattr(obj, method, None)
        if not callable(found):
            names = (name for name in dir(type(obj)) if not name.startswith("_"))
            own = [name for name in names if not hasattr(nn.Module, name) or name == "forward"]
            arguments.choice("method", method, own)
            raise ValueError(f"method: {method!r} of {type(obj).__name__} is no method")
        return found  # type: ignore[no-any-return]
    if not callable(obj):
        raise TypeError(f"jit_amp.explain takes a function or a module, not {arguments.shown(obj)}")
    return obj  # type: ignore[no-any-return]


def given(function: Callable[..., Any], examples: Any, is_module: bool) -> Given:
    """Returns the arguments of a call, as they were given.

    Raises:
        TypeError: they do not fit.
    """
    signature = _signature(function)
    if _is_loader(examples):
        args, kwargs = _of_batch(signature, next(iter(examples)), is_module)
        args, kwargs = (_on_device_of(function, each) for each in (args, kwargs))
    elif isinstance(examples, tuple):
        args, kwargs = examples, {}
    elif isinstance(examples, Mapping) and _is_by_name(signature, examples):
        args, kwargs = (), dict(examples)
    else:
        args, kwargs = (() if examples is None else (examples,)), {}
    words = [(None, each) for each in args] + list(kwargs.items())
    if signature is not None:
        words = list(_bound(signature, args, kwargs).items())
    return Given(args, kwargs, tuple(f"{n}: {in_words(v)}" if n else in_words(v) for n, v in words))


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _is_loader(examples: Any) -> bool:
    return isinstance(examples, torch.utils.data.DataLoader) or (
        hasattr(examples, "dataset") and isinstance(examples, Iterable)
    )


def _is_by_name(signature: inspect.Signature | None, examples: Mapping[Any, Any]) -> bool:
    """Whether a dictionary has arguments by name, and is not itself the one argument."""
    if signature is None or not all(isinstance(name, str) for name in examples):
        return signature is None
    try:
        signature.bind(**examples)
    except TypeError:
        try:
            signature.bind(examples)
        except TypeError:
            return True
        return bool(set(examples) & set(signature.parameters))
    return True


def _required(signature: inspect.Signature) -> list[str]:
    parameters = signature.parameters.values()
    return [p.name for p in parameters if p.kind in _POSITIONAL and p.default is p.empty]


def _of_batch(signature: inspect.Signature | None, batch: Any, is_module: bool) -> tuple[Any, Any]:
    """What a batch of a DataLoader's gives a call: all of it where one argument is required; else
    its parts. A module gets the first ones, as many as it requires: the others are labels."""
    required = _required(signature) if signature else []
    takes_batch = "batch" in required[:1] or (not is_module and len(required) == 1)
    if takes_batch:
        return (batch, *([0] if required[1:2] == ["batch_idx"] else [])), {}
    if isinstance(batch, Mapping):
        parameters = signature.parameters if signature else {}
        any_name = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        return (), {k: v for k, v in batch.items() if any_name or k in parameters}
    if isinstance(batch, (tuple, list)):
        count = max(len(required), 1) if is_module else len(batch)
        return tuple(batch[:count]), {}
    return (batch,), {}


def _on_device_of(function: Any, value: Any) -> Any:
    """A batch on the device of the module that is called."""
    owner = getattr(function, "__self__", function)
    first = next(owner.parameters(), None) if isinstance(owner, nn.Module) else None
    if first is None:
        return value
    if isinstance(value, Tensor):
        return value.to(first.device)
    if isinstance(value, dict):
        return {key: _on_device_of(function, each) for key, each in value.items()}
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return type(value)(_on_device_of(function, each) for each in value)
    return value


def _bound(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        required = _required(signature)[len(args) :]
        missing = [name for name in required if name not in kwargs]
        if missing and len(args) <= len(_required(signature)):
            raise TypeError(f"jit_amp.explain: example_inputs without `{missing[0]}`") from error
        text = f"jit_amp.explain: example_inputs do not fit {signature}: {error}"
        raise TypeError(text) from error


def in_words(value: Any) -> str:
    """A value as one would write it for ``--input``: ``float32[2, 8]``."""
    if isinstance(value, Tensor):
        sizes = ", ".join(map(str, value.shape)) if not value.is_nested else "nested"
        return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {in_words(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        shown = [in_words(each) for each in value[:4]]
        return "[" + ", ".join([*shown, *(["..."] if len(value) > 4 else [])]) + "]"
    return arguments.shown(value)
