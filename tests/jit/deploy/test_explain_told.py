"""What a report of jit_amp.explain says of numbers, scopes, files and errors, told right."""

from __future__ import annotations

import io
import json
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp._base import source_files
from jit_amp._explain import graph
from jit_amp._explain.records import Elsewhere

from ..support import imported

BF16 = torch.bfloat16
X = torch.rand(2, 4)


class Numbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4))
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ self.weight
            y = (y * 0.125 + 2.5) / 3
            y = torch.where(y > 0.5, y, 0.0)
            return 1.5 - torch.clamp(y**0.5, 0.1, 0.9) * self.scale


def _made(how: str) -> Any:
    if how == "python":
        return Numbers()
    if how == "scripted":
        return jit_amp.script(Numbers())
    if how == "traced":
        return jit_amp.trace(Numbers(), (X,))
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(Numbers()), file)
    return torch.jit.load(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("how", ["python", "scripted", "traced", "loaded"])
def test_a_python_number_is_no_tensor_of_float64(how: str) -> None:
    with torch.no_grad():
        report = jit_amp.explain(_made(how), (X,))
    assert not any("float64" in (*row.operands, *row.results) for row in report.rows)
    assert {row.computed_in for row in report.rows} == {"bfloat16"}
    assert set(report.summary.share) == {"bfloat16"}
    told = json.loads(report.to_json())
    assert {row["precision"] for row in told["rows"]} == {"reduced"}
    assert "mixed" not in report.to_text(all=True)


def test_dtypes_that_decide_and_those_that_do_not() -> None:
    def function(x: Tensor, whole: Tensor, scalar: Tensor):
        return (
            x * scalar,
            whole * 0.5,
            scalar * scalar,
            x.double() * 2,
            scalar * 0.5,
            x + x.double(),
        )

    x = torch.rand(2, dtype=BF16)
    report = jit_amp.explain(function, (x, torch.ones(2, dtype=torch.int64), torch.tensor(0.5)))
    found = [row.computed_in for row in report.rows if row.operator != "aten::to.dtype"]
    assert found == ["bfloat16", "float32", "float32", "float64", "float32", "mixed"]


PART = """
import torch


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor):
        return self.linear(x)
"""
WHOLE = """
import torch
from {part} import Part


class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()

    def forward(self, x: torch.Tensor):
        x = self.part(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.part(x)
            with torch.autocast("cpu", enabled=False):
                return self.part(y.float()) + x.sigmoid()
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("callers_scope")
    with pytest.MonkeyPatch.context() as patch:
        part = imported(PART, folder / "callers_part.py")
        patch.setitem(sys.modules, "callers_part", part)
        yield imported(WHOLE.format(part="callers_part"), folder / "callers_whole.py").Whole()


@pytest.mark.parametrize("make", [lambda module: module, jit_amp.script])
def test_each_line_has_its_scope(whole: Any, make: Callable[[Any], Any], tmp_path: Path) -> None:
    report = jit_amp.explain(make(whole), (X,))
    with torch.autocast("cpu", dtype=torch.float16):
        around = jit_amp.explain(make(whole), (X,))
    [table] = [line for line in report.to_text(width=200).splitlines() if "self.linear(x)" in line]
    assert "whole.py:13" in table
    rows = [line for line in report.to_text(width=200, all=True).splitlines() if "linear: " in line]
    assert ["off" in line for line in rows] == [False, False, True]
    assert sum("whole.py:13" in line for line in rows) == 1
    assert "around the call" in around.to_text(width=200, all=True)
    sigmoid = next(line for line in report.to_text(width=200).splitlines() if "x.sigmoid()" in line)
    assert "whole.py:15 off" in sigmoid
    pytest.importorskip("jinja2")
    report.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "cpu: bfloat16, by callers_whole.py:13" in page
    assert "cpu: off, by callers_whole.py:15" in page


class SwitchedOff(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=False):
            return self.linear(x.float())


class HalfSwitchedOff(SwitchedOff):
    def forward(self, x: Tensor):
        y = self.linear(x)
        with torch.autocast("cpu", enabled=False):
            return self.linear(y.float())


class Around(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x)


def _outer(x: Tensor, module: nn.Module, scope: bool) -> jit_amp.Report:
    with torch.autocast("cpu", dtype=BF16, enabled=scope):
        return jit_amp.explain(module, (x,))


@pytest.mark.parametrize("script", [False, True])
def test_the_verdict_where_an_inner_scope_switches_autocast_off(script: bool) -> None:
    made = jit_amp.script if script else lambda module: module
    for report in (
        _outer(X, made(SwitchedOff()), True),
        _outer(X, made(Around(SwitchedOff())), False),
    ):
        assert report.verdict.startswith("Everything runs in float32: autocast is switched off at ")
        assert str(report.rows[-1].scopes[0].place) in report.verdict and report.advice is None
    half = jit_amp.explain(made(HalfSwitchedOff()), (X,))
    assert (
        "of 2 operators autocast is switched off at" in half.verdict
        or script
        or ("autocast is switched off at" in half.verdict)
    )
    assert half.advice is not None
    assert "no autocast is on" in jit_amp.explain(made(nn.Linear(4, 4)), (X,)).verdict


def test_a_warning_comes_once() -> None:
    def program(x: Tensor):
        for _ in range(3):
            with torch.cpu.amp.autocast():
                x = x @ x
            with torch.autocast("cpu", dtype=torch.float64):
                x = x + 1
        return x

    told = jit_amp.explain(program, (torch.rand(2, 2),)).warnings
    assert len(told) == len(set(told)) == 2


class NeverCompiles(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            try:
                return x @ x.t()
            except ValueError:
                return x


def test_the_whole_reason_why_it_is_not_compiled(tmp_path: Path) -> None:
    report = jit_amp.explain(NeverCompiles(), (X,))
    assert "try blocks aren't supported" in report.not_compiled
    for text in (report.not_compiled, str(report)):
        assert "return x @ x.t()" in text and Path(__file__).name in text
    pytest.importorskip("jinja2")
    report.to_html(tmp_path / "page.html")
    assert "torch.jit.script does not compile it" in (tmp_path / "page.html").read_text()


def test_users_of_a_cast_are_walked_once() -> None:
    layers = 14
    nodes = [f"  %{i + 1} : Tensor = aten::add(%{i}, %{i}, %one)" for i in range(layers)]
    one = "  %one : int = prim::Constant[value=1]()"
    text = "\n".join(["graph(%0 : Tensor):", one, *nodes, f"  return (%{layers})"])
    asked = []
    parsed = torch._C.parse_ir(text)
    first = parsed.findNode("aten::add")
    found = list(graph._places_of_users(first, lambda node: asked.append(node)))
    assert not found and len(asked) <= 4 * layers


@pytest.mark.parametrize("save", [False, True])
def test_rows_of_a_trace_have_lines(save: bool) -> None:
    traced: Any = jit_amp.trace(Around(nn.Linear(4, 4)), (X,))
    if save:
        file = io.BytesIO()
        torch.jit.save(jit_amp.freeze(traced.eval(), example_inputs=(X,)), file)
        traced = torch.jit.load(io.BytesIO(file.getvalue()))
    report = jit_amp.explain(traced, (X,))
    text = "" if save else "return self.inner(x)"  # the file has no text of a trace's lines
    assert {row.line.text for row in report.rows} == {text}
    assert all(row.line.line for row in report.rows)
    assert all(place.line for cast in report.casts for place in cast.users)


LIBRARY = sysconfig.get_path("stdlib")


@pytest.mark.parametrize(
    ("file", "users", "programs"),
    [
        (os.path.join(LIBRARY, "copy.py"), False, False),
        (os.path.join(LIBRARY, "concurrent", "futures", "thread.py"), False, False),
        ("/usr/lib/python3/dist-packages/timm/layers.py", False, True),
        ("/home/me/.venv/lib/python3.11/site-packages/timm/layers.py", False, True),
        (os.path.join(LIBRARY, "site-packages", "timm", "layers.py"), False, True),
        (nn.functional.__file__, False, False),
        (jit_amp.__file__, False, False),
        ("/home/me/net.py", True, True),
        ("/tmp/ipykernel_17/3211.py", True, True),
        ("<ipython-input-1-0123456789ab>", True, True),
        ("<python-input-3>", True, True),
        ("<frozen runpy>", False, False),
        ("<eval_with_key>.1", False, False),
        ("<string>", False, False),
    ],
)
def test_whose_a_file_is(file: str, users: bool, programs: bool) -> None:
    assert source_files.is_users(file) is users
    assert source_files.is_programs(file) is programs


def test_what_the_standard_library_runs_stands_at_the_users_line() -> None:
    import copy
    import functools

    def program(x: Tensor):
        return functools.reduce(torch.add, [copy.deepcopy(x), x, x])

    report = jit_amp.explain(program, (X,))
    assert {row.line.text for row in report.rows} == {
        "return functools.reduce(torch.add, [copy.deepcopy(x), x, x])"
    }


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is there")
@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
@pytest.mark.parametrize("script", [False, True])
def test_cuda_on_a_machine_that_has_none(script: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

        def forward(self, x: Tensor):
            with torch.autocast("cuda", dtype=torch.float16):
                y = torch.relu(self.linear(x)) * 2
                z = self.norm(y)
            return y + 1, z + y.float()

    report = jit_amp.explain(jit_amp.script(Net()) if script else Net(), (X,))
    assert {row.computed_in for row in report.rows} == {"float32"}
    there = [
        row.elsewhere and (row.elsewhere.policy, row.elsewhere.computed_in) for row in report.rows
    ]
    assert there == [
        ("lower", "float16"),
        ("untouched", "float16"),
        ("untouched", "float16"),
        ("fp32", "float32"),
        ("", "float16"),
        ("", "float16"),
        None,
    ]
    assert "autocast is on for cuda, which this machine does not have" in report.verdict
    assert "100% of the FLOPs would be in float16" in report.verdict and report.advice is None
    assert "on cuda" in str(report)
    assert jit_amp.Report.from_json(report.to_json()) == report


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is there")
@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_scopes_for_cuda_that_were_made_before() -> None:
    class Decorated(nn.Linear):
        @torch.autocast("cuda", dtype=torch.float16)
        def forward(self, x: Tensor):
            return nn.functional.linear(x, self.weight)

    class DecoratedOff(nn.Linear):
        @torch.autocast("cuda", enabled=False)
        def forward(self, x: Tensor):
            return nn.functional.linear(x, self.weight)

    with torch.autocast("cuda", dtype=BF16):
        around = [jit_amp.explain(each, (X,)) for each in (nn.Linear(4, 4), _made("scripted"))]
    for report in around:
        assert "CUDA" in report.rows[0].reason and report.rows[0].elsewhere
    assert around[0].rows[0].elsewhere == Elsewhere("cuda", "lower", "bfloat16")
    row = jit_amp.explain(Decorated(4, 4), (X,)).rows[0]
    assert row.elsewhere == Elsewhere("cuda", "lower", "float16")
    assert row.scopes[0].place and "@torch.autocast" in row.scopes[0].place.text
    off = jit_amp.explain(DecoratedOff(4, 4), (X,))
    assert off.rows[0].elsewhere is None and "is switched off at" in off.verdict
    with torch.autocast("cuda", enabled=False):
        assert not any(row.elsewhere for row in jit_amp.explain(nn.Linear(4, 4), (X,)).rows)
    assert not any(row.elsewhere for row in jit_amp.explain(nn.Linear(4, 4), (X,)).rows)


def test_an_error_and_a_report_in_one_line() -> None:
    def program(x: Tensor, on: bool):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            return x @ x

    with pytest.raises(jit_amp.AutocastError) as caught:
        jit_amp.script(program)
    error = caught.value
    assert (error.code, error.file) == ("JA101", __file__)
    assert error.line == program.__code__.co_firstlineno + 1
    assert "\n" not in repr(error) and "JA101" in repr(error)
    assert jit_amp.AutocastError.__module__ == "jit_amp" and jit_amp.AutocastError.__doc__
    none = jit_amp.AutocastError("of another kind")
    assert (none.code, none.file, none.line) == ("", None, None)
    report = jit_amp.explain(nn.Linear(4, 4), (X,))
    assert repr(report).startswith("<jit_amp.Report of Linear(") and "\n" not in repr(report)
