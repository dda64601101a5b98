"""Interrupts, as Ctrl-C makes them: at each line of jit_amp's that a program reaches, once."""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import jit_amp

PACKAGE = str(Path(jit_amp.__file__).parent) + os.sep

Line = tuple[str, int]  # file and number


class Interrupted(BaseException):
    """As Ctrl-C raises it: between any two lines."""


def lines_of(program: Callable[[], Any]) -> list[Line]:
    """The distinct lines of jit_amp's that a program reaches, in the order in which it does."""
    with _traced(None) as lines:
        program()
    return list(lines)


def is_interrupted(program: Callable[[], Any], at: Line) -> bool:
    """Runs a program, with an interrupt where it first reaches a line; whether it came, and went
    on to the caller."""
    with contextlib.suppress(Interrupted):
        with _traced(at):
            program()
        return False
    return True


@contextlib.contextmanager
def _traced(at: Line | None) -> Iterator[dict[Line, None]]:
    lines: dict[Line, None] = {}

    def trace(frame: types.FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return None
        line = code.co_filename, frame.f_lineno
        if event != "line" or line in lines or _is_in_autocast(frame):
            return trace
        lines[line] = None
        if line == at:
            sys.settrace(None)
            raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def _is_in_autocast(frame: types.FrameType | None) -> bool:
    """Whether torch.autocast is being entered or left, which an interrupt breaks without us too."""
    while frame is not None:
        if frame.f_code in (torch.autocast.__enter__.__code__, torch.autocast.__exit__.__code__):
            return True
        frame = frame.f_back
    return False
