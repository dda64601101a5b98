"""share_conditions: what is asked before each layer is a method of the module."""

from __future__ import annotations

import io
import warnings

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp._freeze.freeze import _has_onednn

from ..support import assert_same

pytestmark = pytest.mark.skipif(not _has_onednn(), reason="only builds for x86 have the operators")


class Layers(nn.Module):
    def __init__(self, count: int, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(each for _ in range(count) for each in (nn.Linear(width, width), nn.ReLU()))
        )

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layers(x)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.c = nn.Linear(8, 8)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(self.b(torch.relu(self.a(x))) + x)
            return self.c(y.mean([2, 3])).relu()


def frozen(module: nn.Module, x: Tensor) -> torch.jit.ScriptModule:
    return jit_amp.freeze(jit_amp.script(module.eval()), example_inputs=(x,), target="server")


def shared(module: torch.jit.ScriptModule) -> list[str]:
    return [name for name in module._c._method_names() if name.startswith("_fits")]


def branches_on_dtypes(module: torch.jit.ScriptModule) -> int:
    """How many questions for an input's dtype are written out in forward."""
    return sum(
        inner.kind() == "prim::is_nested"
        for node in module.graph.findAllNodes("prim::If")
        for block in node.blocks()
        for inner in block.nodes()
    )


@pytest.mark.parametrize("count", [2, 5])
def test_layers_of_a_kind_ask_by_one_method(count: int) -> None:
    x = torch.rand(3, 256)
    made = frozen(Layers(count), x)
    assert branches_on_dtypes(made) == 0
    assert len(shared(made)) == 2  # for a processor with the dtype, and for one that emulates it
    calls = [call.s("name") for call in made.graph.findAllNodes("prim::CallMethod")]
    assert [calls.count(name) for name in shared(made)] == [count, count]


def test_what_is_asked_once_stays() -> None:
    made = frozen(Layers(1), torch.rand(3, 256))
    assert shared(made) == []
    assert branches_on_dtypes(made) == 1


def test_other_kinds_of_layers_ask_other_things() -> None:
    x = torch.rand(2, 8, 6, 6)
    module = Images()
    made = frozen(module, x)
    with torch.no_grad():
        for given in (x, torch.rand(1, 8, 9, 5)):
            for _ in range(3):
                actual, expected = made(given), module(given)
                assert actual.dtype is expected.dtype
                torch.testing.assert_close(actual, expected, atol=0.02, rtol=0.02)


def test_files_have_the_methods_and_other_modules_do_not() -> None:
    x = torch.rand(3, 256)
    first, second = Layers(3), Layers(1)
    made, other = frozen(first, x), frozen(second, x)
    assert shared(other) == []
    for module, eager in ((made, first), (other, second)):
        file = io.BytesIO()
        torch.jit.save(module, file)
        file.seek(0)
        loaded = torch.jit.load(file)
        assert shared(loaded) == shared(module)
        with torch.no_grad():
            for rows in (3, 64):
                given = torch.rand(rows, 256)
                assert_same(loaded(given), module(given), "loaded")
                torch.testing.assert_close(loaded(given), eager(given), atol=0.02, rtol=0.02)


class Taken(Layers):
    def _fits0(self, x: Tensor):
        return x * 2

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layers(self._fits0(x))


def test_a_method_of_the_users_keeps_its_name() -> None:
    module, x = Taken(2).eval(), torch.rand(3, 256)
    made = jit_amp.freeze(jit_amp.script(module), ["_fits0"], example_inputs=(x,), target="server")
    assert_same(made._fits0(x), x * 2, "the user's")
    with torch.no_grad():
        torch.testing.assert_close(made(x), module(x), atol=0.02, rtol=0.02)


def test_code_grows_by_few_lines_for_a_layer() -> None:
    """PyTorch's loader takes time and memory by the square of these lines."""
    x = torch.rand(3, 256)
    few, many = (len(frozen(Layers(n), x).code.splitlines()) for n in (4, 12))
    assert (many - few) / 8 <= 15


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(2):
                q = torch.softmax(q @ k.transpose(-2, -1) * 0.125, -1) @ v
        return q


def test_a_condition_may_be_about_another() -> None:
    module = Attention().eval()
    short = tuple(torch.rand(1, 2, 16, 8).bfloat16() for _ in range(3))
    made = jit_amp.freeze(jit_amp.script(module), example_inputs=short, target="server")
    made.graph.lint()
    with torch.no_grad():
        for given in (short, tuple(torch.rand(1, 2, 300, 8).bfloat16() for _ in range(3))):
            for _ in range(3):
                torch.testing.assert_close(made(*given), module(*given), atol=0.02, rtol=0.02)


def test_exported() -> None:
    x = torch.rand(3, 256)
    made = frozen(Layers(3), x)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = made(x)
        program = jit_amp.export(made, (x,)).module()
        torch.testing.assert_close(program(x), expected, atol=0.02, rtol=0.02)
