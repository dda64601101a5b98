"""Scopes in methods, submodules and their containers."""

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import (
    AMBIENTS,
    DEFAULT,
    assert_parity,
    assert_parity_with,
    assert_same,
    dtypes_of,
    known_warnings_ignored,
    matrix,
)
from .test_calls import product, product_in_half

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.float())


class InHalf(Plain):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            y = self.linear(x.float())
        return y


class Protected(Plain):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            y = self.linear(x.float())
        return y


class Methods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(matrix(2))
        self.plain, self.in_half = Plain(), InHalf()

    @property
    def squared(self) -> Tensor:
        return self.weight @ self.weight

    @property
    def squared_in_half(self) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return self.weight @ self.weight

    def multiplied(self, x: Tensor) -> Tensor:
        return x @ self.weight

    def protected(self, x: Tensor):
        with torch.autocast("cpu", enabled=False):
            off = self.multiplied(x)
        return off, self.multiplied(x)

    @torch.jit.export
    def exported(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            return self.forward(x)

    def forward(self, x: Tensor):
        before = self.protected(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            methods = self.multiplied(x), self.protected(x), self.squared, self.squared_in_half
            modules = self.plain(x), self.in_half(x), self.plain.linear(x)
        return before, methods, modules, self.squared, self.plain(x), self.in_half(x)


@pytest.mark.usefixtures("no_weight_cache")
def test_scopes_reach_into_methods_properties_and_submodules() -> None:
    results = assert_parity(Methods(), (matrix(),))
    assert dtypes_of(results["none"]) == [
        *[F32, F32],
        *[BF16, F32, BF16, BF16, F16],
        *[BF16, F16, BF16],
        *[F32, F32, F16],
    ]


@pytest.mark.usefixtures("no_weight_cache")
def test_scopes_reach_from_one_method_into_forward() -> None:
    module = Methods()
    results = assert_parity_with(module.exported, _Exported(module), (matrix(),))
    assert dtypes_of(results["none"])[:2] == [F32, F16]


class _Exported(nn.Module):
    def __init__(self, inner: Methods) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        return self.inner.exported(x)


class OfScriptMethods(torch.jit.ScriptModule):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(matrix(2))

    @torch.jit.script_method
    def in_half(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            return x @ self.weight

    @torch.jit.script_method
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ self.weight, self.in_half(x)
        return a, self.in_half(x), x @ self.weight


class OfMethods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(matrix(2))

    def in_half(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            return x @ self.weight

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ self.weight, self.in_half(x)
        return a, self.in_half(x), x @ self.weight


@pytest.mark.usefixtures("no_weight_cache")
def test_methods_that_are_scripted_one_by_one_have_their_scopes() -> None:
    results = assert_parity_with(OfMethods(), OfScriptMethods(), (matrix(),))
    assert dtypes_of(results["none"]) == [BF16, F16, F16, F32]


class FunctionAsAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.function, self.scripted = product_in_half, torch.jit.script(product)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = self.function(x), self.scripted(x)
        return inside, self.function(x), self.scripted(x)


def test_scopes_reach_into_functions_that_are_attributes() -> None:
    module = FunctionAsAttribute()
    scripted = jit_amp.script(module)
    module.scripted = product  # the reference is all Python
    for name in DEFAULT:
        with known_warnings_ignored(), AMBIENTS[name]():
            result = scripted(matrix())
            assert_same(result, module(matrix()), name)
            assert dtypes_of(result)[:3] == [F16, BF16, F16]


class Containers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.listed = nn.ModuleList([Plain(), InHalf(), Protected()])
        self.named = nn.ModuleDict({"plain": Plain(), "in_half": InHalf()})
        self.chain = nn.Sequential(InHalf(), Plain())
        self.weights = nn.ParameterList([nn.Parameter(matrix(3)), nn.Parameter(matrix(4))])

    def forward(self, x: Tensor):
        found: list[Tensor] = []
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for i, layer in enumerate(self.listed):
                found.append(layer(x) * i)
            for name, layer in self.named.items():
                if name != "in_half":
                    found.append(layer(x))
            for layer in self.named.values():
                found.append(layer(x))
            for name in self.named:
                found.append(x @ x if name == "in_half" else x)
            for first, second in zip(self.listed, self.named.values()):  # noqa: B905
                found.append(second(first(x)))
            found.append(self.listed[0](x))
            found.append(self.listed[-1](x))
            found.append(self.named["in_half"](x))
            found.append(self.named["plain"](x))
            for layer in self.chain:
                found.append(layer(x))
            found.append(self.chain(x))
            for weight in self.weights:
                found.append(x @ weight)
        found.append(self.chain(x))
        for layer in self.listed:
            found.append(layer(x))
        return found


@pytest.mark.usefixtures("no_weight_cache")
def test_scopes_reach_into_containers_iterated_and_indexed() -> None:
    results = assert_parity(Containers(), (matrix(),))
    assert dtypes_of(results["none"]) == [
        *[BF16, F16, F32],  # enumerate
        BF16,  # items
        *[BF16, F16],  # values
        *[F32, BF16],  # keys
        *[BF16, F16],  # zip
        *[BF16, F32, F16, BF16],  # indices
        *[F16, BF16, BF16],  # Sequential
        *[BF16, BF16],  # ParameterList
        *[F32, F32, F16, F32],  # outside
    ]


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


@torch.jit.interface
class TwoMethods(nn.Module):
    def one(self, x: Tensor) -> Tensor:
        pass

    def two(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        pass


class Indexed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.listed = nn.ModuleList([Plain(), InHalf(), Protected()])
        self.named = nn.ModuleDict({"plain": Plain(), "in_half": InHalf(), "off": Protected()})

    def forward(self, x: Tensor, i: int, key: str):
        listed: Layer = self.listed[i]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            named: Layer = self.named[key]
            a, b = listed.forward(x), named.forward(x)
            with torch.autocast("cpu", enabled=False):
                c, d = listed.forward(x), named.forward(x)
        return a, b, c, d, listed.forward(x), named.forward(x)


@pytest.mark.usefixtures("no_weight_cache")
@pytest.mark.parametrize(
    ("i", "key", "dtypes"),
    [
        (0, "plain", [BF16, BF16, F32, F32, F32, F32]),
        (1, "off", [F16, F32, F16, F32, F16, F32]),
        (2, "in_half", [F32, F16, F32, F16, F32, F16]),
    ],
)
def test_scopes_reach_into_a_submodule_that_is_chosen_at_run_time(
    i: int, key: str, dtypes: list[torch.dtype]
) -> None:
    results = assert_parity(Indexed(), (matrix(), i, key))
    assert dtypes_of(results["none"]) == dtypes


class Implementing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(matrix(2))

    def one(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu"):
            return x @ x

    def two(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", enabled=False):
            z = self.one(x)
        return z @ z, y @ self.weight


class OfAnInterface(nn.Module):
    inner: TwoMethods

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            inside = self.inner.one(x), self.inner.two(x, x)
            task = torch.jit.fork(self.multiplied, x)
        outside = self.inner.one(x), self.inner.two(x, x)
        return inside, outside, torch.jit.wait(task)

    def multiplied(self, x: Tensor):
        return self.inner.one(x) @ self.inner.two(x, x)[1]


@pytest.mark.usefixtures("no_weight_cache")
def test_scopes_reach_through_every_method_of_an_interface() -> None:
    results = assert_parity(OfAnInterface(Implementing()), (matrix(),))
    assert dtypes_of(results["none"]) == [F16, F16, F16, BF16, BF16, F32, F16]


class CallsALayer(nn.Module):
    inner: Layer

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = self.inner(x)
        return inside, self.inner(x)


@pytest.mark.usefixtures("no_weight_cache")
def test_a_module_behind_an_interface_can_be_replaced_by_a_lowered_one() -> None:
    x = matrix()
    eager = CallsALayer(Plain())
    scripted = jit_amp.script(eager)
    for inner in (InHalf(), Protected(), Plain()):
        eager.inner = inner
        scripted.inner = jit_amp.script(inner)
        for name in DEFAULT:
            with known_warnings_ignored(), AMBIENTS[name]():
                assert_same(scripted(x), eager(x), f"{type(inner).__name__}, {name}")


class ForksALayer(CallsALayer):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = torch.jit.fork(self.inner.forward, x)
        outside = torch.jit.fork(self.inner.forward, x)
        return torch.jit.wait(inside), torch.jit.wait(outside)


@pytest.mark.usefixtures("no_weight_cache")
@pytest.mark.parametrize(
    ("inner", "dtypes"),
    [(Plain(), [BF16, F32]), (InHalf(), [F16, F16]), (Protected(), [F32, F32])],
    ids=["plain", "in_half", "protected"],
)
def test_scopes_reach_into_a_task_of_an_interfaces_method(
    inner: nn.Module, dtypes: list[torch.dtype]
) -> None:
    results = assert_parity(ForksALayer(inner), (matrix(),))
    assert dtypes_of(results["none"]) == dtypes
