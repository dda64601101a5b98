"""Gradients: eager's, within bfloat16's rounding, over three runs of the profiling executor."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import (
    AMBIENTS,
    DEFAULT,
    PLACES,
    Place,
    assert_gradient_parity,
    assert_parity,
    for_scope,
)

BF16, F32 = torch.bfloat16, torch.float32
# oneDNN has no float16 LSTM on most CPUs.
WITHOUT_FLOAT16 = [name for name in DEFAULT if name != "cpu_float16"]


def leaf(*shape: int, device: str = "cpu") -> Tensor:
    return torch.randn(*shape).to(device).requires_grad_()


class Everything(nn.Module):
    """A conv bias, an LSTM, a disabled inner scope, and operators outside any scope."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, bias=True)
        self.lstm = nn.LSTM(12, 5, batch_first=True)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor):
        x = torch.relu(x) * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.conv(x)
            y, _ = self.lstm(y.flatten(2))
            with torch.autocast("cpu", enabled=False):
                a = self.head(y.float())
            b = self.head(y)
        c = self.head(y.float())
        return a, b, c, torch.sigmoid(b)


def test_conv_bias_lstm_disabled_scope_and_operators_outside_agree_bit_for_bit() -> None:
    results = assert_parity(Everything(), (torch.randn(2, 1, 5, 6),), ambients=WITHOUT_FLOAT16)
    assert [t.dtype for t in results["none"]] == [F32, BF16, F32, BF16]
    assert [t.dtype for t in results["cpu"]] == [F32, BF16, BF16, BF16]


def test_their_gradients_agree() -> None:
    assert_gradient_parity(Everything(), (torch.randn(2, 1, 5, 6),), ambients=WITHOUT_FLOAT16)


def test_gradients_of_inputs_agree_as_well() -> None:
    assert_parity(Everything(), (leaf(2, 1, 5, 6),), ambients=WITHOUT_FLOAT16)
    assert_gradient_parity(Everything(), (leaf(2, 1, 5, 6),), ambients=WITHOUT_FLOAT16)


def weight_used_twice(x: Tensor, w: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.tanh(x @ w)
        return torch.tanh(y @ w)


def weight_used_inside_and_outside(x: Tensor, w: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch.relu(x @ w)
        with torch.autocast("cpu", enabled=False):
            b = torch.tanh(x @ w) * 2
    return a, b, torch.sigmoid(x @ w)


def weight_used_in_a_loop(x: Tensor, w: Tensor):
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = torch.relu(x @ w)
        x = torch.relu(x.float() @ w)
    return x


def operands_of_lists_and_promotion(x: Tensor, w: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        return torch.stack([y, y @ w]), torch.cat([y, y]), torch.cdist(y, y @ w).pow(2)


def optional_operands(x: Tensor, w: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        bias: Tensor | None = w[0]
        return torch._C._nn.linear(x, w, bias), torch._C._nn.linear(x, w, None)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "function",
    [
        weight_used_twice,
        weight_used_inside_and_outside,
        weight_used_in_a_loop,
        operands_of_lists_and_promotion,
        optional_operands,
    ],
)
def test_gradients_are_eagers(function: Callable[..., Any], place: Place) -> None:
    inputs = leaf(4, 4, device=place.tensors), leaf(4, 4, device=place.tensors)
    function = for_scope(function, place.scope)
    # float16 gradients of tiny numbers are a matter of luck in eager too. Around a scope of another
    # dtype eager's cache hands out the wrong casts: CUDA's ambients are float16.
    ambients = ["none", "cpu", "cpu_off"] if place.scope == "cuda" else WITHOUT_FLOAT16
    assert_gradient_parity(function, inputs, ambients=ambients, rounding=2.0**-6)


def residual(x: Tensor, w: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ w + x


def gate(x: Tensor, w: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
    return y * torch.tanh(x)


def selection(x: Tensor, w: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.where(x > 0, x @ w, x)


def cast_by_hand(x: Tensor, w: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ w).float() * torch.tanh(x)


# PyTorch's own autodiff leaves the gradient of an operator that promotes in the wider dtype.
@pytest.mark.parametrize("function", [residual, gate, selection, cast_by_hand])
def test_gradients_of_operators_on_two_dtypes_are_eagers(function: Callable[..., Any]) -> None:
    assert_gradient_parity(function, (leaf(4, 4), leaf(4, 4)), ambients=["none", "cpu"])


def first_without_gradients(x: Tensor, w: Tensor):
    x, w = x * 1, w * 1  # no leaves: eager's weight cache keeps out
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            a = x @ w
        b = x @ w
    return a, b


def last_without_gradients(x: Tensor, w: Tensor):
    x, w = x * 1, w * 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ w
        with torch.no_grad():
            b = x @ w
    return a, b


@pytest.mark.parametrize(
    "function",
    [
        first_without_gradients,
        last_without_gradients,
    ],
)
def test_no_grad_around_one_of_two_equal_operators_stays_there(
    function: Callable[..., Any],
) -> None:
    assert_parity(function, (leaf(3, 3), leaf(3, 3)), ambients=["none", "cpu"])
    assert_gradient_parity(function, (leaf(3, 3), leaf(3, 3)), ambients=["none", "cpu"])


def test_training_a_module_follows_eager() -> None:
    torch.manual_seed(0)
    data, target = torch.randn(8, 1, 5, 6), torch.randn(8, 3, 2)
    weights: list[list[Tensor]] = []
    reference = Everything()
    for wrap in (lambda module: module, jit_amp.script):
        module = Everything()
        module.load_state_dict(reference.state_dict())
        run = wrap(module)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
        losses = []
        for _ in range(8):
            optimizer.zero_grad()
            a, b, c, _ = run(data)
            loss = sum((t.float() - target[..., :2]).pow(2).mean() for t in (a, b, c))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]
        weights.append(list(module.parameters()))
    for eager, scripted in zip(*weights, strict=True):
        torch.testing.assert_close(scripted, eager, rtol=2.0**-6, atol=2.0**-8)


class InFloat16(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return self.last(torch.relu(self.first(x)))


def test_a_gradient_scaler_takes_eagers_steps() -> None:
    """Scales, skipped steps and weights, with gradients that overflow in between."""
    torch.manual_seed(0)
    data, reference = torch.randn(8, 8), InFloat16()
    histories: list[list[float]] = []
    weights: list[list[Tensor]] = []
    for wrap in (lambda module: module, jit_amp.script):
        module = InFloat16()
        module.load_state_dict(reference.state_dict())
        run = wrap(module)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=2)
        history = []
        for step in range(8):
            optimizer.zero_grad()
            loss = run(data).float().pow(2).mean() * (1e6 if step == 3 else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            assert all(p.grad.dtype == F32 for p in module.parameters())
            scaler.step(optimizer)
            scaler.update()
            history.append(scaler.get_scale())
        histories.append(history)
        weights.append(list(module.parameters()))
    assert histories[0] == histories[1]
    assert histories[0][3] < histories[0][2]  # a step was skipped
    for eager, scripted in zip(*weights, strict=True):
        torch.testing.assert_close(scripted, eager, rtol=2.0**-8, atol=2.0**-10)


def test_no_gradient_flows_where_eager_lets_none() -> None:
    module = Everything()
    module.conv.requires_grad_(False)
    scripted = jit_amp.script(module)
    for _ in range(3):
        sum(t.float().sum() for t in scripted(torch.randn(2, 1, 5, 6))).backward()
        assert module.conv.weight.grad is None
        assert module.head.weight.grad is not None
    with torch.no_grad():
        assert not any(t.requires_grad for t in scripted(torch.randn(2, 1, 5, 6)))


@pytest.mark.parametrize("ambient", ["none", "cpu"])
def test_gradients_keep_the_dtype_of_what_they_belong_to(ambient: str) -> None:
    scripted = jit_amp.script(weight_used_twice)
    x, w = leaf(4, 4), torch.randn(4, 4).to(BF16).requires_grad_()
    for _ in range(3):
        x.grad = w.grad = None
        with AMBIENTS[ambient]():
            result = scripted(x, w)
        result.float().sum().backward()
        assert (result.dtype, x.grad.dtype, w.grad.dtype) == (BF16, F32, BF16)


def promotes(x: Tensor, y: Tensor) -> Tensor:
    return (x @ y + x) * y


def promotes_in_a_task(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        task = torch.jit.fork(promotes, x, y)
        z = x @ y
    return torch.jit.wait(task) + z


def test_gradients_through_a_task() -> None:
    inputs = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    assert_gradient_parity(promotes_in_a_task, inputs)
