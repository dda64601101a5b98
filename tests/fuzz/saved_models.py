"""The models whose files tests/fuzz/files.py damages."""

import io

import torch
from torch import Tensor, nn

import jit_amp


class Net(nn.Module):
    """Scopes, a branch, a loop and parts of torch.nn."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.norm(self.first(x)).relu()
            for _ in range(2):
                y = y @ self.last.weight
        if bool(x.sum() > 0):
            y = y.float()
        return self.last(y.float()), y


class Plain(nn.Module):
    """No scopes, and values of several types."""

    names: dict[str, int]

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.names = nn.Conv1d(1, 2, 3), {"a": 1, "b": 2}

    def forward(self, x: Tensor):
        found = [self.conv(x[:, None]).sum(1), x]
        return {"sum": torch.cat(found, 1) * self.names["b"], "shape": torch.tensor(x.shape)}


def example() -> Tensor:
    return torch.linspace(-1.0, 2.0, 8).reshape(2, 4)


def files() -> dict[str, bytes]:
    """What torch.jit.save writes of each: of one scripted, one traced, one frozen."""
    torch.manual_seed(0)
    net, plain = Net().eval(), Plain().eval()
    made = {
        "scripted": torch.jit.script(net),
        "plain": torch.jit.script(plain),
        "traced": torch.jit.trace(net, example(), check_trace=False),
        "frozen": jit_amp.freeze(net, example_inputs=(example(),)),
    }
    return {name: _saved(module) for name, module in made.items()}


def _saved(module: torch.jit.ScriptModule) -> bytes:
    file = io.BytesIO()
    torch.jit.save(module, file)
    return file.getvalue()
