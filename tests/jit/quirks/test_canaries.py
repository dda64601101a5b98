"""What PyTorch's own passes get wrong, shown with PyTorch alone.

A canary for each pass in csrc/passes/quirks, and for what is mended elsewhere because it changes
what a program means. One that fails says that the installed PyTorch does not need that code any
more: it can go once no supported release does.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jit_amp import _C

from ..support import operators, unsanitized

ROOT = Path(__file__).parents[3]
PASSES = {path.stem for path in (ROOT / "csrc/passes/quirks").rglob("*.cpp")}
BF16 = torch.bfloat16
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@contextmanager
def onednn_fusion() -> Iterator[None]:
    torch.jit.enable_onednn_fusion(True)
    try:
        yield
    finally:
        torch.jit.enable_onednn_fusion(False)


def frozen(module: nn.Module) -> Any:
    return torch.jit.freeze(torch.jit.script(module.eval()))


def last_of_three(function: Callable[..., Any], *args: Any) -> Any:
    """Observed, optimized, optimized."""
    return [function(*args) for _ in range(3)][-1]


class Addmm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bias = nn.Parameter(torch.randn(8).to(BF16), False)
        self.weight = nn.Parameter(torch.randn(64, 8).to(BF16), False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


def keep_addmm() -> bool:
    """The executor makes `mm` and `add` of it, which rounds twice."""
    module, x = Addmm(), torch.randn(4, 64).to(BF16)
    return not torch.equal(last_of_three(frozen(module), x), module(x))


class Detached(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).detach()


def keep_detach() -> bool:
    """Freezing drops it."""
    x = torch.ones(2, requires_grad=True)
    result: Tensor = frozen(Detached())(x)
    return result.requires_grad


class HasEqualResults(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.relu(x * 2), x * 2, x * 2


def keep_results() -> bool:
    """Freezing, and then the executor, make one node of three of which two are results."""
    _, second, third = frozen(HasEqualResults())(torch.ones(2))
    return bool(second.data_ptr() == third.data_ptr())


class HasOptionals(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor | None]]]:
        pairs: list[tuple[Tensor, Tensor | None]] = [(x, x)]
        return x, pairs


def annotate_elements() -> bool:
    """The file has a list of another type than its program says, and does not load."""
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(HasOptionals()), file)
    file.seek(0)
    try:
        torch.jit.load(file)
    except RuntimeError as error:
        return "List[Tuple[Tensor, Tensor]]" in str(error)
    return False


class OnlyBatches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> bool:
        return self.conv(x).dim() == 4


def keep_dim() -> bool:
    """Freezing takes for granted that a convolution has a batch."""
    result: bool = frozen(OnlyBatches())(torch.randn(3, 4, 4))
    return result


class Forces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        energy = self.second(torch.tanh(self.first(x))).sum()
        gradient = torch.autograd.grad([energy], [x])[0]
        assert gradient is not None
        return gradient


def keep_gradients() -> bool:
    """From the second call on the executor differentiates by formulas of its own."""
    module, x = Forces().requires_grad_(False), torch.randn(64, 32, requires_grad=True)
    return not torch.equal(last_of_three(frozen(module), x), module(x))


class ScalesInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.scale = nn.Conv2d(3, 3, 1).to(BF16), torch.rand(3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x *= self.scale
        return x


def keep_in_place() -> bool:
    """oneDNN's fusion makes it functional, and promotes."""
    module, x = frozen(ScalesInPlace().requires_grad_(False)), torch.randn(1, 3, 4, 4).to(BF16)
    with onednn_fusion(), torch.no_grad():
        result: Tensor = last_of_three(module, x)
    return result.dtype == torch.float32


class ByANumberOfItsOwn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.tensor(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def keep_zero_dim() -> bool:
    """The executor makes a number of the constant, which promotes otherwise."""
    module, x = ByANumberOfItsOwn(), torch.tensor(1.5, dtype=BF16)
    result: Tensor = last_of_three(frozen(module), x)
    return (result.dtype, module(x).dtype) == (BF16, torch.float32)


def loses_a_write(x: Tensor) -> Tensor:
    y = F.dropout(x, 0.5, False)  # x itself
    y.add_(1)
    return x * 1


def tell_aliases() -> bool:
    """The compiler believes a schema, and drops the write."""
    return not torch.equal(torch.jit.script(loses_a_write)(torch.ones(2)), torch.full((2,), 2.0))


def adds_a_wider_one(x: Tensor, weight: Tensor, y: Tensor) -> Tensor:
    return x.mm(weight) + y


def promote_operands() -> bool:
    """The executor's derivative of a sum hands its gradient on in the dtype of the sum."""
    x = torch.rand(3, 3, dtype=BF16, requires_grad=True)
    given = (x, torch.rand(3, 3, dtype=BF16), torch.rand(3, 3))
    adds_a_wider_one(*given).sum().backward()
    scripted = torch.jit.script(adds_a_wider_one)
    try:
        for _ in range(3):
            scripted(*given).sum().backward()
    except RuntimeError as error:
        return "to have the same dtype" in str(error)
    return False


class HasDevices(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.devices = [torch.device("cpu")]

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.devices[0])


def write_devices() -> bool:
    """Freezing cannot look into a list of devices."""
    try:
        frozen(HasDevices())
    except (RuntimeError, TypeError) as error:
        return "Cannot inspect value of type Device" in str(error)
    return False


def write_numbers() -> bool:
    """A file does not say that a constant of a trace is a number."""
    i, file = torch.arange(3), io.BytesIO()
    torch.jit.save(torch.jit.trace(lambda i: torch.floor_divide(i, 0.5), (i,)), file)
    file.seek(0)
    result: Tensor = torch.jit.load(file)(i)
    return result.dtype == torch.float64


def scaled_in_place(x: Tensor) -> Tensor:
    x *= 0.57735
    return x


def round_products() -> bool:
    """TorchScript's operator rounds the number first."""
    x = torch.arange(64).bfloat16()
    expected = scaled_in_place(x.clone())
    return not torch.equal(torch.jit.script(scaled_in_place)(x.clone()), expected)


class Pools(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(self.conv(x), 2)


class Indexed(nn.Module):
    def forward(self, x: Tensor, index: int) -> Tensor:
        return x.to(torch.device("cpu", index))


def index_devices() -> bool:
    """PyTorch's kernel takes the device's name for its index."""
    with torch.jit.optimized_execution(False):
        try:
            torch.jit.script(Indexed())(torch.rand(2), 0)
        except RuntimeError as error:
            return "Expected String but got Int" in str(error)
    return False


def write_strides() -> bool:
    """oneDNN's fusion fails on a pooling without a stride."""
    return fusion_raises(Pools(), "could not set attribute to the op")


class ReturnsASize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, list[int]]:
        y = self.conv(x).relu()
        return y, y.size()


def detach_sizes() -> bool:
    """oneDNN's fusion asks each user of a tensor for its operator; a tuple is none."""
    return fusion_raises(ReturnsASize(), "Schema not found for node")


def fusion_raises(module: nn.Module, says: str) -> bool:
    module, x = frozen(module.requires_grad_(False)), torch.randn(1, 3, 4, 4)
    with onednn_fusion(), torch.no_grad():
        try:
            last_of_three(module, x)
        except RuntimeError as error:
            return says in str(error)
    return False


FAILS = """
import gc, sys, torch


class Program(torch.nn.Module):
    def part(self, x: torch.Tensor, rows: int):
        return x.reshape(rows, 4)

    def forward(self, x: torch.Tensor, rows: int):
        return self.part(x, rows) + 1


for _ in range(100):
    frozen = torch.jit.freeze(torch.jit.script(Program().eval()))
    gc.collect()
    others = [bytes(200) for _ in range(1000)]
    for _ in range(3):
        try:
            frozen(torch.rand(3, 4), 5)
        except RuntimeError:
            pass
"""


def own_callstacks() -> bool:
    """An error in a frozen module reads functions that are gone: the process ends."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fails.py")
        path.write_text(FAILS)
        done = subprocess.run([sys.executable, path], env=unsanitized(), capture_output=True)
        return done.returncode < 0


def squares_in_place(x: Tensor) -> Tensor:
    x **= 2
    return x


def write_operators() -> bool:
    """The compiler makes a new tensor of it."""
    x = torch.full((2,), 3.0)
    torch.jit.script(squares_in_place)(x)
    return torch.equal(x, torch.full((2,), 3.0))


def gives_what_it_got(x: Tensor, times: int) -> Tensor:
    y = x
    for _ in range(times):
        y = y * 2
    y += 1
    return x * 1


def loops() -> bool:
    """AliasDb does not know that a loop which runs no times gives what went in."""
    x = torch.jit.script(gives_what_it_got)(torch.ones(2), 0)
    return torch.equal(x, torch.ones(2))


class Normalizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.var, self.bias = torch.zeros(3), torch.ones(3), torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.var, None, self.bias, True)


def keep_state() -> bool:
    """Freezing makes constants of what a norm writes to, and a file holds equal ones once."""
    x, file = torch.rand(4, 3) + 5, io.BytesIO()
    torch.jit.save(frozen(Normalizes()), file)
    file.seek(0)
    loaded = torch.jit.load(file)
    first: Tensor = loaded(x)
    return not torch.allclose(loaded(x), first)


def name_convolutions() -> bool:
    """The tracer records what `conv2d` calls, an operator with another policy."""
    x, weight = torch.rand(1, 1, 3, 3), torch.rand(1, 1, 1, 1)
    graph = torch.jit.trace(lambda x: F.conv2d(x, weight), (x,)).graph
    return "aten::_convolution" in operators(graph) and "aten::conv2d" not in operators(graph)


class ActivationInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.to(BF16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.conv(x.to(torch.bfloat16))).flatten(1)


def write_activations() -> bool:
    """oneDNN's fusion asks for the type of a result that the executor has not observed."""
    return fusion_raises(ActivationInPlace(), "could not add op to the graph")


class AddsInABranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor, adds: bool = False) -> Tensor:
        y = self.conv(x)
        if adds:
            y = self.conv(y) + x
        return y


def sums_in_branches() -> bool:
    """oneDNN's fusion asks for types that a branch which was not taken has none of."""
    return fusion_raises(AddsInABranch(), "bad optional access")


class SiluOfLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 64).to(BF16)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.linear(x))


def silu_of_linear() -> bool:
    """oneDNN's fusion makes a product of it, which rounds twice."""
    module, x = SiluOfLinear(), torch.randn(8, 64).to(BF16)
    with onednn_fusion(), torch.no_grad():
        return not torch.equal(last_of_three(frozen(module), x), module(x))


# By the name of the pass. True: PyTorch still gets it wrong.
CANARIES: dict[str, Callable[[], bool]] = {
    each.__name__: each
    for each in (
        annotate_elements,
        detach_sizes,
        keep_addmm,
        keep_detach,
        keep_dim,
        keep_gradients,
        keep_in_place,
        keep_results,
        keep_zero_dim,
        own_callstacks,
        promote_operands,
        round_products,
        tell_aliases,
        index_devices,
        write_activations,
        write_devices,
        write_numbers,
        write_strides,
    )
}


# What is mended by passes that do something else as well: give a program its meaning, or make it
# fast.
ELSEWHERE: dict[Callable[[], bool], str] = {
    loops: "csrc/core/loops",
    keep_state: "csrc/passes/freeze/keep_state",
    name_convolutions: "csrc/passes/source/name_convolutions",
    write_operators: "csrc/passes/source/write_operators",
    sums_in_branches: "csrc/passes/server/fuse_pointwise",
    silu_of_linear: "csrc/passes/server/fuse_pointwise",
}


@pytest.mark.parametrize("name", sorted(CANARIES))
def test_pytorch_needs_it(name: str) -> None:
    assert CANARIES[name](), f"PyTorch {torch.__version__} does not need csrc/passes/quirks/{name}"


@pytest.mark.parametrize("canary", ELSEWHERE, ids=lambda canary: canary.__name__)
def test_pytorch_needs_what_is_elsewhere(canary: Callable[[], bool]) -> None:
    name = ELSEWHERE[canary]
    assert (ROOT / f"{name}.cpp").exists()
    assert canary(), f"PyTorch {torch.__version__} does not need that of {name}"


def test_each_has_a_canary_and_a_row() -> None:
    assert set(CANARIES) == PASSES == {name for name, *_ in _C.quirks()}


def test_the_releases_of_the_rows_are_those_of_the_matrix() -> None:
    """Which runs the canaries with each of them."""
    of_the_matrix = re.search(r"versions=\((\d.*)\)", (ROOT / "scripts/env").read_text())
    assert of_the_matrix
    releases = [release.rpartition(".")[0] for release in of_the_matrix[1].split()]
    assert {(first, last) for *_, first, last in _C.quirks()} == {
        (min(releases, key=_number), max(releases, key=_number))
    }


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
