"""What a user wrote wrong in a command, told in one sentence."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path


class Mistaken(Exception):
    """A mistake in the command that the user wrote."""


def is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with characters that none has
        return False


def said(error: BaseException) -> str:
    """The first line of an error, with its class where the text alone may be a mere name."""
    if isinstance(error, UnicodeDecodeError):  # what PyTorch says of a file has its bytes in it
        return "what PyTorch says of it is no text"
    text = next(iter(str(error).strip().splitlines()), "")
    return text if text and type(error) is RuntimeError else f"{type(error).__name__}: {text}"


@contextlib.contextmanager
def mistaken_if_refused() -> Iterator[None]:
    """A TypeError or ValueError that jit_amp itself raises is about an argument, and the command
    has given it. What PyTorch or the model raises is not."""
    try:
        yield
    except (TypeError, ValueError) as error:
        from jit_amp._base import source_files  # imports torch

        places = traceback.extract_tb(error.__traceback__)
        if places and source_files.is_jit_amps(places[-1].filename):
            raise Mistaken(str(error)) from error
        raise
