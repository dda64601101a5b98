"""freeze(io_dtype=): eager's results in another dtype, and inputs in it."""

import io
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple  # noqa: UP035  # as TorchScript's

import pytest
import torch
from torch import Tensor, nn
from torch.jit.mobile import _load_for_lite_interpreter

import jit_amp
from jit_amp._cli.triton import write_repository

from ..support import AMBIENTS, assert_same, fresh, tree_map
from .models import MODELS

pytestmark = pytest.mark.filterwarnings("ignore:Lite Interpreter is deprecated")

F32, BF16, F16, F64 = torch.float32, torch.bfloat16, torch.float16, torch.float64
CAST = (F32, BF16, F16)


def in_dtype(value: Any, dtype: torch.dtype) -> Any:
    """What io_dtype is to give: what is floating point, but for float64, in the dtype."""
    return tree_map(lambda t: t.to(dtype) if t.dtype in CAST else t, value)


def loaded(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def lite(module: torch.jit.ScriptModule) -> Any:
    return _load_for_lite_interpreter(io.BytesIO(module._save_to_buffer_for_lite_interpreter()))


def nodes(module: torch.jit.ScriptModule, kind: str, method: str = "forward") -> list[Any]:
    return getattr(module, method).graph.findAllNodes(kind)


class Pair(NamedTuple):
    logits: Tensor
    count: int


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Nested(Linear):
    """Everything that a result can be, and some of it twice."""

    def forward(self, x: Tensor, some: bool = True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        maybe: Optional[Tensor] = None  # noqa: UP045
        other: Optional[Tensor] = None  # noqa: UP045
        if some:
            maybe = y.half()
        kinds = [y, x, y > 0, y.double(), x.to(torch.complex64), x.argmax(-1)]
        table = {"y": [y], "x": [x, x]}
        deep: Dict[str, Tuple[Optional[Tensor], List[int]]] = {"m": (maybe, [1, 2])}  # noqa: UP006, UP045
        return y, maybe, other, kinds, table, deep, 3, 1.5, True, "text", x


class Named(Linear):
    """What PyTorch's lite interpreter does not load: NamedTuples."""

    def forward(self, x: Tensor, some: bool = True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        pairs: List[Pair] = []  # noqa: UP006
        table: Dict[str, Tuple[Pair, Optional[Pair]]] = {}  # noqa: UP006, UP045
        if some:
            pairs = [Pair(y, 2), Pair(x, 3)]
            table["x"] = (Pair(y, 1), Pair(y * 2, 3))
            table["y"] = (Pair(x, 1), None)
        return Pair(y * 2, 1), pairs, table


class Plain(nn.Module):
    """Without a scope: what `.bfloat16()` makes of it takes bfloat16 alone."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor, ids: Optional[Tensor] = None):  # noqa: UP045
        y = self.norm(self.linear(x))
        if ids is not None:
            y = y + ids
        return y, {"ids": ids}


X = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))


def made(cls: Any) -> Any:
    torch.manual_seed(0)
    return cls().eval()


def frozen(module: Any, io_dtype: torch.dtype | None = F32, **options: Any) -> Any:
    options = {"optimize_numerics": False} | options
    return jit_amp.freeze(module, io_dtype=io_dtype, **options)


def assert_gives(module: Any, inputs: tuple[Any, ...], expected: Any, where: str = "") -> None:
    for count in range(3):
        assert_same(module(*fresh(inputs)), expected, f"{where}, call {count + 1}")


FORMS = {"frozen": lambda m: m, "loaded": loaded, "lite": lite}
NO_LITE = (Named, "lite")


CHECKS: dict[str, dict[str, Any]] = {
    "examples": {"example_inputs": (X,)},
    "no examples": {},
    "unchecked": {"check_inputs": False},
}


@pytest.mark.parametrize(
    ("cls", "form"),
    [(cls, form) for cls in (Linear, Nested, Named) for form in FORMS if (cls, form) != NO_LITE],
)
@pytest.mark.parametrize("io_dtype", [F32, F16, BF16, F64], ids=str)
@pytest.mark.parametrize("checks", CHECKS)
@torch.no_grad()
def test_results_are_eagers_cast(cls: Any, checks: str, io_dtype: torch.dtype, form: str) -> None:
    """The examples, and the weights, are float32: it is what the module takes."""
    module, x = made(cls), X.to(io_dtype)
    expected = in_dtype(module(x.to(F32)), io_dtype)
    result = FORMS[form](frozen(module, io_dtype, **CHECKS[checks]))
    assert_gives(result, (x,), expected, form)
    if cls is not Linear:
        assert_gives(result, (x, False), in_dtype(module(x.to(F32), False), io_dtype), form)


@pytest.mark.parametrize(
    "name", ["residual", "dictionary of features", "u-net", "packed sequence", "attention"]
)
@torch.no_grad()
def test_models(name: str) -> None:
    model, case = made(MODELS[name].make), MODELS[name]
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    scripted = jit_amp.script(model, autocast=autocast)
    result = frozen(scripted, example_inputs=case.example)
    for args in (case.example, *case.others):
        with autocast:
            expected = model(*fresh(args))
        assert_gives(result, args, in_dtype(expected, F32), name)


@torch.no_grad()
def test_the_server_target() -> None:
    module = made(Linear)
    result = frozen(module, example_inputs=(X,), target="server", optimize_numerics=True)
    plain = frozen(module, None, example_inputs=(X,), target="server", optimize_numerics=True)
    assert_gives(loaded(result), (X,), plain(X).to(F32))
    half = made(Linear).bfloat16()
    result = frozen(half, example_inputs=(X.bfloat16(),), target="server", optimize_numerics=True)
    assert_gives(loaded(result), (X,), half(X.bfloat16()).to(F32))


@pytest.mark.parametrize("ambient", ["none", "cpu", "cpu_off", "cuda", "both"])
@pytest.mark.parametrize("io_dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("checks", ["examples", "no examples"])
@torch.no_grad()
def test_a_module_without_scopes(checks: str, io_dtype: torch.dtype, ambient: str) -> None:
    module, x = made(Plain).bfloat16(), X.to(io_dtype)
    options = {"example_inputs": (X.bfloat16(),)} if checks == "examples" else {}
    result = frozen(module, io_dtype, **options)
    assert not any(n.kind().startswith("jit_amp::") for n in result.graph.nodes())
    for form in (result, loaded(result)) if ambient == "none" else (result,):
        with AMBIENTS[ambient]():
            expected = in_dtype(module(x.bfloat16()), io_dtype)
            assert_gives(form, (x,), expected, ambient)
            assert_gives(form, (x.bfloat16(),), expected, ambient)
            ids = torch.arange(8)
            expected = in_dtype(module(x.bfloat16(), ids), io_dtype)
            assert_gives(form, (x, ids), expected, ambient)


@torch.no_grad()
def test_a_frozen_module() -> None:
    module = made(Linear)
    for target in ("portable", "server"):
        options: dict[str, Any] = {"optimize_numerics": True, "target": target}
        first = frozen(module, None, example_inputs=(X,), **options)
        result = frozen(first)
        assert_gives(loaded(result), (X,), first(X).float())
    half = frozen(made(Linear).bfloat16(), None, example_inputs=(X.bfloat16(),))
    result = frozen(half, example_inputs=(X.bfloat16(),))
    assert_gives(loaded(result), (X,), half(X.bfloat16()).float())


class Object(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x


class Task(nn.Module):
    def forward(self, x: Tensor) -> torch.jit.Future[Tensor]:
        return torch.jit.fork(torch.relu, x)


@pytest.mark.parametrize("scoped", [False, True])
def test_what_cannot_be_cast_is_refused(scoped: bool) -> None:
    module = Object().eval()
    around = torch.autocast("cpu", dtype=torch.bfloat16) if scoped else None
    with pytest.raises(TypeError, match="io_dtype: `forward` returns a value of type Any, in whi"):
        frozen(jit_amp.script(module, autocast=around))


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("float32", TypeError, "io_dtype: 'float32' is not a dtype such as torch.float32"),
        (torch.int64, ValueError, "io_dtype: torch.int64 is none of torch.float32, torch.float64"),
        (torch.complex64, ValueError, "io_dtype: torch.complex64 is none of"),
        (torch.float8_e5m2, ValueError, "io_dtype: torch.float8_e5m2 is none of"),
    ],
)
def test_wrong_values(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        jit_amp.freeze(made(Linear), io_dtype=value)


@torch.no_grad()
def test_triton_is_told(tmp_path: Path) -> None:
    module = made(Linear).bfloat16()
    half = frozen(module, None, example_inputs=(X.bfloat16(),))
    with pytest.raises(TypeError, match=r"`x` is bfloat16: freeze the model with io_dtype=torch"):
        write_repository(tmp_path, "net", half, (X.bfloat16(),))
    result = frozen(module, example_inputs=(X.bfloat16(),))
    write_repository(tmp_path, "net", result, (X,))
    config = (tmp_path / "net" / "config.pbtxt").read_text()
    assert re.findall(r"data_type: (\w+)", config) == ["TYPE_FP32", "TYPE_FP32"]


TOLD = "inputs are cast from float32 to bfloat16; results are cast from bfloat16 to float32"


@torch.no_grad()
def test_explain_says_it_of_a_file() -> None:
    half = made(Linear).bfloat16()
    for module in (half, made(Plain).bfloat16().linear):
        for options in ({}, {"example_inputs": (X.bfloat16(),)}):
            result = loaded(frozen(module, **options))
            report = jit_amp.explain(result, (X,))
            assert report.io_dtype == TOLD
            assert f"io_dtype: {TOLD}" in report.to_text(width=200).splitlines()
            assert [row.reason for row in report.rows if row.place.io_dtype] == [
                "io_dtype: inputs are cast here, in no line of the program",
                "io_dtype: results are cast here, in no line of the program",
            ]
            assert "(results are cast, because of io_dtype)" in report.to_text(width=200)
            assert jit_amp.explain(loaded(frozen(module, None)), (X.bfloat16(),)).io_dtype == ""
    report = jit_amp.explain(frozen(made(Linear)), (X,))
    assert report.io_dtype == "results are cast from bfloat16 to float32"
    assert not any("io_dtype" in hint.text for hint in report.hints)


@torch.no_grad()
def test_explains_page_says_it(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="pip install jit_amp[explain]")
    report = jit_amp.explain(frozen(made(Linear)), (X,))
    report.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "io_dtype: results are cast from bfloat16 to float32." in page
