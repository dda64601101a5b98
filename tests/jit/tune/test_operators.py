"""units="operator": operators that stay in float32, wherever they are called, in every form."""

from __future__ import annotations

import copy
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import jit_amp

from ..support import assert_same as assert_same_at
from ..support import imported
from . import planted

F16, BF16 = torch.float16, torch.bfloat16
X = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(0))


def assert_same(actual: Any, expected: Any) -> None:
    assert_same_at(actual, expected, "")


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(1)
    return planted.Transformer([1.0, 300.0, 1.0]).eval()


def of(*units: str, dtype: str = "bfloat16", around: bool = True) -> jit_amp.Precision:
    return jit_amp.Precision(
        name="Net", units=units, error=0.0, evaluations=1, dtype=dtype, device_type="cpu",
        kind="operator", around=around, metric="", tolerance=0.0, error_plain=0.0, saved=1.0,
        finished=True, candidates=9, seed=0,
    )  # fmt: skip


def test_what_is_found(model: nn.Module, tmp_path: Path) -> None:
    found = jit_amp.tune(model, (X,), dtype=F16, units="operator")
    assert found.units == ("aten::matmul",) and found.finished
    assert {"aten::linear", "aten::matmul", "aten::mul", "aten::gelu"} <= {
        each.unit for each in found.sensitivities
    }
    assert "values beyond 65504: bmm at" in found.kept[0].why
    assert "of 8 operators stay in float32" in str(found) or "operators stay" in str(found)
    with torch.no_grad():
        expected = found.apply(model)(X)
        assert expected.isfinite().all() and not model.training
        assert torch.equal(jit_amp.script(model, precision=found)(X), expected)
        frozen = jit_amp.freeze(
            model, (X,), precision=jit_amp.Precision.from_json(found.to_json()),
            optimize_numerics=False,
        )  # fmt: skip
        assert torch.equal(frozen(X), expected)
        traced = jit_amp.trace(model, (X,), precision=found)
        assert torch.equal(traced(X), expected)
    found.to_html(tmp_path / "page.html")
    assert "aten::matmul" in (tmp_path / "page.html").read_text()
    assert any(each.stays and "aten::matmul" in each.units for each in found.lines)


class Every(nn.Module):
    """Views, writes, lists, numbers, what PyTorch's functions call, and a list of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        h = self.linear(x)
        h2 = h * 0.3
        first = h[0]
        first.mul_(2)
        joined = torch.cat([h, h2]) / 3
        weights = torch.nn.functional.softmax(self.norm(joined), -1)
        return (h @ h.mT).relu(), joined, weights @ self.linear(weights).mT, 1 - h2


@pytest.mark.parametrize(
    "units",
    [
        (), ("aten::linear",), ("aten::mul",), ("aten::cat", "aten::matmul"), ("aten::div",),
        ("aten::softmax", "aten::layer_norm"), ("aten::relu",),
    ],
)  # fmt: skip
@pytest.mark.parametrize("gradients", [False, True])
def test_all_forms_are_alike(units: tuple[str, ...], gradients: bool) -> None:
    torch.manual_seed(0)
    net = Every()
    precision = of(*units)
    x = torch.randn(3, 4)
    with torch.set_grad_enabled(gradients):
        expected = precision.apply(net)(x)
        scripted = jit_amp.script(net, precision=precision)
        for _ in range(3):
            assert_same(scripted(x), expected)
        with torch.no_grad():
            assert_same(jit_amp.trace(net, (x,), precision=precision)(x), precision.apply(net)(x))
    frozen = jit_amp.freeze(
        copy.deepcopy(net).eval(), (x,), precision=precision, optimize_numerics=False
    )
    with torch.no_grad():
        assert_same(frozen(x), precision.apply(net.eval())(x))


def test_what_torchscript_writes_otherwise_is_refused_there() -> None:
    net, x = Every().eval(), torch.randn(3, 4)
    precision = of("aten::rsub")  # `1 - x`, which TorchScript compiles to a negation and a sum
    with torch.no_grad():
        expected = precision.apply(net)(x)
        assert expected[3].dtype is torch.float32
        assert_same(jit_amp.trace(net, (x,), precision=precision)(x), expected)
    for make in jit_amp.script, jit_amp.freeze:
        with pytest.raises(ValueError, match="TorchScript calls aten::rsub nowhere in Every"):
            make(net, precision=precision)


def test_one_operator_in_float32_is_autocast_off_and_casts() -> None:
    torch.manual_seed(0)
    net, x = Every(), torch.randn(3, 4)

    class ByHand(Every):
        def forward(self, x: Tensor) -> Any:
            h = self.linear(x)
            h2 = h.float() * 0.3
            first = h[0]
            first.mul_(2)
            joined = torch.cat([h, h2]) / 3
            weights = torch.nn.functional.softmax(self.norm(joined), -1)
            with torch.autocast("cpu", enabled=False):
                product = h.float() @ h.float().mT
                last = weights.float() @ self.at(weights).float().mT
            return product.relu(), joined, last, 1 - h2

        def at(self, weights: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=BF16):
                return self.linear(weights)

    by_hand = ByHand()
    by_hand.load_state_dict(net.state_dict())
    with torch.autocast("cpu", dtype=BF16):
        expected = by_hand(x)
    assert_same(of("aten::matmul", "aten::mul").apply(net)(x), expected)
    assert expected[0].dtype is torch.float32


class Scoped(Every):
    def forward(self, x: Tensor) -> Any:
        with torch.autocast("cpu", dtype=BF16):
            return self.linear(x), x @ x.mT


def test_a_model_with_scopes_of_its_own() -> None:
    net, x = Scoped(), torch.randn(3, 4)
    precision = of("aten::matmul", around=False)
    expected = precision.apply(net)(x)
    assert (expected[0].dtype, expected[1].dtype) == (BF16, torch.float32)
    assert_same(jit_amp.script(net, precision=precision)(x), expected)


def test_beside_a_mode_of_another() -> None:
    net, x = Every(), torch.randn(3, 4)
    precision = of("aten::linear", "aten::matmul")
    expected = precision.apply(net)(x)
    with FlopCounterMode(display=False):
        assert_same(precision.apply(net)(x), expected)


def test_other_threads_and_exceptions() -> None:
    net, x = Every(), torch.randn(3, 4)
    precision = of("aten::linear")
    seen = []
    with precision.apply(net), torch.autocast("cpu", dtype=BF16):
        thread = threading.Thread(target=lambda: seen.append(net(x)[1].dtype))
        thread.start()
        thread.join()
        assert torch.nn.functional.linear(x, x).dtype is BF16  # outside of the model
        with pytest.raises(RuntimeError, match="shapes"):
            net(torch.randn(3, 5))
        assert torch.nn.functional.linear(x, x).dtype is BF16
    assert seen == [torch.float32]


def test_the_diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = (
        "import torch\n\n\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n"
        "        y = x @ x.mT\n"
        "        y = y * 300\n"
        "        z = torch.bmm(y, y.mT)\n"
        "        return (z / 1e6).softmax(-1)\n"
    )
    net = imported(source, tmp_path / "operators_net.py").Net()
    x = torch.rand(2, 4, 8)
    found = jit_amp.tune(net, (x,), dtype=F16, units="operator")
    assert found.units == ("aten::bmm",)
    diff = found.to_code(net)
    assert "+            z = torch.bmm(y.float(), y.float().mT)" in diff or "y.mT.float()" in diff
    subprocess.run(["patch", "-p0"], input=diff, text=True, check=True, cwd=tmp_path)
    changed = imported((tmp_path / "operators_net.py").read_text(), tmp_path / "operators_again.py")
    with torch.autocast("cpu", dtype=F16):
        assert_same(changed.Net()(x), found.apply(net)(x))


def test_wrong_names() -> None:
    for name in "aten::nothing", "aten::add_", "softmax":
        with pytest.raises(ValueError, match=f"no operator '{name}'"):
            of(name).apply(Every())


def test_json_has_the_kind() -> None:
    assert json.loads(of("aten::mul").to_json())["kind"] == "operator"
