"""The arguments that ``--input`` stands for, and whether the model takes them."""

from __future__ import annotations

import inspect
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from jit_amp import _C
from jit_amp._base import arguments as arguments
from jit_amp._cli.mistakes import Mistaken, is_file, mistaken_if_refused, said

_TENSOR = re.compile(r"(\w+)\[([\d\s,]*)\]")
_DEPTH, _VALUES = 64, 1_000_000
_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, set, frozenset)
_TENSORS = (Tensor, "Tensor", "torch.Tensor")


def inputs_of(texts: Sequence[str], device: str, seed: int = 0) -> tuple[Any, ...]:
    """Returns the arguments that ``--input`` stands for."""
    generator = torch.Generator().manual_seed(seed)

    def made(value: Any) -> Any:
        if isinstance(value, str) and (tensor := _TENSOR.fullmatch(value.strip())):
            return _random(value, tensor[1], tensor[2], generator, device)
        if isinstance(value, list):
            return [made(each) for each in value]
        if isinstance(value, dict):
            return {key: made(each) for key, each in value.items()}
        return value

    values: list[Any] = []
    for text in texts:
        if _TENSOR.fullmatch(text.strip()):
            values.append(made(text))
            continue
        try:
            value = made(json.loads(text))
        except RecursionError as error:
            raise Mistaken(f"--input {text:.40}...: it is nested too deeply") from error
        except ValueError as error:  # JSONDecodeError, and of numbers of thousands of digits
            if not is_file(text):
                raise Mistaken(
                    f"--input {text!r} is no tensor such as float32[2,3], no JSON and no file"
                ) from error
            loaded = _loaded_input(text, device)
            values += loaded if isinstance(loaded, tuple) else [loaded]
        else:
            values.append(value)
    return tuple(values)


def _loaded_input(path: str, device: str) -> Any:
    try:
        loaded = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # of unpickling: of any class
        raise Mistaken(
            f"--input {path}: write a file that torch.save made of tensors and plain values "
            f"({said(error)})"
        ) from error
    _check_values(path, loaded)
    return loaded


def _check_values(path: str, loaded: Any) -> None:
    """Whether what a file holds can be arguments."""
    found: list[tuple[str, Any, int]] = [("", loaded, 0)]
    for count in itertools.count():
        if not found:
            return
        place, value, depth = found.pop()
        at = f"--input {path}: {place or 'what it holds'}"
        if depth > _DEPTH or count > _VALUES:
            raise Mistaken(f"--input {path}: {place[:40]}... is nested too deeply, or in itself")
        if isinstance(value, Tensor):
            if value.is_meta:
                raise Mistaken(f"{at} is a tensor without values, of the device `meta`")
        elif isinstance(value, (list, tuple)):
            found += [(f"{place}[{i}]", each, depth + 1) for i, each in enumerate(value)]
        elif isinstance(value, dict):
            found += [(f"{place}[{key!r:.40}]", each, depth + 1) for key, each in value.items()]
        elif value is not None and not isinstance(value, _PLAIN):
            raise Mistaken(
                f"{at} is {arguments.shown(value)}: write a file that torch.save made of tensors "
                "and plain values"
            )


def _random(text: str, name: str, sizes: str, generator: torch.Generator, device: str) -> Tensor:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise Mistaken(f"--input: {name!r} is no dtype of PyTorch's")
    try:
        shape = [int(size) for size in sizes.split(",") if size.strip()]
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(shape, generator=generator).to(dtype).to(device)
        return torch.randint(0, 2, shape, generator=generator).to(dtype).to(device)
    except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise Mistaken(f"--input {text}: no such tensor can be made ({said(error)})") from error


def check_call(name: str, model: Any, method: str, inputs: Sequence[Any]) -> None:
    """Raises ``Mistaken`` if the model does not take so many arguments."""
    called = getattr(model, method, None) if isinstance(model, nn.Module) else model
    if not callable(called):
        raise Mistaken(f"--method: {name} has no method {method!r}")
    if isinstance(model, torch.jit.ScriptFunction):
        return
    if isinstance(model, torch.jit.ScriptModule):
        if method == "forward":
            with mistaken_if_refused():
                _C.check_examples(model._c, [tuple(inputs)])
        return
    try:
        bound = inspect.signature(called).bind(*inputs)
        for argument, value in bound.arguments.items():
            wanted = bound.signature.parameters[argument].annotation
            if wanted in _TENSORS and not isinstance(value, Tensor):
                raise Mistaken(
                    f"{name} takes a Tensor as `{argument}`, not {arguments.shown(value)}: write "
                    "--input 'float32[2,3]', with its dtype and sizes"
                )
    except TypeError as error:
        raise Mistaken(
            f"{name} takes {inspect.signature(called)}, one --input for each ({error})"
        ) from error
    except ValueError:  # has no signature
        pass
