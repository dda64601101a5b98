"""x-transformers: encoders, decoders and their variants, small, traced."""

from __future__ import annotations

# Before torchvision and torchaudio.
import torchaudio_extension  # noqa: F401  # isort: skip
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator

import torch
from catalog import Calls, Model
from torch import nn
from ways import Args, Trace
from x_transformers import (
    ContinuousTransformerWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)


def _texts(layers: nn.Module, **options: object) -> nn.Module:
    return TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=layers, **options)


def _ids(count: int) -> Args:
    return (torch.randint(50, (count, 8)),)


_DECODERS: dict[str, dict[str, object]] = {
    "decoder": {},
    "decoder, rotary": {"rotary_pos_emb": True},
    "decoder, alibi": {"alibi_pos_bias": True},
    "decoder, RMS norm and GLU": {"use_rmsnorm": True, "ff_glu": True, "ff_swish": True},
    "decoder, QK norm": {"attn_qk_norm": True},
    "decoder, grouped keys": {"attn_kv_heads": 1},
    "decoder, T5 bias": {"rel_pos_bias": True},
    "decoder, sandwich norm": {"sandwich_norm": True},
}


def _decoder(options: dict[str, object]) -> Callable[[], nn.Module]:
    return lambda: _texts(Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, **options))


def _encoder() -> nn.Module:
    return _texts(Encoder(dim=32, depth=2, heads=2, attn_dim_head=16))


def _vit() -> nn.Module:
    layers = Encoder(dim=32, depth=2, heads=2, attn_dim_head=16)
    return ViTransformerWrapper(image_size=32, patch_size=8, num_classes=10, attn_layers=layers)


def _continuous() -> nn.Module:
    layers = Encoder(dim=32, depth=2, heads=2, attn_dim_head=16)
    return ContinuousTransformerWrapper(
        dim_in=6, dim_out=4, max_seq_len=16, attn_layers=layers, use_abs_pos_emb=True
    )


class _Pair(nn.Module):
    """The logits of an encoder and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = XTransformer(
            dim=32, enc_num_tokens=50, enc_depth=1, enc_heads=2, enc_max_seq_len=16,
            dec_num_tokens=50, dec_depth=1, dec_heads=2, dec_max_seq_len=16,
        )  # fmt: skip

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        seen = self.pair.encoder(source, return_embeddings=True)
        return self.pair.decoder.net(target, context=seen)


_MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Args]]] = {
    **{name: (_decoder(options), _ids) for name, options in _DECODERS.items()},
    "encoder": (_encoder, _ids),
    "ViT": (_vit, lambda n: (torch.rand(n, 3, 32, 32),)),
    "continuous": (_continuous, lambda n: (torch.randn(n, 8, 6),)),
    "encoder and decoder": (_Pair, lambda n: (*_ids(n), *_ids(n))),
}


def models() -> Iterator[Model]:
    for name, (build, args) in _MODELS.items():
        calls = Calls(args(2), (args(1), args(3)))
        yield Model(
            "x_transformers", name, "transformers", build, lambda _, calls=calls: [calls], Trace()
        )
