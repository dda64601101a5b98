"""What autocast does to each operator: PyTorch's tables, and policies that you state.

A policy is what autocast does to one operator: ``lower`` (floating point operands are cast to the
scope's dtype), ``fp32`` (to float32), ``promote`` (to the widest dtype among them), ``untouched``
(nothing), or ``opaque`` (unknown: PyTorch's dispatcher decides at run time, and freezing refuses).

``python -m jit_amp.policy`` compares the tables with the running dispatcher. It lists each overload
that has an autocast kernel and no policy, which is opaque, and each policy whose overload has no
kernel. ``python -m jit_amp.policy --reach`` counts what ``jit_amp.freeze`` can do with the
operators that TorchScript can call, and lists those that it refuses in a scope, with the reason.
``python -m jit_amp.policy aten::cat`` prints all that is known of one operator.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import torch

from jit_amp import _C
from jit_amp._base import arguments as _check

DeviceType = Literal["cpu", "cuda", "xpu", "mps"]
Statable = Literal["cpu", "cuda"]
Policy = Literal["lower", "fp32", "promote", "untouched", "opaque"]

_KEYS: dict[DeviceType, str] = {
    "cpu": "AutocastCPU",
    "cuda": "AutocastCUDA",
    "xpu": "AutocastXPU",
    "mps": "AutocastMPS",
}
# In process, what other devices' autocast does is the dispatcher's alone.
_STATABLE_FOR = get_args(Statable)
_STATABLE = ("lower", "fp32", "promote", "untouched", "opaque")


def table(device_type: DeviceType) -> dict[str, str]:
    """Returns the policy of each overload that autocast casts on a device.

    CUDA's and XPU's are those of the installed ``ATen/autocast_mode.h``, CPU's and MPS's those of
    ``aten/src/ATen/autocast_mode.cpp``.

    Args:
        device_type: ``"cpu"``, ``"cuda"``, ``"xpu"`` or ``"mps"``.

    Returns:
        dict[str, str]: policies by overload, such as ``{"aten::mm": "lower", ...}``. Of an overload
            that is not there autocast casts no operands; it may call operators that are there:
            :func:`reach` tells. CUDA's and XPU's reductions have ``"fp32_opt_dtype"`` and
            ``"fp32_append_dtype"`` (float32, unless the call gives a dtype); ``"banned"`` is an
            operator that autocast refuses.

    Raises:
        ValueError: another device.
    """
    _check_device(device_type)
    return dict(_C.policy_table(device_type))


def reach(device_type: DeviceType) -> dict[str, str]:
    """Returns what freezing does in a scope with each ``aten`` overload of TorchScript's.

    Args:
        device_type: ``"cpu"``, ``"cuda"``, ``"xpu"`` or ``"mps"``, the device of the scope.

    Returns:
        dict[str, str]: by overload, sorted: ``"cast"`` (in autocast's lists: operands are cast),
            ``"promote"`` (operands are cast to the widest of them), ``"untouched"`` (it calls no
            operator that autocast casts), ``"decomposed"`` (it does, and is exported as what it
            does), or ``"refused: "`` and why.

    Raises:
        ValueError: another device.
    """
    _check_device(device_type)
    names = {
        f"{s.name}.{s.overload_name}" if s.overload_name else s.name
        for s in torch._C._jit_get_all_schemas()
        if s.name.startswith("aten::")
    }
    return {name: _C.reach(name, device_type) for name in sorted(names)}


def _reached(overload: str, device_type: DeviceType) -> str:
    return _C.reach(overload, device_type) if overload.startswith("aten::") else "unknown"


class _Registered:
    """What ``policy.register`` returns: leaving it brings back what was stated before."""

    def __init__(self, op: str, device_type: Statable, before: str | None) -> None:
        self._op, self._device_type, self._before = op, device_type, before

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        _C.forget_policy(self._op, self._device_type)
        if self._before is not None:
            _C.state_policy(self._op, self._device_type, self._before)


def register(op: str, device_type: Statable, policy: Policy) -> _Registered:
    """States what autocast does to an operator.

    It holds for what is scripted or frozen from now on, and at its next call for what was scripted
    before. A frozen module of ``jit_amp.freeze`` stays as it is. A policy that you state is
    believed: make it the one that the operator has in eager.

    Args:
        op: ``"namespace::name"`` for all its overloads, or ``"namespace::name.overload"``.
        device_type: ``"cpu"`` or ``"cuda"``.
        policy: ``"lower"``, ``"fp32"``, ``"promote"``, ``"untouched"`` or ``"opaque"``; what they
            mean stands at the top of this module.

    Returns:
        ContextManager: at the end of ``with policy.register(...):`` the operator is what it was
            before. Without ``with`` it is stated until ``policy.unregister``.

    Raises:
        ValueError: a policy or a device that is none of these, or an operator's name without a
            namespace.
    """
    _check_op(op)
    _check_device(device_type, _STATABLE_FOR)
    _check.choice("policy", policy, _STATABLE)
    before = _C.forget_policy(op, device_type)
    _C.state_policy(op, device_type, policy)
    return _Registered(op, device_type, before)


def unregister(op: str, device_type: Statable) -> None:
    """Takes back what ``policy.register`` has stated.

    Args:
        op: the operator's name, as it was registered.
        device_type: as it was registered.

    Raises:
        KeyError: nothing was registered by that name for that device.
        ValueError: another device than ``"cpu"`` or ``"cuda"``.
    """
    _check_op(op)
    _check_device(device_type, _STATABLE_FOR)
    if _C.forget_policy(op, device_type) is None:
        raise KeyError(f"policy.unregister: nothing was registered for {op!r} on {device_type!r}")


def drift(device_type: DeviceType) -> tuple[list[str], list[str]]:
    """Compares PyTorch's table, as jit_amp has it, with the running dispatcher.

    Args:
        device_type: ``"cpu"``, ``"cuda"``, ``"xpu"`` or ``"mps"``.

    Returns:
        tuple[list[str], list[str]]: the overloads of ``aten`` that have an autocast kernel and no
            policy, and those that have a policy and no kernel. Both are sorted.

    Raises:
        ValueError: another device.
    """
    _check_device(device_type)
    kernels = {
        name
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(_KEYS[device_type])
        if name.startswith("aten::")
    }
    known = set(table(device_type))
    return sorted(kernels - known), sorted(known - kernels)


def _check_device(device_type: str, of: Iterable[str] = _KEYS) -> None:
    _check.choice("device_type", device_type, of)


def _check_op(op: str) -> None:
    _check.instance("op", op, str, "an operator's name, such as 'aten::mm'")
    namespace, _, name = op.partition("::")
    if not namespace or not name:
        raise ValueError(f"op: {op!r} has no namespace; write 'namespace::name'")


def _print_drift() -> int:
    total = 0
    for device_type in _KEYS:
        missing, idle = drift(device_type)
        print(
            f"{device_type}: {len(table(device_type))} policies, torch {torch.__version__}: "
            f"{len(missing)} overloads with a kernel and no policy, "
            f"{len(idle)} policies without a kernel"
        )
        for name in missing:
            print(f"  no policy: {name}")
        for name in idle:
            print(f"  no kernel: {name}")
        total += len(missing)
    return min(total, 1)


def _print_reach() -> int:
    for device_type in _KEYS:
        found = reach(device_type)
        counts = Counter(what.partition(":")[0] for what in found.values())
        print(f"{device_type}: {len(found)} overloads, torch {torch.__version__}")
        for what in ("untouched", "cast", "promote", "decomposed", "refused"):
            print(f"  {counts[what]:5} {what}")
        for reason, count in Counter(w for w in found.values() if ":" in w).most_common():
            print(f"        {count:5} {reason.partition(': ')[2]}")
        for name, what in found.items():
            if what.startswith("refused"):
                print(f"  {name}: {what.partition(': ')[2]}")
    return 0


def known_of(op: str) -> dict[str, dict[str, str]]:
    """Returns all that is known of an operator, from each of the tables.

    Args:
        op: ``"aten::cat"`` for all its overloads, or ``"aten::sum.dim_IntList"``.

    Returns:
        dict[str, dict[str, str]]: by the schema of each overload: by device, its policy or, where
            autocast has it in no list, what freezing does; ``"calls"``, what it was seen to call
            inside; ``"results"``, the rules of their dtypes and dimensions; ``"traits"``, what
            passes know besides. The words of the last three are those of
            ``csrc/analysis/traits.h``.

    Raises:
        ValueError: TorchScript has no such operator.
    """
    _check_op(op)
    name = op.partition(".")[0]
    found: dict[str, dict[str, str]] = {}
    tables = {device: table(device) for device in _KEYS}
    for schema in torch._C._jit_get_schemas_for_operator(name):
        overload = f"{name}.{schema.overload_name}".rstrip(".")
        if op not in (name, overload):
            continue
        rows = found[str(schema)] = {}
        for device in _KEYS:
            listed = tables[device].get(overload)
            rows[device] = (
                f"{listed}, by {_listed_in(device, listed, overload)}"
                if listed
                else f"in no list of autocast's: {_reached(overload, device)}"
            )
        if seen := _C.observed_row(overload):
            rows["calls"] = f"on CPU {seen[0]}, on CUDA {seen[1]} (counts where it is in no list)"
            rows["results"] = f"dtypes {seen[2]}, dimensions {seen[3]}"
        for row in _C.operator_traits():
            if name in (row[0], f"aten::{row[0]}"):
                group, memory, strides, fused, profiled = row[1:]
                rows["traits"] = (
                    f"group {group}, memory {memory}, strides {strides}, "
                    f"fused {fused or 'no'}, profiled {'yes' if profiled else 'no'}"
                )
    if not found:
        raise ValueError(f"op: TorchScript has no operator {op!r}")
    return found


# Of ATen/autocast_mode.h, in PyTorch's folder `include`.
_MACROS = {
    "lower": "AT_FORALL_LOWER_PRECISION_FP",
    "fp32": "AT_FORALL_FP32",
    "fp32_opt_dtype": "AT_FORALL_FP32_SET_OPT_DTYPE",
    "fp32_append_dtype": "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE",
    "promote": "AT_FORALL_PROMOTE",
}


def _listed_in(device: str, policy: str, overload: str) -> str:
    """Where the row is that gives the operator its policy (``csrc/analysis/policy.cpp``)."""
    if device in ("cpu", "mps"):
        return f"csrc/analysis/{device}_policy.inc"
    if policy not in _MACROS or "cudnn" in overload:  # registered beside the macros
        return "csrc/analysis/policy.cpp"
    return f"{_MACROS[policy]} of ATen/autocast_mode.h"


def _print_operator(op: str) -> int:
    try:
        found = known_of(op)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for schema, rows in found.items():
        print(schema)
        for what, text in rows.items():
            print(f"  {what:8} {text}")
    return 0


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m jit_amp.policy",
        description="Compares autocast's tables with the installed torch.",
    )
    parser.add_argument("operator", nargs="?", help="all that is known of it, such as aten::cat")
    parser.add_argument("--reach", action="store_true", help="what freezing can do with operators")
    given = parser.parse_args(arguments)
    if given.operator is not None:
        return _print_operator(given.operator)
    return _print_reach() if given.reach else _print_drift()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
