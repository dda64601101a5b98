"""Compiles and freezes models of libraries, and compares what they give with eager."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import signal
import sys
import time
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

import torch  # noqa: E402
from catalog import LIBRARIES, Model, catalog  # noqa: E402
from compare import COLUMNS, FORMS, RIVALS, Miss, Skip, cause_of, compare  # noqa: E402


@dataclass
class Row:
    library: str
    name: str
    family: str
    seconds: float = 0.0
    skipped: str = ""
    doing: str = ""
    misses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Those of each form that was compared."""
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return not self.skipped and all(cell(self, form)[0] in "o(" for form in self.misses)

    def take(self, key: str, value: Any) -> None:
        if key in ("doing", "skipped"):
            setattr(self, key, value)
        elif key in COLUMNS:
            self.misses[key] = value
        else:
            self.numbers[key] = value

    def ended(self, cause: str) -> None:
        """The process ended before its work."""
        if self.doing in COLUMNS:
            self.misses[self.doing] = [asdict(Miss("process", cause))]
        elif self.doing in RIVALS:
            self.numbers[self.doing] = 0.0
        else:
            self.skipped = f"{self.doing}: {cause}"


def work(
    model: Model,
    pipe: Connection,
    memory: int,
    seconds: int,
    forms: list[str] | None,
    with_rivals: bool,
) -> None:
    """The process of one model."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    torch.set_num_threads(1)
    try:
        compare(model, lambda k, v: pipe.send((k, v)), forms or COLUMNS, with_rivals)
    except Skip as reason:
        pipe.send(("skipped", str(reason)))
    except MemoryError as error:
        pipe.send(("ended", cause_of(error)))
    except Exception as error:
        pipe.send(("ended", f"{type(error).__name__}: {cause_of(error)}"))
    pipe.send(("done", True))


class Running:
    def __init__(self, model: Model, options: argparse.Namespace) -> None:
        self.row = Row(model.library, model.name, model.family)
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context("fork").Process(
            target=work,
            args=(
                *(model, theirs, int(options.memory * 2**30), options.seconds),
                *(options.form, options.rivals),
            ),
        )
        self.process.start()
        theirs.close()
        self.start = time.monotonic()
        self.end = self.start + 20 * options.seconds
        self.done = False

    def read(self) -> bool:
        """What there is to read. Returns whether the process is over."""
        try:
            while self.pipe.poll():
                key, value = self.pipe.recv()
                if key == "done":
                    self.done = True
                elif key == "ended":
                    self.row.ended(value)
                else:
                    self.row.take(key, value)
        except EOFError:
            self.process.join()
            if not self.done:
                code = self.process.exitcode or 0
                self.row.ended("time limit" if -code == signal.SIGXCPU else f"ended with {code}")
            return self.over()
        if time.monotonic() > self.end:
            self.process.kill()
            self.process.join()
            self.row.ended("time limit")
            return self.over()
        return False

    def over(self) -> bool:
        self.row.seconds = time.monotonic() - self.start
        self.pipe.close()
        return True


def logged(options: argparse.Namespace) -> list[Row]:
    """What earlier runs have left in the log."""
    lines = options.log.read_text().splitlines() if options.log and options.log.exists() else []
    return [Row(**json.loads(line)) for line in lines]


def run(models: list[Model], options: argparse.Namespace) -> list[Row]:
    known = {(row.library, row.name): row for row in logged(options)}
    rows = [known[key] for model in models if (key := (model.library, model.name)) in known]
    waiting = [model for model in models[::-1] if (model.library, model.name) not in known]
    running: list[Running] = []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            running.append(Running(waiting.pop(), options))
        wait([one.pipe for one in running], timeout=1)
        for one in [one for one in running if one.read()]:
            running.remove(one)
            rows.append(one.row)
            if options.log:
                with options.log.open("a") as log:
                    log.write(json.dumps(asdict(one.row)) + "\n")
            print(f"[{len(rows)}/{len(models)}] {line(one.row)}", file=sys.stderr, flush=True)
    order = {(model.library, model.name): i for i, model in enumerate(models)}
    return sorted(rows, key=lambda row: order[row.library, row.name])


def line(row: Row) -> str:
    if row.skipped:
        state = f"skipped, {row.skipped}"
    else:
        forms: dict[str, list[str]] = defaultdict(list)
        for form, misses in row.misses.items():
            for miss in misses:
                forms[what(miss)].append(form)
        state = "; ".join(
            f"{'all frozen' if found == list(FORMS) else ', '.join(found)}: {cause}"
            for cause, found in forms.items()
        )
    return f"{row.library} {row.name} ({row.seconds:.0f} s): {state or 'right'}"


def what(miss: dict[str, Any]) -> str:
    return f"{miss['stage']}{' (without autocast too)' * miss['is_pytorchs']}: {miss['cause']}"


def cell(row: Row, form: str) -> str:
    """ "ok", or where it missed; in parentheses where PyTorch's own freezing misses too."""
    if form not in row.misses:
        return "-"
    stages = [
        f"({miss['stage']})" if miss["is_pytorchs"] else miss["stage"]
        for miss in sorted(row.misses[form], key=lambda miss: miss["is_pytorchs"])
    ]
    return " ".join(stages) or "ok"


def number(row: Row, key: str, form: str = "d") -> str:
    return format(row.numbers[key], form) if key in row.numbers else "-"


def table(rows: list[Row]) -> str:
    """One line per model that torch.jit.script takes; of what has gone wrong, where."""
    heads = [
        rows[0].library, *COLUMNS, "bytes a parameter", "casts, example", "casts", "twice",
        "off", "eager's", "explain / eager", "seconds"
    ]  # fmt: skip
    lines = [
        [
            row.name,
            *(cell(row, form) for form in COLUMNS),
            number(row, "folded, example: bytes", ".2f"),
            number(row, "folded, example: casts"),
            number(row, "folded: casts"),
            number(row, "folded, example: twice"),
            number(row, "folded, example: off", ".1e"),
            number(row, "eager: off", ".1e"),
            number(row, "explained: times", ".1f"),
            f"{row.seconds:.0f}",
        ]
        for row in rows
        if not row.skipped
    ]
    return aligned([heads, *lines])


def overview(rows: list[Row]) -> str:
    """A line per library: the models that PyTorch compiles, and how many are right in each form."""
    rivals = [rival for rival in RIVALS if any(rival in row.numbers for row in rows)]
    lines = [["library", "models", "compiled", *COLUMNS, *rivals]]
    for library in dict.fromkeys(row.library for row in rows):
        own = [row for row in rows if row.library == library]
        taken = [row for row in own if not row.skipped]
        right = [sum(cell(row, form)[0] in "o(" for row in taken) for form in COLUMNS]
        others = [sum(row.numbers.get(rival, 0) > 0 for row in taken) for rival in rivals]
        lines.append([library, *map(str, (len(own), len(taken), *right, *others))])
    return aligned(lines)


def summary(rows: list[Row]) -> str:
    lines: list[str] = []
    by_cause: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        for misses in row.misses.values():
            for miss in misses:
                by_cause[what(miss)][f"{row.library}/{row.name}"] = None
    for cause, names in sorted(by_cause.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(names):4} {cause}: {' '.join(list(names)[:4])}")
    for row in rows:
        if row.skipped:
            lines.append(f"skipped {row.library}/{row.name}: {row.skipped}")
    return "\n".join(lines)


def aligned(lines: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(cells, widths, strict=True)).rstrip()
        for cells in lines
    )


def of_library(library: str, options: argparse.Namespace) -> list[Row]:
    try:
        models = catalog(library, options.models)[: options.limit]
    except Exception as error:
        return [Row(library, "all", "", skipped=f"import: {type(error).__name__}: {error}")]
    return run(models, options)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/zoo", description=__doc__)
    parser.add_argument(
        "--library", choices=["all", *LIBRARIES], action="append", help="without it, all"
    )
    parser.add_argument("--models", metavar="GLOB", default="*", help="those whose names match")
    parser.add_argument(
        "--form", choices=COLUMNS, action="append", help="what is compared; without it, all"
    )
    parser.add_argument(
        "--rivals", action="store_true", help="other ways to an ExportedProgram too"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="the first N of each library")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--json", type=Path, metavar="PATH", help="writes everything known there")
    parser.add_argument(
        "--log", type=Path, metavar="PATH", help="adds each model there; those there are not run"
    )
    parser.add_argument("--seconds", type=int, default=900, help="processor time of a model")
    parser.add_argument("--memory", type=float, default=14, metavar="GIB", help="limit of a model")
    options = parser.parse_args()
    chosen = options.library or ["all"]
    rows: list[Row] = []
    for library in LIBRARIES if "all" in chosen else chosen:
        # What a library changes of PyTorch when it is imported is for its own models.
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
            rows += process.submit(of_library, library, options).result()
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    tables = [
        table([row for row in rows if row.library == library])
        for library in dict.fromkeys(row.library for row in rows)
    ]
    print(*tables, overview(rows), summary(rows), sep="\n\n")
    return any(not row.skipped and not row.is_right for row in rows)


if __name__ == "__main__":
    sys.exit(main())
