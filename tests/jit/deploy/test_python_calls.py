"""Calls of Python in what is frozen: no file holds them, and freeze says so by name."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same


@torch.jit.ignore
def in_python(x: Tensor) -> Tensor:
    return x @ x.t()


class CallsPython(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x) @ in_python(x)


class CallsPythonOutside(CallsPython):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.autocast("cpu", enabled=False):
                y = in_python(x)
            return self.linear(x) @ y


class CallsPythonWithoutScopes(CallsPython):
    def forward(self, x: Tensor):
        return self.linear(x) @ in_python(x)


class CallsPythonInATask(CallsPython):
    def forward(self, x: Tensor):
        task = torch.jit.fork(self.part, x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x) @ torch.jit.wait(task)

    def part(self, x: Tensor):
        return in_python(x)


class CallsItsOwnMethod(CallsPython):
    @torch.jit.ignore
    def in_python(self, x: Tensor) -> Tensor:
        return x @ self.linear.weight

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x) @ self.in_python(x)


CALLS_PYTHON = [
    CallsPython,
    CallsPythonOutside,
    CallsPythonWithoutScopes,
    CallsPythonInATask,
    CallsItsOwnMethod,
]


@pytest.mark.parametrize("module", CALLS_PYTHON)
def test_a_call_of_python_is_refused_by_name_and_a_trace_is_frozen(
    module: type[CallsPython], tmp_path: Path
) -> None:
    model, x = module().eval().requires_grad_(False), torch.randn(8, 8)
    with pytest.raises(jit_amp.AutocastError, match=r"`in_python` is Python code.*JA301") as error:
        jit_amp.freeze(model)
    assert "in_python(x)" in str(error.value) and "test_python_calls.py" in str(error.value)
    assert "jit_amp.trace(module, example_inputs)" in str(error.value)
    frozen = jit_amp.freeze(jit_amp.trace(model, (x,)), example_inputs=(x,))
    torch.jit.save(frozen, tmp_path / "net.pt")
    loaded = torch.jit.load(tmp_path / "net.pt")
    for _ in range(3):
        assert_same(loaded(x), model(x), "frozen")


class CallsPythonNever(CallsPython):
    def __init__(self) -> None:
        super().__init__()
        self.in_python = False

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = in_python(x) if self.in_python else x
            return self.linear(y)


def test_a_call_of_python_that_is_never_made_is_no_obstacle(tmp_path: Path) -> None:
    model, x = CallsPythonNever().eval().requires_grad_(False), torch.randn(8, 8)
    frozen = jit_amp.freeze(model)
    torch.jit.save(frozen, tmp_path / "net.pt")
    for _ in range(3):
        assert_same(frozen(x), model(x), "frozen")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


class AppliesAFunction(CallsPython):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(Doubled.apply(x))


class AppliesAsAdvised(CallsPython):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x * 2 if torch.jit.is_tracing() else Doubled.apply(x))


def test_an_autograd_function_in_a_trace_is_refused_at_the_users_line() -> None:
    x = torch.randn(8, 8)
    with pytest.raises(jit_amp.AutocastError, match=r"`Doubled` is Python code.*JA301") as error:
        jit_amp.freeze(jit_amp.trace(AppliesAFunction().eval(), (x,)))
    _, place, advice, _ = str(error.value).split("\n\n")
    assert place.startswith(f'  File "{__file__}", line ')
    assert place.endswith("return self.linear(Doubled.apply(x))")
    assert len(place.splitlines()) == 2
    assert "`if torch.jit.is_tracing():`" in advice and "`Doubled.apply`" in advice
    model = AppliesAsAdvised().eval().requires_grad_(False)
    frozen = jit_amp.freeze(jit_amp.trace(model, (x,)), example_inputs=(x,))
    for _ in range(3):
        assert_same(frozen(x), model(x), "as advised")
