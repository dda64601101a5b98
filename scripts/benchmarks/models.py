"""Models of the project's own, with the structure of those that people run.

They are plain; `Autocast` puts one under autocast, so that all forms of a model share its code.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Autocast(nn.Module):
    """A model under autocast."""

    def __init__(
        self, model: nn.Module, device_type: str = "cpu", dtype: torch.dtype = torch.bfloat16
    ) -> None:
        super().__init__()
        self.model, self.device_type, self.dtype = model, device_type, dtype

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(self.device_type, dtype=self.dtype):
            return self.model(x)


class Bottleneck(nn.Module):
    growth = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class BasicBlock(nn.Module):
    growth = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Blocks in four stages: ResNet-50, and ResNet-18 with `(2, 2, 2, 2)` and `BasicBlock`."""

    def __init__(
        self,
        layers: tuple[int, ...] = (3, 4, 6, 3),
        width: int = 64,
        block: type[BasicBlock] | type[Bottleneck] = Bottleneck,
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        inputs = width
        for stage, count in enumerate(layers):
            for i in range(count):
                here = width * 2**stage
                blocks.append(block(inputs, here, 2 if i == 0 and stage > 0 else 1))
                inputs = block.growth * here
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn(self.stem(x))), 3, 2, 1)
        x = self.blocks(x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class SqueezeExcite(nn.Module):
    """Scales channels by what a small network makes of their means."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, squeezed, 1)
        self.up = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        means = F.adaptive_avg_pool2d(x, 1)
        return F.hardsigmoid(self.up(F.relu(self.down(means)))) * x


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list:
    """A convolution and its batch norm."""
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=0.001),
    ]


class InvertedResidual(nn.Module):
    """Widen, filter each channel on its own, scale, narrow."""

    def __init__(
        self,
        inputs: int,
        wide: int,
        outputs: int,
        kernel: int,
        stride: int,
        excite: bool,
        hard: bool,
    ) -> None:
        super().__init__()
        activation = nn.Hardswish if hard else nn.ReLU
        layers: list[nn.Module] = []
        if wide != inputs:
            layers += [*convolution(inputs, wide, 1), activation()]
        layers += [*convolution(wide, wide, kernel, stride, wide), activation()]
        if excite:
            layers.append(SqueezeExcite(wide, max(8, (wide // 4 + 4) // 8 * 8)))
        self.layers = nn.Sequential(*layers, *convolution(wide, outputs, 1))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + y if self.adds else y


class MobileNet(nn.Module):
    """The large one of the MobileNetV3 paper, for images of 224 x 224."""

    # wide, outputs, kernel, stride, excite, hard
    STAGES = (
        (16, 16, 3, 1, False, False),
        (64, 24, 3, 2, False, False),
        (72, 24, 3, 1, False, False),
        (72, 40, 5, 2, True, False),
        (120, 40, 5, 1, True, False),
        (120, 40, 5, 1, True, False),
        (240, 80, 3, 2, False, True),
        (200, 80, 3, 1, False, True),
        (184, 80, 3, 1, False, True),
        (184, 80, 3, 1, False, True),
        (480, 112, 3, 1, True, True),
        (672, 112, 3, 1, True, True),
        (672, 160, 5, 2, True, True),
        (960, 160, 5, 1, True, True),
        (960, 160, 5, 1, True, True),
    )

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*convolution(3, 16, 3, 2), nn.Hardswish()]
        inputs = 16
        for wide, outputs, kernel, stride, excite, hard in self.STAGES:
            layers.append(InvertedResidual(inputs, wide, outputs, kernel, stride, excite, hard))
            inputs = outputs
        self.layers = nn.Sequential(*layers, *convolution(inputs, 960, 1), nn.Hardswish())
        self.widen, self.head = nn.Linear(960, 1280), nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.layers(x), 1).flatten(1)
        return self.head(F.hardswish(self.widen(x)))


class EncoderLayer(nn.Module):
    """Attention and a feed-forward network, both after a normalisation, as in ViT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(EncoderLayer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layers(x))


class ViT(nn.Module):
    """Patches of an image as a sequence; the sizes are those of ViT-B/16."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.encoder = Encoder(layers, width, heads)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.encoder(x)[:, 0])


class MaskedLayer(nn.Module):
    """Attention with a mask that may be missing, and a feed-forward network, as in BERT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out, self.norm1, self.norm2 = nn.Linear(width, width), *norms(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / (q.size(-1) ** 0.5)
        if mask is not None:
            scores = scores + mask
        attended = torch.matmul(F.softmax(scores, dim=-1), v)
        x = self.norm1(x + self.out(attended.transpose(1, 2).flatten(2)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


def norms(width: int) -> tuple[nn.LayerNorm, nn.LayerNorm]:
    return nn.LayerNorm(width), nn.LayerNorm(width)


class BERT(nn.Module):
    def __init__(self, layers: int = 6, width: int = 512, heads: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.layers = nn.ModuleList([MaskedLayer(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x[:, 0])


class WindowLayer(nn.Module):
    """Attention inside windows, which every second layer shifts, with biases by position."""

    def __init__(self, width: int, heads: int, side: int, window: int, shift: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.scale = (width // heads) ** -0.5
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.bias = nn.Parameter(torch.randn(heads, window**2, window**2) / 50)
        parts = torch.zeros(1, side, side, 1)  # what a window has of both ends sees its own only
        if shift:
            parts[:, -shift:] += 1
            parts[:, :, -shift:] += 2
        parts = self.windows(parts).squeeze(2)
        differs = parts.unsqueeze(1) != parts.unsqueeze(2)
        self.register_buffer("mask", differs.float().mul(-100).unsqueeze(1))

    def windows(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        x = x.view(n, h // self.window, self.window, w // self.window, self.window, c)
        return x.transpose(2, 3).reshape(-1, self.window * self.window, c)

    def attend(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        if self.shift > 0:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        x = self.windows(x)
        q, k, v = self.qkv(x).view(len(x), -1, 3, self.heads, c // self.heads).unbind(2)
        scores = (q.transpose(1, 2) * self.scale) @ k.transpose(1, 2).transpose(2, 3)
        scores = scores + self.bias
        if self.shift > 0:
            scores = scores + self.mask.repeat(n, 1, 1, 1)
        x = (F.softmax(scores, -1) @ v.transpose(1, 2)).transpose(1, 2).flatten(2)
        x = self.project(x).view(n, h // self.window, w // self.window, self.window, -1, c)
        x = x.transpose(2, 3).reshape(n, h, w, c)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift > 0 else x

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.shrink(F.gelu(self.grow(self.norm2(x))))


class Swin(nn.Module):
    """Three stages of two layers, with windows of 7 x 7."""

    def __init__(self, width: int = 96, window: int = 7) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        layers, side = [], 56
        for stage in range(3):
            for shift in (0, window // 2):
                layers.append(WindowLayer(width, 3 * 2**stage, side, window, shift))
            if stage < 2:
                layers.append(Merge(width))
                width, side = 2 * width, side // 2
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.patches(x).permute(0, 2, 3, 1))
        return self.head(self.norm(x).mean((1, 2)))


class Merge(nn.Module):
    """Four neighbours become one, twice as wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduce = (
            nn.LayerNorm(4 * width),
            nn.Linear(4 * width, 2 * width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        even, odd = x[:, ::2], x[:, 1::2]
        parts = [even[:, :, ::2], odd[:, :, ::2], even[:, :, 1::2], odd[:, :, 1::2]]
        return self.reduce(self.norm(torch.cat(parts, -1)))


class UNet(nn.Module):
    """Three levels down and up again, with activations in place and skip connections."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(
            [self.twice(a, b) for a, b in zip([3, *sizes], sizes, strict=False)]
        )
        self.up = nn.ModuleList(
            [self.twice(a + b, b) for a, b in ((sizes[2], sizes[1]), (sizes[1], sizes[0]))]
        )
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def twice(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            *convolution(inputs, outputs, 3),
            nn.ReLU(inplace=True),
            *convolution(outputs, outputs, 3),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for i, down in enumerate(self.down):
            x = down(F.max_pool2d(x, 2) if i > 0 else x)
            kept.append(x)
        for i, up in enumerate(self.up):
            x = F.interpolate(x, scale_factor=2.0)
            x = up(torch.cat([x, kept[len(kept) - 2 - i]], 1))
        return self.head(x)


class MLP(nn.Module):
    def __init__(self, width: int = 512, layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
        return F.softmax(self.head(x), 1)


class LSTM(nn.Module):
    """Two layers of PyTorch's own, and a linear layer after the last step."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class LoopedLSTM(nn.Module):
    """A layer written as a loop over time, and PyTorch's own."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.inputs = nn.Linear(width, 4 * width)
        self.hidden = nn.Linear(width, 4 * width)
        self.second = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros_like(x[:, 0])
        c = torch.zeros_like(h)
        outputs: list[Tensor] = []
        for t in range(x.size(1)):
            i, f, g, o = (self.inputs(x[:, t]) + self.hidden(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        y = self.second(torch.stack(outputs, 1))[0]
        return self.head(y[:, -1])


class ConvNeXtBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width, 1, 1), 1e-1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.down(F.gelu(self.up(y)))
        return x + self.scale * y.permute(0, 3, 1, 2)


class NormOfChannels(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """The sizes are those of ConvNeXt-T."""

    def __init__(self) -> None:
        super().__init__()
        widths, depths = (96, 192, 384, 768), (3, 3, 9, 3)
        layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), NormOfChannels(96)]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            layers += [ConvNeXtBlock(width) for _ in range(depth)]
            if stage < 3:
                layers += [NormOfChannels(width), nn.Conv2d(width, widths[stage + 1], 2, 2)]
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(x).mean((2, 3))))


class PlainAttention(nn.Module):
    """Attention by hand. Here and below, `x` holds q, k and v: 3 x batch x heads x tokens x 64."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = x.unbind(0)
        return (q @ k.transpose(-2, -1) * 0.125).softmax(-1) @ v


class CausalAttention(nn.Module):
    """With a mask, and a softmax in float32."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = x.unbind(0)
        tokens = x.size(-2)
        future = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        scores = torch.matmul(q, k.transpose(-2, -1)) / 8.0
        scores = scores.masked_fill(future, float("-inf"))
        weights = F.softmax(scores, dim=-1, dtype=torch.float32)
        return torch.matmul(F.dropout(weights, 0.1, self.training).to(v.dtype), v)


class BiasedAttention(nn.Module):
    """As an einsum, with a bias of positions."""

    def __init__(self, tokens: int, heads: int = 8) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(heads, tokens, tokens) / 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = x.unbind(0)
        scores = torch.einsum("bhqd,bhkd->bhqk", q * 0.125, k) + self.bias
        weights = scores.softmax(-1).to(v.dtype)
        return torch.einsum("bhqk,bhkd->bhqd", weights, v)


class WhisperBlock(nn.Module):
    """A layer of an encoder of speech: 1,500 frames, attention by hand, softmax in float32."""

    def __init__(self, width: int = 512, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = norms(width)
        self.q, self.v, self.out = (nn.Linear(width, width) for _ in range(3))
        self.k = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        scale = (y.size(-1) // self.heads) ** -0.25
        q = self.q(y).view(y.size(0), y.size(1), self.heads, -1).permute(0, 2, 1, 3) * scale
        k = self.k(y).view(y.size(0), y.size(1), self.heads, -1).permute(0, 2, 3, 1) * scale
        v = self.v(y).view(y.size(0), y.size(1), self.heads, -1).permute(0, 2, 1, 3)
        weights = F.softmax((q @ k).float(), dim=-1).to(q.dtype)
        x = x + self.out((weights @ v).permute(0, 2, 1, 3).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT2Block(nn.Module):
    """A layer of a decoder of text: weights the other way round, and a causal mask by `where`."""

    def __init__(self, width: int = 768, heads: int = 12, tokens: int = 1024) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = norms(width)
        for name, inputs, outputs in (
            *(("qkv", width, 3 * width), ("out", width, width)),
            *(("up", width, 4 * width), ("down", 4 * width, width)),
        ):
            setattr(self, f"{name}_weight", nn.Parameter(torch.randn(inputs, outputs) / 50))
            setattr(self, f"{name}_bias", nn.Parameter(torch.zeros(outputs)))
        self.register_buffer("past", torch.ones(tokens, tokens).tril().bool())

    def layer(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.addmm(bias, x.view(-1, x.size(-1)), weight).view(x.size(0), x.size(1), -1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(self.norm1(x), self.qkv_weight, self.qkv_bias)
        q, k, v = y.split(x.size(-1), 2)
        q = q.view(q.size(0), q.size(1), self.heads, -1).transpose(1, 2)
        k = k.view(k.size(0), k.size(1), self.heads, -1).transpose(1, 2)
        v = v.view(v.size(0), v.size(1), self.heads, -1).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(-1, -2)) / 8.0
        seen = self.past[: q.size(-2), : k.size(-2)]
        scores = torch.where(seen, scores, torch.full([], -3e38, dtype=scores.dtype))
        attended = torch.matmul(F.softmax(scores, dim=-1), v).transpose(1, 2).flatten(2)
        x = x + self.layer(attended, self.out_weight, self.out_bias)
        y = F.gelu(self.layer(self.norm2(x), self.up_weight, self.up_bias), approximate="tanh")
        return x + self.layer(y, self.down_weight, self.down_bias)


class ManyLayers(nn.Module):
    """Linear layers one after the other."""

    def __init__(self, width: int, layers: int = 50) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
