"""tune refuses where nothing ran in the reduced dtype, and else names what overflows."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

F16, BF16 = torch.float16, torch.bfloat16
X = torch.rand(2, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


class Overflowing(nn.Module):
    """Not in `linear`, but in what is computed of its result."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.linear(x) * 1e5 / 1e5)


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 8)

    def forward(self, index: Tensor) -> Tensor:
        found = self.table(index)
        return found @ found.mT


class Doubling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Selecting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        product = x @ x.mT
        return product[product > 100]


INDEX = torch.arange(8)[None]


@pytest.mark.parametrize(
    ("model", "data", "dtype", "text"),
    [
        (Overflowing().double(), (X.double(),), F16, "in float64, which autocast leaves"),
        (Overflowing(), (X[:0],), F16, "no output of the model has an element"),
        (Selecting(), (X,), F16, "no output of the model has an element"),
        (Embedded().bfloat16(), (INDEX,), BF16, "table.weight is torch.bfloat16 already"),
        (Embedded().bfloat16(), (INDEX,), F16, "table.weight is torch.bfloat16 already"),
        (Doubling(), (X,), F16, "casts for none of the operators"),
    ],
)
def test_nothing_ran(model: nn.Module, data: Any, dtype: torch.dtype, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        jit_amp.tune(model, data, dtype=dtype)


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
@pytest.mark.skipif(torch.cuda.is_available(), reason="autocast is on for CUDA there")
def test_another_device() -> None:
    with pytest.raises(ValueError, match="the model and the data are on cpu: move both there"):
        jit_amp.tune(Overflowing(), (X,), dtype=F16, device_type="cuda")


def test_a_metric_of_ones_own_on_no_elements() -> None:
    with pytest.raises(ValueError, match="the data holds no elements"):
        jit_amp.tune(Overflowing(), (X[:0],), dtype=F16, metric=lambda a, b: 0.0)


def test_an_empty_batch_among_others() -> None:
    found = jit_amp.tune(Overflowing(), [(X[:0],), (X,)], dtype=F16)
    assert found == jit_amp.tune(Overflowing(), [(X,)], dtype=F16) or found.units == ("linear",)
    assert found.candidates == 3


def test_code_that_nobody_wrote() -> None:
    traced = torch.fx.symbolic_trace(Overflowing())
    with pytest.raises(ValueError, match=r"units: no line of .* calls what ran in float16"):
        jit_amp.tune(traced, (X,), dtype=F16, units="line")
    assert jit_amp.tune(traced, (X,), dtype=F16).units


def test_a_cell_of_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    import linecache

    source = (
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        y = x @ x.mT * 1e3\n"
        "        return y @ y.mT / 1e6\n"
    )
    cell = "<ipython-input-7-0123456789ab>"
    monkeypatch.setitem(linecache.cache, cell, (len(source), None, source.splitlines(True), cell))
    notebook = types.ModuleType("a_notebook")
    monkeypatch.setitem(sys.modules, "a_notebook", notebook)
    exec(compile(source, cell, "exec"), vars(notebook))
    net = vars(notebook)["Net"]()
    x = torch.rand(4, 8)
    assert jit_amp.tune(net, (x,), dtype=F16, units="line").units == (f"{cell}:5",)
    found = jit_amp.tune(net, (x,), dtype=F16, units="function")
    assert found.units[0].startswith(f"{cell}:")
    assert found.apply(net)(x).isfinite().all()


def why(model: nn.Module, **given: Any) -> dict[str, str]:
    found = jit_amp.tune(model, (X,), dtype=F16, **given)
    return {each.unit: each.why for each in found.kept}


def test_the_reason_names_what_overflows_later() -> None:
    [(unit, text)] = why(Overflowing()).items()
    assert unit == "linear" and text.startswith("values beyond 65504 are computed of its results")
    assert "mul at" in text and "test_nothing_measured.py:" in text


class Given(nn.Module):
    """`head` is given what overflows before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 4), nn.Linear(4, 4)
        nn.init.constant_(self.first.weight, 6e4)
        nn.init.constant_(self.head.weight, 1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x)).softmax(-1)


def test_the_reason_names_what_overflowed_before() -> None:
    told = why(Given())
    assert "beyond 65504: addmm" in told["first"]
    assert told["head"].startswith("it is given values beyond 65504: addmm at")


def test_what_is_compiled_is_tuned_as_it_was_before() -> None:
    plain = Overflowing().eval()
    expected = jit_amp.tune(plain, (X,), dtype=F16)
    compiled = torch.compile(plain, backend="eager")
    assert jit_amp.tune(compiled, (X,), dtype=F16) == expected
    outer = nn.Sequential(compiled, nn.Linear(2, 2))
    found = jit_amp.tune(outer, (X,), dtype=F16)
    assert found.units == ("0.linear",)
    with torch.no_grad():
        assert found.apply(nn.Sequential(plain, outer[1]))(X).isfinite().all()
        assert found.apply(outer)(X).isfinite().all()
    with pytest.raises(TypeError, match=r"the module that torch.compile was given"):
        expected.apply(compiled)
