"""Which operators CUDA's kernels call inside, beside what csrc/analysis/observed.inc says.

PyTorch's own samples run in the profiler, in float16 and float32. An operator outside of CUDA's
lists that calls one of them on operands of a reduced dtype must not be said to be untouched.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import stand_ins

stand_ins.provide()

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from jit_amp import policy  # noqa: E402

# It sums its operand to check it, and does not use the sum (scripts/observe, CUDA_DIFFERS).
NOT_USED = {"aten::multinomial"}

TABLE = policy.table("cuda")
LISTED = {name.partition(".")[0]: rule for name, rule in TABLE.items()}
REDUCED = {"c10::Half", "c10::BFloat16"}
FLOATS = REDUCED | {"float"}


def casts(event: Any) -> bool:
    """Whether autocast would cast the operands of this call."""
    rule = LISTED.get(event.name)
    types = set(itertools.chain.from_iterable(
        t if isinstance(t, list) else [t] for t in (event.concrete_types or [])
    ))  # fmt: skip
    if rule is None:
        return False
    return bool(types & (FLOATS if rule == "lower" else REDUCED)) if types else True


def called(event: Any) -> set[str]:
    """What a call reaches that autocast would cast; not what lies below such a one."""
    found = set()
    for child in event.cpu_children:
        if child.name in LISTED:
            found |= {child.name} if casts(child) else set()
        else:
            found |= called(child)
    return found


class Event:
    """A profiled call with the dtypes of its operands, which only the raw events have."""

    def __init__(self, name: str, types: list[Any]) -> None:
        self.name, self.concrete_types = name, types
        self.cpu_children: list[Event] = []


def calls_of(profiled: Any) -> list[Event]:
    """The calls of operators, as a tree."""
    raw = [e for e in profiled.profiler.kineto_results.events() if e.name().startswith("aten::")]
    raw.sort(key=lambda e: (e.start_ns(), -e.duration_ns()))
    every, open_calls = [], []
    for e in raw:
        made = Event(e.name(), list(e.dtypes()))
        while open_calls and open_calls[-1][0] <= e.start_ns():
            open_calls.pop()
        if open_calls:
            open_calls[-1][1].cpu_children.append(made)
        open_calls.append((e.start_ns() + e.duration_ns(), made))
        every.append(made)
    return every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="1/1")
    number, parts = map(int, parser.parse_args().part.split("/"))
    reach = policy.reach("cuda")
    said: dict[str, set[str]] = defaultdict(set)
    for name, what in reach.items():
        said[name.partition(".")[0]].add(what.partition(":")[0])
    reached: dict[str, set[str]] = defaultdict(set)
    ran = 0
    for op in op_db[number - 1 :: parts]:
        for dtype in (torch.float16, torch.float32):
            if dtype not in op.supported_dtypes("cuda"):
                continue
            try:
                samples = list(itertools.islice(op.sample_inputs("cuda", dtype), 3))
            except Exception:  # PyTorch's samples are for its own machines
                continue
            for sample in samples:
                with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
                    try:
                        op.op(sample.input, *sample.args, **sample.kwargs)
                        ran += 1
                    except Exception:  # not for this dtype
                        continue
                for call in calls_of(profiled):
                    if call.name not in LISTED and (found := called(call)):
                        reached[call.name] |= found
    wrong = {
        name: found
        for name, found in reached.items()
        if said.get(name) and said[name] <= {"untouched"} and name not in NOT_USED
    }
    print(f"{ran} calls; {len(reached)} operators call some that autocast casts")
    for name, found in sorted(wrong.items()):
        print(f"said to be untouched: {name} calls {', '.join(sorted(found))}")
    print(f"{len(wrong)} of them are said to be untouched")
    pattern = re.compile("xpu|mps|sparse|quantized")
    for name, found in sorted(reached.items()):
        if name not in said and not pattern.search(name):
            print(f"no row: {name} calls {', '.join(sorted(found))}")
    sys.exit(1 if wrong else 0)


main()
