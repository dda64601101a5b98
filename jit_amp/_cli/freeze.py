"""``jit-amp freeze``."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import torch
from torch import nn

import jit_amp
from jit_amp import _C
from jit_amp._base.json_records import as_json
from jit_amp._cli.mistakes import Mistaken, mistaken_if_refused
from jit_amp._cli.running import about_file, loaded, print_out, step, with_scope
from jit_amp._cli.saving import save_module
from jit_amp._cli.triton import write_repository
from jit_amp._explain.graph import weights_of
from jit_amp._explain.records import REDUCED
from jit_amp._freeze.freeze import in_dtype
from jit_amp._freeze.packed import emulates
from jit_amp._script.script import _scripted


def run_freeze(given: argparse.Namespace) -> int:
    if given.precision and given.autocast:
        raise Mistaken("--autocast and --precision: the precision has the scope")
    [model], inputs = loaded(given, given.model)
    if not isinstance(model, nn.Module):
        raise Mistaken(f"{given.model} is a function: write the name of a module to freeze")
    with step("freezing"), torch.no_grad(), mistaken_if_refused():
        scoped = with_scope(model, given.autocast, given.device)
        examples = inputs if given.input else None
        io_dtype = getattr(torch, given.io_dtype) if given.io_dtype else None
        frozen = jit_amp.freeze(
            scoped,
            example_inputs=examples,
            target=given.target,
            precision=given.precision,
            io_dtype=io_dtype,
        )
        if io_dtype:
            inputs = in_dtype(inputs, io_dtype)
    if not (given.autocast or given.precision or _has_scopes(model)):
        print(
            f"jit-amp: {given.model} has no autocast scope, so nothing is cast; --autocast bf16 "
            "puts one around it",
            file=sys.stderr,
        )
    saved = given.output / "1" / "model.pt" if given.triton else given.output
    with step("saving"):
        if given.triton:
            with mistaken_if_refused():
                write_repository(given.output.parent, given.output.name, frozen, inputs)
        else:
            save_module(frozen, saved, is_lite=given.lite)
    operators = _operators_of(frozen)
    size = Path(saved).stat().st_size
    text = about_file(given.output, size, operators)
    held = {weight.dtype for weight in weights_of(frozen, "forward")}
    for name in sorted(held.intersection(REDUCED)):
        if given.device == "cpu" and emulates(getattr(torch, name)):
            print(f"{name} is emulated on this processor: elsewhere it is faster", file=sys.stderr)
    if given.triton:
        text = f"{given.output}: a model of Triton's, with config.pbtxt and 1/model.pt"
    if given.json:
        text = as_json({"output": str(given.output), "bytes": size, "operators": operators})
    print_out(given, text)
    return 0


def _has_scopes(model: nn.Module) -> bool:
    return bool(_C.has_scopes(_scripted(model)._c))


def _operators_of(frozen: torch.jit.ScriptModule) -> list[str]:
    """The names of a file's operators; without overloads where the lite interpreter, for which
    PyTorch collects them, cannot run the file."""
    try:
        return list(torch.jit.export_opnames(frozen))  # type: ignore[no-untyped-call]
    except RuntimeError:
        kinds = re.findall(r"\b(\w+::\w+)[(\[]", str(frozen.inlined_graph))
        return sorted({kind for kind in kinds if not kind.startswith("prim::")})
