"""export: an ExportedProgram that gives eager's results, of modules with source and without."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional  # noqa: UP035  # as TorchScript reads them

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

import jit_amp

from ..support import assert_same, fresh, imported


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


x4 = torch.randn(3, 4)
CASES: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
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
    "branches": (Branches, [(x4.abs(),), (-x4.abs().clamp(max=0.9),), (-5 * x4.abs() - 1,)]),
    "writes": (Writes, [(x4,), (torch.randn(5, 4),)]),
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
    """Three calls each, from one state on; buffers are compared after each."""
    reference = copy.deepcopy(model)
    program = jit_amp.export(model, fresh(calls[0]))
    assert isinstance(program, ExportedProgram)
    assert program.state_dict.keys() == model.state_dict().keys()
    exported = program.module()
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


class OfManyRows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) >= 2:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                x = x.t() @ x
        return x


def test_a_branch_on_a_size_of_one_is_guarded() -> None:
    program = jit_amp.export(OfManyRows(), (x4,)).module()
    for rows in (2, 7):
        x = torch.randn(rows, 4)
        assert_same(program(x), OfManyRows()(x), "result")
    with pytest.raises(AssertionError, match="Guard"):
        program(torch.randn(1, 4))


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


def test_training_mode() -> None:
    torch.manual_seed(1)
    assert_exports(Conv().train(), CASES["conv"][1], gradients=True)


def test_sizes_are_given_as_torch_export_takes_them() -> None:
    batch = Dim("batch", min=2, max=8)
    x = torch.randn(2, 3, 8, 8)
    program = jit_amp.export(Conv().eval(), (x,), dynamic_shapes={"x": {0: batch}})
    program.module()(torch.randn(8, 3, 8, 8))
    for wrong in (torch.randn(9, 3, 8, 8), torch.randn(2, 3, 9, 8)):
        with pytest.raises(Exception, match=r"(?i)guard|expected"):
            program.module()(wrong)


def test_a_size_of_one_in_the_example_stays_free() -> None:
    model = Conv().eval()
    program = jit_amp.export(model, (torch.randn(1, 3, 8, 8),))
    with torch.no_grad():
        for size in ((1, 3, 8, 8), (3, 3, 8, 8), (1, 3, 9, 12)):
            x = torch.randn(size)
            assert_same(program.module()(x), model(x), str(size))


def test_strict() -> None:
    model, [first, second] = Conv().eval(), CASES["conv"][1]
    program = jit_amp.export(model, first, strict=True)
    assert program.state_dict.keys() == model.state_dict().keys()
    assert_same(program.module()(*second), model(*second), "result")


def test_other_dtypes_than_the_examples_are_refused_at_the_call() -> None:
    program = jit_amp.export(Conv().eval(), (torch.randn(2, 3, 8, 8),))
    with pytest.raises(RuntimeError, match="dtype mismatch"):
        program.module()(torch.randn(2, 3, 8, 8).double())


def test_operators_have_the_lines_of_the_program() -> None:
    program = jit_amp.export(Conv().eval(), (torch.randn(2, 3, 8, 8),))
    [softmax] = [n for n in program.graph.nodes if "softmax" in str(n.target)]
    assert "return self.head(y).softmax(-1)" in softmax.meta["stack_trace"]


LOST = """
import torch
from torch import Tensor, nn


class Lost(nn.Module):
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


torch.manual_seed(0)
model, x = Lost().eval(), torch.randn(2, 3, 8, 8)
torch.jit.save(torch.jit.script(model), "lost.pt")
with torch.no_grad():
    torch.save((x, model(x)), "lost.io")
"""
EXPORTS = """
import torch, jit_amp
x, _ = torch.load("lost.io")
torch.export.save(jit_amp.export("lost.pt", (x,)), "lost.pt2")
"""
RUNS = """
import sys, torch
x, expected = torch.load("lost.io")
with torch.no_grad():
    actual = torch.export.load("lost.pt2").module()(x)
assert "jit_amp" not in sys.modules
assert list(actual) == list(expected)
for name, tensor in expected.items():
    assert tensor.dtype == actual[name].dtype and torch.equal(tensor, actual[name]), name
"""


def test_a_file_whose_source_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved by PyTorch alone, exported in a process without its Python file, run in one without
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


class Halving(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        while bool(y.float().sum() > 1):
            y = y / 2
        return y


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


class Opaque(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch._euclidean_dist(x, x)


@pytest.mark.parametrize(
    "model, code, line",
    [
        (Halving(), 502, "while bool"),
        (Dtypes(), 501, "if x.sum() > 0"),
        (Counting(), 503, "self.calls = self.calls + 1"),
        (Growing(), 503, "self.seen.append(2)"),
        (Appending(), 501, "if x.sum() > 0"),
        (Asking(), 504, "x[0].tolist()"),
        (Forces(), 505, "torch.autograd.grad"),
        (Opaque(), 301, "torch._euclidean_dist"),
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
