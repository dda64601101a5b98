"""Models in which one or two modules do not bear low precision, among others that do."""

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """The logits are `scale` times what softmax is given, squared."""

    def __init__(self, width: int, scale: float = 1.0):
        super().__init__()
        self.scale = scale
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        logits = (q * self.scale) @ (k * self.scale).transpose(-2, -1)
        weights = torch.softmax(logits / (self.scale * self.scale), -1)
        return self.proj(weights @ v)


class Block(nn.Module):
    def __init__(self, width: int, scale: float):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, scale)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class Transformer(nn.Module):
    def __init__(self, scales: list[float], width: int = 16):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, scale) for scale in scales))
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean(1))


class BadNorm(nn.Module):
    """The variance as E[x²] - E[x]²."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + 50.0
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) / (variance + 1e-3).abs().sqrt()


class LogSumExp(nn.Module):
    """Written by hand, without taking out the largest."""

    def forward(self, x: Tensor) -> Tensor:
        x = 15.0 * torch.tanh(x * 50.0)
        return x - torch.log((x.exp() * 1.0).sum(-1, keepdim=True))


class SumOfSmall(nn.Module):
    """Terms below float16's smallest, and their sum is not."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 1e-4 * (x * 1e-4)).sum()


class Lstm(nn.Module):
    """A state that grows by little in each step."""

    def __init__(self, width: int, steps: int):
        super().__init__()
        self.steps = steps
        self.gates = nn.Linear(2 * width, 4 * width)
        with torch.no_grad():
            self.gates.weight.mul_(0.1)
            i, f, g, o = self.gates.bias.chunk(4)
            i.fill_(-6.0)
            f.fill_(12.0)
            g.fill_(0.5)
            o.fill_(0.0)

    def forward(self, x: Tensor) -> Tensor:
        h = x
        c = torch.zeros_like(x)
        for _ in range(self.steps):
            i, f, g, o = self.gates(torch.cat([x, h], -1)).chunk(4, -1)
            c = (torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)).to(x.dtype)
            h = (torch.sigmoid(o) * torch.tanh(c)).to(x.dtype)
        return c


class Overflowing(nn.Module):
    """Beyond 65504 inside, and not what it gives: where that is infinite, it gives 0 or 1."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid((x.tanh() + 2.0) * 60000.0 / 60000.0 - 2.0)


class Scaled(nn.Module):
    """A linear layer whose result is near float16's largest, for Doubled."""

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x)) * 20000.0 + 40000.0


class Doubled(nn.Module):
    """Overflows where what it is given is float16, and not where that is float32."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + x) * 1e-5


def among_others(*parts: nn.Module, width: int = 16, others: int = 4) -> nn.Sequential:
    """The modules, with linear layers and activations before, between and after them."""
    made: list[nn.Module] = []
    for part in parts:
        for _ in range(others):
            made += [nn.Linear(width, width), nn.ReLU()]
        made += [nn.Linear(width, width), part]
    return nn.Sequential(*made)
