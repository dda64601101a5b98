"""Commands that run no model: ``lower``, ``policy`` and ``env``."""

from __future__ import annotations

import argparse
from typing import get_args

import jit_amp
from jit_amp import policy
from jit_amp._base.json_records import as_json
from jit_amp._cli.environment import environment
from jit_amp._cli.mistakes import mistaken_if_refused
from jit_amp._cli.models import model_of
from jit_amp._cli.running import on_device, print_out


def run_lower(given: argparse.Namespace) -> int:
    model = on_device(model_of(given.model), "cpu")
    with mistaken_if_refused():
        graph = jit_amp.lowered_graph(model, given.method, ambient=tuple(given.ambient))
    print_out(given, as_json({"graph": str(graph)}) if given.json else graph)
    return 0


def run_policy(given: argparse.Namespace) -> int:
    if not given.json:
        only = [] if given.operator is None else [given.operator]
        return policy.main([*only, *(["--reach"] if given.reach else [])])
    if given.operator is not None:
        with mistaken_if_refused():
            print_out(given, as_json(policy.known_of(given.operator)))
        return 0
    told = policy.reach if given.reach else policy.table
    print_out(given, as_json({device: told(device) for device in get_args(policy.DeviceType)}))
    return 0


def run_env(given: argparse.Namespace) -> int:
    found = environment()
    if given.json:
        print_out(given, as_json(found))
        return 0
    wide = max(map(len, found))
    print_out(given, "\n".join(f"{name:{wide}}  {value}" for name, value in found.items()))
    return 0
