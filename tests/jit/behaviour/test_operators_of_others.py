"""Custom operators: with an autocast kernel, with none, with a policy that the user states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_parity, assert_same, operators


@torch.library.custom_op("jit_amp_tests::scaled", mutates_args=())
def scaled(x: Tensor) -> Tensor:
    return x * 2


@torch.library.custom_op("jit_amp_tests::inner_product", mutates_args=())
def inner_product(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


@torch.library.custom_op("jit_amp_tests::halved", mutates_args=())
def halved(x: Tensor) -> Tensor:
    return x / 2


torch.library.register_autocast("jit_amp_tests::halved", "cpu", torch.bfloat16)


def without_a_kernel(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.ops.jit_amp_tests.scaled(x), torch.ops.jit_amp_tests.inner_product(x, x)


def with_a_kernel(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.ops.jit_amp_tests.halved(x)


@pytest.mark.parametrize("function", [without_a_kernel, with_a_kernel])
def test_a_custom_operator_is_right_in_process(function: Any) -> None:
    assert_parity(function, (torch.randn(3, 3),))


class Custom(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.ops.jit_amp_tests.halved(x)


@pytest.fixture
def stated() -> Iterator[None]:
    with jit_amp.policy.register("jit_amp_tests::halved", "cpu", "lower"):
        yield


def test_a_custom_operator_without_a_policy_is_not_exported() -> None:
    with pytest.raises(jit_amp.AutocastError, match="`jit_amp_tests::halved`"):
        jit_amp.freeze(Custom().eval(), example_inputs=(torch.randn(3, 3),))


def test_a_stated_policy_is_exported(stated: None) -> None:
    model, x = Custom().eval(), torch.randn(3, 3)
    assert_same(jit_amp.freeze(model, example_inputs=(x,))(x), model(x), "frozen")


def test_a_stated_policy_holds_for_what_was_scripted_before() -> None:
    """At its next call, in every ambient state; and no longer than it is stated."""
    scripted, x = jit_amp.script(with_a_kernel), torch.randn(3, 3)

    def dtypes() -> list[torch.dtype]:
        found = [scripted(x).dtype]
        for device in ("cpu", "cuda"):
            with torch.autocast(device, enabled=device == "cpu"):
                found.append(scripted(x).dtype)
        return found

    before = dtypes()
    with jit_amp.policy.register("jit_amp_tests::halved", "cpu", "fp32"):
        assert dtypes() == [torch.float32] * 3 != before
        jit_amp.policy.register("jit_amp_tests::halved", "cpu", "lower")
        jit_amp.policy.unregister("jit_amp_tests::halved", "cpu")
        assert dtypes() == before
    assert dtypes() == before
    with pytest.raises(KeyError, match="nothing was registered"):
        jit_amp.policy.unregister("jit_amp_tests::halved", "cpu")


def test_a_stated_policy_is_lowered(stated: None) -> None:
    assert "jit_amp::cast" in operators(jit_amp.lowered_graph(with_a_kernel))
    assert_parity(with_a_kernel, (torch.randn(3, 3),))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("halved", "cpu", "lower"), "no namespace"),
        (("a::b", "tpu", "lower"), "'tpu' is none of"),
        (("a::b", "cpu", "lowest"), "'lowest' is none of"),
    ],
)
def test_a_wrong_statement_is_refused_by_name(arguments: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        jit_amp.policy.register(*arguments)


def test_the_drift_check_says_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert jit_amp.policy.main() == 0
    assert "cpu: " in capsys.readouterr().out


def test_the_drift_check_lists_a_kernel_that_the_table_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = dict(jit_amp.policy.table("cpu"))
    del short["aten::mm"]
    monkeypatch.setattr(jit_amp.policy._C, "policy_table", lambda device: short)
    assert jit_amp.policy.main() == 1
    assert "no policy: aten::mm" in capsys.readouterr().out


class OfOthers(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.ops.jit_amp_tests.scaled(x @ x)


def test_the_refusal_to_freeze_says_how_to_state_a_policy() -> None:
    x = torch.randn(4, 4)
    with pytest.raises(jit_amp.AutocastError, match="JA301") as refused:
        jit_amp.freeze(OfOthers().eval())
    assert 'jit_amp.policy.register("jit_amp_tests::scaled", device_type, policy)' in str(
        refused.value
    )
    with (
        jit_amp.policy.register("jit_amp_tests::scaled", "cpu", "untouched"),
        jit_amp.policy.register("jit_amp_tests::scaled", "cuda", "untouched"),
    ):
        frozen = jit_amp.freeze(OfOthers().eval())
    for _ in range(3):
        assert_same(frozen(x), OfOthers()(x), "frozen")


def test_explain_tells_a_stated_policy_from_one_of_a_list(stated: None) -> None:
    [row] = [
        row
        for row in jit_amp.explain(Custom(), (torch.randn(3, 3),)).rows
        if row.operator == "jit_amp_tests::halved"
    ]
    assert row.policy == "lower"
    assert row.reason == "policy.register says that it runs in the scope's dtype"
