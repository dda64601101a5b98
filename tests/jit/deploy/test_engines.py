"""Artefacts in other engines, as scripts/ship takes them there; here those that install quickly
(`pip install jit_amp[ship]`)."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from shipped_models import DTYPES, MODELS, scoped
from torch import Tensor, nn
from torch._export.converter import TS2EPConverter

import jit_amp
from jit_amp._cli.triton import write_repository

from ..support import assert_same

QUICK = {"onnx": ("onnx", "onnxruntime", "onnxscript"), "openvino": ("openvino",)}

pytestmark = pytest.mark.filterwarnings("ignore")  # the engines' own, of their own code


@functools.cache
def frozen(model: str, dtype: str) -> tuple[Any, Tensor]:
    module, x = scoped(model, dtype)
    return jit_amp.freeze(module, example_inputs=(x,)), x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("engine", QUICK)
@torch.no_grad()
def test_it_runs_or_is_known_not_to(engine: str, model: str, dtype: str, tmp_path: Path) -> None:
    for package in QUICK[engine]:
        pytest.importorskip(package, reason="pip install jit_amp[ship]")
    common = importlib.import_module("engines.common")
    ship = importlib.import_module("ship")
    artefact, x = frozen(model, dtype)
    refused = engine == "onnx" and dtype == "bfloat16"  # no kernels for the CPU
    work = tmp_path / f"{model}-{dtype}"
    work.mkdir()
    for route, convert in importlib.import_module(f"engines.{engine}").ROUTES.items():
        try:
            result = convert(artefact, x, work)
        except common.Refused as why:
            assert refused, f"{route}: {why}"
            continue
        assert not refused, route
        found = ship.judged(result, artefact(x), None)
        assert found["is_right"], f"{route}: {found['says']}"


def packages_without_a_space(folder: Path) -> Path:
    """The folder that PyTorch is installed in, by a path that its Inductor can give to a compiler:
    it splits commands at spaces, those in a path too (torch/_inductor/cpp_builder.py)."""
    packages = Path(torch.__file__).parents[1]
    if " " not in str(packages):
        return packages
    link = folder / "packages"
    if not link.exists():
        link.symlink_to(packages)
    return link


@torch.no_grad()
def test_a_compiled_package_runs_in_python_and_in_cpp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One model of those that scripts/ship takes: it compiles for a while."""
    installed = packages_without_a_space(tmp_path) / "torch"
    monkeypatch.setattr("torch._inductor.cpp_builder._TORCH_PATH", str(installed))
    monkeypatch.setattr("torch.utils.cpp_extension._TORCH_PATH", str(installed))
    monkeypatch.setattr("torch.utils.cpp_extension.TORCH_LIB_PATH", str(installed / "lib"))
    routes = importlib.import_module("engines.aotinductor").ROUTES
    artefact, x = frozen("MLP", "bfloat16")
    (work := tmp_path / "aotinductor" / "MLP-bfloat16").mkdir(parents=True)
    torch.export.save(jit_amp.export(artefact, (x,)), tmp_path / "MLP-bfloat16.pt2")
    results = [run(artefact, x, work) for run in routes.values()]
    assert len(results) == 2
    for result in results:
        assert importlib.import_module("ship").judged(result, artefact(x), None)["is_right"]
    assert_same(results[1], results[0], "C++ and Python")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model", MODELS)
@torch.no_grad()
def test_torch_export_keeps_what_the_check_says(model: str, dtype: str) -> None:
    artefact, x = frozen(model, dtype)
    ways = {
        "jit_amp.export": lambda given: jit_amp.export(artefact, (given,)),
        "the converter": lambda given: TS2EPConverter(artefact, (given,)).convert(),
    }
    for name, way in ways.items():
        program = way(x).module()
        assert_same(program(x), artefact(x), name)
        for other in (torch.float64, torch.bfloat16, torch.float16):
            with pytest.raises(RuntimeError, match="dtype mismatch"):
                program(x.to(other))
            with pytest.raises((RuntimeError, torch.jit.Error)):
                way(x.to(other))


@torch.no_grad()
def test_what_has_no_check_asks_until_it_is_exported() -> None:
    """Then the example's dtype is part of the program, which refuses others."""
    module, x = scoped("MLP", "bfloat16")
    artefact = jit_amp.freeze(module, check_inputs=False)
    for dtype in (torch.float32, torch.float16):
        given = x.to(dtype)
        program = TS2EPConverter(artefact, (given,)).convert().module()
        assert_same(program(given), module(given), str(dtype))
        with pytest.raises(RuntimeError, match="dtype mismatch"):
            program(x.double())


class Several(nn.Module):
    """Arguments and results of several dtypes, one without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, scale: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        return y.float() * scale, ids + 1


SEVERAL = (torch.randn(2, 4), torch.tensor(2.0), torch.arange(3))


@torch.no_grad()
def test_triton_has_the_artefacts_names_and_dtypes(tmp_path: Path) -> None:
    model = Several().eval()
    write_repository(tmp_path, "net", jit_amp.freeze(model, example_inputs=SEVERAL), SEVERAL)
    assert (tmp_path / "net" / "config.pbtxt").read_text() == (
        'name: "net"\n'
        'backend: "pytorch"\n'
        "max_batch_size: 0\n"
        'input [ { name: "x" data_type: TYPE_FP32 dims: [ -1, -1 ] } ]\n'
        'input [ { name: "scale" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } } ]\n'
        'input [ { name: "ids" data_type: TYPE_INT64 dims: [ -1 ] } ]\n'
        'output [ { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ -1, -1 ] } ]\n'
        'output [ { name: "OUTPUT__1" data_type: TYPE_INT64 dims: [ -1 ] } ]\n'
        "instance_group [ { kind: KIND_CPU } ]\n"
    )
    loaded = torch.jit.load(tmp_path / "net" / "1" / "model.pt")
    assert_same(loaded(*SEVERAL), model(*SEVERAL), "loaded")


def test_triton_reads_the_configuration(tmp_path: Path) -> None:
    text_format = pytest.importorskip("google.protobuf.text_format", reason="scripts/ship triton")
    schema = pytest.importorskip("tritonclient.grpc.model_config_pb2", reason="scripts/ship triton")
    frozen = jit_amp.freeze(Several().eval(), example_inputs=SEVERAL)
    write_repository(tmp_path, "net", frozen, SEVERAL)
    config = text_format.Parse(
        (tmp_path / "net" / "config.pbtxt").read_text(), schema.ModelConfig()
    )
    assert [entry.name for entry in config.input] == ["x", "scale", "ids"]
    assert [list(entry.dims) for entry in config.output] == [[-1, -1], [-1]]
    assert config.input[1].HasField("reshape") and not config.input[1].reshape.shape


class Half(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.t()


class Maybe(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x if mask is None else x * mask


@pytest.mark.parametrize(
    ("model", "inputs", "name", "error", "message"),
    [
        (Half, (torch.ones(2, 2),), "net", TypeError, "no bfloat16, and `OUTPUT__0` is bfloat16"),
        (Maybe, (torch.ones(2), None), "net", TypeError, "`mask` is None"),
        (Maybe, (torch.ones(2),), "net", TypeError, r"an example of each is needed \(x, mask\)"),
        (Half, (torch.ones(2, 2),), "../net", ValueError, "is not the name of a Triton model"),
        (Half, (torch.ones(2, 2, device="meta"),), "net", ValueError, "the example is on meta"),
    ],
)
def test_what_triton_cannot_have_is_refused(
    model: Any, inputs: Any, name: str, error: Any, message: str, tmp_path: Path
) -> None:
    frozen = jit_amp.freeze(torch.jit.script(model().eval()))
    with pytest.raises(error, match=message):
        write_repository(tmp_path, name, frozen, inputs)
    assert not list(tmp_path.iterdir())


@functools.cache
def how_tos() -> dict[str, str]:
    """The Python of docs/engines.md, by heading."""
    text = (Path(__file__).parents[3] / "docs" / "engines.md").read_text()
    found = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", text, re.M | re.S)
    return dict(found)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the how-tos begin with, and torch.export's form of it."""
    folder = tmp_path_factory.mktemp("net")
    for heading in ("Before you start", "torch.export"):
        run(heading, folder)
    return folder


def run(heading: str, folder: Path) -> None:
    (folder / "how_to.py").write_text(how_tos()[heading])
    paths = [str(Path(jit_amp.__file__).parents[1]), str(packages_without_a_space(folder))]
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "how_to.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("heading", "package"),
    [
        ("AOTInductor", "torch"),
        ("ExecuTorch", "executorch"),
        ("ONNX", "onnxruntime"),
        ("OpenVINO", "openvino"),
        ("Core ML", "coremltools"),
        ("Triton Inference Server", "torch"),
    ],
)
def test_the_how_tos_run(heading: str, package: str, net: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    run(heading, net)


def test_each_how_to_is_run() -> None:
    (mark,) = (mark for mark in test_the_how_tos_run.pytestmark if mark.name == "parametrize")
    assert {heading for heading, _ in mark.args[1]} | {"Before you start", "torch.export"} == set(
        how_tos()
    )
