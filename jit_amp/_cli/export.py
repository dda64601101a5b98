"""``jit-amp export``."""

from __future__ import annotations

import argparse

import torch

import jit_amp
from jit_amp._base.json_records import as_json
from jit_amp._cli.mistakes import mistaken_if_refused
from jit_amp._cli.running import about_file, loaded, print_out, step, with_scope
from jit_amp._cli.saving import save_program


def run_export(given: argparse.Namespace) -> int:
    [model], inputs = loaded(given, given.model)
    with step("exporting"), torch.no_grad(), mistaken_if_refused():
        scoped = with_scope(model, given.autocast, given.device)
        program = jit_amp.export(scoped, inputs, strict=given.strict)
    with step("saving"):
        save_program(program, given.output)
    operators = sorted({str(node.target) for node in program.graph.nodes if _is_operator(node)})
    size = given.output.stat().st_size
    text = about_file(given.output, size, operators)
    if given.json:
        text = as_json({"output": str(given.output), "bytes": size, "operators": operators})
    print_out(given, text)
    return 0


def _is_operator(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
