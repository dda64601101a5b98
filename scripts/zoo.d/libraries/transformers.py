"""transformers: small models of many architectures, traced."""

from __future__ import annotations

# Before torchvision and torchaudio, which transformers imports.
import torchaudio_extension  # noqa: F401  # isort: skip
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from catalog import Calls, Model
from torch import Tensor, nn
from ways import Args, ByName, Trace

_TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_DECODER = {**_TEXT, "num_key_value_heads": 2, "use_cache": False, "bos_token_id": 1}
_SEQUENCES = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "max_position_embeddings": 64,
    "use_cache": False,
}
_VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "image_size": 32,
    "patch_size": 8,
}
_DISENTANGLED = {**_TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
_WINDOWS = {
    "image_size": 64,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}
_AUDIO = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "conv_dim": (16, 16, 16),
    "conv_stride": (4, 4, 2),
    "conv_kernel": (8, 4, 4),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 32,
}


def _ids(batch: int, length: int) -> Tensor:
    return torch.randint(3, 99, (batch, length))


def _ids_alone(batch: int, length: int) -> Args:
    return (_ids(batch, length),)


def _text(batch: int, length: int) -> Args:
    """With a mask in which the last tokens of the first sequence are padding."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, -2:] = 0
    return _ids(batch, length), mask


def _text_to_text(batch: int, length: int) -> Args:
    return (*_text(batch, length), _ids(batch, 5))


def _image(batch: int, length: int) -> Args:
    return (torch.rand(batch, 3, 32, 32),)


def _large_image(batch: int, length: int) -> Args:
    return (torch.rand(batch, 3, 64, 64),)


def _wave(batch: int, length: int) -> Args:
    return (torch.randn(batch, 200 * length),)


def _text_and_image(batch: int, length: int) -> Args:
    return (_ids(batch, length), torch.rand(batch, 3, 32, 32))


def _mel(batch: int, length: int) -> Args:
    return torch.randn(batch, 16, 40), _ids(batch, length)


# What is built, of which configuration, and what it takes.
_MODELS: dict[str, tuple[str, dict[str, Any], Callable[[int, int], Args]]] = {
    "AlbertModel": ("AlbertConfig", {**_TEXT, "embedding_size": 16}, _text),
    "BertForMaskedLM": ("BertConfig", _TEXT, _text),
    "BertForSequenceClassification": ("BertConfig", _TEXT, _text),
    "BertModel": ("BertConfig", _TEXT, _text),
    "DebertaModel": (
        "DebertaConfig", _DISENTANGLED, _text
    ),
    "DebertaV2Model": (
        "DebertaV2Config",
        {**_DISENTANGLED, "position_buckets": 8},
        _text,
    ),
    "DistilBertModel": (
        "DistilBertConfig",
        {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37}, _text,
    ),
    "ElectraModel": ("ElectraConfig", {**_TEXT, "embedding_size": 16}, _text),
    "FNetModel": ("FNetConfig", _TEXT, _ids_alone),
    "LayoutLMModel": ("LayoutLMConfig", _TEXT, _ids_alone),
    "MobileBertModel": (
        "MobileBertConfig",
        {**_TEXT, "embedding_size": 16, "true_hidden_size": 16, "intra_bottleneck_size": 16}, _text,
    ),
    "ModernBertModel": (
        "ModernBertConfig", {**_TEXT, "global_attn_every_n_layers": 2, "local_attention": 8}, _text
    ),
    "MPNetModel": ("MPNetConfig", _TEXT, _text),
    "RobertaModel": ("RobertaConfig", _TEXT, _text),
    "SqueezeBertModel": (
        "SqueezeBertConfig", {**_TEXT, "embedding_size": 32, "intermediate_size": 64}, _text
    ),
    "XLMRobertaModel": ("XLMRobertaConfig", _TEXT, _text),
    "BloomForCausalLM": (
        "BloomConfig",
        {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4, "use_cache": False}, _text,
    ),
    "FalconForCausalLM": ("FalconConfig", {**_TEXT, "use_cache": False}, _text),
    "GemmaForCausalLM": ("GemmaConfig", {**_DECODER, "head_dim": 8}, _text),
    "GPT2LMHeadModel": (
        "GPT2Config",
        {"vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4,
         "use_cache": False},
        _ids_alone,
    ),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", {**_TEXT, "use_cache": False}, _text),
    "LlamaForCausalLM": ("LlamaConfig", _DECODER, _text),
    "MistralForCausalLM": ("MistralConfig", {**_DECODER, "sliding_window": 8}, _text),
    "OPTForCausalLM": (
        "OPTConfig",
        {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "ffn_dim": 37, "max_position_embeddings": 64, "word_embed_proj_dim": 32,
         "use_cache": False},
        _text,
    ),
    "PhiForCausalLM": ("PhiConfig", {**_DECODER, "num_key_value_heads": 4}, _text),
    "Qwen2ForCausalLM": ("Qwen2Config", _DECODER, _text),
    "Qwen3ForCausalLM": ("Qwen3Config", {**_DECODER, "head_dim": 8}, _text),
    "MambaForCausalLM": (
        "MambaConfig",
        {"vocab_size": 99, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2,
         "use_cache": False},
        _ids_alone,
    ),
    "BartModel": ("BartConfig", _SEQUENCES, _text_to_text),
    "MarianModel": ("MarianConfig", {**_SEQUENCES, "pad_token_id": 0}, _text_to_text),
    "PegasusModel": ("PegasusConfig", _SEQUENCES, _text_to_text),
    "T5Model": (
        "T5Config",
        {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4,
         "use_cache": False},
        _text_to_text,
    ),
    "T5EncoderModel": (
        "T5Config",
        {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4,
         "feed_forward_proj": "gated-gelu"},
        _text,
    ),
    "BeitModel": ("BeitConfig", {**_VISION, "use_relative_position_bias": True}, _image),
    "ConvNextModel": (
        "ConvNextConfig", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}, _large_image
    ),
    "ConvNextV2Model": (
        "ConvNextV2Config", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}, _large_image
    ),
    "DeiTModel": ("DeiTConfig", _VISION, _image),
    "Dinov2Model": ("Dinov2Config", _VISION, _image),
    "MobileNetV2Model": ("MobileNetV2Config", {"depth_multiplier": 0.35}, _large_image),
    "MobileViTModel": (
        "MobileViTConfig",
        {"image_size": 64, "hidden_sizes": [16, 24, 32],
         "neck_hidden_sizes": [8, 8, 8, 8, 16, 16, 32]},
        _large_image,
    ),
    "PoolFormerModel": (
        "PoolFormerConfig", {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]}, _large_image
    ),
    "RegNetModel": (
        "RegNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1],
         "groups_width": 8},
        _large_image,
    ),
    "ResNetForImageClassification": (
        "ResNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]},
        _large_image,
    ),
    "SegformerForSemanticSegmentation": (
        "SegformerConfig",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "decoder_hidden_size": 16,
         "num_attention_heads": [1, 2, 3, 4]},
        _large_image,
    ),
    "SwinModel": (
        "SwinConfig",
        _WINDOWS,
        _large_image,
    ),
    "Swinv2Model": (
        "Swinv2Config",
        _WINDOWS,
        _large_image,
    ),
    "ViTForImageClassification": ("ViTConfig", _VISION, _image),
    "CLIPModel": (
        "CLIPConfig",
        {"text_config": {**_TEXT, "eos_token_id": 98, "projection_dim": 16},
         "vision_config": {**_VISION, "projection_dim": 16}, "projection_dim": 16},
        _text_and_image,
    ),
    "SiglipModel": (
        "SiglipConfig", {"text_config": _TEXT, "vision_config": _VISION}, _text_and_image
    ),
    "HubertModel": ("HubertConfig", _AUDIO, _wave),
    "Wav2Vec2ForCTC": ("Wav2Vec2Config", _AUDIO, _wave),
    "WhisperModel": (
        "WhisperConfig",
        {**_SEQUENCES, "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 64,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
        _mel,
    ),
}  # fmt: skip


class _Tuple(ByName):
    """Gives tensors in a tuple: what a trace can return."""

    def forward(self, *args: Tensor) -> tuple[Tensor, ...]:
        result = super().forward(*args)
        return tuple(each for each in result.to_tuple() if isinstance(each, Tensor))


_NAMES = {
    _ids_alone: ("input_ids",),
    _text: ("input_ids", "attention_mask"),
    _text_to_text: ("input_ids", "attention_mask", "decoder_input_ids"),
    _image: ("pixel_values",),
    _large_image: ("pixel_values",),
    _wave: ("input_values",),
    _text_and_image: ("input_ids", "pixel_values"),
    _mel: ("input_features", "decoder_input_ids"),
}


def _model(
    name: str, config: str, options: dict[str, Any], args: Callable[[int, int], Args]
) -> Model:
    def build() -> nn.Module:
        model = getattr(transformers, name)(getattr(transformers, config)(**options))
        return _Tuple(model, _NAMES[args])

    calls = Calls(args(2, 12), (args(3, 12), args(1, 9)))
    return Model("transformers", name, args.__name__, build, lambda _: [calls], Trace())


def models() -> Iterator[Model]:
    for name, described in _MODELS.items():
        yield _model(name, *described)
