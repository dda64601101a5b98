"""tune: metrics, data, budget, going on, and what it leaves behind."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import jit_amp
from jit_amp import _tune

from . import planted

F16, BF16 = torch.float16, torch.bfloat16


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(1)
    return planted.Transformer([1.0, 300.0, 1.0]).eval()


X = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(0))
UNITS = ("blocks.1.attention",)


def test_the_same_twice(model: nn.Module) -> None:
    first = jit_amp.tune(model, (X,), dtype=F16)
    torch.rand(1)
    assert jit_amp.tune(model, (X,), dtype=F16) == first
    assert first.units == UNITS
    assert first == jit_amp.Precision.from_json(first.to_json())


@pytest.mark.parametrize("after", [1, 3, 6])
def test_interrupted_and_resumed(model: nn.Module, tmp_path: Path, after: int) -> None:
    model = planted.Transformer([300.0, 1.0, 300.0]).eval()
    count = itertools.count(1)

    def interrupting(outputs: Tensor, reference: Tensor) -> float:
        if next(count) == after + 1:
            raise KeyboardInterrupt
        return _tune.relative_error(outputs, reference)

    def going_on(outputs: Tensor, reference: Tensor) -> float:
        next(count)
        return _tune.relative_error(outputs, reference)

    for each in interrupting, going_on:
        each.__qualname__ = "error"
    file = tmp_path / "measured.json"
    given: dict[str, Any] = {"dtype": F16, "tolerance": 0.01}
    whole = jit_amp.tune(model, (X,), metric=going_on, **given)
    count = itertools.count(1)
    with pytest.raises(KeyboardInterrupt):
        jit_amp.tune(model, (X,), metric=interrupting, resume=file, **given)
    count = itertools.count(1)
    assert jit_amp.tune(model, (X,), metric=going_on, resume=file, **given) == whole
    assert next(count) == whole.evaluations - after + 2  # float32 is measured again
    count = itertools.count(1)
    assert jit_amp.tune(model, (X,), metric=going_on, resume=file, **given) == whole
    assert next(count) == 2


def test_a_file_of_something_else(model: nn.Module, tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    jit_amp.tune(model, (X,), dtype=F16, resume=file)
    for change, given in (
        ("weights", {"model": planted.Transformer([1.0, 300.0, 1.0]).eval()}),
        ("data", {"data": (X + 1,)}),
        ("dtype", {"dtype": BF16}),
        ("units", {"units": "line"}),
        ("seed", {"seed": 3}),
    ):
        call = {"model": model, "data": (X,), "dtype": F16, "resume": file} | given
        with pytest.raises(ValueError, match=f"was measured with another {change}"):
            jit_amp.tune(**call)  # type: ignore[arg-type]
    file.write_text("{}")
    with pytest.raises(ValueError, match=r"no file of jit_amp.tune's"):
        jit_amp.tune(model, (X,), dtype=F16, resume=file)


def test_a_tolerance_that_cannot_be_met_is_said_first(model: nn.Module) -> None:
    calls = []

    def metric(outputs: Tensor, reference: Tensor) -> float:
        calls.append(1)
        return 0.5

    with pytest.raises(ValueError, match=r"tolerance: 0.1 cannot be met: .*metric is 0.5 with"):
        jit_amp.tune(model, (X,), dtype=F16, metric=metric, tolerance=0.1)
    assert len(calls) == 1


def test_noise_is_no_tolerance_met() -> None:
    """Two runs in float32 differ: the random state is the same, but a buffer of Python's is not."""
    count = itertools.count()

    class Drifting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ x.mT + next(count)

    with pytest.raises(ValueError, match="cannot be met"):
        jit_amp.tune(Drifting(), (X,), dtype=F16)


@pytest.mark.parametrize("budget", [0.0, 1e-9])
def test_the_budget(model: nn.Module, budget: float) -> None:
    result = jit_amp.tune(model, (X,), dtype=F16, budget=budget)
    assert not result.finished and "stopped at the budget" in str(result)
    with torch.no_grad():
        assert torch.equal(result.apply(model)(X), model(X))  # all of it is in float32


def test_a_budget_that_is_enough(model: nn.Module) -> None:
    assert jit_amp.tune(model, (X,), dtype=F16, budget=600).finished


def test_data(model: nn.Module) -> None:
    labels = torch.zeros(2)
    for data in (
        X,
        (X,),
        [X],
        [(X,), (X,)],
        {"x": X},
        [{"x": X}],
        DataLoader(TensorDataset(X, labels), batch_size=1),
        ((X, labels) for _ in range(2)),
    ):
        assert jit_amp.tune(model, data, dtype=F16).units == UNITS


def test_a_metric_of_the_model(model: nn.Module) -> None:
    targets = torch.randint(0, 4, (2,))

    def loss(model: nn.Module) -> Tensor:
        total = nn.functional.cross_entropy(model(X).float(), targets)
        total.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)
        return nn.functional.cross_entropy(model(X).float(), targets)

    before = copy.deepcopy(model.state_dict())
    result = jit_amp.tune(model, (X,), dtype=F16, metric=loss)
    assert result.units == UNITS and result.metric.endswith("loss")
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert jit_amp.tune(model, None, dtype=F16, metric=loss).units == UNITS


class GradientOfSmall(torch.autograd.Function):
    """Its gradient is below float16's smallest on the way, if what it is given is float16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return (gradient * 1e-6 * 1e-6) * 1e6 * 1e6


class Vanishing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return GradientOfSmall.apply(x)


def test_gradients_that_vanish() -> None:
    model = nn.Sequential(*itertools.chain(*((nn.Linear(4, 4), nn.Tanh()) for _ in range(4))))
    model.insert(5, nn.Sequential(nn.Linear(4, 4), Vanishing()))

    def norm_of_gradients(model: nn.Module) -> float:
        model(x).float().square().sum().backward()
        return float(model[0].weight.grad.norm())

    x = torch.randn(3, 4)
    result = jit_amp.tune(model, (x,), dtype=F16, metric=norm_of_gradients, tolerance=0.1)
    assert result.units in (("5.1",), ("5.0",), ("5",))
    assert not math.isclose(result.error_plain, 0, abs_tol=0.1)


def test_what_it_leaves(model: nn.Module) -> None:
    """Buffers, modes, gradients, random state."""
    net = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), planted.LogSumExp())
    net.append(nn.Dropout(0.5))
    before, state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    result = jit_amp.tune(net, (torch.randn(8, 16),), dtype=F16, tolerance=0.1)
    assert result.units in (("1",), ("2",))  # what comes in float32 stays so: either will do
    torch.set_rng_state(state)
    state = torch.get_rng_state()
    jit_amp.tune(net, (X[0],), dtype=F16)
    assert torch.equal(state, torch.get_rng_state()) and net.training
    assert all(torch.equal(before[name], each) for name, each in net.state_dict().items())
    assert not any("forward" in vars(each) for each in net.modules())
    assert not torch.is_autocast_enabled("cpu")


class InScopes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.bad, self.last = nn.Linear(16, 16), planted.BadNorm(), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.bad(self.first(x))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.last(x)


def test_a_model_with_scopes() -> None:
    net, x = InScopes().eval(), torch.randn(4, 16)
    result = jit_amp.tune(net, (x,), dtype=BF16)
    assert result.units == ("bad",) and not result.around
    with torch.no_grad():
        assert torch.equal(jit_amp.script(net, precision=result)(x), result.apply(net)(x))
    with pytest.raises(ValueError, match=r"a scope of its own in torch.bfloat16"):
        jit_amp.tune(net, (x,), dtype=F16)


def test_a_shared_module_is_one_unit() -> None:
    shared = nn.Sequential(nn.Linear(16, 16), planted.LogSumExp())
    net = nn.ModuleDict({"a": shared, "b": shared})
    net.forward = lambda x: net["b"](net["a"](x))  # type: ignore[method-assign]
    assert jit_amp.tune(net, (torch.randn(4, 16),), dtype=F16).units == ("a.1",)


def test_an_operator_that_is_not_there_in_the_dtype() -> None:
    class Raises(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.dtype is F16:
                raise TypeError("float16 is not for this")
            return x

    net = nn.Sequential(nn.Linear(16, 16), Raises(), nn.Linear(16, 4))
    assert jit_amp.tune(net, (torch.randn(8, 16),), dtype=F16).units == ("1",)


@pytest.mark.parametrize("units", ["line", "function"])
def test_lines_and_functions(model: nn.Module, units: str) -> None:
    result = jit_amp.tune(model, (X,), dtype=F16, units=units)
    [unit] = result.units
    file, _, name = unit.rpartition(":")
    assert file.endswith("tests/jit/tune/planted.py")
    if units == "function":
        assert name in ("Attention.forward", "forward")  # before Python 3.11 there is no more
    else:
        line = Path(planted.__file__).read_text().splitlines()[int(name) - 1]
        assert "(q * self.scale) @ (k * self.scale)" in line
    with torch.no_grad():
        assert result.apply(model)(X).isfinite().all()
        assert torch.equal(jit_amp.script(model, precision=result)(X), result.apply(model)(X))


def test_the_text(model: nn.Module) -> None:
    text = str(jit_amp.tune(model, (X,), dtype=F16))
    first, second, _, head, row = text.splitlines()
    assert first == "Transformer in float16 on cpu: 1 of 19 modules stay in float32"
    assert "tolerance 0.01, inf without" in second and "evaluations" in second
    assert head.split()[:2] == ["unit", "why"] and row.startswith(UNITS[0])
    assert "beyond 65504: bmm at" in row


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"dtype": torch.float64}, ValueError, r"none of torch.float16, torch.bfloat16"),
        ({"units": "layer"}, ValueError, "'layer' is none of 'module', 'function', 'line'"),
        ({"tolerance": -1.0}, ValueError, "tolerance"),
        ({"tolerance": "1"}, TypeError, "tolerance"),
        ({"data": 3}, TypeError, "data: 3 is not"),
        ({"data": []}, ValueError, "no batches"),
        ({"model": 3}, TypeError, "takes a module"),
        ({"metric": 3}, TypeError, "metric: 3 is not"),
        ({"metric": lambda a, b, c: 0.0}, TypeError, "takes 3 arguments"),
        ({"metric": lambda a, b: "x"}, TypeError, "gave 'x', which is no number"),
    ],
)
def test_wrong_arguments(model: nn.Module, given: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        jit_amp.tune(**({"model": model, "data": (X,), "dtype": F16} | given))


def test_a_scripted_model(model: nn.Module) -> None:
    with pytest.raises(TypeError, match="not scripted"):
        jit_amp.tune(jit_amp.script(model), (X,), dtype=F16)


def test_json_of_something_else(model: nn.Module) -> None:
    result = jit_amp.tune(model, (X,), dtype=F16)
    given = json.loads(result.to_json())
    assert given["units"] == [*UNITS] and given["error_plain"] == "Infinity"
    for text in "", "[]", "{}", json.dumps({**given, "other": 1}), json.dumps({"units": []}):
        with pytest.raises(ValueError, match="not what to_json wrote"):
            jit_amp.Precision.from_json(text)
    assert dataclasses.replace(result, units=()) != result


@pytest.mark.parametrize(
    ("outputs", "reference", "expected"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]), 0.5),
        ({"a": torch.tensor(1.0)}, {"a": torch.tensor(1.0)}, 0.0),
        ({"a": torch.tensor(1.0)}, {"b": torch.tensor(1.0)}, math.inf),
        (torch.tensor([math.inf]), torch.tensor([math.inf]), 0.0),
        (torch.tensor([math.nan]), torch.tensor([1.0]), math.inf),
        (torch.tensor([-math.inf, 1.0]), torch.tensor([-math.inf, 2.0]), 0.5),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), 0.5),
        (torch.ones(2), torch.ones(3), math.inf),
        (torch.tensor([0.1]), torch.tensor([0.0]), math.inf),
        ([1.0, "a", None], [1.0, "a", None], 0.0),
        ([2.0], [4.0], 0.5),
        (torch.empty(0), torch.empty(0), 0.0),
    ],
)
def test_the_relative_error(outputs: Any, reference: Any, expected: float) -> None:
    assert _tune.relative_error(outputs, reference) == expected


class Moving(nn.Module):
    """Its state moves with each call: a buffer that is assigned, a counter, a list, forces."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(4))
        self.calls, self.past = 0, [torch.zeros(4)]
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.average = self.average * 0.5 + x.mean(0)
        self.past.append(self.average * self.calls)
        x = x.detach().requires_grad_()
        (forces,) = torch.autograd.grad(self.layer(x).square().sum(), x)
        return forces + torch.stack(self.past).sum(0)


def test_a_model_whose_state_moves() -> None:
    torch.manual_seed(0)
    model, x = Moving().eval(), torch.randn(8, 4)
    average, past = model.average, model.past
    found = jit_amp.tune(model, (x,), dtype=torch.bfloat16, tolerance=0.1)
    assert found.error <= 0.1
    assert model.average is average and not average.any()
    assert model.past is past and len(past) == 1 and not past[0].any()
    assert model.calls == 0
    with pytest.raises(RuntimeError, match="does not require grad"), torch.no_grad():
        jit_amp.tune(model, (x,), dtype=torch.bfloat16)


class Squares(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x @ x.t()


class SharesSquares(nn.Module):
    """The same module by two names, as scripting makes two of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.second = Squares()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(x), self.second(x)


def test_a_shared_module_stays_float32_by_all_its_names() -> None:
    torch.manual_seed(0)
    model, x = SharesSquares().eval(), torch.randn(8, 32)
    found = jit_amp.tune(model, (x,), dtype=torch.bfloat16, tolerance=1e-4)
    assert found.units == ("first",)
    with torch.no_grad():
        with found.apply(model):
            expected = model(x)
        for _ in range(3):
            for a, b in zip(jit_amp.script(model, precision=found)(x), expected, strict=True):
                assert a.dtype == b.dtype == torch.float32 and torch.equal(a, b)
