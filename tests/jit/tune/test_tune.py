"""tune: metrics, data, budget, going on, and what it leaves behind."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import importlib.util
import itertools
import json
import linecache
import math
import random
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import jit_amp
from jit_amp._tune import metrics

from ..support import assert_same
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
    counts, last = [0], [0]  # a metric of other code would be another one

    def error(outputs: Tensor, reference: Tensor) -> float:
        counts[0] += 1
        if counts[0] == last[0]:
            raise KeyboardInterrupt
        return metrics.relative_error(outputs, reference)

    def evaluations(**given: Any) -> tuple[jit_amp.Precision, int]:
        counts[0] = 0
        given = {"dtype": F16, "tolerance": 0.01, "metric": error} | given
        return jit_amp.tune(model, (X,), **given), counts[0]

    file = tmp_path / "measured.json"
    whole, _ = evaluations()
    last[0] = after + 1
    with pytest.raises(KeyboardInterrupt):
        evaluations(resume=file)
    last[0] = 0
    # float32 is measured again
    assert evaluations(resume=file) == (whole, whole.evaluations - after + 1)
    assert evaluations(resume=file) == (whole, 1)


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
        [{"labels": labels, "x": X}],
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
        ({"metric": lambda a, b, *, by: 0.0}, TypeError, "needs `by` by name"),
        ({"budget": "x"}, TypeError, "budget: 'x' is not a number of seconds"),
        ({"budget": math.nan}, ValueError, "budget: nan is not"),
        ({"seed": "a"}, TypeError, "seed: 'a' is not a whole number"),
        ({"device_type": "gpu"}, ValueError, "device_type: 'gpu' is no device type"),
        ({"device_type": 3}, TypeError, "device_type: 3 is not"),
        ({"model": nn.LazyLinear(4)}, ValueError, "weight of LazyLinear has no shape yet"),
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
    assert metrics.relative_error(outputs, reference) == expected


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


class Squared(nn.Module):
    """Its square is out of float16's range."""

    def __init__(self, scale: float = 300.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.l, self.scale = nn.Linear(16, 16), scale
        self.register_buffer("out", torch.zeros(6, 6))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"y": self.square(x)}

    def square(self, x: Tensor) -> Tensor:
        y = self.l(x) * self.scale
        return y @ y.t()


class GivesItsBuffer(Squared):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.out.copy_(self.square(x))


def test_a_model_that_gives_its_buffer() -> None:
    """It is not compared with itself, nor the first batch with the last."""
    found = jit_amp.tune(GivesItsBuffer(), [(X[0],), (X[1],)], dtype=F16)
    assert found.units == ("",) and found.error_plain == math.inf


def test_a_metric_that_writes_to_the_reference() -> None:
    def metric(outputs: dict[str, Tensor], reference: dict[str, Tensor]) -> Tensor:
        outputs["y"] -= reference["y"]
        return outputs["y"].abs_().max() / reference.pop("y").abs_().max().fill_(1e6)

    found = jit_amp.tune(Squared(), (X[0],), dtype=F16, metric=metric, tolerance=1e-3)
    assert found.units == ("",) and found.error < 1e-3


def test_no_set_of_units_meets_the_tolerance() -> None:
    """What is written in place stays in its dtype, whatever line does it."""

    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            z = torch.zeros(6, 6, dtype=F16)
            z += torch.mm(x, x.t()) * 1e4
            return z

    with pytest.raises(ValueError, match=r"tolerance: .* is met by no set of lines in float32"):
        jit_amp.tune(InPlaceAfter(InPlace()), (X[0],), dtype=F16, units="line", tolerance=1e-7)


class InPlaceAfter(nn.Module):
    """In float32 everywhere there is no float16."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            return self.inner(x)
        return torch.mm(x, x.t()) * 1e4


def test_at_the_budget_nothing_is_said_of_what_was_not_measured(model: nn.Module) -> None:
    found = jit_amp.tune(model, (X,), dtype=F16, budget=0.0)
    assert math.isnan(found.error) and "relative error: not measured, tolerance" in str(found)
    assert math.isnan(jit_amp.Precision.from_json(found.to_json()).error)


class Holder:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Holding(nn.Module):
    """Its state is in all that can hold some, and each call changes it."""

    def __init__(self) -> None:
        super().__init__()
        self.l, self.code = nn.Linear(4, 4), nn.Parameter(torch.ones(4), requires_grad=False)
        self.cache, self.slots = types.SimpleNamespace(n=0, k=[], inner=Holder()), Holder()
        self.past, self.seen = collections.deque(maxlen=3), {1}
        self.by_name = collections.OrderedDict(a=torch.zeros(4))
        self.generator, self.python = torch.Generator().manual_seed(1), random.Random(1)
        self.numpy, self.array = numpy.random.default_rng(1), numpy.zeros(3)
        self.hidden = [nn.BatchNorm1d(4)]
        self.register_buffer("wide", torch.zeros(1).expand(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.hidden[0](self.l(x))
        self.code.data.mul_(0.9).add_(y.float().mean(0), alpha=0.1)
        self.cache.n += 1
        self.cache.k.append(y.float())
        self.slots.n += 1
        self.cache.inner.n += 1
        self.past.append(1)
        self.seen.add(len(self.cache.k) + 1)
        self.by_name["a"] += 1
        self.by_name[f"b{self.cache.n}"] = y
        self.array += 1
        y = y * self.code + torch.rand(4, generator=self.generator) + self.slots.n
        y = y + self.python.random() + float(self.numpy.random()) + self.by_name["a"]
        return y + torch.stack(self.cache.k).mean(0) + len(self.past) + float(self.array.sum())

    def state(self) -> list[Any]:
        return [
            {name: each.clone() for name, each in self.state_dict().items()},
            [self.cache.n, list(self.cache.k), self.slots.n, self.cache.inner.n],
            [list(self.past), set(self.seen)],
            {name: each.clone() for name, each in self.by_name.items()},
            [self.generator.get_state(), self.python.getstate(), self.numpy.bit_generator.state],
            [self.array.tolist(), self.hidden[0].running_mean.clone()],
        ]


@pytest.mark.parametrize("metric", [None, lambda model: model(torch.ones(2, 4)).float().sum()])
def test_all_state_is_brought_back(metric: Any) -> None:
    model = Holding()
    before, held = model.state(), [model.past, model.by_name, model.cache, model.code.data_ptr()]
    jit_amp.tune(model, [(torch.randn(2, 4),)], dtype=BF16, metric=metric, tolerance=1.0)
    assert_same(model.state(), before, "state")
    now = [model.past, model.by_name, model.cache, model.code.data_ptr()]
    assert all(a is b for a, b in zip(now[:3], held[:3], strict=True)) and now[3] == held[3]


def test_what_a_metric_does_to_the_model_is_undone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    weight, before = model[0].weight, model[0].weight.detach().clone()
    places = [each.data_ptr() for each in model.parameters()]

    def metric(_: nn.Module) -> Tensor:
        model[0].requires_grad_(False)
        loss = model(torch.ones(2, 4)).float().square().mean()
        model.double()
        return loss

    jit_amp.tune(model, None, dtype=BF16, metric=metric)
    assert model[0].weight is weight and weight.requires_grad and torch.equal(weight, before)
    assert [each.data_ptr() for each in model.parameters()] == places


def test_a_metric_that_leaves_gradients_off(model: nn.Module) -> None:
    modes = []

    def metric(model: nn.Module) -> Tensor:
        modes.append(torch.is_grad_enabled())
        torch.set_grad_enabled(False)
        return model(X).float().square().mean()

    jit_amp.tune(model, (X,), dtype=F16, metric=metric)
    assert torch.is_grad_enabled() and all(modes)


def test_a_loader_does_not_move_the_random_state() -> None:
    model = nn.Linear(4, 2)
    loader = DataLoader(TensorDataset(torch.randn(4, 4)), 2, shuffle=True)
    state = torch.get_rng_state()
    jit_amp.tune(model, loader, dtype=BF16)
    assert torch.equal(torch.get_rng_state(), state)


def test_hooks_of_the_model_run_under_autocast() -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    model.register_forward_hook(lambda module, given, result: torch.mm(result, torch.ones(8, 8)))
    x = torch.randn(2, 8)
    with torch.no_grad():
        with torch.autocast("cpu", dtype=BF16):
            expected = model(x)
        found = jit_amp.tune(model, (x,), dtype=BF16, tolerance=1.0)
        assert found.units == () and torch.equal(found.apply(model)(x), expected)
    assert not {"forward", "_call_impl"} & set(vars(model))


def test_a_metric_that_does_not_call_the_model() -> None:
    def loss(model: Squared) -> Tensor:
        return model.square(X[0]).sum()

    with pytest.raises(ValueError, match=r"loss does not call the model, and autocast is around"):
        jit_amp.tune(Squared(), (X[0],), dtype=F16, metric=loss)


def test_a_file_of_other_code(tmp_path: Path) -> None:
    file = tmp_path / "measured.json"

    def tuned(model: nn.Module, metric: Any) -> None:
        jit_amp.tune(model, (X[0],), dtype=F16, metric=metric, tolerance=1e-2, resume=file)

    def metric(power: float) -> Any:
        return lambda a, b: (a["y"] / b["y"] - 1).abs().max() ** power

    tuned(Squared(), metric(1.0))
    tuned(Squared(), metric(1.0))
    for other in metric(2.0), lambda a, b: 0.0:
        with pytest.raises(ValueError, match="was measured with another metric"):
            tuned(Squared(), other)
    with pytest.raises(
        ValueError, match="was measured with another code or attribute of the model"
    ):
        tuned(Squared(299.0), metric(1.0))


class Points(NamedTuple):
    places: Tensor
    number: int


@dataclasses.dataclass
class Found:
    scores: Tensor
    more: Any = None


class Kind(enum.Enum):
    ONE = 1


def held_by_attributes(y: Tensor) -> Any:
    return types.SimpleNamespace(logits=y, name="a")


WAYS: dict[str, Callable[[Tensor], Any]] = {
    "data class": Found,
    "data class in a data class": lambda y: Found(torch.ones(1), Found(y)),
    "namespace": held_by_attributes,
    "deque": lambda y: collections.deque([y]),
    "mapping proxy": lambda y: types.MappingProxyType({"y": y}),
    "UserDict": lambda y: collections.UserDict({"y": y}),
    "named tuple": lambda y: Points(y, 1),
    "NumPy": lambda y: y.float().numpy(),
    "a number of NumPy's": lambda y: y.float().max().numpy()[()],
    "sparse": lambda y: y.float().to_sparse(),
    "nested": lambda y: torch.nested.nested_tensor([y, y[:1]]),
    "quantized": lambda y: torch.quantize_per_tensor(y.float(), 1.0, 0, torch.qint32),
    "beside texts and enums": lambda y: {"y": y, "kind": Kind.ONE, "name": "a", "none": None},
}


@pytest.mark.parametrize("made", WAYS.values(), ids=WAYS)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")  # deprecated
def test_the_default_metric_looks_into_outputs(made: Callable[[Tensor], Any]) -> None:
    class Model(Squared):
        def forward(self, x: Tensor):
            return made(super().forward(x)["y"])

    found = jit_amp.tune(Model(), (X[0],), dtype=F16, tolerance=0.01)
    assert found.units == ("",) and found.error_plain > 0.01


NONE: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "generator": (lambda y: (each for each in [y]), "cannot look into outputs, a generator"),
    "set": (lambda y: {"made": {y}}, r"cannot look into outputs\['made'\], a set"),
    "object": (lambda y: Holder(), "cannot look into outputs, a Holder"),
    "nothing": (lambda y: None, "there is none in None"),
    "texts": (lambda y: ["a", "b"], "compares tensors and numbers, and there is none in"),
}


@pytest.mark.parametrize(("made", "text"), NONE.values(), ids=NONE)
def test_what_the_default_metric_cannot_look_into(made: Any, text: str) -> None:
    class Model(Squared):
        def forward(self, x: Tensor):
            return made(super().forward(x)["y"])

    with pytest.raises(ValueError, match=text) as raised:
        jit_amp.tune(Model(), (X[0],), dtype=F16)
    assert "give metric=" in str(raised.value)
    jit_amp.tune(Model(), (X[0],), dtype=F16, metric=lambda a, b: 0.0)


HELPERS = """
import torch
from torch import nn

SCALE = 300.0

def scaled(x):
    return x * SCALE

class Inner(nn.Module):
    def forward(self, x):
        return self.scaled(x)

    def scaled(self, x):
        y = scaled(x)
        return (y @ y.transpose(-2, -1)) / SCALE**2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.dropout = Inner(), nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(self.inner(x))
"""

CHANGES: dict[str, tuple[str, Callable[[str], str]]] = {
    "a helper": ("code", lambda text: text.replace("x * SCALE", "SCALE * x * 1")),
    "a number of its module": ("code", lambda text: text.replace("= 300.0", "= 3.0")),
    "what it gives": ("code", lambda text: text.replace("SCALE**2", "(SCALE * SCALE * 2)")),
}


def net_of(text: str, path: Path) -> Any:
    """A model of a file with this text."""
    (path / "helpers_of_resume.py").write_text(text)
    spec = importlib.util.spec_from_file_location(
        "helpers_of_resume", path / "helpers_of_resume.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    linecache.checkcache()
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module.Net().eval()


@pytest.mark.parametrize(("name", "change"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("units", ["module", "line"])
def test_a_file_of_other_helpers(
    units: str, name: str, change: Callable[[str], str], tmp_path: Path
) -> None:
    def tuned(net: nn.Module) -> Any:
        file = tmp_path / "measured.json"
        return jit_amp.tune(net, (X,), dtype=F16, tolerance=0.01, units=units, resume=file)

    first = tuned(net_of(HELPERS, tmp_path))
    assert first.units and tuned(net_of(HELPERS, tmp_path)) == first
    with pytest.raises(ValueError, match=f"was measured with another {name}"):
        tuned(net_of(change(HELPERS), tmp_path))
    with pytest.raises(ValueError, match="was measured with another training"):
        net = net_of(HELPERS, tmp_path)
        net.inner.train()
        tuned(net)


def test_a_file_whose_lines_have_moved(tmp_path: Path) -> None:
    def tuned(text: str, units: str) -> Any:
        file = tmp_path / f"{units}.json"
        net = net_of(text, tmp_path)
        return jit_amp.tune(net, (X,), dtype=F16, tolerance=0.01, units=units, resume=file)

    for units in "function", "line":
        first = tuned(HELPERS, units)
        assert first.units == tuned(HELPERS, units).units
        if units == "function":
            assert tuned("\n" + HELPERS, units).units == first.units
        else:
            with pytest.raises(ValueError, match="was measured with another code"):
                tuned("\n" + HELPERS, units)


@pytest.mark.parametrize("held", ['{"of": [], "measured": []}', '{"of": {}}', "[]", "{"])
def test_a_file_that_tune_has_not_written(held: str, model: nn.Module, tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    file.write_text(held)
    with pytest.raises(ValueError, match=r"is no file of jit_amp\.tune's"):
        jit_amp.tune(model, (X,), dtype=F16, resume=file)


class WithALayer(nn.Module):
    """Without gradients PyTorch runs the layer as one operator, unless a mode is on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.out = nn.Linear(16, 4)

    def head(self, h: Tensor):
        return self.out(h * 20000.0) / 20000.0

    def forward(self, x: Tensor):
        h = self.layer(x)
        return self.head(h)


@pytest.mark.parametrize("units", ["line", "function"])
def test_what_is_measured_is_what_all_ways_do(units: str) -> None:
    net, x = WithALayer().eval(), torch.rand(2, 5, 16)
    found = jit_amp.tune(net, (x,), dtype=F16, units=units, tolerance=5e-4)
    assert found.units
    with torch.no_grad():
        reference, expected = net(x), found.apply(net)(x)
        assert metrics.relative_error(expected, reference) == pytest.approx(found.error, abs=1e-7)
        scripted = jit_amp.script(net, precision=found)
        for _ in range(3):
            assert_same(scripted(x), expected, "scripted")
        assert_same(jit_amp.trace(net, (x,), precision=found)(x), expected, "traced")
