"""Writes that PyTorch's compiler drops are refused, wherever they stand: JA210."""

import io
from collections.abc import Callable
from typing import Any, List, NamedTuple, Optional, Tuple  # noqa: UP035

import pytest
import torch
from torch import Tensor, nn

import jit_amp

Alias = torch.Tensor


def same(y: Tensor) -> Tensor:
    return y


def same_and_one(y: Tensor) -> Tuple[Tensor, int]:  # noqa: UP006
    return y, 1


def in_a_list(y: Tensor) -> List[Tensor]:  # noqa: UP006
    return [y]


class Named(NamedTuple):
    tensor: Tensor
    number: int


def writes_to_it(z: Alias):
    z ^= 1


def writes_to_a_part(z: Tensor) -> Tensor:
    z[0] ^= 1
    return z


def by_an_alias_of_the_class(x: Tensor):
    y = x.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        writes_to_it(y)
    return y


def by_a_function(x: Tensor):
    y = x.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = same(y)
        w ^= 1
    return y


def by_a_part_of_its_result(x: Tensor):
    y = x.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w, _ = same_and_one(y)
        w |= 8
    return y


def by_a_task(x: Tensor):
    y = x.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = torch.jit.fork(same, y).wait()
        w &= 1
    return y


def by_a_named_tuple(x: Tensor):
    y = x.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = Named(y, 1).tensor
        w **= 2
    return y


def by_a_loop(x: Tensor):
    y = x.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _, w in enumerate([y]):
            w ^= 1
    return y


def by_a_list_of_a_function(x: Tensor):
    y = x.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for w in in_a_list(y):
            w ^= 1
    return y


def by_out(x: Tensor):
    y = x.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = torch.add(y, 0, out=y)
        w ^= 1
    return y


@torch.jit.script
class Holds:
    def __init__(self, y: Tensor):
        self.y = y

    def method(self) -> Tensor:
        self.y[0] ^= 1
        return self.y

    def size(self) -> Tensor:
        return self.y

    @property
    def shape(self) -> Tensor:
        return self.y

    @property
    def written(self) -> Tensor:
        self.y[0] ^= 1
        return self.y

    @property
    def aliased(self) -> Tensor:
        w = self.y.type_as(self.y)
        w += 1
        return self.y


@torch.jit.script
class Enters:
    def __init__(self, y: Tensor):
        self.y = y

    def __enter__(self):
        self.y[0] ^= 1

    def __exit__(self, a: Any, b: Any, c: Any) -> None:
        pass


@torch.jit.script
class Compares:
    def __init__(self, y: Tensor):
        self.y = y

    def __lt__(self, other: "Compares") -> bool:
        self.y[0] ^= 8
        return bool(self.y.sum() < other.y.sum())


def to_what_an_object_calls_its_size(x: Tensor):
    made = Holds(x.clone())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = made.size()
        w ^= 1
    return made.y


def to_what_an_object_calls_its_shape(x: Tensor):
    made = Holds(x.clone())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = made.shape
        w ^= 1
    return made.y


def in_a_method_of_an_object(x: Tensor):
    made = Holds(x.clone())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return made.method()


def in_a_property_of_an_object(x: Tensor):
    made = Holds(x.clone())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return made.written


def in_a_property_that_aliases(x: Tensor):
    made = Holds(x.clone())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return made.aliased


def where_an_object_is_entered(x: Tensor):
    made = Enters(x.clone())
    with made, torch.autocast("cpu", dtype=torch.bfloat16):
        x = x + 1
    return made.y


def in_a_sort(x: Tensor):
    objects = [Compares(x.clone()), Compares(x + 1)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        objects.sort()
    return objects[0].y


def to_a_result_that_is_the_operand(x: Tensor):
    y = x.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = torch.dequantize(y)
        z += 1
    return y


@pytest.mark.parametrize(
    "program",
    [
        by_an_alias_of_the_class,
        by_a_function,
        by_a_part_of_its_result,
        by_a_task,
        by_a_named_tuple,
        by_a_loop,
        by_a_list_of_a_function,
        by_out,
        to_what_an_object_calls_its_size,
        to_what_an_object_calls_its_shape,
        in_a_method_of_an_object,
        in_a_property_of_an_object,
        in_a_property_that_aliases,
        where_an_object_is_entered,
        in_a_sort,
        to_a_result_that_is_the_operand,
    ],
)
def test_it_is_refused(program: Callable[[Tensor], Tensor]) -> None:
    for door in (jit_amp.script, lambda f: jit_amp.script(torch.jit.script(f))):
        with pytest.raises(jit_amp.AutocastError, match="JA210"):
            door(program)


class CallsAFunction(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return writes_to_a_part(x)


class CallsAMethod(nn.Module):
    def write(self, z: Tensor) -> Tensor:
        z[0] ^= 1
        return z

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.write(x)


@pytest.mark.parametrize("make", [CallsAFunction, CallsAMethod])
def test_all_that_a_function_does_is_lost(make: Callable[[], nn.Module]) -> None:
    """No node of it is left that would show its text."""
    for door in (jit_amp.script, lambda m: jit_amp.script(torch.jit.script(m)), jit_amp.freeze):
        with pytest.raises(jit_amp.AutocastError, match=r"JA210(.|\n)*z\[0\] \^= 1"):
            door(make().eval())


class BesideAnother(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Identity(), nn.Identity()])

    def forward(self, x: Tensor):
        v = x * 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            for _ in self.layers:
                # fmt: off
                w = y.type_as(y); w += 1; v += 1  # noqa: E702
                # fmt: on
        return y, v


def test_one_of_two_in_a_line_of_a_loop_that_is_unrolled() -> None:
    with pytest.raises(jit_amp.AutocastError, match="JA210"):
        jit_amp.script(BesideAnother())


def writes_to_numbers(x: Tensor, k: int = 3, other: Optional[Tensor] = None):  # noqa: UP045
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x.float() @ x.float().t()
        n = x.shape[0]
        n **= 2
        k |= 1
        rows, _ = x.shape
        rows **= 2
        dimensions = len(x.shape)
        dimensions &= 1
        size = x.size(0) * 2
        size **= 2
    return y


def test_numbers_are_none() -> None:
    x = torch.arange(6).reshape(2, 3)
    scripted = jit_amp.script(writes_to_numbers)
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(writes_to_numbers), buffer)
    buffer.seek(0)
    loaded = jit_amp.script(torch.jit.load(buffer))
    for made in (scripted, loaded):
        for _ in range(3):
            assert torch.equal(made(x, 3, None), writes_to_numbers(x))
