"""Every test of this folder leaves the thread's autocast as it found it; and every call of jit_amp
leaves what it is given, and the process, as they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import jit_amp

from .support import autocast_state
from .untouched import CHANGES, watched


@pytest.fixture(autouse=True, scope="session")
def calls_are_watched() -> Iterator[None]:
    originals = {name: getattr(jit_amp, name) for name in CHANGES}
    for name, function in originals.items():
        setattr(jit_amp, name, watched(name, function))
    yield
    for name, function in originals.items():
        setattr(jit_amp, name, function)


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
