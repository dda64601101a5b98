"""Options of the test run."""

from __future__ import annotations

import argparse
import gc
import os
import re
from collections.abc import Generator
from pathlib import Path

import pretend
import pytest
import slow
import stand_ins

pytest_plugins = ["sweep.table"]

# Each pass is checked when it has run (csrc/core/verify.h), in processes that tests start too.
os.environ.setdefault("JIT_AMP_VERIFY", "1")

# Processes beside each other that all take all cores wait for each other most of the time.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

stand_ins.provide()

# Before torch is imported: here, and in the processes that pytest-xdist starts.
_options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
_options.add_argument("--pretend", default=os.environ.get("JIT_AMP_PRETEND", ""))
PRETENDED = _options.parse_known_args()[0].pretend
if PRETENDED:
    os.environ["JIT_AMP_PRETEND"] = PRETENDED
    pretend.load(PRETENDED)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep",
        action="store_true",
        help="the whole sweep over OpInfo: more samples an operator, float16 too",
    )
    parser.addoption(
        "--sweep-results", type=Path, help="write what the table of the sweep is made of there"
    )
    parser.addoption(
        "--part", default="1/1", help="of the tests, such as 3/8: the third of each eight"
    )
    parser.addoption(
        "--pretend",
        choices=[*pretend.KEYS],
        help="a device in CPU memory, for the tests that need one (tests/pretend)",
    )
    parser.addoption(
        "--layouts",
        type=int,
        default=24,
        help="how many random programs test_layouts makes of convolutions",
    )
    parser.addoption(
        "--seconds",
        type=float,
        default=5.0,
        help="how long eight threads script and call the same classes",
    )
    parser.addoption(
        "--interrupts",
        type=int,
        default=40,
        help="at how many lines test_replacing interrupts each program; 0 for all",
    )


def pytest_configure() -> None:
    """Keeps the functions that PyTorch's compiler knows by their addresses, and has
    kernels of GPUs round as eager's do, each time the same.

    torch.export registers some that are freed; a later object at the same address, such as an
    attribute of a module, would be taken for one.
    """
    import torch
    import torch.jit._builtins as builtins  # not before devices are pretended

    original, kept = builtins._register_builtin, []

    def register(function: object, operator: str) -> None:
        kept.append(function)
        original(function, operator)

    builtins._register_builtin = register

    # Its kernels round less than eager's, with or without jit_amp; test_on_a_gpu.py tests it.
    torch._C._jit_override_can_fuse_on_gpu(False)
    if torch.backends.cuda.is_built():
        torch.backends.cudnn.deterministic = True  # for comparing bit for bit


def pytest_collection_finish() -> None:
    """What is there by now stays, and the collector need not go through it again: that takes half
    a second, and some tests collect often."""
    gc.collect()
    gc.freeze()


NO_LSTM = "could not create a primitive descriptor for the LSTM"


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Leaves out what PyTorch's own LSTM cannot do on this CPU: in eager it raises for a reduced
    dtype for which the CPU has no instructions, and there is nothing to compare with."""
    import torch

    try:
        return (yield)
    except RuntimeError as error:
        mkldnn = torch.ops.mkldnn
        missing = {
            name
            for name, is_supported in (
                ("bfloat16", mkldnn._is_mkldnn_bf16_supported),
                ("float16", mkldnn._is_mkldnn_fp16_supported),
            )
            if not is_supported()
        }
        named = {"bfloat16", "float16"}.intersection(re.split(r"\W", pyfuncitem.nodeid))
        if NO_LSTM not in str(error) or not missing.intersection(named or {"bfloat16"}):
            raise
        pytest.skip("eager has no LSTM of this reduced dtype on this CPU")


@pytest.fixture
def layouts(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--layouts"))


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.nodeid.startswith(tuple(slow.SLOW)):
        item.add_marker("slow")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of a pretended device only the files are read that name it."""
    device = config.getoption("--pretend")
    if device and collection_path.match("test_*.py"):
        return device not in collection_path.read_text(encoding="utf-8") or None
    return None


@pytest.hookimpl(trylast=True)  # a part of those that -m and -k leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    import torch  # not before devices are pretended

    number, parts = map(int, config.getoption("--part").split("/"))
    items[:] = items[number - 1 :: parts]
    there = {name: name == PRETENDED for name in pretend.KEYS}
    there["cuda"] = torch.cuda.is_available()
    for item in items:
        for name, is_there in there.items():
            if item.get_closest_marker(name) and not is_there:
                item.add_marker(pytest.mark.skip(reason=f"run with --pretend {name}"))
