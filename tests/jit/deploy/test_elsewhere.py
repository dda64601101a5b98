"""Artefacts where they are to run: libtorch, oneDNN's fusion, PyTorch's optimiser and converter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from engines import libtorch
from shipped_models import DTYPES, scoped
from shipped_models import MODELS as SHIPPED
from torch import Tensor, nn
from torch._export.converter import TS2EPConverter

import jit_amp

from ..support import assert_same, needs_cuda, operators, text_of
from .test_freeze import MODELS, Conv

BF16 = torch.bfloat16


class ViT(nn.Module):
    """A size that is read, and deferred by oneDNN's fusion, of what is put in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 5)
        self.token = nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
            return self.head(x)[:, 0]


class SizeOfAResult(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(self.linear(x))
            rows, columns = y.shape
            return torch.sigmoid(y), y.view(columns, rows)


class Float32InAScope(nn.Module):
    """What autocast leaves alone is float32; oneDNN's own layout is for that."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.autocast("cpu", enabled=False):
                x = torch.relu(self.second(torch.relu(self.conv(x))))
            return self.linear(x.mean((2, 3)))


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    **MODELS,
    "ViT": (ViT, (torch.randn(2, 3, 8, 8),)),
    "size of a result": (SizeOfAResult, (torch.randn(3, 4),)),
    "float32 in a scope": (Float32InAScope, (torch.randn(2, 3, 8, 8),)),
}
EXAMPLES = pytest.mark.parametrize("examples", [False, True], ids=["no examples", "examples"])


def prepared(name: str, examples: bool) -> tuple[nn.Module, tuple[Any, ...], Any, Any]:
    """The model, its inputs, eager's results, and the artefact."""
    make, inputs = CASES[name]
    model = make().eval().requires_grad_(False)  # constants that are Parameters, if not copied
    frozen = jit_amp.freeze(
        model, example_inputs=inputs if examples else None, optimize_numerics=False
    )
    return model, inputs, model(*inputs), frozen


def assert_close(result: Any, expected: Any) -> None:
    """Of eager's dtypes, and up to a rounding or two of them."""
    if isinstance(expected, (tuple, list)):
        assert len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            assert_close(one, other)
        return
    assert result.dtype == expected.dtype
    within = 2e-2 if expected.dtype == BF16 else 1e-2
    torch.testing.assert_close(result, expected, rtol=within, atol=within)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of libtorch's, built by cmake."""
    return libtorch.built("server", tmp_path_factory.mktemp("libtorch"))


@EXAMPLES
@pytest.mark.parametrize("name", CASES)
def test_libtorch_runs_it(name: str, examples: bool, server: Path, tmp_path: Path) -> None:
    _, inputs, expected, frozen = prepared(name, examples)
    torch.jit.save(frozen, tmp_path / "model.pt")
    for call, result in enumerate(libtorch.ran(server, tmp_path / "model.pt", inputs, tmp_path)):
        assert_same(result, expected, f"call {call}")


def test_libtorch_says_what_the_check_of_the_inputs_says(server: Path, tmp_path: Path) -> None:
    _, inputs, _, frozen = prepared("conv", True)
    torch.jit.save(frozen, tmp_path / "model.pt")
    wrong = tuple(x.double() for x in inputs)
    with pytest.raises(RuntimeError, match="`x`: expected float32 on cpu, got float64 on cpu"):
        libtorch.ran(server, tmp_path / "model.pt", wrong, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHIPPED)
@torch.no_grad()
def test_libtorch_runs_the_server_form(name: str, dtype: str, server: Path, tmp_path: Path) -> None:
    """Its operators are libtorch's, and its packed weights are made as it is loaded. Small linear
    layers stay as they are; an LSTM has no others."""
    model, x = scoped(name, dtype)
    frozen = jit_amp.freeze(model, example_inputs=(x,), target="server")
    assert "mkldnn::_" in text_of(frozen.graph) or (name, dtype) != ("ResNet", "bfloat16")
    torch.jit.save(frozen, tmp_path / "model.pt")
    for given in (x, torch.randn(3, *x.shape[1:])):
        expected = frozen(given)
        results = libtorch.ran(server, tmp_path / "model.pt", (given,), tmp_path)
        assert len(results) == 3
        for call, result in enumerate(results):
            assert_same(result, expected, f"call {call}")
            if (name, dtype) != ("LSTM", "float16"):  # eager's needs AVX512-FP16
                assert_close(result, model(given))


@contextmanager
def onednn_fusion() -> Iterator[None]:
    torch.jit.enable_onednn_fusion(True)
    try:
        yield
    finally:
        torch.jit.enable_onednn_fusion(False)


# PyTorch's oneDNN fusion raises "bad optional access" on arithmetic with a tensor of which it has
# seen nothing: in any branch that the first call does not take.
NOT_FUSED = {"attention"}


@EXAMPLES
@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_FUSED])
@torch.no_grad()
def test_onednn_fuses_it(name: str, examples: bool) -> None:
    _, inputs, expected, frozen = prepared(name, examples)
    with onednn_fusion():
        for _ in range(3):
            assert_close(frozen(*inputs), expected)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@torch.no_grad()
def test_what_onednn_cannot_fuse_it_cannot_without_autocast_either() -> None:
    plain = torch.jit.freeze(torch.jit.script(Attention().eval()))
    with onednn_fusion(), pytest.raises(RuntimeError, match="bad optional access"):
        for _ in range(3):
            plain(torch.randn(2, 3, 16))


@torch.no_grad()
def test_what_pytorchs_freezing_leaves_onednn_cannot_fuse() -> None:
    """Why detach_sizes is there: when this fails, PyTorch has mended it."""
    make, inputs = CASES["ViT"]
    plain = torch.jit.freeze(torch.jit.script(make().eval()))
    with onednn_fusion(), pytest.raises(RuntimeError, match="Schema not found for node"):
        for _ in range(3):
            plain(*inputs)


@pytest.mark.parametrize("name", ["conv", "ViT"])
@torch.no_grad()
def test_onednn_makes_groups_of_it(name: str) -> None:
    _, inputs, _, frozen = prepared(name, True)
    with onednn_fusion():
        for _ in range(3):
            frozen(*inputs)
        graph = torch.jit.last_executed_optimized_graph()
    # oneDNN takes fewer operators where the CPU has no bfloat16.
    least = 2 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else 1
    assert len(graph.findAllNodes("prim::oneDNNFusionGroup")) >= least


@EXAMPLES
@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_optimize_for_inference_keeps_eagers_results(name: str, examples: bool) -> None:
    make, inputs = CASES[name]
    model = make().eval()
    expected = model(*inputs)
    optimized = jit_amp.optimize_for_inference(
        torch.jit.script(model), example_inputs=inputs if examples else None
    )
    for _ in range(3):
        assert_close(optimized(*inputs), expected)


@EXAMPLES
@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_pytorchs_optimize_for_inference_keeps_an_artefacts_dtypes(
    name: str, examples: bool
) -> None:
    _, inputs, expected, frozen = prepared(name, examples)
    optimized = torch.jit.optimize_for_inference(frozen)
    for _ in range(3):
        assert_close(optimized(*inputs), expected)


class OneLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


@torch.no_grad()
def test_a_linear_layer_stays_whole() -> None:
    model, x = OneLinear().eval(), torch.randn(16, 64)
    expected = model(x)
    pytorchs = torch.jit.optimize_for_inference(torch.jit.script(OneLinear().eval()))
    assert "aten::linear" not in operators(pytorchs.graph)
    assert pytorchs(x).dtype == torch.float32  # and eager's is
    assert expected.dtype == BF16

    frozen = jit_amp.freeze(model, example_inputs=(x,))
    ours = jit_amp.optimize_for_inference(frozen)
    assert_same(ours(x), expected, "ours")
    split = torch.jit.optimize_for_inference(jit_amp.freeze(model, example_inputs=(x,)))
    assert split(x).dtype == BF16
    assert not torch.equal(split(x), expected)  # the product is rounded before the bias is added


@torch.no_grad()
def test_what_is_float32_runs_in_onednns_layout() -> None:
    _, inputs, expected, frozen = prepared("float32 in a scope", True)
    optimized = jit_amp.optimize_for_inference(frozen)
    assert optimized is frozen
    assert any("mkldnn" in kind.lower() for kind in operators(optimized.graph))
    assert_close(optimized(*inputs), expected)


@torch.no_grad()
def test_optimize_for_inference_with_jit_amp_installed() -> None:
    model, x = OneLinear(), torch.randn(16, 64)
    with jit_amp.install():
        optimized = torch.jit.optimize_for_inference(torch.jit.script(model))
    assert_same(optimized(x), model(x), "installed")


# The converter has no loops over a list, and no branches that give numbers or tuples. Without
# examples, the dtype that cat promotes to is a number of a branch.
NOT_CONVERTED = {
    name
    for name in CASES
    if name in ("attention", "appended list", "device of a tensor")
    or name.startswith(("LSTM", "GRU", "RNN"))
}


def converted(module: Any, inputs: tuple[Any, ...]) -> Any:
    return TS2EPConverter(module, inputs).convert().module()


@pytest.mark.filterwarnings("ignore")  # torch.export's own, of its own code
@pytest.mark.parametrize(
    ("name", "examples"),
    [
        (name, examples)
        for name in CASES
        for examples in (False, True)
        if name not in NOT_CONVERTED and (name, examples) != ("ViT", False)
    ],
)
@torch.no_grad()
def test_the_converter_takes_it_to_torch_export(name: str, examples: bool) -> None:
    _, inputs, expected, frozen = prepared(name, examples)
    result = converted(frozen, inputs)(*inputs)
    assert_same(tuple(result) if isinstance(result, list) else result, expected, "exported")


def move(module: Any, device: str, tmp_path: Path, by: str) -> Any:
    if by == "to":
        return module.to(device)
    torch.jit.save(module, tmp_path / "model.pt")
    return torch.jit.load(tmp_path / "model.pt", map_location=device)


@EXAMPLES
@pytest.mark.parametrize(
    ("device", "by"),
    [
        ("meta", "to"),  # torch.jit.load cannot compare constants there
        pytest.param("cuda", "to", marks=needs_cuda),
        pytest.param("cuda", "load", marks=needs_cuda),
    ],
)
@torch.no_grad()
def test_on_another_device_it_is_right_or_refused(
    device: str, by: str, examples: bool, tmp_path: Path
) -> None:
    """A frozen module's weights are constants of its code, which `.to` does not move."""
    model, x = Conv().eval(), torch.randn(2, 1, 4, 4)
    frozen = jit_amp.freeze(model, example_inputs=(x,) if examples else None)
    moved = move(frozen, device, tmp_path, by)
    if by == "to":
        assert_same(moved(x), frozen(x), "where it was")
    with pytest.raises((RuntimeError, torch.jit.Error, NotImplementedError)) as caught:
        moved(x.to(device))
    if by == "load":
        assert "weights on cpu, and they are on cuda" in str(caught.value)
    elif examples and device == "cuda":
        assert "`x`: expected float32 on cpu, got float32 on cuda" in str(caught.value)


class Trained(nn.Module):
    """A weight that is cast, one that is not, and a buffer that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.norm(self.linear(x)), self.calls


@EXAMPLES
@pytest.mark.parametrize("requires_grad", [False, True])
@torch.no_grad()
def test_what_is_loaded_into_the_module_later_is_not_in_the_artefact(
    requires_grad: bool, examples: bool
) -> None:
    model, x = Trained().eval().requires_grad_(requires_grad), torch.randn(2, 4)
    frozen = jit_amp.freeze(model, example_inputs=(x,) if examples else None)
    expected = frozen(x)[0].clone()
    for parameter in model.parameters():
        parameter.zero_()
    assert_same(frozen(x)[0], expected, "after the module changed")


@torch.no_grad()
def test_another_dtype_by_to_changes_nothing() -> None:
    model, x = Conv().eval(), torch.randn(2, 1, 4, 4)
    frozen = jit_amp.freeze(model, example_inputs=(x,))
    expected = frozen(x)
    assert_same(frozen.to(torch.float64)(x), expected, "still")
