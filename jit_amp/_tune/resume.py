"""What `tune` has measured, kept in a file, so that another process goes on with it."""

from __future__ import annotations

import json
import math
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from torch import Tensor

from jit_amp._base import json_records, whole_files
from jit_amp._base.json_records import NOT_NEGATIVE, as_json
from jit_amp._base.trees import leaves


@dataclass(frozen=True)
class _Held:
    of: dict[str, Any]  # what was measured there
    measured: tuple[tuple[tuple[str, ...], Annotated[float, NOT_NEGATIVE]], ...]


class MeasuredFile:
    """What was measured, on disk: written after each evaluation."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._errors: dict[tuple[str, ...], float] = {}
        self._before: dict[str, Any] | None = None  # what was measured there
        self._has_failed = False
        if not self._path.exists():
            return
        try:
            held = json_records.read(_Held, self._path.read_text(encoding="utf-8"), strict=True)
        except ValueError as error:
            raise ValueError(f"resume: {path} is no file of jit_amp.tune's: {error}") from error
        self._before, self._errors = held.of, dict(held.measured)

    def begin(self, of: dict[str, Any]) -> None:
        """Goes on with what was measured, if it was of the same."""
        self._of = json.loads(as_json(of))
        if self._before is None:
            self._write()
            return
        for key, value in self._of.items():
            if not _is_same(self._before.get(key), value):
                raise ValueError(f"resume: {self._path} was measured with another {key}")

    def known(self, key: tuple[str, ...]) -> float | None:
        return self._errors.get(key)

    def add(self, key: tuple[str, ...], error: float) -> None:
        self._errors[key] = error
        try:
            self._write()
        except OSError as failure:  # what was measured until here is not lost for that
            if not self._has_failed:
                self._has_failed = True
                warnings.warn(f"resume: {self._path}: {failure.strerror}", stacklevel=2)

    def _write(self) -> None:
        text = as_json({"of": self._of, "measured": list(self._errors.items())})
        whole_files.write_text(self._path, text)


def sizes_of(outputs: Any) -> list[float]:
    """Of each tensor the sum of what it holds without signs."""
    found = [each for _, each in leaves(outputs) if isinstance(each, Tensor)]
    return [float(each.detach().abs().double().nan_to_num(0.0, 0.0, 0.0).sum()) for each in found]


def _is_same(before: Any, now: Any) -> bool:
    """Returns whether what both runs know of is the same: of numbers, nearly. Functions that only
    one of them has run do not count."""
    if isinstance(before, dict) and isinstance(now, dict):
        return all(before[key] == now[key] for key in before.keys() & now.keys())
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return all(_is_same(a, b) for a, b in zip(before, now, strict=True))
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=1e-3)
    return bool(before == now)
