"""Texts of files and programs, as they may be shown: csrc/core/printable.h says why."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text in one line, with characters escaped that move a cursor or turn a direction."""
    return _escaped(text, False)


def printable_lines(text: str) -> str:
    """The same of several lines: their ends and tabs stay."""
    return _escaped(text, True)


def _escaped(text: str, lines: bool) -> str:
    plain = text.replace("\n", "").replace("\t", "") if lines else text
    if plain.isascii() and plain.isprintable():
        return text
    from jit_amp import _C  # imports torch, which some commands do without

    return str(_C.printable(text.encode("utf-8", "backslashreplace"), lines))  # surrogates too
