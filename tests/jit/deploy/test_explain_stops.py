"""jit_amp.explain of programs that raise: the line, the operator, and the lines of its operands."""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import jit_amp
from jit_amp._cli.main import main

if not hasattr(torch.ops.jit_amp_stops, "no_kernel"):  # the command loads this file too
    torch.library.define("jit_amp_stops::no_kernel", "(Tensor a, Tensor b) -> Tensor")


class Stops(nn.Module):
    """`a` and `b` are what the line with the comment is given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.lstm = nn.LSTM(8, 8)
        self.weight = nn.Parameter(torch.rand(8, 8))

    def low(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Matmul(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        b = self.weight * 0.5
        return torch.matmul(a, b)  # stops


class Addmm(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        b = self.weight * 0.5
        return torch.addmm(x, a, b)  # stops


class Bmm(Stops):
    def forward(self, x: Tensor):
        a = self.low(x).unsqueeze(0)
        b = self.weight.unsqueeze(0)
        return torch.bmm(a, b)  # stops


class Conv(Stops):
    def forward(self, x: Tensor):
        a = self.low(x).view(1, 1, 4, 8)
        b = self.weight[:3, :3].reshape(1, 1, 3, 3)
        return F.conv2d(a, b)  # stops


class Linear(Stops):
    def forward(self, x: Tensor):
        a = self.low(x).t()
        b = self.weight * 0.5
        return F.linear(a, b)  # stops


class Cat(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        b = x[:, :3]
        return torch.cat([a, b], dim=0)  # stops


class Einsum(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        b = self.weight * 0.5
        return torch.einsum("ij,jk->ik", a, b)  # stops


class IndexPut(Stops):
    def forward(self, x: Tensor):
        a = x + 1
        b = self.low(x) * 2
        index = (torch.arange(4, device=x.device),)
        return torch.index_put(a, index, b)  # stops


class Scatter(Stops):
    def forward(self, x: Tensor):
        a = x + 1
        b = self.low(x) * 2
        return a.scatter(0, torch.zeros_like(x, dtype=torch.long), b)  # stops


class Dot(Stops):
    def forward(self, x: Tensor):
        a = self.low(x).flatten()
        b = x.flatten()
        return torch.dot(a, b)  # stops


class Lerp(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        b = x + 1
        return torch.lerp(a, b, 0.5)  # stops


class Attention(Stops):
    def forward(self, x: Tensor):
        a = self.low(x).unsqueeze(0)
        b = x.unsqueeze(0)
        return F.scaled_dot_product_attention(a, a, b)  # stops


class GridSample(Stops):
    def forward(self, x: Tensor):
        a = self.low(x).view(1, 1, 4, 8)
        b = torch.zeros(1, 2, 2, 2)
        return torch.grid_sampler(a, b, 0, 0, False)  # stops


class LayerNorm(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        b = self.weight[0] * 2
        return F.layer_norm(a, [7], b)  # stops


class Embedding(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        b = self.weight * 2
        return F.embedding(a, b)  # stops


class CopyTo(Stops):
    def forward(self, x: Tensor):
        a = torch.zeros(3, 8)
        b = self.low(x) * 2
        return a.copy_(b)  # stops


class MaskedFill(Stops):
    def forward(self, x: Tensor):
        a = x.half()
        b = a > 0
        return a.masked_fill(b, -1e9)  # stops


class Unsupported(Stops):
    def forward(self, x: Tensor):
        a = self.low(x)[:4, :4]
        return torch.linalg.inv(a)  # stops


class InPlaceOnALeaf(Stops):
    def forward(self, x: Tensor):
        b = x.sum()
        return self.weight.mul_(b)  # stops


class NoKernel(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        b = x + 1
        return torch.ops.jit_amp_stops.no_kernel(a, b)  # stops


class UsersError(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        b = x + 1
        if a.dtype != b.dtype:
            raise ValueError("two dtypes")  # stops
        return a


class Asserts(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        b = x + 1
        assert a.dtype == b.dtype, "two dtypes"  # stops
        return a


class OverflowOfInt(Stops):
    def forward(self, x: Tensor):
        a = (x.abs() + 1).half() * 60000 * 60000
        return x * int(a.max())  # stops


class Recurrent(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        return self.lstm(a)[0]  # stops


class InALayer(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        return self.linear(a)  # stops


class NoTensor(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        return torch.matmul(a, None)  # stops


class Backward(Stops):
    def forward(self, x: Tensor):
        y = self.weight.exp()
        a = y.exp().sum()
        y.mul_(2)
        a.backward()  # stops
        return x


class InAnotherError(Stops):
    def forward(self, x: Tensor):
        a = self.low(x) * 2
        b = x + 1
        try:
            return torch.dot(a, b)
        except RuntimeError as error:
            raise ValueError("of the user") from error  # stops


ALL = Stops.__subclasses__()
OPERATORS = {
    Matmul: "aten::matmul",
    Addmm: "aten::addmm",
    Bmm: "aten::bmm",
    Conv: "aten::conv2d",
    Linear: "aten::linear",
    Cat: "aten::cat",
    Einsum: "aten::einsum",
    IndexPut: "aten::index_put",
    Scatter: "aten::scatter.src",
    Dot: "aten::dot",
    Lerp: "aten::lerp.Scalar",
    Attention: "aten::scaled_dot_product_attention",
    GridSample: "aten::grid_sampler",
    LayerNorm: "aten::layer_norm",
    Embedding: "aten::embedding",
    CopyTo: "aten::copy_",
    MaskedFill: "aten::masked_fill.Scalar",
    Unsupported: "aten::linalg_inv",
    InPlaceOnALeaf: "aten::mul_.Tensor",
    NoKernel: "jit_amp_stops::no_kernel",
    Backward: "torch.Tensor.backward",
    Recurrent: "torch.nn.modules.rnn.LSTM",
    InALayer: "aten::linear",
    InAnotherError: "aten::dot",
}
# TorchScript compiles two of these not, has lines of its own in the third, and runs the last.
SCRIPTED = [e for e in ALL if e not in (NoTensor, InAnotherError, Recurrent, Backward)]
X = torch.rand(4, 8)


def _lines(cls: type[nn.Module]) -> tuple[set[int], int]:
    """The lines of `a` and `b`, and the one that stops."""
    source, first = inspect.getsourcelines(cls.forward)
    made = {first + i for i, line in enumerate(source) if line.strip()[:4] in ("a = ", "b = ")}
    [stops] = [first + i for i, line in enumerate(source) if line.endswith("# stops\n")]
    return made, stops


def _raised_by(function: Callable[..., Any], *args: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        function(*args)
    return caught.value


def _check(report: jit_amp.Report, stops: int, made: set[int]) -> None:
    assert report.stop is not None
    assert report.stop.place.line == stops
    assert made <= {operand.place.line for operand in report.stop.operands if operand.place}
    assert f"stops at test_explain_stops.py:{stops}: " in report.verdict
    text = report.to_text(width=300)
    assert all(f"test_explain_stops.py:{line}" in text for line in made)
    assert report.error.splitlines()[0][:100] in " ".join(text.split())
    assert jit_amp.Report.from_json(report.to_json()) == report


@pytest.mark.parametrize("cls", ALL)
def test_a_python_model_that_raises(cls: type[nn.Module]) -> None:
    made, stops = _lines(cls)
    error = _raised_by(cls(), X)
    report = jit_amp.explain(cls(), (X,))
    text = f"{type(error).__name__}: {str(error).strip()}"
    assert report.error.splitlines()[0] == text.splitlines()[0]
    assert report.stop and report.stop.operator == OPERATORS.get(cls, "")
    _check(report, stops if cls is not InAnotherError else stops - 2, made)


@pytest.mark.parametrize("carried", ["scripted", "loaded"])
@pytest.mark.parametrize("cls", SCRIPTED)
def test_a_compiled_model_that_raises(cls: type[nn.Module], carried: str) -> None:
    made, stops = _lines(cls)
    program = torch.jit.script(cls())
    if carried == "loaded":
        file = io.BytesIO()
        torch.jit.save(program, file)
        program = torch.jit.load(io.BytesIO(file.getvalue()))
    report = jit_amp.explain(jit_amp.script(program), (X,))
    if cls in OPERATORS:
        assert report.stop and report.stop.operator == OPERATORS[cls]
    _check(report, stops, made)


class TakesItsDtype(Stops):
    def forward(self, x: Tensor):
        a = self.low(x.float()) * 2
        b = x * 3
        return torch.matmul(a, b)  # stops


@pytest.mark.parametrize("carried", ["traced", "loaded"])
def test_a_trace_that_raises(carried: str) -> None:
    made, stops = _lines(TakesItsDtype)
    x = torch.rand(8, 8, dtype=torch.bfloat16)
    if carried == "traced":
        program = jit_amp.trace(TakesItsDtype().eval(), (x,))
    else:
        file = io.BytesIO()
        torch.jit.save(torch.jit.trace(TakesItsDtype().eval(), (x,)), file)
        program = torch.jit.load(io.BytesIO(file.getvalue()))
    report = jit_amp.explain(program, (x.float(),))
    _check(report, stops, made)
    assert report.stop and report.stop.operator == "aten::matmul"


def test_what_a_function_and_its_arguments_are_called() -> None:
    weight = torch.rand(8, 8, dtype=torch.float64)

    def function(x: Tensor, y: Tensor):
        return x @ y

    stop = jit_amp.explain(function, (X, weight)).stop
    assert stop and [operand.origin for operand in stop.operands] == ["argument x", "argument y"]
    stop = jit_amp.explain(InALayer(), (X,)).stop
    assert stop and [operand.origin for operand in stop.operands][1:] == [
        "linear.weight",
        "linear.bias",
    ]


def test_an_error_that_was_caught_is_not_where_it_stops() -> None:
    def function(x: Tensor):
        try:
            x @ x.double()
        except RuntimeError:
            x = x + 1
        raise KeyError("of the model")

    report = jit_amp.explain(function, (X,))
    assert report.stop and (report.stop.operator, report.error) == ("", "KeyError: 'of the model'")
    assert [str(operand) for operand in report.stop.operands] == [
        f"x: float32[4, 8] of add.Tensor at {report.rows[-1].line}"
    ]


def test_a_program_without_operators_and_one_that_is_never_there() -> None:
    def function(x: Tensor):
        raise ValueError

    report = jit_amp.explain(function, (X,))
    assert (report.error, report.rows) == ("ValueError", ())
    assert "stops at test_explain_stops.py:" in str(report)
    with pytest.raises(KeyboardInterrupt):
        jit_amp.explain(_interrupted, (X,))


def _interrupted(x: Tensor):
    raise KeyboardInterrupt


def test_the_command_and_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = f"{__file__}:Matmul"
    page = tmp_path / "page.html"
    arguments = ["explain", model, "--input", "float32[4,8]", "--html", str(page)]
    assert main(arguments) == 1
    _, stops = _lines(Matmul)
    assert f"stops at test_explain_stops.py:{stops}: RuntimeError: " in capsys.readouterr().out
    written = page.read_text()
    assert "Where it stops" in written and "to have the same dtype" in written
    assert main([*arguments, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["stop"]["operator"] == "aten::matmul" and told["error"].startswith("RuntimeError")


def test_what_ran_before_is_there_and_the_run_is_undone() -> None:
    model = Matmul()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    report = jit_amp.explain(model, (X,), timing=True, numerics=True)
    names = [row.operator for row in report.rows if row.calls]
    assert names == ["aten::linear", "aten::mul.Tensor", "aten::mul.Tensor"]
    assert report.rows[-1].operator == "aten::matmul" and not report.rows[-1].calls
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert not torch.is_autocast_enabled("cpu")
