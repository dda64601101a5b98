"""Parts of scripted containers by index, by key and in loops: they are parts of what runs."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)])
        self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.named = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x
        for layer in self.layers:
            y = layer(y)
        z = x
        for part in self.named.values():
            z = part(z)
        return self.head(y), z


class Scoped(Model):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x
            for layer in self.layers:
                y = layer(y)
            z = x
            for part in self.named.values():
                z = part(z)
            return self.head(y), z


def in_a_loop(model: Any) -> None:
    for layer in model.layers:
        if not list(layer.named_buffers()) and list(layer.named_parameters()):
            jit_amp.ignore_amp(layer, float32=True)


def by_key(model: Any) -> None:
    for key in model.named:
        jit_amp.ignore_amp(model.named[key], float32=True)


def in_training(model: Any) -> None:
    model.layers[1].train()


CHANGES: list[Callable[[Any], Any]] = [
    lambda model: jit_amp.ignore_amp(model.layers[2], float32=True),
    lambda model: jit_amp.ignore_amp(model.layers[-1], float32=True),
    lambda model: jit_amp.ignore_amp(model.layers[1:][1], float32=True),
    lambda model: jit_amp.ignore_amp(model.head[0], float32=True),
    lambda model: jit_amp.ignore_amp(list(model.head[::2])[1], float32=True),
    lambda model: jit_amp.ignore_amp(next(model.head.children()), float32=True),
    in_a_loop,
    by_key,
    in_training,
]
DOORS: dict[str, Callable[[nn.Module], Any]] = {
    "script": jit_amp.script,
    "of torch.jit.script": lambda net: jit_amp.script(
        torch.jit.script(net), autocast=torch.autocast("cpu", dtype=torch.bfloat16)
    ),
    "autocast": lambda net: jit_amp.script(
        net, autocast=torch.autocast("cpu", dtype=torch.bfloat16)
    ),
    "trace": lambda net: jit_amp.script(nn.Sequential(jit_amp.script(net)))[0],
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("number", range(len(CHANGES)))
@pytest.mark.parametrize("kind", [Model, Scoped])
def test_a_part_by_index_is_a_part_of_what_runs(
    kind: type[nn.Module], number: int, door: str
) -> None:
    net, x = kind().eval(), torch.randn(2, 4)
    scripted = DOORS[door](net)
    CHANGES[number](scripted)
    assert not any(each.training for each in net.modules()), "the module that was scripted"
    eager = copy.deepcopy(net)
    CHANGES[number](eager)
    for call in range(3):
        results = []
        for model in (eager, scripted):
            torch.manual_seed(0)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                results.append(model(x))
        assert_same(results[1], results[0], f"call {call}")


def test_slices_and_copies_are_of_scripted_parts() -> None:
    scripted = jit_amp.script(Scoped().eval())
    parts = dict(scripted.named_modules())
    assert scripted.layers[2] is parts["layers.2"]
    assert [*scripted.layers] == [parts[f"layers.{i}"] for i in range(3)]
    assert [*scripted.head[1:]] == [parts["head.1"], parts["head.2"]]
    assert isinstance(scripted.head[1:], nn.Sequential)
    assert scripted.named["a"] is parts["named.a"]
    assert (len(scripted.layers), "a" in scripted.named, [*scripted.named]) == (3, True, ["a", "b"])
    with pytest.raises(IndexError):
        scripted.layers[3]
    x = torch.randn(2, 4)
    assert_same(scripted.head[:2](x), scripted.head[1](scripted.head[0](x)), "called")
    assert not isinstance(Scoped().layers[0], torch.jit.ScriptModule)
