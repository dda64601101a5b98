"""Puts features together into the source of a module.

`x` runs through the steps one after the other. An around takes a run of them, and arounds that it
holds, inside. A step stands in `forward`, in a method, or in a submodule of its own; which one, and
every order, is the seed's. Outside open scopes `x` is made float32 first, so that each step finds
what it can work with.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from .features import FEATURES, Feature

HEADER = """\
import enum
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.jit import Final
"""
PLACES = ("forward", "forward", "method", "submodule")


@dataclass(frozen=True)
class Composed:
    """A module's source and what a door has to know of it."""

    source: str
    features: tuple[str, ...]
    seed: int

    @property
    def chosen(self) -> list[Feature]:
        return [FEATURES[name] for name in self.features]

    def has(self, name: str) -> bool:
        return name in self.features

    @property
    def traced(self) -> bool:
        return all(each.traced for each in self.chosen)

    @property
    def scripted(self) -> bool:
        return all(each.scripted for each in self.chosen)

    @property
    def cache(self) -> bool:
        return not any(each.two_dtypes for each in self.chosen)

    def refusals(self, frozen: bool) -> set[str]:
        return {
            code
            for each in self.chosen
            for code in (*each.refused_in_process, *(each.refused if frozen else ()))
        }


@dataclass
class _Class:
    """An nn.Module that is being written."""

    init: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)

    def text(self, name: str, rest: list[str]) -> str:
        lines = [f"class {name}(nn.Module):"]
        annotations = [m for m in self.members if not m.lstrip().startswith(("def", "@"))]
        methods = [m for m in self.members if m not in annotations]
        lines += [_indented(each.strip(), 1) for each in annotations]
        lines.append("    def __init__(self) -> None:\n        super().__init__()")
        lines += [_indented(each, 2) for each in self.init if each]
        for each in (*methods, *rest):
            lines += ["", _indented(each.strip("\n"), 1)]
        return "\n".join(lines) + "\n"


@dataclass
class _Around:
    """An around and what it holds."""

    feature: Feature
    items: list[Node]


Node: TypeAlias = "Feature | _Around"


def _indented(text: str, levels: int) -> str:
    return textwrap.indent(text.rstrip("\n"), "    " * levels)


class _Composer:
    def __init__(self, features: list[Feature], seed: int) -> None:
        self.rng = random.Random(f"{seed} {[f.name for f in features]}")
        self.features = features
        self.names = {f.name for f in features}
        self.main = _Class()
        self.tops: list[str] = []
        self.extra: list[str] = []  # names of further results
        self.classes: list[str] = []
        self.helpers: list[str] = []

    def tree(self) -> list[Node]:
        """Steps, and arounds with what they hold."""
        rng = self.rng
        items: list[Node] = [f for f in self.features if f.kind == "step"]
        rng.shuffle(items)
        items.insert(rng.randint(0, len(items)), BASE)
        arounds = [f for f in self.features if f.kind == "around"]
        opens = any(f.inside for f in arounds)
        if not opens and "no scope at all" not in self.names:
            arounds.append(FEATURES["scope of bfloat16"])
        rng.shuffle(arounds)
        for around in arounds:
            start = rng.randint(0, len(items) - 1)
            end = rng.randint(start + 1, len(items))
            if rng.random() < 0.4:
                start, end = 0, len(items)
            items[start:end] = [_Around(around, items[start:end])]
        return items

    def lines(self, items: list[Node], is_open: bool) -> list[str]:
        found: list[str] = []
        for item in items:
            if isinstance(item, Feature):
                found += self.step(item, is_open)
            else:
                found += self.around(item.feature, item.items, is_open)
        return found

    def around(self, feature: Feature, items: list[Node], is_open: bool) -> list[str]:
        inside = is_open if feature.inside is None else feature.inside
        self.adopt(feature, self.main)
        held = self.lines(items, inside) or ["pass"]
        body = feature.body.splitlines()
        found = [] if is_open else ["x = x.float()"]
        for line in body:
            if line.strip() == "$inside":
                indent = line[: len(line) - len(line.lstrip())]
                found += [indent + each for each in held]
            else:
                found.append(line)
        return found

    def adopt(self, feature: Feature, owner: _Class) -> None:
        if feature.init and feature.init not in owner.init:
            owner.init.append(feature.init)
        if feature.members:
            owner.members.append(feature.members)
        if feature.top and feature.top not in self.tops:
            self.tops.append(feature.top)

    def step(self, feature: Feature, is_open: bool) -> list[str]:
        body = feature.body.splitlines()
        if (feature.scope == "in") and not is_open:
            body = [
                'with torch.autocast("cpu", dtype=torch.bfloat16):',
                *("    " + b for b in body),
            ]
        before = [] if is_open and feature.scope != "in" else ["x = x.float()"]
        if feature.scope == "out" and is_open:
            before = []
            body = [
                'with torch.autocast("cpu", enabled=False):',
                "    x = x.float()",
                *("    " + b for b in body),
            ]
        if is_open and feature.scope == "in":
            before = []
        place = self.rng.choice(PLACES)
        if "forward that calls methods" in self.names and place == "forward":
            place = "method"
        if "everything in a submodule" in self.names:
            place = "submodule"
        if feature.direct or not body or feature is BASE or "x_given" in feature.body:
            place = "forward"
        extra = any("$o" in line for line in body)
        n = len(self.extra)
        name = f"o{n}"
        if extra:
            self.extra.append(name)
        if place == "forward":
            self.adopt(feature, self.main)
            return before + [line.replace("$o", name) for line in body]
        body = [line.replace("$o", "o") for line in body]
        result, annotation = ("x, o", "Tuple[Tensor, Tensor]") if extra else ("x", "Tensor")
        target = f"x, {name}" if extra else "x"
        start = ["o = x"] if extra else []
        self.helpers.append("")
        number = len(self.helpers)
        inner = "\n".join([*start, *body, f"return {result}"])
        if place == "method":
            self.adopt(feature, self.main)
            self.main.members.append(
                f"def part_{number}(self, x: Tensor) -> {annotation}:\n{_indented(inner, 1)}\n"
            )
            return [*before, f"{target} = self.part_{number}(x)"]
        part = _Class()
        self.adopt(feature, part)
        forward = f"def forward(self, x: Tensor) -> {annotation}:\n{_indented(inner, 1)}\n"
        self.classes.append(part.text(f"Part{number}", [forward]))
        self.main.init.append(f"self.part_{number} = Part{number}()")
        return [*before, f"{target} = self.part_{number}(x)"]

    def composed(self) -> str:
        for feature in self.features:
            if feature.kind == "setting":
                self.adopt(feature, self.main)
        body = self.lines(self.tree(), False)
        if "no scope at all" in self.names:
            body = [*FEATURES["no scope at all"].body.splitlines(), *body]
        start = [f"{name} = x" for name in self.extra]
        if "write to the input" in self.names:
            start.append("x_given = x")
        arguments = [a for f in self.features for a in f.args]
        arguments.sort(key=lambda a: "=" in a[0])
        given = [a for a in arguments if a[1]]
        late = [a for a in arguments if not a[1]]
        # An argument that is not given comes after those that are.
        order = [*given, *late]
        if any("=" not in a[0] for a in late):
            raise ValueError(f"an argument without a value: {late}")
        seen_default = False
        declared = ["self", "x: Tensor"]
        for text, *_ in order:
            seen_default = seen_default or "=" in text
            declared.append(text)
        result, annotation = self.result()
        lines = [*start, *body, result]
        forward = f"def forward({', '.join(declared)}){annotation}:\n"
        forward += _indented("\n".join(lines), 1)
        program = self.main.text("Program", [forward])
        return (
            "\n\n".join(
                part.strip("\n")
                for part in (
                    HEADER,
                    *self.tops,
                    *self.classes,
                    program,
                    self.outer(given, annotation),
                    self.inputs(given),
                    *self.company(),
                )
            )
            + "\n"
        )

    def result(self) -> tuple[str, str]:
        names = ["x", *self.extra]
        if "dictionary result" in self.names:
            pairs = ", ".join(f'"{name}": {name}' for name in names)
            return f"return {{{pairs}}}", " -> Dict[str, Tensor]"
        if "list result" in self.names:
            return f"return [{', '.join(names)}]", " -> List[Tensor]"
        if "NamedTuple result" in self.names:
            fields = "\n".join(f"    {name}: Tensor" for name in names)
            self.tops.append(f"class Result(NamedTuple):\n{fields}\n")
            return f"return Result({', '.join(names)})", " -> Result"
        if len(names) == 1:
            return "return x", " -> Tensor"
        return f"return {', '.join(names)}", f" -> Tuple[{', '.join(['Tensor'] * len(names))}]"

    def outer(self, given: list[tuple[str, str, str]], annotation: str) -> str:
        """A module that holds the program, with a scope of its own."""
        declared = ", ".join(["self", "x: Tensor", *(a[0].partition(" = ")[0] for a in given)])
        passed = ", ".join(["x", *(a[0].partition(":")[0] for a in given)])
        return f"""
class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.outer, self.inner = nn.Linear(4, 4), inner

    def forward({declared}){annotation}:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.outer(x)
        x = x + y.to(x.dtype)
        return self.inner({passed})
"""

    def company(self) -> Iterator[str]:
        """What is done to a module from outside."""
        if after := [f.after for f in self.features if f.after]:
            yield "def after(m):\n" + _indented("\n".join(after), 1)
        if by_name := [f.by_name for f in self.features if f.by_name]:
            calls = "".join(f"        {each},\n" for each in by_name)
            yield f"def by_name(m, x):\n    return [\n{calls}    ]"

    def inputs(self, given: list[tuple[str, str, str]]) -> str:
        def x(rows: int) -> str:
            made = f"torch.rand({rows}, 4)"
            if "input with other strides" in self.names:
                made = f"torch.rand(4, {rows}).t()"
            if "input of bfloat16" in self.names:
                made += ".bfloat16()"
            if "input that requires grad" in self.names:
                made += ".requires_grad_()"
            return made

        example = ", ".join([x(3), *(a[1] for a in given)])
        others = [
            ", ".join([x(rows), *(a[which] for a in given)]) for rows, which in ((5, 2), (1, 1))
        ]
        if "empty input" in self.names:
            others[1] = ", ".join([x(0), *(a[1] for a in given)])
        lines = "".join(f"        ({other},),\n" for other in others)
        return (
            f"def inputs():\n    return ({example},)\n\n\n"
            f"def others():\n    return [\n{lines}    ]\n"
        )


BASE = Feature("base", "x = self.base(x)", "self.base = nn.Linear(4, 4)")


def compose(names: tuple[str, ...], seed: int) -> Composed:
    """The module of these features; the same for the same seed."""
    features = [FEATURES[name] for name in names]
    return Composed(_Composer(features, seed).composed(), tuple(names), seed)
