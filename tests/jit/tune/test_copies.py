"""A precision and copies, pickles, hooks and threads of the model that it is applied to."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jit_amp._base import module_methods

from .test_apply import precision

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))


class Heard(nn.Module):
    """A base class that hears of its subclasses, as registries do."""

    heard: list[str] = []  # noqa: RUF012

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        Heard.heard.append(cls.__name__)


class Net(Heard):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor):
        h = self.a(x)
        return self.b(h)  # of the copies


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


SOURCE = Path(__file__).read_text().splitlines()
LINE = next(i for i, line in enumerate(SOURCE, 1) if line.endswith("# of the copies"))
KEPT = {
    "module": precision(("b",)),
    "line": precision((f"tune/test_copies.py:{LINE}",), kind="line"),
}


def expected(net: Any) -> Tensor:
    """By hand: the first layer under autocast, the second in float32."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = net.a(X)
    return net.b(h.float())


def plain(net: Any) -> Tensor:
    return net.b(net.a(X))


def changed(net: Any) -> Any:
    with torch.no_grad():
        net.b.weight.mul_(2.0)
    return net


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "deepcopy twice": lambda net: copy.deepcopy(copy.deepcopy(net)),
    "averaged": lambda net: torch.optim.swa_utils.AveragedModel(net).module,
    "within another": lambda net: copy.deepcopy(nn.ModuleList([net]))[0],
}


@pytest.mark.parametrize("made", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("kind", KEPT)
def test_copies_run_as_their_original_and_for_as_long(kind: str, made: Any) -> None:
    net = Net().eval()
    with torch.no_grad():
        with KEPT[kind].apply(net):
            copied = changed(made(net))
            assert torch.equal(copied(X), expected(copied))
            assert torch.equal(net(X), expected(net))
            assert not torch.equal(copied(X), net(X))
        assert torch.equal(copied(X), plain(copied))
        assert torch.equal(net(X), plain(net))
    for each in copied, net:
        assert type(each) is Net and type(each.b) is nn.Linear
        assert vars(each).keys() == vars(Net()).keys()


PICKLES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda net: pickle.loads(pickle.dumps(net)),
    "torch.save": lambda net: torch.load(_written(net), weights_only=False),
}


def _written(net: nn.Module) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("made", PICKLES.values(), ids=PICKLES)
def test_what_is_pickled_is_a_plain_model(made: Any) -> None:
    net = Net().eval()
    with KEPT["module"].apply(net), torch.no_grad():
        loaded = made(net)
        assert type(loaded) is Net and type(loaded.b) is nn.Linear
        assert vars(loaded).keys() == vars(Net()).keys()
        assert torch.equal(loaded(X), plain(loaded))


def test_classes_hear_nothing() -> None:
    Heard.heard.clear()
    net = Net()
    with KEPT["module"].apply(net):
        net(X)
    assert Heard.heard == []


@pytest.mark.parametrize("kind", KEPT)
def test_other_threads_run_so_too(kind: str) -> None:
    net = Net().eval()
    found = []

    def call() -> None:
        with torch.no_grad():
            found.append(net(X))

    with KEPT[kind].apply(net):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    with torch.no_grad():
        assert torch.equal(found[0], expected(net))


@pytest.mark.parametrize("kind", KEPT)
def test_threads_leave_in_any_order(kind: str) -> None:
    net = Net().eval()
    entered, left = threading.Event(), threading.Event()
    found = []

    def first() -> None:
        with KEPT[kind].apply(net):
            entered.wait()
        left.set()

    def second() -> None:
        with KEPT[kind].apply(net), torch.no_grad():
            entered.set()
            left.wait()
            found.append(net(X))

    threads = [threading.Thread(target=each) for each in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with torch.no_grad():
        assert torch.equal(found[0], expected(net))
        assert torch.equal(net(X), plain(net))
    assert type(net) is Net and vars(net).keys() == vars(Net()).keys()


def test_a_forward_of_the_module_itself() -> None:
    net = Net().eval()
    own = net.b.forward = lambda h: nn.functional.linear(h, net.b.weight)  # type: ignore[method-assign]
    with torch.no_grad(), KEPT["module"].apply(net):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = net.a(X)
        assert torch.equal(net(X), h.float() @ net.b.weight.T)
    assert net.b.forward is own


def test_a_scripted_part() -> None:
    net = Net().eval()
    net.b = torch.jit.script(net.b)
    with torch.no_grad(), KEPT["module"].apply(net):
        assert torch.equal(net(X), expected(net))
    with torch.no_grad():
        assert torch.equal(net(X), plain(net))


def test_a_class_that_cannot_be_changed() -> None:
    """What else lies in the memory of its instances."""

    class Slots(nn.Linear):
        __slots__ = ("more",)

    net = Net().eval()
    net.b = Slots(4, 4)
    with torch.no_grad(), KEPT["module"].apply(net):
        assert torch.equal(net(X), expected(net))
    assert type(net.b) is Slots and "forward" not in vars(net.b)


def test_a_shallow_copy() -> None:
    net = Net().eval()
    with KEPT["line"].apply(net), torch.no_grad():
        shallow = copy.copy(net)
        assert torch.equal(shallow(X), expected(net))
        with module_methods.changed({shallow: lambda forward: lambda x: forward(x) + 1}):
            assert torch.equal(shallow(X), expected(net) + 1)
            assert torch.equal(net(X), expected(net))
    with torch.no_grad():
        assert torch.equal(shallow(X), plain(net))
    assert torch.equal(pickle.loads(pickle.dumps(shallow))(X), plain(net))
