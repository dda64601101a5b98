"""Whose a file of source is: PyTorch's, jit_amp's, another library's, or the user's own.

All that shows lines, copies objects or looks for the user's code asks here.
"""

from __future__ import annotations

import os

import torch

PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
PYTORCH = os.path.dirname(torch.__file__) + os.sep
_PYTHON = os.path.dirname(os.__file__) + os.sep
_INSTALLED = [f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages")]


def is_jit_amps(file: str) -> bool:
    """Whether a file is one of this package."""
    return file.startswith(PACKAGE)


def is_pytorchs(file: str) -> bool:
    """Whether a file is one of PyTorch's."""
    return file.startswith(PYTORCH)


def is_installed(file: str) -> bool:
    """Whether a file came with Python or with a package: the user's own files did not."""
    return file.startswith((PYTORCH, PACKAGE, _PYTHON)) or any(each in file for each in _INSTALLED)


def is_users(file: str) -> bool:
    """Whether a file is the user's own: neither installed nor generated."""
    return not (is_installed(file) or is_generated(file))


# Of what a person writes where no file is: a cell of IPython's or of Databricks', what is typed at
# Python's prompt, a doctest.
_TYPED = ("<ipython", "<command-", "<python-input-", "<stdin>", "<doctest")


def is_generated(file: str) -> bool:
    """Whether the name stands for code that no file has and nobody wrote, as torch.fx makes it."""
    return file.startswith("<") and not file.startswith(_TYPED)


def shown_name(file: str) -> str:
    """The file's name as a reader knows it: from its package on, or from the working directory."""
    for folder in _INSTALLED:
        _, is_inside, name = file.rpartition(folder)
        if is_inside:
            return name
    relative = os.path.relpath(file)
    return file if relative.startswith(os.pardir) else relative
