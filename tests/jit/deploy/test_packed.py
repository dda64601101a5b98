"""freeze(target="server"): weights that are packed, wherever the artefact goes."""

from __future__ import annotations

import copy
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Dict, List  # noqa: UP035  # as TorchScript reads them

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp._freeze import freeze

from ..support import operators
from .packed import OnProcessor, bfloat16_processor, old_processor


@pytest.fixture(autouse=True)
def processor() -> Iterator[None]:
    with bfloat16_processor(), torch.no_grad():
        yield


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(self.linear(x))


class Around(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.linear = inner, nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(y)


class Several(nn.Module):
    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleList(inner)

    def forward(self, x: Tensor) -> Tensor:
        for each in self.inner:
            x = each(x).float()
        return x


X = torch.rand(3, 64, generator=torch.Generator().manual_seed(0))


def server(module: nn.Module) -> Any:
    return jit_amp.freeze(module.eval(), example_inputs=(X,), target="server")


def loaded(module: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def packed(module: Any) -> list[Any]:
    held = [w for m in module.modules() for w in getattr(m, "weights", ())]
    return [w.layout for w in held if w.layout != torch.strided]


def test_weights_are_packed_when_made_and_when_loaded() -> None:
    module = Layer().eval()
    frozen = server(module)
    for each in (frozen, loaded(frozen), copy.deepcopy(frozen), jit_amp.script(frozen)):
        assert packed(each) == [torch._mkldnn]
        assert torch.equal(each(X), module(X))
    assert len(jit_amp.explain(frozen, (X,)).weights) == 2


@pytest.mark.parametrize("target", ["portable", "server"])
@pytest.mark.parametrize(
    "around", [Around, Several, lambda f: Several(f, server(Layer())), lambda f: f]
)
def test_an_artefact_inside_what_is_frozen_can_be_saved(around: Any, target: Any) -> None:
    module = around(server(Layer())).eval()
    expected = module(X)
    for given in (module, jit_amp.script(module), loaded(jit_amp.script(module)).eval()):
        frozen = jit_amp.freeze(given, example_inputs=(X,), target=target)
        assert torch.equal(frozen(X), expected)
        assert torch.equal(loaded(frozen)(X), expected)
    assert torch.equal(module(X), expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    "given",
    [lambda: X.to_sparse(), lambda: torch.nested.nested_tensor([X, X[:1]])],
    ids=["sparse", "nested"],
)
def test_an_input_that_onednn_does_not_take(given: Any) -> None:
    given = given()
    module = Layer().eval()
    actual, expected = server(module)(given), module(given)
    assert actual.dtype == expected.dtype
    for a, e in zip(actual.unbind(), expected.unbind(), strict=True):
        assert torch.equal(a, e)


class Named(Layer):
    def __init__(self) -> None:
        super().__init__()
        self._packed = torch.full((64,), 2.0)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(self.linear(x * self._packed))


def test_a_preserved_attribute_has_the_name_of_the_packed_weights() -> None:
    module = Named().eval()
    frozen = jit_amp.freeze(module, ["_packed"], example_inputs=(X,), target="server")
    assert torch.equal(frozen._packed, module._packed)
    assert packed(frozen) == [torch._mkldnn]
    assert torch.equal(loaded(frozen)(X), module(X))


@torch.library.custom_op("jit_amp_packed::counted", mutates_args=())
def counted(x: Tensor) -> Tensor:
    COUNTED.append(1)
    return x.clone()


COUNTED: list[int] = []


class Stateful(Layer):
    """All that a run can leave behind."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(3, 64))
        self.cache, self.calls = [torch.zeros(1)], 0

    def forward(self, x: Tensor, raises: bool = False) -> tuple[Tensor, int]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.calls += 1
            self.cache.append(x)
            self.sum += self.linear(x)
            self.sum[0].add_(torch.rand(64))
            print("here")
            if raises:
                raise ValueError("half way")
            return self.sum * 1, self.calls + len(self.cache)


@pytest.mark.parametrize("raises", [False, True])
def test_freezing_runs_nothing_that_is_seen(raises: bool, capfd: Any) -> None:
    module = Stateful().eval()
    before, random = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    if raises:
        with pytest.raises(RuntimeError, match=r"cannot run example 1 .*: ValueError: half way"):
            jit_amp.freeze(module, example_inputs=(X, raises), target="server")
    frozen = jit_amp.freeze(module, example_inputs=(X,), target="server")
    assert "mkldnn::_linear_pointwise" in operators(frozen.graph)
    assert packed(frozen) == [torch._mkldnn]
    assert capfd.readouterr().out == ""
    assert torch.equal(torch.get_rng_state(), random)
    assert module.calls == 0 and len(module.cache) == 1
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    reference = copy.deepcopy(module)
    for _ in range(3):
        torch.manual_seed(0)
        expected = reference(X)
        torch.manual_seed(0)
        actual = frozen(X)
        assert torch.equal(actual[0], expected[0]) and actual[1] == expected[1]


class Counting(Layer):
    def forward(self, x: Tensor) -> Tensor:
        x = torch.ops.jit_amp_packed.counted(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(self.linear(x))


def test_an_operator_of_somebodys_is_not_run() -> None:
    module = Counting().eval()
    frozen = server(module)
    assert not COUNTED
    assert torch.equal(frozen(X), module(X))


def test_a_build_without_onednn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freeze, "_has_onednn", lambda: False)
    with pytest.raises(ValueError, match="target='server' needs operators of oneDNN, which this"):
        server(Layer())
    jit_amp.freeze(Layer().eval(), example_inputs=(X,))


class Wide(nn.Module):
    """A layer that is widened where the dtype is emulated, one that is too small, a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.large, self.small = nn.Linear(256, 512), nn.Linear(512, 16)
        self.conv = nn.Conv2d(16, 32, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(self.large(x))
            return self.small(y), self.conv(y.view(1, 16, -1, 32))


def given(rows: int) -> Tensor:
    return torch.rand(rows, 256, generator=torch.Generator().manual_seed(rows))


def store(module: Any) -> Any:
    [found] = [each for each in module.modules() if hasattr(each, "native_bfloat16")]
    return found


def held(module: Any) -> int:
    """Bytes of weights in memory, as constants and in the submodule."""
    constants = [
        node.t("value")
        for node in module.graph.findAllNodes("prim::Constant")
        if node.hasAttribute("value") and node.kindOf("value") == "t"
    ]
    tensors = [t.to_dense() if t.is_mkldnn else t for t in store(module).weights]
    return sum(t.nbytes for t in constants) + sum(t.numel() * 2 for t in tensors)


def test_large_weights_are_held_once() -> None:
    module = Wide().eval()
    frozen = jit_amp.freeze(module, example_inputs=(given(8),), target="server")
    weights = sum(2 * p.numel() for p in module.parameters())
    small = 2 * module.small.weight.numel() + 2 * module.conv.weight.numel()
    for each in (frozen, loaded(frozen)):
        assert held(each) <= weights + small
        assert len(packed(each)) == 3
        assert torch.equal(each(given(8))[0], module(given(8))[0])


def test_a_processor_that_emulates_the_dtype() -> None:
    """The file is the same; in memory are the weights that this processor computes with."""
    module = Wide().eval()
    exact = copy.deepcopy(module).double()
    with old_processor():
        frozen = jit_amp.freeze(module, example_inputs=(given(8),), target="server")
    for each in (frozen, loaded(frozen), loaded(loaded(frozen))):
        own = store(each)
        assert not own.native_bfloat16 and own.emulated_bfloat16
        dtypes = {tuple(t.shape): t.dtype for t in own.weights}
        assert dtypes[512, 256] == dtypes[32, 16, 3, 3] == torch.float32
        assert {own.dense(i).dtype for i in range(len(own.plans))} == {torch.bfloat16}
        for rows in (8, 1, 32):
            x = given(rows)
            for y, eager, best in zip(each(x), module(x), exact(x.double()), strict=True):
                assert (y.dtype, y.stride()) == (eager.dtype, eager.stride())
                error, eagers = ((t.double() - best).square().mean() for t in (y, eager))
                assert error <= eagers * 1.05
    assert all(w.dtype == "bfloat16" for w in jit_amp.explain(frozen, (given(8),)).weights)


class WritesInside(nn.Module):
    """To tensors in a list and in a dictionary, by other names."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 16384)
        self.seen: List[Tensor] = [torch.ones(4)]  # noqa: UP006
        self.named: Dict[str, Tensor] = {"a": torch.ones(4)}  # noqa: UP006

    def forward(self, x: Tensor):
        for each in self.seen:
            each += 1
        self.named["a"].add_(1)
        last = self.seen[-1]
        last *= 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x), self.seen[0] * 1, self.named["a"] * 1


def test_what_a_program_writes_to_inside_a_list_stays() -> None:
    module, reference = WritesInside().eval(), WritesInside().eval()
    reference.load_state_dict(module.state_dict())
    x = torch.randn(2, 4)
    frozen = jit_amp.freeze(module, example_inputs=(x,), target="server")
    assert module.seen[0].tolist() == module.named["a"].tolist() == [1.0] * 4
    for _ in range(3):
        for actual, expected in zip(frozen(x)[1:], reference(x)[1:], strict=True):
            assert torch.equal(actual, expected)


def test_few_rows_read_the_weight_as_it_is() -> None:
    with old_processor():
        frozen = jit_amp.freeze(Wide().eval(), example_inputs=(given(1),), target="server")
    dtypes = {tuple(t.shape): t.dtype for t in store(frozen).weights}
    assert dtypes[512, 256] == torch.bfloat16


def test_an_old_artefact_inside_what_is_frozen() -> None:
    """What one processor answered is not in what is made of it."""
    module = Layer().eval()
    with old_processor():
        inner = server(module)
    for target in ("portable", "server"):
        frozen = jit_amp.freeze(Around(inner).eval(), example_inputs=(X,), target=target)
        assert frozen(X).dtype == torch.bfloat16
        assert torch.equal(loaded(frozen)(X), frozen(X))
        assert "emulated" not in str(
            jit_amp.freeze(Around(inner).eval(), example_inputs=(X,)).graph
        )


def test_without_examples_too() -> None:
    module = Wide().eval()
    with old_processor():
        frozen = jit_amp.freeze(module, target="server")
    assert store(frozen).emulated_bfloat16
    x = given(8)
    for y, eager in zip(frozen(x), module(x), strict=True):
        torch.testing.assert_close(y, eager, rtol=0.02, atol=0.02)


FLAGS = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
ASKS = """
import torch
from jit_amp._freeze.packed import Packed

own = Packed([], [])
print([each.has_instructions() for each in (own, torch.jit.script(own))])
torch.set_flush_denormal(True)
print(own.has_instructions())
"""


@pytest.mark.skipif("avx512bw" not in FLAGS, reason="a product is asked where AVX-512 is")
@pytest.mark.parametrize("most", ["", "AVX512_CORE"])
def test_a_product_tells_whether_there_are_instructions(most: str, tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(ASKS)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", tmp_path / "asks.py"],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": most or "DEFAULT"},
        capture_output=True,
        text=True,
        check=True,
    )
    has = not most and "avx512_bf16" in FLAGS
    assert ran.stdout.splitlines() == [str([has, has]), "True"]


ASKS_KERNEL = """
import torch
from jit_amp._freeze.packed import Packed
own = Packed([], [])
print([each.kernel_has_instructions() for each in (own, torch.jit.script(own))])
torch.set_flush_denormal(True)
print(own.kernel_has_instructions())
"""


@pytest.mark.skipif("avx512_bf16" not in FLAGS, reason="elsewhere the processor emulates bfloat16")
def test_an_attention_tells_whether_the_kernel_has_instructions(tmp_path: Path) -> None:
    """MKL, whose products the kernel takes, has none for processors of AMD."""
    (tmp_path / "asks.py").write_text(ASKS_KERNEL)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", tmp_path / "asks.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    both, flushed = ran.stdout.splitlines()
    if "AuthenticAMD" in FLAGS:
        assert both == "[False, False]"
    assert both in ("[False, False]", "[True, True]")
    assert flushed == "True"


ASKS_UNDER = """
import torch
from jit_amp._freeze.packed import Packed
def answers():
    own = Packed([], [])
    return [own.has_instructions(), own.kernel_has_instructions()]
known = answers()
torch.set_default_dtype(torch.float16)
print(answers() == known)
"""


def test_the_callers_default_dtype_changes_no_answer(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(ASKS_UNDER)
    command = [sys.executable, "-W", "ignore", tmp_path / "asks.py"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["True"]


def test_an_unpacked_weight_has_the_strides_that_were_saved() -> None:
    weight = torch.rand(8, 8, 1, 1).bfloat16().to(memory_format=torch.channels_last)
    own = OnProcessor([weight], [[0, 0, 1, 1, 1, 1, 1, 2, 8, 4, 4]])
    own.pack()
    assert own.weights[0].is_mkldnn
    assert torch.equal(own.dense(0), weight)
    assert own.dense(0).stride() == weight.stride()
