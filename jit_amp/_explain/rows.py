"""A row of a report, of what `watch` or C++ has seen of an operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch.utils import flop_counter

from jit_amp import _C
from jit_amp._base import source_files
from jit_amp._base.printable import printable
from jit_amp._explain import missing_scopes
from jit_amp._explain.graph import dtype_name
from jit_amp._explain.predicted import predicted
from jit_amp._explain.records import Cast, Elsewhere, Gradient, Numerics, Place, Row, Scope
from jit_amp._explain.sources import place_of

_REASONS = {
    "lower": "in {device}'s list of operators that run in the scope's dtype",
    "fp32": "in {device}'s list of float32 operators",
    "fp32_opt_dtype": "in {device}'s list of operators whose result is float32, unless a dtype is"
    " given",
    "fp32_append_dtype": "in {device}'s list of operators whose result is float32",
    "promote": "promotes to the widest of its operands",
    "promote_inside": "is made of operators that promote to the widest of their operands",
    "untouched": "in no list of {device}'s: runs in the dtypes of its inputs",
    "opaque": "jit_amp has no rule for it on {device}: PyTorch's own autocast decides when it runs",
    "banned": "refused by {device}'s autocast",
}
_STATED = {
    "lower": "runs in the scope's dtype",
    "fp32": "runs in float32",
    "promote": "promotes to the widest of its operands",
    "untouched": "runs in the dtypes of its inputs",
    "opaque": "is the dispatcher's to decide about",
}


def rows_of(all_seen: Sequence[dict[str, Any]]) -> list[Row]:
    """The rows, of all operators that were seen."""
    for device, dtype in missing_scopes.around().items():
        for seen in all_seen:
            if device not in seen["scopes"]:
                seen.setdefault("missing", {})[device] = dtype
                seen["states"][device] = (False, dtype, True)
    would_be = predicted(all_seen)
    return [_row_of(seen, what) for seen, what in zip(all_seen, would_be, strict=True)]


def _row_of(seen: dict[str, Any], elsewhere: Elsewhere | None) -> Row:
    stack = tuple(map(place_of, seen["stack"]))
    scopes = tuple(
        Scope(
            device,
            enabled,
            None if dtype is None else dtype_name(dtype),
            _place_of_scope(seen, device),
            device in seen.get("missing", {}),
        )
        for device, (enabled, dtype, _) in seen["states"].items()
    )
    policy, reason = _why(seen, scopes, stack[-1].io_dtype)
    if elsewhere and elsewhere.policy:
        reason = _why_elsewhere(seen, elsewhere)
    numbers, gradient = seen["numerics"], seen["gradient"]
    return Row(
        printable(seen["name"]),
        stack[-1],
        stack,
        printable(seen["module"]),
        scopes,
        policy,
        reason,
        seen["calls"],
        tuple(map(dtype_name, seen["operands"])),
        tuple(map(dtype_name, seen["results"])),
        tuple(map(tuple, seen["shapes"])),
        tuple(seen["devices"]),
        tuple(Cast(dtype_name(a), dtype_name(b), *numbers) for a, b, *numbers in seen["casts"]),
        seen["calls"] * _flops(seen["name"], seen["taken"], seen["shapes"]),
        seen["seconds"],
        numbers and Numerics(**numbers),
        gradient and Gradient(**{**gradient, "dtype": dtype_name(gradient["dtype"])}),
        seen["cast_seconds"],
        seen.get("is_backward", False),
        tuple(map(tuple, seen["taken"])),
        elsewhere,
    )


def _place_of_scope(seen: dict[str, Any], device: str) -> Place | None:
    """The line that made a device's state; None for what is around, also by jit_amp itself."""
    found = seen["scopes"].get(device)
    return place_of(found) if found and not source_files.is_jit_amps(found[0]) else None


def _flops(name: str, operands: list[list[int]], results: list[list[int]]) -> int:
    """What PyTorch's flop_counter counts for the operator; 0 for what is not a product."""
    operator = name.removeprefix("aten::").partition(".")[0]
    if not results or len(operands) < 2:
        return 0
    if operator in ("mm", "matmul", "bmm", "linear", "mv", "dot"):
        return 2 * math.prod(results[0]) * (operands[0][-1] if operands[0] else 1)
    if operator in ("addmm", "baddbmm", "addmv"):
        return 2 * math.prod(results[0]) * operands[1][-1]
    if operator.startswith(("conv1d", "conv2d", "conv3d", "convolution", "_convolution")):
        return _convolution_flops(operands, results[0], False)
    if operator.startswith("conv_transpose"):
        return _convolution_flops(operands, results[0], True)
    if operator == "scaled_dot_product_attention" and len(operands) > 2:
        query, key, value = operands[:3]
        if min(map(len, (query, key, value))) > 1:
            return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
    return 0


def _convolution_flops(operands: list[list[int]], result: list[int], transposed: bool) -> int:
    x, weight = operands[:2]
    batch = [1] if len(x) < len(weight) else []
    return int(flop_counter.conv_flop_count(batch + x, weight, batch + result, transposed))


def _why_elsewhere(seen: dict[str, Any], elsewhere: Elsewhere) -> str:
    device = elsewhere.device.upper()
    dtype = elsewhere.computed_in.replace("mixed", "mixed dtypes")
    would = f"would compute in {dtype} there: " if dtype else ""
    reason = _REASONS.get(elsewhere.policy, "").format(device=device)
    if stated := _C.stated_policy(seen["name"], elsewhere.device):
        reason = f"policy.register says that it {_STATED[stated]}"
    return f"autocast for {device} does nothing on this machine; {would}{reason}"


def _why(seen: dict[str, Any], scopes: tuple[Scope, ...], io_dtype: str) -> tuple[str, str]:
    """The policy for the device that the operator ran on, and its reason in a sentence."""
    if io_dtype:
        return "", f"io_dtype: {io_dtype} are cast here, in no line of the program"
    enabled = {scope.device: scope for scope in scopes if scope.enabled}
    ran = [device for device in seen["devices"] if device in enabled]
    if not enabled:
        off = [str(scope.place) for scope in scopes if scope.place]
        return "", f"autocast is off here, by {off[0]}" if off else "outside every scope"
    if not seen["calls"]:
        device = next(iter(enabled))
    elif not ran:
        return "", f"autocast is on for {', '.join(enabled)}, and its tensors are elsewhere"
    else:
        device = ran[0]
    policy = seen["policies"].get(device, "")
    name = {d: d.upper() for d in ("cpu", "cuda", "xpu", "mps")}.get(device, device)
    reason = _REASONS.get(policy, "").format(device=name)
    if not seen["is_call"] and (stated := _C.stated_policy(seen["name"], device)):
        reason = f"policy.register says that it {_STATED[stated]}"
    if policy == "opaque" and seen["is_call"]:
        reason = "a call of code that is not in the graph: the dispatcher's autocast decides"
    return policy, reason + ("" if seen["calls"] else "; did not run on these inputs")
