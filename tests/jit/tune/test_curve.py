"""Precision: its curve, the choice of another point, and how it shows itself."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import jit_amp
from jit_amp._tune import metrics

from . import planted

X = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(1)
    return planted.Transformer([300.0, 1.0, 300.0]).eval()


@pytest.fixture(scope="module")
def found(model: nn.Module) -> jit_amp.Precision:
    return jit_amp.tune(model, (X,), dtype=torch.float16, tolerance=5e-4)


def test_the_points(found: jit_amp.Precision) -> None:
    shares = [each.share for each in found.curve]
    errors = [each.error for each in found.curve]
    assert len(found.curve) > 2
    assert shares == sorted(set(shares)) and errors == sorted(set(errors), reverse=True)
    assert errors[0] == float("inf") and found.curve[0].units == ()
    for each in found.measured:
        assert any(p.error <= each.error and p.share <= 1 - each.saved for p in found.curve)
    assert found.error_float32 == 0.0


def test_a_point_measured_again_from_nothing(model: nn.Module, found: jit_amp.Precision) -> None:
    with torch.no_grad():
        with torch.autocast("cpu", enabled=False):
            reference = model(X)
        for point in found.curve:
            error = metrics.relative_error(found.choose(point).apply(model)(X), reference)
            assert error == point.error


def test_a_choice(model: nn.Module, found: jit_amp.Precision) -> None:
    loose = found.choose(tolerance=0.01)
    assert loose.error <= 0.01 == loose.tolerance and loose.saved > found.saved
    assert [each.unit for each in loose.kept] == [*loose.units]
    assert all(each.error_with == loose.error for each in loose.kept)
    assert loose.kept[0].why == next(
        each.why for each in found.sensitivities if each.unit == loose.units[0]
    )
    largest = found.curve[-1]
    assert found.choose(share=1.0).units == found.choose(largest).units
    assert found.choose(share=0).units == ()
    assert not any(each.stays for each in found.choose(share=0).lines)
    again = found.choose(next(p for p in found.curve if {*p.units} == {*found.units}))
    assert dataclasses.replace(again, tolerance=found.tolerance) == found
    assert jit_amp.Precision.from_json(loose.to_json()).to_json() == loose.to_json()
    with torch.no_grad():
        expected = loose.apply(model)(X)
        assert torch.equal(jit_amp.script(model, precision=loose)(X), expected)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({}, TypeError, "takes a point"),
        ({"tolerance": 0.1, "share": 0.1}, TypeError, "takes a point"),
        ({"point": 3}, TypeError, "point: 3 is not a point"),
        ({"tolerance": "a"}, TypeError, "'a' is not a number"),
        ({"tolerance": -1.0}, ValueError, "no set that was measured has an error of at most -1"),
        ({"share": -1.0}, ValueError, "share: -1.0 is less than 0"),
    ],
)
def test_wrong_choices(found: jit_amp.Precision, given: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        found.choose(**given)
    other = dataclasses.replace(found, curve=())
    with pytest.raises(ValueError, match="not one of this precision's curve"):
        other.choose(found.curve[0])


def test_json_and_the_page(found: jit_amp.Precision, tmp_path: Path) -> None:
    points = json.loads(found.to_json())["curve"]
    assert [each["share"] for each in points] == [each.share for each in found.curve]
    assert points[0]["error"] == "Infinity"
    found.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<polyline points=" in page
    assert page.count("precision.choose(precision.curve[") == len(found.curve)


def test_in_the_hand(found: jit_amp.Precision) -> None:
    line = repr(found)
    assert "\n" not in line and len(line) < 200
    assert line.startswith("<Precision of Transformer in float16: ")
    assert "blocks.0.attention" in line
    shown = found._repr_html_()
    assert shown and "blocks.0.attention" in shown and "<iframe" in shown and "<script" not in shown
