"""Options of the test run."""

from __future__ import annotations

import argparse
import os
import sys

import pretend
import pytest

pytest_plugins = ["sweep.table"]

# Each pass is checked when it has run (csrc/core/verify.h), in processes that tests start too.
os.environ.setdefault("JIT_AMP_VERIFY", "1")

# Before torch is imported: here, and in the processes that pytest-xdist starts.
_options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
_options.add_argument("--pretend", default=os.environ.get("JIT_AMP_PRETEND", ""))
if _device := _options.parse_known_args(sys.argv)[0].pretend:
    os.environ["JIT_AMP_PRETEND"] = _device
    pretend.load(_device)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep",
        action="store_true",
        help="the whole sweep over OpInfo: more samples an operator, float16 too",
    )
    parser.addoption(
        "--pretend",
        choices=[*pretend.KEYS],
        help="a device of that name in CPU memory, for tests that need one (tests/pretend)",
    )
    parser.addoption(
        "--seconds",
        type=float,
        default=5.0,
        help="how long eight threads script and call the same classes",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    import torch  # not before a device is pretended

    if not torch.cuda.is_available():
        skipped = pytest.mark.skip(reason="no CUDA device: run with --pretend cuda")
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(skipped)
