"""torchvision's models in a scope: scripted, traced and frozen, beside eager, in float16.

The models are as they are made, with random weights: nothing is fetched. A model that differs from
eager does so in a form that is told; one of which eager does not agree with itself is compared
within rounding.
"""

from __future__ import annotations

import argparse
import copy
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import jit_amp

try:
    import torchvision
except ImportError:
    print("torchvision is not there")
    sys.exit(0)

warnings.filterwarnings("ignore")
LIBRARIES = "torchvision.models", "torchvision.models.segmentation", "torchvision.models.video"


class Scope(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            return self.model(x)


FORMS: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "scripted": lambda net, x: jit_amp.script(net),
    "traced": lambda net, x: jit_amp.trace(net, (x,), check_trace=False, strict=False),
    "frozen, exact": lambda net, x: jit_amp.freeze(net, optimize_numerics=False),
    "frozen": lambda net, x: jit_amp.freeze(net, example_inputs=(x,)),
}


def tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [t for each in (result.values() if isinstance(result, dict) else result)
            for t in tensors(each)]  # fmt: skip


def apart(ours: Any, eagers: Any) -> float:
    """By how much the results differ, as a share of the largest; infinite where dtypes do."""
    a, b = tensors(ours), tensors(eagers)
    if [(t.dtype, t.shape) for t in a] != [(t.dtype, t.shape) for t in b]:
        return float("inf")
    pairs = [(x.double(), y.double()) for x, y in zip(a, b, strict=True)]
    return max(float((x - y).abs().max() / y.abs().max().clamp_min(1e-30)) for x, y in pairs)


def example(name: str, library: Any) -> Tensor:
    if library.__name__.endswith("video"):
        return torch.rand(1, 3, 16, 224, 224)
    weights = list(torchvision.models.get_model_weights(name))
    crop = getattr(weights[0].transforms(), "crop_size", None) if weights else None
    size = crop[0] if crop else 224
    return torch.rand(2, 3, size, size)


def check(name: str, library: Any) -> dict[str, str]:
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None)
    net, x = Scope(model).eval().cuda(), example(name, library).cuda()
    told = {}
    with torch.no_grad():
        expected = net(x)
        steady = apart(net(x), expected) == 0
        try:
            torch.jit.script(copy.deepcopy(net))
            compiles = True
        except Exception:  # with or without autocast
            compiles = False
        for form, make in FORMS.items():
            if form != "traced" and not compiles:
                told[form] = "PyTorch does not script it"
                continue
            try:
                run = make(copy.deepcopy(net), x)
                off = max(apart(run(x), expected) for _ in range(3))
            except Exception as error:
                told[form] = f"fails: {(str(error).strip().splitlines() or [''])[0][:200]}"
                continue
            allowed = 0.05 if form == "frozen" else 0 if steady else 0.01
            told[form] = "right" if off <= allowed else f"differs by {off:.1e}"
        told["eager"] = "steady" if steady else "not steady"
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="1/1")
    number, parts = map(int, parser.parse_args().part.split("/"))
    torch._C._jit_override_can_fuse_on_gpu(False)  # it rounds less than eager
    every = []
    for path in LIBRARIES:
        library = sys.modules[path] if path in sys.modules else __import__(path, fromlist=["_"])
        every += [(name, library) for name in torchvision.models.list_models(module=library)]
    wrong = 0
    for name, library in every[number - 1 :: parts]:
        told = check(name, library)
        bad = {form: text for form, text in told.items() if text.startswith(("fails", "differs"))}
        wrong += bool(bad)
        rest = "" if len(set(told.values()) - {"steady"}) == 1 else f" {told}"
        print(f"{name}: {bad or 'right'}{rest if not bad else ''}", flush=True)
    sys.exit(1 if wrong else 0)


main()
