"""export: bools and numbers that tensors tell, and what a side of a branch changes."""

from __future__ import annotations

import copy
import io
import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import LOADS_PROGRAMS, assert_same

pytestmark = LOADS_PROGRAMS


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("buffer", torch.zeros(4))

    def layer(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Either(Net):
    def forward(self, x: Tensor):
        if x.sum() < 0 or x.max() > 0.9:
            return self.layer(x) * 2
        return self.layer(x) - 1


class Both(Net):
    def forward(self, x: Tensor):
        if x.sum() > 0 and x.max() < 0.9:
            return self.layer(x) * 2
        return self.layer(x) - 1


class NotOne(Net):
    def forward(self, x: Tensor):
        y = self.layer(x)
        if not (x.sum() > 0 and not x.max() > 0.9):
            y = y * 2
        return y


class AFlag(Net):
    def forward(self, x: Tensor):
        return self.layer(x), bool(x.max() > 0.9)


class InALoop(Net):
    def forward(self, x: Tensor):
        found = False
        for i in range(4):
            found = found or bool(x[0, i] > 0.9)
        y = self.layer(x)
        if found:
            y = y * 2
        return y


class Known(Net):
    """A tensor whose value is known is written to in a branch."""

    def forward(self, x: Tensor):
        n = torch.tensor(3)
        if x.max() > 0.9:
            n.add_(1)
        y = self.layer(x)
        if bool(n > 3):
            y = y * 2
        return y, n


@pytest.mark.parametrize("cls", [Either, Both, NotOne, AFlag, InALoop, Known])
@pytest.mark.parametrize("example", [0.1, 1.0, -1.0])
def test_conditions_of_values_are_eagers(cls: Any, example: float) -> None:
    torch.manual_seed(0)
    module = cls().eval()
    x = torch.rand(3, 4) * 0.05 + 0.95
    program = jit_amp.export(copy.deepcopy(module), (x * example,)).module()
    for scale in (0.1, 1.0, -1.0):
        got, expected = program(x * scale), module(x * scale)
        assert_same(got, expected, f"{scale}")


class Asserts(Net):
    def forward(self, x: Tensor):
        assert x.sum() > 0 or x.max() > 0.9
        return self.layer(x)


def test_an_assertion_of_two_conditions_holds() -> None:
    program = jit_amp.export(Asserts().eval(), (torch.ones(3, 4),)).module()
    program(torch.ones(3, 4))
    with pytest.raises(RuntimeError):
        program(-torch.ones(3, 4))


@torch.jit.script
class State:
    def __init__(self, value: Tensor) -> None:
        self.value = value
        self.count = 0


class SetsAField(Net):
    def forward(self, x: Tensor):
        state = State(x)
        if x.sum() > 0:
            state.count = 5
        return self.layer(x) * state.count


class AssignsABuffer(Net):
    def forward(self, x: Tensor):
        if x.sum() > 0:
            self.buffer = self.buffer + x[0]
        return self.layer(x) + self.buffer


@pytest.mark.parametrize("cls", [SetsAField, AssignsABuffer])
def test_what_a_side_sets_outside_is_refused(cls: Any) -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"JA501\]"):
        jit_amp.export(cls().eval(), (torch.ones(3, 4),))


class WritesDeepInside(Net):
    def forward(self, x: Tensor):
        y = self.layer(x)
        if x.sum() > 0:  # noqa: SIM102  # one branch in the other
            if x[0, 0] > 0.5:
                self.buffer.add_(1)
                y[0] += 1
        return self.buffer * 1, y


class WritesInALoopInside(Net):
    def forward(self, x: Tensor):
        k = x.sum()
        if x.max() > 0.5:
            while bool(k > 1):
                k = k * 0.5
                self.buffer.add_(1)
        while bool(k > 0.1):
            k = k * 0.5
            if k < 0.5:
                self.buffer.add_(1)
        return self.layer(x) + self.buffer


@pytest.mark.parametrize("cls", [WritesDeepInside, WritesInALoopInside])
def test_what_is_written_deep_inside_is_written(cls: Any) -> None:
    torch.manual_seed(0)
    module = cls().eval().requires_grad_(False)
    x = torch.rand(3, 4) * 0.2 + 0.8
    program = jit_amp.export(copy.deepcopy(module), (x,)).module()
    with torch.no_grad():
        for call, scale in enumerate((1.0, 0.5, 1.0, -1.0, 1.0)):
            assert_same(program(x * scale), module(x * scale), f"call {call}")
    assert torch.equal(program.state_dict()["buffer"], module.buffer)


class RaisesDeepInside(Net):
    def forward(self, x: Tensor):
        if x.sum() > 0:  # noqa: SIM102
            if x[0, 0] > 0.5:  # noqa: SIM102
                if x[0, 1] > 0.5:
                    raise ValueError("too large")
        return self.layer(x)


def test_what_raises_deep_inside_raises() -> None:
    program = jit_amp.export(RaisesDeepInside().eval(), (torch.zeros(3, 4),)).module()
    program(torch.full((3, 4), 0.25))
    with pytest.raises(RuntimeError):
        program(torch.ones(3, 4))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, q: Tensor, k: Tensor, v: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.attention(q, k, v)[0]


def test_one_tensor_given_for_several_arguments() -> None:
    module = Attention().eval().requires_grad_(False)
    x = torch.rand(2, 3, 4)
    with torch.no_grad():
        program = jit_amp.export(module, (x, x), {"v": x}).module()
        q, k, v = torch.rand(3, 2, 3, 4)
        assert_same(program(q, k, v=v), module(q, k, v), "others")


class ANumber(Net):
    def forward(self, x: Tensor):
        value = x.max().item() if x.sum() > 0 else x.min().item()
        return self.layer(x) * value


def test_a_number_that_a_branch_gives_is_refused() -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"JA50\d\]"):
        jit_amp.export(ANumber().eval(), (torch.ones(3, 4),))


class AsksForCudnn(nn.Module):
    def forward(self, x: Tensor):
        return x * 2 if torch.cudnn_is_acceptable(x) else x


@pytest.mark.parametrize("enabled", [True, False])
def test_whether_cudnn_is_on_is_the_callers(enabled: bool, monkeypatch: Any) -> None:
    """torch.export switches it off while it looks on."""
    scripted, x = jit_amp.script(AsksForCudnn()), torch.rand(3)
    monkeypatch.setattr(torch, "cudnn_is_acceptable", lambda _: torch.backends.cudnn.enabled)
    with torch.backends.cudnn.flags(enabled=enabled):
        program = jit_amp.export(scripted, (x,))
    assert torch.equal(program.module()(x), x * 2 if enabled else x)


class Scaled(nn.Module):
    """As detectors do: a picture is scaled by a number that a tensor has."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, stride=2)
        self.norm = nn.BatchNorm2d(4)

    def sized(self, x: Tensor, by: float) -> Tensor:
        height = math.floor(float(x.size(2)) * by)
        width = math.ceil(float(x.size(3)) * by / 4) * 4
        return nn.functional.interpolate(x, size=[height, width], mode="bilinear")

    def forward(self, x: Tensor, scale: Tensor):
        y = self.sized(x, float(scale.item()))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = self.norm(self.conv(y))
        return nn.functional.interpolate(z, size=y.shape[2:]).sum(1, keepdim=True) + y


class Part(nn.Module):
    """A number of rows that may be none."""

    def forward(self, x: Tensor):
        kept = x[x[:, 0] > 0.5]
        most = int(0.5 * float(kept.size(0)))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return kept[:most] @ kept[:most].t(), most


def test_sizes_by_way_of_floats_are_free() -> None:
    model = Scaled().eval()
    with torch.no_grad(), pytest.warns(UserWarning, match="at least 1"):
        exported = jit_amp.export(model, (torch.rand(2, 3, 8, 12), torch.tensor(1.5)))
        file = io.BytesIO()
        torch.export.save(exported, file)
        file.seek(0)
        for program in (exported.module(), torch.export.load(file).module()):
            for size, by in ((8, 1.5), (8, 0.5), (16, 2.3), (9, 0.12), (5, 1.0)):
                given = torch.rand(3, 3, size, size + 4), torch.tensor(by)
                assert_same(program(*given), model(*given), f"{size} times {by}")
            with pytest.raises(RuntimeError, match="Runtime assertion failed"):
                program(torch.rand(3, 3, 8, 8), torch.tensor(0.1))


def test_sizes_by_way_of_floats_may_be_zero_where_nothing_asks() -> None:
    model, x = Part().eval(), torch.rand(16, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        program = jit_amp.export(model, (x,)).module()
    for threshold in (0.0, 0.5, 1.0):
        given = x + threshold - 0.5
        assert_same(program(given), model(given), str(threshold))


def test_sizes_by_way_of_floats_are_fixed_where_the_example_has_none() -> None:
    """The program would not take its example, and there is no other way to say it."""
    model = Scaled().eval()
    with torch.no_grad(), pytest.raises((jit_amp.AutocastError, RuntimeError), match=r"JA50\d"):
        jit_amp.export(model, (torch.rand(2, 3, 8, 12), torch.tensor(0.1)))


class Levels(Scaled):
    """As a detector's pooling does: the first call finds out how far the picture was scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.0

    def forward(self, x: Tensor, scale: Tensor):
        by = float(scale.item())
        y = nn.functional.interpolate(x, size=[math.floor(float(x.size(2)) * by)] * 2)
        if self.scale == 0.0:
            part = torch.tensor(float(self.conv(y).size(2)) / float(y.size(2)))
            self.scale = 2 ** float(torch.round(torch.log2(part)))
        return self.conv(y) * self.scale


# PyTorch 2.11 asks for it of more operators.
@pytest.mark.filterwarnings("ignore:jit_amp.export. the program computes sizes")
def test_what_the_first_call_sets_is_known_after_it() -> None:
    model = Levels().eval()
    scripted = jit_amp.script(model)
    given = torch.rand(2, 3, 8, 12), torch.tensor(1.5)
    with torch.no_grad():
        with pytest.raises(jit_amp.AutocastError, match="call the model once before"):
            jit_amp.export(scripted, given)
        assert_same(scripted(*given), model(*given), "the first call")
        program = jit_amp.export(scripted, given).module()
        for size in (8, 16, 9):
            other = torch.rand(3, 3, size, size), torch.tensor(0.7)
            assert_same(program(*other), model(*other), str(size))


class Rounded(nn.Module):
    def forward(self, x: Tensor, y: Tensor):
        down = math.floor((x.size(0) - 2.0) / 3.0)
        up = math.ceil(math.ceil(math.ceil(x.size(1) / 2) / 2) / 2)
        apart = abs(x.size(0) - x.size(1))
        half = math.floor(x.size(1) / 2)
        large = int(y[0, 0].item())
        z = x[:, :half] + math.floor(large) + math.ceil(large)
        return (
            half,
            z,
            math.ceil(large),
            torch.ones(2) * abs(y[0, 1].item()),
            (x[0] + y[0]).sum() + down,
            torch.zeros(up),
            torch.ones(apart + int(7.0 // 2.0)),
        )


def test_floor_ceil_and_abs_of_sizes_are_saved() -> None:
    model = Rounded()
    exported = jit_amp.export(model, (torch.rand(5, 9), torch.rand(5, 9).double()))
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    for program in (exported.module(), torch.export.load(file).module()):
        for rows, columns in ((5, 9), (2, 30), (3, 17), (1, 9)):
            given = torch.rand(rows, columns), torch.rand(rows, columns).double()
            given[1][0, 0] = 2**53 + 2
            for value in (-0.0, 0.0, -2.5):
                given[1][0, 1] = value
                made, expected = program(*given), model(*given)
                assert_same(made, expected, f"{rows} x {columns}, {value}")
                assert made[3].signbit().equal(expected[3].signbit())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's own
        assert_same(torch.export.unflatten(exported)(*given), model(*given), "unflattened")


class Stretched(nn.Module):
    """The number of rows is the example's, or less."""

    def forward(self, x: Tensor):
        by = max(x.mean().item(), 1.0)
        return torch.zeros(int(by * x.size(0))) + 1


class Squares(nn.Module):
    """Ints alone: what is known of them stays known."""

    def forward(self, x: Tensor):
        v = x[x[:, 0] > 0]
        d = (v[:, :1] - v[:, :1].t()).reshape(-1)
        e = torch.zeros(d.size(0))
        if d.shape != e.shape:
            return torch.zeros(2, 2)
        return d + e


class Turns(nn.Module):
    def forward(self, x: Tensor):
        for _ in range(int(min(max(x.mean().item(), 1.0), 1.5))):
            x = x + 1
        return x


@pytest.mark.parametrize("make", [Stretched, Squares, Turns])
def test_numbers_by_way_of_floats_are_as_known_as_they_were(make: Any) -> None:
    x = torch.rand(9, 4, generator=torch.Generator().manual_seed(0)) - 0.25
    program = jit_amp.export(make(), (x,)).module()
    for given in (x, x[:5], torch.full((1, 4), 2.0)):
        assert_same(program(given), make()(given), str(given.shape))


class Moved(Scaled):
    """A number that is no size may be anything."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor, scale: Tensor):
        by = float(scale.item())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.norm(self.conv(self.sized(x, by))) + int(by * self.by)


@pytest.mark.parametrize("by", [1.0, 0.3, -1.0])
def test_only_sizes_are_at_least_one(by: float) -> None:
    model = Moved(by).eval()
    given = torch.rand(2, 3, 8, 12), torch.tensor(1.5)
    with torch.no_grad(), pytest.warns(UserWarning, match=r"at least 1[^$]*height = math"):
        program = jit_amp.export(model, given).module()
    with torch.no_grad():
        for scale in (1.5, 0.7, 2.5):
            given = torch.rand(2, 3, 8, 12), torch.tensor(scale)
            assert_same(program(*given), model(*given), str(scale))


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_no_size_can_be_made_of_the_example(value: float) -> None:
    with torch.no_grad(), pytest.raises(jit_amp.AutocastError, match=r"JA50\d"):
        jit_amp.export(Scaled().eval(), (torch.rand(2, 3, 8, 12), torch.tensor(value)))
