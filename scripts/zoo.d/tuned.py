"""What `jit_amp.tune` finds in models of torchvision and timm that overflow in float16.

In each, a layer's weights are multiplied and those of the next layer divided by the same number, so
that what stands between them is beyond float16's largest number. What is compared with is the same
model in float32. Each row: the modules that stay in float32; the evaluations, and their bound;
whether any set that leaves fewer modules in float32 holds, where these are few enough to try all;
the share of autocast's saving that is kept, counted in work as tune does and in time: of frozen
models, in rounds that are interleaved, medians. Times are in bfloat16 with the same modules in
float32, because no CPU is as fast in float16.

    scripts/zoo tuned [--models GLOB] [--most SETS] [--rounds N] [--json PATH]
"""

from __future__ import annotations

# Before torchvision, which timm imports.
import torchvision_extension  # noqa: F401  # isort: skip

import argparse
import copy
import dataclasses
import fnmatch
import itertools
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
from catalog import stir
from torch import Tensor, nn

import jit_amp
from jit_amp._tune.tune import relative_error

warnings.filterwarnings("ignore", "`torch.jit.[a-z_]+` is deprecated")

F16 = torch.float16
BEYOND = 8.0  # times float16's largest number
TURN = 0.2  # seconds that a form runs in a round


@dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]
    plants: tuple[tuple[str, str], ...]
    """Each a layer, or a norm after it, whose result is to overflow, and the layer that follows."""
    size: int = 224
    batch: int = 1


class Head(nn.Module):
    """What a detection model computes before it chooses boxes."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.backbone, self.head = model.backbone, model.head

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        features = self.backbone(x)
        made: dict[str, Tensor] = self.head(list(features.values()))
        return made


def _timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, pretrained=False, scriptable=True, **options)


def _vision(name: str) -> Callable[[], nn.Module]:
    return lambda: torchvision.models.get_model(name, weights=None)


def _detection(name: str) -> Callable[[], nn.Module]:
    return lambda: Head(torchvision.models.get_model(name, weights=None, weights_backbone=None))


def _mlp(path: str) -> tuple[str, str]:
    return f"{path}.fc1", f"{path}.fc2"


SMALL_VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "num_heads": 2, "num_classes": 4}


def _mixer() -> nn.Module:
    return timm.models.mlp_mixer.MlpMixer(
        img_size=64, patch_size=16, num_blocks=2, embed_dim=32, num_classes=4
    )


CASES = {
    # Few enough modules for all sets.
    "timm vit, 2 blocks": Case(
        _timm("vit_tiny_patch16_224", depth=2, **SMALL_VIT), (_mlp("blocks.1.mlp"),), 32
    ),
    "timm vit, 2 blocks, twice": Case(
        _timm("vit_tiny_patch16_224", depth=2, **SMALL_VIT),
        (_mlp("blocks.0.mlp"), _mlp("blocks.1.mlp")),
        32,
    ),
    "timm mixer, 2 blocks": Case(_mixer, (_mlp("blocks.0.mlp_channels"),), 64),
    "timm mixer, 2 blocks, twice": Case(
        _mixer, (_mlp("blocks.0.mlp_channels"), _mlp("blocks.1.mlp_tokens")), 64
    ),
    "timm convnext, 4 blocks": Case(
        _timm("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 16, 16), num_classes=4),
        (_mlp("stages.1.blocks.0.mlp"),),
        64,
    ),
    # As people have them.
    "timm vit_tiny": Case(_timm("vit_tiny_patch16_224"), (_mlp("blocks.5.mlp"),)),
    "timm deit_small, twice": Case(
        _timm("deit_small_patch16_224"), (_mlp("blocks.2.mlp"), _mlp("blocks.9.mlp"))
    ),
    "timm swin_tiny": Case(_timm("swin_tiny_patch4_window7_224"), (_mlp("layers.2.blocks.1.mlp"),)),
    "timm convnext_atto, three times": Case(
        _timm("convnext_atto"), tuple(_mlp(f"stages.{i}.blocks.1.mlp") for i in (0, 2, 3))
    ),
    "timm mixer_s32": Case(_timm("mixer_s32_224"), (_mlp("blocks.3.mlp_tokens"),)),
    "timm poolformer_s12": Case(_timm("poolformer_s12"), (_mlp("stages.1.blocks.1.mlp"),)),
    "torchvision resnet18": Case(
        _vision("resnet18"), (("layer2.0.bn1", "layer2.0.conv2"),), batch=2
    ),
    "torchvision mobilenet_v3_small": Case(
        _vision("mobilenet_v3_small"), (("features.4.block.0.1", "features.4.block.1.0"),), batch=2
    ),
    "torchvision regnet_y_400mf": Case(
        _vision("regnet_y_400mf"),
        (("trunk_output.block2.block2-1.f.a.1", "trunk_output.block2.block2-1.f.b.0"),),
    ),
    "torchvision swin_t": Case(_vision("swin_t"), (("features.3.0.mlp.0", "features.3.0.mlp.3"),)),
    "torchvision convnext_tiny": Case(
        _vision("convnext_tiny"), (("features.3.1.block.3", "features.3.1.block.5"),)
    ),
    "torchvision vit_b_16": Case(
        _vision("vit_b_16"),
        (tuple(f"encoder.layers.encoder_layer_3.mlp.{i}" for i in (0, 3)),),  # type: ignore[arg-type]
    ),
    "torchvision retinanet, head": Case(
        _detection("retinanet_resnet50_fpn"),
        (("head.classification_head.conv.1.0", "head.classification_head.conv.2.0"),),
        128,
    ),
    "torchvision fcos, head": Case(
        _detection("fcos_resnet50_fpn"),
        (("head.regression_head.conv.1", "head.regression_head.conv.3"),),
        128,
    ),
}


def planted(case: Case) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model, x = stir(case.build()).eval(), torch.randn(case.batch, 3, case.size, case.size)
    for up, down in case.plants:
        largest = _largest(model, up, x)
        factor = BEYOND * torch.finfo(F16).max / largest
        with torch.no_grad():
            for parameter in model.get_submodule(up).parameters():
                parameter.mul_(factor)
            model.get_submodule(down).weight.div_(factor)  # type: ignore[operator, union-attr]
    return model, x


def _largest(model: nn.Module, name: str, x: Tensor) -> float:
    seen: list[float] = []
    hook = model.get_submodule(name).register_forward_hook(
        lambda _module, _args, result: seen.append(result.abs().max().item())
    )
    with torch.no_grad():
        model(x)
    hook.remove()
    return max(seen)


# All smaller sets.


def smaller_sets(names: list[str], size: int) -> Iterator[tuple[str, ...]]:
    """Sets of modules that leave fewer than `size` modules in float32, those inside counted."""
    inside = {name: frozenset(within(name, names)) for name in names}
    for count in range(1, size):
        for chosen in itertools.combinations([n for n in names if len(inside[n]) < size], count):
            together = frozenset().union(*(inside[name] for name in chosen))
            if len(together) == sum(len(inside[n]) for n in chosen) < size:
                yield chosen


def within(unit: str, names: list[str]) -> list[str]:
    return [each for each in names if not unit or f"{each}.".startswith(f"{unit}.")]


def exhaustive(found: jit_amp.Precision, model: nn.Module, x: Tensor, most: int) -> str:
    names = [each.unit for each in found.sensitivities]
    size = sum(len(within(unit, names)) for unit in found.units)
    sets = list(itertools.islice(smaller_sets(names, size), most + 1))
    if len(sets) > most:
        return f"more than {most}, not tried"
    with torch.no_grad():
        reference = model(x)
        for number, units in enumerate(sets):
            if number % 100 == 0:
                say(f"  smaller sets: {number} of {len(sets)}")
            error = relative_error(
                dataclasses.replace(found, units=units).apply(model)(x), reference
            )
            if error <= found.tolerance:
                return f"SMALLER: {units}, {error:.3g}"
    return f"none of {len(sets)}"


# Time.


def share_of_time(found: jit_amp.Precision, model: nn.Module, x: Tensor, rounds: int) -> str:
    """The share of float32's time that autocast saves, and how much of that is left."""
    runs = {}
    for name, units in {"float32": ("",), "autocast": (), "tuned": found.units}.items():
        precision = dataclasses.replace(found, units=units, dtype="bfloat16")
        runs[name] = jit_amp.freeze(
            copy.deepcopy(model), example_inputs=(x,), precision=precision, target="server"
        )
    calls = max(1, int(TURN / min(_seconds(run, x, 3) for run in runs.values())))
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        turn = number % len(runs)
        for name in [*list(runs)[turn:], *list(runs)[:turn]]:
            taken[name].append(_seconds(runs[name], x, calls))
    whole, plain, tuned = (statistics.median(taken[name]) for name in runs)
    saved = 1 - plain / whole
    if saved < 0.05:
        return f"autocast saves {saved:.0%}"
    return f"{(whole - tuned) / (whole - plain):.0%} of {saved:.0%}"


def _seconds(run: Any, x: Tensor, calls: int) -> float:
    with torch.no_grad():
        run(x)
        start = time.perf_counter()
        for _ in range(calls):
            run(x)
        return (time.perf_counter() - start) / calls


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measured(case: Case, most: int, rounds: int) -> dict[str, Any]:
    model, x = planted(case)
    found = jit_amp.tune(model, (x,), dtype=F16)
    n, k = found.candidates, len(found.units)
    return {
        "modules": n,
        "in float32": ", ".join(found.units),
        "error": f"{found.error_plain:.2g} -> {found.error:.2g}",
        "evaluations": found.evaluations,
        "bound": round(3 * max(1, k) * math.log2(n) + n / 8),
        "smaller": exhaustive(found, model, x, most),
        "work kept": f"{found.saved:.1%}",
        "time kept": share_of_time(found, model, x, rounds) if rounds else "",
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/zoo tuned", description=__doc__)
    parser.add_argument("--models", default="*", help="a pattern of names")
    parser.add_argument("--most", type=int, default=2000, help="smaller sets of a model, at most")
    parser.add_argument("--rounds", type=int, default=15, help="of timing; 0: none")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    options = parser.parse_args()
    names = [name for name in CASES if fnmatch.fnmatch(name, options.models)]
    if not names:
        parser.error(f"--models: none of {', '.join(CASES)}")
    rows = {}
    for number, name in enumerate(names, 1):
        say(f"[{number}/{len(names)}] {name}")
        rows[name] = row = measured(CASES[name], options.most, options.rounds)
        print(f"{name}: " + "; ".join(f"{k} {v}" for k, v in row.items() if v != ""), flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    return int(any("SMALLER" in row["smaller"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
