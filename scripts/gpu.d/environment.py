"""Prints what the numbers were measured with; fails where jit_amp does not work."""

from __future__ import annotations

import platform

import torch

import jit_amp

print(
    f"python {platform.python_version()}, torch {torch.__version__}, jit_amp {jit_amp.__version__}"
)
if torch.backends.cuda.is_built():
    device = torch.cuda.get_device_properties(0)
    print(f"{device.name}, {device.total_memory >> 30} GiB, CUDA {torch.version.cuda}")
    print(f"cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_capability()}")
else:
    print("a pretended device")


@jit_amp.script
def product(x: torch.Tensor):
    with torch.autocast("cuda", dtype=torch.float16):
        return x @ x


assert product(torch.rand(8, 8, device="cuda")).dtype == torch.float16
missing, _ = jit_amp.policy.drift("cuda")
assert not missing, missing
print("a product in a scope is right, and CUDA's lists are known")
