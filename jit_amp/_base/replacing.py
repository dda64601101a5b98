"""Functions of PyTorch's that run otherwise for a while: the one place where they are replaced.

What stands in such a function's place asks, at each call, which of its hooks concern the thread
that calls: in all others, and when nobody holds it any more, it is PyTorch's own function. So any
number of traces, compilations, reports and precisions may replace the same function beside one
another, and end in any order (csrc/runtime/replaced.h).

``with`` a `Replacements`, and not a generator of Python's around it, where Ctrl-C may come: it is
entered and left in one step.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from jit_amp import _C
from jit_amp._base import source_files


class Hook(NamedTuple):
    """What runs instead of a function of PyTorch's, in the threads that it concerns.

    Attributes:
        owner: the module or class that has the function.
        name: the function's name there.
        run: called with what `concerns` has given, with what would run without the hook, and with
            the function's arguments.
        concerns: what it is to know of the thread that asks; nothing, None or False, where it does
            not concern that.
    """

    owner: Any
    name: str
    run: Callable[..., Any]
    concerns: Callable[[], Any]


class _Place:
    """A function of PyTorch's, and all that may run instead of it."""

    def __init__(self, owner: Any, name: str) -> None:
        self.hooks: list[Hook] = []
        original = getattr(owner, name)

        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            call = self.replaced.original
            frames = 1
            for hook in self.hooks if self.replaced.is_held else ():
                if concern := hook.concerns():
                    call = functools.partial(hook.run, concern, call)
                    frames += 1
            if "_frames_up" in kwargs:  # of the frame whose names are asked for
                kwargs["_frames_up"] += frames
            return call(*args, **kwargs)

        self.replaced = _C.Replaced(owner, name, function)


_places: dict[tuple[int, str], _Place] = {}


def places(hooks: Iterable[Hook]) -> list[_C.Replaced]:
    """What is to be held so that these hooks run in the threads that they concern."""
    replaced = []
    for hook in hooks:
        key = id(hook.owner), hook.name
        if key not in _places:
            _places[key] = _Place(hook.owner, hook.name)
        _places[key].hooks.append(hook)
        replaced.append(_places[key].replaced)
    return replaced


def functions(*hooks: Hook) -> _C.Replacements:
    """For ``with``: inside, these hooks run in the threads that they concern."""
    return _C.Replacements(places(hooks))


def caller() -> types.FrameType:
    """The frame that has called the function of PyTorch's that the caller runs instead of."""
    frame = sys._getframe(1)
    while frame.f_back and source_files.is_jit_amps(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def scope_of_caller() -> torch.autocast | None:
    """The object whose ``__enter__`` or ``__exit__`` has called such a function."""
    frame = caller()
    is_one = frame.f_code in (torch.autocast.__enter__.__code__, torch.autocast.__exit__.__code__)
    return frame.f_locals["self"] if is_one else None


def values(owner: Any, **named: Any) -> _C.Replacements:
    """For ``with``: inside, a dictionary or a module has these values.

    A thread's own: ``values(vars(local), name=value)``.
    """
    return _C.Replacements([_C.Replaced(owner, name, value) for name, value in named.items()])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_C.forget_other_threads)
