"""What the tests need of packages beyond torch, numpy and pytest, where these are not there.

A machine with a GPU may have no network. `provide` is called before torch is imported.
"""

from __future__ import annotations

import importlib.util
import sys
import types
import unittest
from typing import Any

import pytest


def provide() -> None:
    """Gives PyTorch's own `torch.testing._internal`, which has the operators of the sweep, the one
    class that it takes from expecttest; tests that compare with text by expecttest are skipped."""
    if importlib.util.find_spec("expecttest"):
        return
    module = types.ModuleType("expecttest")

    class TestCase(unittest.TestCase):
        def assertExpectedInline(self, *_: Any, **__: Any) -> None:
            raise unittest.SkipTest("pip install expecttest")

    def assert_expected_inline(*_: Any, **__: Any) -> None:
        pytest.skip("pip install expecttest")

    module.TestCase = TestCase  # type: ignore[attr-defined]
    module.assert_expected_inline = assert_expected_inline  # type: ignore[attr-defined]
    sys.modules["expecttest"] = module
