"""e3nn: equivariant layers and networks, with e3nn.util.jit.script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import e3nn
import torch
from catalog import Calls, Model
from e3nn import nn as e3nn_nn
from e3nn import o3
from e3nn.nn.models.v2106.points_convolution import Convolution
from e3nn.util import jit as e3nn_jit
from torch import Tensor, nn
from ways import Args, Own, declared

# Otherwise parts of each module are compiled when it is made, and PyTorch's compiler puts casts of
# its own into them where autocast is on: eager would not be eager.
e3nn.set_optimization_defaults(jit_script_fx=False)

_SCALARS, _MIXED, _SH = "8x0e", "8x0e + 4x1o + 2x2e", "0e + 1o + 2e"


class _Script(Own):
    def compile(self, jit: Any, model: nn.Module, example: Args) -> Any:
        with self.through(jit):
            return e3nn_jit.script(model, in_place=False)

    def scoped(self, model: nn.Module, plain: Any, example: Args) -> nn.Module:
        return declared(model, plain, example)


class _Network(nn.Module):
    """Two convolutions over points, with gates, as in the documentation."""

    def __init__(self) -> None:
        super().__init__()
        self.lmax = 2
        gate = e3nn_nn.Gate("8x0e", [torch.nn.functional.silu], "4x0e", [torch.sigmoid], "4x1o")
        sh = o3.Irreps.spherical_harmonics(self.lmax)
        self.first = Convolution("4x0e", "1x0e", sh, gate.irreps_in, [6, 16], 4.0)
        self.gate = gate
        self.last = Convolution(gate.irreps_out, "1x0e", sh, "2x0e + 1x1o", [6, 16], 4.0)
        self.register_buffer("centers", torch.linspace(0.0, 4.0, 6))
        self.harmonics = o3.SphericalHarmonics(sh, True, "component")

    def forward(self, pos: Tensor, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        vectors = pos[source] - pos[target]
        sh = self.harmonics(vectors)
        lengths = torch.exp(-(vectors.square().sum(1, keepdim=True).sqrt() - self.centers).square())
        z = torch.ones_like(x[:, :1])
        x = self.gate(self.first(x, z, source, target, sh, lengths))
        return self.last(x, z, source, target, sh, lengths)


def _features(irreps: str) -> Callable[[int], Args]:
    return lambda n: (torch.randn(n, o3.Irreps(irreps).dim),)


def _pair(n: int) -> Args:
    return torch.randn(n, o3.Irreps(_MIXED).dim), torch.randn(n, o3.Irreps(_SH).dim)


def _weighted(n: int) -> Args:
    product = o3.FullyConnectedTensorProduct(_MIXED, _SH, _SCALARS, shared_weights=False)
    return (*_pair(n), torch.randn(n, product.weight_numel))


def _points(n: int) -> Args:
    edges = torch.randint(n, (2, 4 * n))
    edges[1] = (edges[0] + 1 + edges[1] % (n - 1)) % n
    return torch.randn(n, 3), torch.randn(n, 4), edges


_MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Args]]] = {
    "ElementwiseTensorProduct": (
        lambda: o3.ElementwiseTensorProduct("8x0e + 4x1o", "8x0e + 4x0e"),
        lambda n: (torch.randn(n, 20), torch.randn(n, 12)),
    ),
    "Extract": (
        lambda: e3nn_nn.Extract(_MIXED, ["8x0e", "2x2e"], [(0,), (2,)]), _features(_MIXED)
    ),
    "FullTensorProduct": (lambda: o3.FullTensorProduct(_MIXED, _SH), _pair),
    "FullyConnectedNet": (
        lambda: e3nn_nn.FullyConnectedNet([8, 16, 16, 4], torch.nn.functional.silu),
        _features(_SCALARS),
    ),
    "FullyConnectedTensorProduct": (
        lambda: o3.FullyConnectedTensorProduct(_MIXED, _SH, _MIXED), _pair
    ),
    "FullyConnectedTensorProduct, weights given": (
        lambda: o3.FullyConnectedTensorProduct(_MIXED, _SH, _SCALARS, shared_weights=False),
        _weighted,
    ),
    "Gate": (
        lambda: e3nn_nn.Gate(
            "8x0e", [torch.nn.functional.silu], "4x0e", [torch.sigmoid], "4x1o"
        ),
        _features("8x0e + 4x0e + 4x1o"),
    ),
    "Linear": (lambda: o3.Linear(_MIXED, _MIXED, biases=True), _features(_MIXED)),
    "Norm": (lambda: o3.Norm(_MIXED), _features(_MIXED)),
    "NormActivation": (
        lambda: e3nn_nn.NormActivation(o3.Irreps(_MIXED), torch.sigmoid, bias=True),
        _features(_MIXED),
    ),
    "SphericalHarmonics": (
        lambda: o3.SphericalHarmonics([0, 1, 2, 3], True, "component"), _features("1o")
    ),
    "convolution network": (_Network, _points),
}  # fmt: skip


def models() -> Iterator[Model]:
    for name, (build, args) in _MODULES.items():
        calls = Calls(args(6), (args(2), args(9)))
        yield Model("e3nn", name, "e3nn", build, lambda _, calls=calls: [calls], _Script())
