"""Scopes in forked tasks, and around them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import (
    assert_parity,
    dtypes_of,
    matrix,
)
from .test_calls import product

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def task(x: Tensor):
    a = x @ x
    with torch.autocast("cpu", dtype=torch.float16):
        b = x @ x
    with torch.autocast("cpu", enabled=False):
        c = x @ x
    return a, b, c


def task_of_tasks(x: Tensor):
    one = torch.jit.fork(task, x)
    a = x @ x
    with torch.autocast("cpu", dtype=torch.float16):
        two = torch.jit.fork(task, x)
        b = x @ x
    with torch.autocast("cpu", enabled=False):
        done = torch.jit.wait(one), torch.jit.wait(two)
    return a, b, done


def forks_tasks_of_tasks(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one = torch.jit.fork(task_of_tasks, x)
        a = x @ x
    two = torch.jit.fork(task_of_tasks, x)
    return a, torch.jit.wait(one), x @ x, torch.jit.wait(two)


def three_deep(x: Tensor):
    one = torch.jit.fork(forks_tasks_of_tasks, x)
    with torch.autocast("cpu", dtype=torch.float16):
        two = torch.jit.fork(forks_tasks_of_tasks, x)
    return torch.jit.wait(one), torch.jit.wait(two)


IN_TASKS = [BF16, F16, BF16, F16, F32, F16, F16, F32]  # task_of_tasks in bfloat16
OUT_OF_TASKS = [F32, F16, F32, F16, F32, F16, F16, F32]


def test_a_scope_reaches_into_a_task_of_a_task() -> None:
    results = assert_parity(forks_tasks_of_tasks, (matrix(),))
    assert dtypes_of(results["none"]) == [BF16, *IN_TASKS, F32, *OUT_OF_TASKS]


def test_a_scope_reaches_three_tasks_deep() -> None:
    assert_parity(three_deep, (matrix(),))


def product_of(task: torch.jit.Future[Tensor], x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.jit.wait(task) @ x, x @ x


def task_given_to_another(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one = torch.jit.fork(product, x)
        two = torch.jit.fork(product_of, one, x)
    return torch.jit.wait(two), torch.jit.wait(one)


def test_a_task_may_wait_for_another_in_a_scope() -> None:
    results = assert_parity(task_given_to_another, (matrix(),))
    assert dtypes_of(results["none"]) == [F16, F16, BF16]


def waits_in_another_scope(x: Tensor):
    one = torch.jit.fork(product, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        two = torch.jit.fork(product, x)
        a = torch.jit.wait(one)
        after = x @ x
    return a, after, torch.jit.wait(two), x @ x


def test_a_tasks_scope_is_the_one_where_it_is_forked() -> None:
    results = assert_parity(waits_in_another_scope, (matrix(),))
    assert dtypes_of(results["none"]) == [F32, BF16, BF16, F32]


class Forking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.on = False

    def method(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            y = self.linear(x)
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.on):
            z = self.linear(x)
        return y, z, self.linear(x)

    def again(self, x: Tensor):
        task = torch.jit.fork(self.method, x)
        return self.linear(x), torch.jit.wait(task)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            one = torch.jit.fork(self.again, x)
            two = torch.jit.fork(self.linear, x)
        tasks: list[torch.jit.Future[tuple[Tensor, Tensor, Tensor]]] = []
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                tasks.append(torch.jit.fork(self.method, x))
            tasks.append(torch.jit.fork(self.method, x))
        return torch.jit.wait(one), torch.jit.wait(two), [torch.jit.wait(each) for each in tasks]


@pytest.mark.usefixtures("no_weight_cache")
def test_scopes_reach_into_tasks_of_methods() -> None:
    results = assert_parity(Forking(), (matrix(),))
    assert dtypes_of(results["none"]) == [
        *[BF16, F16, F32, BF16],
        BF16,
        *[F16, F32, BF16, F16, F32, F32] * 3,
    ]


class Shares(nn.Module):
    """A weight and an activation, each cast in a task and beside it."""

    def __init__(self, cached: bool = True) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.cached = cached

    def inner(self, x: Tensor) -> Tensor:
        return self.two(torch.cdist(x, x)[:, :4])

    def task(self, x: Tensor) -> Tensor:
        inside = torch.jit.fork(self.inner, x)
        return self.one(x) + torch.jit.wait(inside)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=self.cached):
            x = self.one(x)
            tasks = [torch.jit.fork(self.task, x), torch.jit.fork(self.task, x * 0.5)]
            distances = torch.cdist(x, x)
            x = self.one(x) + torch.jit.wait(tasks[0]) * 0.3 + torch.jit.wait(tasks[1])
        return x, distances


def takes_a_task(task: torch.jit.Future[Tensor], x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.jit.wait(task) @ x


def gives_a_task(x: Tensor) -> torch.jit.Future[Tensor]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.jit.fork(product, x)


def gradients(module: nn.Module, function: Callable[..., Any], x: Tensor) -> list[Tensor]:
    module.zero_grad()
    y, distances = function(x)
    (y.float().cos().sum() + (distances * distances.detach()).sum()).backward()
    return [each.grad.clone() for each in module.parameters()]  # type: ignore[union-attr]


@pytest.mark.parametrize("cached", [True, False])
def test_gradients_through_tasks_are_eagers_to_the_bit(cached: bool) -> None:
    for seed in range(10):
        torch.manual_seed(seed)
        module, x = Shares(cached), torch.rand(4, 4)
        scripted = jit_amp.script(module)
        for _ in range(3):
            expected, found = gradients(module, module, x), gradients(module, scripted, x)
            assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_tasks_are_explained() -> None:
    scripted = jit_amp.script(Shares().eval())
    report = jit_amp.explain(scripted, torch.rand(4, 4))
    assert not report.warnings
    linears = [row for row in report.rows if row.operator == "aten::linear"]
    assert len(linears) == 6 and all(row.results == ("bfloat16",) for row in linears)


def test_a_task_may_be_another_programs() -> None:
    gives, takes = jit_amp.script(gives_a_task), jit_amp.script(takes_a_task)
    for _ in range(3):
        x = torch.rand(4, 4, requires_grad=True)
        found, expected = takes(gives(x), x), takes_a_task(gives_a_task(x), x)
        assert found.dtype == BF16 and torch.equal(found, expected)
        found.float().sum().backward()


class TakesAnything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, given: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            if isinstance(given, torch.jit.Future[Tensor]):
                y = y + torch.jit.wait(given)
            return y @ x


def slow(x: Tensor) -> Tensor:
    for _ in range(3000):
        x = (x @ x).sin()
    return x


class GivesATask(nn.Module):
    def __init__(self, takes: nn.Module) -> None:
        super().__init__()
        self.takes = takes

    def forward(self, x: Tensor) -> Tensor:
        return self.takes.forward(torch.jit.fork(slow, x), x)


def test_a_future_that_no_type_tells_of_is_waited_for() -> None:
    """It may not be there yet, and PyTorch then goes on in another thread."""
    gives = torch.jit.script(GivesATask(jit_amp.script(TakesAnything())))
    for _ in range(3):
        assert gives(torch.rand(4, 4, requires_grad=True)).dtype == BF16
        assert not torch.is_autocast_enabled("cpu")


def raises_in_a_task(x: Tensor):
    task = torch.jit.fork(raising, x)
    y = x @ x
    return torch.jit.wait(task) + y


def raising(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        if y.dtype == torch.bfloat16:
            raise ValueError("from the task")
        return y


@pytest.mark.parametrize("with_gradients", [False, True])
def test_what_a_task_raises_leaves_no_scope_open(with_gradients: bool) -> None:
    scripted = jit_amp.script(raises_in_a_task)
    for _ in range(3):
        with pytest.raises((RuntimeError, torch.jit.Error), match="from the task"):
            scripted(torch.rand(4, 4, requires_grad=with_gradients))
        assert not torch.is_autocast_enabled("cpu")
