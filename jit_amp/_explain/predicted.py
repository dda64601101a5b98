"""What would run in which precision on a machine that has the device of a scope.

``torch.autocast("cuda")`` is off where there is no CUDA. Its lists are known all the same: so a
report says what it would do, by the operators that ran here, and by what each gave to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from jit_amp import _C
from jit_amp._explain.graph import dtype_name
from jit_amp._explain.records import FLOATING, REDUCED, Elsewhere

_CONVERSIONS = ("aten::to.dtype", "aten::to.other", "aten::type_as")
"""Whose results have the dtype that the program names."""


def predicted(all_seen: Sequence[dict[str, Any]]) -> list[Elsewhere | None]:
    """For each operator that was seen, what it would do there, where that differs or may."""
    given: list[dict[str, str]] = []  # by operator: the dtypes of results here, and there
    found: list[Elsewhere | None] = []
    last = ""
    for seen in all_seen:
        operands = _operands(seen, given)
        device, dtype = _asked_for(seen)
        policy = _policy(seen, device) if device else ""
        there = _result(seen, operands, policy, dtype)
        results = {dtype_name(each) for each in seen["results"]} & set(FLOATING)
        given.append(dict.fromkeys(results, there) if there else {})
        last = device or last
        differs = any(here != there for here, there in operands)
        computed_in = _computed_in(operands, policy, dtype)
        found.append(Elsewhere(last, policy, computed_in) if device or differs else None)
    return found


def _asked_for(seen: dict[str, Any]) -> tuple[str, str]:
    """The device that a scope speaks of and this machine has not, and the scope's dtype."""
    asked = dict(seen.get("missing", {}))
    for device, (enabled, dtype, _) in seen["states"].items():
        if enabled and device != "cpu" and device not in seen["devices"] and not _is_here(device):
            asked[device] = dtype or torch.get_autocast_dtype(device)
    return next(((device, dtype_name(dtype)) for device, dtype in asked.items()), ("", ""))


def _is_here(device: str) -> bool:
    try:
        return bool(torch.get_device_module(device).is_available())
    except (RuntimeError, AttributeError):
        return False


def _policy(seen: dict[str, Any], device: str) -> str:
    if seen["is_call"]:
        return "opaque"
    known = seen["policies"].get(device)
    return known or _C.policy_of_operator(seen["name"], device) or "opaque"


def _operands(seen: dict[str, Any], given: Sequence[dict[str, str]]) -> list[tuple[str, str]]:
    """The floating-point dtypes that decide, here and there."""
    dtypes = [dtype_name(each) for each in seen["operands"]]
    all_ = list(zip(dtypes, seen["makers"], seen["taken"], strict=False))
    all_ = [each for each in all_ if each[0] in FLOATING]
    if any(shape for _, _, shape in all_):
        all_ = [each for each in all_ if each[2]]
    return [
        (
            dtype,
            given[maker].get(dtype, dtype) if maker is not None and maker < len(given) else dtype,
        )
        for dtype, maker, _ in all_
    ]


def _widest(dtypes: Sequence[str]) -> str:
    return "float32" if set(dtypes) == set(REDUCED) else max(dtypes, key=FLOATING.index, default="")


def _result(seen: dict[str, Any], operands: list[tuple[str, str]], policy: str, dtype: str) -> str:
    """The dtype of its floating-point results there, if it has any."""
    here = [dtype_name(each) for each in seen["results"]]
    here = [each for each in here if each in FLOATING]
    if not here:
        return ""
    if policy == "lower" or policy.startswith("fp32"):
        return _computed_in(operands, policy, dtype) if policy == "lower" else "float32"
    follows = (
        seen["name"] not in _CONVERSIONS
        and operands
        and here[0] == _widest([each for each, _ in operands])
    )
    return _widest([there for _, there in operands]) if follows else here[0]


def _computed_in(operands: list[tuple[str, str]], policy: str, dtype: str) -> str:
    kinds = {there for _, there in operands}
    target = dtype if policy == "lower" else "float32" if policy.startswith("fp32") else ""
    if policy == "promote" and kinds:
        target = _widest(sorted(kinds))
    if target:
        kinds = {each if each == "float64" else target for each in kinds}
    if kinds & set(REDUCED) and len(kinds) > 1:
        return "mixed"
    return max(kinds, key=FLOATING.index, default="")
