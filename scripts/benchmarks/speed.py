"""How fast the forms of a model run, as ratios to eager autocast.

Rounds are interleaved: each gives every form a turn of some calls, after a warm-up of each, in an
order that rotates; medians are compared.
On CPU in bfloat16; where there is a GPU, `--device cuda` runs the forms it has in float16.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import models
import torch
import turns
from torch import Tensor, nn
from torch.fx.experimental import optimization
from torch.utils.flop_counter import FlopCounterMode

import jit_amp
from jit_amp._freeze.packed import emulates

warnings.filterwarnings("ignore", "`torch.jit.[a-z_]+` is deprecated")

Run = Callable[[Tensor], Any]


@dataclass(frozen=True)
class Case:
    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    made: Callable[[tuple[int, ...]], Tensor] = torch.randn


def tokens(shape: tuple[int, ...]) -> Tensor:
    return torch.randint(0, 1000, shape)


def channels_last(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape).contiguous(memory_format=torch.channels_last)


def reduced(shape: tuple[int, ...]) -> Tensor:
    """As linear layers give it under autocast."""
    return torch.randn(shape).to(torch.bfloat16)


CASES = {
    "ResNet-50, batch 4": Case(models.ResNet, (4, 3, 224, 224)),
    "MobileNetV3, batch 4": Case(models.MobileNet, (4, 3, 224, 224)),
    "ResNet-50, batch 4, channels last": Case(models.ResNet, (4, 3, 224, 224), channels_last),
    "U-Net, batch 2": Case(models.UNet, (2, 3, 128, 128)),
    "ViT-B/16, batch 1": Case(models.ViT, (1, 3, 224, 224)),
    "Swin, batch 1": Case(models.Swin, (1, 3, 224, 224)),
    "BERT, batch 4, 128 tokens": Case(models.BERT, (4, 128), tokens),
    "MLP, batch 1": Case(models.MLP, (1, 512)),
    "MLP, batch 256": Case(models.MLP, (256, 512)),
    "LSTM, 2 layers, batch 16": Case(models.LSTM, (16, 50, 256)),
}
TOKENS = 197, 1024, 4096
MORE = {
    "ConvNeXt-T, batch 1": Case(models.ConvNeXt, (1, 3, 224, 224)),
    "ResNet-18, batch 1": Case(
        partial(models.ResNet, (2, 2, 2, 2), block=models.BasicBlock), (1, 3, 224, 224)
    ),
    "MLP, batch 64": Case(models.MLP, (64, 512)),
    **{
        f"attention, {how}, {n} tokens": Case(partial(make, *given), (3, 1, 8, n, 64), reduced)
        for n in TOKENS
        for how, make, given in (
            ("plain", models.PlainAttention, ()),
            ("causal", models.CausalAttention, ()),
            ("biased", models.BiasedAttention, (n,)),
        )
    },
    "Whisper's block, 1500 frames": Case(models.WhisperBlock, (1, 1500, 512)),
    "GPT-2's block, 1024 tokens": Case(models.GPT2Block, (1, 1024, 768)),
    **{
        f"50 layers, width {width}": Case(partial(models.ManyLayers, width), (1, width))
        for width in (8, 16, 32, 64, 128, 512)
    },
}
WARM_UP = 4  # the executor profiles in the first call and optimises in the second
warm_ups = [WARM_UP]
TURN = 0.05  # seconds that eager runs at least in a round: what a call finds in caches is its own
MATRIX = 2048  # rows and columns of the product that tells the machine's rate


@dataclass(frozen=True)
class Under:
    """What the forms are made for."""

    device: str
    dtype: torch.dtype

    def autocast(self, model: nn.Module) -> nn.Module:
        return models.Autocast(model, self.device, self.dtype).eval()


@contextmanager
def fusion() -> Iterator[None]:
    """oneDNN's fused groups, for what runs the first times inside."""
    torch.jit.enable_onednn_fusion(True)
    try:
        yield
    finally:
        torch.jit.enable_onednn_fusion(False)


def warmed(run: Run, x: Tensor) -> Run:
    for _ in range(warm_ups[0]):
        run(x)
    return run


def eager(model: nn.Module, x: Tensor, under: Under) -> Run:
    return warmed(under.autocast(model), x)


def scripted(model: nn.Module, x: Tensor, under: Under) -> Run:
    return warmed(jit_amp.script(under.autocast(model)), x)


def frozen(model: nn.Module, x: Tensor, under: Under) -> Run:
    return warmed(jit_amp.freeze(under.autocast(model), example_inputs=(x,)), x)


def server(model: nn.Module, x: Tensor, under: Under) -> Run:
    made = jit_amp.freeze(under.autocast(model), example_inputs=(x,), target="server")
    return warmed(made, x)


def full(model: nn.Module, x: Tensor, under: Under) -> Run:
    """The model without autocast."""
    made, y = torch.jit.freeze(torch.jit.script(model)), x.float() if x.is_floating_point() else x
    run = warmed(made, y)
    return lambda _: run(y)


def frozen_fused(model: nn.Module, x: Tensor, under: Under) -> Run:
    with fusion():
        return frozen(model, x, under)


def plain(model: nn.Module, x: Tensor, under: Under) -> Run:
    """PyTorch's own autocast pass."""
    return warmed(torch.jit.freeze(torch.jit.script(under.autocast(model))), x)


def traced(model: nn.Module, x: Tensor, under: Under) -> Run:
    """As PyTorch's oneDNN page says: fuse, trace under autocast without its cache, freeze."""
    with torch.autocast(under.device, dtype=under.dtype, cache_enabled=False):
        if any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules()):
            model = optimization.fuse(model)
        recorded = torch.jit.trace(model, x, check_trace=False)
    with fusion():
        return warmed(torch.jit.freeze(recorded), x)


def pure(model: nn.Module, x: Tensor, under: Under) -> Run:
    """All in the reduced dtype, which is not what autocast computes."""
    reduced = copy.deepcopy(model).to(under.dtype)
    converted = torch.jit.freeze(torch.jit.script(reduced))
    y = x.to(under.dtype)
    run = warmed(converted, y)
    return lambda _: run(y)


def pure_fused(model: nn.Module, x: Tensor, under: Under) -> Run:
    with fusion():
        return pure(model, x, under)


def compiled(model: nn.Module, x: Tensor, under: Under) -> Run:
    torch.compiler.reset()
    with torch._inductor.config.patch(freezing=True):
        return warmed(torch.compile(under.autocast(model)), x)


def graphed(model: nn.Module, x: Tensor, under: Under) -> Run:
    """An artefact, captured in a CUDA graph: what a call costs without starting its kernels."""
    run = frozen(model, x, under)
    given, graph = x.clone(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.no_grad(), torch.cuda.graph(graph):
        result = run(given)

    def replay(x: Tensor) -> Tensor:
        given.copy_(x)
        graph.replay()
        return result

    return replay


def packaged(model: nn.Module, x: Tensor, under: Under) -> Run:
    """The exported program, compiled by AOTInductor, for this size."""
    program = jit_amp.export(under.autocast(model), (x,), dynamic_shapes={})
    with tempfile.TemporaryDirectory() as folder:
        package = torch._inductor.aoti_compile_and_package(
            program,
            package_path=f"{folder}/model.pt2",
            inductor_configs={"freezing": True},
        )
        return warmed(torch._inductor.aoti_load_package(package), x)


EAGER, OURS = "eager autocast", "jit_amp.freeze, oneDNN"
FORMS: dict[str, Callable[[nn.Module, Tensor, Under], Run]] = {
    EAGER: eager,
    "jit_amp.script": scripted,
    "jit_amp.freeze": frozen,
    "jit_amp.freeze, server": server,
    OURS: frozen_fused,
    "torch.jit.script, freeze": plain,
    "trace, freeze, oneDNN": traced,
    "float32, freeze": full,
    "pure, freeze": pure,
    "pure, freeze, oneDNN": pure_fused,
    "torch.compile, freezing": compiled,
    "jit_amp.export, AOTInductor": packaged,
}
ON_A_GPU = {"jit_amp.freeze, CUDA graph": graphed}
LIMIT = "matrix rate"


def matrix_product(under: Under) -> Run:
    """In float32 where the processor emulates the dtype: a product in that takes half a minute."""
    emulated = under.device == "cpu" and emulates(under.dtype)
    dtype = torch.float32 if emulated else under.dtype
    a, b = (torch.randn(MATRIX, MATRIX, device=under.device).to(dtype) for _ in range(2))
    return lambda _: a @ b


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def prepared(name: str, under: Under) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    case = {**CASES, **MORE}[name]
    model = case.model().eval().requires_grad_(False).to(under.device)
    return model, case.made(case.shape).to(under.device)


def timed(run: Run, x: Tensor, calls: int, under: Under) -> float:
    """Seconds a call."""
    start = time.perf_counter()
    for _ in range(calls):
        run(x)
    if under.device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


class Ratio(float):
    """A median, and how far the quartiles of the rounds lie from it."""

    spread: float

    @classmethod
    def of(cls, eager: list[float], form: list[float]) -> Ratio:
        """Of two forms that were timed in the same rounds."""
        made = cls(statistics.median(eager) / statistics.median(form))
        each = [a / b for a, b in zip(eager, form, strict=True)]
        low, _, high = statistics.quantiles(each, n=4) if len(each) > 1 else (made, made, made)
        made.spread = (high - low) / 2
        return made


def features() -> str:
    """What the processor has that matters here."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return "unknown processor"
    known = {"amx_bf16": "AMX", "avx512_bf16": "AVX512-BF16", "avx512_fp16": "AVX512-FP16"}
    return (
        ", ".join(name for flag, name in known.items() if flag in flags) or "no bfloat16 of its own"
    )


def measure(name: str, forms: list[str], rounds: int, under: Under) -> dict[str, float | str]:
    """Times as fast as eager autocast, by form; the error of one that fails."""
    model, x = prepared(name, under)
    runs: dict[str, Run] = {}
    found: dict[str, float | str] = {}
    for form in forms:
        say(f"{name}: {form}")
        try:
            runs[form] = {**FORMS, **ON_A_GPU}[form](model, x, under)
        except Exception as error:
            found[form] = next(line for line in str(error).splitlines() if line.strip())
    with FlopCounterMode(display=False) as count, torch.backends.mkldnn.flags(enabled=False):
        model(x)  # an LSTM as the products that oneDNN's is made of
    runs[LIMIT] = matrix_product(under)
    seconds: dict[str, list[float]] = {form: [] for form in runs}
    with turns.alone():
        calls = max(1, int(TURN / timed(runs[EAGER], x, 1, under)))
        say(f"{name}: {rounds} rounds of {calls} calls each")
        for form in turns.order(runs, rounds):
            seconds[form].append(timed(runs[form], x, 1 if form == LIMIT else calls, under))
    share = count.get_total_flops() / (2 * MATRIX**3)
    seconds[LIMIT] = [taken * share for taken in seconds[LIMIT]]
    found.update({form: Ratio.of(seconds[EAGER], taken) for form, taken in seconds.items()})
    return {form: found[form] for form in [*forms, LIMIT]}


def first_result(name: str, form: str, under: Under) -> float:
    """Seconds from a model to the end of the first call after the warm-up."""
    model, x = prepared(name, under)
    start = time.perf_counter()
    run = FORMS[form](model, x, under)
    run(x)
    if under.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def first_results(names: list[str], device: str) -> None:
    """The same in processes of their own, jit_amp's as a share of torch.compile's."""
    for name in names:
        seconds = {}
        for form in (OURS, "torch.compile, freezing"):
            say(f"{name}: {form}")
            with tempfile.TemporaryDirectory() as cache:
                output = subprocess.run(
                    [sys.executable, __file__, "--device", device, "--first", name, form],
                    env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache},
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            seconds[form] = float(output.splitlines()[-1])
        ours, theirs = seconds.values()
        print(f"{name:28}{ours / theirs:8.2f}", flush=True)


def size(module: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        torch.jit.save(module, Path(folder) / "model.pt")
        return (Path(folder) / "model.pt").stat().st_size


def sizes(names: list[str], under: Under) -> None:
    """The frozen file as a share of the float32 one."""
    for name in names:
        model, x = prepared(name, under)
        reduced = jit_amp.freeze(under.autocast(model), example_inputs=(x,))
        full = torch.jit.freeze(torch.jit.script(model))
        print(f"{name:28}{size(reduced) / size(full):8.3f}", flush=True)


def cell(found: float | str) -> str:
    if isinstance(found, Ratio):
        return f"{found:.2f} +-{found.spread:.2f}"
    return f"{found:.2f}" if isinstance(found, float) else "fails"


def table(results: dict[str, dict[str, float | str]]) -> str:
    """A line a form, a column a model."""
    names = list(results)
    heads = [name.split(", ") for name in names]
    lines = [
        f"{'':28}" + "".join(f"{head[i] if i < len(head) else '':>15}" for head in heads)
        for i in range(max(map(len, heads)))
    ]
    for form in results[names[0]]:
        cells = [results[name][form] for name in names]
        lines.append(f"{form:28}" + "".join(f"{cell(c):>15}" for c in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--model", default="", help="those whose name holds this")
    parser.add_argument(
        "--form", action="append", help="eager, and forms whose name holds this, or one of these"
    )
    parser.add_argument(
        "--more",
        action="store_true",
        help="other models: attention by hand, many small layers, blocks of Whisper and GPT-2",
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--chart", type=Path, help="draw it there, as a PNG; NAME-short.png too")
    parser.add_argument("--first", nargs=2, metavar=("MODEL", "FORM"), help=argparse.SUPPRESS)
    parser.add_argument(
        "--fuser", choices=("on", "off"), help="TorchScript's for GPUs; as it is if left out"
    )
    parser.add_argument("--only", choices=("speed", "size", "first"))
    parser.add_argument(
        "--warm-up", type=int, default=WARM_UP, help="calls of each form that are not timed"
    )
    parser.add_argument("--threads", type=int, help="of PyTorch's; all of them if left out")
    options = parser.parse_args()

    warm_ups[0] = options.warm_up
    if options.threads:
        torch.set_num_threads(options.threads)
    under = Under(options.device, torch.bfloat16 if options.device == "cpu" else torch.float16)
    names = [name for name in (MORE if options.more else CASES) if options.model in name]
    known = [*FORMS, *(ON_A_GPU if options.device == "cuda" else ())]
    wanted = options.form or [""]
    forms = [form for form in known if form == EAGER or any(part in form for part in wanted)]
    if options.device != "cpu":
        elsewhere = "oneDNN", "AOTInductor"
        forms = [form for form in forms if not any(name in form for name in elsewhere)]
    if options.fuser:
        torch._C._jit_override_can_fuse_on_gpu(options.fuser == "on")
        torch._C._jit_set_texpr_fuser_enabled(options.fuser == "on")
    with torch.no_grad():
        if options.first:
            print(first_result(*options.first, under))
            return
        if options.only in (None, "speed"):
            results = {name: measure(name, forms, options.rounds, under) for name in names}
            where = f"{torch.get_num_threads()} threads, {features()}"
            if options.device == "cuda" and torch.backends.cuda.is_built():
                where = torch.cuda.get_device_name()
            print(f"{where}: times as fast as eager autocast, half the distance of the quartiles;")
            print("matrix rate: as its matrix products could be\n")
            print(table(results))
            for name, found in results.items():
                for form, result in found.items():
                    if isinstance(result, str):
                        print(f"{name}, {form}: {result}")
            if options.chart:
                from chart import draw, draw_few

                draw(results, LIMIT, options.chart)
                if not (options.model or options.form or options.more):
                    short = options.chart
                    draw_few(results, short.with_stem(f"{short.stem}-short"))
        if options.only in (None, "size"):
            print("\nsize of the frozen file, as a share of the float32 model's")
            sizes(names, under)
        if options.only in (None, "first"):
            print("\ntime to the first fast result, as a share of torch.compile's")
            first_results(names, options.device)


if __name__ == "__main__":
    main()
