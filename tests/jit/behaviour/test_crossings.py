"""Where two features of a module meet: the same as eager at each door."""

from __future__ import annotations

import copy
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, List, Optional  # noqa: UP035

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import jit_amp

from ..support import assert_parity, assert_same, text_of

BF16 = torch.bfloat16
# PyTorch's passes compare constants, and say so once in a process.
pytestmark = pytest.mark.filterwarnings("ignore:Casting complex values to real")


@torch.jit.script
class Squaring:
    """A context manager that computes."""

    def __init__(self, w: Tensor) -> None:
        self.w = w

    def __enter__(self) -> None:
        self.w = self.w @ self.w

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.w = self.w @ self.w


class EntersAnObject(nn.Module):
    def forward(self, x: Tensor):
        c = Squaring(x)
        with torch.autocast("cpu", dtype=torch.bfloat16), c:
            y = c.w
        return c.w, y


class EntersAnObjectTwice(nn.Module):
    def forward(self, x: Tensor):
        c = Squaring(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            with c, torch.autocast("cpu", enabled=False), Squaring(x) as nothing:
                y = c.w
        return c.w, y, nothing is None


class EntersNoGrad(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                y = x @ x
            return y, torch.is_grad_enabled()


class Block(nn.Module):
    """A branch that holds a loop, its result used beside what the loop reads."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, other: Optional[Tensor], n: int):  # noqa: UP045
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            if other is not None:
                for _ in range(n):
                    y = y + other
            else:
                y = self.linear(y)
            return x + y


class DroppedOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.linear = nn.Dropout(), nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            z = self.drop(y)
            z += 1
            w = F.dropout2d(y[None, None], 0.5, self.training)
            w.mul_(2)
            return self.linear(y), y


class WritesWhatItReads(nn.Module):
    """The result is read too, so that PyTorch's compiler leaves the write."""

    def forward(self, x: Tensor):
        x = x.clone()
        y = x.type_as(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ x
            y.mul_(2)
            b = x @ x
            z = torch.einsum("ij->ij", [b])
            z += 1
            v, _ = torch.atleast_2d(b, a)
            v[0] += 1
            return a, b @ x, y, z, v


class Promotes(nn.Module):
    def forward(self, i: Tensor, w: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = i * 1j
            n = torch.linalg.vector_norm(z, dtype=torch.complex64)
            m = (i * True) @ i
            half = i.double() * 0.5
            return w.to(z.dtype), z, w.to(n.dtype) @ w, m, half + w[0, 0], w * 1j


class Forces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, position: Tensor):
        position.requires_grad_(True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = F.silu(self.a(position))
            h = h * h.detach().sum()
            energy = self.c(F.silu(self.b(h))).sum()
        force = torch.autograd.grad([energy], [position])[0]
        assert force is not None
        return energy.detach(), force


class HoldsADevice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.place = nn.Linear(4, 4), torch.device("cpu")
        self.number, self.places = 1 + 2j, [torch.device("cpu")]

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x.to(self.place)), x.to(self.places[0]) * self.number


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, adjacency: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.linear(x)
            if adjacency.layout == torch.sparse_csr or adjacency.layout == torch.sparse_coo:
                h = torch.sparse.mm(adjacency, h)
            return h


class Asks(nn.Module):
    def forward(self, x: Tensor):
        if torch.is_autocast_enabled("cpu"):
            x = x + 1
        if torch.get_autocast_dtype("cpu") == torch.bfloat16:
            x = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x, torch.is_autocast_enabled("cpu")


class ComplexConstants(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = torch.arange(4) * 1j
            return x @ x + torch.imag(z), x + z


def square() -> Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(0))


CASES: dict[Callable[[], nn.Module], tuple[Any, ...]] = {
    EntersAnObject: (square(),),
    EntersAnObjectTwice: (square(),),
    EntersNoGrad: (square(),),
    Block: (square(), square() + 1, 3),
    DroppedOut: (square(),),
    WritesWhatItReads: (square(),),
    Promotes: (torch.arange(3), square()),
    Forces: (square(),),
    HoldsADevice: (square(),),
    Sparse: (square(), torch.eye(4)),
    Asks: (square(),),
    ComplexConstants: (square(),),
}
cases = pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)


@cases
def test_scripted(make: Callable[[], nn.Module]) -> None:
    # Gradients are recorded where the module takes them itself.
    with torch.set_grad_enabled(make is Forces):
        assert_parity(make().eval(), CASES[make], ambients=("none", "cpu"))


@cases
@pytest.mark.parametrize("examples", [False, True], ids=["no examples", "examples"])
def test_frozen(make: Callable[[], nn.Module], examples: bool) -> None:
    model, inputs = make().eval(), CASES[make]
    frozen = jit_amp.freeze(
        model, optimize_numerics=False, example_inputs=copied(inputs) if examples else None
    )
    saved = io.BytesIO()
    torch.jit.save(frozen, saved)
    saved.seek(0)
    with torch.set_grad_enabled(make is Forces):
        expected = model(*copied(inputs))
        for runner in (frozen, torch.jit.load(saved)):
            for call in range(3):
                assert_same(runner(*copied(inputs)), expected, f"call {call}")


def copied(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.clone() if isinstance(each, Tensor) else each for each in inputs)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_sparse_product_without_an_example_of_it() -> None:
    model, x = Sparse().eval(), square()
    frozen = jit_amp.freeze(model, optimize_numerics=False)
    with torch.no_grad():
        for adjacency in (torch.eye(4).to_sparse_csr(), torch.eye(4).to_sparse(), torch.eye(4)):
            try:
                expected = model(x, adjacency)
            except RuntimeError as error:  # not for this dtype, on some machines
                with pytest.raises(type(error)):
                    frozen(x, adjacency)
            else:
                assert_same(frozen(x, adjacency), expected, str(adjacency.layout))


class Shared(nn.Module):
    """One submodule of two parents: an argument of their methods, in a trace."""

    def __init__(self) -> None:
        super().__init__()
        act = nn.Sequential(nn.Linear(4, 4), nn.SiLU())
        self.a, self.b = Calls(act), Calls(Calls(act))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.b(self.a(x))


class Calls(nn.Module):
    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.linear, self.act = nn.Linear(4, 4), act

    def forward(self, x: Tensor):
        return self.act(self.linear(x))


@pytest.mark.parametrize("target", ["exact", "portable", "server"])
def test_a_trace_with_a_shared_submodule(target: str) -> None:
    model, x = Shared().eval(), square()
    with torch.no_grad():
        traced = jit_amp.trace(model, (x,))
        expected = model(x)
        frozen = jit_amp.freeze(
            traced,
            example_inputs=(x,),
            optimize_numerics=target != "exact",
            target="server" if target == "server" else "portable",
        )
        again = jit_amp.script(traced)
        for runner in (traced, again, frozen):
            for _ in range(3):
                result = runner(x)
                assert result.dtype == BF16
                torch.testing.assert_close(result, expected, rtol=0.02, atol=0.02)
        if target == "exact":
            assert_same(frozen(x), expected, "frozen")


@torch.jit.script
class Ranked:
    def __init__(self, w: Tensor) -> None:
        self.w = w

    def __lt__(self, other: Ranked) -> bool:
        return (self.w @ self.w).dtype == torch.bfloat16 and bool(self.w.sum() > other.w.sum())


class Sorts(nn.Module):
    def forward(self, x: Tensor):
        ranked = [Ranked(x), Ranked(x + 1), Ranked(x - 1)]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            first = sorted(ranked)
        ranked.sort()
        return [each.w for each in first], [each.w for each in ranked]


def test_a_sort_that_computes() -> None:
    """It runs under autocast's dispatch; frozen, nothing could cast inside it."""
    assert_parity(Sorts(), (square(),), ambients=("none", "cpu", "cpu_off"))
    with pytest.raises(jit_amp.AutocastError, match=r"aten::sorted.*JA301"):
        jit_amp.freeze(Sorts().eval())


@torch.jit.script
class RankedInAScope:
    def __init__(self, w: Tensor) -> None:
        self.w = w

    def __lt__(self, other: RankedInAScope) -> bool:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return bool((self.w @ self.w).sum() > other.w.sum())


class SortsInScopes(nn.Module):
    def forward(self, x: Tensor):
        return sorted([RankedInAScope(x), RankedInAScope(x + 1)])[0].w


def test_a_sort_that_enters_scopes() -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"called by a sort.*JA209"):
        jit_amp.script(SortsInScopes())


class WriteThatIsLost(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            z = y.type_as(y)
            z += 1
            return y


class WriteToAViewThatIsLost(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            z = torch.einsum("ij->ji", [y])[0]
            z.zero_()
            return y


class WriteToWhatIsAnnotatedThatIsLost(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            z: Tensor = y.type_as(y)
            z -= 1
            return y


class WriteByAnotherNameThatIsLost(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            z = y.type_as(y)
            w = z.float() if self.training else z
            w *= 2
            return y


class WriteToAFunctionsViewThatIsLost(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            z = torch.reshape(y.type_as(y), [-1])
            z /= 2
            return y


class WriteByAFunctionThatIsLost(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            torch.relu_(y.type_as(y))
            return y


class WriteToAFunctionsViewOfWhatIsNamedThatIsLost(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            z = torch.reshape(input=y.type_as(y), shape=[-1])
            z /= 4
            return y


class WriteByAFunctionToWhatIsNamedThatIsLost(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            torch.relu_(input=y.type_as(y))
            return y


class SecondOfTwoWritesThatIsLost(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            z = y.type_as(y)
            w = torch.zeros(3, 3)
            w[0, 0] = z[0, 0] = 7.0
            return y + w


class OneOfTwoWritesThatIsLost(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            z = y.type_as(y)
            w = torch.zeros(3, 3)
            z[0, 0], w[1, 1] = (
                x[0, 1],
                x[1, 0],
            )
            return y + w


class WriteByALoopThatIsLost(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            z = y.type_as(y)
            for z[0] in [x[0], x[1]]:
                pass
            return y


class WriteToATensorInAListThatIsLost(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            torch._foreach_add_([y], 1)
            return y


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (SecondOfTwoWritesThatIsLost, "w[0, 0] = z[0, 0] = 7.0"),
        (OneOfTwoWritesThatIsLost, "z[0, 0], w[1, 1] ="),
        (WriteByALoopThatIsLost, "for z[0] in"),
        (WriteToATensorInAListThatIsLost, "torch._foreach_add_"),
        (WriteToAFunctionsViewThatIsLost, "z /= 2"),
        (WriteByAFunctionThatIsLost, "torch.relu_"),
        (WriteToAFunctionsViewOfWhatIsNamedThatIsLost, "z /= 4"),
        (WriteByAFunctionToWhatIsNamedThatIsLost, "torch.relu_(input="),
        (WriteThatIsLost, "z += 1"),
        (WriteToAViewThatIsLost, "z.zero_()"),
        (WriteToWhatIsAnnotatedThatIsLost, "z -= 1"),
        (WriteByAnotherNameThatIsLost, "w *= 2"),
    ],
)
def test_a_write_that_pytorchs_compiler_drops_is_refused(
    make: Callable[[], nn.Module], line: str
) -> None:
    for door in (jit_amp.script, jit_amp.freeze):
        with pytest.raises(jit_amp.AutocastError, match="JA210") as raised:
            door(make().eval())
        assert line in str(raised.value)


class NumbersOfWhatMayBeAnother(nn.Module):
    """What is read of a tensor and is none is never written to, whatever its name is made of."""

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = F.dropout(x @ x, 0.5, False)
            rows, columns = x.shape
            rows += 1
            total = x.size(1)
            total *= 2
            mean = float(x[0, 0])
            mean += 1.0
            numbers: List[List[float]] = x.tolist()  # noqa: UP006
            numbers += [[1.0]]
            doubled = x.sum(0)
            doubled += 1
            for i in range(len(x.shape)):
                columns += x.shape[i]
            return x


def test_a_number_is_no_write_that_is_lost() -> None:
    program = NumbersOfWhatMayBeAnother().eval()
    x = torch.rand(3, 3)
    for made in (jit_amp.script(program), jit_amp.freeze(program, example_inputs=(x,))):
        for _ in range(3):
            assert torch.equal(made(x), program(x))


class WritesThatAreKept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Identity(), nn.Identity()])

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            for layer in self.layers:  # one after another: a line is several in the graph
                z = y.type_as(y)
                w = torch.zeros_like(x)
                z[0, 0], z[1, 1] = (
                    x[0, 1],
                    x[1, 0],
                )
                w[0, 0] = z[0, 1] = 7.0
                zs = [z]
                torch._foreach_add_(zs, 1)
                F.relu(z, inplace=True)
                y = y + layer(z) + w + zs[0]
            return y


def test_a_write_of_several_that_is_kept_is_not_refused() -> None:
    assert_parity(WritesThatAreKept().eval(), (square(),))


class KeptWithANormAlone(nn.Module):
    def __init__(self, norm: nn.Module | None) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor):
        y = x @ x
        z = y.type_as(y)
        z += 1
        if self.norm is not None:
            y = self.norm(z) + y
        return y


class AllIsLostWithoutANorm(nn.Module):
    def __init__(self, norm: nn.Module | None) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor):
        z = x.type_as(x)
        z += 1
        if self.norm is not None:
            x = self.norm(z) + x
        return x


class CallsTwo(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.second(self.first(x @ x))


@pytest.mark.parametrize("make", [KeptWithANormAlone, AllIsLostWithoutANorm])
def test_a_lost_write_is_found_in_each_module_of_a_class(
    make: Callable[[nn.Module | None], nn.Module],
) -> None:
    kept = CallsTwo(make(nn.Identity()), make(nn.Identity()))
    assert_parity(kept.eval(), (square(),))
    for norms in ((None, nn.Identity()), (nn.Identity(), None)):
        with pytest.raises(jit_amp.AutocastError, match=r"JA210(.|\n)*z \+= 1"):
            jit_amp.script(CallsTwo(*(make(each) for each in norms)))


class WritesInBranchesThatCannotBe(nn.Module):
    def __init__(self, norm: nn.Module | None, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.norm = norm
        self.inner = inner

    def forward(self, x: Tensor, other: None = None):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            if self.norm is not None:
                z = y.type_as(y)
                z += 1
                y = self.norm(z) + y
            if self.inner is not None:
                y = y * 0.5
                if self.inner.norm is not None:
                    z = y.type_as(y)
                    z *= 2
                    y = z + y
            if other is not None and y.sum() > 0:
                z = y.type_as(y)
                z *= 3
                y = z + y
            y = y @ x
        return y


class WritesBehindAReturn(nn.Module):
    def __init__(self, norm: nn.Module | None) -> None:
        super().__init__()
        self.norm = norm

    def after(self, y: Tensor) -> Tensor:
        if self.norm is None:
            return y
        z = y.type_as(y)
        z += 1
        return self.norm(z) + y

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.after(x @ x)


@pytest.mark.parametrize(
    "program",
    [
        WritesInBranchesThatCannotBe(None),
        WritesInBranchesThatCannotBe(nn.Identity()),
        WritesInBranchesThatCannotBe(None, WritesInBranchesThatCannotBe(None)),
        WritesInBranchesThatCannotBe(None, WritesInBranchesThatCannotBe(nn.Identity())),
        WritesBehindAReturn(None),
        WritesBehindAReturn(nn.Identity()),
    ],
)
def test_a_write_in_a_branch_that_is_not_compiled_is_not_lost(program: nn.Module) -> None:
    assert_parity(program.eval(), (square(),))


class LostIfThereIsAMask(nn.Module):
    def forward(self, x: Tensor, mask: Optional[Tensor] = None):  # noqa: UP045
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            if mask is not None:
                z = y.type_as(mask)
                z += 1
            return y


def test_a_write_in_a_branch_that_may_be_is_lost() -> None:
    with pytest.raises(jit_amp.AutocastError, match="JA210"):
        jit_amp.script(LostIfThereIsAMask())


def without_scopes(x: Tensor) -> Tensor:
    z = x.type_as(x)
    z += 1
    return x


def test_a_program_without_autocast_is_pytorchs_own() -> None:
    assert torch.equal(jit_amp.script(without_scopes)(torch.ones(2)), torch.ones(2))


@torch.jit.script
def compiled_by_pytorch(x: Tensor) -> Tensor:
    y = x * 2
    z = x.type_as(x)
    z += 1
    return x + y


class CallsWhatIsCompiled(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu"):
            return compiled_by_pytorch(x @ x)


def test_a_lost_write_is_found_whoever_compiled_it(tmp_path: Path) -> None:
    scripted = torch.jit.script(CallsWhatIsCompiled())
    torch.jit.save(scripted, tmp_path / "saved.pt")
    for program in (CallsWhatIsCompiled(), scripted, torch.jit.load(tmp_path / "saved.pt")):
        with pytest.raises(jit_amp.AutocastError, match="JA210") as raised:
            jit_amp.script(program)
        assert "z += 1" in str(raised.value)


class Drops(nn.Module):
    def forward(self, x: Tensor):
        y = F.dropout(x, 0.5, self.training)
        y += 1
        return x * 2


class HoldsFrozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = jit_amp.freeze(Drops().eval())

    def forward(self, x: Tensor):
        with torch.autocast("cpu"):
            y = x @ x
        return self.frozen(y)


def test_what_freezing_took_out_is_no_lost_write() -> None:
    jit_amp.script(HoldsFrozen().eval())


@pytest.mark.parametrize("program", [without_scopes, compiled_by_pytorch])
def test_a_lost_write_is_found_in_what_gets_a_scope(program: Callable[..., Any]) -> None:
    jit_amp.script(program)
    with pytest.raises(jit_amp.AutocastError, match="JA210"):
        jit_amp.script(program, autocast=torch.autocast("cpu"))


class AsksOfADevice(nn.Module):
    def forward(self, x: Tensor, device: str):
        if torch.is_autocast_enabled(device):
            x = x + 1
        return x


class AsksAndHasNoScope(nn.Module):
    def forward(self, xs: List[Tensor]):  # noqa: UP006
        x = xs[0]
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            x = x + 1
        return x


def test_a_question_of_a_device_cannot_be_frozen() -> None:
    with pytest.raises(jit_amp.AutocastError, match="JA309"):
        jit_amp.freeze(AsksOfADevice().eval())


class AsksOfItsInput(nn.Module):
    """Outside of the scope, as the helpers of decoder models do."""

    def forward(self, x: Tensor):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            y = as_autocast_casts(x) * 2
        if torch.is_autocast_enabled(x.device.type):
            y = y + 1
        return y, as_autocast_casts(x)


def as_autocast_casts(x: Tensor) -> Tensor:
    device = x.device.type
    if torch.is_autocast_enabled(device):
        return x.to(torch.get_autocast_dtype(device))
    return x


class AsksOfItsInputWithoutAScope(nn.Module):
    def forward(self, x: Tensor):
        return as_autocast_casts(x) * 2


class AsksOfAnInputInside(nn.Module):
    def forward(self, xs: List[Tensor], scale: float = 2.0):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = xs[0] @ xs[0]
        return y * scale if torch.is_autocast_enabled(y.device.type) else as_autocast_casts(xs[0])


@pytest.mark.parametrize(
    "model", [AsksOfItsInput, AsksOfItsInputWithoutAScope, AsksOfAnInputInside]
)
def test_a_question_of_the_device_of_an_input_is_answered_by_examples(
    model: type[nn.Module],
) -> None:
    net, x = model().eval(), torch.randn(3, 3)
    example = ([x],) if model is AsksOfAnInputInside else (x,)
    with pytest.raises(jit_amp.AutocastError, match="JA309"):
        jit_amp.freeze(net)
    with torch.no_grad():
        frozen = jit_amp.freeze(net, example, optimize_numerics=False)
        exported = jit_amp.export(net, example).module()
        for run in (frozen, exported):
            for _ in range(3):
                assert_same(run(*example), net(*example), "result")
    for node in text_of(frozen.graph).splitlines():
        assert "aten::is_autocast_enabled(%" not in node


class AsksInAScope(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast(x.device.type, dtype=torch.float16):
            if torch.is_autocast_enabled(x.device.type):
                return x.to(torch.get_autocast_dtype(x.device.type)) @ x
            return x.double()


class AsksInAScopeThatIsOff(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16, enabled=False):
            if torch.is_autocast_enabled(x.device.type):
                return x.double()
            return x.to(torch.get_autocast_dtype(x.device.type))


@pytest.mark.parametrize("kind", [AsksInAScope, AsksInAScopeThatIsOff])
def test_a_question_of_a_tensors_device(kind: type[nn.Module], tmp_path: Path) -> None:
    """In a scope it is answered for each device that it can be."""
    net, x = kind().eval(), torch.rand(4, 4)
    jit_amp.freeze(net).save(tmp_path / "net.pt")
    ways = {
        "script": jit_amp.script(net),
        "freeze": jit_amp.freeze(net),
        "freeze, example": jit_amp.freeze(net, example_inputs=(x,)),
        "export": jit_amp.export(net, (x,)).module(),
        "file": torch.jit.load(tmp_path / "net.pt"),
    }
    assert "autocast_" not in text_of(ways["freeze"].graph)  # no operator asks
    for name, way in ways.items():
        for call in range(3):
            assert_same(way(x), net(x), f"{name}, call {call}")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for call in range(3):
            assert_same(ways["script"](x), net(x), f"ambient, call {call}")


def test_a_question_without_scopes_is_asked_by_stock_operators() -> None:
    graph = text_of(jit_amp.freeze(AsksAndHasNoScope().eval()).graph)
    assert "is_autocast_cpu_enabled()" in graph and "is_autocast_enabled(" in graph
    assert "is_autocast_enabled(%" not in graph


class Indexes(nn.Module):
    """In eager an index may be on the CPU, and so may a tensor without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(8.0))
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, index: Tensor, scale: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            y = self.linear(x)
        return (y + self.table[index][:4]) * scale


@pytest.mark.cuda
def test_indices_and_scales_on_the_cpu() -> None:
    model = Indexes().eval().cuda()
    frozen = jit_amp.freeze(model, optimize_numerics=False)
    x = torch.rand(2, 4).cuda()
    with torch.no_grad():
        index = torch.arange(4)
        for scale in (torch.tensor(2.0), torch.tensor(2.0).cuda()):
            assert_same(frozen(x, index, scale), model(x, index, scale), str(scale.device))


class Mapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        return y, x @ x


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp"])
def test_below_functions_transforms(transform: str, learns: bool) -> None:
    """Below vmap an operator is taken apart before autocast sees its parts."""
    module = Mapped().eval().requires_grad_(learns)
    x = torch.randn(3, 4, 4)

    def result(of: Any) -> Any:
        if transform == "vmap":
            return torch.func.vmap(of)(x)
        if transform == "grad":
            return torch.func.grad(lambda x: of(x)[0].float().sum())(x[0])
        return torch.func.jvp(lambda x: of(x)[0], (x[0],), (x[1],))

    for made in (jit_amp.script(module), jit_amp.trace(module, (x[0],))):
        for _ in range(3):
            for ambient in (False, True):
                with torch.autocast("cpu", enabled=ambient):
                    assert_same(result(made), result(module), transform)
                    with torch.no_grad():
                        assert_same(result(made), result(module), transform)


OUTLIVES = """
import gc, io, torch, jit_amp
from torch import nn

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()

class Outer(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x)

file = io.BytesIO()
torch.jit.save(torch.jit.script(Part()), file)

def loaded():
    file.seek(0)
    return torch.jit.load(file)

scripted = [torch.jit.script(Outer(loaded())) for _ in range(30)]
del scripted
gc.collect()
module = Outer(loaded())
x = torch.randn(2, 4)
with torch.autocast("cpu"):
    print(jit_amp.script(module)(x).dtype)
"""


def test_a_class_that_outlives_a_loaded_submodule(tmp_path: Path) -> None:
    """PyTorch keeps it, and it knows methods by address that are gone."""
    program = tmp_path / "program.py"
    program.write_text(OUTLIVES)
    overwriting = {"MALLOC_PERTURB_": "165"}  # glibc: what is freed is overwritten
    done = subprocess.run(
        [sys.executable, "-W", "ignore", program],
        env={**os.environ, **overwriting},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "torch.bfloat16"), done.stderr


class Padded(nn.Module):
    """A transformer that asks of a padding whether nested tensors could hold it."""

    def __init__(self, device: str, **options: Any) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, **options)
        self.device = device

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        with torch.autocast(self.device, dtype=torch.bfloat16):
            return self.encoder(x, src_key_padding_mask=padding)


PADDING = torch.tensor([[False, False, False], [False, False, True]])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("examples", [False, True])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_transformer_with_padding_is_frozen(device: str, examples: bool) -> None:
    """Under CPU's autocast PyTorch's own fast path raises; without nested tensors it is left."""
    options = {"enable_nested_tensor": False} if device == "cpu" else {}
    model = Padded(device, **options).eval().to(device).requires_grad_(False)
    given = (torch.rand(2, 3, 4, device=device), PADDING.to(device))
    with torch.no_grad():
        frozen = jit_amp.freeze(
            model, example_inputs=given if examples else None, optimize_numerics=False
        )
        for n in range(3):
            assert_same(frozen(*given), model(*given), f"call {n + 1}")


class Profiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.autograd.profiler.record_function("part"):
                x = self.linear(x)
            return self.linear(x)


def test_a_part_that_the_profiler_records_is_frozen() -> None:
    model, x = Profiled().eval(), torch.rand(2, 4)
    frozen = jit_amp.freeze(model, example_inputs=(x,), optimize_numerics=False)
    with torch.no_grad():
        assert_same(frozen(x), model(x), "frozen")
        with torch.autograd.profiler.profile() as profiled:
            frozen(x)
    assert "part" in {event.name for event in profiled.function_events}


class Waits(nn.Module):
    """Waits inside a block for a task that takes longer than it takes to come to the wait."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def task(self, x: Tensor) -> Tensor:
        for _ in range(200):
            x = self.linear(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.jit.wait(torch.jit.fork(self.task, x))
            return self.linear(y)


def test_who_waits_inside_no_grad_has_gradients_after_it() -> None:
    """PyTorch leaves them off: it ends the block in the thread that goes on (docs/limits.md)."""
    scripted = jit_amp.script(Waits())
    for _ in range(10):
        scripted(torch.rand(2, 4))
        assert torch.is_grad_enabled()


class Streams(nn.Module):
    """State that is set anew only where the rate is another than in the call before."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.state, self.rate = torch.zeros(4), 0

    def forget(self) -> None:
        self.state, self.rate = torch.zeros(4), 0

    def step(self, x: Tensor, rate: int) -> Tensor:
        if self.rate != 0 and self.rate != rate:
            self.forget()
        y = self.linear(x + self.state)
        self.state, self.rate = y.float().mean(0), rate
        return y

    def forward(self, x: Tensor, rate: int) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.cat([self.step(x, rate), self.step(x, rate)])


@pytest.mark.parametrize(
    "options", [{"optimize_numerics": False}, {}, {"target": "server"}], ids=str
)
def test_a_branch_that_only_sets_attributes_stays_a_branch(options: dict[str, Any]) -> None:
    """As in silero-vad."""
    model, x = Streams().eval().requires_grad_(False), torch.rand(2, 4)
    frozen = jit_amp.freeze(model, **options)
    for rate in (8, 8, 16, 16, 8):
        ours, eager = frozen(x, rate), model(x, rate)
        assert ours.dtype == eager.dtype
        torch.testing.assert_close(ours, eager, atol=0.02, rtol=0.02)


class Statistics(nn.Module):
    """A norm that writes its running statistics, as its schema does not say, between two products
    of them."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        self.norm, self.linear = norm, nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            before = self.linear(self.mean)
            if self.norm == "batch":
                y = F.batch_norm(x, self.mean, self.var, None, None, True, 0.5)
            else:
                y = F.instance_norm(x[None].mT, self.mean, self.var, None, None, True, 0.5)
            return before, y, self.linear(self.mean)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # F.batch_norm looks at sizes
@pytest.mark.parametrize("norm", ["batch", "instance"])
@pytest.mark.parametrize(
    "make",
    [
        lambda model, x: jit_amp.script(model),
        lambda model, x: jit_amp.trace(copy.deepcopy(model), x, check_trace=False),
        lambda model, x: jit_amp.freeze(model, optimize_numerics=False),
        lambda model, x: jit_amp.freeze(model, optimize_numerics=False, example_inputs=x),
        lambda model, x: jit_amp.freeze(model, target="server", example_inputs=x),
    ],
    ids=["script", "trace", "freeze", "freeze with an example", "server"],
)
def test_running_statistics_are_written_once_a_call(norm: str, make: Callable[..., Any]) -> None:
    model, x = Statistics(norm).eval(), torch.rand(3, 4)
    ours = make(copy.deepcopy(model), x)
    if make.__code__.co_names[1] == "trace":  # which has run it
        model(x)
    for _ in range(3):
        for a, b in zip(ours(x), model(x), strict=True):
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, atol=0.01, rtol=0.01)
