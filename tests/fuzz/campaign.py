"""Many random programs, in several processes that may die; what differs is made small and kept.

Run by scripts/fuzz. A worker checks a run of seeds and prints a line of JSON for each; where a line
stays out, the program crashed it or hangs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from . import artefacts, files, hostile, json_files, workers
from .oracle import Outcome, check
from .programs import Program, generate
from .reduce import reduced

ARTEFACTS = 1_000_000_000
CALLS = ("other inputs taken", "other inputs refused", "artefacts that decide casts when run")
CHUNK = 500  # programs a process: TorchScript keeps everything it has compiled
MEMORY = 8 << 30  # bytes of addresses, so that a program that wants all memory raises
PATIENCE = 180.0  # seconds without a line, a reduction included
REDUCTION = 90.0
CANDIDATE = 10.0  # seconds for one attempt of a reduction
REDUCED_A_KIND = 3  # of one kind of difference, each worker makes so many small

TEST = """

def test_eager_and_jit_amp_agree() -> None:
    from fuzz.oracle import assert_agrees

    assert_agrees(__file__, {settings})
"""


def write_reproducer(folder: Path, program: Program, kind: str, detail: str) -> Path:
    """Writes a program as a test that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"test_seed_{program.seed}.py"
    shown = "\n".join(line[:100] for line in detail.splitlines()[:12]).replace("\\", "/")
    settings = ", ".join(
        f"{name}={getattr(program, name)!r}"
        for name in ("ambients", "gradients", "freeze", "cache")
    )
    title = f'"""Seed {program.seed}: {kind}.\n\n{shown}\n"""\n\n'.replace('""""', '"""')
    path.write_text(title + program.source.strip() + "\n" + TEST.format(settings=settings))
    return path


class TakesTooLong(BaseException):
    """Nothing that catches exceptions catches it."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TakesTooLong in Python code that is not done by then: eager, which runs first."""

    def stop(*_: object) -> None:
        raise TakesTooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def same_kind(kind: str) -> Callable[[Program], bool]:
    """Whether a program still shows a difference of a kind."""

    def same(candidate: Program) -> bool:
        try:
            with at_most(CANDIDATE):
                outcome = check(candidate)
        except (Exception, TakesTooLong):  # it does not even load, or a loop has lost its end
            return False
        return outcome.kind == kind and outcome.verdict == "differs"

    return same


def dies(program: Program) -> bool:
    """Whether checking a program ends the process, or takes too long."""
    child = os.fork()
    if child == 0:
        try:
            check(program)
        finally:
            os._exit(0)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.WIFSIGNALED(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


# Workers.


def program_of(seed: int) -> Program:
    """Seeds of a thousand millions and more are programs for artefacts."""
    return generate(seed) if seed < ARTEFACTS else artefacts.generate(seed - ARTEFACTS)


def work(first: int, end: int, folder: Path) -> None:
    """Checks seeds from `first` and prints what came of each."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    reductions: Counter[str] = Counter()
    say({"ready": True})
    for seed in range(first, end):
        program = program_of(seed)
        outcome = check(program)
        line: dict[str, Any] = {
            "seed": seed,
            "verdict": outcome.verdict,
            "kind": outcome.kind,
            "frozen": outcome.frozen,
            "calls": [outcome.let_in, outcome.turned_away, int(outcome.asks)],
            "features": sorted(program.features),
        }
        if outcome.verdict == "differs":
            line["reproducer"] = str(reproduced(program, outcome, reductions, folder))
        say(line)


def reproduced(program: Program, outcome: Outcome, reductions: Counter[str], folder: Path) -> Path:
    reductions[outcome.kind] += 1
    if reductions[outcome.kind] <= REDUCED_A_KIND:
        program = reduced(program, same_kind(outcome.kind), seconds=REDUCTION)
        outcome = check(program)
    return write_reproducer(folder, program, outcome.kind, outcome.detail)


def reduce_crash(seed: int, folder: Path) -> None:
    """Makes a program that ends the process small. Each attempt has a process of its own."""
    torch.set_num_threads(1)
    program = program_of(seed)
    if dies(program):
        program = reduced(program, dies, seconds=REDUCTION)
    write_reproducer(folder, program, "the process dies or hangs", "")


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


# The campaign.


@dataclass
class Tally:
    programs: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    frozen: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)
    features: Counter[str] = field(default_factory=Counter)
    differing: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, line: dict[str, Any]) -> None:
        with self.lock:
            self.programs += 1
            verdict = line["verdict"]
            self.verdicts[verdict] += 1
            self.features.update(line["features"])
            for name, count in zip(CALLS, line["calls"], strict=True):
                self.calls[name] += count
            if line["frozen"]:
                self.frozen[line["frozen"]] += 1
            if verdict in ("refused", "not scriptable", "PyTorch's"):
                self.reasons.setdefault(verdict, Counter())[line["kind"]] += 1
            if verdict == "differs":
                self.differing.update(line["features"])
                self.failures.append(f"{line['kind']}: {line['reproducer']}")

    def report(self) -> str:
        rows = [f"{'feature':42}programs  differ"]
        for feature, count in sorted(self.features.items()):
            rows.append(f"{feature:42}{count:8}{self.differing[feature]:8}")
        rows += ["", "outcomes"]
        rows += [f"  {name}: {count}" for name, count in self.verdicts.most_common()]
        rows += [f"  {name}: {count}" for name, count in self.calls.items() if count]
        rows += [f"  freezing: {name}: {count}" for name, count in self.frozen.most_common()]
        for verdict, reasons in self.reasons.items():
            rows.append(f"{verdict}")
            rows += [f"  {count}  {reason[:150]}" for reason, count in reasons.most_common(12)]
        if self.failures:
            rows.append("differ")
            rows += [f"  {failure}" for failure in sorted(self.failures)]
        return "\n".join(rows)


def command(*arguments: Any) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "fuzz.campaign", *map(str, arguments)]


def run_chunk(first: int, end: int, folder: Path, tally: Tally) -> None:
    """Has seeds checked, in another process from each that ends one."""
    starts = 0
    while first < end:
        worker = subprocess.Popen(
            command("--worker", first, end, "--folder", folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=workers.environment(),
            text=True,
        )
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_read, args=(worker, lines), daemon=True).start()
        ready = False
        while line := _next(lines):
            found = json.loads(line)
            if "ready" in found:
                ready = True
                continue
            tally.add(found)
            first = found["seed"] + 1
        worker.kill()
        worker.wait()
        if first >= end:
            break
        if ready:
            tally.add(_crash(first, folder, worker.returncode))
            first += 1
            starts = 0
        else:  # it did not come up: the extension may be being built
            starts += 1
            if starts > 5:
                raise RuntimeError("a worker does not start: see `python -m fuzz.campaign`")
            time.sleep(10)


def _read(worker: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert worker.stdout
    for line in worker.stdout:
        if line.startswith("{"):
            lines.put(line)
    lines.put("")


def _next(lines: queue.Queue[str]) -> str:
    try:
        return lines.get(timeout=PATIENCE)
    except queue.Empty:
        return ""


def _crash(seed: int, folder: Path, status: int) -> dict[str, Any]:
    subprocess.run(
        command("--crash", seed, "--folder", folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=workers.environment(),
        check=False,
    )
    return {
        "verdict": "differs",
        "kind": f"the process ended with {status}",
        "frozen": "",
        "calls": [0, 0, 0],
        "features": sorted(program_of(seed).features),
        "reproducer": str(folder / f"test_seed_{seed}.py"),
    }


def campaign(programs: int, seed: int, jobs: int, folder: Path) -> Tally:
    tally = Tally()
    began = time.monotonic()

    def progress() -> None:
        rate = tally.programs / (time.monotonic() - began)
        print(
            f"{tally.programs}/{programs} programs, {rate:.1f}/s, {len(tally.failures)} differ",
            file=sys.stderr,
            flush=True,
        )

    with ThreadPoolExecutor(jobs) as pool:
        chunks = [
            pool.submit(run_chunk, first, min(first + CHUNK, seed + programs), folder, tally)
            for first in range(seed, seed + programs, CHUNK)
        ]
        while not all(chunk.done() for chunk in chunks):
            time.sleep(0.5)
            if int(time.monotonic() - began) % 15 == 0:
                progress()
                time.sleep(1)
        for chunk in chunks:
            chunk.result()
    progress()
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, help="how many random programs; 1000 by default")
    parser.add_argument("--artefacts", type=int, help="how many programs for artefacts")
    parser.add_argument("--graphs", type=int, help="how many hostile graphs: see hostile.py")
    parser.add_argument("--files", type=int, help="how many damaged files: see files.py")
    parser.add_argument("--json", type=int, help="how many damaged JSON files: see json_files.py")
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--worker", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--crash", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        first, end = options.worker
        work(first, end, options.folder)
        return 0
    if options.crash is not None:
        reduce_crash(options.crash, options.folder)
        return 0
    well = True
    of_numbers = [each.CASES for each in (hostile, files, json_files)]
    counts = [getattr(options, cases.count) for cases in of_numbers]
    for cases, count in zip(of_numbers, counts, strict=True):
        if count:
            well &= workers.campaign(cases, count, options.seed, options.jobs)
    if not (options.programs or options.artefacts or any(counts)):
        options.programs = 1000
    for count, seed in ((options.programs, 0), (options.artefacts, ARTEFACTS)):
        if count:
            tally = campaign(count, options.seed + seed, options.jobs, options.folder)
            print(tally.report())
            well &= not tally.failures
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
