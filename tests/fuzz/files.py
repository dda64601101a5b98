"""Damaged files of models, given to jit_amp: what plain PyTorch survives, jit_amp survives.

Bits are flipped in an archive or in one of its records, ends are cut off, records are swapped, and
in half of the cases it is the debug information alone that is damaged, or names files that are none
of the model's. A file that plain PyTorch loads, runs and freezes is then scripted, frozen,
explained and verified: with the results of the file as it was, where the debug information alone
is another. What is shown has no lines of other files and no control characters.

    scripts/fuzz --files N --seed S
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import os
import pickletools
import random
import resource
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import jit_amp
from jit_amp._cli.main import main as command

from . import saved_models, workers

CASES = workers.Cases("fuzz.files", "files", ("load", "call", "freeze plainly"), hang=120.0)
MEMORY = 16 << 30  # bytes of addresses, so that a tensor of any size raises
SECRET = "hunter2"  # in a file that is none of the model's
MARKUP = "<i>foreign</i>"


@functools.cache
def folder() -> Path:
    """With a file that nobody may open, and a pipe that never ends."""
    made = Path(tempfile.mkdtemp(prefix="jit-amp-fuzz-"))
    (made / "secret.py").write_text(f"password = '{SECRET}'\n" * 200)
    os.mkfifo(made / "pipe.py")
    return made


@functools.cache
def originals() -> dict[str, bytes]:
    return saved_models.files()


def hostile_texts() -> list[bytes]:
    inside = [str(folder() / name) for name in ("secret.py", "pipe.py", ".", "no.py", "")]
    names = [
        *inside, "/etc/passwd", "/dev/zero", "/dev/stdin", "<stdin>", "<string>", "../../passwd",
        "", "\0", "a" * 300, "a" * 70_000, "\x1b]0;owned\x07", "\x1b[2Jnet.py", "a\nb.py",
        "a\rb.py", "\u202enet.py", "\u2066x", "\u2028", "\U000e0041", MARKUP, "</script>",
        f"{MARKUP}.py", 'a.py", line 1\n    x', "<jit_amp cast>",
        "<jit_amp io_dtype of inputs>", "net.py(3): f", f"{folder() / 'secret.py'}(3): f\n",
        torch.__file__, "FORMAT_WITH_STRING_TABLE",
    ]  # fmt: skip
    return [*(name.encode() for name in names), b"\xff\xfe.py", b"\xed\xb2\x80", b"\xc3"]


# What is damaged.


def flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8]) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def spliced(data: bytes, rng: random.Random) -> bytes:
    """Some of it twice, or left out."""
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:b] + data[rng.choice([a, b]) :]


def repickled(data: bytes, rng: random.Random) -> bytes:
    """A text or a number of a pickle is another one."""
    try:
        operations = list(pickletools.genops(data))
    except Exception:  # it is damaged already
        return flipped(data, rng)
    wanted = [
        (op.name, at, end)
        for (op, _, at), (_, _, end) in itertools.pairwise(operations)
        if op.name == "BINUNICODE" or op.name.startswith(("BININT", "LONG"))
    ]
    for name, at, end in sorted(rng.sample(wanted, min(len(wanted), rng.choice([1, 1, 3, 20]))))[
        ::-1
    ]:
        if name == "BINUNICODE":
            text = rng.choice(hostile_texts())
            made = b"X" + len(text).to_bytes(4, "little") + text
        else:
            value = rng.choice([0, 1, 2, 7, 255, 65535, 2**31 - 1, -1, -(2**31)])
            made = b"J" + value.to_bytes(4, "little", signed=True)
        data = data[:at] + made + data[end:]
    return data


DAMAGES: list[Callable[[bytes, random.Random], bytes]] = [
    flipped,
    cut,
    spliced,
    repickled,
    repickled,
]


def records_of(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return {name: file.read(name) for name in file.namelist()}


def archived(records: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, data in records.items():
            file.writestr(name, data)
    return made.getvalue()


@dataclass
class Case:
    name: str
    damage: str
    data: bytes
    is_debug_alone: bool


def make_case(number: int, seed: int) -> Case:
    rng = random.Random(f"{seed}:{number}")
    name, archive = list(originals().items())[number % len(originals())]
    kind = rng.choice(["debug", "debug", "debug", "record", "record", "swapped", "archive"])
    if kind == "archive":
        damage = rng.choice(DAMAGES[:3])
        return Case(name, f"archive {damage.__name__}", damage(archive, rng), False)
    records = records_of(archive)
    debug = [each for each in records if each.endswith(".debug_pkl")]
    chosen = debug if kind == "debug" else list(records)
    if kind == "swapped" or rng.random() < 0.05:
        chosen = rng.choice([debug, chosen]) if len(debug) > 1 else list(records)
        a, b = rng.sample(chosen, 2)
        records[a], records[b] = records[b], records[a]
        text = f"{a} and {b} swapped"
        is_debug_alone = chosen == debug
    else:
        text = ""
        for each in rng.sample(chosen, min(len(chosen), rng.choice([1, 1, 2, 9]))):
            damage = rng.choice(DAMAGES)
            records[each] = damage(records[each], rng)
            text += f"{each} {damage.__name__} "
        is_debug_alone = kind == "debug"
    return Case(name, text.strip(), archived(records), is_debug_alone)


# What comes of it.


def results_of(value: Any) -> list[Any]:
    leaves = torch.utils._pytree.tree_leaves(value)
    return [each if isinstance(each, torch.Tensor) else repr(each) for each in leaves]


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        x.dtype == y.dtype and torch.equal(x.nan_to_num(), y.nan_to_num())
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
        else type(x) is type(y) and not isinstance(x, torch.Tensor) and x == y
        for x, y in zip(a, b, strict=True)
    )


def loaded(data: bytes) -> Any:
    return torch.jit.load(io.BytesIO(data)).eval()


def scripted_results(module: Any) -> list[Any]:
    with torch.no_grad():
        return results_of(jit_amp.script(module)(saved_models.example()))


def frozen_results(module: Any) -> list[Any]:
    with torch.no_grad():
        frozen = jit_amp.freeze(module, example_inputs=(saved_models.example(),))
        return results_of(frozen(saved_models.example()))


@functools.cache
def expected(name: str) -> dict[str, Any]:
    """What the file as it was gives."""
    data = originals()[name]
    is_frozen = name == "frozen"
    return {
        "script": scripted_results(loaded(data)),
        "freeze": [] if is_frozen else frozen_results(loaded(data)),
        "rows": [row.operator for row in explained(loaded(data)).rows],
    }


def explained(module: Any) -> jit_amp.Report:
    with torch.no_grad():
        return jit_amp.explain(module, (saved_models.example(),))


def wrongly_shown(text: str, is_html: bool = False) -> str:
    """What must not be in what is shown."""
    if SECRET in text or "root:x:0" in text:
        return "BAD lines of another file are shown"
    if is_html and MARKUP in text:
        return "BAD markup of a file is in the page"
    unseen = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n"}
    if is_html:
        unseen -= {"\t"}
    return f"BAD shown raw: {sorted(unseen)}" if unseen else ""


def wrong_report(report: jit_amp.Report) -> str:
    page = folder() / f"page-{os.getpid()}.html"
    report.to_html(page)
    again = jit_amp.Report.from_json(report.to_json())
    if again != report:
        return "BAD the report's JSON is another report"
    texts = [str(report.to_text(all=True, width=400)), report.to_json(), report.verdict]
    shown = [wrongly_shown(each) for each in texts]
    return next(filter(None, [*shown, wrongly_shown(page.read_text(), is_html=True)]), "")


def verified(data: bytes) -> str:
    """What ``jit-amp verify`` says of the file beside itself."""
    path = folder() / f"net-{os.getpid()}.pt"
    path.write_bytes(data)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = command(["verify", str(path), str(path), "--plain", "--input", "float32[2,4]"])
    text = out.getvalue() + err.getvalue()
    if wrong := wrongly_shown(text):
        return wrong
    told = "outputs agree" in text or "[JA" in text  # plainly it runs without its scopes
    return "" if status == 0 or told else f"BAD verify: {text[:200]}"


def judge(case: Case, stage: Callable[[str], None]) -> str:
    """What came of it; anything that begins with "BAD" is a bug of jit_amp's."""
    x = saved_models.example()
    freezes = False
    with torch.no_grad():
        try:
            stage("load")
            module = loaded(case.data)
            stage("call")
            module(x)
        except Exception as error:
            return f"PyTorch raises {type(error).__name__}"
        with contextlib.suppress(Exception):
            stage("freeze plainly")
            if case.name != "frozen":
                torch.jit.freeze(module)(x)
            freezes = True
    wanted = expected(case.name) if case.is_debug_alone else {}
    told: list[str] = []

    def tried(what: str, run: Callable[[], Any]) -> Any:
        """Its result; None where it is refused, as nothing but an AutocastError may."""
        stage(what)
        try:
            return run()
        except jit_amp.AutocastError as error:
            told.append(f"{what} refused")
            if wrong := wrongly_shown(str(error).expandtabs()):
                raise AssertionError(wrong) from error
        except Exception as error:
            if freezes or what != "freeze":
                text = f"BAD {what}: {type(error).__name__}: {error}"
                raise AssertionError(text[:400]) from error
            told.append("PyTorch does not freeze it either")
        return None

    try:
        found = tried("script", lambda: scripted_results(loaded(case.data)))
        if found is not None and wanted and not same(found, wanted["script"]):
            return "BAD script: another result"
        if case.name != "frozen":
            found = tried("freeze", lambda: frozen_results(loaded(case.data)))
            if found is not None and wanted and not same(found, wanted["freeze"]):
                return "BAD freeze: another result"
        report = tried("explain", lambda: explained(loaded(case.data)))
        if report is not None:
            # The checks of a frozen module are known by the name of their file.
            rows = [row.operator for row in report.rows]
            if wanted and case.name != "frozen" and rows != wanted["rows"]:
                return "BAD explain: other operators"
            stage("pages")
            if wrong := wrong_report(report):
                return wrong
        stage("verify")
        if wrong := verified(case.data):
            return wrong
    except AssertionError as error:
        return str(error)
    return ", ".join(told) or ("as it was" if wanted else "runs")


def judged(seed: int) -> Callable[[int, workers.Stage], str]:
    """What comes of a case, by its number."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def judge_number(number: int, stage: workers.Stage) -> str:
        stage("make")
        case = make_case(number, seed)
        try:
            return judge(case, stage)
        except Exception as error:  # out of what shows a report, or compares
            return f"BAD {type(error).__name__}: {error}"[:400]

    return judge_number


def show(number: int, seed: int, stage: workers.Stage) -> None:
    """Runs one case, and writes its file here."""
    case = make_case(number, seed)
    Path("damaged.pt").write_bytes(case.data)
    print(case.name, case.damage, "in damaged.pt")
    print(judge(case, stage))


if __name__ == "__main__":
    workers.main(CASES, "Gives damaged files of models to jit_amp.", judged, show)
