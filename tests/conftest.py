"""Options of the test run."""

from __future__ import annotations

import os

import pytest

# Each pass is checked when it has run (csrc/core/verify.h), in processes that tests start too.
os.environ.setdefault("JIT_AMP_VERIFY", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep",
        action="store_true",
        help="the whole sweep over OpInfo: more samples an operator, float16 too",
    )
    parser.addoption(
        "--seconds",
        type=float,
        default=5.0,
        help="how long eight threads script and call the same classes",
    )
