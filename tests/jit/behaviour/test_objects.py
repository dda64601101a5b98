"""Scopes in methods of TorchScript classes."""

import torch
from torch import Tensor

from ..support import (
    assert_parity,
    dtypes_of,
    matrix,
    refusal,
)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@torch.jit.script
class Multiplier:
    def __init__(self, y: Tensor) -> None:
        self.y = y

    def by(self, x: Tensor) -> Tensor:
        return x @ self.y

    def by_half(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return x @ self.y

    def __add__(self, x: Tensor) -> Tensor:
        return x @ self.y

    @staticmethod
    def squared(x: Tensor) -> Tensor:
        return x @ x


@torch.jit.script
class ScopedMultiplier:
    def __init__(self, y: Tensor) -> None:
        self.y = y

    def by(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return x @ self.y


@torch.jit.interface
class Multiplying:
    def by(self, x: Tensor) -> Tensor:
        pass


def uses_an_object(x: Tensor):
    outer = Multiplier(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = outer.by(x), outer.by_half(x), outer + x, Multiplier.squared(x)
        made_inside = Multiplier(x @ x)
    return inside, made_inside.y, outer.by(x), outer.by_half(x), outer + x


def uses_an_object_behind_an_interface(x: Tensor):
    multiplier: Multiplying = Multiplier(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = multiplier.by(x)
    return inside, multiplier.by(x)


def uses_one_of_two_objects(x: Tensor, scoped: bool):
    if scoped:
        multiplier: Multiplying = ScopedMultiplier(x)
    else:
        multiplier = Multiplier(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = multiplier.by(x)
    return inside, multiplier.by(x)


def test_scopes_reach_into_methods_of_objects() -> None:
    results = assert_parity(uses_an_object, (matrix(),))
    assert dtypes_of(results["none"]) == [BF16, F16, BF16, BF16, BF16, F32, F16, F32]


def test_scopes_reach_into_an_object_behind_an_interface() -> None:
    results = assert_parity(uses_an_object_behind_an_interface, (matrix(),))
    assert dtypes_of(results["none"]) == [BF16, F32]


def test_an_object_behind_an_interface_is_refused() -> None:
    assert "a method of an object whose class is known only at run time" in refusal(
        uses_one_of_two_objects
    )
