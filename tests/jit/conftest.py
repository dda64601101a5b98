"""Every test of this folder leaves the thread's autocast as it found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from .support import autocast_state


@pytest.fixture(autouse=True)
def autocast_is_left_alone() -> Iterator[None]:
    before = autocast_state()
    torch.manual_seed(0)
    yield
    assert autocast_state() == before


@pytest.fixture
def no_weight_cache() -> Iterator[None]:
    """Eager's cache hands a weight's cast out in a scope of another dtype too."""
    torch.set_autocast_cache_enabled(False)
    yield
    torch.set_autocast_cache_enabled(True)
