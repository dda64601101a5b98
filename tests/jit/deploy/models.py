"""Small models with what those that people have are made of.

Without scopes: tests put one around them. `MODELS` has each with an example and other calls, of
another batch, height, width or length.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@dataclass(frozen=True)
class Case:
    make: Callable[[], nn.Module]
    example: tuple[Any, ...]
    others: tuple[tuple[Any, ...], ...]
    closed: bool = True
    """Whether an example tells all dtypes: no state in a loop is of another one after a step, and
    no layer has code for cases that the example is none of."""
    once: bool = True
    """Whether each weight is held once: of a recurrent layer on packed sequences there are both
    ways in which eager may run it, with weights of their own."""
    plain: bool = True
    """Whether no state is made of the dtype of an input, which may be any, and no layer asks for
    it."""


def images(make: Callable[[], nn.Module], channels: int = 3, **options: Any) -> Case:
    def image(batch: int, height: int, width: int) -> tuple[Tensor]:
        return (torch.randn(batch, channels, height, width),)

    return Case(make, image(2, 16, 16), (image(1, 16, 16), image(3, 24, 40)), **options)


def sequences(make: Callable[[], nn.Module], width: int, **options: Any) -> Case:
    def sequence(batch: int, length: int) -> tuple[Tensor]:
        return (torch.randn(batch, length, width),)

    return Case(make, sequence(2, 5), (sequence(1, 5), sequence(3, 7)), **options)


def convolution(inputs: int, outputs: int, kernel: int = 3, **options: Any) -> list[nn.Module]:
    """A convolution and its batch norm."""
    norm = nn.BatchNorm2d(outputs)
    norm.running_mean.normal_(0, 0.1)
    norm.running_var.uniform_(0.5, 1.5)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias, 0, 0.1)
    return [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False, **options), norm]


class Activated(nn.Module):
    """An activation after a norm, a convolution, a linear layer and an addition."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation
        self.stem = nn.Sequential(*convolution(3, 8), activation, nn.Conv2d(8, 8, 1), activation)
        self.branch = nn.Sequential(*convolution(8, 8))
        self.head = nn.Sequential(nn.Linear(8, 8), activation, nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.activation(x + self.branch(x))
        return self.head(x.mean([2, 3]))


class Residual(nn.Module):
    """Sums and products in place, on results of both dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)
        self.scale = nn.Parameter(torch.rand(8, 1, 1))
        self.dropout = nn.Dropout(0.5, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = self.second(x)
        y.mul_(self.scale)
        y += x
        y.clamp_(-2, 2)
        x = self.dropout(y)
        x = self.norm(x.mean([2, 3]))
        x *= 0.5
        x.add_(1)
        return self.head(x)


class SuperResolution(nn.Module):
    """Instance and group norms with weights, and pixels from channels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.InstanceNorm2d(8, affine=True),
            nn.PReLU(8),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"),
            nn.GroupNorm(2, 8),
            nn.LeakyReLU(0.1, inplace=True),
        )
        for module in self.body:
            if isinstance(module, (nn.InstanceNorm2d, nn.GroupNorm)):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, 0, 0.1)
        self.up = nn.Sequential(nn.Conv2d(8, 12, 3, padding=1), nn.PixelShuffle(2), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.body(x))


class WindowAttention(nn.Module):
    """Attention in shifted windows, with a table of relative positions and a mask, as in Swin."""

    def __init__(self, width: int = 8, heads: int = 2, window: int = 4) -> None:
        super().__init__()
        self.heads, self.window, self.scale = heads, window, (width // heads) ** -0.5
        self.patches = nn.Conv2d(3, width, 2, 2)
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.1)
        at = torch.cartesian_prod(torch.arange(window), torch.arange(window))
        apart = at[:, None] - at[None, :] + window - 1
        self.register_buffer("index", apart[..., 0] * (2 * window - 1) + apart[..., 1])
        self.mlp = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))

    def windows(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        n = self.window
        x = x.view(batch, height // n, n, width // n, n, channels)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n, channels)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).permute(0, 2, 3, 1)
        batch, height, width, channels = x.shape
        n, shift = self.window, self.window // 2
        pad_h, pad_w = -height % n, -width % n
        y = F.pad(self.norm(x), (0, 0, 0, pad_w, 0, pad_h))
        y = torch.roll(y, (-shift, -shift), (1, 2))
        parts = self.windows(y)

        # A window that the shift has put together from both ends attends within each part.
        region = y.new_zeros((1, height + pad_h, width + pad_w, 1))
        count = 0
        for rows in ((0, -n), (-n, -shift), (-shift, height + pad_h)):
            for columns in ((0, -n), (-n, -shift), (-shift, width + pad_w)):
                region[:, rows[0] : rows[1], columns[0] : columns[1]] = count
                count += 1
        region = self.windows(region).squeeze(2)
        apart = region.unsqueeze(1) - region.unsqueeze(2)
        mask = apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)

        q, k, v = (
            self.qkv(parts)
            .view(parts.shape[0], n * n, 3, self.heads, channels // self.heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        scores = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.table[self.index.view(-1)].view(n * n, n * n, self.heads).permute(2, 0, 1)
        scores = scores + bias.unsqueeze(0)
        scores = scores.view(batch, -1, self.heads, n * n, n * n) + mask.unsqueeze(1).unsqueeze(0)
        attention = F.softmax(scores.view(-1, self.heads, n * n, n * n), dim=-1)
        y = self.out((attention @ v).transpose(1, 2).reshape(parts.shape[0], n * n, channels))

        y = y.view(batch, (height + pad_h) // n, (width + pad_w) // n, n, n, channels)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(batch, height + pad_h, width + pad_w, channels)
        y = torch.roll(y, (shift, shift), (1, 2))[:, :height, :width]
        x = x + y
        return x + self.mlp(x)


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, gate: nn.Module) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)
        self.act, self.gate = nn.ReLU(inplace=True), gate

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.up(self.act(self.down(x.mean((2, 3), keepdim=True)))))


class InvertedResidual(nn.Module):
    """Widen, filter each channel on its own, gate, narrow."""

    def __init__(self, channels: int, activation: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        wide = 2 * channels
        self.layers = nn.Sequential(
            *convolution(channels, wide, 1),
            activation,
            *convolution(wide, wide, groups=wide),
            activation,
            SqueezeExcite(wide, gate),
            *convolution(wide, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*convolution(3, 8, stride=2), nn.Hardswish(inplace=True))
        self.blocks = nn.Sequential(
            InvertedResidual(8, nn.ReLU6(inplace=True), nn.Identity()),
            InvertedResidual(8, nn.Hardswish(inplace=True), nn.Hardsigmoid(inplace=True)),
            InvertedResidual(8, nn.SiLU(inplace=True), nn.Sigmoid()),
        )
        self.head = nn.Sequential(nn.Dropout(0.2, inplace=True), nn.Linear(8, 5))

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class ShuffleNet(nn.Module):
    """Half of the channels pass by; then halves are mixed."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        half = channels // 2
        self.stem = nn.Sequential(*convolution(3, channels), nn.ReLU(inplace=True))
        self.branch = nn.Sequential(
            *convolution(half, half, 1),
            nn.ReLU(inplace=True),
            *convolution(half, half, groups=half),
            *convolution(half, half, 1),
            nn.ReLU(inplace=True),
        )
        self.head = nn.Linear(channels, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x), 3, 2, 1)
        for _ in range(2):
            kept, given = x.chunk(2, dim=1)
            x = torch.cat((kept, self.branch(given)), dim=1)
            batch, channels, height, width = x.size()
            x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).contiguous()
            x = x.view(batch, channels, height, width)
        return self.head(x.mean([2, 3]))


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm = convolution(inputs, inputs)[1]
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(inputs, growth, 3, padding=1, bias=False)

    def forward(self, given: list[Tensor]) -> Tensor:
        return self.conv(self.relu(self.norm(torch.cat(given, 1))))


class DenseNet(nn.Module):
    """Each layer sees what all before it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.layers = nn.ModuleList(DenseLayer(8 + 4 * i, 4) for i in range(3))
        self.head = nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(features))
        x = F.relu(torch.cat(features, 1), inplace=True)
        return self.head(F.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


class Features(nn.Module):
    """A backbone whose stages are outputs by their names, and heads on them."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleDict(
            {
                "low": nn.Sequential(*convolution(3, 8), nn.ReLU(inplace=True)),
                "high": nn.Sequential(*convolution(8, 8, stride=2), nn.ReLU(inplace=True)),
            }
        )
        self.classifier = nn.Sequential(
            *convolution(8, 8), nn.ReLU(inplace=True), nn.Conv2d(8, 5, 1)
        )
        self.auxiliary = nn.Conv2d(8, 5, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        size = x.shape[-2:]
        features: dict[str, Tensor] = OrderedDict()
        for name, stage in self.stages.items():
            x = stage(x)
            features[name] = x
        result: dict[str, Tensor] = OrderedDict()
        x = self.classifier(features["high"])
        result["out"] = F.interpolate(x, size=size, mode="bilinear", align_corners=False)
        x = self.auxiliary(features["low"])
        result["aux"] = F.interpolate(x, size=size, mode="bilinear", align_corners=False)
        return result


class UNet(nn.Module):
    """Down and up again; each level up gives a result, the finest last."""

    def __init__(self) -> None:
        super().__init__()
        relu = nn.ReLU(inplace=True)
        self.down = nn.ModuleList(
            nn.Sequential(*convolution(inputs, 8), relu, *convolution(8, 8), relu)
            for inputs in (3, 8, 8)
        )
        self.up = nn.ModuleList(nn.Sequential(*convolution(16, 8), relu) for _ in range(2))
        self.transposed = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.heads = nn.ModuleList(nn.Conv2d(8, 2, 1) for _ in range(2))

    def forward(self, x: Tensor) -> list[Tensor]:
        kept: list[Tensor] = []
        for i, block in enumerate(self.down):
            if i > 0:
                x = F.max_pool2d(x, 2)
            x = block(x)
            kept.append(x)
        results: list[Tensor] = []
        for i, (block, head) in enumerate(zip(self.up, self.heads)):  # noqa: B905
            x = F.interpolate(x, scale_factor=2.0, mode="nearest") if i > 0 else self.transposed(x)
            x = block(torch.cat([kept[1 - i], x], 1))
            results.append(torch.sigmoid(head(x)))
        return results


class Packed(nn.Module):
    """A recurrent layer on sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(10, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = self.lstm(packed)
        _, last = self.gru(y)
        return pad_packed_sequence(y, batch_first=True)[0], self.head(last[0])


class Cells(nn.Module):
    """Cells in a loop over time."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(6, 5), nn.GRUCell(5, 4), nn.RNNCell(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h, c = x.new_zeros(x.size(0), 5), x.new_zeros(x.size(0), 5)
        g = x.new_zeros(x.size(0), 4)
        r = x.new_zeros(x.size(0), 4)
        outputs: list[Tensor] = []
        for t in range(x.size(1)):
            h, c = self.lstm(x[:, t], (h, c))
            g = self.gru(h, g)
            r = self.rnn(g, r)
            outputs.append(self.head(r))
        return torch.stack(outputs, 1)


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.filter = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.up, self.down = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)
        self.scale = nn.Parameter(torch.rand(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.filter(x).permute(0, 2, 3, 1))
        y = self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)
        return x + self.scale * y


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.Sequential(ConvNeXtBlock(8), ConvNeXtBlock(8))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x).contiguous(memory_format=torch.channels_last))
        return self.head(self.norm(x.mean([-2, -1])))


class CascadedAttention(nn.Module):
    """Each head sees its part of the channels and what the head before it gave."""

    def __init__(self, channels: int = 8, heads: int = 2, size: int = 4) -> None:
        super().__init__()
        part = channels // heads
        self.part, self.scale = part, part**-0.5
        self.qkv = nn.ModuleList(
            nn.Sequential(*convolution(part, 3 * part, 1)) for _ in range(heads)
        )
        self.filters = nn.ModuleList(
            nn.Sequential(*convolution(part, part, groups=part)) for _ in range(heads)
        )
        self.biases = nn.Parameter(torch.randn(heads, size * size) * 0.1)
        at = torch.cartesian_prod(torch.arange(size), torch.arange(size))
        apart = (at[:, None] - at[None, :]).abs()
        self.register_buffer("index", apart[..., 0] * size + apart[..., 1])
        self.out = nn.Sequential(nn.ReLU(inplace=True), *convolution(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        bias = self.biases[:, self.index]
        parts = x.chunk(len(self.qkv), dim=1)
        given = parts[0]
        outputs: list[Tensor] = []
        for i, (qkv, filtered) in enumerate(zip(self.qkv, self.filters)):  # noqa: B905
            if i > 0:
                given = given + parts[i]
            q, k, v = qkv(given).view(batch, -1, height, width).split(self.part, dim=1)
            q = filtered(q)
            q, k, v = q.flatten(2), k.flatten(2), v.flatten(2)
            scores = (q * self.scale).transpose(-2, -1) @ k
            attention = (scores + bias[i]).softmax(dim=-1)
            given = (v @ attention.transpose(-2, -1)).view(batch, self.part, height, width)
            outputs.append(given)
        return self.out(torch.cat(outputs, 1))


class EfficientViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *convolution(3, 8, stride=2), nn.Hardswish(inplace=True), nn.AdaptiveAvgPool2d(4)
        )
        self.local = nn.Sequential(*convolution(8, 8, groups=8))
        self.mix = nn.Sequential(
            *convolution(8, 16, 1), nn.ReLU(inplace=True), *convolution(16, 8, 1)
        )
        self.attention = CascadedAttention()
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, 5)
        self.norm.running_var.uniform_(0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.local(x)
        x = x + self.mix(x)
        x = x + self.attention(x)
        return self.head(self.norm(F.adaptive_avg_pool2d(x, 1).flatten(1)))


class Attention(nn.Module):
    """Attention to itself and to a memory; with and without a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.itself = nn.MultiheadAttention(8, 2, batch_first=True)
        self.across = nn.MultiheadAttention(8, 2, batch_first=True)
        self.memory = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        x = x + self.itself(y, y, y, need_weights=False)[0]
        memory = self.memory(y)
        return x + self.across(x, memory, memory)[0]


class Classifier(nn.Module):
    """Words, what of them is padding, and a class."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8, padding_idx=0), nn.Embedding(16, 8)
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, norm_first=first)
            for first in (False, True)
        )
        self.head = nn.Linear(8, 3)

    def forward(self, words: Tensor) -> Tensor:
        padding = words == 0
        x = self.words(words) + self.places(torch.arange(words.size(1), device=words.device))
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1)
        return self.head((x * kept).sum(1) / kept.sum(1).clamp(min=1))


def words(batch: int, length: int) -> tuple[Tensor]:
    given = torch.randint(1, 20, (batch, length))
    given[0, -2:] = 0
    return (given,)


def packed(*lengths: int) -> tuple[Tensor, Tensor]:
    return torch.randn(len(lengths), max(lengths), 6), torch.tensor(lengths)


ACTIVATIONS = (
    nn.ReLU(inplace=True),
    nn.ReLU6(inplace=True),
    nn.Hardtanh(inplace=True),
    nn.Hardswish(inplace=True),
    nn.Hardsigmoid(inplace=True),
    nn.SiLU(inplace=True),
    nn.LeakyReLU(0.1, inplace=True),
    nn.ELU(inplace=True),
    nn.CELU(inplace=True),
    nn.SELU(inplace=True),
    nn.Mish(inplace=True),
    nn.Threshold(0.1, 0.0, inplace=True),
    nn.RReLU(inplace=True),
    nn.Dropout(0.5, inplace=True),
    nn.Softplus(),
)

torch.manual_seed(1)  # the same inputs in every run, none of them at the step of Threshold
MODELS: dict[str, Case] = {
    **{
        type(activation).__name__: images(lambda activation=activation: Activated(activation))
        for activation in ACTIVATIONS
    },
    "residual": images(Residual),
    "super resolution": images(SuperResolution),
    "window attention": images(WindowAttention),
    "mobile net": images(MobileNet),
    "shuffle net": images(ShuffleNet),
    "dense net": images(DenseNet),
    "dictionary of features": images(Features),
    "u-net": images(UNet),
    "conv next": images(ConvNeXt),
    "efficient vit": images(EfficientViT),
    "attention": Case(
        Attention,
        (torch.randn(2, 5, 8),),
        ((torch.randn(1, 7, 8),), (torch.randn(4, 8),)),
        plain=False,
    ),
    "packed sequence": Case(
        Packed,
        packed(5, 3, 4),
        (packed(2), packed(7, 7, 1, 2)),
        closed=False,
        once=False,
        plain=False,
    ),
    "cells": sequences(Cells, 6, closed=False, plain=False),
    "classifier": Case(
        Classifier, words(2, 6), (words(1, 6), words(3, 9)), closed=False, plain=False
    ),
}
