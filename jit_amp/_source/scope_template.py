"""Scopes that TorchScript compiles for jit_amp; it compiles source, so they stand here."""

from __future__ import annotations

from typing import Any

import torch


def scope() -> None:
    """Those that jit_amp models its own on: one of autocast, and one for gradients."""
    with torch.autocast("cpu"):
        pass
    with set_grad(True):
        pass


def enter_autocast(
    device_type: str,
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> torch.autocast:
    """What ``torch.amp._enter_autocast`` is in a script."""
    mode = torch.autocast(device_type, dtype, enabled, cache_enabled)
    mode.__enter__()  # type: ignore[no-untyped-call]
    return mode


def exit_autocast(mode: torch.autocast) -> None:
    """What ``torch.amp._exit_autocast`` is in a script."""
    mode.__exit__(None, None, None)


class set_grad:
    """What ``torch.enable_grad`` and ``torch.set_grad_enabled`` are in a `with` of a script."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self.before = mode

    def __enter__(self) -> None:
        self.before = torch.is_grad_enabled()
        torch.set_grad_enabled(self.mode)

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        torch.set_grad_enabled(self.before)
