"""Examples: given second, and told where the module cannot run them."""

from __future__ import annotations

import contextlib
import copy
import re
import warnings
from collections.abc import Callable
from typing import Any, Optional

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp import policy
from jit_amp._runs import example_runs

from ..support import assert_same


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.table = nn.Linear(8, 8), nn.Embedding(4, 8)

    def forward(self, x: Tensor, index: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if index is not None:
                x = x + self.table(index)
            return self.linear(x)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Checks(Net):
    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise ValueError("two dimensions are wanted")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Mode(Net):
    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        return x


X = torch.randn(2, 8)


@pytest.mark.parametrize(
    "examples",
    [(X,), [X], [(X,), (X.half(),)], X, {"x": X}, (X, None), [{"x": X}]],
    ids=["tuple", "list", "several", "tensor", "dictionary", "with None", "dictionaries"],
)
@pytest.mark.parametrize("name", ["freeze", "optimize_for_inference"])
def test_examples_come_second(name: str, examples: Any) -> None:
    module = Net().eval()
    function: Any = getattr(jit_amp, name)
    made = (
        function(module, examples),
        function(module, example_inputs=examples),
        function(module),
    )
    second, named, without = (re.sub(r"___torch_mangle_\d+\.", "", str(m.graph)) for m in made)
    assert second == named != without
    with torch.no_grad():
        assert made[0](X).dtype is module(X).dtype


@pytest.mark.parametrize(
    "names", [["other"], ("other",), {"other"}, iter(["other"]), {"other": 1}.keys()]
)
def test_names_are_names_still(names: Any) -> None:
    frozen = jit_amp.freeze(Mode().eval(), names)
    assert torch.equal(frozen.other(X), X)


def test_no_names_are_no_example() -> None:
    module = Mode().eval()
    for none in (None, [], ()):
        assert not hasattr(jit_amp.freeze(module, none), "other")


CANNOT: dict[str, tuple[type[nn.Module], Any, str]] = {
    "width": (Net, (torch.randn(2, 7),), "x: float32[2, 7], index: None"),
    "integers": (Net, (torch.ones(2, 8, dtype=torch.int64),), "x: int64[2, 8], index: None"),
    "float64": (Net, (X.double(),), "x: float64[2, 8], index: None"),
    "no dimension": (Net, (torch.tensor(1.0),), "x: float32[], index: None"),
    "meta": (Net, (X.to("meta"),), "x: float32[2, 8], index: None"),
    "float indices": (Net, (X, torch.ones(2)), "x: float32[2, 8], index: float32[2]"),
    "index": (Net, {"x": X, "index": torch.tensor([1, 9])}, "x: float32[2, 8], index: int64[2]"),
    "no scopes": (Plain, X[:, :7], "x: float32[2, 7]"),
    "raises": (Checks, (X[0],), "x: float32[8]"),
}


@pytest.mark.parametrize("how", ["portable", "server", "facts", "optimize_for_inference"])
@pytest.mark.parametrize("case", CANNOT)
def test_what_the_module_cannot_run_is_told_with_eagers_reason(case: str, how: str) -> None:
    make, example, words = CANNOT[case]
    module = make().eval()
    with pytest.raises((RuntimeError, IndexError, ValueError)) as eager, torch.no_grad():
        module(**example) if isinstance(example, dict) else (
            module(*example) if isinstance(example, tuple) else module(example)
        )
    reason = str(eager.value).splitlines()[0]
    calls: dict[str, Callable[[], Any]] = {
        "portable": lambda: jit_amp.freeze(module, example),
        "server": lambda: jit_amp.freeze(module, example, target="server"),
        "facts": lambda: jit_amp.facts(module, example),
        "optimize_for_inference": lambda: jit_amp.optimize_for_inference(module, example),
    }
    with pytest.raises(RuntimeError) as told:
        calls[how]()
    name = "facts" if how == "facts" else "freeze"
    first, *lines = str(told.value).splitlines()
    assert first.startswith(f"jit_amp.{name}: the module cannot run example 1 ({words}): "), first
    assert first.endswith(reason)
    assert any("test_examples.py" in line for line in lines)


def test_each_example_is_run() -> None:
    with pytest.raises(RuntimeError, match=r"cannot run example 2 \(x: float32\[2, 7\], index"):
        jit_amp.freeze(Net().eval(), [X, torch.randn(2, 7)])


def test_an_export_tells_what_torch_export_does_not_see() -> None:
    x = torch.ones(2, 8, dtype=torch.int64)
    for program in (Plain().eval(), jit_amp.script(product)):
        with pytest.raises(RuntimeError, match=r"jit_amp.export: the .* cannot run example 1"):
            jit_amp.export(program, (x,) if isinstance(program, nn.Module) else (X, x.t()))


def product(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


class Stateful(Net):
    """All that a run can leave behind."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(2, 8))
        self.norm = nn.BatchNorm1d(8)
        self.cache, self.calls, self.weight = [torch.zeros(1)], 0, torch.ones(8)

    def forward(self, x: Tensor, index: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
        print("here")
        warnings.warn("careful")  # noqa: B028
        self.calls += 1
        self.cache.append(x)
        self.weight[0] += 1
        x.mul_(2)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.sum += self.norm(self.linear(x)) + torch.rand(8)
            return self.sum * 1


@pytest.mark.parametrize("scripted", [False, True])
@pytest.mark.parametrize("ambient", [False, True])
def test_a_run_leaves_nothing_behind(scripted: bool, ambient: bool, capfd: Any) -> None:
    module: Any = Stateful().eval()
    module.norm.train()
    module = torch.jit.script(module) if scripted else module
    before, random, x = copy.deepcopy(module.state_dict()), torch.get_rng_state(), X.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=ambient):
        jit_amp.freeze(module, (x,))
        jit_amp.facts(module, (x,))
        assert torch.is_autocast_enabled("cpu") is ambient
    assert capfd.readouterr() == ("", "")
    assert torch.equal(torch.get_rng_state(), random) and torch.equal(x, X)
    assert module.calls == 0 and len(module.cache) == 1 and module.weight[0] == 1
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


class WritesConstant(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.sum = torch.zeros(8)  # no buffer: a constant of the trace

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.sum.add_(1) + self.linear(x)


def test_a_constant_of_a_trace_is_not_written_to() -> None:
    module = WritesConstant().eval()
    traced = jit_amp.trace(module, (X,), check_trace=False).eval()
    before = module.sum.clone()
    jit_amp.freeze(traced, (X,))
    assert torch.equal(module.sum, before)
    [constant] = [
        each.output().toIValue()
        for each in traced.graph.findAllNodes("prim::Constant")
        if isinstance(each.output().toIValue(), Tensor)
    ]
    assert torch.equal(constant, before)


CALLED: list[int] = []
LIBRARY = torch.library.Library("jit_amp_examples", "DEF")
LIBRARY.define("counted(Tensor x) -> Tensor")


@torch.library.impl(LIBRARY, "counted", "CompositeExplicitAutograd")
def counted(x: Tensor) -> Tensor:
    CALLED.append(1)
    return x.clone()


class Counts(Plain):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(torch.ops.jit_amp_examples.counted(x))


@pytest.mark.parametrize("is_stated", [False, True])
def test_an_operator_of_somebodys_is_not_run(is_stated: bool) -> None:
    module = Counts().eval()
    stated = (
        policy.register("jit_amp_examples::counted", "cpu", "opaque")
        if is_stated
        else contextlib.nullcontext()
    )
    with stated:
        with contextlib.suppress(jit_amp.AutocastError):  # where its policy is stated
            jit_amp.freeze(module, (X,))
        example_runs.check("freeze", torch.jit.script(module), [(X,)])
    assert not CALLED


def test_weights_are_not_copied_where_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Any] = []
    original = jit_amp._C.copied_module
    monkeypatch.setattr(
        jit_amp._C, "copied_module", lambda module: copied.append(module) or original(module)
    )
    jit_amp.freeze(Net().eval(), (X,))
    assert not copied
    jit_amp.freeze(Stateful().eval(), (X,))
    assert copied


class Forces(nn.Module):
    """Computes gradients itself, so that it does not run under no_grad."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x).sum()
        found = torch.autograd.grad([y], [x])[0]
        assert found is not None
        return found


def test_a_model_that_computes_gradients_can_be_run() -> None:
    module, x = Forces().eval(), X.clone().requires_grad_()
    frozen = jit_amp.freeze(module, (x,))
    assert_same(frozen(x), module(x), "frozen")
    assert x.grad is None


def test_examples_of_inference_mode() -> None:
    module = Stateful().eval()
    with torch.inference_mode():
        jit_amp.freeze(module, (torch.randn(2, 8),))


def test_a_diagnostic_comes_first() -> None:
    """What freezing refuses with a code of its own is told with that."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(2, 2)

        def forward(self, x: Tensor):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.lstm(x)

    with pytest.raises(jit_amp.AutocastError, match=re.escape("JA307")):
        jit_amp.freeze(Recurrent().eval(), (torch.rand(3, 1, 2).double(),))
