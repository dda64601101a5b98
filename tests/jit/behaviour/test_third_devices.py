"""Devices that are neither CPU nor CUDA: what autocast does there is the dispatcher's to know."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same, fresh, known_warnings_ignored, tree_map

pytestmark = pytest.mark.third
BF16, F16 = torch.bfloat16, torch.float16


@pytest.fixture(autouse=True)
def its_state_is_left_alone() -> Iterator[None]:
    def state() -> tuple[Any, ...]:
        device = "pretended"
        return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    before = state()
    yield
    assert state() == before


def ambients(device: str) -> list[Callable[[], Any]]:
    return [
        lambda: torch.autocast("cpu", enabled=False),
        lambda: torch.autocast(device, dtype=BF16),
        lambda: torch.autocast(device, enabled=False),
        lambda: torch.autocast("cpu", dtype=BF16),
        lambda: torch.autocast("cuda", dtype=F16),
    ]


def check(function: Any, make: Callable[[Any], Any], inputs: tuple[Any, ...], device: str) -> None:
    made = make(copy.deepcopy(function))
    for number, ambient in enumerate(ambients(device)):
        for count in range(3):
            with known_warnings_ignored(), ambient():
                expected = function(*fresh(inputs))
                actual = made(*fresh(inputs))
            assert_same(actual, expected, f"ambient {number}, call {count + 1}")


def enabled(x: Tensor, y: Tensor):
    with torch.autocast("pretended", dtype=torch.float16):
        h = x @ y
        return h, torch.tanh(h), torch.cat([h, y]), torch.mul(h, y)


def disabled(x: Tensor, y: Tensor):
    with torch.autocast("pretended", enabled=False):
        h = x @ y
    return h, x @ y


def nested(x: Tensor, y: Tensor):
    with torch.autocast("pretended", dtype=torch.bfloat16):
        h = x @ y
        with torch.autocast("pretended", enabled=False):
            h = h.float() @ y
        with torch.autocast("cpu", dtype=torch.float16):
            return h, x @ h, torch.tanh(h @ h)


def in_a_loop(x: Tensor, y: Tensor):
    for i in range(3):
        with torch.autocast("pretended", dtype=torch.bfloat16, enabled=True):
            if i > 0:
                x = x @ y
        x += 1
    return x


def asks(x: Tensor, y: Tensor):
    with torch.autocast("pretended", dtype=torch.bfloat16):
        half = torch.is_autocast_enabled("pretended")
        x = x.to(torch.get_autocast_dtype("pretended"))
    return x.half() if half else x, torch.is_autocast_enabled("pretended")


def takes_float64(x: Tensor, y: Tensor):
    """The device's own module says which dtypes its autocast takes."""
    with torch.autocast("pretended", dtype=torch.float64):
        return x @ y


def takes_no_float32(x: Tensor, y: Tensor):
    with torch.autocast("pretended", dtype=torch.float32):
        return x.half() @ y.half()


def without(x: Tensor, y: Tensor):
    return x @ y, torch.tanh(x.half())


def tanh(x: Tensor):
    return torch.tanh(x)


def with_a_task(x: Tensor, y: Tensor):
    """Each thread has an autocast state of its own: scopes are entered operator by operator."""
    with torch.autocast("pretended", dtype=torch.float16):
        task = torch.jit.fork(tanh, x)
        h = x @ y
        with torch.autocast("pretended", enabled=False):
            h = h + x @ y
    return torch.jit.wait(task), h, torch.is_autocast_enabled("pretended")


FUNCTIONS = [
    enabled,
    disabled,
    nested,
    in_a_loop,
    asks,
    takes_float64,
    takes_no_float32,
    without,
    with_a_task,
]


def on(device: str) -> tuple[Tensor, Tensor]:
    return torch.randn(3, 3).to(device), torch.randn(3, 3).to(device)


@pytest.mark.parametrize("tensors", ["pretended", "cpu"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:In .* autocast, but the target dtype")
def test_scripted(function: Any, tensors: str) -> None:
    check(function, jit_amp.script, on(tensors), "pretended")


@pytest.mark.parametrize(
    "function", [f for f in FUNCTIONS if f not in (asks, takes_no_float32, with_a_task)]
)
@pytest.mark.parametrize("tensors", ["pretended", "cpu"])
def test_traced(function: Any, tensors: str) -> None:
    inputs = on(tensors)
    trace = jit_amp.trace(function, fresh(inputs))
    for others in (inputs, tree_map(torch.Tensor.half, inputs), tree_map(Tensor.double, inputs)):
        for _ in range(3):
            try:
                expected = function(*fresh(others))
            except RuntimeError:  # float64 beside float16
                continue
            assert_same(trace(*fresh(others)), expected, str(others[0].dtype))


def test_a_trace_inside_its_autocast() -> None:
    inputs = on("pretended")
    with torch.autocast("pretended", dtype=F16):
        trace = jit_amp.trace(without, inputs)
        wide = tree_map(torch.Tensor.double, inputs)
        assert_same(trace(*inputs), without(*inputs), "float32")
        assert_same(trace(*wide), without(*wide), "float64")


def convolution(x: Tensor, w: Tensor):
    with torch.autocast("pretended", dtype=torch.float16):
        return torch.conv2d(x, w)


def cell(x: Tensor, w: Tensor):
    with torch.autocast("pretended", dtype=torch.float16):
        return torch.rnn_tanh_cell(x, x, w, w)


@pytest.mark.parametrize("dtype", [torch.float32, F16])
def test_a_trace_of_what_the_tracer_records_by_another_name(dtype: torch.dtype) -> None:
    x, w = (torch.randn(1, 1, 3, 3).to("pretended") for _ in range(2))
    trace = jit_amp.trace(convolution, (x.to(dtype), w.to(dtype)))
    for other in (torch.float32, F16, torch.float64):
        given = x.to(other), w.to(other)
        assert_same(trace(*given), convolution(*given), str(other))


@pytest.mark.parametrize("dtype", [torch.float32, F16])
def test_a_trace_of_what_is_not_in_it_is_refused(dtype: torch.dtype) -> None:
    inputs = tree_map(lambda t: t.to(dtype), on("pretended"))
    with pytest.raises(jit_amp.AutocastError, match=r"aten::rnn_tanh_cell.*'pretended'.*JA120"):
        jit_amp.trace(cell, inputs)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor):
        with torch.autocast("pretended", dtype=torch.bfloat16):
            h = self.first(x)
            h = self.first(torch.tanh(h))
        return self.second(h.float())


@pytest.mark.parametrize("ambient", range(4))
def test_gradients(ambient: int) -> None:
    module = Layers().to("pretended")
    scripted = jit_amp.script(copy.deepcopy(module))
    x = torch.randn(2, 3).to("pretended")
    for _ in range(3):
        found = []
        for each in (module, scripted):
            with ambients("pretended")[ambient]():
                result = each(x)
            found.append([result, *torch.autograd.grad(result.float().sum(), each.parameters())])
        assert_same(found[1], found[0], "gradients")


class InScope(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor):
        return self.function(x, y)


def off_or_for_cpu(x: Tensor, y: Tensor):
    with torch.autocast("pretended", enabled=False), torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ y, torch.is_autocast_enabled("pretended"), torch.is_autocast_enabled("cpu")


def only_asks(x: Tensor, y: Tensor):
    with torch.autocast("pretended", dtype=torch.bfloat16):
        half = torch.is_autocast_enabled("pretended")
    return x.half() if half else x


@pytest.mark.parametrize("examples", [True, False])
@pytest.mark.parametrize("function", [off_or_for_cpu, only_asks])
def test_frozen(function: Any, examples: bool) -> None:
    for device in ("cpu", "pretended"):
        inputs = on(device)
        given = inputs if examples else None
        artefact = jit_amp.freeze(InScope(function).eval(), example_inputs=given)
        for _ in range(3):
            assert_same(artefact(*inputs), function(*inputs), device)


def test_an_artefact_for_cpu_leaves_a_third_device_alone_or_refuses_it() -> None:
    artefact = jit_amp.freeze(InScope(off_or_for_cpu).eval(), example_inputs=on("cpu"))
    with pytest.raises(Exception, match="cpu"):
        artefact(*on("pretended"))


@pytest.mark.parametrize("function", [enabled, nested])
def test_an_artefact_has_no_scope_of_a_third_device(function: Any) -> None:
    with pytest.raises(jit_amp.AutocastError, match="pretended"):
        jit_amp.freeze(InScope(function).eval(), example_inputs=on("pretended"))
