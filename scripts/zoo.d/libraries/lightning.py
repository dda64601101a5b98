"""lightning: modules with LightningModule.to_torchscript(), a training step, traced, and what the
precisions of Fabric and of the Trainer put around a module."""

from __future__ import annotations

# Before torchvision, which torchmetrics imports.
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator
from typing import Any

import lightning
import torch
from catalog import Calls, Model
from lightning.fabric import Fabric
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor, nn
from ways import Args, Prepared, ToTorchScript, Trace


class _Autoencoder(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.example_input_array = torch.zeros(1, 28 * 28)
        self.encoder = nn.Sequential(nn.Linear(28 * 28, 32), nn.ReLU(), nn.Linear(32, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 28 * 28))

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        return nn.functional.mse_loss(self(batch), batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters())


class _Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(4)
        )
        self.head = nn.Linear(128, 10)
        self.loss = nn.CrossEntropyLoss()
        self.register_buffer("mean", torch.tensor(0.1307))

    def forward(self, x: Tensor) -> Tensor:
        x = self.features((x - self.mean).view(-1, 1, 28, 28))
        return torch.log_softmax(self.head(x.flatten(1)), 1)

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        self.log("loss", self.loss(self(batch[0]), batch[1]))


class _Recurrent(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 16, 2, batch_first=True)
        self.head = nn.Linear(16, 50)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(ids))[0])


class _Transformer(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 50)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(ids)))


class _Generator(lightning.LightningModule):
    """One of two networks that are trained together."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(
            nn.Linear(8, 32), nn.BatchNorm1d(32), nn.LeakyReLU(0.2), nn.Linear(32, 64), nn.Tanh()
        )
        self.discriminator = nn.Sequential(nn.Linear(64, 1), nn.Sigmoid())

    def forward(self, z: Tensor) -> Tensor:
        return self.generator(z).view(-1, 1, 8, 8)


class _Within(lightning.LightningModule):
    """A module that another LightningModule holds, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = _Autoencoder()
        self.second = self.first

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) + self.second(x * 2)


class _Images(nn.Module):
    """No LightningModule: Fabric takes any module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x.view(-1, 1, 28, 28))).relu()
        return self.head(x.mean((2, 3)))


class _Texts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.gru = nn.Embedding(50, 16), nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 50)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.gru(self.embed(ids))[0]).log_softmax(-1)


class _Step(nn.Module):
    """What a Trainer calls in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.module = _Autoencoder()

    def forward(self, batch: Tensor) -> Tensor:
        return self.module.training_step(batch, 0)


def _set_up(build: Callable[[], nn.Module]) -> Any:
    """What Fabric makes of a module: one that holds it, and enters the precision's context."""
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    return fabric.setup_module(build())


def _images(count: int) -> Args:
    return (torch.rand(count, 28 * 28),)


def _ids(count: int) -> Args:
    return (torch.randint(50, (count, 5 + count)),)


def _noise(count: int) -> Args:
    return (torch.randn(count, 8),)


_MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Args]]] = {
    "autoencoder": (_Autoencoder, _images),
    "classifier": (_Classifier, _images),
    "generator": (_Generator, _noise),
    "recurrent": (_Recurrent, _ids),
    "transformer": (_Transformer, _ids),
    "within": (_Within, _images),
}


def models() -> Iterator[Model]:
    for method in ("script", "trace"):
        for name, (build, args) in _MODULES.items():
            calls = Calls(args(3), (args(1), args(4)))
            yield Model(
                "lightning", f"{name}, {method}", "lightning", build,
                lambda _, calls=calls: [calls], ToTorchScript(lightning.LightningModule, method),
            )  # fmt: skip
    calls = Calls(_images(3), (_images(4),))
    yield Model("lightning", "training step", "lightning", _Step, lambda _: [calls], Trace())
    precision = MixedPrecision("bf16-mixed", "cpu").autocast_context_manager
    plain: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Args]]] = {
        "images": (_Images, _images),
        "texts": (_Texts, _ids),
    }
    for name, (build, args) in plain.items():
        calls = Calls(args(3), (args(1), args(4)))
        for door in ("script", "install", "trace"):
            yield Model(
                "lightning", f"{name} of Fabric, {door}", "prepared",
                lambda build=build: _set_up(build),
                lambda _, calls=calls: [calls], Prepared(door, lambda model: model.module),
            )  # fmt: skip
        yield Model(
            "lightning", f"{name} in the Trainer's precision", "prepared", build,
            lambda _, calls=calls: [calls], Prepared("script", around=precision),
        )  # fmt: skip
