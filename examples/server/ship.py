"""Scripts the network, compares it with eager, and writes the file that the server loads.

    python ship.py [--no-amp] [FILE]

It prints:

in the scope    torch.bfloat16
scripted        the same as eager, bit for bit
frozen, loaded  scores within 0.01 of eager's
net.pt holds stock operators alone
"""

from __future__ import annotations

import argparse
import warnings

import torch
from model import Config, Net

import jit_amp

warnings.filterwarnings("ignore", "`torch.jit")  # TorchScript is deprecated
parser = argparse.ArgumentParser()
parser.add_argument("file", nargs="?", default="net.pt")
parser.add_argument("--no-amp", action="store_true", help="all of it in float32")
given = parser.parse_args()

torch.manual_seed(0)
net = Net(Config(amp=not given.no_amp)).eval()
images = torch.linspace(0, 1, 2 * 3 * 64 * 64).reshape(2, 3, 64, 64)
with torch.no_grad():
    eager = net(images, with_features=True)
    print("in the scope   ", eager["features"].dtype)

    scripted = jit_amp.script(net)
    same = all(torch.equal(scripted(images, True)[name], eager[name]) for name in eager)
    print("scripted       ", "the same as eager, bit for bit" if same else "not what eager gives")

    frozen = jit_amp.freeze(net, [(images, False), (images, True)])
    torch.jit.save(frozen, given.file)
    loaded = torch.jit.load(given.file)
    error = (loaded(images)["scores"] - eager["scores"]).abs().max().item()
    print("frozen, loaded ", "scores within 0.01 of eager's" if error < 0.01 else error)

stock = all(name.startswith(("aten::", "prim::")) for name in torch.jit.export_opnames(frozen))
print(given.file, "holds stock operators alone" if stock else "needs more than PyTorch")
