"""diffusers: the networks of diffusion models, small, traced."""

from __future__ import annotations

# Before torchvision and torchaudio, which transformers imports.
import torchaudio_extension  # noqa: F401  # isort: skip
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator
from typing import Any

import diffusers
import torch
from catalog import Calls, Model
from torch import Tensor, nn
from ways import Args, ByName, Trace


def _step(batch: int) -> Tensor:
    return torch.randint(0, 1000, (batch,))


def _text(batch: int, width: int = 16) -> Tensor:
    return torch.randn(batch, 5, width)


def _noise(batch: int, side: int) -> Args:
    return torch.randn(batch, 4, side, side), _step(batch)


def _noise_and_text(batch: int, side: int) -> Args:
    return *_noise(batch, side), _text(batch)


def _noise_and_class(batch: int, side: int) -> Args:
    return *_noise(batch, 16), torch.randint(0, 10, (batch,))


def _control(batch: int, side: int) -> Args:
    return *_noise_and_text(batch, side), torch.rand(batch, 3, 8 * side, 8 * side)


def _prompt(batch: int, side: int) -> Args:
    return *_noise_and_text(batch, side), torch.randn(batch, 16)


def _frames(batch: int, side: int) -> Args:
    return torch.randn(batch, 4, 3, side, side), _step(batch), _text(batch)


def _image(batch: int, side: int) -> Args:
    return (torch.rand(batch, 3, 2 * side, 2 * side),)


_BLOCKS = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1}
_DOWN = ("CrossAttnDownBlock2D", "DownBlock2D")
_UP = ("UpBlock2D", "CrossAttnUpBlock2D")
_CONDITION = {**_BLOCKS, "cross_attention_dim": 16, "attention_head_dim": 4}
_HEADS = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2}
_NAMES = {
    _noise: ("sample", "timestep"),
    _noise_and_text: ("sample", "timestep", "encoder_hidden_states"),
    _noise_and_class: ("hidden_states", "timestep", "class_labels"),
    _control: ("sample", "timestep", "encoder_hidden_states", "controlnet_cond"),
    _prompt: ("hidden_states", "timestep", "encoder_hidden_states", "pooled_projections"),
    _frames: ("sample", "timestep", "encoder_hidden_states"),
    _image: ("sample",),
}
_MODELS: dict[str, tuple[dict[str, Any], Callable[[int, int], Args]]] = {
    "UNet2DModel": (
        {**_BLOCKS, "in_channels": 4, "out_channels": 4, "attention_head_dim": 4,
         "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
         "up_block_types": ("AttnUpBlock2D", "UpBlock2D")},
        _noise,
    ),
    "UNet2DConditionModel": (
        {**_CONDITION, "down_block_types": _DOWN, "up_block_types": _UP}, _noise_and_text
    ),
    "UNet3DConditionModel": (
        {**_CONDITION, "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
         "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D")},
        _frames,
    ),
    "ControlNetModel": (
        {**_CONDITION, "down_block_types": _DOWN,
         "conditioning_embedding_out_channels": (8, 8, 16, 16)},
        _control,
    ),
    "AutoencoderKL": (
        {**_BLOCKS, "down_block_types": ("DownEncoderBlock2D",) * 2,
         "up_block_types": ("UpDecoderBlock2D",) * 2},
        _image,
    ),
    "AutoencoderTiny": (
        {"encoder_block_out_channels": (8, 8, 8, 8), "decoder_block_out_channels": (8, 8, 8, 8),
         "num_encoder_blocks": (1, 1, 1, 1), "num_decoder_blocks": (1, 1, 1, 1)},
        _image,
    ),
    "VQModel": (
        {**_BLOCKS, "num_vq_embeddings": 32, "down_block_types": ("DownEncoderBlock2D",) * 2,
         "up_block_types": ("UpDecoderBlock2D",) * 2},
        _image,
    ),
    "DiTTransformer2DModel": (
        {**_HEADS, "in_channels": 4, "out_channels": 8, "sample_size": 16, "patch_size": 2,
         "num_embeds_ada_norm": 1000},
        _noise_and_class,
    ),
    "SD3Transformer2DModel": (
        {**_HEADS, "in_channels": 4, "out_channels": 4, "sample_size": 16,
         "joint_attention_dim": 16, "caption_projection_dim": 16, "pooled_projection_dim": 16,
         "pos_embed_max_size": 16},
        _prompt,
    ),
}  # fmt: skip


def _model(name: str, options: dict[str, Any], args: Callable[[int, int], Args]) -> Model:
    def build() -> nn.Module:
        return ByName(getattr(diffusers, name)(**options), _NAMES[args], return_dict=False)

    calls = Calls(args(2, 16), (args(3, 16), args(2, 24)))
    return Model("diffusers", name, args.__name__, build, lambda _: [calls], Trace())


def models() -> Iterator[Model]:
    for name, described in _MODELS.items():
        yield _model(name, *described)
