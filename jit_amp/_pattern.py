"""The scope that jit_amp models its own on; TorchScript compiles source, so it stands here."""

import torch


def scope() -> None:
    with torch.autocast("cpu"):
        pass
