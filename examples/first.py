import torch

import jit_amp


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.norm(self.linear(x))


net, x = Net().eval(), torch.rand(2, 8)
torch.jit.save(jit_amp.freeze(net, example_inputs=(x,)), "net.pt")
print("eager           ", net(x).dtype)
print("torch.jit.script", torch.jit.script(net)(x).dtype)
print("jit_amp.script  ", jit_amp.script(net)(x).dtype)
print("net.pt, loaded  ", torch.jit.load("net.pt")(x).dtype)
