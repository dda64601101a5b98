"""widen: what stays in float32 is given float32, as jit_amp/_precision/in_float32.py gives it in
eager.

`float32` below is a module as `script(precision=...)` has one that stays in float32.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple  # noqa: UP035  # as TorchScript's

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp._precision import in_float32
from jit_amp._script import ignore_amp

from ..support import assert_same
from ..tune.test_apply import precision

BF16 = torch.bfloat16


class Pair(NamedTuple):
    x: Tensor
    n: int


class OfTensor(nn.Module):
    def forward(self, x: Tensor):
        return x


class OfOptional(nn.Module):
    def forward(self, x: Optional[Tensor]):  # noqa: UP045
        return x


class OfList(nn.Module):
    def forward(self, x: List[Tensor]):  # noqa: UP006
        return x


class OfDict(nn.Module):
    def forward(self, x: Dict[str, Tensor]):  # noqa: UP006
        return x


class OfTuple(nn.Module):
    def forward(self, x: Tuple[Tensor, int, Tensor]):  # noqa: UP006
        return x


class OfNested(nn.Module):
    def forward(self, x: Dict[str, List[Tuple[Tensor, float]]]):  # noqa: UP006
        return x


class OfNamed(nn.Module):
    def forward(self, x: Tuple[Pair, int]):  # noqa: UP006
        return x[0].x, x[0].n


class OfNumbers(nn.Module):
    def forward(self, x: List[int]):  # noqa: UP006
        return x


def float32(module: nn.Module, *lines: tuple[str, int, int]) -> Any:
    scripted = jit_amp.script(module, autocast=torch.autocast("cpu", dtype=BF16))
    ignore_amp.keep_in_float32(scripted._c, list(lines))
    return scripted


def values(dtype: torch.dtype) -> list[tuple[type[nn.Module], Any]]:
    x, y = torch.rand(2).to(dtype), torch.rand(3)
    return [
        (OfTensor, x),
        (OfOptional, x),
        (OfOptional, None),
        (OfList, [y, x]),
        (OfDict, {"x": x, "y": y}),
        (OfTuple, (x, 2, y)),
        (OfNested, {"x": [(y, 1.0), (x, 2.0)], "y": []}),
        (OfNamed, (Pair(x, 3), 1)),
        (OfNumbers, [1, 2]),
    ]


@pytest.mark.parametrize("dtype", [BF16, torch.float16, torch.float32, torch.float64, torch.int64])
def test_it_gets_what_eager_gives(dtype: torch.dtype) -> None:
    for make, value in values(dtype):
        module = make()
        expected = module(in_float32.widened(value))
        scripted = float32(module)
        for call in range(3):
            assert_same(scripted(value), expected, f"{make.__name__}, call {call}")


class Appends(nn.Module):
    def forward(self, x: List[Tensor]):  # noqa: UP006
        x.append(x[0] + 1)
        return x


class Gives(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Appends()

    def forward(self, x: Tensor):
        given = [x]
        made = self.inner(given)
        return made, len(given)


@pytest.mark.parametrize(("dtype", "length"), [(torch.float32, 2), (BF16, 1)])
def test_a_list_is_made_anew_where_something_is_cast(dtype: torch.dtype, length: int) -> None:
    """Else the caller sees what is appended to its own, as in eager."""
    x = torch.rand(2).to(dtype)
    scripted = jit_amp.script(Gives(), autocast=torch.autocast("cpu", dtype=BF16))
    ignore_amp.keep_in_float32(scripted.inner._c, [])
    given = [x]
    made = Appends()(in_float32.widened(given))
    assert len(given) == length
    assert_same(scripted(x), (made, length), "given to the inner one")


class Lines(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        y = self.linear(x)
        z = self.linear(y)
        return y, z


def test_a_line_alone() -> None:
    module, x = Lines().eval(), torch.rand(2, 4)
    first = Lines.forward.__code__.co_firstlineno
    with torch.no_grad():
        y, z = float32(module, (__file__, first + 2, first + 2))(x)
        with torch.autocast("cpu", dtype=BF16):
            expected = module.linear(x)
        assert_same(y, expected, "the line before")
        assert_same(z, module.linear(expected.float()), "the line")


class Inner(nn.Module):
    def forward(self, x: List[Pair]):  # noqa: UP006
        return x[0].x * 2


class InnerOfOptional(nn.Module):
    def forward(self, x: Optional[Pair] = None):  # noqa: UP045
        return torch.ones(2) if x is None else x.x * 2


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.other = Inner(), nn.Linear(2, 2)

    def forward(self, x: Tensor):
        return self.inner([Pair(self.other(x), 1)])


class OuterOfOptional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.other = InnerOfOptional(), nn.Linear(2, 2)

    def forward(self, x: Tensor):
        return self.inner(Pair(self.other(x), 1))


@pytest.mark.parametrize("unit", ["inner", "other"])
@pytest.mark.parametrize("make", [Outer, OuterOfOptional])
def test_named_tuples_in_a_list(make: type[nn.Module], unit: str) -> None:
    kept, module, x = precision((unit,)), make().eval(), torch.rand(2, 2)
    scripted = jit_amp.script(module, precision=kept)
    with kept.apply(module):
        expected = module(x)
    assert expected.dtype == torch.float32
    for call in range(3):
        assert_same(scripted(x), expected, f"{make.__name__}, call {call}")
