"""The demo's classifier: autocast blocks, one in another, and one that turns autocast off.

No `from __future__ import annotations` here: torch.jit.script would read `Final` as a string.
"""

import torch
from torch import Tensor, nn
from torch.jit import Final


class Residual(nn.Module):
    """Two convolutions and what came in, under an autocast of its own."""

    amp: Final[bool]

    def __init__(self, channels: int, amp: bool) -> None:
        super().__init__()
        self.amp = amp
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.amp):
            y = torch.relu(self.norm1(self.conv1(x)))
            y = self.norm2(self.conv2(y))
            return torch.relu(y + x)


class Classifier(nn.Module):
    """Digits of 8x8 pixels to ten logits. With ``amp=False`` every scope is off: all is float32."""

    amp: Final[bool]

    def __init__(self, channels: int = 16, amp: bool = True) -> None:
        super().__init__()
        self.amp = amp
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.blocks = nn.Sequential(*(Residual(channels, amp) for _ in range(3)))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.amp):
            x = torch.relu(self.norm(self.stem(x)))
            x = self.blocks(x)
            with torch.autocast("cpu", enabled=False):
                pooled = x.float().mean(dim=(2, 3))
                pooled = pooled / (pooled.square().mean(dim=1, keepdim=True) + 1e-6).sqrt()
            return self.head(pooled)
