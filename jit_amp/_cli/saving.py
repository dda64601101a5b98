"""Frozen modules and exported programs as files, loaded once before they take their names."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import torch
from torch.export import ExportedProgram

from jit_amp import _C
from jit_amp._base import whole_files
from jit_amp._cli.mistakes import said


def save_module(module: torch.jit.ScriptModule, path: Path, *, is_lite: bool = False) -> None:
    """Writes what ``torch.jit.save`` writes; for the lite interpreter, what its saving does.

    Raises:
        OSError: the file cannot be written.
        RuntimeError: the module cannot be saved, or what was written cannot be loaded.
    """
    with whole_files.written(path) as (part,):
        put_module(module, part, is_lite=is_lite)


def put_module(
    module: torch.jit.ScriptModule, part: whole_files.Part, *, is_lite: bool = False
) -> None:
    """The same, for a file that is one of several."""
    _C.save_module(module._c, part.write, is_lite=is_lite)
    part.flush()
    if part.path:
        with _loading("a frozen module"):
            if is_lite:
                importlib.import_module("torch.jit.mobile")._load_for_lite_interpreter(part.path)
            else:
                torch.jit.load(part.path, "cpu")  # type: ignore[no-untyped-call]


def save_program(program: ExportedProgram, path: Path) -> None:
    """Writes what ``torch.export.save`` writes.

    Raises:
        OSError: the file cannot be written.
        RuntimeError: the program cannot be saved, or what was written cannot be loaded.
    """
    with whole_files.written(path) as (part,):
        archive = whole_files.Archive(part)
        try:
            torch.export.save(program, cast(IO[bytes], archive))
        finally:
            archive.check()
        part.flush()
        if part.path:
            with _loading("an exported program"), open(part.path, "rb") as file:
                torch.export.load(file)


@contextlib.contextmanager
def _loading(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # of any class, by PyTorch
        raise RuntimeError(
            f"PyTorch writes {what} that it cannot load again, so no file was written: "
            f"{said(error)}"
        ) from error
