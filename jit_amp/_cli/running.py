"""What the commands that run a model share: loading, scopes, progress, and what they print."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import jit_amp
from jit_amp._base import whole_files
from jit_amp._base.printable import printable_lines
from jit_amp._cli.inputs import check_call, inputs_of
from jit_amp._cli.mistakes import Mistaken, said
from jit_amp._cli.models import model_of

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def check_command(given: argparse.Namespace) -> None:
    """What is wrong whatever the model is, before anything is loaded."""
    if device := getattr(given, "device", None):
        try:
            torch.empty(1, device=device)
        except Exception as error:  # of a backend that is not there: of any class
            raise Mistaken(f"--device {device}: {said(error)}") from error
        if given.autocast and not torch.amp.is_autocast_available(torch.device(device).type):
            raise Mistaken(f"--autocast: there is no autocast for {device!r}")
    for option in ("output", "html", "resume"):
        path: Path | None = getattr(given, option, None)
        is_folder = getattr(given, "triton", False)
        if path and not is_folder and (path.is_dir() or not path.parent.is_dir()):
            why = "is a folder" if path.is_dir() else f"there is no folder {str(path.parent)!r}"
            raise Mistaken(f"--{option} {path}: {why}; write the path of a file to be written")
        if path and not is_folder and not whole_files.may_be_written(path):
            raise Mistaken(f"--{option} {path}: it may not be written there")
    if getattr(given, "triton", False) and not given.input:
        raise Mistaken("--triton needs --input: the configuration has its dtypes")


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Says what is being done, and how long it took where that is more than a second."""
    shows = sys.stderr.isatty()
    if shows:
        print(f"{text} ...", end="\r", file=sys.stderr, flush=True)
    begin = time.monotonic()
    yield
    took = time.monotonic() - begin
    if shows or took > 1:
        print(f"{text}: {took:.1f} s".ljust(60), file=sys.stderr, flush=True)


def on_device(model: Any, device: str) -> Any:
    return model.to(device).eval() if isinstance(model, nn.Module) else model


def loaded(given: argparse.Namespace, *names: str) -> tuple[list[Any], tuple[Any, ...]]:
    """The models, in eval mode and on their device, and the arguments."""
    with step("loading"):
        models = [on_device(model_of(name), given.device) for name in names]
        inputs = inputs_of(given.input, given.device)
        if given.input or given.needs_inputs:
            for name, model in zip(names, models, strict=True):
                check_call(name, model, getattr(given, "method", "forward"), inputs)
        return models, inputs


def with_scope(model: Any, autocast: str | None, device: str) -> Any:
    if autocast is None:
        return model
    return jit_amp.script(model, autocast=torch.autocast(device, dtype=DTYPES[autocast]))


def print_out(given: argparse.Namespace, text: object, *, is_printable: bool = False) -> None:
    """Prints a text to standard output.

    Args:
        is_printable: whether nothing of it has to be escaped, as of a report, which has colors.

    Raises:
        OSError: it cannot be written there.
    """
    try:
        print(text if is_printable else printable_lines(str(text)), file=given.out, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        why = f"it could not be written ({error.strerror})"
        raise OSError(error.errno, why, "standard output") from error


def about_file(path: Path, size: int, operators: Sequence[str]) -> str:
    """Returns a line about a file."""
    in_words = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"
    return f"{path}: {in_words}, {len(operators)} kind{'s' * (len(operators) != 1)} of operators"
