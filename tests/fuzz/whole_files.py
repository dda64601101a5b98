"""Commands that write a file, killed at random moments and on full disks, over an older good file.

    PYTHONPATH=tests:. python -m fuzz.whole_files --kills 200 --sizes 50
    PYTHONPATH=tests:. python -m fuzz.whole_files --sizes 50 --disk FOLDER

Each command runs in a process of its own, which is forked. Afterwards the file is the old one or
the new one. A full disk is a limit of the size of files; with ``--disk`` it is a small file system,
such as a tmpfs of 16 MiB, which is filled up until so many bytes are left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch._inductor.cpp_builder  # these here, and not in each child
import torch.export.pt2_archive._package

from jit_amp._base import whole_files
from jit_amp._cli import explain, export, freeze, tune  # noqa: F401
from jit_amp._cli.main import main

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=64):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(64, width), torch.nn.Linear(width, 64)

    def forward(self, x: torch.Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.second(self.first(x))

def wide():
    return Net(128)
"""
_INPUT = ("--input", "float32[2,64]")
_TUNE = ("--dtype", "bfloat16", "--tolerance", "1")


@dataclass(frozen=True)
class Command:
    """A command whose last argument is the file, or the folder, that it writes."""

    name: str
    options: tuple[str, ...]
    output: str
    files: tuple[str, ...] = field(default=())

    def run(self, model: str, folder: Path) -> int:
        before, *options = self.options
        return main(
            [before, f"{folder}/net.py:{model}", *_INPUT, *options, f"{folder}/{self.output}"]
        )

    def contents(self, folder: Path) -> tuple[bytes | None, ...]:
        paths = [folder / each for each in self.files or (self.output,)]
        return tuple(path.read_bytes() if path.exists() else None for path in paths)


COMMANDS = [
    Command("freeze", ("freeze", "-o"), "net.pt"),
    Command("freeze --lite", ("freeze", "--lite", "-o"), "net.ptl"),
    Command(
        "freeze --triton",
        ("freeze", "--io-dtype", "float32", "--triton", "-o"),
        "net",
        ("net/1/model.pt", "net/config.pbtxt"),
    ),
    Command("export", ("export", "-o"), "net.pt2"),
    Command("explain --html", ("explain", "--html"), "page.html"),
    Command("tune -o", ("tune", *_TUNE, "-o"), "precision.json"),
    Command("tune --html", ("tune", *_TUNE, "--html"), "precision.html"),
    Command("tune --resume", ("tune", *_TUNE, "--resume"), "measured.json"),
]


@dataclass
class Ended:
    """How a command ended: its exit status, negative for a signal, and what it said."""

    status: int
    said: str
    seconds: float
    writing: float
    """Seconds from the first file that was begun to the end."""


def forked(run: Callable[[], int], kill: Callable[[int], None] | None = None) -> Ended:
    """Runs something in a child. `kill` is given what tells, by a byte, that a file is begun."""
    read, write = os.pipe()
    said, says = os.pipe()  # no file, of which the size could be limited
    with open(said, "rb") as output:
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            status = 70
            try:
                os.close(read)
                os.dup2(says, 1)
                os.dup2(says, 2)
                # pytest's are files, of a limited size too.
                sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
                sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
                torch.set_num_threads(1)
                original = whole_files.Part.begin

                def begun(part: whole_files.Part) -> None:
                    os.write(write, b".")
                    original(part)

                whole_files.Part.begin = begun  # type: ignore[method-assign]
                status = run()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        os.close(write)
        os.close(says)
        started = begin
        if kill is not None:
            kill(read)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        elif os.read(read, 1):
            started = time.monotonic()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        end = time.monotonic()
        os.close(read)
        return Ended(status, output.read().decode(errors="replace"), end - begin, end - started)


@dataclass
class Result:
    """What a command left: how often the old file, the new one, and what else."""

    command: str
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counted = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return f"{self.command:16}  {counted}; wrong {len(self.wrong)}"


class Scene:
    """A folder with a model and the older file that a command has written of it."""

    def __init__(self, command: Command, folder: Path) -> None:
        self.command, self.folder = command, folder
        (folder / "net.py").write_text(MODEL)
        self.is_resumed = "--resume" in command.options
        self._made("Net" if self.is_resumed else "wide")
        if self.is_resumed:
            self._forget_one()
        self._old = self._kept("old")
        self.old = command.contents(folder)
        if not self.is_resumed:
            self._remove()
        ended = self._made("Net")
        self.new = command.contents(folder)
        self.seconds, self.writing = ended.seconds, ended.writing
        assert None not in (*self.old, *self.new) and self.old != self.new

    def _made(self, model: str) -> Ended:
        ended = forked(lambda: self.command.run(model, self.folder))
        assert ended.status == 0, ended.said
        return ended

    def _forget_one(self) -> None:
        path = self.folder / self.command.output
        held = json.loads(path.read_text())
        path.write_text(json.dumps({**held, "measured": held["measured"][:-1]}))

    def _kept(self, name: str) -> Path:
        kept = self.folder / f"kept-{name}"
        path = self.folder / self.command.output
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, kept)
        return kept

    def _remove(self) -> None:
        path = self.folder / self.command.output
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()

    def put_old(self) -> None:
        """The older file, and nothing else."""
        self._remove()
        path = self.folder / self.command.output
        (shutil.copytree if self._old.is_dir() else shutil.copy2)(self._old, path)

    def run(self, kill: Callable[[int], None] | None = None, limit: int | None = None) -> Ended:
        def limited() -> int:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            return self.command.run("Net", self.folder)

        return forked(limited, kill)

    def look(self, result: Result) -> str:
        """Whether there is the old file or the new one; notes what else there is."""
        now = self.command.contents(self.folder)
        which = "old" if now == self.old else "new" if now == self.new else "third"
        known = {"net.py", "__pycache__", self._old.name, self.command.output}
        left = sorted({each.name for each in self.folder.iterdir()} - known)
        for each in left:
            (self.folder / each).unlink()
        result.counts["left beside it"] += len(left)
        if which == "third":
            result.wrong.append(f"{[each and len(each) for each in now]} bytes")
        result.counts[which] += 1
        return which


def killed(scene: Scene, kills: int, rng: random.Random) -> Result:
    """Half of the kills come while the file is written, the others at any moment."""
    result = Result(scene.command.name)
    for number in range(kills):
        at = rng.random()

        def kill(read: int, number: int = number, at: float = at) -> None:
            if number % 2:
                time.sleep(at * scene.seconds)
            elif os.read(read, 1):
                time.sleep(at * scene.writing)

        scene.put_old()
        ended = scene.run(kill)
        result.counts["killed"] += ended.status == -signal.SIGKILL
        scene.look(result)
    return result


def on_full_disks(scene: Scene, sizes: int, disk: Path | None) -> Result:
    """Each size of the disk, from nothing to more than the file takes."""
    result = Result(scene.command.name)
    largest = max(len(each or b"") for each in scene.new)
    for number in range(sizes):
        size = largest * number // max(1, sizes - 2)
        scene.put_old()
        with _filled(disk, size) if disk else contextlib.nullcontext():
            ended = scene.run(limit=None if disk else size)
        which = scene.look(result)
        lines = ended.said.strip().splitlines()
        told = [line for line in lines if "could not be written" in line]
        is_resume = scene.command.name == "tune --resume"
        if which == "old" and ended.status != 0:
            output = scene.command.output
            if (
                ended.status < 0
                or len(told) != 1
                or output not in told[0]
                or "Traceback" in ended.said
            ):
                result.wrong.append(f"{size} bytes: status {ended.status}: {ended.said[:300]}")
        elif not is_resume and (which == "old") == (ended.status == 0):
            result.wrong.append(f"{size} bytes: status {ended.status}, {which}: {ended.said[:300]}")
    return result


@contextlib.contextmanager
def _filled(disk: Path, left: int) -> Iterator[None]:
    """A file system with so many bytes left."""
    filler = disk / "filler"
    with filler.open("wb") as file, contextlib.suppress(OSError):
        free = os.statvfs(disk)
        file.write(b"\0" * max(0, free.f_bavail * free.f_frsize - left))
    try:
        yield
    finally:
        filler.unlink()


def scene_of(command: Command, folder: Path) -> Scene:
    made = folder / command.name.replace(" ", "")
    made.mkdir()
    return Scene(command, made)


def _run() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--sizes", type=int, default=0)
    parser.add_argument("--disk", type=Path, help="a small file system, to be filled up")
    parser.add_argument("--command", help="only those with this in their name", default="")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    wrong = 0
    torch.export.export(torch.nn.Linear(2, 2), (torch.rand(2, 2),))  # which imports a lot
    with tempfile.TemporaryDirectory(dir=given.disk) as folder:
        for command in COMMANDS:
            if given.command not in command.name:
                continue
            scene = scene_of(command, Path(folder))
            results = [killed(scene, given.kills, rng)] if given.kills else []
            results += [on_full_disks(scene, given.sizes, given.disk)] if given.sizes else []
            for result in results:
                print(result, flush=True)
                for each in result.wrong[:5]:
                    print(f"  {each}")
                wrong += len(result.wrong)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(_run())
