"""export: what goes into a branch or a loop that the value of a tensor decides, and comes out."""

from __future__ import annotations

import copy
import io
import warnings
from pathlib import Path
from typing import Any, List, Optional, Tuple, Union  # noqa: UP035  # as TorchScript reads them

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

import jit_amp

from ..support import LOADS_PROGRAMS
from ..support import assert_same as assert_same_at

pytestmark = LOADS_PROGRAMS
X = torch.rand(3, 8, generator=torch.Generator().manual_seed(0))


def assert_same(actual: Any, expected: Any) -> None:
    assert_same_at(actual, expected, "the program")


class Bag:
    def __init__(self, t: Tensor) -> None:
        self.t = t
        self.n: List[int] = []  # noqa: UP006


class Three:
    def __init__(self, k: int) -> None:
        self.k = k


class Four:
    def __init__(self, k: int) -> None:
        self.k = k


class Flag(nn.Module):
    """A bool that only a run tells, used in another branch."""

    def forward(self, x: Tensor):
        ok = bool(x.sum() > 0)
        y = x * 2
        if bool(x.max() > 0.5) and ok:
            if x.size(0) > 2:
                y[0] += 1
            y = y + 1
        return y


class Found(nn.Module):
    def forward(self, x: Tensor):
        found, first = False, True
        for i in range(x.size(1)):
            if x[:, i].sum() > 2:
                found = True
            if x[0, i] > 0.5:
                if first:
                    x = x + 1
                first = False
        if found and not first:
            x = x * 3
        elif found or first:
            x = x * 5
        return x


class FlagInLoop(nn.Module):
    def forward(self, x: Tensor):
        ok = bool(x.sum() > 0)
        while x.abs().sum() > 1:
            x = x * 0.5 if ok else x * 0.25
        return x


class Numbers(nn.Module):
    """A float and bools in a list, of tensors."""

    def forward(self, x: Tensor):
        v, flags = float(x.sum()), [bool(x.sum() > 3), bool(x.max() > 0)]
        if x.mean() > -0.3:
            x = x * v
            if flags[0]:
                x = x * 2
        return x


class InBag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept = [Bag(torch.ones(8)), Bag(torch.zeros(8))]

    def forward(self, x: Tensor):
        bags = {"a": Bag(torch.zeros(3, 8)), "b": Bag(x * 2)}
        self.kept[0].t.add_(1)
        if x.sum() > 0:
            bags["a"].t.add_(bags["b"].t)
            self.kept[1].t.add_(self.kept[0].t)
        else:
            bags["a"].t.sub_(x)
        while x.abs().sum() > 1:
            x = x * 0.5
            bags["a"].t.add_(x)
        return bags["a"].t + self.kept[1].t


class Listed(nn.Module):
    """What a side does to a list is refused, also in an object."""

    def forward(self, x: Tensor):
        bags = [Bag(x)]
        if x.sum() > 0:
            bags[0].n.append(1)
        return x * len(bags[0].n)


class Chosen(nn.Module):
    """One of three, which are perhaps the caller's, and then written to."""

    def forward(self, x: Tensor):
        if x.sum() > 100:
            r = x + 1
        elif x.max() > 50:
            r = x - 1
        else:
            r = x
        r.mul_(0.5)
        return r


class LoopedOver(nn.Module):
    def forward(self, x: Tensor):
        i = torch.zeros((), dtype=torch.long)
        j = i
        while i < 5:
            i += 1
        return j * 1, i * 1


class Counted(nn.Module):
    def forward(self, x: Tensor):
        i = torch.zeros((), dtype=torch.long)
        while i < 5:
            x = x * 0.5
            i += 1
        return x


class Returns(nn.Module):
    def forward(self, x: Tensor):
        if x.sum() < 0:
            return x - 1
        elif x.sum() < 1:
            return x - 2
        for i in range(3):
            if i == 1:
                continue
            if x[0, i] > 0.9:
                return x * (i + 2)
        if x.size(0) > 2:  # noqa: SIM102  # a branch in another, with a return
            if x.max() > 0.95:
                return x * 7
        for _ in range(4):
            if x.sum() > 40:
                break
            x = x * 2
        return x + 3


class ReturnsAndWrites(nn.Module):
    """What is written before a return is written once."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(8))

    def forward(self, x: Tensor):
        if x.sum() > 0:
            self.calls.add_(1)
            if x.max() > 0.5:
                return x * 2
        else:
            self.calls.sub_(1)
            return x * 3
        y = x + self.calls
        if y.sum() > 10:
            return y * 5
        return y


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        y = y.float()
        ok = False
        if y.sum() > 0:
            y = y * 3
            ok = True
        if ok:
            task = torch.jit.fork(self.linear, y)
            y = torch.jit.wait(task)
        return y


def programs(module: nn.Module, *args: Any) -> tuple[ExportedProgram, Any]:
    """The program, and what is loaded of its file."""
    made = jit_amp.export(copy.deepcopy(module), args)
    file = io.BytesIO()
    torch.export.save(made, file)
    file.seek(0)
    return made, torch.export.load(file)


@pytest.mark.parametrize(
    "kind",
    [Flag, Found, FlagInLoop, Numbers, InBag, Counted, Returns, ReturnsAndWrites],
    ids=lambda x: x.__name__,
)
def test_it_is_as_eager_whatever_the_values_are(kind: Any) -> None:
    with torch.no_grad():
        module = kind()
        for program in programs(module, X.clone()):
            own, run = copy.deepcopy(module), program.module()
            for x in (X, -X, X * 0.1, X * 0.01, X * 20, X):
                assert_same(run(x.clone()), own(x.clone()))


@pytest.mark.parametrize("kind", [Listed, Chosen, LoopedOver], ids=lambda x: x.__name__)
def test_what_would_be_lost_is_refused(kind: Any) -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"JA50[12]"), torch.no_grad():
        jit_amp.export(kind(), (X.clone(),))


def test_gradients_go_through_branches() -> None:
    module = Trained()
    run = jit_amp.export(copy.deepcopy(module), (X,)).module()
    for x in (X, -X):
        for each in (module, run):
            each.zero_grad()
            each(x).sum().backward()
        theirs = dict(run.named_parameters())
        assert_same(
            [p.grad for p in module.parameters()],
            [theirs[n].grad for n, _ in module.named_parameters()],
        )


class Kinds(nn.Module):
    def forward(self, x: Union[Tensor, List[Tensor], Tuple[Tensor, Tensor]], f: bool):  # noqa: UP006, UP007
        one: Optional[Three] = None  # noqa: UP045
        other: Union[Three, Four] = Three(5)  # noqa: UP007
        if f:
            one = Three(2)
            other = Four(7)
        if isinstance(x, Tensor):
            y = x
        elif isinstance(x, list):
            y = x[0] + x[1]
        else:
            y = x[1] - x[0]
        if isinstance(one, Three):
            y = y * one.k
        if isinstance(other, Four):
            y = y * other.k
        device: Any = y.device
        if isinstance(device, torch.device):
            y = y + 1
        return y


@pytest.mark.parametrize("given", [X, [X, X + 1], (X, X * 3)], ids=("tensor", "list", "tuple"))
@pytest.mark.parametrize("flag", [True, False])
def test_isinstance_knows_every_type(given: Any, flag: bool) -> None:
    assert_same(jit_amp.export(Kinds(), (given, flag)).module()(given, flag), Kinds()(given, flag))


class TwoNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("z", torch.zeros(8), persistent=False)
        self.register_buffer("a", self.z)
        self.other = self.a

    def forward(self, x: Tensor):
        self.other += 1
        return x + self.z


def test_a_buffer_of_several_names_is_that_of_the_state_dict() -> None:
    made, loaded = programs(TwoNames(), X)
    assert list(made.state_dict) == ["a"]
    for program in (made, loaded):
        run = program.module()
        before = run.state_dict()["a"].clone()
        results = [run(X), run(X)]
        assert_same(run.state_dict()["a"], before + 2)
        assert_same(results, [X + before + 1, X + before + 2])


class Interpreted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.interpreter, self.forwarded = nn.Linear(8, 8), X.clone()

    def forward(self, x: Tensor):
        return self.interpreter(x) + self.forwarded


def test_names_of_the_model_are_its_own() -> None:
    module = Interpreted()
    assert_same(jit_amp.export(module, (X,)).module()(X), module(X))


class Positions(nn.Module):
    def forward(self, x: Tensor):
        return x + torch.arange(x.size(0))[:, None]


# PyTorch's own, where a loaded program is decomposed.
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
def test_a_free_size_of_one_is_free_for_who_comes_next() -> None:
    _, loaded = programs(Positions(), X[:1])
    decomposed = loaded.run_decompositions({})
    for program in (loaded, decomposed):
        assert_same(program.module()(X), Positions()(X))
        assert_same(program.module()(X[:1]), Positions()(X[:1]))


class Small(nn.Module):
    def __init__(self, asks: str) -> None:
        super().__init__()
        self.asks = asks

    def forward(self, x: Tensor):
        if self.asks == "truth":
            if x.size(0) - 1:
                x = x * 2
        elif self.asks == "in":
            if x.size(0) in [1, 0]:
                x = x * 2
        elif self.asks == "half":
            if x.size(0) / 2 > 0.75:
                x = x * 2
        elif self.asks == "same":
            if x.is_same_size(torch.zeros(1, 8)):
                x = x * 2
        elif self.asks == "sorted":
            sizes = [2, x.size(0)]
            sizes.sort()
            x = x * sizes[0]
        elif self.asks == "place":
            x = x * [5, 6, 7][min(x.size(0), 2)]
        elif x.size(0) == 1:
            x = x * 2
        return x


@pytest.mark.parametrize("asks", ["truth", "in", "equal", "half", "same", "sorted", "place"])
@pytest.mark.parametrize("shapes", [None, {"x": {0: Dim.AUTO}}, {"x": {0: Dim("b")}}])
def test_a_size_of_one_is_guarded_where_it_matters(asks: str, shapes: Any) -> None:
    """Or told of, where torch.export does not take the guard beside a size that is to be free."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = jit_amp.export(Small(asks), (X,), dynamic_shapes=shapes).module()
    assert_same(run(X), Small(asks)(X))
    if any("something else where a size is 0 or 1" in str(each.message) for each in told):
        assert isinstance(shapes["x"][0], type(Dim("b")))
        return
    with pytest.raises(AssertionError, match="Guard failed"):
        run(X[:1])


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 4, batch_first=True)

    def forward(self, x: Tensor):
        return self.rnn(x)[0]


def test_a_question_that_torch_export_guards_is_no_reason_to_refuse_a_batch_of_one() -> None:
    module, x = Sequence(), torch.rand(3, 5, 8)
    run = jit_amp.export(module, (x,)).module()
    assert_same(run(x[:1]), module(x[:1]))


class Bagged(nn.Module):
    def forward(self, x: Tensor):
        return Bag(x)


class Encoder(nn.Module):
    @torch.jit.export
    def encode(self, x: Tensor):
        return x * 2

    def forward(self, x: Tensor):
        return x


def test_what_is_no_program_is_told() -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"an object, as a result.*\[JA505\]"):
        jit_amp.export(Bagged(), (X,))
    with pytest.raises(TypeError, match="is a method: only a module"):
        jit_amp.export(torch.jit.script(Encoder()).encode, (X,))
    with pytest.raises(TypeError, match="has no `forward` in TorchScript"):
        jit_amp.export(nn.LSTM(8, 4), (X,))


class Buffers(nn.Module):
    def __init__(self, writes: bool) -> None:
        super().__init__()
        self.writes = writes
        self.register_buffer("a", torch.zeros(8))
        self.register_buffer("b", torch.ones(8))

    def forward(self, x: Tensor):
        if self.writes:
            self.a.add_(2)
            self.a = self.b
        else:
            before = self.a
            self.a = self.b
            self.b = before
        return x * self.a


def test_a_buffer_that_becomes_another_is_not_written_to() -> None:
    with torch.no_grad():
        module = Buffers(False)
        run = jit_amp.export(copy.deepcopy(module), (X,)).module()
        assert_same([run(X) for _ in range(3)], [module(X) for _ in range(3)])
        with pytest.raises(jit_amp.AutocastError, match="JA503"):
            jit_amp.export(Buffers(True), (X,))


class Boxes(nn.Module):
    """The rank of the result depends on whether anything is kept."""

    def forward(self, x: Tensor):
        kept = x[x[:, 0] > 0.5]
        if kept.numel() > 0:
            return kept.reshape(kept.size(0), 2, 4)
        return kept


class Classes(nn.Module):
    """One side of a branch on how many are kept has a loop over values."""

    def forward(self, x: Tensor):
        kept = x[x[:, 0] > 0.5]
        if kept.size(0) > 100 and not torch.jit.is_tracing():
            for value in torch.unique(kept):
                kept = kept + value
        else:
            kept = kept * 2
        return kept


class Either(nn.Module):
    def forward(self, x: Tensor):
        n = x[x[:, 0] > 0.5].size(0)
        few = n < 1 or n > 100
        if not few and n != 50:
            return x + 1
        return x - 1


class Counted(nn.Module):
    """What the attempt to have both sides writes stays nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor):
        kept = x[x[:, 0] > 0.5]
        if kept.numel() > 0:
            self.count.add_(1)
            k = 2
        else:
            k = 3
        return x * k + self.count


class Nested(nn.Module):
    """An inner branch that has one side says nothing of the outer one."""

    def forward(self, x: Tensor):
        kept = x[x[:, 0] > 0.5]
        if kept.size(0) > 0:
            return kept.reshape(kept.size(0), 2, 4), kept * 2
        return kept, torch.zeros(0, 8)


class Half(nn.Module):
    """torch.export keeps no check of a float."""

    def forward(self, x: Tensor):
        kept = x[x[:, 0] > 0.5]
        if float(kept.size(0)) / float(x.size(0)) > 0.5:
            for value in torch.unique(kept):
                kept = kept + value
        return kept


class NoneOnly(nn.Module):
    """The side for some cannot be exported."""

    def forward(self, x: Tensor):
        kept = x[x[:, 0] > 0.5]
        if kept.numel() == 0:
            return kept
        for value in torch.unique(kept):
            kept = kept + value
        return kept


class AsMany(nn.Module):
    def forward(self, x: Tensor):
        a, b = x[x[:, 0] > 0.5], x[x[:, 1] > 0.25]
        if a.size(0) == b.size(0):
            return torch.stack([a, b])
        return a


def rows(kept: int) -> Tensor:
    x = torch.rand(128, 8, generator=torch.Generator().manual_seed(kept)) / 2
    x[:kept, 0] += 0.5
    return x


@pytest.mark.parametrize(
    ("make", "right", "raises"),
    [
        (Boxes, (1, 5), (0,)),
        (Classes, (0, 100), (101,)),
        (Counted, (1, 5), (0,)),
        (Nested, (1, 5), (0,)),
    ],
)
def test_a_branch_on_how_many_there_are_has_one_side(
    make: Any, right: tuple[int, ...], raises: tuple[int, ...]
) -> None:
    """Where it cannot have both: it says so when it is exported, and raises for the other."""
    module = make().eval()
    with pytest.warns(UserWarning, match="one side cannot be exported") as told:
        program = jit_amp.export(module, (rows(3),))
    assert len([each for each in told if "if kept." in str(each.message)]) == 1
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    expecting = copy.deepcopy(module), copy.deepcopy(module)
    for each, expected in zip((program, torch.export.load(file)), expecting, strict=True):
        actual = each.module()
        for kept in (*right, *right):
            assert_same(actual(rows(kept)), expected(rows(kept)))
        for kept in raises:
            with pytest.raises(RuntimeError, match="Runtime assertion failed"):
                each.module()(rows(kept))


class Lines(nn.Module):
    """The sides give one number where sizes are fixed, and what follows has them fixed."""

    def forward(self, x: Tensor):
        kept = x[x[:, 0] > 0.5]
        n = x.size(0) if kept.numel() > 0 else 128
        rows = torch.tensor(x.shape[0]).to(torch.float32)
        factor = float((256.0 / rows).item())
        y = nn.functional.interpolate(x.t()[None, None], scale_factor=factor, mode="nearest")
        if y.size(3) % 2 == 0:
            y = y + y.size(3)
        return y * n, kept


def test_a_branch_has_both_sides_where_the_sizes_are_fixed_that_it_had_one_for() -> None:
    with pytest.warns(UserWarning, match="fixed to the example's") as told:
        program = jit_amp.export(Lines(), (rows(3),)).module()
    found = [each for each in told if "jit_amp.export" in str(each.message)]
    assert len(found) == 1
    assert Path(found[0].filename).is_relative_to(Path(__file__).parents[1])  # who calls it
    for kept in (3, 0, 5):
        assert_same(program(rows(kept)), Lines()(rows(kept)))


@pytest.mark.parametrize("make", [Half, NoneOnly, AsMany])
def test_a_branch_that_no_side_can_stand_for_is_refused(make: Any) -> None:
    with pytest.raises(jit_amp.AutocastError, match="JA50"):
        jit_amp.export(make().eval(), (rows(3),))


def test_a_program_is_for_its_own_example() -> None:
    with pytest.raises(jit_amp.AutocastError, match="JA502"):
        jit_amp.export(Classes().eval(), (rows(101),))
    with pytest.raises(jit_amp.AutocastError, match="JA501"):
        jit_amp.export(Boxes().eval(), (rows(0),))


def test_and_or_and_not_of_sizes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        program = jit_amp.export(Either(), (rows(3),))
    assert str(program.graph).count("target=torch.ops.higher_order.cond]") == 1
    for kept in (0, 1, 50, 100, 101):
        assert_same(program.module()(rows(kept)), Either()(rows(kept)))


class NotTooLarge(nn.Module):
    def forward(self, x: Tensor):
        assert float(x.max()) <= 1.0, "too large"
        assert float(x[x > 0.5].size(0)) / float(x.numel()) <= 0.5, "too many"
        return x * 2


def test_an_assertion_about_a_float_stays() -> None:
    program = jit_amp.export(NotTooLarge(), (torch.rand(8) / 4,)).module()
    assert_same(program(torch.ones(4) / 2), torch.ones(4))
    for value, said in ((2.0, "too large"), (0.75, "too many")):
        with pytest.raises(RuntimeError, match=said):
            program(torch.full((8,), value))
