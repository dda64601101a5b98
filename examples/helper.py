"""A method returns the scope that the module runs in, or none. It prints:

amp = True
  eager          torch.bfloat16
  jit_amp.script torch.bfloat16
  net.pt, loaded torch.bfloat16
amp = False
  eager          torch.float32
  jit_amp.script torch.float32
  net.pt, loaded torch.float32
"""

from contextlib import nullcontext

import torch

import jit_amp


class Net(torch.nn.Module):
    def __init__(self, amp):
        super().__init__()
        self.amp = amp
        self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    @property
    def device(self):
        return next(self.parameters()).device

    def maybe_autocast(self, dtype=torch.bfloat16):
        if self.amp and self.device.type in ("cpu", "cuda"):
            return torch.autocast(self.device.type, dtype=dtype)
        return nullcontext()

    def forward(self, x):
        with self.maybe_autocast():
            return self.norm(self.linear(x))


x = torch.rand(2, 8)
for amp in True, False:
    net = Net(amp).eval()
    torch.jit.save(jit_amp.freeze(net, example_inputs=(x,)), "net.pt")
    print("amp =", amp)
    print("  eager         ", net(x).dtype)
    print("  jit_amp.script", jit_amp.script(net)(x).dtype)
    print("  net.pt, loaded", torch.jit.load("net.pt")(x).dtype)
