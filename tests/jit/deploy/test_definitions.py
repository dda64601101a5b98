"""Definitions of composite operators: frozen in a scope, they do what eager autocast does."""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import Place, assert_same, imported, known_warnings_ignored, needs_cuda, tree_map

SOURCES = Path(__file__).parents[3] / "csrc/core/definitions"

Shape = tuple[int, ...]

# What the floating point operands are, in turn.
KINDS: list[tuple[torch.dtype, ...]] = [
    (torch.float32,),
    (torch.bfloat16,),
    (torch.float64,),
    (torch.float32, torch.bfloat16),
    (torch.bfloat16, torch.float32),
]


@dataclass(frozen=True)
class Case:
    """A call of x, y and z, and of n, which holds integers, on tensors of several shapes."""

    call: str
    shapes: tuple[tuple[Shape, ...], ...]

    def module(self, scope: str, folder: Path) -> nn.Module:
        names = ", ".join("xyz"[: len(self.shapes[0])]) + ", n"
        source = f"""
import torch
from torch.nn import functional as F


class Program(torch.nn.Module):
    def forward(self, {names}):
        with torch.autocast("{scope}", dtype=torch.bfloat16):
            return {self.call}
"""
        return imported(source, folder / "program.py").Program().eval()

    def inputs(self, device: str) -> list[tuple[Tensor, ...]]:
        torch.manual_seed(0)
        found = []
        for shapes in self.shapes:
            tensors = [torch.rand(shape) * 0.8 + 0.1 for shape in shapes]
            for kind in KINDS:
                cast = [t.to(dtype) for t, dtype in zip(tensors, itertools.cycle(kind))]
                n = torch.arange(1, 4) % 3
                found.append(tuple(t.to(device) for t in (*cast, n)))
        return found


def case(name: str, call: str, *shapes: Any) -> Any:
    """Each of `shapes` is one tensor's, or a list with one for each tensor."""
    each = tuple(tuple(s) if isinstance(s, list) else (s,) for s in shapes)
    return pytest.param(Case(call, each), id=name)


ANY = [
    case("linalg_matmul", "torch.linalg.matmul(x, y)", [(2, 3), (3, 2)], [(3,), (2, 3, 4)]),
    *(
        case(f"matrix_power({n})", f"torch.matrix_power(x, {n})", (3, 3), (2, 3, 3), (0, 0))
        for n in (0, 1, -1, 2, 3, 4, 7, 10, -3, -6)
    ),
    case(
        "matrix_power of n",
        "torch.linalg.matrix_power(x, int(n.sum().item()) * 2)",
        (3, 3),
    ),
    case("multi_dot of 2", "torch.linalg.multi_dot([x, y])", [(2, 3), (3, 4)], [(3,), (3,)]),
    case(
        "multi_dot of 5",
        "torch.linalg.multi_dot([x, y, z, y.t(), x.t()])",
        [(5, 2), (2, 7), (7, 7)],
    ),
    case("chain_matmul", "torch.ops.aten.chain_matmul([x, y, x])", [(4, 2), (2, 4)]),
    case("chain_matmul of 1", "torch.ops.aten.chain_matmul([x])", (4, 2)),
    case("inner", "torch.inner(x, y)", [(2, 3), (4, 3)], [(3,), (3,)], [(), (2, 3)]),
    case("tensordot", "torch.tensordot(x, y, 1)", [(2, 3), (3, 2)], [(1, 3), (3, 1)], [(3,), (3,)]),
    case("cov", "torch.cov(x)", (2, 5), (5,), (1, 5)),
    case("cov, weighted", "torch.cov(x, correction=1, fweights=n, aweights=y)", [(2, 3), (3,)]),
    case("cov, fweights", "torch.cov(x, correction=0, fweights=n)", (2, 3)),
    case("cov, aweights", "torch.cov(x, correction=2, aweights=y)", [(2, 9), (9,)]),
    case("cov of integers", "torch.cov(n), x", ()),
    case("cov of complex", "torch.cov(torch.complex(x, x * 2).reshape(2, 2))", (4,)),
    case("corrcoef", "torch.corrcoef(x)", (2, 5), (5,)),
    case("affine_grid", "F.affine_grid(x, [2, 3, 4, 5], False)", (2, 2, 3)),
    case("affine_grid, corners", "F.affine_grid(x, [1, 3, 2, 4, 5], True)", (1, 3, 4)),
    case("pinv", "torch.linalg.pinv(x)", (3, 4), (2, 3, 3), (0, 3)),
    case("pinv, hermitian", "torch.linalg.pinv(x @ x.t(), hermitian=True), y", [(3, 3), ()]),
    case("pinv, rtol", "torch.linalg.pinv(x, atol=0.1, rtol=0.2)", (4, 3)),
    case("pinv, atol", "torch.linalg.pinv(x, atol=y)", [(2, 4, 3), (2,)]),
    case("pinv, rtol of each", "torch.linalg.pinv(x, rtol=y)", [(2, 4, 3), (2,)]),
    case("pinv, rcond", "torch.linalg.pinv(x, y), torch.linalg.pinv(x, 0.3)", [(4, 3), ()]),
    case("det", "torch.det(x), torch.linalg.det(x)", (3, 3), (2, 0, 0)),
    case("slogdet", "torch.slogdet(x), torch.linalg.slogdet(x)", (3, 3)),
    case("logdet", "torch.logdet(x.diag())", (3,)),
    case("matrix_exp", "torch.matrix_exp(x.float()), torch.linalg.matrix_exp(x.double())", (3, 3)),
    case(
        "istft",
        "torch.istft(torch.stft(x.float(), 8, return_complex=True), 8, window=y)",
        [(40,), (8,)],
    ),
    case("matrix_norm", "torch.linalg.matrix_norm(x), torch.linalg.matrix_norm(x, 1)", (3, 4)),
    case("matrix_norm, nuc", "torch.linalg.matrix_norm(x, 'nuc', (0, 1), True)", (3, 4)),
    case("linalg.norm", "torch.linalg.norm(x), torch.linalg.norm(x, 1, 0)", (3, 4), (3,)),
    case("linalg.norm, fro", "torch.linalg.norm(x, 'fro')", (3, 4)),
    case("linalg.norm, dtype", "torch.linalg.norm(x, dtype=torch.float64)", (3, 4)),
    case("norm", "torch.norm(x), torch.norm(x, 3, 0), torch.norm(x, 'fro', [0, 1])", (3, 4)),
    case("norm, nuc", "torch.norm(x, 'nuc')", (3, 4)),
]  # fmt: skip

# CPU's autocast leaves these alone, or has a kernel of them.
ON_CUDA = [
    case("arccos", "torch.arccos(x), torch.arcsin(x)", (3,)),
    case(
        "special",
        "torch.special.expm1(x), torch.special.log1p(x), torch.special.erfinv(x), "
        "torch.special.logsumexp(x, 0), torch.special.multigammaln(x + 3, 2)",
        (3, 4),
    ),
    case("softmax", "torch.special.softmax(x, 0), torch.special.log_softmax(x, 0)", (3, 4)),
    case("_safe_softmax", "torch.ops.aten._safe_softmax(x, 0)", (3, 4)),
    case("square", "torch.square(x), torch.square(n)", (3, 4)),
    case("arctan2", "torch.arctan2(x, y)", [(3, 4), (3, 4)], [(3, 4), ()]),
    case(
        "index_put",
        "torch.index_put(x, [torch.tensor([0, 2], device=x.device)], y)",
        [(3, 3), (2, 3)],
    ),
    case(
        "_unsafe_index_put",
        "torch.ops.aten._unsafe_index_put(x, [torch.tensor([0, 2], device=x.device)], y)",
        [(3, 3), (2, 3)],
    ),
    case("trace", "torch.trace(x.float())", (3, 4)),
    case("norm_except_dim", "torch.norm_except_dim(x, 2, 1)", (3, 4), (3, 4, 5)),
    case("norm_except_dim, all", "torch.norm_except_dim(x, 2, -1)", (3, 4)),
    case("_weight_norm", "torch._weight_norm(x, y, 1)", [(3, 4, 5), (1, 4, 1)]),
    case("pairwise_distance", "F.pairwise_distance(x, y)", [(3, 4), (3, 4)], [(4,), (3, 4)]),
    case("sum_to_size", "x.sum_to_size([4, 1]), x.sum_to_size([1]), n.sum_to_size([1])", (3, 4, 5)),
    case("ldexp", "torch.ldexp(x, y)", [(3,), (3,)], [(), ()]),
    case("ldexp by integers", "torch.ldexp(x, n)", (3,), ()),
    case("ldexp of integers", "torch.ldexp(n, x), torch.ldexp(n, n)", (3,)),
    case("mvlgamma", "torch.mvlgamma(x + 3, 3)", (3, 4)),
    case("vander", "torch.vander(x), torch.vander(x, 5, True), torch.vander(n)", (4,)),
    case("trapezoid", "torch.trapezoid(x, y), torch.trapz(x, y)", [(2, 3), (3,)], [(2, 3), (2, 3)]),
    case("trapezoid, dx", "torch.trapezoid(x, dx=2, dim=0)", (2, 3), (0, 3)),
    case("trapz, dx", "torch.trapz(x, dx=0.5)", (2, 3), (2, 0)),
    case("cumulative_trapezoid", "torch.cumulative_trapezoid(x, y)", [(2, 3), (3,)]),
    case("cumulative_trapezoid, dx", "torch.cumulative_trapezoid(x, dx=2)", (2, 3)),
    case("cross_entropy", "F.cross_entropy(x, n)", (3, 4)),
    case("cross_entropy, weighted", "F.cross_entropy(x, n, y, ignore_index=2)", [(3, 4), (4,)]),
    case("cross_entropy, each", "F.cross_entropy(x, n.expand(2, 3), reduction='none')", (2, 4, 3)),
    *(
        case(
            f"cross_entropy, smooth, {reduction}",
            f"F.cross_entropy(x, n, y, reduction='{reduction}', label_smoothing=0.1), "
            f"F.cross_entropy(x, n, reduction='{reduction}', label_smoothing=0.1), "
            f"F.cross_entropy(x, z, y, reduction='{reduction}', label_smoothing=0.1)",
            [(3, 4), (4,), (3, 4)],
        )
        for reduction in ("none", "mean", "sum")
    ),
    case("conv1d", "F.conv1d(x, y, z, padding='same')", [(2, 3, 8), (4, 3, 2), (4,)]),
    case("conv2d", "F.conv2d(x, y, None, 2, padding='valid')", [(3, 8, 8), (4, 3, 2, 2)]),
    case("conv3d", "F.conv3d(x, y, z, padding='same')", [(1, 2, 4, 4, 4), (4, 2, 3, 2, 3), (4,)]),
    *(
        case(f"interpolate, {mode}", f"F.interpolate(x, scale_factor=1.5, mode='{mode}')", shape)
        for mode, shape in [
            ("nearest", (1, 2, 4)), ("nearest", (1, 2, 4, 4)), ("nearest", (1, 2, 4, 4, 4)),
            ("nearest-exact", (1, 2, 4)), ("nearest-exact", (1, 2, 4, 4)),
            ("nearest-exact", (1, 2, 4, 4, 4)), ("linear", (1, 2, 4)), ("bilinear", (1, 2, 4, 4)),
            ("trilinear", (1, 2, 4, 4, 4)), ("bicubic", (1, 2, 4, 4)),
        ]
    ),
    *(
        case(
            f"interpolate, {mode}, antialias",
            f"F.interpolate(x, (6, 7), mode='{mode}', antialias=True)",
            (1, 2, 4, 4),
        )
        for mode in ("bilinear", "bicubic")
    ),
    case("pinverse", "torch.pinverse(x)", (3, 4)),
]  # fmt: skip


KERNELS_OF_GPUS = {"torch.ldexp(x, n)"}


def outcome(function: Any, arguments: tuple[Tensor, ...]) -> Any:
    """The result, or None where the call is refused."""
    try:
        with torch.no_grad(), known_warnings_ignored():
            return function(*tree_map(torch.clone, arguments))
    except Exception:  # what an operator raises is its own affair
        return None


def check(case: Case, place: Place, folder: Path) -> None:
    module = case.module(place.scope, folder)
    inputs = case.inputs(place.tensors)
    expected = [outcome(module, arguments) for arguments in inputs]
    assert any(result is not None for result in expected), "eager refuses all"
    with known_warnings_ignored():
        frozen = jit_amp.freeze(module, optimize_numerics=False)
    for arguments, result in zip(inputs, expected, strict=True):
        kinds = ", ".join(str(t.dtype) for t in arguments)
        for _ in range(3):
            assert_same(outcome(frozen, arguments), result, f"without examples, {kinds}")
    for i in (0, len(KINDS) - 1):
        if expected[i] is not None:
            with known_warnings_ignored():
                frozen = jit_amp.freeze(module, example_inputs=inputs[i], optimize_numerics=False)
            assert_same(outcome(frozen, inputs[i]), expected[i], f"with examples, {KINDS[i]}")


CUDA_PLACES = [
    pytest.param(Place("cuda", "cpu"), id="cuda_scope_cpu_tensors"),
    pytest.param(Place("cuda", "cuda"), id="cuda", marks=needs_cuda),
]

pytestmark = pytest.mark.filterwarnings("ignore")  # of the operators, not of ours


@pytest.mark.parametrize("place", [pytest.param(Place("cpu", "cpu"), id="cpu"), *CUDA_PLACES])
@pytest.mark.parametrize("case", ANY)
def test_of_any_device(case: Case, place: Place, tmp_path: Path) -> None:
    check(case, place, tmp_path)


@pytest.mark.parametrize("place", CUDA_PLACES)
@pytest.mark.parametrize("case", ON_CUDA)
def test_of_cuda(case: Case, place: Place, tmp_path: Path) -> None:
    is_pretended = place.tensors == "cuda" and not torch.backends.cuda.is_built()
    if is_pretended and case.call in KERNELS_OF_GPUS:
        pytest.skip("a GPU has a kernel for it, and the pretended device has none")
    check(case, place, tmp_path)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = self.layer(x)
            return y, self.attention(y, y, y)[0]


def test_fused_attention_in_a_scope_for_cuda_takes_tensors_on_cpu() -> None:
    module, x = Attention().eval().requires_grad_(False), torch.rand(2, 5, 16)
    expected = outcome(module, (x,))
    with known_warnings_ignored():
        frozen = jit_amp.freeze(module, optimize_numerics=False)
    for _ in range(3):
        assert_same(frozen(x), expected, "result")


@needs_cuda
@pytest.mark.parametrize(
    "case",
    [
        case(
            "fused attention",
            "torch._native_multi_head_attention(x, x, x, 4, 2, y, y[:, 0], z, z[0])[0]",
            [(1, 3, 4), (12, 4), (4, 4)],
        ),
        case("matrix_exp", "torch.matrix_exp(x.to(torch.bfloat16))", (3, 3)),
        case("conv2d", "F.conv2d(x + 1j, y + 1j, padding='same')", [(1, 2, 4, 4), (2, 2, 3, 3)]),
    ],
)
def test_what_cannot_be_exported_is_refused_when_called(case: Case, tmp_path: Path) -> None:
    frozen = jit_amp.freeze(case.module("cuda", tmp_path))
    with pytest.raises(torch.jit.Error, match="inside autocast cannot be exported"):
        frozen(*case.inputs("cuda")[0])


def test_each_definition_takes_what_its_operator_takes() -> None:
    schemas = {
        (schema.name, schema.overload_name): len(schema.arguments)
        for schema in torch._C._jit_get_all_schemas()
    }
    seen = 0
    for source in SOURCES.glob("*.py"):
        for function in ast.parse(source.read_text()).body:
            assert isinstance(function, ast.FunctionDef)
            name = function.name
            stem, _, overload = name[1:].partition("__")
            operator = f"aten::{name[0]}{stem}"
            taken = len(function.args.args)
            if overload or (operator, "") in schemas:
                assert schemas.get((operator, overload)) == taken, f"{source.name}: {name}"
                seen += 1
    assert seen > 80
