"""Core ML: conversion, which runs on Linux too. The program's dtypes are compared with the
artefact's; running it takes a Mac.

From torch.export: the front end for TorchScript cannot compare dtypes, as the check of the inputs
does, and has no `len` or `in`, which scripted models have besides.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import coremltools
import torch
from engines.common import Refused, exported
from torch import Tensor

LAYERS = {"linear": "linear", "conv2d": "conv", "layer_norm": "layer_norm"}
NAMES = {torch.float16: "fp16", torch.float32: "fp32"}


def convert(artefact: Any, x: Tensor, work: Path) -> str:
    if work.name.endswith("-bfloat16"):
        raise Refused("Core ML has no bfloat16")
    logging.getLogger("coremltools").setLevel(logging.ERROR)
    program = exported(work)
    expected = Counter(
        (LAYERS[kind], NAMES[node.meta["val"].dtype])
        for node in program.graph.nodes
        if (kind := str(node.target).split(".")[1] if "." in str(node.target) else "") in LAYERS
    )
    recurrent = any("lstm" in str(node.target) for node in program.graph.nodes)
    model = coremltools.convert(
        program.run_decompositions() if recurrent else program.run_decompositions({}),
        convert_to="mlprogram",
        minimum_deployment_target=coremltools.target.iOS17,
        compute_precision=coremltools.precision.FLOAT32,  # as the program has it
        skip_model_load=True,
    )
    model.save(str(work / "model.mlpackage"))
    functions = model._mil_program.functions.values()
    operators = [op for function in functions for op in function.operations]
    found = Counter(
        (op.op_type, op.outputs[0].dtype.__name__)
        for op in operators
        if op.op_type in LAYERS.values()
    )
    if not recurrent and found != expected:
        raise AssertionError(f"{dict(found)}, and the artefact has {dict(expected)}")
    result = model._mil_program.functions["main"].outputs[0].dtype.__name__
    if result != "fp16":
        raise AssertionError(f"the result is {result}")
    layers = ", ".join(f"{n} {kind} {dtype}" for (kind, dtype), n in sorted(found.items()))
    return f"converts: {layers}"


ROUTES = {"": convert}
