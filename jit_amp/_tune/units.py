"""The units of a search, as one run under autocast has told of them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from jit_amp._base import source_lines
from jit_amp._precision import in_float32
from jit_amp._precision.reads import Read
from jit_amp._precision.records import Line, Sensitivity
from jit_amp._tune import reasons
from jit_amp._tune.profile import Profile
from jit_amp._tune.search import Unit


class Units:
    """What can stay in float32, by name, in the order of the model."""

    def __init__(self, model: nn.Module, seen: Profile, dtype: torch.dtype) -> None:
        order = {name: i for i, name in enumerate(in_float32.modules_of(model))}
        parts = sorted(seen.with_operators(), key=lambda part: (order.get(part.name, 0), part.name))
        self.parts = {part.name: part for part in parts}
        self.all = [
            Unit(part.name, i, frozenset(part.operators), part.badness, part.work)
            for i, part in enumerate(parts)
        ]
        self._by_name = {unit.name: unit for unit in self.all}
        self._works, self._reads, self._dtype = seen.works, seen.reads, dtype
        operators = {number for part in parts for number in part.operators}
        self._total = sum(self._works[number] for number in operators)

    def saved(self, names: Iterable[str]) -> float:
        """The share of what autocast saves that is left with these in float32."""
        kept = {number for name in names for number in self._by_name[name].operators}
        return 1 - sum(self._works[n] for n in kept) / self._total if self._total else 1.0

    def sensitivities(self) -> tuple[Sensitivity, ...]:
        limit = self._total or 1.0
        return tuple(
            Sensitivity(
                unit.name,
                math.inf if unit.badness[0] else unit.badness[1],
                reasons.of_unit(self.parts[unit.name], self.parts.values(), self._dtype),
                unit.work / limit,
                self.parts[unit.name].has_scopes,
            )
            for unit in self.all
        )

    def lines(self, kept: Iterable[str]) -> tuple[Line, ...]:
        """The source lines of the units' own operators."""
        kept = set(kept)
        around: dict[int, list[str]] = {}
        for part in self.parts.values():
            for number in part.operators:
                around.setdefault(number, []).append(part.name)
        found: dict[tuple[str, int], tuple[dict[str, None], dict[str, None]]] = {}
        for part in self.parts.values():
            for number, at in part.lines.items():
                own, within = found.setdefault(at, ({}, {}))
                own[part.name] = None
                within |= dict.fromkeys(around[number])
        return tuple(
            Line(
                in_float32.shown_file(file),
                line,
                tuple(own),
                not kept.isdisjoint(within),
                tuple(read.reduced),
                tuple(read.hidden),
                source_lines.line(file, line),
                tuple(within),
            )
            for (file, line), (own, within) in sorted(found.items())
            for read in [self._reads.get((file, line), Read())]
        )
