"""freeze: an artefact of stock operators that gives eager's results, wherever it runs."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.jit.mobile import _load_for_lite_interpreter

import jit_amp

from ..support import assert_same, operators

# The lite interpreter is what these tests are about, and says this whenever it is used.
pytestmark = pytest.mark.filterwarnings("ignore:Lite Interpreter is deprecated")


class Conv(nn.Module):
    """Conv with bias and batch norm in a scope, a disabled scope, cat of two dtypes, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4 * 16, 5)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(self.norm(self.conv(x)))
            with torch.autocast("cpu", enabled=False):
                z = torch.exp(y.float() * 0.1)
            w = torch.cat([y, z], 1)[:, :4]
            return self.linear(w.flatten(1))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.rnn = kind(4, 5, **options)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.rnn(x)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layer(x)
            return y, self.attention(y, y, y)[0]


class Einsum(nn.Module):
    def forward(self, a: Tensor, b: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.einsum("bij,bjk->bik", a, b), torch.einsum("bij,bjk->bijk", a, b)


class Appended(nn.Module):
    """A list that grows is not the list that it was made as."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            parts = [x]
            parts.append(x.to(torch.bfloat16))
            parts[0] = x.to(torch.bfloat16)
            return torch.cat(parts)


class Queries(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            if torch.is_autocast_enabled():
                x = x + 2
            if torch.is_autocast_enabled("cpu"):
                x = x.to(torch.get_autocast_dtype("cpu"))
        return x


class DeviceOfATensor(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return x @ x


class Mode(nn.Module):
    """Preserved: a method of its own, an attribute, a submodule that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.version = 3

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(self.linear(x))

    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


MODELS = {
    "conv": (Conv, (torch.randn(2, 1, 4, 4),)),
    "einsum": (Einsum, (torch.randn(2, 3, 4), torch.randn(2, 4, 3))),
    "attention": (Attention, (torch.randn(2, 3, 16),)),
    "appended list": (Appended, (torch.randn(2, 3),)),
    "queries": (Queries, (torch.randn(2, 3),)),
    "device of a tensor": (DeviceOfATensor, (torch.randn(3, 3),)),
    **{
        f"{kind.__name__} {options}": (
            lambda kind=kind, options=options: Recurrent(kind, **options),
            (torch.randn(3, 2, 4),),
        )
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
        for options in (
            {},
            {"bias": False},
            {"num_layers": 2, "bidirectional": True, "batch_first": True},
        )
    },
}


@pytest.mark.parametrize("examples", [False, True], ids=["no examples", "examples"])
@pytest.mark.parametrize("name", MODELS)
def test_an_artefact_is_of_stock_operators_and_gives_eagers_results(
    name: str, examples: bool, tmp_path: Path
) -> None:
    make, inputs = MODELS[name]
    model = make().eval()
    with torch.no_grad():
        expected = model(*inputs)
    frozen = jit_amp.freeze(
        model, example_inputs=inputs if examples else None, optimize_numerics=False
    )
    kinds = set(operators(frozen.graph))
    assert not [kind for kind in kinds if kind.startswith("jit_amp::") or "autocast" in kind]
    assert not kinds & {"prim::Enter", "prim::Exit", "prim::CreateObject"}
    torch.jit.save(frozen, tmp_path / "model.pt")
    frozen._save_for_lite_interpreter(str(tmp_path / "model.ptl"))
    lite = _load_for_lite_interpreter(str(tmp_path / "model.ptl"))
    for runner in (frozen, torch.jit.load(tmp_path / "model.pt"), lite):
        for call in range(3):
            assert_same(runner(*inputs), expected, f"call {call}")


def test_batch_norms_are_folded_before_the_weights_are_rounded() -> None:
    model, x = Conv().eval(), torch.randn(2, 1, 4, 4)
    frozen = jit_amp.freeze(model, example_inputs=(x,))
    assert "aten::batch_norm" not in operators(frozen.graph)
    weights = [
        node.output().toIValue()
        for node in frozen.graph.nodes()
        if node.kind() == "prim::Constant" and isinstance(node.output().toIValue(), Tensor)
    ]
    assert weights and all(weight.dtype is torch.bfloat16 for weight in weights)
    scale = model.norm.weight / torch.sqrt(model.norm.running_var + model.norm.eps)
    folded = (model.conv.weight * scale.reshape(-1, 1, 1, 1)).bfloat16()
    assert any(torch.equal(weight, folded) for weight in weights if weight.dim() == 4)
    assert_same(frozen(x).dtype, model(x).dtype, "dtype")
    torch.testing.assert_close(frozen(x), model(x), rtol=2e-2, atol=2e-2)


def test_a_batch_norm_outside_the_weights_dtype_is_left_alone() -> None:
    model = Conv().eval()
    frozen = jit_amp.freeze(
        model, example_inputs=(torch.randn(2, 1, 4, 4),), optimize_numerics=False
    )
    assert "aten::batch_norm" in operators(frozen.graph)


def test_an_artefact_loads_where_jit_amp_is_not(tmp_path: Path) -> None:
    model, x = Conv().eval(), torch.randn(2, 1, 4, 4)
    torch.jit.save(jit_amp.freeze(model, example_inputs=(x,)), tmp_path / "model.pt")
    torch.save(x, tmp_path / "x.pt")
    program = (
        "import sys, torch\n"
        f"model = torch.jit.load({str(tmp_path / 'model.pt')!r})\n"
        f"result = model(torch.load({str(tmp_path / 'x.pt')!r}))\n"
        "assert 'jit_amp' not in sys.modules\n"
        f"torch.save(result, {str(tmp_path / 'y.pt')!r})\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, cwd=tmp_path)
    frozen = jit_amp.freeze(model, example_inputs=(x,))
    assert_same(torch.load(tmp_path / "y.pt"), frozen(x), "elsewhere")


def test_other_dtypes_than_the_examples_are_refused_at_the_call() -> None:
    frozen = jit_amp.freeze(Conv().eval(), example_inputs=(torch.randn(2, 1, 4, 4),))
    with pytest.raises(
        torch.jit.Error, match=r"`x`: expected float32 on cpu, got float64 on cpu\n.*freeze it"
    ):
        frozen(torch.randn(2, 1, 4, 4, dtype=torch.float64))


def test_several_examples_join() -> None:
    model = DeviceOfATensor().eval()
    x = torch.randn(3, 3)
    frozen = jit_amp.freeze(model, example_inputs=[(x,), (x.double(),)])
    for sample in (x, x.double(), x.half()):
        assert_same(frozen(sample), model(sample), str(sample.dtype))


@pytest.mark.parametrize("sizes", [(3, 1, 3), (3, 4, 1), (1, 4, 3), (1, 1, 1), (0, 4, 3)])
@torch.no_grad()
def test_an_einsum_is_eagers_whatever_the_sizes(sizes: tuple[int, int, int]) -> None:
    """Where a summed dimension has size 1, eager multiplies and does not cast."""
    model, (i, j, k) = Einsum().eval(), sizes
    for example in (None, (torch.randn(2, 3, 4), torch.randn(2, 4, 3))):
        frozen = jit_amp.freeze(model, example_inputs=example, optimize_numerics=False)
        given = torch.randn(2, i, j), torch.randn(2, j, k)
        for _ in range(3):
            assert_same(frozen(*given), model(*given), f"{sizes}")


@torch.no_grad()
def test_an_lstm_of_an_input_for_which_machines_differ_is_refused() -> None:
    """Eager runs oneDNN's code for float16 in a bfloat16 scope on a CPU that has instructions for
    it, and its own elsewhere, with a result of another dtype."""
    module, x = Recurrent(nn.LSTM).eval(), torch.randn(3, 2, 4)
    frozen = jit_amp.freeze(module, optimize_numerics=False)
    for dtype in (torch.float32, torch.bfloat16):
        assert_same(frozen(x.to(dtype)), module(x.to(dtype)), str(dtype))
    with pytest.raises(torch.jit.Error, match="takes an input of float32 or of the scope's dtype"):
        frozen(x.half())
    with pytest.raises(jit_amp.AutocastError, match="takes an input of float32"):
        jit_amp.freeze(module, example_inputs=(x.half(),))


def test_freezing_under_an_ambient_autocast_is_as_outside() -> None:
    model, x = Mode().eval(), torch.randn(2, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        frozen = jit_amp.freeze(model, example_inputs=(x,))
    with torch.no_grad():
        assert_same(frozen(x), model(x), "frozen")


def test_a_name_that_a_module_frozen_by_pytorch_does_not_have() -> None:
    frozen = torch.jit.freeze(torch.jit.script(nn.Linear(2, 2).eval()))
    with pytest.raises(RuntimeError, match=r"Unknown name: gone\. preserved_attrs: "):
        jit_amp.freeze(frozen, ["gone"])


def test_methods_and_attributes_are_preserved() -> None:
    model, x = Mode().eval(), torch.randn(2, 4)
    frozen = jit_amp.freeze(model, ["encode", "version"], example_inputs=(x,))
    assert frozen.version == 3
    with torch.no_grad():
        assert_same(frozen(x), model(x), "forward")
        assert_same(frozen.encode(x), model.encode(x), "encode")


class Assigned(nn.Module):
    """What it reads may be assigned to."""

    __annotations__ = {"bias": Optional[Tensor]}  # noqa: UP045  # TorchScript reads no text here

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bias, self.scales = nn.Linear(4, 4), None, [torch.rand(4, 4)]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            bias = self.bias
            if bias is not None:
                y = y + bias
            return y, self.scales[0] @ self.scales[0]


@pytest.mark.parametrize("options", [{}, {"example_inputs": torch.randn(2, 4)}], ids=list)
@pytest.mark.parametrize("target", ["portable", "server"])
def test_a_preserved_attribute_is_assigned_to(options: dict[str, Any], target: str) -> None:
    """Nothing is known of its value."""
    model, x = Assigned().eval(), torch.randn(2, 4)
    frozen = jit_amp.freeze(model, ["bias", "scales"], target=target, **options)
    for bias, scale in ((None, torch.rand(4, 4)), (torch.rand(4), torch.rand(4, 4).double())):
        for each in (model, frozen):
            each.bias, each.scales = bias, [scale]
        with torch.no_grad():
            for ours, eager in zip(frozen(x), model(x), strict=True):
                assert ours.dtype is eager.dtype
                torch.testing.assert_close(ours, eager, atol=0.02, rtol=0.02)


def test_what_is_frozen_stays_as_it_is() -> None:
    model, x = Mode().eval(), torch.randn(2, 4)
    scripted = torch.jit.script(model)
    before = str(scripted.inlined_graph)
    jit_amp.freeze(scripted, example_inputs=(x,))
    assert str(scripted.inlined_graph) == before
    assert model.linear.weight.dtype is torch.float32


def test_a_scripted_module_freezes_to_the_same_graph() -> None:
    model, x = Mode().eval(), torch.randn(2, 4)
    one = jit_amp.freeze(model, example_inputs=(x,))
    other = jit_amp.freeze(jit_amp.script(model), example_inputs=(x,))
    assert operators(one.graph) == operators(other.graph)
    assert_same(other(x), one(x), "frozen")


def test_training_mode_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"call \.eval\(\)"):
        jit_amp.freeze(Mode())


def identity(x: Tensor) -> Tensor:
    return x


def test_a_function_is_no_module() -> None:
    with pytest.raises(TypeError, match="takes a module"):
        jit_amp.freeze(identity)  # type: ignore[arg-type]


class Distances(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch._euclidean_dist(x, x)


def test_what_cannot_be_exported_is_refused_by_name_and_line() -> None:
    with pytest.raises(jit_amp.AutocastError) as caught:
        jit_amp.freeze(Distances().eval(), example_inputs=(torch.randn(3, 3),))
    text = str(caught.value)
    assert (
        "`aten::_euclidean_dist`" in text
        and "return torch._euclidean_dist(x, x)" in text
        and "Instead:" in text
    )


class DeviceOfTheInput(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return torch.atan2(x, y), torch.cat([x, y])


@pytest.mark.parametrize("examples", [False, True])
def test_promotion_on_the_device_that_the_input_is_not_on(examples: bool) -> None:
    """atan2 promotes on CUDA alone, and the example says that the input is on the CPU."""
    module, given = DeviceOfTheInput().eval(), (torch.rand(3), torch.rand(3).bfloat16())
    frozen = jit_amp.freeze(module, example_inputs=given if examples else None)
    for _ in range(3):
        assert_same(frozen(*given), module(*given), str(examples))


def counted(y: Tensor, n: int) -> Tensor:
    for _ in range(n):
        y = y + 1
    return y


def raised(y: Tensor) -> None:
    y.add_(1)


class WritesToWhatALoopGives(nn.Module):
    def forward(self, x: Tensor, n: int) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            raised(counted(x, n))
            return torch.mm(x, x)


class ReadsWhatItWrites(nn.Module):
    def forward(self, x: Tensor, n: int) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = counted(x, n)
            raised(y)
            return torch.mm(y, y)


def test_a_write_that_an_artefact_would_lose_is_refused() -> None:
    """With n = 0 it is the caller's tensor that is written to."""
    scripted = jit_amp.script(WritesToWhatALoopGives().eval())
    for _ in range(3):
        given, expected = torch.eye(2), torch.eye(2)
        assert_same(scripted(given, 0), WritesToWhatALoopGives()(expected, 0), "scripted")
        assert_same(given, expected, "the caller's")
    with pytest.raises(jit_amp.AutocastError, match=r"JA302.*\n[^$]*y\.add_\(1\)"):
        jit_amp.freeze(scripted)


@pytest.mark.parametrize("n", [0, 2])
def test_a_write_that_is_read_is_kept(n: int) -> None:
    module = ReadsWhatItWrites().eval()
    frozen = jit_amp.freeze(module, optimize_numerics=False)
    for _ in range(3):
        given, expected = torch.eye(2), torch.eye(2)
        assert_same(frozen(given, n), module(expected, n), "result")
        assert_same(given, expected, "the caller's")


class NormOfTheBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.conv(x)
            return torch.batch_norm(y, None, None, self.mean, self.variance, True, 0.1, 1e-5, True)


@torch.no_grad()
def test_a_batch_norm_of_the_batch_is_not_folded() -> None:
    module, x = NormOfTheBatch().eval(), torch.randn(2, 3, 8, 8)
    frozen = jit_amp.freeze(module)
    for _ in range(3):
        assert_same(frozen(x), module(x), "folding")


class Sum(nn.Module):
    def forward(self, b: Tensor, x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.addmm(b, x, w)


@pytest.mark.parametrize("examples", [False, True])
@torch.no_grad()
def test_an_addmm_is_rounded_once(examples: bool) -> None:
    given = torch.randn(8, 8), torch.randn(8, 64), torch.randn(64, 8)
    frozen = jit_amp.freeze(Sum().eval(), example_inputs=given if examples else None)
    for _ in range(3):
        assert_same(frozen(*given), Sum()(*given), "addmm")


class Shortcut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x + self.linear(x)


def test_gradients_through_an_artefact_with_a_shortcut() -> None:
    """PyTorch's formula for the sum hands a float32 gradient to the bfloat16 layer."""
    module = Shortcut().eval()
    frozen = jit_amp.freeze(module, example_inputs=torch.rand(3, 4))
    for call in range(3):
        gradients = []
        for run in (frozen, module):
            x = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()
            run(x).float().pow(2).sum().backward()
            gradients.append(x.grad)
        assert_same(*gradients, f"call {call}")


class Forms(nn.Module):
    def forward(self, x: Tensor, n: int = 2, scale: Tensor | None = None) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        for _ in range(n):
            y = y * 2.0 if scale is None else y * scale
        return y


EXAMPLE, SCALE = torch.rand(3, 3), torch.rand(3)


@pytest.mark.parametrize(
    ("example", "by_name", "scaled"),
    [
        (EXAMPLE, None, False),
        ((EXAMPLE,), None, False),
        ((EXAMPLE, 3), None, False),
        ({"x": EXAMPLE}, None, False),
        ({"x": EXAMPLE, "scale": SCALE}, None, True),
        (EXAMPLE, {"scale": SCALE}, True),
        (None, {"x": EXAMPLE, "scale": SCALE}, True),
        ([EXAMPLE, {"x": EXAMPLE, "n": 1}], None, False),
    ],
)
def test_examples_as_people_have_them(example: Any, by_name: Any, scaled: bool) -> None:
    frozen = jit_amp.freeze(Forms().eval(), example_inputs=example, example_kwarg_inputs=by_name)
    given = {"scale": SCALE} if scaled else {}
    for _ in range(3):
        assert_same(frozen(EXAMPLE, **given), Forms()(EXAMPLE, **given), "frozen")
    with pytest.raises(torch.jit.Error, match=r"`x`: expected float32 on cpu.* got float64 on cpu"):
        frozen(EXAMPLE.double(), **given)


@pytest.mark.parametrize(
    ("example", "by_name", "what"),
    [
        ((EXAMPLE, 1, SCALE, 3), None, "an example of 4 arguments"),
        ({"y": EXAMPLE}, None, "an example with an argument `y`"),
        (EXAMPLE, {"x": EXAMPLE}, "an example with `x` by position and by name"),
        ((), None, "an example without `x`"),
        ({"n": 1}, None, "an example without `x`"),
        ([EXAMPLE, EXAMPLE], {"n": 1}, "example_kwarg_inputs are of one example"),
        ("text", None, "an example that forward does not take"),
    ],
)
def test_an_example_that_does_not_fit_is_refused_with_the_signature(
    example: Any, by_name: Any, what: str
) -> None:
    with pytest.raises(TypeError, match=what) as caught:
        jit_amp.freeze(Forms().eval(), example_inputs=example, example_kwarg_inputs=by_name)
    assert "x: Tensor" in str(caught.value) or "Tensor x" in str(caught.value) or "one" in what


class Expanded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(4, 4))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.float16):
            return F.linear(self.table.expand(2, 4, 4), x), F.linear(y.expand(2, 4, 4).float(), y)


@torch.no_grad()
def test_strides_are_eagers() -> None:
    """Another kernel, with another order of its sums, computes with what is expanded."""
    module, given = Expanded().eval(), (torch.randn(4, 4), torch.randn(4, 4).half())
    frozen = jit_amp.freeze(module, example_inputs=given, optimize_numerics=False)
    for _ in range(3):
        assert_same(frozen(*given), module(*given), "strides")


class Normed(nn.Module):
    """A convolution in float16, whose batch norm scales by `gamma / sqrt(var)`."""

    def __init__(self, var: float, gamma: float, weight: float, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.conv, self.norm, self.dtype = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), dtype
        self.conv.weight.data = weight * torch.randn(8, 4, 3, 3, generator=generator)
        self.norm.running_var.fill_(var)
        self.norm.weight.data.fill_(gamma)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            return self.norm(self.conv(x))


@pytest.mark.parametrize("target", ["portable", "server"])
@pytest.mark.parametrize(
    ("var", "gamma", "weight", "x", "folds"),
    [
        (0.0, 10.0, 100.0, 1e-3, False),  # infinite weights
        (1e8, 0.01, 0.1, 6e3, False),  # weights that lose their digits
        (1.0, 0.5, 0.02, 1.0, True),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_batch_norm_is_folded_where_the_dtype_holds_the_weights(
    var: float, gamma: float, weight: float, x: float, folds: bool, dtype: torch.dtype, target: Any
) -> None:
    model = Normed(var, gamma, weight, dtype).eval()
    given = x * torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(1))
    frozen = jit_amp.freeze(model, example_inputs=(given,), target=target)
    folded = "aten::batch_norm" not in operators(frozen.graph)
    assert folded == (folds or dtype is torch.bfloat16)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()
        exact.dtype = torch.float64  # no scope's: the program runs as it is
        with pytest.warns(UserWarning, match="float64|Disabling"):
            truth = exact(given.double())
        for _ in range(3):
            ours, eagers = frozen(given), model(given)
            assert ours.dtype is eagers.dtype
            off, allowed = ((each.double() - truth).norm() for each in (ours, eagers))
            assert allowed.isfinite() and off <= 3 * allowed


def test_an_encoder_layer_takes_a_batch_of_none() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    model = InScope(layer).eval().requires_grad_(False)
    for options in ({}, {"target": "server"}, {"optimize_numerics": False}):
        frozen = jit_amp.freeze(model, **options)
        for size in ((0, 3, 16), (2, 0, 16), (2, 3, 16)):
            with torch.no_grad():
                x = torch.rand(size)
                ours, eagers = frozen(x), model(x)
            assert (ours.dtype, ours.shape) == (eagers.dtype, eagers.shape)


class InScope(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x)


@pytest.mark.parametrize("optimize_numerics", [True, False])
def test_what_is_frozen_in_inference_mode_has_gradients_outside(optimize_numerics: bool) -> None:
    model, x = InScope(nn.Linear(4, 4)).eval(), torch.rand(2, 4)
    with torch.inference_mode():
        frozen = jit_amp.freeze(model, optimize_numerics=optimize_numerics)
        assert torch.is_inference_mode_enabled()
    for _ in range(3):
        given = [x.clone().requires_grad_() for _ in range(2)]
        for call, each in zip((frozen, model), given, strict=True):
            call(each).float().sum().backward()
        assert_same(given[0].grad, given[1].grad, "gradient")


class CallsBuiltins(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return abs(x @ x), torch.histogramdd(x, 3)[0]


def test_what_only_a_builtin_of_python_calls() -> None:
    x = torch.rand(4, 2) @ torch.rand(2, 4)
    frozen = jit_amp.freeze(CallsBuiltins().eval())
    for _ in range(3):
        for got, expected in zip(frozen(x), CallsBuiltins()(x), strict=True):
            assert got.dtype == expected.dtype and torch.equal(got, expected)
