"""``jit-amp tune``."""

from __future__ import annotations

import argparse

import torch
from torch import nn

import jit_amp
from jit_amp._base import whole_files
from jit_amp._cli.inputs import inputs_of
from jit_amp._cli.mistakes import Mistaken, mistaken_if_refused
from jit_amp._cli.models import data_of, model_of, named
from jit_amp._cli.running import DTYPES, print_out, step


def run_tune(given: argparse.Namespace) -> int:
    if bool(given.data) == bool(given.input):
        raise Mistaken("tune needs either --data or --input")
    with step("loading"):
        model = model_of(given.model)
        if not isinstance(model, nn.Module):
            raise Mistaken(f"{given.model} is a function: write the name of a module to tune")
        model = model.to(given.device)
        model = model if given.train else model.eval()
        data = data_of(given.data) if given.data else inputs_of(given.input, given.device)
        metric = named(*given.metric.rsplit(":", 1)) if given.metric else None
    with mistaken_if_refused():
        result = jit_amp.tune(
            model,
            data,
            dtype=DTYPES.get(given.dtype) or getattr(torch, given.dtype),
            device_type=torch.device(given.device).type,
            metric=metric,
            tolerance=given.tolerance,
            units=given.units,
            budget=given.budget,
            seed=given.seed,
            resume=given.resume,
        )
    if given.output:
        whole_files.write_text(given.output, result.to_json() + "\n")
    if given.html:
        result.to_html(given.html)
    text = result.to_code(model) if given.code else result
    print_out(given, result.to_json() if given.json else text)
    return 0
