"""Whose a file of source is: PyTorch's, jit_amp's, another library's, or the user's own.

All that shows lines, copies objects or looks for the user's code asks here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

_Item = TypeVar("_Item")

PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
PYTORCH = os.path.dirname(torch.__file__) + os.sep
_PYTHON = os.path.dirname(os.__file__) + os.sep
_TYPED = ("<ipython", "<command-", "<python-input", "<stdin>", "<doctest")
"""Of what a person writes where no file is: a cell of IPython's or of Databricks', what is typed at
Python's prompt, a doctest."""
_INSTALLED = [f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages")]


def is_jit_amps(file: str) -> bool:
    """Whether a file is one of this package."""
    return file.startswith(PACKAGE)


def is_pytorchs(file: str) -> bool:
    """Whether a file is one of PyTorch's."""
    return file.startswith(PYTORCH)


def is_of_runtime(file: str) -> bool:
    """Whether a file is PyTorch's or Python's own: of the standard library, or of the interpreter
    (``<frozen runpy>``)."""
    is_pythons = file.startswith((_PYTHON, "<frozen ")) and not _is_in_packages(file)
    return is_pythons or is_pytorchs(file)


def _is_in_packages(file: str) -> bool:
    return any(folder in file for folder in _INSTALLED)


def is_installed(file: str) -> bool:
    """Whether a file came with Python or with a package: the user's own files did not."""
    return file.startswith((PYTORCH, PACKAGE, _PYTHON)) or _is_in_packages(file)


def is_users(file: str) -> bool:
    """Whether a file is the user's own: neither installed nor generated."""
    return not (is_installed(file) or is_generated(file))


def is_programs(file: str) -> bool:
    """Whether a file has code of the program: the user's own, or a library's that is not PyTorch,
    jit_amp or Python itself."""
    return not (is_of_runtime(file) or is_jit_amps(file) or is_generated(file))


def own_in(items: Sequence[_Item], file_of: Callable[[_Item], str]) -> _Item | None:
    """The last of a stack's items that is of the user's own file; of a library's where there is
    none, and None where all of them are PyTorch's, Python's or jit_amp's."""
    for whose in (is_users, is_programs):
        for item in reversed(items):
            if whose(file_of(item)):
                return item
    return None


def is_generated(file: str) -> bool:
    """Whether the name stands for code that no file has, as torch.fx makes it. What was typed, as
    into a notebook's cell, has such a name too, and is the user's."""
    return file.startswith("<") and not file.startswith(_TYPED)


def shown_name(file: str) -> str:
    """The file's name as a reader knows it: from its package on, or from the working directory."""
    for folder in _INSTALLED:
        _, is_inside, name = file.rpartition(folder)
        if is_inside:
            return name
    relative = os.path.relpath(file) if file else os.pardir
    return file if relative.startswith(os.pardir) else relative
