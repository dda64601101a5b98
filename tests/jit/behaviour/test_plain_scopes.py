"""Which scopes are plain: there `with_items` has nothing to write, and is not asked."""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import textwrap
from typing import Any

import pytest
import torch
from torch import Tensor, autocast, nn

from jit_amp._source import plain_scopes, with_items

ON, DTYPE, OPTIONS = True, torch.bfloat16, {"dtype": torch.bfloat16}


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flag, self.linear = True, nn.Linear(2, 2)

    def one(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)

    def two(self, x: Tensor) -> Tensor:
        with autocast("cpu", torch.float16), torch.amp.autocast(device_type="cpu", enabled=False):
            x = self.linear(x)
        return x

    def branches(self, x: Tensor) -> Tensor:
        if x.dim() == 2 and isinstance(x, Tensor):
            return x
        for _ in range(2):
            if self.flag:
                x = x + 1
        with torch.autocast("cpu"):
            if x.size(0) > 1:
                return self.linear(x)
        return x


class NotPlain(Plain):
    def variable(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=DTYPE):
            return x

    def options(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", **OPTIONS):
            return x

    def local(self, x: Tensor) -> Tensor:
        autocast = contextlib.nullcontext
        with autocast("cpu"):
            return x

    def of_a_tensor(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type):
            return x

    def named(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu") as scope:
            assert scope is not None
            return x

    def nothing(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu") if self.flag else contextlib.nullcontext():
            return x

    def known_branch(self, x: Tensor) -> Tensor:
        if ON:
            with torch.autocast("cpu"):
                return x
        return x

    def branch_of_the_module(self, x: Tensor) -> Tensor:
        if self.flag and x.dim() > 1:
            with torch.autocast("cpu"):
                return x
        return x

    def stack(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu"):
            stack = contextlib.ExitStack()
            stack.enter_context(torch.autocast("cpu"))
            return x

    def inside(self, x: Tensor) -> Tensor:
        def inner(y: Tensor) -> Tensor:
            return y

        with torch.autocast("cpu"):
            return inner(x)


def parts(function: Any) -> tuple[ast.Module, str]:
    source = textwrap.dedent(inspect.getsource(function))
    return ast.parse(source), source


def names(cls: type) -> list[str]:
    return [name for name in vars(cls) if not name.startswith("_")]


@pytest.mark.parametrize("name", names(Plain))
def test_there_is_nothing_to_write_for_plain_scopes(name: str) -> None:
    function = getattr(Plain, name)
    tree, source = parts(function)
    assert plain_scopes.are_plain(tree, source, function, True)
    rewriting = with_items._Rewriting(copy.deepcopy(tree), function, Plain(), str)
    rewriting.run()
    assert not rewriting.is_changed
    definition = with_items.rewritten(tree, source, function, Plain(), str)
    assert (definition.tree, definition.signature, definition.has_with) == (tree, "", True)


@pytest.mark.parametrize("name", names(NotPlain))
def test_all_else_is_looked_at(name: str) -> None:
    function = getattr(NotPlain, name)
    assert not plain_scopes.are_plain(*parts(function), function, True)


def test_a_wrapper_has_other_names_than_what_it_wraps() -> None:
    function = torch.no_grad()(Plain.one)
    assert not plain_scopes.are_plain(*parts(function), function, True)


def test_a_with_is_found_in_all_blocks() -> None:
    for text in (
        "def f(x):\n    for i in x:\n        pass\n    else:\n        with a:\n            pass\n",
        "def f(x):\n    try:\n        pass\n    except E:\n        with a:\n            pass\n",
        "def f(x):\n    match x:\n        case 1:\n            with a:\n                pass\n",
    ):
        assert plain_scopes.has_with(ast.parse(text))
    assert not plain_scopes.has_with(ast.parse("def f(x):\n    return 'with a:'\n"))
