"""What explain and tune run are copies, which are like the user's own objects: these stay."""

from __future__ import annotations

import collections
import copy
import random
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import jit_amp
from jit_amp._runs.copies import Copier, fresh

Pair = tuple[nn.Module, torch.optim.Optimizer]


def a_pair() -> Pair:
    net = nn.Linear(4, 4)
    return net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()
    assert all(p.grad is not None for p in net.parameters())


class Trainer:
    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.closure = lambda x: train(*self.pair, x)

    def fit(self, x: Tensor) -> None:
        self.closure(x)


class WithALock(Trainer):
    def __init__(self, pair: Pair) -> None:
        super().__init__(pair)
        self.lock = threading.Lock()


class Slotted:
    __slots__ = ("pair",)

    def __init__(self, pair: Pair) -> None:
        self.pair = pair


def of_tuple(pair: Pair) -> Any:
    return lambda x: train(*pair, x)


def of_dict(pair: Pair) -> Any:
    nets = {"g": [pair]}
    return lambda x: train(*nets["g"][0], x)


def of_namespace(pair: Pair) -> Any:
    space = types.SimpleNamespace(pair=pair)
    return lambda x: train(*space.pair, x)


def of_slots(pair: Pair) -> Any:
    held = Slotted(pair)
    return lambda x: train(*held.pair, x)


def of_object(pair: Pair) -> Any:
    trainer = Trainer(pair)
    return lambda x: trainer.fit(x)


def of_method(pair: Pair) -> Any:
    return Trainer(pair).fit


def of_default(pair: Pair) -> Any:
    def step(x: Tensor, pair: Pair = pair) -> None:
        train(*pair, x)

    return step


def of_keyword(pair: Pair) -> Any:
    def step(x: Tensor, *, net: nn.Module = pair[0], optimizer: Any = pair[1]) -> None:
        train(net, optimizer, x)

    return step


def of_attribute(pair: Pair) -> Any:
    def step(x: Tensor) -> None:
        train(*step.pair, x)  # type: ignore[attr-defined]

    step.pair = pair  # type: ignore[attr-defined]
    return step


def of_a_lock(pair: Pair) -> Any:
    trainer = WithALock(pair)
    return lambda x: trainer.fit(x)


HELD = [
    of_tuple, of_dict, of_namespace, of_slots, of_object, of_method, of_default, of_keyword,
    of_attribute, of_a_lock,
]  # fmt: skip


@pytest.mark.parametrize("held", HELD)
def test_what_a_function_holds_in_whatever_is_not_trained(held: Callable[[Pair], Any]) -> None:
    pair = a_pair()
    before = copy.deepcopy(pair[0].state_dict())
    report = jit_amp.explain(held(pair), torch.rand(2, 4))
    assert any(row.is_backward for row in report.rows)
    assert all(torch.equal(before[name], each) for name, each in pair[0].state_dict().items())
    if held is of_a_lock:
        assert "`trainer` ran itself" in report.warnings[0]
    else:
        assert all(p.grad is None for p in pair[0].parameters()) and not pair[1].state
        assert report.warnings == ()


def test_what_is_one_object_stays_one_in_arguments_too() -> None:
    net, optimizer = a_pair()
    report = jit_amp.explain(lambda net, x: train(net, optimizer, x), (net, torch.rand(2, 4)))
    assert any(row.is_backward for row in report.rows) and not optimizer.state


def test_cells_are_shared_as_they_were() -> None:
    seen: list[int] = []
    weight = torch.ones(2)

    def add() -> None:
        seen.append(len(weight))

    def step(x: Tensor) -> Tensor:
        nonlocal weight
        weight = torch.ones(3)
        add()
        assert len(weight) == 3
        return x * 2

    made = Copier().of(step)
    made(torch.ones(1))
    assert len(weight) == 2 and seen == [3]


GENERATORS: list[tuple[Any, Callable[[Any], Any]]] = [
    (torch.Generator().manual_seed(1), lambda g: g.get_state().tolist()),
    (np.random.default_rng(1), lambda g: g.bit_generator.state),
    (np.random.RandomState(1), lambda g: g.get_state()),
    (random.Random(1), lambda g: g.getstate()),
]


@pytest.mark.parametrize(("generator", "state"), GENERATORS)
def test_generators_of_random_numbers_stay(generator: Any, state: Callable[[Any], Any]) -> None:
    before = str(state(generator))

    def draw(g: Any) -> Tensor:
        if isinstance(g, torch.Generator):
            return torch.rand(2, generator=g) * 2
        return torch.tensor(g.random()) * 2

    for program, given in ((lambda x: x + draw(generator), torch.rand(2)), (draw, (generator,))):
        assert jit_amp.explain(program, given, timing=True).rows
        assert str(state(generator)) == before
    assert fresh(torch.default_generator) is torch.default_generator


# Arguments.


class Batch(dict[str, Tensor]):
    def __getattr__(self, name: str) -> Tensor:
        return self[name]


class Items(list[Tensor]):
    pass


class Fields(NamedTuple):
    x: Tensor


@dataclass
class Data:
    x: Tensor


class Subclass(Tensor):
    pass


def values() -> list[Any]:
    leaf = torch.rand(2, 4, requires_grad=True)
    masked = torch.rand(2)
    masked.mask = torch.ones(2)  # type: ignore[attr-defined]
    return [
        Batch(x=torch.rand(2, 4)),
        collections.defaultdict(int, x=torch.rand(2)),
        collections.OrderedDict(x=torch.rand(2)),
        Items([torch.rand(2)]),
        Fields(leaf * 2),
        Data(leaf * 2),
        nn.Parameter(torch.rand(2)),
        nn.Parameter(torch.rand(2), requires_grad=False),
        torch.rand(2).as_subclass(Subclass),
        nn.Buffer(torch.rand(2)),
        masked,
        leaf,
        leaf * 2,
        [leaf, leaf],
    ]


def tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value, *(each for each in vars(value).values() if isinstance(each, Tensor))]
    held = value.values() if isinstance(value, dict) else value
    held = vars(value).values() if isinstance(value, Data) else held
    return [tensor for each in held for tensor in tensors_of(each)]


@pytest.mark.parametrize("share", [True, False])
def test_copies_are_like_the_arguments(share: bool) -> None:
    for value in values():
        made = Copier(shares=share).of(value)
        assert type(made) is type(value) and made is not value
        before, after = tensors_of(value), tensors_of(made)
        assert len({id(each) for each in before}) == len({id(each) for each in after})
        for a, b in zip(before, after, strict=True):
            assert a is not b and torch.equal(a, b) and type(a) is type(b)
            assert (a.is_leaf, a.requires_grad) == (b.is_leaf, b.requires_grad)
            assert vars(a).keys() == vars(b).keys()
    made = fresh(collections.defaultdict(int))
    assert made["n"] == 0


class Casts(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))


def two_products(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ a + x @ b


def test_arguments_are_cast_as_often_as_in_eager() -> None:
    leaf = torch.rand(4, 4, requires_grad=True)
    a, b = torch.rand(4, 4), torch.rand(4, 4)
    for arguments in ((leaf * 2, a, b), (leaf, a, b), (a, a, b), (leaf, leaf, leaf)):
        with Casts() as casts:
            two_products(*arguments)
        assert jit_amp.explain(two_products, arguments).summary.casts == casts.count


def test_tune_takes_dictionaries_with_attributes() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, batch: Batch) -> Tensor:
            return self.linear(batch.x)

    assert jit_amp.tune(Net(), [(Batch(x=torch.rand(2, 4)),)], dtype=torch.bfloat16).units == ()


def test_an_argument_that_cannot_be_copied_is_put_back() -> None:
    class Held:
        def __init__(self) -> None:
            self.x, self.lock = torch.ones(2), threading.Lock()

    held = Held()
    report = jit_amp.explain(lambda held: held.x.add_(1), (held,))
    assert "argument 0 ran itself" in report.warnings[0] and held.x.tolist() == [1, 1]


# What is in other files, and what methods name.


def a_file(pair: Pair) -> types.ModuleType:
    file = types.ModuleType("of_the_user")
    file.__file__ = __file__
    source = "def step(x):\n    train(*pair, x)\n"
    vars(file).update(pair=pair, train=train)
    exec(compile(source, __file__, "exec"), vars(file))
    return file


def test_what_another_file_holds_is_not_trained() -> None:
    pair = a_pair()
    before = copy.deepcopy(pair[0].state_dict())
    file = a_file(pair)
    holder = types.ModuleType("a_package")
    holder.__file__, holder.inner = __file__, file  # type: ignore[attr-defined]
    for step in (lambda x: file.step(x), lambda x: train(*holder.inner.pair, x)):  # type: ignore[attr-defined]
        report = jit_amp.explain(step, torch.rand(2, 4))
        assert any(row.is_backward for row in report.rows) and report.warnings == ()
        assert all(torch.equal(before[name], each) for name, each in pair[0].state_dict().items())
        assert not pair[1].state and file.pair is pair  # type: ignore[attr-defined]


def test_the_report_says_what_methods_name() -> None:
    pair, mean = a_pair(), torch.ones(4)

    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mean.add_(1)
            return x - mean

    class Fits:
        def fit(self, x: Tensor) -> None:
            train(*pair, x)

    class FitsToo(Fits):
        pass

    fits = [Fits(), FitsToo()]
    before = copy.deepcopy(pair[0].state_dict())
    report = jit_amp.explain(lambda x: [each.fit(x) for each in fits], torch.rand(2, 4))
    assert len(report.warnings) == 1
    assert (
        "`pair`, which " in report.warnings[0]
        and "Fits.fit names, ran itself" in (report.warnings[0])
    )
    assert all(torch.equal(before[name], each) for name, each in pair[0].state_dict().items())
    assert jit_amp.explain(Net(), torch.rand(2, 4)).warnings == () and mean.tolist() == [1] * 4


def test_functions_of_the_process_s_random_numbers_are_those() -> None:
    def draws(x: Tensor) -> Tensor:
        random.seed(0)
        assert choice([1, 2, 3, 4]) == random.Random(0).choice([1, 2, 3, 4])
        return x * 2

    choice = random.choice
    assert jit_amp.explain(draws, torch.rand(2)).rows


@torch.no_grad()
def decorated(x: Tensor) -> Tensor:
    return state.add_(x.sum())


state = torch.zeros(1)


def test_a_librarys_wrapper_keeps_its_own_globals() -> None:
    made = Copier().of(decorated)
    assert made is not decorated and made.__globals__ is decorated.__globals__
    assert "_contextlib" in made.__code__.co_filename
    assert jit_amp.explain(decorated, torch.ones(2)).rows and state.item() == 0


linear = nn.Linear(4, 4)  # as an attribute below is called


class NamesIts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def test_an_attribute_is_not_what_its_file_calls_so() -> None:
    assert jit_amp.explain(NamesIts(), torch.rand(2, 4)).warnings == ()
