"""A precision in eager, in a script, in a trace and in an artefact: the same dtypes and values."""

from __future__ import annotations

import collections
import copy
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp._precision import in_float32

from ..support import assert_same
from . import planted

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


def precision(units: tuple[str, ...], dtype: str = "bfloat16", **more: Any) -> jit_amp.Precision:
    given = {
        "name": "Net",
        "units": units,
        "error": 0.0,
        "evaluations": 0,
        "dtype": dtype,
        "device_type": "cpu",
        "kind": "module",
        "around": True,
        "metric": "",
        "tolerance": 0.0,
        "error_plain": 0.0,
        "saved": 1.0,
        "finished": True,
        "candidates": 0,
        "seed": 0,
    }
    return jit_amp.Precision(**(given | more))


class Inner(nn.Module):
    """Takes tensors in all that can hold them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(
        self,
        x: Tensor,
        several: list[Tensor],
        named: dict[str, Tensor],
        pair: tuple[Tensor, int],
        maybe: Tensor | None = None,
    ):
        y = self.linear(x)
        for each in several:
            y = y + each * each
        y = y * named["a"] + pair[0] * pair[1]
        if maybe is not None:
            y = y - maybe * maybe
        return y


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.inner = Inner()
        self.again = Inner()
        self.last = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))

    def forward(self, x: Tensor):
        x = self.first(x)
        y = self.inner(x, [x, x + 1.0], {"a": x * 2.0}, (x, 2), x)
        z = self.again(x, [x], {"a": x}, (x, 3))
        return self.last(y), self.last(z), y, z


class Scoped(nn.Module):
    """The same with scopes of its own, one of them in a part."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.block = nn.Linear(4, 4), ScopedBlock()

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.first(x)
            y = self.block(x)
            return x, y, torch.mm(y, y.t())


class ScopedBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x) * 2.0


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


CASES = [
    *[
        (Net, units, True, dtype)
        for units in [(), ("inner",), ("inner.linear", "last.0"), ("last",), ("",)]
        for dtype in ["bfloat16", "float16"]
    ],
    *[
        (Scoped, units, False, "bfloat16")
        for units in [("block",), ("first",), ("",), ("block.linear",)]
    ],
]


@pytest.mark.parametrize(("model", "units", "around", "dtype"), CASES)
def test_all_ways_agree(model: Any, units: tuple[str, ...], around: bool, dtype: str) -> None:
    net, x = model().eval(), torch.randn(3, 4)
    chosen = precision(units, dtype, around=around)
    with torch.no_grad():
        expected = chosen.apply(net)(x)
        assert all(each.dtype is F32 for each in expected) == (units == ("",))
        scripted = jit_amp.script(net, precision=chosen)
        traced = jit_amp.trace(net, (x,), precision=chosen)
        frozen = jit_amp.freeze(net, example_inputs=(x,), precision=chosen, optimize_numerics=False)
        for made in scripted, traced, frozen:
            for call in range(3):
                assert_same(made(x), expected, f"call {call}")
        for ambient in (BF16, F16):
            with torch.autocast("cpu", dtype=ambient):
                assert_same(scripted(x), chosen.apply(net)(x), f"ambient {ambient}")
        plain = net(x)
    assert_same(net(x)[0].detach(), plain[0], "afterwards")
    assert "forward" not in vars(net) | vars(net.first)


def test_another_instance_of_the_class_is_not_kept() -> None:
    net, x = Net().eval(), torch.randn(3, 4)
    scripted = jit_amp.script(net, precision=precision(("inner",)))
    with torch.no_grad():
        _, _, y, z = scripted(x)
    assert (y.dtype, z.dtype) == (F32, BF16)
    other = jit_amp.script(net, precision=precision(()))
    with torch.no_grad():
        assert other(x)[2].dtype is BF16 and scripted(x)[2].dtype is F32


def test_copies_keep_it() -> None:
    scripted, x = jit_amp.script(Net().eval(), precision=precision(("inner",))), torch.randn(3, 4)
    with torch.no_grad():
        for made in copy.deepcopy(scripted), torch.optim.swa_utils.AveragedModel(scripted).module:
            assert_same(made(x), scripted(x), "a copy")


def test_gradients() -> None:
    net, x = Net(), torch.randn(3, 4)
    chosen = precision(("inner", "last.0"))
    gradients = []
    for run in chosen.apply(net), jit_amp.script(copy.deepcopy(net), precision=chosen):
        model = net if run.__class__.__name__ == "Applied" else run
        sum(each.float().sum() for each in run(x)).backward()
        gradients.append([each.grad for each in model.parameters()])
    for eager, scripted in zip(*gradients, strict=True):
        assert torch.equal(eager, scripted)


LINES = {
    "logits": "(q * self.scale) @ (k * self.scale)",
    "qkv": "q, k, v = self.qkv(x)",
    "residual": "return x + self.mlp(x)",
}


def line_of(text: str) -> str:
    with open(planted.__file__, encoding="utf-8") as file:
        [number] = [i for i, line in enumerate(file, 1) if text in line]
    return f"planted.py:{number}"


@pytest.mark.parametrize("line", [*LINES])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_line(line: str, dtype: str) -> None:
    net, x = planted.Transformer([1.0, 1.0]).eval(), torch.randn(2, 4, 16)
    chosen = precision((line_of(LINES[line]),), dtype, kind="line")
    with torch.no_grad():
        expected = chosen.apply(net)(x)
        without = precision((), dtype).apply(net)(x)
        assert not torch.equal(expected, without)
        for made in (
            jit_amp.script(net, precision=chosen),
            jit_amp.trace(net, (x,), precision=chosen),
            jit_amp.freeze(net, example_inputs=(x,), precision=chosen, optimize_numerics=False),
        ):
            assert_same(made(x), expected, line)


def test_a_function() -> None:
    net, x = planted.Transformer([1.0, 1.0]).eval(), torch.randn(2, 4, 16)
    chosen = precision(("planted.py:Attention.forward",), kind="function")
    modules = precision(("blocks.0.attention", "blocks.1.attention"))
    with torch.no_grad():
        expected = modules.apply(net)(x)
        assert_same(chosen.apply(net)(x), expected, "eager")
        assert_same(jit_amp.script(net, precision=chosen)(x), expected, "script")


def test_what_has_no_such_unit() -> None:
    net, chosen = Net(), precision(("inner.nothing",))
    for use in (
        lambda: chosen.apply(net),
        lambda: jit_amp.script(net, precision=chosen),
        lambda: jit_amp.trace(net, (torch.randn(3, 4),), precision=chosen),
        lambda: jit_amp.freeze(net.eval(), precision=chosen),
    ):
        with pytest.raises(ValueError, match=r"Net has no submodule 'inner.nothing'"):
            use()


def test_what_cannot_be() -> None:
    net, chosen = Net(), precision(("inner",))
    with pytest.raises(TypeError, match="autocast and precision"):
        jit_amp.script(net, autocast=torch.autocast("cpu"), precision=chosen)
    with pytest.raises(TypeError, match="returned, or its file"):
        jit_amp.script(net, precision=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="takes a module"):
        jit_amp.script(line_of, precision=chosen)
    with pytest.raises(TypeError, match="was not scripted"):
        chosen.apply(jit_amp.script(net))
    lines = dataclasses.replace(chosen, units=("a.py:3",), kind="line", around=False)
    with pytest.raises(ValueError, match="use it in eager"):
        jit_amp.script(Scoped(), precision=lines)


def test_a_context_undoes_itself_where_the_model_raises() -> None:
    net, chosen = Net(), precision(("inner",))
    with pytest.raises(RuntimeError), chosen.apply(net) as same:
        assert same is net and net(torch.randn(3, 4))[2].dtype is F32
        net(torch.randn(3, 5))
    assert "forward" not in vars(net) | vars(net.inner)
    assert not torch.is_autocast_enabled("cpu")
    assert net(torch.randn(3, 4))[0].dtype is F32


def test_a_module_that_was_scripted_stays_as_it_is() -> None:
    net, x = Scoped().eval(), torch.randn(3, 4)
    scripted = jit_amp.script(net)
    with torch.no_grad():
        kept = jit_amp.script(scripted, precision=precision(("block",), around=False))
        assert kept(x)[1].dtype is F32 and scripted(x)[1].dtype is BF16


def test_explain_shows_it() -> None:
    net, x = Net().eval(), torch.randn(3, 4)
    with torch.no_grad():
        report = jit_amp.explain(jit_amp.script(net, precision=precision(("inner",))), (x,))
    rows = {row.module: row for row in report.rows if row.operator == "aten::linear"}
    assert rows["inner.linear"].precision == "float32"
    assert rows["again.linear"].precision == "reduced"


@jit_amp.ignore_amp(float32=True)
def squared(x: Tensor, several: list[Tensor]):
    return torch.mm(x, x) + several[0]


def calling(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        y = torch.mm(x, x)
        return squared(y, [y]), torch.mm(y, y)


def test_ignore_amp_with_float32() -> None:
    x = torch.randn(4, 4)
    expected = calling(x)
    assert [each.dtype for each in expected] == [F32, F16]
    assert_same(jit_amp.script(calling)(x), expected, "a function")
    net = Net().eval()
    jit_amp.ignore_amp(net.inner, float32=True)
    with torch.no_grad():
        kept = precision(("inner",)).apply(net)(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert_same(net(x), kept, "a module")
        made = jit_amp.script(net, autocast=torch.autocast("cpu", dtype=torch.bfloat16))
        assert_same(made(x), kept, "a module, scripted")


class Named(NamedTuple):
    h: Tensor
    n: int = 1


@dataclasses.dataclass(frozen=True)
class Data:
    h: Tensor


class Output(collections.OrderedDict[str, Tensor]):
    """As transformers' ModelOutput is one."""

    @property
    def h(self) -> Tensor:
        return self["h"]


class TakesOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, e: Named) -> Tensor:
        y = self.a(e.h) * 1000.0
        return torch.mm(y, y.t())


class GivesOne(nn.Module):
    def __init__(self, made: Any) -> None:
        super().__init__()
        self.enc, self.dec, self.made = nn.Linear(4, 4), TakesOne(), made

    def forward(self, x: Tensor) -> Tensor:
        return self.dec(self.made(self.enc(x)))


class GivesNamed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc, self.dec = nn.Linear(4, 4), TakesOne()

    def forward(self, x: Tensor) -> Tensor:
        return self.dec(Named(self.enc(x), 2))


@pytest.mark.parametrize("made", [Named, Data, lambda h: Output(h=h), lambda h: Data(Named(h).h)])
def test_what_holds_tensors_is_cast(made: Any) -> None:
    net, x = GivesOne(made).eval(), torch.randn(3, 4)
    found = jit_amp.tune(net, (x * 9,), dtype=F16)
    assert found.units == ("dec",)
    with torch.no_grad():
        expected = found.apply(net)(x)
        jit_amp.ignore_amp(net.dec, float32=True)
        with torch.autocast("cpu", dtype=F16):
            assert_same(net(x), expected, "ignore_amp")
    assert expected.dtype is F32


def test_a_named_tuple_in_a_script_is_cast() -> None:
    net, x, kept = GivesNamed().eval(), torch.randn(3, 4), precision(("dec",))
    with torch.no_grad():
        expected = kept.apply(net)(x)
        scripted = jit_amp.script(net, precision=kept)
        for _ in range(3):
            assert_same(scripted(x), expected, "scripted")
        frozen = jit_amp.freeze(scripted, optimize_numerics=False)
        assert_same(frozen(x), expected, "frozen")


def test_what_is_cast_is_the_same_object_where_nothing_is() -> None:
    given = [torch.ones(1), {"a": (torch.ones(2, dtype=BF16), 3)}, Output(h=torch.ones(2))]
    made = in_float32.widened(given)
    assert made is not given and made[0] is given[0] and made[2] is given[2]
    assert made[1]["a"][0].dtype is F32 and given[1]["a"][0].dtype is BF16
    assert in_float32.widened(made) is made


class Pair(tuple[Tensor, Tensor]):
    """Its constructor takes no iterable."""

    def __new__(cls, a: Tensor, b: Tensor) -> Pair:
        made = super().__new__(cls, (a, b))
        made.name = "a pair"
        return made

    name: str


def test_tuples_keep_their_class() -> None:
    x = torch.ones(2, dtype=BF16)
    pair = in_float32.widened(Pair(x, x))
    assert type(pair) is Pair and pair[1].dtype is F32 and pair.name == "a pair"
    largest = in_float32.widened(x.max(0))
    assert type(largest) is type(x.max(0)) and largest.values.dtype is F32
    packed = nn.utils.rnn.pack_sequence([x])
    made = in_float32.widened(packed)
    assert type(made) is type(packed) and made.data.dtype is F32
    copied = in_float32.mapped((x.shape, Pair(x, x)), torch.clone, anew=True)
    assert copied[0] == x.shape and copied[1][0] is not x


def test_the_second_name_of_a_shared_module() -> None:
    net, x = Net().eval(), torch.randn(3, 4)
    net.second = net.inner
    with torch.no_grad():
        expected = precision(("inner",)).apply(net)(x)
        assert_same(precision(("second",)).apply(net)(x), expected, "by its second name")


def lines(mark: str) -> tuple[str, ...]:
    """The lines of this file that end so."""
    source = enumerate(Path(__file__).read_text().splitlines(), 1)
    return tuple(f"test_apply.py:{i}" for i, line in source if line.endswith(mark))


class AsksForTheDtype(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.l(x)
        out = torch.zeros(4, 4, dtype=h.dtype)  # kept
        out.copy_(torch.mm(h, h.T))  # kept
        return out + self.dot(h)  # kept

    def dot(self, h: Tensor) -> Tensor:
        y = torch.mm(h, h.t())
        return torch.mm(y, y)


def test_what_a_kept_line_asks_and_calls() -> None:
    """A dtype is what it is, and what the line calls stays in float32 too."""
    net, x = AsksForTheDtype().eval(), torch.randn(4, 8)
    chosen = precision(lines("# kept"), "float16", kind="line")
    with torch.no_grad():
        expected = chosen.apply(net)(x)
        h = nn.functional.linear(x.half(), net.l.weight.half(), net.l.bias.half()).float()
        y = torch.mm(h, h.t())
        assert torch.equal(expected, y.half() + torch.mm(y, y))
        assert_same(jit_amp.script(net, precision=chosen)(x), expected, "script")
        assert_same(jit_amp.trace(net, (x,), precision=chosen)(x), expected, "trace")


class WritesToParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.l(x)
        out = torch.zeros(4, 4, dtype=h.dtype)
        out[:] = torch.mm(h, h.t())  # of parts
        h[0].view(2, 4)[1].mul_(2)  # of parts
        return out, h


def test_what_a_kept_line_writes_to_a_part_is_written() -> None:
    net, x = WritesToParts().eval(), torch.randn(4, 8)
    chosen = precision(lines("# of parts"), "float16", kind="line")
    with torch.no_grad():
        h = nn.functional.linear(x.half(), net.l.weight.half(), net.l.bias.half())
        out = torch.mm(h.float(), h.float().t()).half()
        h[0, 4:] *= 2
        assert_same(jit_amp.script(net, precision=chosen)(x), (out, h), "script")


def test_other_devices_take_apply_alone() -> None:
    """TorchScript would keep nothing in float32 there."""
    net, x = nn.Sequential(nn.Linear(4, 4)).eval(), torch.rand(2, 4)
    found = precision(("0",), device_type="xpu")
    for made in (jit_amp.script, jit_amp.freeze):
        with pytest.raises(ValueError, match=r"found for xpu.*use precision\.apply"):
            made(net, precision=found)
    assert found.apply(net)(x).dtype is torch.float32
