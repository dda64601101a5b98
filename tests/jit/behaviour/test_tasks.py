"""Scopes in forked tasks, and around them."""

import pytest
import torch
from torch import Tensor, nn

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
