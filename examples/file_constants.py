"""Constants of the file say what the scopes are. It prints:

eager          torch.bfloat16 torch.float32
jit_amp.script torch.bfloat16 torch.float32
net.pt, loaded torch.bfloat16 torch.float32
"""

import torch

import jit_amp

DEVICE = "cpu"
USE_AMP = True
PRECISION = "bf16"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x):
        with torch.autocast(DEVICE, dtype=DTYPES[PRECISION], enabled=USE_AMP):
            x = self.norm(self.linear(x))
            with torch.autocast(DEVICE, enabled=False):
                return x, x.float().softmax(-1)


net, x = Net().eval(), torch.rand(2, 8)
torch.jit.save(jit_amp.freeze(net, example_inputs=(x,)), "net.pt")
print("eager         ", *(each.dtype for each in net(x)))
print("jit_amp.script", *(each.dtype for each in jit_amp.script(net)(x)))
print("net.pt, loaded", *(each.dtype for each in torch.jit.load("net.pt")(x)))
