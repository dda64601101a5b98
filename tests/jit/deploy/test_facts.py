"""What is known of dtypes holds whichever way the graph goes, and decides about casts."""

from collections.abc import Callable
from typing import Any, Dict, List, Optional  # noqa: UP035

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same, check_ir

BF16 = torch.bfloat16


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)


class Straight(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            z = torch.prod(y, 1, True).expand(2, 4)
            return self.b(z) + y, torch.cat([z, y])


class Branch(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            if n > 1:
                y = y + torch.prod(y, 1, True)
            return y, self.b(y), torch.cat([y, y]), torch.prod(y, 1)


class Loop(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x
            for _ in range(n):
                y = self.a(y)
            return y, self.b(y), torch.cat([y, y]), torch.prod(y, 1)


class LoopByTurns(Model):
    """Two carried values that change places."""

    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y, z = self.a(x), x
            for _ in range(n):
                y, z = z, y
            return y, self.b(y), torch.prod(y, 1), torch.cat([z, z])


class Indexed(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            parts = [x, self.a(x), x, self.a(x)]
            y = parts[n]
            return y, self.b(y), torch.prod(y, 1), parts[1] + parts[0]


class Appended(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            parts: List[Tensor] = [x]  # noqa: UP006
            for _ in range(n):
                parts.append(self.a(x))
            y = parts[-1]
            return y, self.b(y), torch.prod(y, 1), torch.stack(parts)


class Keyed(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            kept: Dict[int, Tensor] = {0: x, 1: self.a(x), 2: x, 3: x}  # noqa: UP006
            y = kept[n]
            kept[0] = self.b(x)
            return y, self.b(y), torch.prod(kept[0], 1), torch.cat([y, y])


class Sliced(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = [x, self.a(x), x, self.a(x), x][n:][0]
            return y, self.b(y), torch.prod(y, 1), torch.cat([y, y])


class KeyedOrNot(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            kept: Dict[int, Tensor] = {0: x, 1: self.a(x)}  # noqa: UP006
            y = kept.get(n, x)
            return y, self.b(y), torch.prod(y, 1), torch.cat([y, y])


class ValuesOfADict(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            kept: Dict[int, Tensor] = {0: x, 1: self.a(x), 2: x, 3: x}  # noqa: UP006
            y = list(kept.values())[n]
            return y, self.b(y), torch.prod(y, 1), torch.cat([y, y])


class AlikeOrDefault(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            kept: Dict[int, Tensor] = {0: self.b(x), 1: self.a(x)}  # noqa: UP006
            y = kept.get(n, x)
            return y, self.b(y), torch.prod(y, 1), torch.cat([y, y])


class IndexedTwice(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = [[x, self.a(x), x, self.a(x)], [x]][0][n]
            return y, self.b(y), torch.prod(y, 1), torch.cat([y, y])


class Chunks(Model):
    """Parts of one tensor are alike: these are known."""

    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x).chunk(4, 1)[n].expand(2, 4)
            return y, self.b(y), torch.prod(y, 1)


class Optionally(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y: Optional[Tensor] = None  # noqa: UP045
            if n > 1:
                y = self.a(x)
            z = x if y is None else y
            return z, self.b(z), torch.prod(z, 1)


class DtypeIsAnInput(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x.to([torch.float32, torch.bfloat16, torch.float64, torch.float16][n])
            return y, torch.prod(y, 1), self.a(y.float())


class DtypeOfABranch(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            dtype = torch.float32
            if n > 1:
                dtype = torch.bfloat16
            y = x.to(dtype)
            return y, torch.prod(y, 1), self.a(y), torch.cat([y, y])


class ReadsADtype(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            z = x
            if n > 1:
                z = y
            w = torch.ones(2, 4, dtype=z.dtype)
            return torch.prod(w, 1), self.b(w), torch.cat([w, y])


class Task(Model):
    def forward(self, x: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.jit.wait(torch.jit.fork(self.a, x))
            return self.b(y), torch.prod(y, 1)


MODELS = [
    Straight,
    Branch,
    Loop,
    LoopByTurns,
    Indexed,
    Appended,
    Keyed,
    Sliced,
    KeyedOrNot,
    AlikeOrDefault,
    ValuesOfADict,
    IndexedTwice,
    Chunks,
    Optionally,
    DtypeIsAnInput,
    DtypeOfABranch,
    ReadsADtype,
    Task,
]


@pytest.mark.parametrize("seen", [0, 1, 3])
@pytest.mark.parametrize("make", MODELS)
@torch.no_grad()
def test_what_is_seen_is_not_taken_for_what_must_be(
    make: Callable[[], nn.Module], seen: int
) -> None:
    """Frozen with one example, the artefact is right where the graph goes another way."""
    module, x = make().eval(), torch.randn(2, 4)
    frozen = jit_amp.freeze(module, example_inputs=(x, seen))
    for _ in range(2):
        for n in range(4):
            for like in (x, -x):
                assert_same(frozen(like, n), module(like, n), f"n = {n}")


def dtypes(graph: torch._C.Graph) -> dict[str, Any]:
    found = {}
    for node in graph.nodes():
        for output in node.outputs():
            if isinstance(output.type(), torch._C.TensorType):
                found[output.debugName().split(".")[0]] = output.type().dtype()
    return found


def test_facts_are_printed_beside_the_graph() -> None:
    module, x = Straight().eval(), torch.randn(2, 4)
    check_ir(
        jit_amp.facts(module, (x, 1)),
        """
        CHECK: %x.1 : FloatTensor(device=cpu)
        CHECK: %y.1 : BFloat16Tensor(device=cpu) = aten::linear
        CHECK: %{{[0-9]+}} : FloatTensor(device=cpu) = aten::prod
        CHECK: %z.1 : FloatTensor(device=cpu) = aten::expand
        """,
    )
    known = dtypes(jit_amp.facts(Branch().eval(), (x, 3)))
    assert dtypes(jit_amp.facts(Chunks().eval(), (x, 3)))["y"] == BF16
    assert known["y"] is None  # a branch that was not taken may give another dtype


def test_examples_that_differ_leave_their_dtype_unknown() -> None:
    module, x = Straight().eval(), torch.randn(2, 4)
    known = jit_amp.facts(module, [(x, 1), (x.bfloat16(), 1)])
    check_ir(known, "CHECK: %x.1 : Tensor,")
    frozen = jit_amp.freeze(module, example_inputs=[(x, 1), (x.bfloat16(), 1)])
    with torch.no_grad():
        for like in (x, x.bfloat16(), x.half()):
            assert_same(frozen(like, 1), module(like, 1), f"{like.dtype}")


class WritesAConstant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.state = torch.randn(4, 4), torch.zeros(4, 4)

    def forward(self, x: Tensor):
        self.state = self.weight.detach()
        torch.cat([x[:2], x[2:]], out=self.state)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x


def test_running_the_examples_leaves_the_module_as_it_was() -> None:
    module, x = WritesAConstant().eval(), torch.randn(4, 4)
    before = module.weight.clone()
    jit_amp.freeze(module, example_inputs=(x,))
    jit_amp.facts(module, (x,))
    assert torch.equal(module.weight, before)


# What facts are used for.


class RoundTrip(Model):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            return self.b(y.float())


class Rounds(Model):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.prod(x.to(torch.bfloat16), 1)


class WrittenWide(Model):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x).float()
            y.mul_(1.001)
            return self.b(y)


def conversions(module: Any) -> int:
    return sum(node.kind() == "aten::to" for node in module.graph.nodes())


@pytest.mark.parametrize(
    ("make", "left"), [(RoundTrip, 1), (Rounds, 2), (WrittenWide, 3)], ids=lambda value: str(value)
)
@torch.no_grad()
def test_a_widening_that_is_taken_back_is_dropped_and_a_rounding_is_not(
    make: Callable[[], nn.Module], left: int
) -> None:
    module, x = make().eval(), torch.randn(2, 4)
    frozen = jit_amp.freeze(module, example_inputs=(x,))
    assert conversions(frozen) == left
    assert_same(frozen(x), module(x), "frozen")


def test_casts_that_facts_prove_idle_are_not_there() -> None:
    module, x = Straight().eval(), torch.randn(2, 4)
    frozen = jit_amp.freeze(module, example_inputs=(x, 1))
    check_ir(
        frozen.graph,
        """
        CHECK-NOT:  prim::If(%{{.*}}) : Tensor
        CHECK:      aten::to(%x.1,
        CHECK:      aten::linear
        CHECK-NEXT: aten::to
        CHECK-NEXT: aten::prod
        CHECK-NOT:  prim::If(%{{.*}}) : Tensor
        CHECK:      aten::expand
        CHECK-NEXT: aten::to
        CHECK-NEXT: aten::linear
        CHECK-NOT:  jit_amp
        """,
    )


class Reductions(nn.Module):
    """CUDA's autocast sets the dtype of these, where the call gives none."""

    def forward(self, x: Tensor, wide: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            return (
                torch.softmax(x @ x, -1),
                torch.softmax(x, -1, dtype=torch.float16),
                torch.sum(wide, -1),
                torch.cumsum(x.half(), 0),
            )


@pytest.mark.cuda
def test_what_cudas_autocast_makes_of_reductions() -> None:
    module = Reductions().eval()
    given = torch.randn(2, 2).cuda(), torch.randn(2, 2).double().cuda()
    text = str(jit_amp.facts(module, given))
    kinds = ["Float", "Half", "Double", "Float"]
    for line, kind in zip(
        (
            x
            for x in text.splitlines()
            if "opt_dtype" not in x
            and any(f"aten::{name}(" in x for name in ("softmax", "sum", "cumsum"))
        ),
        kinds,
        strict=True,
    ):
        assert f"{kind}Tensor(device=cuda:0)" in line, text
    frozen = jit_amp.freeze(module, example_inputs=given)
    with torch.no_grad():
        for _ in range(3):
            assert_same(frozen(*given), module(*given), "frozen")
