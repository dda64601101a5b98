"""A small vision transformer whose last line overflows in float16."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, width=192, heads=3, layers=6, classes=10):
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, image):
        with torch.autocast("cpu", dtype=torch.float16):
            x = self.patches(image).flatten(2).transpose(1, 2)
            features = self.norm(self.blocks(x)).mean(1)
            scores = self.head(features)
            odds = (scores * 60).exp()
            return odds / odds.sum()
