"""rsl_rl: policies of legged robots, scripted as it exports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from catalog import Calls, Model
from rsl_rl.models import CNNModel, MLPModel, RNNModel
from tensordict import TensorDict
from torch import Tensor, nn
from ways import Args, Script, ScriptInScope

_GROUPS = {"actor": ["joints", "command"]}


def _seen() -> TensorDict:
    return TensorDict({"joints": torch.randn(2, 12), "command": torch.randn(2, 3)}, [2])


def _pictures() -> TensorDict:
    return TensorDict({"joints": torch.randn(2, 12), "camera": torch.randn(2, 1, 16, 16)}, [2])


def _mlp(**options: object) -> nn.Module:
    return MLPModel(_seen(), _GROUPS, "actor", 4, (16, 16), **options).as_jit()


def _gaussian() -> nn.Module:
    made = {"class_name": "rsl_rl.modules.distribution:GaussianDistribution", "init_std": 1.0}
    return _mlp(obs_normalization=True, distribution_cfg=made)


def _rnn(kind: str) -> nn.Module:
    return RNNModel(
        _seen(), _GROUPS, "actor", 4, (16, 16), rnn_type=kind, rnn_hidden_dim=16, rnn_num_layers=1
    ).as_jit()


def _cnn() -> nn.Module:
    groups = {"actor": ["joints", "camera"]}
    layers = {"output_channels": [4, 4], "kernel_size": 3}
    return CNNModel(_pictures(), groups, "actor", 4, (16,), cnn_cfg=layers).as_jit()


class _WithoutState(nn.Module):
    """A recurrent policy's steps, each from the beginning."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.policy = _rnn(kind)

    def forward(self, x: Tensor) -> Tensor:
        self.policy.reset()
        return self.policy(x)


def _one(count: int) -> Args:
    return (torch.randn(count, 15),)


_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Args]]] = {
    "MLP": (_mlp, _one),
    "MLP, normalised": (lambda: _mlp(obs_normalization=True), _one),
    "MLP, of a Gaussian": (_gaussian, _one),
    "LSTM": (lambda: _WithoutState("lstm"), lambda n: _one(1)),
    "GRU": (lambda: _WithoutState("gru"), lambda n: _one(1)),
    "CNN": (_cnn, lambda n: (torch.randn(n, 12), [torch.randn(n, 1, 16, 16)])),
}


def models() -> Iterator[Model]:
    for name, (build, args) in _MODELS.items():
        for way in (Script(), ScriptInScope()):
            calls = Calls(args(2), (args(1), args(4)))
            label = ", autocast=" if isinstance(way, ScriptInScope) else ""
            yield Model(
                "rsl_rl", f"{name}{label}", "robots", build, lambda _, calls=calls: [calls], way
            )
