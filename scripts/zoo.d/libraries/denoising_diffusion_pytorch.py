"""denoising-diffusion-pytorch: the networks of diffusion models, small, traced."""

from __future__ import annotations

# Before torchvision.
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator

import torch
from catalog import Calls, Model
from denoising_diffusion_pytorch import Unet, Unet1D
from denoising_diffusion_pytorch.karras_unet import KarrasUnet
from torch import nn
from ways import Args, Trace


def _step(count: int) -> torch.Tensor:
    return torch.randint(0, 1000, (count,))


def _images(count: int) -> Args:
    return torch.randn(count, 3, 16, 16), _step(count)


_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Args]]] = {
    "Unet": (lambda: Unet(16, dim_mults=(1, 2)), _images),
    "Unet, random Fourier features": (
        lambda: Unet(16, dim_mults=(1, 2), random_fourier_features=True),
        _images,
    ),
    "Unet, flash attention": (lambda: Unet(16, dim_mults=(1, 2), flash_attn=True), _images),
    "Unet1D": (
        lambda: Unet1D(16, dim_mults=(1, 2), channels=4),
        lambda n: (torch.randn(n, 4, 32), _step(n)),
    ),
    "KarrasUnet": (
        lambda: KarrasUnet(
            image_size=16, dim=16, dim_max=32, num_downsamples=1, num_blocks_per_stage=1,
            attn_dim_head=8, attn_res=(8,), fourier_dim=8,
        ),
        lambda n: (torch.randn(n, 4, 16, 16), torch.rand(n)),
    ),
}  # fmt: skip


def models() -> Iterator[Model]:
    for name, (build, args) in _MODELS.items():
        calls = Calls(args(2), (args(1), args(3)))
        yield Model(
            "denoising_diffusion_pytorch", name, "diffusion", build,
            lambda _, calls=calls: [calls], Trace(),
        )  # fmt: skip
