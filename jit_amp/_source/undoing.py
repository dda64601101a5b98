"""What evaluating an expression has changed in the program: put back, or told."""

from __future__ import annotations

import contextlib
import pickle
import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from jit_amp import _C
from jit_amp._source.failed import Failed

_MOST_MEMBERS = 1000  # of a list or dictionary that is compared before and after


@contextlib.contextmanager
def undone(text: str, owner: Any, names: Mapping[str, Any]) -> Iterator[Callable[[Any], str]]:
    """Puts back what changes inside.

    Yields:
        What tells the first change until then, but for those to the attributes of one object.

    Raises:
        Failed: something has changed.
    """
    containers = list(_containers(owner, names))
    contents = [_contents(container) for _, container in containers]
    tensors = [*owner.named_parameters(), *owner.named_buffers()] if _is_module(owner) else []
    versions = [_version(tensor) for _, tensor in tensors]
    numpy = sys.modules.get("numpy")
    pythons, torchs = random.getstate(), torch.random.get_rng_state()
    numpys = numpy.random.get_state() if numpy else None
    numpys_before = pickle.dumps(numpys)

    def changed(besides: Any = None) -> str:
        own = getattr(besides, "__dict__", None)
        for (label, container), before in zip(containers, contents, strict=True):
            if container is not own and not _is_same(_contents(container), before):
                return f"`{_named_change(label, container, before)}`"
        for (name, tensor), version in zip(tensors, versions, strict=True):
            if _version(tensor) != version:
                return f"`self.{name}`"
        if random.getstate() != pythons or not torch.equal(torch.random.get_rng_state(), torchs):
            return "the random state"
        if numpy and pickle.dumps(numpy.random.get_state()) != numpys_before:
            return "NumPy's random state"
        return ""

    found: list[str] = []

    def put_back() -> None:
        change = changed()
        if not change:
            return
        found.append(change)
        for (_, container), before in zip(containers, contents, strict=True):
            if not _is_same(_contents(container), before):
                _put_back(container, before)
        random.setstate(pythons)
        torch.random.set_rng_state(torchs)
        if numpy:
            numpy.random.set_state(numpys)

    with _C.AtExit([put_back]):
        yield changed
    if found:
        raise Failed(124, text, found[0])


def _version(tensor: torch.Tensor) -> int:
    """Tells whether a tensor was written to, if it is one that counts it."""
    return -1 if tensor.is_inference() else tensor._version


def _is_module(value: Any) -> bool:
    return isinstance(value, nn.Module) and "_modules" in vars(value)


def _containers(owner: Any, names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a program may write to, one step deep: attributes of modules, globals, and what these
    hold; each with how the names of its members begin."""
    if _is_module(owner):
        for path, module in owner.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue  # Python's code of a scope does not reach into it
            label = f"self.{path}." if path else "self."
            for part in ("_parameters", "_buffers", "_modules"):
                yield label, vars(module)[part]
            yield from _with_members(label, vars(module))
    if isinstance(names, dict):
        yield from _with_members("", names)


def _with_members(label: str, members: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield label, members
    for name, value in list(members.items()):
        if isinstance(value, (dict, list, set)) and not name.startswith("__"):
            if type(value) in (dict, list, set) and len(value) < _MOST_MEMBERS:
                yield f"{label}{name}" + ("[" if isinstance(value, dict) else ""), value
        elif _is_plain_object(value):
            yield f"{label}{name}.", vars(value)


def _is_plain_object(value: Any) -> bool:
    others = (type, types.ModuleType, types.FunctionType, nn.Module, torch.Tensor)
    return isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, others)


def _contents(container: Any) -> Any:
    return dict(container) if isinstance(container, dict) else list(container)


def _is_same(now: Any, before: Any) -> bool:
    if isinstance(now, dict):
        return now.keys() == before.keys() and all(now[key] is before[key] for key in before)
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))


def _named_change(label: str, container: Any, before: Any) -> str:
    """Returns what has changed, as the program names it."""
    if not isinstance(container, dict):
        return label
    keys = (
        key
        for key in {**before, **container}
        if key not in before or key not in container or container[key] is not before[key]
    )
    key = next(keys)
    return f"{label}{key!r}]" if label.endswith("[") else f"{label}{key}"


def _put_back(container: Any, before: Any) -> None:
    if isinstance(container, dict):
        for key in [key for key in container if key not in before]:
            del container[key]
        container.update(before)
    else:
        container.clear()
        (container.update if isinstance(container, set) else container.extend)(before)
