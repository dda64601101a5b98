"""nflows: densities and samples of flows, traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from catalog import Calls, Model
from nflows import transforms
from nflows.distributions import StandardNormal
from nflows.flows import Flow, MaskedAutoregressiveFlow, SimpleRealNVP
from nflows.nn.nets import ResidualNet
from torch import Tensor, nn
from ways import Trace


class _Density(nn.Module):
    def __init__(self, flow: nn.Module) -> None:
        super().__init__()
        self.flow = flow

    def forward(self, inputs: Tensor) -> Tensor:
        return self.flow.log_prob(inputs)


class _Inverse(nn.Module):
    """From noise to samples."""

    def __init__(self, flow: nn.Module) -> None:
        super().__init__()
        self.flow = flow

    def forward(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        return self.flow._transform.inverse(noise)


def _nvp() -> nn.Module:
    return SimpleRealNVP(6, 16, 2, 2, batch_norm_between_layers=True)


def _autoregressive() -> nn.Module:
    return MaskedAutoregressiveFlow(6, 16, 2, 2, batch_norm_between_layers=True)


def _of(*steps: nn.Module) -> nn.Module:
    return Flow(transforms.CompositeTransform(steps), StandardNormal([6]))


def _coupling(kind: type, **options: object) -> nn.Module:
    mask = torch.tensor([1, -1] * 3)
    return kind(mask, lambda i, o: ResidualNet(i, o, hidden_features=16), **options)


_FLOWS: dict[str, Callable[[], nn.Module]] = {
    "SimpleRealNVP": lambda: _Density(_nvp()),
    "SimpleRealNVP, inverse": lambda: _Inverse(_nvp()),
    "MaskedAutoregressiveFlow": lambda: _Density(_autoregressive()),
    "MaskedAutoregressiveFlow, inverse": lambda: _Inverse(_autoregressive()),
    "linear": lambda: _Density(
        _of(transforms.LULinear(6), transforms.RandomPermutation(6), transforms.ActNorm(6))
    ),
    "affine coupling": lambda: _Density(
        _of(_coupling(transforms.AffineCouplingTransform), transforms.ReversePermutation(6))
    ),
    "quadratic splines": lambda: _Density(
        _of(_coupling(transforms.PiecewiseQuadraticCouplingTransform, tails="linear"))
    ),
    "rational quadratic splines": lambda: _Density(
        _of(_coupling(transforms.PiecewiseRationalQuadraticCouplingTransform, tails="linear"))
    ),
    "orthogonal": lambda: _Density(_of(transforms.HouseholderSequence(6, 4), transforms.Tanh())),
}


def models() -> Iterator[Model]:
    def calls(_: nn.Module) -> list[Calls]:
        def args(count: int) -> tuple[Tensor]:
            return (torch.randn(count, 6).clamp(-0.9, 0.9),)

        return [Calls(args(5), (args(1), args(8)))]

    for name, build in _FLOWS.items():
        yield Model("nflows", name, "flows", build, calls, Trace())
