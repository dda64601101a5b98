"""jit_amp.explain of what TorchScript cannot compile: rows against what eager does."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import types
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from artefact import Dtypes
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import jit_amp
from jit_amp._explain import explain, limits

from ..support import AMBIENTS, assert_same, autocast_state

BF16 = torch.bfloat16


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.norm = nn.LayerNorm(4)


class AnyArguments(Base):
    def forward(self, *inputs: Tensor, **more: Any):
        for layer in self.layers:
            inputs = tuple(layer(each) for each in inputs)
        return {"first": inputs[0], "sum": sum(inputs), "norm": self.norm(inputs[0].float())}


@dataclasses.dataclass
class Output:
    logits: Tensor
    states: list[Tensor]


class DataClass(Base):
    def forward(self, x: Tensor):
        states = []
        for layer in self.layers:
            x = torch.relu(layer(x))
            states.append(x)
        return Output(x.softmax(-1), states)


class GivesParts(Base):
    def parts(self, x: Tensor) -> Iterator[Tensor]:
        yield from (layer(x) for layer in self.layers)

    def forward(self, x: Tensor):
        return torch.cat([each for each in self.parts(x)], -1)


class LooksAtNumbers(Base):
    def forward(self, x: Tensor):
        if float(x.sum()) > 1e6:
            return x
        q = x @ x.transpose(-1, -2)
        return [F.scaled_dot_product_attention(x[None], x[None], x[None]), q.exp().log_softmax(-1)]


class ByName(Base):
    def forward(self, x: Tensor, *, name: str = "norm", scale: float | None = None):
        y = getattr(self, name)(self.layers[0](x))
        return y * (scale or 2.0), f"{name}"


class OwnDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x @ x.t()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class CallsAFunctionOfAutograd(Base):
    def forward(self, x: Tensor):
        return OwnDerivative.apply(self.layers[0](x))


class WithEnvironment(Base):
    def forward(self, x: Tensor):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cpu", dtype=torch.float16))
            y = self.layers[0](x)
        return torch.vmap(self.layers[1])(y.float()), y


class Recomputes(Base):
    def forward(self, x: Tensor):
        run = torch.utils.checkpoint.checkpoint
        return run(self.layers[0], x, use_reentrant=False, preserve_rng_state=False)


class Yields(Base):
    def forward(self, x: Tensor) -> Iterator[Tensor]:
        for layer in self.layers:
            x = layer(x)
            yield x


@pytest.mark.parametrize("lazy", [Yields(), lambda x: map(torch.relu, [x, x])])
def test_what_runs_when_it_is_asked_for_runs(lazy: Callable[[Tensor], Iterator[Tensor]]) -> None:
    rows = jit_amp.explain(lazy, torch.rand(2, 4, requires_grad=True), gradients=True).rows
    assert sum(row.calls for row in rows) == 2 and all(row.gradient for row in rows)


def test_an_asynchronous_function_is_refused() -> None:
    async def waits(x: Tensor) -> Tensor:
        return x @ x

    async def gives(x: Tensor) -> AsyncIterator[Tensor]:
        yield x @ x

    for function in (waits, gives):
        with pytest.raises(TypeError, match=r"is asynchronous, and has not run: .* asyncio.run"):
            jit_amp.explain(function, torch.rand(2, 2))
    rows = jit_amp.explain(lambda x: asyncio.run(waits(x)), torch.rand(2, 2)).rows
    assert rows[0].operator == "aten::matmul"


MODELS = [
    AnyArguments, DataClass, GivesParts, LooksAtNumbers, ByName, CallsAFunctionOfAutograd,
    WithEnvironment, Recomputes,
]  # fmt: skip


@pytest.mark.parametrize("ambient", AMBIENTS)
@pytest.mark.parametrize("make", MODELS)
def test_rows_have_the_dtypes_of_eager(make: Callable[[], nn.Module], ambient: str) -> None:
    model, x = make().eval(), torch.rand(4, 4)
    with AMBIENTS[ambient](), Dtypes() as eager:
        expected = model(x)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    for _ in range(3):
        with AMBIENTS[ambient]():
            report = jit_amp.explain(model, (x,))
    for row in report.rows:  # those that eager does not make of others
        found = {getattr(torch, dtype) for dtype in row.results}
        assert found <= eager.seen.get(row.operator, found), row
    leaves = [each for each in _tensors(expected) if each.is_floating_point()]
    last = {getattr(torch, dtype) for row in report.rows for dtype in row.results}
    assert {leaf.dtype for leaf in leaves} <= last
    assert_same(dict(model.state_dict()), before, "the module")


def _tensors(value: Any) -> Iterator[Tensor]:
    from jit_amp._explain.watch import tensors_in

    yield from tensors_in(value)


def test_places_and_modules_are_those_of_the_calls() -> None:
    report = jit_amp.explain(AnyArguments(), (torch.rand(2, 4), torch.rand(2, 4)))
    linear = [row for row in report.rows if row.operator == "aten::linear"]
    assert [(row.module, row.calls) for row in linear] == [("layers.0", 2), ("layers.1", 2)]
    assert all("tuple(layer(each)" in row.line.text for row in linear)
    assert linear[0].place.file.endswith("linear.py")


def test_the_scope_of_a_row_is_the_with_that_made_it() -> None:
    rows = jit_amp.explain(WithEnvironment(), torch.rand(2, 4)).rows
    [scope] = rows[0].scopes
    assert "stack.enter_context" in scope.place.text
    assert (scope.device, scope.enabled, scope.dtype) == ("cpu", True, "float16")
    assert rows[0].results == ("float16",)
    assert all(row.reason == "outside every scope" for row in rows[-1:])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 2), nn.BatchNorm1d(2)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.norm(self.linear(x))


def trained() -> tuple[nn.Module, torch.optim.Optimizer, Callable[[Tensor, Tensor], Tensor]]:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(net(x).float(), y)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return net, optimizer, step


def test_a_training_step_is_explained_and_leaves_all_as_it_was() -> None:
    net, optimizer, step = trained()
    before = {name: each.clone() for name, each in net.state_dict().items()}
    loader = DataLoader(TensorDataset(torch.rand(6, 4), torch.arange(6) % 2), batch_size=3)
    report = jit_amp.explain(step, loader, timing=True)
    assert_same(dict(net.state_dict()), before, "the module")
    assert all(p.grad is None for p in net.parameters()) and not optimizer.state
    assert report.inputs == ("x: float32[3, 4]", "y: int64[3]")
    backward = [row for row in report.rows if row.is_backward]
    products = [row for row in backward if row.operator == "aten::mm"]
    assert products and all(row.module == "linear" for row in products)
    assert {row.results for row in products} == {("bfloat16",)}
    assert any(row.line.text == "optimizer.step()" for row in report.rows)
    assert report.seconds > 0 and report.summary.milliseconds > 0


class TrainingStep(Net):
    """As Lightning has it."""

    def training_step(self, batch: Any, batch_idx: int):
        x, y = batch
        return {"loss": F.cross_entropy(self(x).float(), y)}


def test_a_training_step_of_a_module_and_its_gradients() -> None:
    loader = DataLoader(TensorDataset(torch.rand(6, 4), torch.arange(6) % 2), batch_size=3)
    model = TrainingStep()
    report = jit_amp.explain(model, loader, method="training_step", gradients=True)
    assert any(row.gradient for row in report.rows)
    assert "Gradients" in report.verdict
    assert all(p.grad is None for p in model.parameters())


def test_the_first_batch_of_a_loader() -> None:
    pairs = DataLoader(TensorDataset(torch.rand(4, 4), torch.arange(4)), batch_size=2)
    assert jit_amp.explain(Net(), pairs).inputs == ("x: float32[2, 4]",)
    named = [{"x": torch.rand(4), "label": 1} for _ in range(4)]
    assert jit_amp.explain(Net(), DataLoader(named, batch_size=2)).inputs == ("x: float32[2, 4]",)


class WritesToItsWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.seen: list[Any] = []

    def forward(self, *inputs: Tensor):
        self.seen.append(1)
        with torch.no_grad():
            self.weight.mul_(2)
        assert self.weight[0] == 2 and len(self.seen) == 1
        return inputs[0] * self.weight


def test_each_run_begins_with_the_module_as_it_is() -> None:
    model = WritesToItsWeight()
    jit_amp.explain(model, (torch.ones(2),), timing=True)
    assert model.weight.tolist() == [1, 1] and model.seen == []


class NoLength(tuple[Any, ...]):
    """As e3nn's representations are."""

    def __len__(self) -> int:
        raise NotImplementedError


class HasNoLength(Net):
    def __init__(self) -> None:
        super().__init__()
        self.parts = NoLength((1, "0e", self.linear))


def test_a_container_that_has_no_length_is_looked_into() -> None:
    report = jit_amp.explain(HasNoLength(), (torch.rand(2, 4),))
    assert report.rows and not report.warnings


class CannotBeCopied(Net):
    def __deepcopy__(self, memo: Any) -> Any:
        raise ValueError("not this one")


def test_what_cannot_be_copied_runs_itself_and_the_report_says_so() -> None:
    report = jit_amp.explain(CannotBeCopied().eval(), torch.rand(2, 4))
    assert report.rows and "not this one" in report.warnings[0]


# What is said of it.


def overflowing(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        y = x @ x
        return (y * 60).exp()


def test_the_verdict_and_the_change_to_make() -> None:
    report = jit_amp.explain(overflowing, torch.ones(8, 8), numerics=True, timing=True)
    [row] = [row for row in report.rows if row.operator == "aten::exp"]
    assert row.numerics and row.numerics.overflows == 64
    assert row.numerics.introduced == float("inf")
    assert "64 values overflow at test_explain_python.py:" in report.verdict
    assert "of the time runs in float16" in report.verdict and " ms" in report.verdict
    assert report.advice and "return (y * 60).exp()" in report.advice.code
    assert row.seconds > 0 and report.rows[0].cast_seconds > 0
    assert limits.over(report, {"overflows": 63})[0].startswith("overflows: 64 is over 63")
    assert limits.over(report, {"overflows": 64, "casts": 2}) == []
    nothing = jit_amp.explain(lambda x: x @ x, torch.ones(2, 2))
    assert nothing.verdict == "Everything runs in float32: no autocast is on."
    assert nothing.advice and 'with torch.autocast("cpu", dtype=torch.bfloat16):' in (
        nothing.advice.code
    )


def test_an_artefact_that_computes_in_bfloat16_is_not_told_to() -> None:
    scope = torch.autocast("cpu", dtype=BF16)
    frozen = jit_amp.freeze(jit_amp.script(nn.Linear(8, 8).eval(), autocast=scope))
    report = jit_amp.explain(frozen, torch.rand(2, 8))
    assert report.name == "Linear" and report.advice is None
    plain = torch.jit.freeze(torch.jit.script(nn.Sequential(nn.Linear(8, 8)).eval()))
    told = jit_amp.explain(plain, torch.rand(2, 8)).advice
    assert told and told.text == "run it in bfloat16"


@torch.no_grad()
def test_weights_that_are_cast_in_each_call() -> None:
    large = nn.Sequential(torch.nn.Linear(256, 256)).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        told = jit_amp.explain(large, torch.rand(2, 256)).advice
    assert told and "jit_amp.freeze(model" in told.code
    report = jit_amp.explain(Net().eval(), torch.rand(2, 4))
    assert report.advice is None  # 0.0 MB
    assert sum(cast.bytes_of_weights for row in report.rows for cast in row.casts) == 10 * 6


def test_values_that_are_infinite_in_float64_too() -> None:
    def masked(x: Tensor):
        return (x @ x).masked_fill(x > 0, float("-inf")).softmax(-1)

    verdict = jit_amp.explain(masked, torch.eye(3), numerics=True).verdict
    assert " 3 values are infinite, in float64 too, first at test_explain_python.py:" in verdict
    assert "overflow" not in verdict


@pytest.mark.parametrize("other", [None, "report.json", {}])
def test_a_report_is_compared_with_a_report(other: Any) -> None:
    report = jit_amp.explain(lambda x: x @ x, torch.ones(2, 2))
    with pytest.raises(TypeError, match="is not a report of jit_amp"):
        report.compare(other)


def test_two_reports_and_json(tmp_path: Any) -> None:
    x = torch.ones(8, 8)
    before = jit_amp.explain(overflowing, x, numerics=True)
    with torch.autocast("cpu", dtype=BF16):
        after = jit_amp.explain(lambda x: x @ x, x, numerics=True)
    assert jit_amp.Report.from_json(before.to_json()) == before
    with pytest.raises(ValueError, match="no report"):
        jit_amp.Report.from_json("[1]")
    compared = before.compare(after)
    assert ("overflows", 64, 0) in compared.numbers
    assert compared.lines[0].place.text == "return (y * 60).exp()"
    assert "64 values overflow" in str(compared)
    assert before.compare(before).lines == ()
    compared.to_html(tmp_path / "compared.html")
    assert "return (y * 60).exp()" in (tmp_path / "compared.html").read_text()


def test_the_table_shows_lines_and_all_their_operators() -> None:
    report = jit_amp.explain(overflowing, torch.ones(8, 8), numerics=True)
    short, long = report.to_text(width=80), report.to_text(width=80, all=True)
    assert "return (y * 60).exp()" in short and "mul.Tensor: in no list" not in short
    assert "mul.Tensor: in no list" in long
    code = report.advice.code if report.advice else ""
    assert all(len(line) <= 80 for line in short.replace(code, "").splitlines()[:12])


def test_a_notebook_shows_what_was_asked_for() -> None:
    report = jit_amp.explain(overflowing, torch.ones(8, 8), numerics=True, timing=True)
    shown = report._repr_html_() or ""
    assert "<th>error</th>" in shown and "<th>ms</th>" in shown and "<iframe" in shown
    assert "64 values overflow" in shown


# Gradients.


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))


def gradients_in(report: jit_amp.Report) -> dict[str, Any]:
    layers = [row for row in report.rows if row.module and not row.is_backward]
    return {f"{row.operator} {row.module}": row.gradient for row in layers if row.gradient}


def test_gradients_of_what_has_run_autograd_itself() -> None:
    net, x = two_layers(), torch.rand(4, 4)

    def step(x: Tensor, **how: bool):
        loss = net(x).sum()
        loss.backward(**how)
        return loss

    plain = jit_amp.explain(lambda x: net(x).sum(), x, gradients=True)
    kept = jit_amp.explain(step, {"x": x, "retain_graph": True}, gradients=True)
    assert gradients_in(kept) == gradients_in(plain)
    assert list(gradients_in(plain)) == ["aten::linear 0", "aten::relu 1", "aten::linear 2"]
    with pytest.raises(RuntimeError, match=r"returns the loss, without `backward\(\)`"):
        jit_amp.explain(step, x, gradients=True)
    with pytest.raises(RuntimeError, match=r"has to return its loss, without `backward\(\)`"):
        jit_amp.explain(lambda x: step(x).detach(), x, gradients=True)


def test_gradients_of_a_module_with_hooks_of_autograds() -> None:
    net, x = two_layers(), torch.rand(4, 4, requires_grad=True)
    plain = jit_amp.explain(net, x, gradients=True)
    net.register_full_backward_hook(lambda *_: None)
    hooked = jit_amp.explain(net, x, gradients=True)
    assert gradients_in(hooked) == gradients_in(plain) and gradients_in(plain)


@pytest.mark.parametrize("give", [lambda y: {y}, lambda y: types.SimpleNamespace(loss=y)])
def test_gradients_are_looked_for_in_some_kinds_of_results(give: Callable[[Tensor], Any]) -> None:
    net = two_layers()
    with pytest.raises(RuntimeError, match="tuples, lists, dictionaries and data classes"):
        jit_amp.explain(lambda x: give(net(x)), torch.rand(4, 4), gradients=True)


# Compiled inside.


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_dynamo_runs_while_it_compiles_does_not_count(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: (a @ b).relu(), backend=backend)

    def step(a: Tensor, b: Tensor):
        with torch.autocast("cpu", dtype=BF16):
            y = compiled(a, b)
        y.sum().backward()

    a, b = torch.rand(4, 4, requires_grad=True), torch.rand(4, 4, requires_grad=True)
    first, second = (jit_amp.explain(step, (a, b)) for _ in range(2))
    assert [(row.operator, row.calls) for row in first.rows] == [
        (row.operator, row.calls) for row in second.rows
    ]
    assert sum(row.calls for row in first.rows if row.operator == "aten::relu") == 1


class RaisesInAScope(nn.Module):
    def forward(self, x: Tensor):
        torch.set_grad_enabled(False)
        torch.autocast("cpu", dtype=BF16, cache_enabled=False).__enter__()
        raise ValueError("in the middle")


def test_a_scope_that_the_program_has_not_left_is_left() -> None:
    before = torch.is_grad_enabled(), *autocast_state()
    assert jit_amp.explain(RaisesInAScope(), torch.ones(2)).error == "ValueError: in the middle"
    assert (torch.is_grad_enabled(), *autocast_state()) == before


@pytest.mark.parametrize("emulates", [True, False])
def test_a_dtype_that_the_processor_emulates_is_told(
    emulates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "emulates", lambda dtype: emulates)
    linear, x = nn.Linear(4, 4), torch.rand(2, 4)
    with torch.autocast("cpu", dtype=BF16):
        report = jit_amp.explain(linear, x)
    assert report.emulated == (("bfloat16",) if emulates else ())
    assert ("bfloat16 is emulated on this processor" in str(report)) is emulates
    assert not jit_amp.explain(linear, x).emulated


def test_operands_of_two_dtypes_count_with_the_reduced_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explain, "emulates", lambda dtype: dtype == torch.float16)
    x, y = torch.rand(2, 4), torch.rand(2, 4, dtype=torch.float16)
    assert jit_amp.explain(torch.add, (x, y)).emulated == ("float16",)
