"""Calls of a model for ``jit-amp verify``: what they give, and what they write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from jit_amp._base import model_state
from jit_amp._base.trees import leaves
from jit_amp._runs.copies import fresh


@dataclass
class StateAfter:
    """Arguments and buffers, by path. ``buffers`` is None where nobody can look at them."""

    arguments: dict[str, Any]
    buffers: dict[str, Any] | None


@dataclass
class Call:
    """What a call gives, by path, and what there is after it."""

    outputs: list[tuple[str, Any]]
    after: StateAfter


def state_of(module: Any, arguments: Any) -> StateAfter:
    buffers = None
    if isinstance(module, nn.Module):
        buffers = {name: each.detach().clone() for name, each in module.named_buffers()}
    return StateAfter(dict(leaves(arguments, "argument")), buffers)


def _kept(output: Any) -> Any:
    """A model may give a buffer, which its next call writes to."""
    return output.detach().clone() if isinstance(output, Tensor) else output


def calls_of(
    run: Callable[..., Any],
    module: Any,
    inputs: Any,
    around: list[contextlib.AbstractContextManager[Any]],
) -> list[Call]:
    """Calls one after another, each with copies of the inputs and within one of the contexts.

    Args:
        run: what is called.
        module: what has the buffers. If it is a module, it is afterwards what it was.
    """
    calls = []
    with _restored(module):
        for context in around:
            arguments = fresh(inputs)
            with context:
                outputs = [(path, _kept(each)) for path, each in leaves(run(*arguments), "output")]
            calls.append(Call(outputs, state_of(module, arguments)))
    return calls


@contextlib.contextmanager
def _restored(module: Any) -> Iterator[None]:
    if not isinstance(module, nn.Module):
        yield
    elif isinstance(module, torch.jit.ScriptModule):
        buffers = [(each, each.detach().clone()) for each in module.buffers()]
        try:
            yield
        finally:
            for buffer, was in buffers:
                buffer.copy_(was)
    else:
        with model_state.kept(module):
            yield


def written(
    before: StateAfter, first: StateAfter, second: StateAfter, is_same: Callable[[Any, Any], bool]
) -> Iterator[tuple[str, Any, Any]]:
    """What one of two calls has written to: its path, and what it is after each; ``missing`` where
    it is not there."""
    kinds = (
        (before.arguments, first.arguments, second.arguments, "{}"),
        (before.buffers, first.buffers, second.buffers, "buffer {}"),
    )
    for was, of_first, of_second, name in kinds:
        if was is None or of_first is None or of_second is None:
            continue
        for path in was | of_first | of_second:
            a, b = (each.get(path, missing) for each in (of_first, of_second))
            own = was.get(path, missing)
            changed = a is not missing and not is_same(own, a)
            changed |= b is not missing and own is not missing and not is_same(own, b)
            if changed:
                yield name.format(path), a, b


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


missing = _Missing()
