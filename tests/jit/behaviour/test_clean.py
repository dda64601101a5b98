"""No cast more than eager's, and none shared where a write, or another mode, makes it another."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from casts import count_casts
from torch import Tensor, nn

import jit_amp

from ..support import (
    assert_gradient_parity,
    assert_parity,
    check_ir,
    known_warnings_ignored,
    operators,
)

BF16 = torch.bfloat16


def casts(function: Callable[..., Any], *inputs: Any) -> int:
    with known_warnings_ignored():
        return count_casts(function, *inputs)


# Writes. In each of these a value is cast, written to, and cast again.


def written_itself(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        x.fill_(0.5)
        return a, x @ y


def written_through_a_view(x: Tensor, y: Tensor):
    row = x[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        row.zero_()
        return a, x @ y


def viewed_and_the_base_written(x: Tensor, y: Tensor):
    v = x.t()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = v @ y
        x.mul_(2.0)
        return a, v @ y


def written_through_a_list(x: Tensor, y: Tensor):
    kept = [x, y]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        kept[0].add_(1.0)
        return a, x @ y


def written_through_a_dictionary(x: Tensor, y: Tensor):
    kept = {"x": x}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        kept["x"].neg_()
        return a, x @ y


def written_in_a_branch(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        if bool(a.sum() < 1e9):
            x.add_(1.0)
        return a, x @ y


def written_in_a_loop(x: Tensor, y: Tensor):
    a = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(3):
            a = x @ y
            x.add_(1.0)
    return a, x


def cast_in_a_branch_and_written_after(x: Tensor, y: Tensor):
    a = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if bool(y.sum() < 1e9):
            a = x @ y
        x.add_(1.0)
        return a, x @ y


def write(z: Tensor):
    z.mul_(0.5)


def written_in_a_callee(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        write(x)
        return a, x @ y


def written_by_out(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        torch.add(y, 1.0, out=x)
        return a, x @ y


def written_by_an_augmented_assignment(x: Tensor, y: Tensor):
    z = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        z += 1.0
        return a, x @ y


@torch.jit.ignore
def python_writes(z: Tensor) -> None:
    z.fill_(0.25)


def written_by_python(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        python_writes(x)
        return a, x @ y


def written_by_a_task(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        torch.jit.wait(torch.jit.fork(write, x))
        return a, x @ y


def list_of_what_is_written(x: Tensor, y: Tensor):
    parts = [x, y]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch.cat([x.float(), y.to(torch.bfloat16)])
        b = torch.stack(parts)
        parts[0].fill_(2.0)
        return a, b, torch.stack(parts)


WRITTEN = [
    written_itself,
    written_through_a_view,
    viewed_and_the_base_written,
    written_through_a_list,
    written_through_a_dictionary,
    written_in_a_branch,
    written_in_a_loop,
    cast_in_a_branch_and_written_after,
    written_in_a_callee,
    written_by_out,
    written_by_an_augmented_assignment,
    written_by_python,
    written_by_a_task,
    list_of_what_is_written,
]


@pytest.mark.parametrize("function", WRITTEN)
def test_a_cast_is_not_shared_across_a_write(function: Callable[..., Any]) -> None:
    assert_parity(function, (torch.randn(4, 4), torch.randn(4, 4)))


class WritesABuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(4, 4))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ self.seen
            self.seen.add_(1.0)
            return a, x @ self.seen


class AssignsABuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(4, 4))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ self.seen
            self.seen = self.seen + 1.0
            for _ in range(2):
                a = a + x @ self.seen
                self.seen = self.seen * 2.0
            return a, x @ self.seen


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(4, 4))

    @torch.jit.export
    def step(self) -> None:
        self.seen = self.seen * 3.0

    def forward(self, x: Tensor):
        return x @ self.seen


class AssignsInASubmodule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.holder = Holder()

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = self.holder(x)
            self.holder.step()
            return a, self.holder(x), x @ self.holder.seen


class PythonAssigns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(4, 4))

    @torch.jit.ignore
    def step(self, x: Tensor) -> None:
        self.seen = self.seen + x

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ self.seen
            self.step(x)
            return a, x @ self.seen


@pytest.mark.parametrize("make", [WritesABuffer, AssignsABuffer, AssignsInASubmodule])
def test_an_attribute_that_changes_is_read_again(make: Callable[[], nn.Module]) -> None:
    assert_parity(make(), (torch.randn(4, 4),))


def test_an_attribute_that_python_may_assign_is_read_again() -> None:
    check_ir(
        jit_amp.lowered_graph(PythonAssigns()),
        """
        CHECK: GetAttr[name="seen"]
        CHECK: jit_amp::cast
        CHECK: jit_amp::scoped_effect
        CHECK: GetAttr[name="seen"]
        CHECK: jit_amp::cast
        """,
    )


# Gradient modes.


def under_no_grad(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            a = x @ y
        return a, x @ y


def under_no_grad_in_a_loop(x: Tensor, y: Tensor):
    a = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            with torch.no_grad():
                a = x @ y
        return a, x @ y


def no_grad_in_a_branch_before(x: Tensor, y: Tensor):
    a = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if bool(y.sum() < 1e9):
            with torch.no_grad():
                a = x @ y
        return a, x @ y


def branch_under_no_grad_before(x: Tensor, y: Tensor):
    a = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            if bool(y.sum() < 1e9):
                a = x @ y
        return a, x @ y


def grad_in_a_loop_under_no_grad(x: Tensor, y: Tensor):
    a = x
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        for _ in range(2):
            torch.set_grad_enabled(True)
            a = x @ y
            torch.set_grad_enabled(False)
    return a


@pytest.mark.parametrize(
    "function",
    [
        under_no_grad,
        under_no_grad_in_a_loop,
        no_grad_in_a_branch_before,
        branch_under_no_grad_before,
        grad_in_a_loop_under_no_grad,
    ],
)
def test_a_cast_under_no_grad_is_not_one_outside_it(function: Callable[..., Any]) -> None:
    inputs = (torch.randn(4, 4).requires_grad_(), torch.randn(4, 4).requires_grad_())
    assert_parity(function, inputs)
    assert_gradient_parity(function, inputs)


def list_cast_for_cuda(xs: list[Tensor]):
    with torch.autocast("cuda"):
        a = torch.linalg.multi_dot(xs)
        xs[0].fill_(2.0)
        return a, torch.linalg.multi_dot(xs)


def test_a_list_is_cast_each_time() -> None:
    """AliasDb takes a write to an element for none to the list."""
    assert operators(jit_amp.lowered_graph(list_cast_for_cuda)).count("jit_amp::cast") == 2


# What is shared.


class Shared(nn.Module):
    """Weights used several times: in a row, in a loop, in branches, and after them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.a(self.a(x))
            for _ in range(n):
                x = torch.tanh(self.b(x))
                for _ in range(n):
                    x = self.b(x) + self.a(x)
            if n > 1:
                x = self.c(x)
            x = self.c(x)
            x = self.d(x) if n > 2 else F.relu(self.d(x))
        return x


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_a_weight_is_cast_once_a_call_as_by_eagers_cache(mode: Any, n: int) -> None:
    module, x = Shared(), torch.randn(4, 4)
    scripted = jit_amp.script(module)
    with mode():
        assert casts(scripted, x, n) == casts(module, x, n) == 9


def test_weights_that_are_used_often_have_eagers_values_and_gradients() -> None:
    module = Shared()
    assert_parity(module, (torch.randn(4, 4), 2))
    assert_gradient_parity(module, (torch.randn(4, 4), 2), rounding=2.0**-6)


def test_a_weight_that_is_written_to_between_calls_is_cast_again() -> None:
    module, x = Shared(), torch.randn(4, 4)
    scripted = jit_amp.script(module)
    for _ in range(4):
        with known_warnings_ignored():
            assert torch.equal(scripted(x, 2), module(x, 2))
        with torch.no_grad():
            for weight in module.parameters():
                weight.mul_(-0.9)


def loop_invariant(x: Tensor, y: Tensor, n: int):
    z = y
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for i in range(n):
            if i > 0:
                z = z @ x
            z = torch.mm(z.float(), x)
    return z


def test_a_cast_leaves_a_loop_in_which_its_value_stays() -> None:
    check_ir(
        jit_amp.lowered_graph(loop_invariant),
        """
        CHECK:      [[CAST:%[0-9]+]] : Tensor = jit_amp::cast(%x.1,
        CHECK-NEXT: prim::Loop
        CHECK:      aten::matmul(%{{.*}}, [[CAST]])
        CHECK-NOT:  jit_amp::cast(%x.1,
        CHECK:      aten::mm(%{{.*}}, [[CAST]])
        """,
    )
    for n in (0, 1, 3):
        assert_parity(loop_invariant, (torch.randn(4, 4), torch.randn(4, 4), n))


def only_in_a_branch(x: Tensor, y: Tensor, n: int):
    z = y
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for i in range(n):
            z = z @ x if i > 100 else z + 1.0
    return z


def test_a_cast_that_may_not_be_needed_stays_in_its_branch() -> None:
    x = torch.randn(4, 4)
    assert casts(jit_amp.script(only_in_a_branch), x, x, 3) == casts(only_in_a_branch, x, x, 3) == 0
