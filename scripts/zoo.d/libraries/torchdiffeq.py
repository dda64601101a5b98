"""torchdiffeq: networks that are solved as differential equations, traced with fixed steps."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from catalog import Calls, Model
from torch import Tensor, nn
from torchdiffeq import odeint
from ways import Trace


class _Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.net(torch.cat([y, t.expand(y.shape[0], 1)], 1))


class _Flow(nn.Module):
    """Where a point is after a second."""

    def __init__(self, method: str, **options: object) -> None:
        super().__init__()
        self.field, self.method, self.options = _Field(), method, options
        self.register_buffer("times", torch.linspace(0, 1, 5))

    def forward(self, y: Tensor) -> Tensor:
        return odeint(self.field, y, self.times, method=self.method, options=self.options)[-1]


class _Classifier(nn.Module):
    """With layers before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.flow, self.head = nn.Linear(6, 2), _Flow("rk4"), nn.Linear(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.flow(self.down(x).float()))


def models() -> Iterator[Model]:
    calls = Calls((torch.randn(4, 2),), ((torch.randn(1, 2),), (torch.randn(7, 2),)))
    for method in ("euler", "midpoint", "rk4", "heun3", "explicit_adams", "implicit_adams"):
        yield Model(
            "torchdiffeq", method, "equations", lambda method=method: _Flow(method),
            lambda _: [calls], Trace(),
        )  # fmt: skip
    wide = Calls((torch.randn(4, 6),), ((torch.randn(1, 6),), (torch.randn(7, 6),)))
    yield Model("torchdiffeq", "classifier", "equations", _Classifier, lambda _: [wide], Trace())
