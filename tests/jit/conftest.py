"""Every test of this folder leaves the thread's autocast as it found it; and every call of jit_amp
leaves what it is given, and the process, as they were."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

import jit_amp
from jit_amp._export.checked_inputs import checks_kinds, keeps_conditions

from .elsewhere import Elsewhere, calls_are_made
from .elsewhere import watched as watched_elsewhere
from .support import autocast_state
from .untouched import CHANGES, watched

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
CACHED = "eager finds a cast under no_grad again in autocast's cache, in this PyTorch"
ENTERED = "eager does not put back what was around an object that is entered again, in this PyTorch"
EXPORTS_LESS = "torch.export of this PyTorch refuses sizes that come from numbers with a point"
# By a part of a test's name: the first release in which it passes, and what is wrong before.
SINCE = {
    "test_a_cast_under_no_grad_is_not_one_outside_it": ((2, 11), CACHED),
    "test_matmul_takes_eagers_kernel[no_grad-True-True]": ((2, 11), CACHED),
    "one_object_twice": ((2, 10), ENTERED),
    "entered_while_open_by_its_other_name": ((2, 10), ENTERED),
    "entered_again": ((2, 10), ENTERED),
    "by_hand_and_by_with": ((2, 10), ENTERED),
    "test_sizes_by_way_of_floats_are_free": ((2, 11), EXPORTS_LESS),
    "test_only_sizes_are_at_least_one": ((2, 11), EXPORTS_LESS),
    "test_what_the_first_call_sets_is_known_after_it": ((2, 11), EXPORTS_LESS),
}
FREE_SIZES = ("test_export_sizes.py", "test_export_branches.py")


def pytest_itemcollected(item: pytest.Item) -> None:
    """What older releases of PyTorch lack: docs/compatibility.md."""
    for name, (release, reason) in SINCE.items():
        if name in item.nodeid and release > RELEASE:
            item.add_marker(pytest.mark.skip(reason=reason))
    if not checks_kinds() and "export" in item.nodeid:
        item.add_marker(pytest.mark.skip(reason="jit_amp.export needs PyTorch 2.8"))
    if not keeps_conditions():
        item.add_marker(pytest.mark.filterwarnings("ignore:jit_amp.export. all sizes are fixed"))
        item.add_marker(pytest.mark.filterwarnings("ignore:jit_amp.export. what is None"))
        if item.path.name in FREE_SIZES:
            item.add_marker(pytest.mark.skip(reason="programs of this PyTorch keep no conditions"))


@pytest.fixture(autouse=True, scope="session")
def calls_are_watched() -> Iterator[None]:
    originals = {name: getattr(jit_amp, name) for name in CHANGES}
    for name, function in originals.items():
        setattr(jit_amp, name, watched(name, function))
    yield
    for name, function in originals.items():
        setattr(jit_amp, name, function)


@pytest.fixture(autouse=True, scope="session")
def elsewhere(calls_are_watched: None) -> Iterator[Elsewhere | None]:
    """Where all that is frozen is loaded and run too."""
    if os.environ.get("JIT_AMP_PRETEND"):  # no other process has that device
        yield None
        return
    elsewhere = Elsewhere()
    original = jit_amp.freeze
    jit_amp.freeze = watched_elsewhere(original, elsewhere)
    with calls_are_made(elsewhere):
        yield elsewhere
    jit_amp.freeze = original
    elsewhere.stop()


@pytest.fixture(autouse=True)
def autocast_is_left_alone(elsewhere: Elsewhere | None) -> Iterator[None]:
    before = autocast_state()
    torch.manual_seed(0)
    if elsewhere:
        elsewhere.is_on = True
    yield
    if elsewhere:
        elsewhere.is_on = False
    assert autocast_state() == before


@pytest.fixture
def no_weight_cache() -> Iterator[None]:
    """Eager's cache hands a weight's cast out in a scope of another dtype too."""
    torch.set_autocast_cache_enabled(False)
    yield
    torch.set_autocast_cache_enabled(True)
