"""What autocast does to each operator: the tables, their drift, and policies of your own.

``python -m jit_amp.policy`` holds the tables against the running dispatcher and lists every
overload that has an autocast kernel and no policy, and every policy whose overload has no kernel.
Such an operator is opaque to jit_amp: right in process, refused in export.
"""

from __future__ import annotations

import sys
from typing import Literal

import torch

from jit_amp import _C

DeviceType = Literal["cpu", "cuda"]
Policy = Literal["lower", "fp32", "promote", "untouched", "opaque"]

_KEYS: dict[DeviceType, str] = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
_STATABLE = ("lower", "fp32", "promote", "untouched", "opaque")


def table(device_type: DeviceType) -> dict[str, str]:
    """Returns the policy of each overload that autocast casts on ``device_type``.

    CUDA's are those of the installed ``ATen/autocast_mode.h``, CPU's those of
    ``aten/src/ATen/autocast_mode.cpp``.
    """
    if device_type not in _KEYS:
        raise ValueError(f"device_type: {device_type!r} not of 'cpu', 'cuda'")
    return dict(_C.policy_table(device_type))


def register(op: str, device_type: DeviceType, policy: Policy) -> None:
    """States what autocast does to an operator, for scripts and exports made from now on.

    Args:
        op: ``"namespace::name"`` for all its overloads, or ``"namespace::name.overload"``.
        device_type: ``"cpu"`` or ``"cuda"``.
        policy: ``"lower"`` (tensor operands to the scope's dtype), ``"fp32"`` (to float32),
            ``"promote"`` (to the widest among them), ``"untouched"``, or ``"opaque"`` (left to the
            dispatcher, and refused in export).

    Raises:
        ValueError: a name that is none of these, or an operator name without a namespace.
    """
    if "::" not in op:
        raise ValueError(f"op: {op!r} has no namespace; write 'namespace::name'")
    if device_type not in _KEYS:
        raise ValueError(f"device_type: {device_type!r} not of 'cpu', 'cuda'")
    if policy not in _STATABLE:
        raise ValueError(f"policy: {policy!r} not of {', '.join(map(repr, _STATABLE))}")
    _C.state_policy(op, device_type, policy)


def drift(device_type: DeviceType) -> tuple[list[str], list[str]]:
    """Returns the overloads of ``aten`` with an autocast kernel and no policy, and the reverse."""
    kernels = {
        name
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(_KEYS[device_type])
        if name.startswith("aten::")
    }
    known = set(table(device_type))
    return sorted(kernels - known), sorted(known - kernels)


def main() -> int:
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


if __name__ == "__main__":
    sys.exit(main())
