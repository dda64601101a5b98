"""What is in an artefact: each weight once, in the dtype in which it is used, and nothing else."""

import io
import zipfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import artefact
import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same, operators

N = 64
WEIGHT, BIAS = N * N, N


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(N, N)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.a(x)


class UsedTwice(Linear):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.a(self.a(x))


class Shared(nn.Module):
    """One module under two names, and one weight in two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c = nn.Linear(N, N), nn.Linear(N, N)
        self.b = self.a
        self.c.weight = self.a.weight

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.c(self.b(self.a(x)))


class InTwoDtypes(Linear):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            with torch.autocast("cpu", enabled=False):
                return y, self.a(x)


class InTwoScopes(Linear):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
        with torch.autocast("cpu", dtype=torch.float16):
            return y, self.a(x)


class TwoMethods(Linear):
    @torch.jit.export
    def encode(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.a(x)


class Unused(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(N, N)


class InABranch(Linear):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if x.size(0) > 1:
                return self.a(x)
            return self.a(x * 2)


class OfAnAttribute(nn.Module):
    """A weight that is a plain tensor, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.randn(N, N)
        self.register_buffer("scale", torch.rand(N))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ self.weight) * self.scale


class Recurrent(nn.Module):
    """Its weights are a list."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(N, N, num_layers=2, batch_first=True)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.lstm(x.unsqueeze(0))[0][:, -1]


HALF, FULL = 2, 4
SIZES: dict[str, tuple[Callable[[], nn.Module], list[str], list[int]]] = {
    "linear": (Linear, [], [WEIGHT * HALF, BIAS * HALF]),
    "used twice": (UsedTwice, [], [WEIGHT * HALF, BIAS * HALF]),
    "shared": (Shared, [], [WEIGHT * HALF, BIAS * HALF, BIAS * HALF]),
    "two dtypes": (InTwoDtypes, [], [WEIGHT * HALF, BIAS * HALF, WEIGHT * FULL, BIAS * FULL]),
    "two scopes": (
        lambda: InTwoScopes().requires_grad_(False),  # eager's weight cache forgets the dtype
        [],
        [WEIGHT * HALF, BIAS * HALF] * 2,
    ),
    "two methods": (TwoMethods, ["encode"], [WEIGHT * HALF, BIAS * HALF]),
    "unused": (Unused, [], [WEIGHT * HALF, BIAS * HALF]),
    "in a branch": (InABranch, [], [WEIGHT * HALF, BIAS * HALF]),
    "recurrent": (Recurrent, [], [4 * WEIGHT * HALF, 4 * BIAS * HALF] * 4),
    "attributes": (OfAnAttribute, [], [WEIGHT * HALF, BIAS * FULL]),
}


def stored(module: Any) -> list[int]:
    """The sizes of the tensors of a module's file, in bytes.

    Without that of no elements which its check of the autocast around computes with.
    """
    file = io.BytesIO()
    torch.jit.save(module, file)
    return [
        entry.file_size
        for entry in zipfile.ZipFile(file).infolist()
        if entry.filename.split("/")[-2] in ("constants", "data") and entry.file_size
    ]


@pytest.mark.parametrize("name", SIZES)
@torch.no_grad()
def test_each_weight_is_there_once(name: str) -> None:
    make, preserved, sizes = SIZES[name]
    model, x = make().eval(), torch.randn(2, N)
    frozen = jit_amp.freeze(model, preserved, example_inputs=(x,))
    assert Counter(stored(frozen)) == Counter(sizes)
    for _ in range(3):
        assert_same(frozen(x), model(x), name)


class InDtype(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.a = dtype, nn.Linear(N, N)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=self.dtype):
            return torch.relu(self.a(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_file_for_servers_asks_for_float16_where_it_has_some(dtype: torch.dtype) -> None:
    """PyTorch 2.1 loads no file that names an operator which it has not."""
    frozen = jit_amp.freeze(
        InDtype(dtype).eval(), example_inputs=(torch.randn(8, N),), target="server"
    )
    file = io.BytesIO()
    torch.jit.save(frozen, file)
    archive = zipfile.ZipFile(file)
    code = "".join(archive.read(n).decode() for n in archive.namelist() if n.endswith(".py"))
    assert ("_is_mkldnn_fp16_supported" in code) == (dtype is torch.float16)


class Everything(nn.Module):
    """Layers of several kinds, scopes in scopes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.linear, self.layer_norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
            with torch.autocast("cpu", enabled=False):
                y = torch.exp(y.float())
            with torch.autocast("cpu", dtype=torch.float16):
                z = self.linear(y)
            y = self.layer_norm(self.linear(y))
            return torch.cat([y, torch.prod(z, 1, True)], 1) @ torch.ones(5, 2)


@torch.no_grad()
def test_with_examples_no_cast_is_left_to_decide() -> None:
    model, x = Everything().eval().requires_grad_(False), torch.randn(2, 3, 6, 6)
    frozen = jit_amp.freeze(model, example_inputs=(x,))
    kinds = set(operators(frozen.graph))
    assert not [kind for kind in kinds if "autocast" in kind or kind.startswith("jit_amp::")]
    assert not kinds & {"prim::Enter", "prim::Exit", "prim::CreateObject", "prim::GetAttr"}
    assert operators(frozen.graph).count("prim::is_cpu") == 2  # the checks of x and of the weights
    assert artefact.casts_at_run_time(frozen.graph) == 0
    torch.testing.assert_close(frozen(x), model(x), rtol=2e-2, atol=2e-2)


class Arithmetic(nn.Module):
    """Numbers fold into weights; a tensor decides about the dtype, and does not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 4, 3)
        self.third = nn.Conv2d(4, 4, 3)
        self.weight = nn.Parameter(torch.rand(4, 1, 1) + 0.5)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.first(x) * 3.0
            z = self.second(y) * self.weight
            return y, z, self.third(y) - 0.5


@torch.no_grad()
def test_numbers_are_folded_into_weights_before_they_are_rounded() -> None:
    model, x = Arithmetic().eval(), torch.randn(2, 3, 6, 6)
    frozen = jit_amp.freeze(model, example_inputs=(x,))
    kinds = Counter(node.kind() for node in frozen.graph.nodes())
    assert kinds["aten::mul"] == 1 and not kinds["aten::sub"]
    weights = [
        node.output().toIValue()
        for node in frozen.graph.nodes()
        if node.kind() == "prim::Constant" and isinstance(node.output().toIValue(), Tensor)
    ]
    expected = (model.first.weight * 3.0).bfloat16()
    assert any(w.shape == expected.shape and torch.equal(w, expected) for w in weights)
    for result, eager in zip(frozen(x), model(x), strict=True):
        assert result.dtype == eager.dtype
        torch.testing.assert_close(result, eager, rtol=2e-2, atol=2e-2)
    exact = jit_amp.freeze(model, example_inputs=(x,), optimize_numerics=False)
    assert_same(exact(x), model(x), "not folded")


class Scaled(nn.Module):
    """A tensor after what is folded."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.scale = nn.Parameter(torch.rand(1, 4, 1, 1))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.conv(x)
            z = (y + 0.5) * self.scale, (self.conv(x) + 0.5) - self.scale, (y - 1) * 2 / self.scale
            return self.norm(self.conv(x)) * self.scale, self.conv(x) * self.scale, z


@torch.no_grad()
def test_a_tensor_after_what_is_folded_decides_about_the_dtype() -> None:
    model, x = Scaled().eval(), torch.randn(2, 3, 6, 6)
    frozen = jit_amp.freeze(model, example_inputs=(x,))
    for result, eager in zip(frozen(x)[2] + frozen(x)[:2], model(x)[2] + model(x)[:2], strict=True):
        assert result.dtype == eager.dtype == torch.float32
        torch.testing.assert_close(result, eager, rtol=2e-2, atol=2e-2)


class Cell(nn.Module):
    """An operator of several results among those with weights."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cuda", dtype=torch.float16, enabled=True):
            return self.cell(x)


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")  # in eager
@torch.no_grad()
def test_an_operator_of_several_results() -> None:
    model, x = Cell().eval(), torch.randn(2, 4)
    assert_same(jit_amp.freeze(model, example_inputs=(x,))(x), model(x), "cell")


class Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = Linear()
        self.register_buffer("mean", torch.rand(N))
        self.version, self.names = 7, ["a", "b"]

    def forward(self, x: Tensor):
        return self.encoder(x - self.mean)

    @torch.jit.export
    def scaled(self, x: Tensor, by: float):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.encoder(x) * by


@torch.no_grad()
def test_what_is_preserved_is_there_after_saving() -> None:
    model, x = Kept().eval(), torch.randn(2, N)
    kept = ["scaled", "version", "names", "mean", "training", "encoder"]
    frozen = jit_amp.freeze(model, kept, example_inputs=(x,))
    file = io.BytesIO()
    torch.jit.save(frozen, file)
    file.seek(0)
    for module in (frozen, torch.jit.load(file)):
        assert (module.version, module.names, module.training) == (7, ["a", "b"], False)
        assert torch.equal(module.mean, model.mean)
        for _ in range(3):
            assert_same(module(x), model(x), "forward")
            assert_same(module.scaled(x, 2.0), model.scaled(x, 2.0), "scaled")
            assert_same(module.encoder(x), model.encoder(x), "encoder")


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class InHalf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(N, N)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return self.linear(x)


class Bare(InHalf):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class BehindAnInterface(nn.Module):
    inner: Layer

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x)


class Assigns(BehindAnInterface):
    def forward(self, x: Tensor) -> Tensor:
        self.inner = self.inner
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x)


class Chooses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Bare(), InHalf()])

    def forward(self, x: Tensor, i: int) -> Tensor:
        layer: Layer = self.layers[i]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer.forward(x)


@pytest.mark.parametrize("examples", [False, True], ids=["no examples", "examples"])
@pytest.mark.parametrize("inner", [InHalf, Bare])
@torch.no_grad()
def test_the_module_behind_an_interface_is_frozen(
    inner: Callable[[], nn.Module], examples: bool
) -> None:
    model, x = BehindAnInterface(inner()).eval(), torch.randn(2, N)
    frozen = jit_amp.freeze(model, example_inputs=(x,) if examples else None)
    assert "prim::CallMethod" not in operators(frozen.graph)
    for _ in range(3):
        assert_same(frozen(x), model(x), "frozen")


class TwoBehind(nn.Module):
    def __init__(self, one: nn.Module, two: nn.Module) -> None:
        super().__init__()
        self.one, self.two = BehindAnInterface(one), BehindAnInterface(two)

    def forward(self, x: Tensor):
        return self.one(x), self.two(x)


@torch.no_grad()
def test_preserved_modules_of_one_class() -> None:
    x = torch.randn(2, N)
    alike = TwoBehind(Bare(), Bare()).eval()
    frozen = jit_amp.freeze(alike, ["one", "two"], example_inputs=(x,))
    assert_same(frozen.two(x), alike.two(x), "alike")
    model = TwoBehind(Bare(), InHalf()).eval()
    assert_same(jit_amp.freeze(model, example_inputs=(x,))(x), model(x), "not preserved")
    with pytest.raises(
        jit_amp.AutocastError, match=r"`two\.forward` is to be preserved, and is other"
    ):
        jit_amp.freeze(model, ["one", "two"])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Assigns(Bare()), "`inner`, a module behind an interface, is assigned"),
        (Chooses, "a module that is chosen at run time"),
    ],
)
def test_a_module_that_is_not_known_is_refused(make: Callable[[], nn.Module], says: str) -> None:
    with pytest.raises(jit_amp.AutocastError, match=says):
        jit_amp.freeze(make().eval())


class Turned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.rand(4) * 2j)

    def forward(self, x: Tensor):
        return x + self.factor, torch.imag(self.factor)


@pytest.mark.parametrize("target", ["portable", "server"])
def test_constants_are_the_artefacts_own_where_no_scope_is_too(target: Any) -> None:
    """PyTorch saves a complex number and its imaginary part as one memory of one dtype."""
    module, x, file = Turned().eval(), torch.rand(3, 4), io.BytesIO()
    expected = [each.clone() for each in module(x)]
    frozen = jit_amp.freeze(module, target=target)
    module.factor.zero_()
    torch.jit.save(frozen, file)
    file.seek(0)
    for each in (frozen, torch.jit.load(file)):
        assert all(torch.equal(a, b) for a, b in zip(each(x), expected, strict=True))
