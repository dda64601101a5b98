"""How many casts a forward executes: eager autocast, with its cache, against scripted and frozen.

A cast is a copy of a tensor into another floating dtype, counted where the dispatcher runs it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import models
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import jit_amp

CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "ResNet, (3, 4, 6, 3)": (lambda: models.ResNet(width=8), lambda: torch.randn(1, 3, 64, 64)),
    "encoder, 4 layers": (lambda: models.Encoder(4, 64, 4), lambda: torch.randn(2, 9, 64)),
    "MLP, 5 layers": (lambda: models.MLP(32), lambda: torch.randn(4, 32)),
    "LSTM, 20 steps, and nn.LSTM": (lambda: models.LoopedLSTM(16), lambda: torch.randn(2, 20, 16)),
}


class CountCasts(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.casts = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default:
            before, after = args[0].dtype, result.dtype
            self.casts += before != after and before.is_floating_point and after.is_floating_point
        return result


def count_casts(function: Callable[..., Any], *inputs: Any) -> int:
    """Of the third call: the executor changes its plan between the first two."""
    for _ in range(2):
        function(*inputs)
    with CountCasts() as count:
        function(*inputs)
    return count.casts


def main() -> None:
    warnings.filterwarnings("ignore", "`torch.jit.[a-z_]+` is deprecated")
    columns = ("eager", "scripted", "frozen", "frozen, example")
    print(f"{'casts executed per forward':30}" + "".join(f"{c:>17}" for c in columns))
    missed = False
    for name, (make, example) in CASES.items():
        torch.manual_seed(0)
        model, x = models.Autocast(make()).eval(), example()
        forms = [
            model,
            jit_amp.script(model),
            jit_amp.freeze(model),
            jit_amp.freeze(model, example_inputs=(x,)),
        ]
        for mode in (torch.enable_grad, torch.no_grad):
            with mode():
                counts = [count_casts(form, x) for form in forms]
            missed |= max(counts) > counts[0]
            label = name if mode is torch.enable_grad else "  the same under no_grad"
            print(f"{label:30}" + "".join(f"{count:17}" for count in counts), flush=True)
    if missed:
        print("More than eager's somewhere.")
    raise SystemExit(missed)


if __name__ == "__main__":
    main()
