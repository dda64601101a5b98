"""Modules of features through doors: first all pairs at all doors, then more by chance.

Run by scripts/pairs. Workers are asked for one program after the other, and answer with a line of
JSON each; where the answer stays out, the program crashed the worker, or hangs. What differs is
made small and written, as a test, into pairs-failures/.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import queue
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from fuzz.programs import Program
from fuzz.reduce import reduced as smaller_source
from fuzz.workers import environment

from . import plan
from .check import NOT_COMPILED, NOT_MADE, Outcome, check
from .compose import Composed
from .doors import MAKES, Door, in_a_child
from .features import FEATURES
from .plan import Item

CHUNK = 400  # programs a process: TorchScript keeps everything it has compiled
MEMORY = 12 << 30  # bytes of addresses, so that a program that wants all memory raises
PATIENCE = 240.0  # seconds without a line, on a machine that has other work too
WORKER = ("pairs.campaign", "--worker")
FRESH = 16  # of so many programs one is the first in its process that is compiled
REDUCTION = 15.0  # seconds in which a source is made small
ROOT = Path(__file__).parents[2]
SOURCES = (".cpp", ".h", ".inc", ".py", ".pyi")

TEST = """

FEATURES = {features}


def test_eager_and_jit_amp_agree() -> None:
    from pairs.check import assert_agrees

    assert_agrees(__file__, FEATURES, {door})
"""


# Making a difference small.


def reduced(item: Item, kind: str, shows: Callable[[Item], bool]) -> Item:
    """The item with as few features as show it, at the simplest door."""
    for door in _simpler(item.door):
        candidate = replace(item, door=door)
        if door_takes(candidate) and shows(candidate):
            item = candidate
            break
    smaller = True
    while smaller:
        smaller = False
        for name in item.features:
            rest = tuple(each for each in item.features if each != name)
            for seed in (item.seed, 0, 1):
                candidate = replace(item, features=rest, seed=seed)
                if rest and door_takes(candidate) and shows(candidate):
                    item, smaller = candidate, True
                    break
            if smaller:
                break
    return item


def door_takes(item: Item) -> bool:
    return item.door.takes(Composed("", item.features, 0))


def _simpler(door: Door) -> Iterator[Door]:
    """Doors of the same make, the simplest first."""
    for carry, call in (("as it is", "plain"), ("as it is", door.call), (door.carry, "plain")):
        candidate = Door(door.make, carry, call)
        if candidate.is_possible and candidate != door:
            yield candidate


def same(kind: str) -> Callable[[Item], bool]:
    """Whether an item shows a difference of a kind."""

    def shows(item: Item) -> bool:
        try:
            found = check(item.program(), item.door)
        except Exception:
            return False
        return found.verdict == "differs" and found.kind == kind

    return shows


def small_source(item: Item, kind: str) -> str:
    """The source of a small program, made smaller line by line."""
    program = item.program()

    def shows(candidate: Program) -> bool:
        if "def forward(" not in candidate.source:  # nobody can make that
            return False
        try:
            found = check(replace(program, source=candidate.source), item.door)
        except Exception:
            return False
        return found.verdict == "differs" and found.kind == kind

    given = Program(item.seed, program.source, ("none",))
    return smaller_source(given, shows, seconds=REDUCTION).source


def write(folder: Path, item: Item, source: str, found: Outcome) -> Path:
    """Writes a program as a test that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    number = next(n for n in itertools.count() if not (folder / f"test_pairs_{n}.py").exists())
    path = folder / f"test_pairs_{number}.py"
    detail = " ".join(found.detail.split())[:300].replace("\\", "/").replace('"', "'")
    title = f'"""{item.door}: {found.kind}: {detail}\n\nOf {", ".join(item.features)}.\n"""\n\n'
    door = ", ".join(repr(value) for value in item.door.values)
    path.write_text(title + source.strip() + "\n" + TEST.format(features=item.features, door=door))
    return path


# Workers.


def to_line(item: Item, **more: Any) -> str:
    return json.dumps([item.features, item.seed, item.door.values, more])


def of_line(line: str) -> tuple[Item, dict[str, Any]]:
    features, seed, door, more = json.loads(line)
    return Item(tuple(features), seed, Door(*door)), more


def work() -> None:
    """Checks what comes in on standard input, a line for each."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a program prints from C++
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        item, more = of_line(line)
        if more.get("fresh"):
            answer = in_a_child(lambda item=item: _answer(item))  # type: ignore[misc]
        elif "reduce" in more:
            answer = _reduce(item, more["reduce"], Path(more["folder"]))
        else:
            answer = _answer(item)
        print(json.dumps(answer), file=answers, flush=True)


def _answer(item: Item) -> dict[str, Any]:
    found = check(item.program(), item.door)
    return {"verdict": found.verdict, "kind": found.kind, "detail": found.detail[:600]}


def _reduce(item: Item, kind: str, folder: Path) -> dict[str, Any]:
    shows = same(kind)
    if not shows(item):
        found = Outcome("differs", kind, "only after the programs before it")
        return {
            "features": item.features,
            "path": str(write(folder, item, item.program().source, found)),
        }
    item = reduced(item, kind, shows)
    found = check(item.program(), item.door)
    path = write(folder, item, small_source(item, kind), found)
    return {"features": item.features, "path": str(path)}


class Worker:
    """A process that checks programs. It is started again when it has died."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str] = queue.Queue()
        self.done = 0

    def ask(self, line: str) -> dict[str, Any]:
        """The answer; if there is none, how the process ended."""
        if self.process is None or self.done >= CHUNK:
            self._start()
        assert self.process and self.process.stdin
        self.done += 1
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer: dict[str, Any] = json.loads(self.lines.get(timeout=PATIENCE))
            return answer
        except (BrokenPipeError, queue.Empty, json.JSONDecodeError) as error:
            kind = "the process hangs"
            if not isinstance(error, queue.Empty):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    kind = f"the process ends with {self.process.wait(10)}"
            self.errors.seek(0)
            said = self.errors.read()
            said = said[max(said.rfind("Fatal Python error"), len(said) - 6000, 0) :]
            print(f"{kind}\n{said}", file=sys.stderr, flush=True)
            self.stop()
            return {"verdict": "differs", "kind": kind, "detail": said}

    def _start(self) -> None:
        for _ in range(5):
            self.stop()
            self.errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-X", "faulthandler", "-m", *WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                env=environment(),
                text=True,
            )
            self.lines = queue.Queue()
            self.reader = threading.Thread(
                target=_read, args=(self.process, self.lines), daemon=True
            )
            self.reader.start()
            with contextlib.suppress(queue.Empty):
                if "ready" in self.lines.get(timeout=PATIENCE):
                    self.done = 0
                    return
            time.sleep(5)  # the extension may be being built
        raise RuntimeError("a worker does not start: see `python -m pairs.campaign --worker`")

    def stop(self) -> None:
        if self.process is not None:
            assert self.process.stdin and self.process.stdout
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            self.reader.join()
            self.process.stdout.close()
            self.errors.close()
            self.process = None


def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert process.stdout
    for line in process.stdout:
        if line.startswith("{"):
            lines.put(line)
    lines.put("")


# The campaign.


@dataclass(frozen=True)
class Found:
    """A difference that was made small."""

    kind: str
    make: str
    features: frozenset[str]
    path: str
    after: int  # programs


@dataclass
class Tally:
    """What came of the programs so far."""

    wanted: dict[str, set[plan.Pair]] = field(default_factory=plan.wanted)
    programs: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    makes: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)
    again: Counter[str] = field(default_factory=Counter)  # by path of what was found before
    found: list[Found] = field(default_factory=list)
    covered: dict[str, set[plan.Pair]] = field(default_factory=dict)
    triples: set[tuple[str, ...]] = field(default_factory=set)
    # Features alone, and makes that refuse them, or whose compiler is PyTorch's and raises.
    refused: set[tuple[str, str]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, item: Item, answer: dict[str, Any], last: bool) -> Found | None:
        """Counts a program.

        Args:
            last: it is of two features alone, so what came of it is all that can come of them.

        Returns:
            Of a difference the one like it that was found before, if there is one.
        """
        with self.lock:
            self.programs += 1
            verdict, kind = answer["verdict"], answer["kind"]
            self.verdicts[verdict] += 1
            self.makes[item.door.make] += 1
            is_lost = verdict == "PyTorch's" and kind in (NOT_MADE, NOT_COMPILED)
            if (verdict == "refused" or is_lost) and len(item.features) == 1:
                self.refused.add((item.features[0], item.door.make))
            if verdict in ("refused", "raises", "PyTorch's"):
                self.reasons.setdefault(verdict, Counter())[kind] += 1
            if last or verdict in ("agrees", "differs"):
                self._cover(item)
            self.triples.update(itertools.combinations(sorted(item.features), 3))
            if verdict != "differs":
                return None
            for found in self.found:
                alike = found.kind == kind and found.features <= set(item.features)
                if alike and _family(found.make) == _family(item.door.make):
                    self.again[found.path] += 1
                    return found
            return None

    def _cover(self, item: Item) -> None:
        for value in item.door.values:
            if value in self.wanted:
                self.covered.setdefault(value, set()).update(
                    self.wanted[value].intersection(item.pairs)
                )

    def left(self) -> dict[str, set[plan.Pair]]:
        return {v: pairs - self.covered.get(v, set()) for v, pairs in self.wanted.items()}

    def report(self) -> str:
        rows = [f"{'door':26}{'pairs':>8}{'covered':>9}"]
        for value, pairs in self.wanted.items():
            rows.append(f"{value:26}{len(pairs):8}{len(self.covered.get(value, ())):9}")
        total = sum(map(len, self.wanted.values()))
        covered = sum(map(len, self.covered.values()))
        rows += [
            "",
            f"features: {len(FEATURES)}, doors: {len(self.wanted)}",
            f"pairs at doors covered: {covered} of {total}; triples met: {len(self.triples)}",
            f"programs: {self.programs}",
        ]
        rows += [f"  {name}: {count}" for name, count in self.verdicts.most_common()]
        for verdict, reasons in self.reasons.items():
            rows.append(verdict)
            rows += [f"  {count}  {reason[:130]}" for reason, count in reasons.most_common(12)]
        if self.found:
            rows.append("differ")
            for found in sorted(self.found, key=lambda each: each.after):
                rows.append(
                    f"  after {found.after} programs, {1 + self.again[found.path]} times: "
                    f"{found.make}: {found.kind}: {', '.join(sorted(found.features))}: {found.path}"
                )
        return "\n".join(rows)


def _family(make: str) -> tuple[bool, bool]:
    how = MAKES[make]
    return how.frozen, how.traces


def code_hash(*folders: str) -> str:
    """A hash of the files in folders of the checkout, without what a build makes there."""
    found = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*")):
        if path.is_file() and path.suffix in SOURCES:
            found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


class Log:
    """What came of each program, kept in a file, so that a campaign can go on another day.

    Raises:
        ValueError: the file is of other code: of other files in csrc, jit_amp or tests/pairs.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        self.path, self.lock = path, threading.Lock()
        self.known: dict[str, dict[str, Any]] = {}
        code = code_hash("csrc", "jit_amp", "tests/pairs")
        if resume and path.exists():
            first, *lines = path.read_text().splitlines()
            if json.loads(first) != code:
                raise ValueError(f"{path} is of other code: begin anew, without --resume")
            self.known = dict(json.loads(line) for line in lines if line.endswith("]"))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(code) + "\n")

    def add(self, line: str, answer: dict[str, Any], found: Found | None) -> None:
        kept = {"verdict": answer["verdict"], "kind": answer["kind"]}
        if found:
            kept["found"] = {**vars(found), "features": sorted(found.features)}
        with self.lock, self.path.open("a") as file:
            print(json.dumps([line, kept]), file=file)


class Campaign:
    """Programs in several processes, until all are done or the time is over."""

    def __init__(
        self,
        folder: Path,
        jobs: int,
        seconds: float,
        reduces: bool = True,
        log: Log | None = None,
    ) -> None:
        self.tally = Tally()
        self.folder, self.jobs, self.reduces, self.log = folder, jobs, reduces, log
        self.began = time.monotonic()
        self.end = self.began + seconds
        self.reducing = threading.Lock()

    def run(self, items: Iterator[Item], *, last: bool = False) -> None:
        lock = threading.Lock()

        def next_item() -> Item | None:
            with lock:
                return None if time.monotonic() > self.end else next(items, None)

        def serve() -> None:
            worker, fresh = Worker(), Worker()
            try:
                while (item := next_item()) is not None:
                    is_fresh = item.seed % FRESH == 0 and item.door.carry != "elsewhere"
                    self.check(fresh if is_fresh else worker, item, last, is_fresh)
            finally:
                worker.stop()
                fresh.stop()

        with ThreadPoolExecutor(self.jobs) as pool:
            served = [pool.submit(serve) for _ in range(self.jobs)]
            while not all(each.done() for each in served):
                time.sleep(1)
                if int(time.monotonic() - self.began) % 20 == 0:
                    self.progress()
            for each in served:
                each.result()
        self.progress()

    def check(self, worker: Worker, item: Item, last: bool, fresh: bool = False) -> None:
        more = {"fresh": True} if fresh else {}
        line = to_line(item, **more)
        known = self.log.known.get(line) if self.log else None
        answer = known or worker.ask(line)
        before, found = self.tally.add(item, answer, last), None
        if answer["verdict"] == "differs" and before is None:
            if known and "found" in known:
                made = known["found"]
                found = Found(**{**made, "features": frozenset(made["features"])})
            else:
                with self.reducing:
                    found = self.reduce(worker, item, answer, self.tally.programs, more)
            with self.tally.lock:
                self.tally.found.append(found)
            print(f"{found.path}: {item.door}: {found.kind}", file=sys.stderr, flush=True)
        if self.log and not known:
            self.log.add(line, answer, found)

    def reduce(
        self, worker: Worker, item: Item, answer: dict[str, Any], after: int, more: dict[str, Any]
    ) -> Found:
        kind = answer["kind"]
        if not self.reduces:
            return Found(kind, item.door.make, frozenset(item.features), str(after), after)
        if more or kind.startswith("the process"):
            small = reduced(
                item, kind, lambda each: worker.ask(to_line(each, **more))["kind"] == kind
            )
            outcome = Outcome("differs", kind, answer["detail"])
            path = write(self.folder, small, small.program().source, outcome)
            return Found(kind, item.door.make, frozenset(small.features), str(path), after)
        small_one = worker.ask(to_line(item, reduce=kind, folder=str(self.folder)))
        features = frozenset(small_one.get("features", item.features))
        return Found(kind, item.door.make, features, small_one.get("path", ""), after)

    def progress(self) -> None:
        tally = self.tally
        rate = tally.programs / (time.monotonic() - self.began)
        covered = sum(map(len, tally.covered.values()))
        print(
            f"{tally.programs} programs, {rate:.1f}/s, {covered} pairs at doors, "
            f"{len(tally.found)} kinds differ",
            file=sys.stderr,
            flush=True,
        )


def _later(seed: int, refused: set[tuple[str, str]]) -> Iterator[Item]:
    """The pairs, when it is known what is refused alone."""
    yield from plan.pairwise(seed, refused)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/pairs", description=__doc__)
    parser.add_argument("--programs", type=int, default=0, help="at most so many; 0: all pairs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most so long")
    parser.add_argument("--folder", type=Path, default=Path("pairs-failures"))
    parser.add_argument(
        "--resume", action="store_true", help="go on with what log.jsonl in the folder has"
    )
    parser.add_argument("--feature", action="append", help="only programs with all of these")
    parser.add_argument("--make", action="append", help="only doors of these makes")
    parser.add_argument("--by-chance", action="store_true", help="no pairs: triples by chance")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return 0

    def chosen(items: Iterator[Item]) -> Iterator[Item]:
        for item in items:
            has_all = set(options.feature or ()) <= set(item.features)
            if has_all and (not options.make or item.door.make in options.make):
                yield item

    log = Log(options.folder / "log.jsonl", options.resume)
    campaign = Campaign(options.folder, options.jobs, options.seconds, log=log)
    most = options.programs or None

    def rest() -> int | None:
        return most - campaign.tally.programs if most else None

    if not options.by_chance:
        pairs = _later(options.seed, campaign.tally.refused)
        items = chosen(itertools.chain(plan.singles(options.seed), pairs))
        campaign.run(itertools.islice(items, most))
        if not (options.feature or options.make):
            left = plan.alone(campaign.tally.left(), options.seed)
            campaign.run(itertools.islice(left, rest()), last=True)
    if options.by_chance or rest():
        campaign.run(itertools.islice(chosen(plan.by_chance(options.seed)), rest()))
    print(campaign.tally.report())
    return 1 if campaign.tally.found else 0


if __name__ == "__main__":
    sys.exit(main())
