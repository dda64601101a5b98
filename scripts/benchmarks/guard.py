"""What a frozen module's check for an autocast around the call costs.

Calls a second of a small and of a middle model, without that check and with it: the same module,
from which the check is taken. PyTorch's executor runs what torch.jit.load gives, and the lite
interpreter its own file, on one thread. The two forms take turns, block by block, in an order that
rotates; the figures are medians of blocks, and the median of the shares of neighbouring blocks
with their quartiles.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import models
import torch
from torch import Tensor, nn
from torch.jit.mobile import _load_for_lite_interpreter

import jit_amp

warnings.filterwarnings("ignore")


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "small: two Linear(8, 8)": (Small, (4, 8), 1000),
    "middle: an MLP of 512": (models.MLP, (1, 512), 50),
}


def without_check(module: Any) -> None:
    """Takes the check out of the graph: the product over no elements, and what follows from it."""
    products = [node for node in module.graph.findAllNodes("aten::prod") if not node.mustBeNone()]
    [product] = products
    while product.kind() != "prim::If":
        product = next(iter(product.output().uses())).user
    product.destroy()
    torch._C._jit_pass_dce(module.graph)


def saved(module: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return file


def forms(make: Callable[[], nn.Module], x: Tensor) -> dict[str, tuple[Any, Any]]:
    """By interpreter, the module without the check and the one with it."""
    torch.manual_seed(0)
    model = models.Autocast(make().eval().requires_grad_(False)).eval()
    guarded = jit_amp.freeze(model, example_inputs=(x,))
    plain = torch.jit.load(saved(guarded))
    without_check(plain)
    pair = (plain, guarded)
    return {
        "executor": tuple(torch.jit.load(saved(each)) for each in pair),
        "lite": tuple(
            _load_for_lite_interpreter(io.BytesIO(each._save_to_buffer_for_lite_interpreter()))
            for each in pair
        ),
    }


def rate(call: Callable[[Tensor], Tensor], x: Tensor, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call(x)
    return calls / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':26}{'':10}{'without /s':>12}{'with /s':>12}{'share':>9}{'quartiles':>18}")
    for name, (make, shape, calls) in MODELS.items():
        x = torch.randn(shape)
        for interpreter, pair in forms(make, x).items():
            rates: list[tuple[float, float]] = []
            with torch.inference_mode():
                assert torch.equal(pair[0](x), pair[1](x))
                for _ in range(5):
                    for module in pair:
                        rate(module, x, calls)
                for turn in range(options.rounds):
                    first, second = (rate(pair[i ^ (turn % 2)], x, calls) for i in range(2))
                    rates.append((first, second) if turn % 2 == 0 else (second, first))
            shares = [after / before for before, after in rates]
            low, middle, high = statistics.quantiles(shares, n=4)
            before, after = (statistics.median(column) for column in zip(*rates, strict=True))
            print(
                f"{name:26}{interpreter:10}{before:12.0f}{after:12.0f}{middle:9.3f}"
                f"{low:10.3f}{high:8.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
