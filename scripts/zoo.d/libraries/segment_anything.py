"""segment-anything: its encoders and its decoder, small, traced."""

from __future__ import annotations

# Before torchvision.
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator

import torch
from catalog import Calls, Model
from segment_anything.modeling import (
    ImageEncoderViT,
    MaskDecoder,
    PromptEncoder,
    TwoWayTransformer,
)
from torch import Tensor, nn
from ways import Args, Trace


class _Masks(nn.Module):
    """Masks from an image's features and points, as its ONNX export has it."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts = PromptEncoder(32, (8, 8), (64, 64), 8)
        self.decoder = _decoder()

    def forward(self, image: Tensor, points: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        sparse, dense = self.prompts((points, labels), None, None)
        return self.decoder(image, self.prompts.get_dense_pe(), sparse, dense, True)


def _decoder() -> nn.Module:
    transformer = TwoWayTransformer(depth=1, embedding_dim=32, mlp_dim=64, num_heads=2)
    return MaskDecoder(transformer_dim=32, transformer=transformer, iou_head_hidden_dim=32)


def _encoder(**options: object) -> nn.Module:
    return ImageEncoderViT(
        img_size=64, patch_size=8, embed_dim=32, depth=2, num_heads=2, out_chans=32, **options
    )


def _image(count: int) -> Args:
    return (torch.rand(count, 3, 64, 64),)


def _points(count: int) -> Args:
    return torch.randn(1, 32, 8, 8), torch.rand(1, count, 2) * 64, torch.ones(1, count)


_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Args]]] = {
    "image encoder": (_encoder, _image),
    "image encoder, windows": (
        lambda: _encoder(window_size=4, global_attn_indexes=(1,), use_rel_pos=True),
        _image,
    ),
    "masks": (_Masks, _points),
}


def models() -> Iterator[Model]:
    for name, (build, args) in _MODELS.items():
        calls = Calls(args(2), (args(1), args(3)))
        yield Model(
            "segment_anything", name, "images", build, lambda _, calls=calls: [calls], Trace()
        )
