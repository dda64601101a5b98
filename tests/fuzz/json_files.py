"""Damaged JSON of precisions and reports: refused with a ValueError, or as good as any other.

Values are others, of other types, of any size and depth; attributes are left out, added or swapped;
or bytes of the text are. What is taken is then printed, written as a page, compared and applied.

    scripts/fuzz --json N --seed S
"""

from __future__ import annotations

import functools
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import jit_amp
from jit_amp._tune.resume import MeasuredFile

from . import files, saved_models, workers

CASES = workers.Cases("fuzz.json_files", "json", ())
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 2**31, 2**70, 0.5, -0.5, 1e300, 1e-320, 10**400, "", "a", "0",
    "NaN", "Infinity", "-Infinity", "float32", "bfloat16", "float16", "cpu", "cuda", "gpu", "mps",
    "module", "function", "line", "a.py:3", "a.py:f", ":", "overflows", [], {}, [[]], [None], [1],
    ["a"], {"a": 1}, {"line": 1}, [0, 0], "x" * 100_000,
]  # fmt: skip


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor):
        return self.last(self.first(x).relu()).softmax(-1)


@functools.cache
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@functools.cache
def originals() -> list[tuple[str, Any]]:
    x = torch.rand(2, 4)
    found: list[tuple[str, Any]] = []
    for units in ("module", "function", "line"):
        tuned = jit_amp.tune(net(), (x,), dtype=torch.bfloat16, tolerance=1e-9, units=units)
        found.append(("precision", json.loads(tuned.to_json())))
    model = saved_models.Net().eval()
    report = jit_amp.explain(
        model, (saved_models.example(),), numerics=True, gradients=True, timing=True
    )
    found.append(("report", json.loads(report.to_json())))
    frozen = jit_amp.freeze(model, example_inputs=(saved_models.example(),))
    report = jit_amp.explain(frozen, (saved_models.example(),))
    found.append(("report", json.loads(report.to_json())))
    path = files.folder() / f"measured-{os.getpid()}.json"
    jit_amp.tune(net(), (x,), dtype=torch.bfloat16, tolerance=1e-9, resume=path)
    found.append(("measured", json.loads(path.read_text())))
    return found


def places_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each list or object in a value, with each of its indices or names."""
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places_of(value[key])


def any_value(rng: random.Random, value: Any) -> Any:
    kind = rng.random()
    if kind < 0.5 and isinstance(value, (str, bool, int, float)):  # of its own type
        return rng.choice([each for each in VALUES if type(each) is type(value)])
    if kind < 0.6:
        return rng.choice(files.hostile_texts()).decode("utf-8", "replace")
    if kind < 0.65 and isinstance(value, (int, float)):
        return -value
    if kind < 0.7:
        return functools.reduce(lambda inner, _: [inner], range(rng.choice([3, 90])), 1)
    return rng.choice(VALUES)


def make_case(number: int, seed: int) -> tuple[str, str]:
    """What it is of, and the text."""
    rng = random.Random(f"{seed}:{number}")
    kind, original = originals()[number % len(originals())]
    value = json.loads(json.dumps(original))
    text = json.dumps(value)
    way = rng.random()
    if way < 0.1:
        damage = rng.choice([files.flipped, files.cut, files.spliced])
        return kind, damage(text.encode(), rng).decode("utf-8", "replace")
    if way < 0.12:
        return kind, rng.choice(["[" * 100_000, '{"a":' * 100_000, "1" * 5000, "NaN", "", "null"])
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        places = list(places_of(value))
        inside, key = rng.choice(places)
        change = rng.random()
        if change < 0.75:
            inside[key] = any_value(rng, inside[key])
        elif change < 0.85 and isinstance(inside, dict):
            inside[rng.choice(["more", "\x1b[2J", "line", "units"])] = inside.pop(key)
        elif change < 0.9:
            del inside[key]
        else:
            other, its = rng.choice(places)
            inside[key] = json.loads(json.dumps(other[its]))
    return kind, json.dumps(value)


def judge(kind: str, text: str, stage: Callable[[str], None]) -> str:
    """What came of it; anything that begins with "BAD" is a bug of jit_amp's."""
    stage("read")
    try:
        taken = {"precision": use_precision, "report": use_report, "measured": use_measured}[kind](
            text
        )
    except ValueError as error:
        if isinstance(error, UnicodeError):
            return f"BAD {type(error).__name__}: {error}"
        return files.wrongly_shown(str(error)) or f"{kind} refused"
    except Exception as error:
        return f"BAD {type(error).__name__}: {error}"[:300]
    return taken or f"{kind} taken"


def use_precision(text: str) -> str:
    x = torch.rand(2, 4)
    with torch.no_grad():
        plain = net()(x)
        found = jit_amp.Precision.from_json(text)
        shown = [files.wrongly_shown(str(found))]
        page = files.folder() / f"precision-{os.getpid()}.html"
        found.to_html(page)
        shown.append(files.wrongly_shown(page.read_text(), is_html=True))
        for use in (found.to_code, lambda model: found.apply(model)(x)):
            try:
                use(net())
            except ValueError:  # such as of a unit that the model has not
                continue
        if not torch.equal(net()(x), plain):
            return "BAD the model is another one"
        jit_amp.script(net(), precision=found)(x)
    return next(filter(None, shown), "")


def use_report(text: str) -> str:
    found = jit_amp.Report.from_json(text)
    page = files.folder() / f"report-{os.getpid()}.html"
    wrong = files.wrong_report(found)
    other = jit_amp.Report.from_json(json.dumps(originals()[3][1]))
    compared = found.compare(other)
    compared.to_html(page)
    shown = [
        files.wrongly_shown(str(compared)),
        files.wrongly_shown(page.read_text(), is_html=True),
        files.wrongly_shown(str(found.summary) + str(found.advice and found.advice.text)),
    ]
    return wrong or next(filter(None, shown), "")


def use_measured(text: str) -> str:
    path = files.folder() / f"damaged-{os.getpid()}.json"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    jit_amp.tune(net(), (torch.ones(2, 4),), dtype=torch.bfloat16, tolerance=1e-9, resume=path)
    MeasuredFile(path)
    return ""


def judged(seed: int) -> Callable[[int, workers.Stage], str]:
    """What comes of a case, by its number."""

    def judge_number(number: int, stage: workers.Stage) -> str:
        stage("make")
        return judge(*make_case(number, seed), stage)

    return judge_number


def show(number: int, seed: int, stage: workers.Stage) -> None:
    """Runs one case, and writes its text here."""
    kind, text = make_case(number, seed)
    Path("damaged.json").write_text(text)
    print(f"a {kind}, in damaged.json")
    print(judge(kind, text, stage))


if __name__ == "__main__":
    workers.main(CASES, "Gives damaged JSON to jit_amp.", judged, show)
