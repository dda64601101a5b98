"""A config object says whether a scope is on, and in which dtype. It prints:

Config(amp=True, dtype='bfloat16', device='cpu')
  eager          torch.bfloat16
  jit_amp.script torch.bfloat16
  net.pt, loaded torch.bfloat16
Config(amp=False, dtype='bfloat16', device='cpu')
  eager          torch.float32
  jit_amp.script torch.float32
  net.pt, loaded torch.float32
config.amp = True
  eager          torch.bfloat16
  scripted       torch.float32
  scripted again torch.bfloat16
"""

from dataclasses import dataclass

import torch

import jit_amp


@dataclass
class Config:
    amp: bool = True
    dtype: str = "bfloat16"
    device: str = "cpu"


class Net(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x):
        config = self.config
        with torch.autocast(config.device, dtype=getattr(torch, config.dtype), enabled=config.amp):
            return self.norm(self.linear(x))


x = torch.rand(2, 8)
for config in Config(), Config(amp=False):
    net = Net(config).eval()
    scripted = jit_amp.script(net)
    torch.jit.save(jit_amp.freeze(net, example_inputs=(x,)), "net.pt")
    print(config)
    print("  eager         ", net(x).dtype)
    print("  jit_amp.script", scripted(x).dtype)
    print("  net.pt, loaded", torch.jit.load("net.pt")(x).dtype)

config.amp = True
print("config.amp = True")
print("  eager         ", net(x).dtype)
print("  scripted      ", scripted(x).dtype)
print("  scripted again", jit_amp.script(net)(x).dtype)
