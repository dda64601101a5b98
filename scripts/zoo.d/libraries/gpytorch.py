"""gpytorch: kernels, means and predictions of Gaussian processes, traced as its pages do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gpytorch
import torch
from catalog import Calls, Model
from gpytorch.kernels import (
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from torch import Tensor, nn
from ways import Trace


class _Covariance(nn.Module):
    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: Tensor) -> Tensor:
        return self.kernel(x).to_dense()


class _Deep(nn.Module):
    """A kernel of what a network makes of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
        self.kernel = ScaleKernel(RBFKernel(ard_num_dims=2))

    def forward(self, x: Tensor) -> Tensor:
        return self.kernel(self.net(x)).to_dense()


class _Exact(gpytorch.models.ExactGP):
    def __init__(self) -> None:
        x = torch.rand(8, 3)
        super().__init__(x, x.sum(1), gpytorch.likelihoods.GaussianLikelihood())
        self.mean, self.kernel = gpytorch.means.LinearMean(3), ScaleKernel(RBFKernel())

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


class _Prediction(nn.Module):
    """The mean and the variance, as its documentation traces them."""

    def __init__(self) -> None:
        super().__init__()
        self.process = _Exact()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with gpytorch.settings.fast_pred_var(), gpytorch.settings.trace_mode():
            found = self.process(x)
            return found.mean, found.variance


_KERNELS: dict[str, Callable[[], nn.Module]] = {
    "RBF": lambda: ScaleKernel(RBFKernel(ard_num_dims=3)),
    "Matern": lambda: ScaleKernel(MaternKernel(nu=2.5)),
    "rational quadratic": RQKernel,
    "periodic": PeriodicKernel,
    "cosine": CosineKernel,
    "linear": LinearKernel,
    "polynomial": lambda: PolynomialKernel(power=2),
}


def models() -> Iterator[Model]:
    calls = Calls((torch.rand(5, 3),), ((torch.rand(2, 3),), (torch.rand(9, 3),)))

    def called(_: nn.Module) -> list[Calls]:
        return [calls]

    for name, kernel in _KERNELS.items():
        yield Model(
            "gpytorch", name, "kernels", lambda kernel=kernel: _Covariance(kernel()), called,
            Trace(check_trace=False),
        )  # fmt: skip
    yield Model("gpytorch", "deep kernel", "kernels", _Deep, called, Trace(check_trace=False))
    yield Model(
        "gpytorch", "prediction", "processes", _Prediction, called, Trace(check_trace=False)
    )
