"""A method returns the scope that the module runs in, or none."""

from contextlib import nullcontext

import torch

import jit_amp


class Net(torch.nn.Module):
    def __init__(self, amp):
        super().__init__()
        self.amp = amp
        self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def maybe_autocast(self, dtype=torch.bfloat16):
        if not self.amp:
            return nullcontext()
        return torch.autocast(self.linear.weight.device.type, dtype=dtype)

    def forward(self, x):
        with self.maybe_autocast():
            return self.norm(self.linear(x))


x = torch.rand(2, 8)
for amp in True, False:
    net = Net(amp).eval()
    scripted = jit_amp.script(net)
    torch.jit.save(jit_amp.freeze(net, example_inputs=(x,)), "net.pt")
    loaded = torch.jit.load("net.pt")
    print("eager         ", net(x).dtype)
    print("jit_amp.script", scripted(x).dtype)
    print("net.pt, loaded", loaded(x).dtype)
