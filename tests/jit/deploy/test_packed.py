"""freeze(target="server"): weights that are packed, wherever the artefact goes."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from .packed import bfloat16_processor


@pytest.fixture(autouse=True)
def processor() -> Iterator[None]:
    with bfloat16_processor(), torch.no_grad():
        yield


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(self.linear(x))


class Around(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.linear = inner, nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(y)


class Several(nn.Module):
    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleList(inner)

    def forward(self, x: Tensor) -> Tensor:
        for each in self.inner:
            x = each(x).float()
        return x


X = torch.rand(3, 64, generator=torch.Generator().manual_seed(0))


def server(module: nn.Module) -> Any:
    return jit_amp.freeze(module.eval(), example_inputs=(X,), target="server")


def loaded(module: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def packed(module: Any) -> list[Any]:
    held = [w for m in module.modules() for w in getattr(m, "weights", ())]
    return [w.layout for w in held if w.layout != torch.strided]


def test_weights_are_packed_when_made_and_when_loaded() -> None:
    module = Layer().eval()
    frozen = server(module)
    for each in (frozen, loaded(frozen), copy.deepcopy(frozen), jit_amp.script(frozen)):
        assert packed(each) == [torch._mkldnn]
        assert torch.equal(each(X), module(X))
    assert len(jit_amp.explain(frozen, (X,)).weights) == 2


@pytest.mark.parametrize("target", ["portable", "server"])
@pytest.mark.parametrize(
    "around", [Around, Several, lambda f: Several(f, server(Layer())), lambda f: f]
)
def test_an_artefact_inside_what_is_frozen_can_be_saved(around: Any, target: Any) -> None:
    module = around(server(Layer())).eval()
    expected = module(X)
    for given in (module, jit_amp.script(module), loaded(jit_amp.script(module)).eval()):
        frozen = jit_amp.freeze(given, example_inputs=(X,), target=target)
        assert torch.equal(frozen(X), expected)
        assert torch.equal(loaded(frozen)(X), expected)
    assert torch.equal(module(X), expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    "given",
    [lambda: X.to_sparse(), lambda: torch.nested.nested_tensor([X, X[:1]])],
    ids=["sparse", "nested"],
)
def test_an_input_that_onednn_does_not_take(given: Any) -> None:
    given = given()
    module = Layer().eval()
    actual, expected = server(module)(given), module(given)
    assert actual.dtype == expected.dtype
    for a, e in zip(actual.unbind(), expected.unbind(), strict=True):
        assert torch.equal(a, e)


class Named(Layer):
    def __init__(self) -> None:
        super().__init__()
        self._packed = torch.full((64,), 2.0)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(self.linear(x * self._packed))


def test_a_preserved_attribute_has_the_name_of_the_packed_weights() -> None:
    module = Named().eval()
    frozen = jit_amp.freeze(module, ["_packed"], example_inputs=(X,), target="server")
    assert torch.equal(frozen._packed, module._packed)
    assert packed(frozen) == [torch._mkldnn]
    assert torch.equal(loaded(frozen)(X), module(X))


@torch.library.custom_op("jit_amp_packed::counted", mutates_args=())
def counted(x: Tensor) -> Tensor:
    COUNTED.append(1)
    return x.clone()


COUNTED: list[int] = []


class Stateful(Layer):
    """All that a run can leave behind."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(3, 64))
        self.cache, self.calls = [torch.zeros(1)], 0

    def forward(self, x: Tensor, raises: bool = False) -> tuple[Tensor, int]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.calls += 1
            self.cache.append(x)
            self.sum += self.linear(x)
            self.sum[0].add_(torch.rand(64))
            print("here")
            if raises:
                raise ValueError("half way")
            return self.sum * 1, self.calls + len(self.cache)


@pytest.mark.parametrize("raises", [False, True])
def test_freezing_runs_nothing_that_is_seen(raises: bool, capfd: Any) -> None:
    module = Stateful().eval()
    before, random = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    frozen = jit_amp.freeze(module, example_inputs=(X, raises), target="server")
    assert "mkldnn::_linear_pointwise" in str(frozen.graph)
    assert packed(frozen) == ([] if raises else [torch._mkldnn])
    assert capfd.readouterr().out == ""
    assert torch.equal(torch.get_rng_state(), random)
    assert module.calls == 0 and len(module.cache) == 1
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    reference = copy.deepcopy(module)
    for _ in range(3):
        torch.manual_seed(0)
        expected = reference(X)
        torch.manual_seed(0)
        actual = frozen(X)
        assert torch.equal(actual[0], expected[0]) and actual[1] == expected[1]


class Counting(Layer):
    def forward(self, x: Tensor) -> Tensor:
        x = torch.ops.jit_amp_packed.counted(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(self.linear(x))


def test_an_operator_of_somebodys_is_not_run() -> None:
    module = Counting().eval()
    frozen = server(module)
    assert not COUNTED
    assert torch.equal(frozen(X), module(X))
