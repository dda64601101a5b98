"""Cases in processes that may die or hang: the next ones run in another process.

A module of this folder has the cases, by numbers: ``python -m fuzz.MODULE --work FIRST --COUNT LAST
--seed S`` runs some, and prints a line of JSON before each stage and after each case.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

Stage = Callable[[str], None]
START = 300.0  # seconds until a process tells something, on a machine that does other things too


@dataclass(frozen=True)
class Cases:
    """A module's cases."""

    module: str
    count: str  # how it calls so many of them
    excused: tuple[str, ...]  # the stages that are PyTorch's alone
    part: int = 250  # a process
    hang: float = 60.0  # seconds for one stage


def environment() -> dict[str, str]:
    """Of processes that are to find this package, and to take one core."""
    tests = Path(__file__).parent.parent
    paths = [
        str(tests),
        str(tests.parent / "scripts/zoo.d"),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def work(first: int, last: int, judged: Callable[[int, Stage], str]) -> None:
    """Runs the cases of a process, which ends with them. An outcome that begins with "BAD" is a bug
    of jit_amp's."""
    torch.set_num_threads(1)
    out = os.fdopen(os.dup(1), "w")  # what programs print is nothing that is told

    def say(number: int, key: str, value: str) -> None:
        print(json.dumps({"case": number, key: value}), file=out, flush=True)

    for number in range(first, last):
        outcome = judged(number, lambda stage, number=number: say(number, "stage", stage))
        say(number, "outcome", outcome)
    # A process that ends while a task still runs aborts, with PyTorch alone too.
    os._exit(0)


def run(
    cases: Cases,
    count: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
    jobs: int = 1,
    found: Callable[[int, str], None] = lambda number, outcome: None,
) -> tuple[Counter[str], dict[int, str]]:
    """Runs that many cases; returns how many had which outcome, and what was wrong with which."""
    outcomes: Counter[str] = Counter()
    bad: dict[int, str] = {}
    lock = threading.Lock()

    def add(number: int, outcome: str) -> None:
        with lock:
            if outcome.startswith("BAD"):
                bad[number] = outcome
                found(number, outcome)
                outcome = "BAD"
            outcomes[outcome] += 1
            progress(outcomes.total())

    with ThreadPoolExecutor(jobs) as pool:
        parts = [
            pool.submit(_run_part, cases, first, min(first + cases.part, count), seed, add)
            for first in range(0, count, cases.part)
        ]
    for part in parts:
        part.result()
    return outcomes, bad


def _run_part(
    cases: Cases, first: int, last: int, seed: int, add: Callable[[int, str], None]
) -> None:
    """Some of the cases, in another process from each that ends one."""
    while first < last:
        process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-m", cases.module, "--work", str(first)),
                *(f"--{cases.count}", str(last), "--seed", str(seed)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(),
        )
        assert process.stdout is not None
        current, stage, line = first, "start", ""
        while True:
            patience = START if stage == "start" else cases.hang
            ready, _, _ = select.select([process.stdout], [], [], patience)
            line = process.stdout.readline() if ready else ""
            if not line:
                break
            said = json.loads(line) if line.startswith("{") else {}
            current = said.get("case", current)
            if "outcome" in said:
                add(current, said["outcome"])
                first = current + 1
            stage = said.get("stage", stage)
        if ready:
            process.wait()
        process.kill()
        process.communicate()
        if first < last:
            how = f"crash with {process.returncode}" if ready else "hang"
            if stage in cases.excused:
                add(current, f"PyTorch's own {how} ({stage})")
            else:
                add(current, f"BAD {how} in {stage}")
            first = current + 1


def report(cases: Cases, outcomes: Counter[str], bad: dict[int, str], seed: int) -> str:
    rows = [f"{count:7} {outcome}" for outcome, count in outcomes.most_common()]
    for number, what in sorted(bad.items()):
        rows.append(f"{cases.count} {number}: {what[:300]}")
        rows.append(f"    PYTHONPATH=tests python -m {cases.module} --seed {seed} --show {number}")
    return "\n".join(rows)


def main(
    cases: Cases,
    description: str,
    judged: Callable[[int], Callable[[int, Stage], str]],
    show: Callable[[int, int, Stage], None],
) -> None:
    """The command of a module: cases, or one that is shown.

    Args:
        judged: of a seed, what `work` takes.
        show: is given the number of a case, the seed, and what tells its stages.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(f"--{cases.count}", dest="count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--show", type=int, help="run this one case, and show it")
    options = parser.parse_args()
    if options.work is not None:
        warnings.simplefilter("ignore")
        work(options.work, options.count, judged(options.seed))
    elif options.show is not None:
        warnings.simplefilter("ignore")
        show(options.show, options.seed, lambda stage: print(f"[{stage}]", flush=True))
    else:
        sys.exit(0 if campaign(cases, options.count, options.seed, jobs=1) else 1)


def campaign(cases: Cases, count: int, seed: int, jobs: int) -> bool:
    """Runs that many cases with progress and a report; returns whether all went well."""
    start = time.monotonic()

    def progress(done: int) -> None:
        if done % 500 == 0:
            rate = done / (time.monotonic() - start)
            print(f"{done}/{count} {cases.count}, {rate:.0f}/s", file=sys.stderr, flush=True)

    def found(number: int, outcome: str) -> None:
        print(f"{cases.count} {number}: {outcome[:300]}", file=sys.stderr, flush=True)

    outcomes, bad = run(cases, count, seed, progress, jobs, found)
    print(report(cases, outcomes, bad, seed))
    return not bad
