"""Which attributes are state: what freezing keeps, and what it may fold."""

from __future__ import annotations

import copy
import io
from typing import Any, List  # noqa: UP035  # as TorchScript reads it

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import jit_amp

from ..support import assert_same
from .ir import operators


class Layered(nn.Module):
    """Weights in lists, which nothing writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4, batch_first=True)
        self.register_buffer("calls", torch.zeros(()))
        self.many = [torch.rand(4, 4), torch.rand(4, 4)]
        self.seen = [torch.zeros(4), torch.zeros(4)]

    def write(self, x: Tensor, y: Tensor, outputs: List[Tensor]) -> None:  # noqa: UP006
        pass

    def forward(self, x: Tensor):
        outputs: List[Tensor] = []  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.lstm(x)[0]
            for each in self.many:
                y = torch.mm(y[0], each)[None]
                outputs.append(y)
        self.write(x, y, outputs)
        return y, outputs[0], self.seen[0] * 1


class Counting(Layered):
    def write(self, x: Tensor, y: Tensor, outputs: List[Tensor]) -> None:  # noqa: UP006
        self.calls += 1


class WritingToItsArgument(Layered):
    def write(self, x: Tensor, y: Tensor, outputs: List[Tensor]) -> None:  # noqa: UP006
        x -= 0.5


class WritingToAnotherList(Layered):
    def write(self, x: Tensor, y: Tensor, outputs: List[Tensor]) -> None:  # noqa: UP006
        self.seen[0].add_(1)


class WritingToAListOfResults(Layered):
    def write(self, x: Tensor, y: Tensor, outputs: List[Tensor]) -> None:  # noqa: UP006
        outputs[0].add_(1)


class WritingInALoop(Layered):
    def write(self, x: Tensor, y: Tensor, outputs: List[Tensor]) -> None:  # noqa: UP006
        for i in range(x.size(0)):
            y += i


@pytest.mark.parametrize(
    ("cls", "kept"),
    [
        (Layered, set()),
        (Counting, {"calls"}),
        (WritingToItsArgument, set()),
        (WritingToAnotherList, {"seen"}),
        (WritingToAListOfResults, set()),
        (WritingInALoop, set()),
    ],
)
def test_weights_in_lists_are_folded_whatever_else_is_written(cls: Any, kept: set[str]) -> None:
    module = cls().eval().requires_grad_(False)
    frozen = jit_amp.freeze(copy.deepcopy(module), optimize_numerics=False)
    assert {n.s("name") for n in frozen.graph.findAllNodes("prim::GetAttr")} == kept
    for call in range(3):
        x = torch.rand(1, 3, 4)
        with torch.no_grad():
            assert_same(frozen(x.clone()), module(x.clone()), f"call {call}")


class Tasks(nn.Module):
    """A task reads and writes what nothing else does, and what another list holds too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.a = [torch.zeros(4), torch.zeros(4)]
        self.b = [self.a[1], torch.zeros(4)]
        self.register_buffer("n", torch.zeros(()))

    def task(self, x: Tensor) -> Tensor:
        self.n.add_(1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x) + self.a[1]

    def forward(self, x: Tensor):
        y = torch.jit.wait(torch.jit.fork(self.task, x))
        return y, self.b[0] * 1, self.n + 3


class Domains(nn.Module):
    """Running statistics that a branch chooses, and a loop carries."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        for name in ("day", "night", "first", "second"):
            self.register_buffer(name, torch.zeros(4))
        for name in ("variance", "other"):
            self.register_buffer(name, torch.ones(4))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        mean = self.day if bool(x.mean() > 0.5) else self.night
        y = F.batch_norm(y.float(), mean, self.variance, None, None, True)
        mean = self.first
        for _ in range(3):
            y = F.batch_norm(y, mean, self.other, None, None, True, 0.1)
            mean = self.second
        return y, self.day - self.night, self.first * 1, self.second.exp()


@pytest.mark.parametrize("cls", [Tasks, Domains])
@pytest.mark.parametrize("is_saved", [False, True])
def test_what_tasks_and_norms_write_is_state(cls: Any, is_saved: bool) -> None:
    torch.manual_seed(0)
    module = cls().eval().requires_grad_(False)
    frozen = jit_amp.freeze(copy.deepcopy(module), optimize_numerics=False)
    if is_saved:
        file = io.BytesIO()
        torch.jit.save(frozen, file)
        file.seek(0)
        frozen = torch.jit.load(file)
    for call in range(4):
        x = torch.rand(3, 4)
        with torch.no_grad():
            assert_same(frozen(x), module(x), f"call {call}")


class StatisticsInATask(nn.Module):
    """A task runs on a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        task = torch.jit.fork(self.norm, y.float())
        return torch.jit.wait(task), self.norm.running_mean * 1


def test_a_norm_in_a_task() -> None:
    module = StatisticsInATask().eval().requires_grad_(False)
    frozen = jit_amp.freeze(copy.deepcopy(module), optimize_numerics=False)
    for call in range(4):
        x = torch.rand(3, 4)
        with torch.no_grad():
            assert_same(frozen(x), module(x), f"call {call}")


def test_a_norm_in_training_in_a_task_is_refused() -> None:
    """What PyTorch's freezing makes of it cannot be called."""
    module = StatisticsInATask().eval().requires_grad_(False)
    module.norm.train()
    with pytest.raises(jit_amp.AutocastError, match=r"JA207](.|\n)*`training` of a mod"):
        jit_amp.freeze(module)


class TrainingAsked(Domains):
    """Whether statistics move is an argument, and depends on values."""

    def forward(self, x: Tensor, train: bool):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        y = F.batch_norm(y.float(), self.day, self.variance, None, None, train)
        training = bool(x.sum() > 0) and not train
        y = F.batch_norm(y, self.night, self.other, None, None, training, 0.1)
        return y, self.day.sum(), self.night.sum()


class CarriedByALoop(Domains):
    def forward(self, x: Tensor, train: bool):
        c = x.clone()
        for _ in range(2):
            c.add_(1)
            c = self.day
        return x + self.day.sum()


@pytest.mark.parametrize("cls", [TrainingAsked, CarriedByALoop])
def test_what_a_call_decides_to_write_is_state(cls: Any) -> None:
    torch.manual_seed(0)
    module = cls().eval().requires_grad_(False)
    frozen = jit_amp.freeze(copy.deepcopy(module), optimize_numerics=False)
    for call in range(6):
        x = torch.rand(3, 4)
        with torch.no_grad():
            assert_same(frozen(x, call % 2 == 0), module(x, call % 2 == 0), f"call {call}")


class Collected(nn.Module):
    """Weights are put into lists, dictionaries and objects, and not written to."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.rand(4, 4))
        self.v = nn.Parameter(torch.rand(4, 4))

    def forward(self, x: Tensor):
        found = [x]
        found.append(self.w)
        named = {"x": x}
        named["v"] = self.v
        found += [x]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ found[1] @ named["v"]


def test_weights_that_are_put_into_containers_stay_constants() -> None:
    frozen = jit_amp.freeze(Collected().eval())
    assert not list(frozen.graph.findAllNodes("prim::GetAttr"))


class Methods(nn.Module):
    """Two methods read two lists that share a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.a = [torch.rand(4), torch.rand(4)]
        self.c = [self.a[0], torch.rand(4)]

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x) + self.a[0]

    @torch.jit.export
    def other(self, x: Tensor):
        self.c[0].add_(1)
        return x + self.c[0]


def test_lists_of_two_methods_may_share_a_tensor() -> None:
    module = Methods().eval().requires_grad_(False)
    frozen = jit_amp.freeze(copy.deepcopy(module), ["other"], optimize_numerics=False)
    x = torch.rand(3, 4)
    for call in range(3):
        with torch.no_grad():
            assert_same(frozen(x), module(x), f"call {call}")
            assert_same(frozen.other(x), module.other(x), f"other, call {call}")


def test_a_norm_in_eval_mode_is_folded() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
    frozen = jit_amp.freeze(module)
    assert not list(frozen.named_buffers())
    assert "aten::batch_norm" not in operators(frozen.graph)
