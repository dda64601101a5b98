"""Source is read again where CPython has mixed up the trees of two threads."""

import ast
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.jit import _recursive

import jit_amp
from jit_amp._base.syntax_trees import parsed

from ..support import assert_same

MIXED_UP = "AST constructor recursion depth mismatch (before=123, after=22)"


class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


def every_second_fails(patched: pytest.MonkeyPatch) -> list[Any]:
    """Mixes up every second tree; gives the calls, as they come."""
    original, calls = ast.parse, []

    def parse(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) % 2:
            raise SystemError(MIXED_UP)
        return original(*args, **kwargs)

    patched.setattr(ast, "parse", parse)
    return calls


def test_a_program_is_compiled_though_trees_are_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = Net(), torch.rand(2, 4)
    with monkeypatch.context() as patched:
        calls = every_second_fails(patched)
        made = jit_amp.script(net)
    assert len(calls) > 2
    for _ in range(3):
        assert_same(made(x), net(x), "script")


def test_a_server_form_is_made_though_trees_are_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its packed weights are scripted by PyTorch."""
    net, x = Net(256).eval(), torch.rand(8, 256)
    with monkeypatch.context() as patched, torch.no_grad():
        patched.setattr(_recursive, "concrete_type_store", _recursive.ConcreteTypeStore())
        calls = every_second_fails(patched)
        made = jit_amp.freeze(net, (x,), target="server")
    assert len(calls) > 2
    made(x)


def test_other_errors_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SyntaxError):
        parsed("1 +")

    def fails(_: str) -> Any:
        raise SystemError("another")

    with monkeypatch.context() as patched, pytest.raises(SystemError, match="another"):
        patched.setattr(ast, "parse", fails)
        parsed("1")
