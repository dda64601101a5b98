"""What `jit_amp.tune` and ModelOpt's AutoCast keep in float32, on models that both can read.

Each gets the same float32 model and the same inputs, in float16. AutoCast decides by the values of
one run in float32; it converts an ONNX file, whose results come from ONNX Runtime. `tune` gets the
error that AutoCast's has as its tolerance, or 0.01. Both errors are the largest difference from
float32, relative to its largest value. Needs nvidia-modelopt[onnx], which scripts/bench installs.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from modelopt.onnx.autocast.convert import convert_to_mixed_precision
from torch import Tensor, nn

import jit_amp

sys.path.append(str(Path(__file__).parents[2] / "examples" / "explained"))
from vit import ViT

HELPERS = ("Cast", "Constant", "Shape")
PRODUCTS = ("Conv", "Gemm", "MatMul", "conv2d", "linear", "matmul", "addmm", "bmm")
FLOAT, HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


class Scores(ViT):
    """A vision transformer, as AutoCast's own pages convert one."""

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class Odds(Scores):
    """The same with a last operator that overflows."""

    def forward(self, image: Tensor) -> Tensor:
        scores = super().forward(image)
        odds = (scores * 60).exp()
        return odds / odds.sum()


class Outliers(nn.Module):
    """Residual convolutions with some large channels, which are finite in float16."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 32, 3, 2, 1)
        self.convs = nn.ModuleList(nn.Conv2d(32, 32, 3, 1, 1) for _ in range(8))
        self.norm, self.head = nn.GroupNorm(4, 32), nn.Linear(32, 10)
        with torch.no_grad():
            self.convs[2].weight[:4] *= 3000.0
            self.convs[5].weight *= 200.0

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv in self.convs:
            x = x + torch.relu(conv(self.norm(x)))
        return self.head(self.norm(x).mean((2, 3)))


MODELS = {
    "vision transformer": (Scores, 224),
    "the same, whose end overflows": (Odds, 224),
    "convolutions, large channels": (Outliers, 64),
}


def error_of(result: Tensor, reference: Tensor) -> float:
    if not torch.isfinite(result).all():
        return float("inf")
    return float((result - reference).abs().max() / reference.abs().max())


def line(tool: str, kept: list[str], of: list[str], error: float, rest: str) -> str:
    products = [sum(each in PRODUCTS for each in some) for some in (kept, of)]
    return (
        f"  {tool}: {len(kept)} of {len(of)} operators in float32, {products[0]} of {products[1]} "
        f"products; error {error:.1e}; {rest}"
    )


def by_autocast(net: nn.Module, inputs: list[Tensor], wanted: list[Tensor]) -> tuple[str, float]:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file, example = f"{folder}/net.onnx", f"{folder}/inputs.npz"
        torch.onnx.export(
            net, (inputs[0],), file, input_names=["x"], opset_version=19, dynamo=False
        )
        np.savez(example, x=inputs[0].numpy())
        made = convert_to_mixed_precision(
            file, "fp16", keep_io_types=True, calibration_data=example
        )
    graph = onnx.shape_inference.infer_shapes(made).graph
    dtypes = {x.name: x.type.tensor_type.elem_type for x in (*graph.value_info, *graph.output)}
    nodes = [
        (node.op_type, dtypes.get(node.output[0]))
        for node in made.graph.node
        if node.op_type not in HELPERS
    ]
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=onnxruntime.get_available_providers()
    )
    results = (torch.tensor(session.run(None, {"x": x.numpy()})[0]) for x in inputs)
    error = max(map(error_of, results, wanted))
    kept = [name for name, dtype in nodes if dtype == FLOAT]
    of = [name for name, dtype in nodes if dtype in (FLOAT, HALF)]
    return line("AutoCast", kept, of, error, f"1 run, {time.monotonic() - begin:.0f} s"), error


def by_tune(net: nn.Module, inputs: list[Tensor], tolerance: float) -> Iterator[str]:
    for units in ("module", "line", "operator"):
        begin = time.monotonic()
        found = jit_amp.tune(net, inputs, dtype=torch.float16, units=units, tolerance=tolerance)
        took = time.monotonic() - begin
        with torch.autocast("cpu", dtype=torch.float16):
            rows = jit_amp.explain(found.apply(net), (inputs[0],)).rows
        names = [(row.operator.partition("::")[2], row.computed_in) for row in rows]
        kept = [name for name, dtype in names if dtype == "float32"]
        words = f"in float32: {', '.join(found.units) or 'nothing'}"
        rest = f"{found.evaluations} runs, {took:.0f} s; {words}"
        yield line(f"tune, {units}", kept, [name for name, _ in names], found.error, rest)


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for name, (make, size) in MODELS.items():
        net = make().eval()
        torch.manual_seed(1)
        inputs = [torch.randn(1, 3, size, size) for _ in range(4)]
        with torch.no_grad():
            told, error = by_autocast(net, inputs, [net(x) for x in inputs])
        print(name, told, sep="\n", flush=True)
        for each in by_tune(net, inputs, max(error, 0.01) if error < float("inf") else 0.01):
            print(each, flush=True)


if __name__ == "__main__":
    main()
