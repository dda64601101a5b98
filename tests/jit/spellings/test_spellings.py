"""Scopes as public projects write them: eager's results, or a refusal at the line of the scope."""

from __future__ import annotations

import copy
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import jit_amp

from ..support import assert_parity, assert_same, known_warnings_ignored, tree_map
from . import models

X = torch.rand(2, 8, generator=torch.Generator().manual_seed(1)) - 0.5
ROWS = {
    int(row[1]): row[2]
    for row in re.finditer(
        r"^\| (\d+) \|.*\| (\w+) \|$", (Path(__file__).parent / "README.md").read_text(), re.M
    )
}


def _unit(number: int) -> Any:
    """The model of a row, or the function."""
    names = [name for name in vars(models) if re.match(rf"(S{number:02}_|fn_{number}\b)", name)]
    found = getattr(models, *names)
    torch.manual_seed(0)
    with known_warnings_ignored():
        return found().eval() if inspect.isclass(found) else found


def _numbers(expected: str) -> list[int]:
    return [number for number, what in ROWS.items() if what == expected]


def test_the_sample_is_large() -> None:
    assert len(ROWS) >= 100 and len(_numbers("taken")) >= 0.9 * len(ROWS)


@pytest.mark.parametrize("number", _numbers("taken"))
def test_a_spelling_is_taken(number: int) -> None:
    assert_parity(_unit(number), (X,), ambients=("none", "cpu_float16", "cpu_off"))


@pytest.mark.parametrize("number", _numbers("taken"))
def test_a_spelling_is_frozen(number: int) -> None:
    unit = _unit(number)
    if not isinstance(unit, torch.nn.Module):
        pytest.skip("a function has no file")
    with known_warnings_ignored():
        frozen = jit_amp.freeze(copy.deepcopy(unit), example_inputs=(X,), optimize_numerics=False)
        with torch.no_grad():
            expected = unit(X)
    for _ in range(3):
        assert_same(frozen(X), tree_map(Tensor.detach, expected), "frozen")


@pytest.mark.parametrize("number", _numbers("refused"))
def test_a_spelling_is_refused_at_its_line(number: int) -> None:
    with pytest.raises(jit_amp.AutocastError) as refused, known_warnings_ignored():
        jit_amp.script(_unit(number))
    assert "with " in str(refused.value) and 'models.py", line ' in str(refused.value)
