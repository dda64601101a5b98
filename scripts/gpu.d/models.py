"""torchvision's models in a scope: scripted, traced and frozen, beside eager, in float16.

The models are as they are made, with random weights: nothing is fetched. A model that differs from
eager does so in a form that is told. Compared within rounding are a model of which eager does not
agree with itself, and frozen ones whose batch norms are folded or whose attention is fused: these
with the model in float32.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import jit_amp

try:
    import torchvision
except ImportError:
    print("torchvision is not there")
    sys.exit(0)

warnings.filterwarnings("ignore")
LIBRARIES = "torchvision.models", "torchvision.models.segmentation", "torchvision.models.video"


class Scope(nn.Module):
    """For models that may give a dictionary; that of scripts/benchmarks is for a tensor."""

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
    "for servers": lambda net, x: jit_amp.freeze(net, example_inputs=(x,), target="server"),
}
ROUNDED = "frozen", "for servers"


def tensors(result: Any) -> list[Tensor]:
    return [each for each in pytree.tree_leaves(result) if isinstance(each, Tensor)]


def apart(ours: Any, others: Any, *, dtypes: bool = True) -> float:
    """By how much the results differ, as a share of the largest; infinite where dtypes do."""
    a, b = tensors(ours), tensors(others)
    kinds = [[(t.dtype if dtypes else None, t.shape) for t in each] for each in (a, b)]
    if kinds[0] != kinds[1]:
        return float("inf")
    off = 0.0
    for x, y in zip(a, b, strict=True):
        x, y = (t.double().nan_to_num() for t in (x, y))
        off = max(off, float((x - y).abs().max() / y.abs().max().clamp_min(1e-30)))
    return off


def example(model: Any, name: str, library: Any) -> Tensor:
    if library.__name__.endswith("video"):
        return torch.rand(1, 3, 16, 224, 224)
    weights = list(torchvision.models.get_model_weights(name))
    crop = getattr(weights[0].transforms(), "crop_size", None) if weights else None
    size = getattr(model, "image_size", None) or (crop[0] if crop else 224)  # of a ViT, its own
    return torch.rand(2, 3, size, size)


def is_traceable(model: nn.Module, x: Tensor) -> bool:
    """Whether PyTorch's own trace runs: in a trace a size is a tensor on the CPU, which not all
    operators take beside those on a GPU."""
    try:
        torch.jit.trace(model, (x,), check_trace=False, strict=False)(x)
    except Exception:
        return False
    return True


def check(name: str, library: Any, forms: list[str]) -> dict[str, str]:
    torch.manual_seed(0)
    fetched = {"weights": None}
    if library.__name__.endswith("segmentation"):
        fetched["weights_backbone"] = None
    model = torchvision.models.get_model(name, **fetched)
    net = Scope(model).eval().cuda()
    x = example(model, name, library).cuda()
    told = {}
    with torch.no_grad():
        expected = net(x)
        wide = net.model(x)
        steady = apart(net(x), expected) == 0
        eagers = apart(expected, wide, dtypes=False)
        try:
            torch.jit.script(copy.deepcopy(net))
            compiles = True
        except Exception:  # with or without autocast
            compiles = False
        for form in forms:
            if form != "traced" and not compiles:
                told[form] = "PyTorch does not script it"
                continue
            if form == "traced" and not is_traceable(net.model, x):
                told[form] = "PyTorch does not trace it"
                continue
            try:
                run = FORMS[form](copy.deepcopy(net), x)
                results = [run(x) for _ in range(3)]
                off = max(apart(result, expected) for result in results)
                ours = apart(results[-1], wide, dtypes=False)
            except Exception as error:
                told[form] = f"fails: {(str(error).strip().splitlines() or [''])[0][:200]}"
                continue
            if form in ROUNDED and off < float("inf") and ours <= 1.5 * eagers + 1e-3:
                told[form] = "right"  # folded, and about as far from float32 as eager
            elif off <= (0 if steady else 0.01):
                told[form] = "right"
            else:
                told[form] = f"differs by {off:.1e}; from float32 by {ours:.1e}, eager {eagers:.1e}"
        if not steady:
            told["eager"] = "not steady"
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--form", nargs="+", default=[*FORMS], choices=FORMS)
    given = parser.parse_args()
    number, parts = map(int, given.part.split("/"))
    torch._C._jit_override_can_fuse_on_gpu(False)  # it rounds less than eager
    every = []
    for path in LIBRARIES:
        library = importlib.import_module(path)
        every += [(name, library) for name in torchvision.models.list_models(module=library)]
    wrong = 0
    for name, library in every[number - 1 :: parts]:
        told = check(name, library, given.form)
        bad = {form: text for form, text in told.items() if text.startswith(("fails", "differs"))}
        wrong += bool(bad)
        others = {form: text for form, text in told.items() if text != "right"}
        print(f"{name}: {others or 'right'}", flush=True)
    sys.exit(1 if wrong else 0)


main()
