"""Scopes that TorchScript compiles for jit_amp; it compiles source, so they stand here."""

from __future__ import annotations

import torch


def scope() -> None:
    """The one that jit_amp models its own on."""
    with torch.autocast("cpu"):
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
