"""Models as people have them: scripted, frozen, saved, and with other shapes than the example's."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator
from typing import Any

import artefact
import pytest
import torch
from torch import Tensor, nn
from torch.jit.mobile import _load_for_lite_interpreter

import jit_amp

from ..support import assert_same, fresh, tensors_of
from .models import MODELS

pytestmark = pytest.mark.filterwarnings("ignore:Lite Interpreter is deprecated")

all_models = pytest.mark.parametrize("name", MODELS)
with_and_without = pytest.mark.parametrize(
    "examples", [False, True], ids=["no examples", "examples"]
)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """A second one would wait more than it works."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def scope() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@functools.cache
def model(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name].make().eval()


@functools.cache
def frozen(name: str, examples: bool, optimize_numerics: bool) -> Any:
    scripted = jit_amp.script(model(name), autocast=scope())
    return jit_amp.freeze(
        scripted,
        example_inputs=MODELS[name].example if examples else None,
        optimize_numerics=optimize_numerics,
    )


def calls(name: str) -> list[tuple[Any, ...]]:
    return [MODELS[name].example, *MODELS[name].others]


def runners(module: Any) -> dict[str, Callable[..., Any]]:
    """The artefact, as it is and where it runs."""
    lite = io.BytesIO(module._save_to_buffer_for_lite_interpreter())
    return {
        "frozen": module,
        "loaded": torch.jit.load(io.BytesIO(module.save_to_buffer())),
        "lite": _load_for_lite_interpreter(lite),
    }


@all_models
def test_scripted(name: str) -> None:
    scripted = jit_amp.script(model(name), autocast=scope())
    for args in calls(name):
        for call in range(3):
            with scope():
                expected = model(name)(*fresh(args))
            assert_same(scripted(*fresh(args)), expected, f"call {call}")


@with_and_without
@all_models
@torch.no_grad()
def test_frozen_it_gives_what_eager_gives(name: str, examples: bool) -> None:
    for where, run in runners(frozen(name, examples, optimize_numerics=False)).items():
        for args in calls(name):
            with scope():
                expected = model(name)(*fresh(args))
            for call in range(3):
                assert_same(run(*fresh(args)), expected, f"{where}, call {call}")


@with_and_without
@all_models
@torch.no_grad()
def test_folded_it_is_as_near_to_float32_as_eager(name: str, examples: bool) -> None:
    for where, run in runners(frozen(name, examples, optimize_numerics=True)).items():
        for args in calls(name):
            precise = tensors_of(model(name)(*fresh(args)))
            with scope():
                eagers = tensors_of(model(name)(*fresh(args)))
            for _ in range(3):
                results = tensors_of(run(*fresh(args)))
                assert [t.dtype for t in results] == [t.dtype for t in eagers], where
                for triple in zip(results, eagers, precise, strict=True):
                    assert artefact.within_rounding(*triple), where


@pytest.mark.parametrize("optimize_numerics", [False, True], ids=["exact", "folded"])
@all_models
def test_with_an_example_casts_are_known_and_weights_held_once(
    name: str, optimize_numerics: bool
) -> None:
    graph = frozen(name, True, optimize_numerics).graph
    if MODELS[name].closed:
        assert artefact.casts_at_run_time(graph) == 0
    if MODELS[name].once:
        assert artefact.held_twice(graph) == []


@pytest.mark.parametrize("name", [name for name, case in MODELS.items() if case.plain])
def test_without_one_only_casts_of_inputs_are_left_open(name: str) -> None:
    graph = frozen(name, False, optimize_numerics=True).graph
    inputs = sum(isinstance(arg, Tensor) for arg in MODELS[name].example)
    assert artefact.casts_at_run_time(graph) <= inputs


@pytest.mark.parametrize("examples", [False, True])
def test_parts_of_a_weight_are_views_of_it(examples: bool) -> None:
    """Attention reads thirds of a weight: the weight alone is held, in bfloat16."""
    held = [
        node.output().toIValue()
        for node in artefact.nodes(frozen("attention", examples, optimize_numerics=True).graph)
        if node.kind() == "prim::Constant" and isinstance(node.output().type(), torch.TensorType)
    ]
    # guard_autocast has one without elements.
    weights = [tensor for tensor in held if tensor.dim() > 1 and tensor.numel()]
    assert sorted(map(list, (w.shape for w in weights))) == sorted(
        list(w.shape) for w in model("attention").state_dict().values() if w.dim() > 1
    )
    assert {w.dtype for w in weights} == {torch.bfloat16}
