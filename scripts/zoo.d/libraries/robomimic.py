"""robomimic: networks of robots that learn from demonstrations, small, traced."""

from __future__ import annotations

# Before torchvision.
import torchvision_extension  # noqa: F401  # isort: skip

from collections import OrderedDict
from collections.abc import Callable, Iterator

import torch
from catalog import Calls, Model
from robomimic.models.base_nets import (
    MLP,
    Conv1dBase,
    CoordConv2d,
    ResNet18Conv,
    RNN_Base,
    ShallowConv,
    SpatialSoftmax,
)
from robomimic.models.obs_nets import MIMO_MLP
from robomimic.models.transformers import GPT_Backbone
from robomimic.utils.obs_utils import initialize_obs_utils_with_obs_specs
from torch import Tensor, nn
from ways import Args, Trace


class _Observed(nn.Module):
    """Groups of observations by their names, as the actors take them."""

    def __init__(self) -> None:
        super().__init__()
        initialize_obs_utils_with_obs_specs({"obs": {"low_dim": ["joints", "gripper"]}})
        self.net = MIMO_MLP(
            input_obs_group_shapes=OrderedDict(obs=OrderedDict(joints=(6,), gripper=(2,))),
            output_shapes=OrderedDict(action=(7,)),
            layer_dims=[16, 16],
        )

    def forward(self, joints: Tensor, gripper: Tensor) -> Tensor:
        return self.net(obs={"joints": joints, "gripper": gripper})["action"]


class _Recurrent(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.net = RNN_Base(6, 16, 2, rnn_type=kind, per_step_net=MLP(16, 4, (16,)))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def _images(count: int) -> Args:
    return (torch.rand(count, 3, 32, 32),)


_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Args]]] = {
    "MLP": (lambda: MLP(6, 4, (16, 16), normalization=True), lambda n: (torch.randn(n, 6),)),
    "LSTM": (lambda: _Recurrent("LSTM"), lambda n: (torch.randn(n, 5, 6),)),
    "GRU": (lambda: _Recurrent("GRU"), lambda n: (torch.randn(n, 5, 6),)),
    "GPT": (
        lambda: GPT_Backbone(16, 8, num_layers=2, num_heads=2), lambda n: (torch.randn(n, 8, 16),)
    ),
    "observations": (_Observed, lambda n: (torch.randn(n, 6), torch.randn(n, 2))),
    "ResNet18": (lambda: ResNet18Conv(3, pretrained=False), _images),
    "ShallowConv": (lambda: ShallowConv(3, 8), _images),
    "Conv1d": (
        lambda: Conv1dBase(4, out_channels=(8, 8), kernel_size=(3, 3), stride=(1, 1)),
        lambda n: (torch.randn(n, 4, 16),),
    ),
    "CoordConv": (lambda: CoordConv2d(3, 8, 3), _images),
    "SpatialSoftmax": (
        lambda: SpatialSoftmax((8, 6, 6), num_kp=4), lambda n: (torch.rand(n, 8, 6, 6),)
    ),
}  # fmt: skip


def models() -> Iterator[Model]:
    for name, (build, args) in _MODELS.items():
        calls = Calls(args(2), (args(1), args(3)))
        yield Model("robomimic", name, "robots", build, lambda _, calls=calls: [calls], Trace())
