"""export: an ExportedProgram that gives eager's results, of modules with source and without."""

from __future__ import annotations

import copy
import enum
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple  # noqa: UP035  # as TorchScript reads them

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

import jit_amp

from ..support import LOADS_PROGRAMS, assert_same, fresh, imported

pytestmark = LOADS_PROGRAMS


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)
        self.norm.running_mean.uniform_(-1, 1)

    def forward(self, x: Tensor, flip: bool = False) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(self.norm(self.conv(x)))
            if flip:
                y = y.flip(0)
            if y.dim() == 4:
                y = y.mean([2, 3])
            return self.head(y).softmax(-1)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.rnn = kind(4, 5, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            return self.rnn(x)


class Beam(nn.Module):
    """A loop over a size, lists that grow, indices that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(11, 6), nn.GRUCell(6, 6)
        self.head = nn.Linear(6, 11)

    def forward(self, source: Tensor, width: int = 3):
        batch = source.size(0)
        found: List[Tensor] = []  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = torch.zeros(batch * width, 6)
            token = torch.zeros(batch * width, dtype=torch.long)
            score = torch.zeros(batch, width)
            for t in range(source.size(1)):
                x = self.embedding(token) + self.embedding(source[:, t]).repeat_interleave(width, 0)
                h = self.cell(x, h)
                after = torch.log_softmax(self.head(h), -1).view(batch, width, -1)
                score, index = (after + score.unsqueeze(-1)).view(batch, -1).topk(width)
                token = (index % 11).view(-1)
                h = h[(index // 11 + torch.arange(batch).unsqueeze(1) * width).view(-1)]
                found.append(token.view(batch, width))
        return torch.stack(found, 1), score


class Containers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, xs: Dict[str, Tensor], ys: List[Tensor], k: Optional[int] = None):  # noqa: UP006, UP045
        out: Dict[str, List[Tensor]] = {}  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for name, x in xs.items():
                out[name] = [self.linear(x)]
                for y in ys:
                    out[name].append(torch.cat([out[name][-1], y.to(torch.bfloat16)]))
        if k is not None:
            out["k"] = [torch.full((k, len(ys)), 0.5)]
        return out


class Boxes(nn.Module):
    """As detection models do: indices of what is kept, and a branch on how many there are."""

    def forward(self, boxes: Tensor, scores: Tensor):
        keep = torch.where(scores > 0.5)[0]
        boxes, scores = boxes[keep], scores[keep]
        if boxes.numel() == 0:
            boxes = torch.zeros(0, 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            area = (boxes[:, 2:] - boxes[:, :2]) @ torch.ones(2, 1)
        return boxes * area.float(), scores


class TensorsInBranches(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = x @ torch.full((4, 4), 0.3)
            if x.sum() > 0:
                table = torch.tensor([[1.0, 2.0], [3.0, 0.1]])
                table[0, 0] = 7.0
                sizes = torch.as_tensor([x.size(0), 2, 3, 4]) * torch.tensor(True)
                return (torch.tensor(3) * x * table.view(-1) + sizes).float()
            nothing: List[float] = []  # noqa: UP006
            doubles = torch.tensor([0.1, -2.0, 1e30, 1.0], dtype=torch.float64)
            return (doubles - x).float() + torch.tensor(nothing).sum()


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if x.sum() > 0:
                y = self.a(x)
            elif not bool((x < -1).any()):
                y = x.to(torch.bfloat16)
            else:
                y = self.b(x) * 2
        assert bool((y == y).all()), "nan"
        return y


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2, 4))
        self.register_buffer("scale", torch.ones(4), persistent=False)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.offset = torch.full((4,), 0.25)
        self.last_size = 0

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.second(self.first(x)) * self.scale + self.offset
        self.mean = self.mean * 0.5 + y.float().mean(0)
        self.mean[0] += 1
        self.scale.mul_(2)
        self.last_size = 3
        return y, self.mean + self.last_size


class Same(nn.Module):
    """Writes to an attribute what it is, as torchvision's anchors are."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors = [torch.ones(2, 4), torch.full((1, 4), 2.0)]

    def forward(self, x: Tensor) -> Tensor:
        self.anchors = [each.to(dtype=x.dtype, device=x.device) for each in self.anchors]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ torch.cat([each.t() for each in self.anchors], 1)


class Tasks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            task = torch.jit.fork(self.linear, x)
            return torch.jit.wait(task) + self.linear(x)


class NoGrad(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        return y


class WarnsOnce(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.has_warned = nn.Linear(4, 4), False

    def forward(self, x: Tensor) -> Tensor:
        if not self.has_warned:
            warnings.warn("once", stacklevel=1)
            self.has_warned = True
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Anchors(nn.Module):
    """What it keeps becomes of the dtype that it computes in; scales are made by the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.anchors = nn.Linear(4, 4), [torch.rand(3, 4), torch.rand(2, 4)]
        self.scales = None

    __annotations__ = {"scales": Optional[List[float]]}  # noqa: UP006, UP045

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        self.anchors = [each.to(y.dtype) for each in self.anchors]
        if self.scales is None:
            self.scales = [float(x.size(1)), 0.5]
        scales = self.scales
        assert scales is not None
        return torch.cat([each * scales[0] + y[:1] for each in self.anchors]) * scales[1]


class TwoScales(nn.Module):
    """The second attribute is read by later calls alone; numbers come from operators."""

    __annotations__ = {"low": Optional[float], "high": Optional[float]}  # noqa: UP045

    def __init__(self) -> None:
        super().__init__()
        self.low = self.high = None

    def forward(self, x: Tensor) -> Tensor:
        low, high = self.low, self.high if self.low is not None else None
        if low is None or high is None:
            self.low = float(torch.log2(torch.tensor(4.0)))
            self.high = float(torch.log2(torch.tensor(8.0)))
        low, high = self.low, self.high
        assert low is not None and high is not None
        return x * low + high


class PutsBack(nn.Module):
    __annotations__ = {"depth": int}

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0

    def forward(self, x: Tensor) -> Tensor:
        before = self.depth
        self.depth = 1
        y = x * self.depth
        self.depth = before
        return y + self.depth


class Fixes(nn.Module):
    """The second call does something else for other sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh = True

    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        if not self.fresh and x.size(0) != 2:
            y = y * 2
        self.fresh = False
        return y


class Names(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fresh = True

    def forward(self, x: Tensor):
        name = "first" if self.fresh else "later"
        self.fresh = False
        return {name: x + 1}


class KeepsTensor(nn.Module):
    """The second call reads what the first has set, a tensor of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.called, self.last = False, [torch.zeros(4)]

    def forward(self, x: Tensor) -> Tensor:
        if self.called:
            x = x + self.last[0]
        else:
            self.last = [x[0] * 2]
        self.called = True
        return x + 0 * x


class Reused(Anchors):
    """Its second call multiplies what the first has rounded."""

    def forward(self, x: Tensor) -> Tensor:
        before = self.anchors[0] * 2
        self.anchors = [each.to(torch.bfloat16) for each in self.anchors]
        return before


class Alternating(WarnsOnce):
    def forward(self, x: Tensor) -> Tensor:
        y = x + torch.tensor(float(self.has_warned))
        self.has_warned = True
        return y


@torch.jit.script
class Tally:
    def __init__(self) -> None:
        self.calls = 0

    def up(self) -> int:
        self.calls += 1
        return self.calls


class Tallied(nn.Module):
    """Its object is made by the first call, and changes in the later ones too."""

    __annotations__ = {"tally": Optional[Tally]}  # noqa: UP045

    def __init__(self) -> None:
        super().__init__()
        self.tally = None

    def forward(self, x: Tensor) -> Tensor:
        tally = self.tally
        if tally is None:
            tally = Tally()
            self.tally = tally
        return x * 3 if tally.up() > 2 else x


class LikeItsOwn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.like = [torch.rand(3).bfloat16()]

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.like[0])


class Given(nn.Module):
    """A size is what another operator writes to."""

    def forward(self, x: Tensor) -> Tensor:
        rows, more = x.size(0), x.size(0)
        return x.new_zeros(torch.add(rows, 2, out=more) if torch.jit.is_tracing() else rows + 2)


def test_a_list_of_tensors_that_only_tells_a_dtype() -> None:
    model, x = LikeItsOwn(), torch.rand(2, 4)
    assert_same(jit_amp.export(model, (x,)).module()(x), model(x), "result")


def test_a_size_that_is_written_by_out() -> None:
    model, x = Given(), torch.rand(2, 4)
    program = jit_amp.export(jit_amp.trace(model, x, check_trace=False), (x,)).module()
    assert_same(program(x), model(x), "result")


def test_state_that_a_second_call_finds_and_does_the_same() -> None:
    model, x = WarnsOnce().eval(), torch.rand(2, 4)
    program = jit_amp.export(model, (x,)).module()
    with pytest.warns(UserWarning, match="once"):
        expected = model(x)
    assert_same(program(x), expected, "a warning")
    anchors = Anchors().eval()
    program = jit_amp.export(anchors, (x,)).module()
    for each in (x, torch.rand(3, 4)):
        assert_same(program(each), anchors(each), "anchors")
    scales = TwoScales().eval()
    program = jit_amp.export(scales, (x,)).module()
    back = jit_amp.export(PutsBack(), (x,)).module()
    assert_same(back(x), PutsBack()(x), "put back")
    for each in (x, torch.rand(3, 4)):
        assert_same(program(each), scales(each), "scales")


@pytest.mark.parametrize(
    "model",
    [Reused(), Alternating(), Tallied(), KeepsTensor()],
    ids=lambda each: type(each).__name__,
)
def test_state_that_makes_a_later_call_another_is_refused(model: nn.Module) -> None:
    with pytest.raises(jit_amp.AutocastError, match="JA503"):
        jit_amp.export(model.eval(), (torch.rand(2, 4),))


class Padded(nn.Module):
    """To a multiple, and cropped again."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 4, 4, 4), nn.ConvTranspose2d(4, 3, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.size(2), x.size(3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.nn.functional.pad(x, (0, (4 - width % 4) % 4, 0, -height % 4))
            return self.up(self.down(y))[:, :, :height, :width]


class Until(nn.Module):
    """A loop until tensors have some value."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y, total = torch.tanh(self.linear(x)), torch.zeros(())
            while bool(total < 3):
                y = torch.tanh(self.linear(y)) + (y @ y.t()).sum()
                total = total + y.float().abs().mean() + 0.1
        return x, y, total


class Count(nn.Module):
    """Branches on how many boxes are kept."""

    def forward(self, boxes: Tensor, scores: Tensor) -> Tensor:
        kept = boxes[scores > 0.5]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = torch.zeros(4, 4, dtype=torch.bfloat16)
            if kept.size(0) > 2:
                found = kept.t() @ kept
        return found.float() + 1


x4 = torch.randn(3, 4)


class Totals:
    def __init__(self, t: Tensor):
        self.t, self.all = t, [t * 1]


class HeldInside(nn.Module):
    """Writes numbers to tensors in lists, dictionaries and objects."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("buffer", torch.zeros(4))
        self.seen: List[Tensor] = [torch.ones(4), torch.zeros(4)]  # noqa: UP006
        self.buffers_again: List[Tensor] = [self.buffer]  # noqa: UP006
        self.deep: Dict[str, List[Tensor]] = {"a": [torch.ones(4)]}  # noqa: UP006
        self.reduced: Dict[str, Tensor] = {"a": torch.ones(4, dtype=torch.bfloat16)}  # noqa: UP006
        self.pair: Tuple[Tensor, Tensor] = (torch.ones(4), self.seen[0])  # noqa: UP006
        self.totals = Totals(torch.ones(4))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            for each in self.seen:
                each += 1
            self.reduced["a"] *= 2
        self.seen[0] *= 2
        self.buffers_again[0].add_(1)
        self.deep["a"][0].add_(y.float().sum() * 0 + 1)
        self.pair[0].sub_(1)
        for each in self.totals.all:
            each += 3
        results = [each * 1 for each in self.seen]
        others = [self.buffer * 1, self.deep["a"][0] * 1, self.pair[0] * 1, self.pair[1] * 1]
        return y, results, others, self.reduced["a"] * 1, self.totals.all[0] * 1


def values_inside(model: Any) -> list[Tensor]:
    found = [*model.seen, model.buffer, model.deep["a"][0], model.reduced["a"], *model.pair]
    return [each.clone() for each in (*found, model.totals.t, *model.totals.all)]


def test_what_lists_dictionaries_and_objects_hold_is_not_written_to() -> None:
    model = HeldInside().eval()
    before = values_inside(model)
    jit_amp.export(model, (torch.randn(2, 4),))
    assert all(map(torch.equal, values_inside(model), before))


CASES: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "held inside": (HeldInside, [(torch.randn(n, 4),) for n in (2, 3)]),
    "conv": (Conv, [(torch.randn(2, 3, 8, 8),), (torch.randn(5, 3, 9, 12),)]),
    "flag": (Conv, [(torch.randn(2, 3, 8, 8), True), (torch.randn(5, 3, 9, 12), True)]),
    "lstm": (lambda: Recurrent(nn.LSTM), [(torch.randn(n, 3, 4),) for n in (2, 4)]),
    "gru": (lambda: Recurrent(nn.GRU), [(torch.randn(n, 3, 4),) for n in (2, 4)]),
    "beam": (Beam, [(torch.randint(0, 11, (n, 3)),) for n in (2, 4)]),
    "containers": (
        Containers,
        [({"a": torch.randn(n, 4)}, [torch.randn(n + 1, 4), x4], 4) for n in (2, 5)],
    ),
    "boxes": (
        Boxes,
        [
            (torch.randn(6, 4), torch.tensor([0.1, 0.6, 0.7, 0.2, 0.9, 0.1])),
            (torch.randn(3, 4), torch.tensor([0.6, 0.7, 0.2])),
            (torch.randn(3, 4), torch.zeros(3)),
        ],
    ),
    "count": (
        Count,
        [(torch.randn(n, 4), torch.linspace(0, 1, n)) for n in (6, 8, 3)],
    ),
    "until": (Until, [(torch.randn(n, 4),) for n in (2, 4)]),
    "padded": (Padded, [(torch.randn(2, 3, 17, 30),), (torch.randn(3, 3, 19, 26),)]),
    "tensors in branches": (TensorsInBranches, [(x,) for x in (x4.abs(), -x4.abs(), x4[:1])]),
    "branches": (Branches, [(x4.abs(),), (-x4.abs().clamp(max=0.9),), (-5 * x4.abs() - 1,)]),
    "writes": (Writes, [(x4,), (torch.randn(5, 4),)]),
    "same": (Same, [(x4,), (torch.randn(5, 4),)]),
    "tasks": (Tasks, [(x4,), (torch.randn(5, 4),)]),
    "no_grad": (NoGrad, [(x4,), (torch.randn(5, 4),)]),
}


@pytest.fixture(autouse=True)
def without_onednn() -> Any:
    """Its LSTM of float16 is not on every machine."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(before)


def assert_exports(model: nn.Module, calls: list[tuple[Any, ...]], gradients: bool = False) -> None:
    """Three calls each, from one state on, of what was saved; buffers are compared after each."""
    reference = copy.deepcopy(model)
    program = jit_amp.export(model, fresh(calls[0]))
    assert isinstance(program, ExportedProgram)
    assert program.state_dict.keys() == model.state_dict().keys()
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    exported = torch.export.load(file).module()
    for arguments in calls:
        for call in range(3):
            with torch.set_grad_enabled(gradients):
                expected, actual = reference(*fresh(arguments)), exported(*fresh(arguments))
            assert_same(actual, expected, f"call {call}")
            for name, value in reference.state_dict().items():
                assert torch.equal(exported.state_dict()[name], value), name


@pytest.mark.parametrize("name", CASES)
def test_results_are_eagers(name: str) -> None:
    make, calls = CASES[name]
    assert_exports(make().eval(), calls)


class Texts(nn.Module):
    """What a text and a key are made of: numbers that are symbols while torch.export traces."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            by: dict[int, float] = {x.size(1): 0.5}
            by[x.size(0)] = 3.0
            if "%d-%s" % (x.size(1), "b") != "4-b" or "%s" % x.dim() != "2":  # noqa: UP031
                return x
            if "{}-{}".format(x.size(1), "b") == "4-b" and f"{x.dim()}" == "2":
                x = x @ x.t()
            if 7 in by:
                x = x * by[7]
            return x * by[4]


def test_texts_and_keys_of_sizes() -> None:
    x7 = torch.randn(7, 4)
    assert_exports(Texts().eval(), [(x7,)])
    program = jit_amp.export(Texts().eval(), (x7,))
    with pytest.raises(AssertionError):
        program.module()(torch.randn(6, 4))


class Averages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.ones(4))
        self.register_buffer("before", torch.zeros(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        old = self.before
        self.before = self.average
        self.average = self.average * 0.5 + x.mean(0)
        return x + self.average, old


class OfAPart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Averages()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.part(x)


@pytest.mark.parametrize("make", [Averages, OfAPart])
def test_buffers_that_are_assigned(make: Any) -> None:
    """torch.export alone loses those of a submodule."""
    assert_exports(make(), [(x4,), (torch.randn(3, 4),)])


def test_a_none_that_is_a_tensors_default() -> None:
    def function(x: Tensor, unused: Tensor = None) -> Tensor:  # type: ignore[assignment]
        return x + 1

    for given in ((x4,), (x4, None)):
        assert_same(jit_amp.export(function, given).module()(*given), x4 + 1, "result")


@pytest.mark.parametrize("form", ["scripted", "plainly scripted", "traced", "frozen", "loaded"])
def test_all_forms_of_a_program(form: str, tmp_path: Path) -> None:
    model, x = Conv().eval(), torch.randn(2, 3, 8, 8)
    program: Any
    if form == "scripted":
        program = jit_amp.script(model)
    elif form == "plainly scripted":
        program = torch.jit.script(model)
    elif form == "traced":
        program = jit_amp.trace(model, (x,))
    elif form == "frozen":
        program = jit_amp.freeze(model, example_inputs=(x,), optimize_numerics=False)
    else:
        program = tmp_path / "model.pt"
        torch.jit.save(jit_amp.script(model), program)
    exported = jit_amp.export(program, (x,))
    if form != "frozen":
        assert exported.state_dict.keys() == model.state_dict().keys()
    y = torch.randn(4, 3, 9, 9)
    with torch.no_grad():
        for given in (x, y):
            assert_same(exported.module()(given), model(given), form)


def scaled(x: Tensor, by: float = 2.0) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ x.t()) * by


@pytest.mark.parametrize("function", [scaled, jit_amp.script(scaled)])
def test_functions(function: Any) -> None:
    program = jit_amp.export(function, (x4,), {"by": 3.0})
    assert_same(program.module()(x4, by=3.0), scaled(x4, 3.0), "result")


def test_what_is_shared_stays_shared() -> None:
    model = Writes().eval()
    program = jit_amp.export(model, (x4,))
    parameters = dict(program.module().named_parameters(remove_duplicate=False))
    assert parameters["first.weight"] is parameters["second.weight"]
    assert program.state_dict["first.weight"] is model.first.weight
    assert set(program.graph_signature.non_persistent_buffers) == {"scale", "offset"}


def test_an_ambient_autocast_is_not_the_programs() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        program = jit_amp.export(nn.Linear(4, 4), (x4,))
    assert program.module()(x4).dtype is torch.float32


def test_what_asks_whether_gradients_are_recorded_is_answered_once() -> None:
    """PyTorch's layer then takes another way, whose result has another dtype."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.layer(x)

    model, x = Layer().eval(), torch.rand(2, 3, 4)
    with pytest.warns(UserWarning, match="inside torch.no_grad"):
        assert_same(jit_amp.export(model, (x,)).module()(x), model(x), "with gradients")
    with torch.no_grad():
        assert_same(jit_amp.export(model, (x,)).module()(x), model(x), "without")


def test_who_switches_gradients_off_does_not_ask() -> None:
    class Off(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
                return x @ x

    x = torch.rand(3, 3)
    assert_same(jit_amp.export(Off(), (x,)).module()(x), Off()(x), "no_grad")


def test_training_mode() -> None:
    torch.manual_seed(1)
    assert_exports(Conv().train(), CASES["conv"][1], gradients=True)


def test_strict() -> None:
    model, [first, second] = Conv().eval(), CASES["conv"][1]
    program = jit_amp.export(model, first, strict=True)
    assert program.state_dict.keys() == model.state_dict().keys()
    assert_same(program.module()(*second), model(*second), "result")


FIRST = """
import torch
import jit_amp

net, x = torch.nn.Linear(2, 2), torch.rand(1, 2)


class Asks(torch.nn.Module):
    def forward(self, x):
        return x + 1 if torch.compiler.is_compiling() else x


def compiled():
    torch.compile(Asks(), fullgraph=True, backend="eager")(x)


def exported():
    jit_amp.export(net, (x,), strict=STRICT)


for step in ORDER:
    step()
"""


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("order", ["exported, compiled", "compiled, exported"])
def test_torch_compile_before_and_after(order: str, strict: bool, tmp_path: Path) -> None:
    """TorchDynamo knows functions of PyTorch's by what they are, and looks them up once."""
    program = tmp_path / "program.py"
    program.write_text(FIRST.replace("STRICT", str(strict)).replace("ORDER", order))
    folder = str(Path(jit_amp.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", program],
        env={**os.environ, "PYTHONPATH": folder},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


def test_other_dtypes_than_the_examples_are_refused_at_the_call() -> None:
    program = jit_amp.export(Conv().eval(), (torch.randn(2, 3, 8, 8),))
    with pytest.raises(RuntimeError, match="dtype mismatch"):
        program.module()(torch.randn(2, 3, 8, 8).double())


def test_operators_have_the_lines_of_the_program() -> None:
    program = jit_amp.export(Conv().eval(), (torch.randn(2, 3, 8, 8),))
    [softmax] = [n for n in program.graph.nodes if "softmax" in str(n.target)]
    assert "return self.head(y).softmax(-1)" in softmax.meta["stack_trace"]


LOST = """
from typing import Dict, List

import torch
from torch import Tensor, nn


class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor, times: int = 2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.conv(x).mean([2, 3])
            for i in range(times):
                if x.size(0) > 1:
                    y = torch.relu(y) + i
            self.calls += 1
            return {"y": self.head(y), "calls": self.calls + 0}


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(4, 6, batch_first=True), nn.Linear(6, 6)

    def forward(self, xs: Dict[str, Tensor]):
        found: List[Tensor] = []
        for x in xs.values():
            y = self.rnn(x)[0]
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.head(y)
                with torch.autocast("cpu", enabled=False):
                    y = torch.softmax(y.float() @ y.float().transpose(1, 2), -1)
            found.append(y)
        return {"first": found[0], "last": found[-1]}


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.cell = nn.Embedding(9, 8), nn.LSTMCell(8, 8)
        self.head = nn.Linear(8, 9)

    def forward(self, source: Tensor):
        token = source[:, 0]
        h, c = torch.zeros(source.size(0), 8), torch.zeros(source.size(0), 8)
        found = [token]
        scores = torch.zeros(0)
        for _ in range(2):
            h, c = self.cell(self.embedding(token), (h, c))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                scores = self.head(h)
            if bool((token == 0).all()):
                token = token + 1
            else:
                token = scores.argmax(-1)
            found.append(token)
        return {"found": torch.stack(found, 1), "scores": scores}


torch.manual_seed(0)
xs = {"a": torch.randn(2, 3, 4), "b": torch.randn(2, 3, 4)}
for model, x in (
    (Picture(), torch.randn(2, 3, 8, 8)),
    (Sequence(), xs),
    (Decoder(), torch.tensor([[3, 1], [0, 2]])),
):
    name = type(model).__name__
    torch.jit.save(torch.jit.script(model.eval()), f"{name}.pt")
    with torch.no_grad():
        torch.save((x, model(x)), f"{name}.io")
"""
EXPORTS = """
import glob, torch, jit_amp
for file in glob.glob("*.pt"):
    x, _ = torch.load(file.replace(".pt", ".io"))
    torch.export.save(jit_amp.export(file, (x,)), file + "2")
"""
RUNS = """
import glob, sys, torch
files = glob.glob("*.pt2")
for file in files:
    x, expected = torch.load(file.replace(".pt2", ".io"))
    with torch.no_grad():
        actual = torch.export.load(file).module()(x)
    assert list(actual) == list(expected)
    for name, tensor in expected.items():
        assert tensor.dtype == actual[name].dtype, (file, name)
        assert torch.equal(tensor, actual[name]), (file, name)
assert "jit_amp" not in sys.modules and len(files) == 3
"""


def test_files_whose_source_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved by PyTorch alone, exported in a process without their Python file, run in one without
    jit_amp."""
    source = tmp_path / "lost.py"
    source.write_text(LOST)
    with monkeypatch.context() as here:
        here.chdir(tmp_path)
        imported(LOST, source)
    source.unlink()
    for program in (EXPORTS, RUNS):
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr


class Packed(nn.Module):
    """A recurrent layer that is given sequences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.tensor([1])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            packed = torch.nn.utils.rnn.pack_padded_sequence(
                x.unsqueeze(0), (x[:1, 0] > 0).long() + lengths, batch_first=True
            )
            return self.rnn(packed)[0].data


class Halving(nn.Module):
    def forward(self, x: Tensor) -> List[Tensor]:  # noqa: UP006
        found = [x]
        while bool(x.sum() > 1):
            x = x / 2
            found.append(x)
        return found


class Counted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        turns = 0
        while bool(x.sum() > 1):
            x = x / 2
            turns += 1
        return x + turns


class Dtypes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.bfloat16) if x.sum() > 0 else x


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return x * self.calls


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: List[int] = [1]  # noqa: UP006

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(2)
        return x * len(self.seen)


class Appending(nn.Module):
    def forward(self, x: Tensor) -> List[Tensor]:  # noqa: UP006
        found = [x]
        if x.sum() > 0:
            found.append(x)
        return found


class Asking(nn.Module):
    def forward(self, x: Tensor) -> List[float]:  # noqa: UP006
        row: List[float] = x[0].tolist()  # noqa: UP006
        return row


class Forces(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        given = x.detach().requires_grad_()
        found = torch.autograd.grad([(given * given).sum()], [given])[0]
        assert found is not None
        return found


class Python(nn.Module):
    @torch.jit.ignore
    def twice(self, x):
        return x * 2

    def forward(self, x: Tensor) -> Tensor:
        return self.twice(x @ x)


class Averaging(nn.Module):
    """How far its statistics move is a number that a tensor tells."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4, momentum=None)

    def eval(self) -> Averaging:
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Opaque(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch._euclidean_dist(x, x)


@pytest.mark.parametrize(
    "model, code, line",
    [
        (Halving(), 502, "while bool"),
        (Counted(), 502, "while bool"),
        (Dtypes(), 501, "if x.sum() > 0"),
        (Counting(), 503, "self.calls = self.calls + 1"),
        (Growing(), 503, "self.seen.append(2)"),
        (Appending(), 501, "if x.sum() > 0"),
        (Asking(), 504, "x[0].tolist()"),
        (Forces(), 505, "torch.autograd.grad"),
        (Opaque(), 301, "torch._euclidean_dist"),
        (Packed(), 505, "pack_padded_sequence"),
        (Python(), 505, "self.twice(x @ x)"),
        (Averaging(), 505, "return self.norm(x)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_what_cannot_be_exported_is_refused_at_its_line(
    model: nn.Module, code: int, line: str
) -> None:
    with pytest.raises(jit_amp.AutocastError) as refused:
        jit_amp.export(model.eval(), (torch.eye(4),))
    assert f"[JA{code}]" in str(refused.value)
    assert line in str(refused.value)


class Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.encoder(x, src_key_padding_mask=padding)


def test_a_nested_tensor_is_refused() -> None:
    """What torch.export makes of the eager module has other values where the padding is."""
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad(), pytest.raises(jit_amp.AutocastError, match="enable_nested_tensor=False"):
        jit_amp.export(Padded().eval(), (torch.randn(2, 5, 8), padding))


class Checks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.size(1) != 4:
            raise ValueError("four columns")
        return x


def test_what_the_program_raises_for_the_example() -> None:
    with pytest.raises(RuntimeError, match="raises for these inputs: four columns"):
        jit_amp.export(Checks(), (torch.randn(2, 3),))


@pytest.mark.parametrize(
    "give, error, text",
    [
        (lambda m, p: jit_amp.export(p / "no.pt", (x4,)), FileNotFoundError, "no such file"),
        (lambda m, p: jit_amp.export(p, (x4,)), FileNotFoundError, "a folder"),
        (lambda m, p: jit_amp.export(__file__, (x4,)), ValueError, "no TorchScript file"),
        (lambda m, p: jit_amp.export(m, x4), TypeError, "is not a tuple of arguments"),
        (lambda m, p: jit_amp.export(m, ()), TypeError, r"without `x`.*takes \(x: Tensor\)"),
        (lambda m, p: jit_amp.export(m, (x4, 1)), TypeError, "an example of 2 arguments"),
        (lambda m, p: jit_amp.export(m, ("a",)), TypeError, "`x` is 'a'"),
        (lambda m, p: jit_amp.export(m, (x4,), {"y": 1}), TypeError, "an argument `y`"),
        (lambda m, p: jit_amp.export(3, (x4,)), TypeError, "3 is not a function or an nn.Module"),
        (lambda m, p: jit_amp.export(Checks, (x4,)), TypeError, "Checks is a class"),
    ],
)
def test_bad_arguments_are_told_in_a_sentence(
    give: Any, error: type[Exception], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text) as raised:
        give(Checks(), tmp_path)
    assert "\n" not in str(raised.value)


def test_a_file_for_a_device_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What PyTorch 2.13 raises when it loads a file of CUDA's where there is none."""

    def load(*_: Any) -> Any:
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is "
            "False. If you are running on a CPU-only machine, ..."
        )

    torch.jit.save(torch.jit.script(nn.Linear(4, 4)), tmp_path / "cuda.pt")
    monkeypatch.setattr(torch.jit, "load", load)
    with pytest.raises(RuntimeError, match=r"a model on CUDA.*map_location='cpu'") as raised:
        jit_amp.export(tmp_path / "cuda.pt", (x4,))
    assert "\n" not in str(raised.value)


class Mode(enum.Enum):
    PLAIN = "plain"
    DOUBLED = "doubled"


class Modal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.mode = nn.Linear(4, 4), Mode.DOUBLED

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.linear(x)
            if self.mode.value == "doubled" and self.mode.name != "PLAIN":
                x = x * 2
        return x


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Optional[Tensor] = None, *, k: float):  # noqa: UP045
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = self.linear(x)
            if y is not None:
                z = z @ y
        return z * k


class Counts(nn.Module):
    """Its branch on a value gives nothing, and writes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("n", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            if x.sum() > 0:
                self.n += 1
        return y


@torch.jit.interface
class OfTensors(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Modal(), Modal()])

    def forward(self, x: Tensor, i: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            part: OfTensors = self.parts[i]
            return part.forward(x)


def reloaded(program: ExportedProgram) -> ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    return torch.export.load(io.BytesIO(file.getvalue()))


def test_the_value_and_the_name_of_an_enum() -> None:
    model, x = Modal(), torch.rand(2, 4)
    program = reloaded(jit_amp.export(model, (x,)))
    for _ in range(3):
        assert_same(program.module()(x), model(x), "result")


def test_an_argument_that_is_given_by_name_alone() -> None:
    model, x = ByName(), torch.rand(2, 4)
    program = reloaded(jit_amp.export(model, (x,), {"k": 2.0}))
    assert_same(program.module()(x, k=2.0), model(x, k=2.0), "result")


def test_a_branch_on_a_value_that_only_writes() -> None:
    model, x = Counts(), torch.rand(2, 4)
    ours = reloaded(jit_amp.export(model, (x,))).module()
    for given in (x, -x, x):
        assert_same(ours(given), model(given), "result")
        assert_same(dict(ours.named_buffers())["n"], model.n, "buffer")


def test_a_module_that_an_index_chooses_is_refused() -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"JA505[^$]*part.forward\(x\)"):
        jit_amp.export(Chosen(), (torch.rand(2, 4), 1))


def doubles(self: nn.Module, x: tuple[Tensor], y: Tensor):
    return y * 2


def test_hooks_of_the_module_itself_are_refused_and_those_of_its_parts_kept() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Modal()

        def forward(self, x: Tensor):
            return self.inner(x)

    model, x = Around(), torch.rand(2, 4)
    model.inner.register_forward_hook(doubles)
    assert_same(jit_amp.export(model, (x,)).module()(x), model(x), "result")
    model.register_forward_hook(doubles)
    for each in (model, torch.jit.script(model), jit_amp.script(model)):
        with pytest.raises(jit_amp.AutocastError, match=r"hooks on `Around`.*JA506"):
            jit_amp.export(each, (x,))
