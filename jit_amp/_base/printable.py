"""Texts of files and programs, as they may be shown: csrc/core/printable.h says why."""

from __future__ import annotations

from jit_amp import _C


def printable(text: str) -> str:
    """The text in one line, with characters escaped that move a cursor or turn a direction."""
    return _escaped(text, False)


def printable_lines(text: str) -> str:
    """The same of several lines: their ends and tabs stay."""
    return _escaped(text, True)


def _escaped(text: str, lines: bool) -> str:
    if text.isascii() and text.isprintable():
        return text
    return str(_C.printable(text.encode("utf-8", "backslashreplace"), lines))  # surrogates too
