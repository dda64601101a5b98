"""What a frozen module gives: tensors that are different in eager are, and its file loads."""

import io
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same, tensors_of

X = torch.rand(4, 4)


class AfterAValue(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ x) @ x, x @ x, x @ x


class InADictionary(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(x @ x)
            return {"y": y, "a": x @ x, "b": x @ x}


class InABranch(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total = (x @ x).sum()
            results = [x @ x]
            if bool(x.sum() > 0):
                results.append(x @ x)
                results.append(x @ x)
        return total, results


class InALoop(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            results = [torch.relu(x @ x)]
            for _ in range(3):
                results.append(x @ x)
        return results


class OneLayerOfThreeNames(nn.Module):
    """Equal once the weights are constants."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = self.first
        self.third = self.first

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(self.first(x)), self.second(x), self.third(x)


class AfterEqualCasts(nn.Module):
    """Explicit ones, which become one."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x.to(torch.float16) * 2
            b = x.to(torch.float16) * 2
            c = x.to(torch.float16) * 2
            return (a.float() @ x), b, c


class WithoutAScope(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.relu(x * 2), x * 2, x * 2


class Pair(NamedTuple):
    x: Tensor
    pairs: list[tuple[Tensor, Tensor | None]]


class OptionalsInANamedTuple(nn.Module):
    def forward(self, x: Tensor) -> Pair:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        pairs: list[tuple[Tensor, Tensor | None]] = [(x, y)]
        return Pair(x, pairs)


class OptionalsInADictionary(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor | None]]]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        pairs: dict[str, tuple[Tensor, Tensor | None]] = {"a": (x, y), "b": (y, None)}
        return x, pairs


class OptionalsAppended(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor | None]]]:
        pairs: list[tuple[Tensor, Tensor | None]] = []
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pairs.append((x, x @ x))
            if bool(x.sum() > 0):
                pairs.append((x, None))
        return x, pairs


class TuplesOfTuples(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, list[tuple[int, tuple[Tensor, Tensor | None]]]]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        pairs: list[tuple[int, tuple[Tensor, Tensor | None]]] = [(1, (x, y)), (2, (x, y))]
        return x, pairs


class OptionalNumbers(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, list[tuple[int | None, str]]]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        names: list[tuple[int | None, str]] = [(1, "a"), (2, "b")]
        return y, names


class OptionalNumbersInATuple(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, tuple[str, dict[str, tuple[int | None, str]]]]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        names: dict[str, tuple[int | None, str]] = {"a": (1, "b")}
        return y, ("names", names)


class OptionalsWithoutAScope(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor | None]]]:
        pairs: list[tuple[Tensor, Tensor | None]] = [(x, x * 2)]
        return x, pairs


MODELS: list[Callable[[], nn.Module]] = [
    AfterAValue,
    InADictionary,
    InABranch,
    InALoop,
    OneLayerOfThreeNames,
    AfterEqualCasts,
    WithoutAScope,
    OptionalsInANamedTuple,
    OptionalsInADictionary,
    OptionalsAppended,
    TuplesOfTuples,
    OptionalNumbers,
    OptionalNumbersInATuple,
    OptionalsWithoutAScope,
]
HOW: dict[str, dict[str, Any]] = {
    "without examples": {},
    "with examples": {"example_inputs": (X,)},
    "exact": {"optimize_numerics": False},
    "server": {"example_inputs": (X,), "target": "server"},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("make", MODELS)
@torch.no_grad()
def test_results_are_eagers(make: Callable[[], nn.Module], how: str) -> None:
    model = make().eval()
    frozen = jit_amp.freeze(model, **HOW[how])
    file = io.BytesIO()
    torch.jit.save(frozen, file)
    file.seek(0)
    for module in (frozen, torch.jit.load(file)):
        for call in range(3):
            expected, results = model(X), module(X)
            assert_same(results, expected, f"call {call}")
            assert shared(results) == shared(expected), f"call {call}"


def shared(results: Any) -> list[int]:
    """By result, which is the first that has its memory."""
    places = [tensor.data_ptr() for tensor in tensors_of(results)]
    return [places.index(place) for place in places]
