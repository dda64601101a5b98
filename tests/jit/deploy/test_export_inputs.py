"""export: what a program checks of its inputs, what it may return, and that it runs its example."""

import io
from collections.abc import Callable
from typing import Any, Dict, List, NamedTuple, Optional, Tuple  # noqa: UP035

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp._export import free_sizes, tracer
from jit_amp._export.checked_inputs import keeps_conditions

from ..support import LOADS_PROGRAMS, assert_same

pytestmark = LOADS_PROGRAMS

REDUCED = torch.bfloat16


def saved_and_loaded(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class OfATensor(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return x.float() + 1


class WithOneUnused(nn.Module):
    def forward(self, x: Tensor, unused: Tensor) -> Tensor:
        return x + 1


class OfAList(nn.Module):
    def forward(self, xs: List[Tensor]) -> Tensor:  # noqa: UP006
        return xs[0].to(torch.float32) + 1


class OfADictionary(nn.Module):
    def forward(self, xs: Dict[str, Tensor]) -> Tensor:  # noqa: UP006
        return xs["a"].to(xs["b"].dtype)


class OfATuple(nn.Module):
    def forward(self, xs: Tuple[Tensor, Tuple[Tensor, Tensor]]) -> Tensor:  # noqa: UP006
        return xs[0].to(xs[1][1])


class OfANamedTuple(nn.Module):
    def forward(self, xs: Pair) -> Tensor:
        return xs.first.type_as(xs.second)


class OfAnOptional(nn.Module):
    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
        return x.to(x.device) if mask is None else x + mask.float()


class InAScope(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ y


X, Y = torch.randn(2, 3), torch.randn(3)


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("model", "example", "other"),
    [
        (OfATensor, (X,), (X.to(REDUCED),)),
        (WithOneUnused, (X, Y), (X, Y.double())),
        (OfAList, ([X, Y],), ([X.to(REDUCED), Y],)),
        (OfAList, ([X, Y],), ([X, Y.to(REDUCED)],)),
        (OfADictionary, ({"a": X, "b": Y},), ({"a": X, "b": Y.to(REDUCED)},)),
        (OfATuple, ((X, (Y, Y.clone())),), ((X, (Y, Y.half())),)),
        (OfANamedTuple, (Pair(X, Y),), (Pair(X.to(REDUCED), Y),)),
        (OfAnOptional, (X, Y), (X, Y.to(REDUCED))),
        (OfAnOptional, (X, None), (X.to(REDUCED), None)),
        (InAScope, (X, X.t()), (X.double(), X.t().double())),
        (InAScope, (X.to(REDUCED), X.t()), (X, X.t())),
    ],
)
def test_the_dtype_of_an_input_is_that_of_the_example(
    model: Callable[[], nn.Module], example: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    net = model().eval()
    program = jit_amp.export(net, example)
    forms = [program, program.run_decompositions()]
    if model is not OfANamedTuple:  # which torch.export.save knows where its class is registered
        forms.append(saved_and_loaded(program))
    for form in forms:
        assert_same(form.module()(*example), net(*example), "result")
        with pytest.raises(RuntimeError, match="dtype mismatch"):
            form.module()(*other)


class AsksForDimensions(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.dim() == 2 else x.sum()


@pytest.mark.skipif(not keeps_conditions(), reason="programs of this PyTorch keep no conditions")
@pytest.mark.parametrize(
    ("model", "example", "other", "guard"),
    [
        (AsksForDimensions, (X,), (X[None],), r"len\(x\.size\(\)\) == 2"),
        (AsksForDimensions, (X[None],), (X,), r"len\(x\.size\(\)\) == 3"),
        (WithOneUnused, (X, Y), (X, Y[None]), r"len\(unused\.size\(\)\) == 1"),
        (OfAList, ([X, Y],), ([X, Y[None]],), r"len\(xs\[1\]\.size\(\)\) == 1"),
        (OfAnOptional, (X, None), (X, Y), "mask is None"),
    ],
)
def test_dimensions_and_what_is_none_are_guarded(
    model: Callable[[], nn.Module],
    example: tuple[Any, ...],
    other: tuple[Any, ...],
    guard: str,
) -> None:
    program = jit_amp.export(model().eval(), example)
    for form in (program, saved_and_loaded(program)):
        assert_same(form.module()(*example), model()(*example), "result")
        with pytest.raises(AssertionError, match=guard):
            form.module()(*other)


def test_where_programs_keep_no_conditions_all_sizes_are_fixed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in PyTorch before 2.9: what is decided about a free size would be checked by nothing."""
    monkeypatch.setattr(free_sizes, "keeps_conditions", lambda: False)
    with pytest.warns(UserWarning, match="all sizes are fixed: programs of PyTorch 2"):
        program = jit_amp.export(AsksForDimensions(), (X,))
    assert_same(program.module()(X), AsksForDimensions()(X), "result")
    for other in (X[:1], X[None]):
        with pytest.raises((AssertionError, RuntimeError)):
            program.module()(other)
    with pytest.warns(UserWarning) as told:
        jit_amp.export(OfAnOptional(), (X, None))
    assert any("what is None in the example has to be None" in str(each.message) for each in told)
    batch = torch.export.Dim("batch")
    for free in ({"x": {0: batch}}, {"x": {0: torch.export.Dim.AUTO}}):
        with pytest.raises(ValueError, match="keep no conditions on free sizes"):
            jit_amp.export(AsksForDimensions(), (X,), dynamic_shapes=free)
    jit_amp.export(AsksForDimensions(), (X,), dynamic_shapes={"x": {0: X.size(0)}})


class Held(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(3))
        self.weight = nn.Parameter(torch.randn(3))


class Converts(Held):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.table.float(), x


class ConvertsWhatIsComputed(Held):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return (self.weight * 2).to(torch.float32), x


class ConvertsOnADevice(Held):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.table.to(device=x.device, dtype=x.dtype), x


class AsksForADtype(Held):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.to(self.table.dtype), x


class IsCastByAScope(Held):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return nn.functional.mse_loss(self.table, self.table), x


class ConvertsInABranch(Held):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.table.float() * 2 if bool(x.sum() > 0) else self.table.float() * 3
        return y, x


@pytest.mark.parametrize(
    "model",
    [
        Converts,
        ConvertsWhatIsComputed,
        ConvertsOnADevice,
        AsksForADtype,
        IsCastByAScope,
        ConvertsInABranch,
    ],
)
def test_a_weight_on_whose_dtype_something_depends_keeps_it(
    model: Callable[[], nn.Module],
) -> None:
    """`program.module().bfloat16()` changes weights and buffers."""
    net = model().eval()
    with torch.no_grad():
        run = jit_amp.export(net, (X[0],)).module()
        assert_same(run(X[0]), net(X[0]), "result")
        with pytest.raises(RuntimeError, match="dtype mismatch"):
            run.bfloat16()(X[0])


class ReturnsAText(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        return x, "text"


class ReturnsTextsInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.name = "name"

    def forward(self, x: Tensor) -> Tuple[Tensor, Dict[str, List[str]]]:  # noqa: UP006
        return x, {"names": [self.name]}


class ReturnsADevice(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, torch.device]:
        return x, x.device


class ReturnsAComplexNumber(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, complex]:
        return x, 1j


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (ReturnsAText, "`str`.* a text, as a result"),
        (ReturnsTextsInside, "`str`.* a text, as a result"),
        (ReturnsADevice, "`device`.* a device, as a result"),
        (ReturnsAComplexNumber, "`complex`.* a complex number, as a result"),
    ],
)
def test_what_no_file_can_return_is_refused(model: Callable[[], nn.Module], what: str) -> None:
    with pytest.raises(jit_amp.AutocastError, match=what) as refused:
        jit_amp.export(model(), (X,))
    assert "[JA505]" in str(refused.value)


class ReturnsNoText(nn.Module):
    def forward(self, x: Tensor) -> Tuple[Dict[str, Tensor], Optional[str], List[str]]:  # noqa: UP006, UP045
        texts: List[str] = []  # noqa: UP006
        return {"text": x}, None, texts


def test_keys_are_no_texts_among_the_results() -> None:
    program = jit_amp.export(ReturnsNoText(), (X,))
    assert_same(saved_and_loaded(program).module()(X), ({"text": X}, None, []), "result")


class TakesAText(nn.Module):
    def forward(self, x: Tensor, name: str) -> Tensor:
        return x + 1 if name == "a" else x


def test_a_program_that_cannot_run_its_example_is_not_returned() -> None:
    """torch.export writes the text into a guard, and does not quote it."""
    assert jit_amp.export(TakesAText(), (X, "a"))
    with pytest.raises(RuntimeError, match=r"cannot run its own example.*SyntaxError"):
        jit_amp.export(TakesAText(), (X, "it's"))


def test_it_is_exported_in_another_way_first(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = iter((ValueError("no"), None))
    monkeypatch.setattr(tracer.Tracer, "failure", lambda *_: next(fails))
    program = jit_amp.export(InAScope(), (X, X.t()))
    assert_same(program.module()(X, X.t()), InAScope()(X, X.t()), "result")
    assert next(fails, "none left") == "none left"


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.norm = nn.BatchNorm1d(3)
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        with torch.no_grad():
            self.weight += 1
        x += 1
        return self.norm(x)


def test_the_run_of_the_example_leaves_nothing() -> None:
    net, x = Writes(), torch.zeros(2, 3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    jit_amp.export(net, (x,))
    assert_same(net.state_dict(), before, "state")
    assert_same(x, torch.zeros(2, 3), "argument")


class Raises(nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return x[index]


def test_what_the_model_raises_for_the_example_is_raised() -> None:
    with pytest.raises(RuntimeError, match="cannot run example 1"):
        jit_amp.export(Raises(), (X, torch.tensor([7])))
