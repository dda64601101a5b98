"""The helpers fail where they should: PyTorch's own pass, in jit_amp's place, does not pass."""

import pytest
import torch
from torch import Tensor

import jit_amp

from .support import (
    assert_gradient_parity,
    assert_parity,
    check_ir,
    operators,
    operators_of_ours,
    text_of,
)


def total(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ x).sum(0)


def state(x: Tensor):
    torch.autocast_increment_nesting()
    return x


def write(x: Tensor):
    x.add_(1)
    return x.sum()


def test_parity_fails_on_another_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_amp, "script", torch.jit.script)
    with pytest.raises(AssertionError, match=r"call 1, result: torch.float32, eager torch.bfl"):
        assert_parity(total, (torch.randn(3, 3),), ambients=["none"])


def test_parity_fails_on_another_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_amp, "script", lambda f: lambda x: f(x) * (1 + 2**-7))
    with pytest.raises(AssertionError, match="values differ by up to"):
        assert_parity(total, (torch.randn(3, 3),), ambients=["none"])


def test_parity_fails_on_another_write_to_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_amp, "script", lambda f: lambda x: f(x.clone()))
    with pytest.raises(AssertionError, match=r"inputs\[0\]: values differ"):
        assert_parity(write, (torch.randn(3, 3),), ambients=["none"])


def test_parity_fails_on_another_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_amp, "script", lambda f: state)
    try:
        with pytest.raises(AssertionError, match="left another autocast state"):
            assert_parity(lambda x: x, (torch.randn(3, 3),), ambients=["none"])
    finally:
        torch.autocast_decrement_nesting()


def test_gradient_parity_fails_on_another_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_amp, "script", lambda f: lambda x: f(x) * (1 + 2**-5))
    with pytest.raises(AssertionError, match="of the largest"):
        assert_gradient_parity(total, (torch.randn(3, 3, requires_grad=True),), ambients=["none"])


@pytest.mark.parametrize(
    "checks",
    [
        "CHECK: aten::mul",
        "CHECK-LABEL: graph(\nCHECK-NOT: aten::matmul\nCHECK: return",
        "CHECK: aten::sum\nCHECK: aten::matmul",
        "CHECK: [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x.1\nCHECK: aten::sum([[X]]",
        "CHECK-LABEL: block(",
        "no directive at all",
    ],
)
def test_check_ir_fails_where_the_ir_does_not_match(checks: str) -> None:
    with pytest.raises(AssertionError, match=r"filecheck error|error:"):
        check_ir(jit_amp.lowered_graph(total), checks)


def test_check_ir_does_not_see_source_locations() -> None:
    check_ir(jit_amp.lowered_graph(total), "CHECK-LABEL: graph(\nCHECK-NOT: test_support")


def task(x: Tensor):
    return x.exp()


def branch_and_task(x: Tensor):
    future = torch.jit.fork(task, x)
    if x.dim() == 2:
        x = x.relu()
    return torch.jit.wait(future) + x


def test_operators_are_those_of_branches_and_of_tasks_too() -> None:
    graph = torch.jit.script(branch_and_task).graph
    assert {"prim::fork", "prim::CallFunction", "aten::relu"} <= {*operators(graph)}
    assert "prim::Constant" not in operators(graph)
    assert not operators_of_ours(graph)
    assert "jit_amp::cast" in operators_of_ours(jit_amp.lowered_graph(total))


def test_text_names_no_file_of_a_task_either() -> None:
    graph = torch.jit.script(branch_and_task).graph
    assert "test_support" in str(graph)
    assert '"task"' in text_of(graph) and "test_support" not in text_of(graph)
