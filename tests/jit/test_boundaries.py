"""Scopes across boundaries: calls, containers, interfaces, forks, Python, traces, exits, errors."""

import enum
import inspect
import itertools
import linecache
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from .support import (
    AMBIENTS,
    DEFAULT,
    assert_gradient_parity,
    assert_parity,
    assert_parity_with,
    assert_same,
    autocast_state,
    known_warnings_ignored,
    refusal,
    tensors_of,
)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def matrix(seed: int = 0) -> Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))


def dtypes_of(value: Any) -> list[torch.dtype]:
    return [t.dtype for t in tensors_of(value)]


# Calls: every callee opens scopes of its own, and is called in scopes and out of them.


def innermost(x: Tensor):
    plain = x @ x
    with torch.autocast("cpu", enabled=False):
        off = x @ x
    return plain, off


def middle(x: Tensor):
    before = innermost(x)
    with torch.autocast("cpu", dtype=torch.float16):
        inside = innermost(x)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            for_another_device = innermost(x)
    return before, inside, for_another_device, innermost(x)


def outermost(x: Tensor):
    before = middle(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = middle(x)
        with torch.autocast("cpu", enabled=False):
            off = middle(x)
    return before, inside, off, middle(x)


def test_scopes_of_callees_and_of_callers_nest() -> None:
    results = assert_parity(outermost, (matrix(),))
    half = [F16, F32, F16, F32]
    assert dtypes_of(results["none"]) == [
        *([F32, F32, *half, F32, F32]),
        *([BF16, F32, *half, BF16, F32]),
        *([F32, F32, *half, F32, F32]),
        *([F32, F32, *half, F32, F32]),
    ]


def default_dtype_inside(x: Tensor):
    with torch.autocast("cpu"):
        return x @ x


def default_dtype_in_a_callee(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        inside = default_dtype_inside(x)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            off = default_dtype_inside(x)
    return inside, off, default_dtype_inside(x)


def test_a_callees_default_dtype_is_its_callers() -> None:
    results = assert_parity(default_dtype_in_a_callee, (matrix(),))
    assert dtypes_of(results["none"]) == [F16, BF16, BF16]
    assert dtypes_of(results["cpu_float16"]) == [F16, BF16, F16]


def scoped_by_arguments(x: Tensor, dtype: torch.dtype = torch.bfloat16, enabled: bool = True):
    with torch.autocast("cpu", dtype=dtype, enabled=enabled):
        return x @ x


def passed_on(x: Tensor, dtype: torch.dtype, enabled: bool):
    return scoped_by_arguments(x, enabled=enabled, dtype=dtype)


def constants_through_calls(x: Tensor):
    return (
        passed_on(x, torch.float16, True),
        passed_on(x, torch.float16, False),
        scoped_by_arguments(x),
        scoped_by_arguments(x, torch.float16),
        scoped_by_arguments(x, enabled=False),
    )


def test_constants_reach_a_scope_through_calls_and_defaults() -> None:
    results = assert_parity(constants_through_calls, (matrix(),))
    assert dtypes_of(results["none"]) == [F16, F32, BF16, F16, F32]


plain_script = torch.jit.script(middle)
lowered_script = jit_amp.script(middle)


def calls_what_pytorch_scripted(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = plain_script(x)
    return inside, plain_script(x)


def calls_what_jit_amp_scripted(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = lowered_script(x)
    return inside, lowered_script(x)


def calls_python(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = middle(x)
    return inside, middle(x)


@pytest.mark.parametrize("function", [calls_what_pytorch_scripted, calls_what_jit_amp_scripted])
def test_a_scope_reaches_into_a_scripted_callee(function: Callable[..., Any]) -> None:
    assert_parity_with(calls_python, function, (matrix(),))


def test_a_lowered_function_called_from_eager_heeds_the_scope_around() -> None:
    for _ in range(3):
        with known_warnings_ignored():
            assert_same(calls_what_jit_amp_scripted(matrix()), calls_python(matrix()), "eager")


FREED = """
import gc
import warnings

import torch
from torch import Tensor

import jit_amp

warnings.simplefilter("ignore")


def product(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


def same(x: Tensor):
    return x


def make():
    inner = jit_amp.script(product)

    def outer(x: Tensor):
        return inner(x)

    return jit_amp.script(outer)


scripted = make()
gc.collect()
others = [jit_amp.script(same) for _ in range(300)]
x = torch.randn(4, 4)
for enabled in (True, False):
    with torch.autocast("cpu", dtype=torch.float16, enabled=enabled):
        assert scripted(x).dtype == torch.bfloat16, (enabled, scripted(x).dtype)
"""


def test_a_caller_keeps_its_lowered_callee_alive(tmp_path: Path) -> None:
    script = tmp_path / "freed.py"
    script.write_text(FREED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def capturing(helper: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    def captured(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return helper(x), x @ x

    return captured


def nesting(helper: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Any]:
    inner = capturing(helper)

    def outer(x: Tensor):
        with torch.autocast("cpu", enabled=False):
            inside = helper(x), inner(x)
        return inside, helper(x), inner(x)

    return outer


def product(x: Tensor) -> Tensor:
    return x @ x


def product_in_half(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.float16):
        return x @ x


@pytest.mark.parametrize(
    ("helper", "dtypes"),
    [
        (product, [F32, BF16, BF16, F32, BF16, BF16]),
        (product_in_half, [F16, F16, BF16, F16, F16, BF16]),
    ],
)
def test_scopes_reach_into_what_a_closure_captures(
    helper: Callable[..., Any], dtypes: list[torch.dtype]
) -> None:
    results = assert_parity(nesting(helper), (matrix(),))
    assert dtypes_of(results["none"]) == dtypes


def expressions_in_a_scope(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        listed = [each @ y for each in [x, y]]
        chosen = x @ y if listed[0].sum() > 0 else y @ x
        other = [x @ y if i > 0 else x for i in range(2)]
        keyed = {str(i): x @ y for i in range(2)}
    return listed, chosen, other, keyed, [each @ y for each in [x, y]]


def test_comprehensions_and_conditional_expressions_are_in_their_scope() -> None:
    results = assert_parity(expressions_in_a_scope, (matrix(), matrix(1)))
    assert dtypes_of(results["none"]) == [*[BF16] * 3, F32, *[BF16] * 3, F32, F32]


@torch.jit._overload
def overloaded(x: int) -> int: ...


@torch.jit._overload
def overloaded(x: Tensor) -> Tensor: ...  # noqa: F811


def overloaded(x):  # noqa: F811
    if isinstance(x, Tensor):
        return x @ x
    return x + 1


@torch.jit.script_if_tracing
def scripted_if_traced(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        return x @ x


class Device(enum.Enum):
    CPU = "cpu"
    CUDA = "cuda"


def other_kinds_of_callees(x: Tensor):
    with torch.autocast(Device.CPU.value, dtype=torch.bfloat16):
        inside = overloaded(x), overloaded(1), scripted_if_traced(x)
        with torch.autocast(Device.CUDA.value, enabled=False):
            again = overloaded(x)
    return inside, again, overloaded(x)


def test_scopes_reach_into_overloads_and_enumerations_name_devices() -> None:
    results = assert_parity(other_kinds_of_callees, (matrix(),))
    assert dtypes_of(results["none"]) == [BF16, F16, BF16, F32]


def runs_an_awaitable(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        later = torch.jit._awaitable(product, x)
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.jit._awaitable_wait(later)


def test_an_awaitable_runs_in_the_scope_where_it_is_waited_for_or_is_refused() -> None:
    try:
        jit_amp.script(runs_an_awaitable)
    except jit_amp.AutocastError as refused:
        assert "awaitable" in str(refused)
    else:
        assert_parity(runs_an_awaitable, (matrix(),))


# Methods, submodules and their containers.


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


# Objects of TorchScript classes.


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


# Tasks.


def task(x: Tensor):
    a = x @ x
    with torch.autocast("cpu", dtype=torch.float16):
        b = x @ x
    with torch.autocast("cpu", enabled=False):
        c = x @ x
    return a, b, c


def task_of_tasks(x: Tensor):
    one = torch.jit.fork(task, x)
    a = x @ x
    with torch.autocast("cpu", dtype=torch.float16):
        two = torch.jit.fork(task, x)
        b = x @ x
    with torch.autocast("cpu", enabled=False):
        done = torch.jit.wait(one), torch.jit.wait(two)
    return a, b, done


def forks_tasks_of_tasks(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one = torch.jit.fork(task_of_tasks, x)
        a = x @ x
    two = torch.jit.fork(task_of_tasks, x)
    return a, torch.jit.wait(one), x @ x, torch.jit.wait(two)


def three_deep(x: Tensor):
    one = torch.jit.fork(forks_tasks_of_tasks, x)
    with torch.autocast("cpu", dtype=torch.float16):
        two = torch.jit.fork(forks_tasks_of_tasks, x)
    return torch.jit.wait(one), torch.jit.wait(two)


IN_TASKS = [BF16, F16, BF16, F16, F32, F16, F16, F32]  # task_of_tasks in bfloat16
OUT_OF_TASKS = [F32, F16, F32, F16, F32, F16, F16, F32]


def test_a_scope_reaches_into_a_task_of_a_task() -> None:
    results = assert_parity(forks_tasks_of_tasks, (matrix(),))
    assert dtypes_of(results["none"]) == [BF16, *IN_TASKS, F32, *OUT_OF_TASKS]


def test_a_scope_reaches_three_tasks_deep() -> None:
    assert_parity(three_deep, (matrix(),))


def product_of(task: torch.jit.Future[Tensor], x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.jit.wait(task) @ x, x @ x


def task_given_to_another(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one = torch.jit.fork(product, x)
        two = torch.jit.fork(product_of, one, x)
    return torch.jit.wait(two), torch.jit.wait(one)


def test_a_task_may_wait_for_another_in_a_scope() -> None:
    results = assert_parity(task_given_to_another, (matrix(),))
    assert dtypes_of(results["none"]) == [F16, F16, BF16]


def waits_in_another_scope(x: Tensor):
    one = torch.jit.fork(product, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        two = torch.jit.fork(product, x)
        a = torch.jit.wait(one)
        after = x @ x
    return a, after, torch.jit.wait(two), x @ x


def test_a_tasks_scope_is_the_one_where_it_is_forked() -> None:
    results = assert_parity(waits_in_another_scope, (matrix(),))
    assert dtypes_of(results["none"]) == [F32, BF16, BF16, F32]


class Forking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.on = False

    def method(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            y = self.linear(x)
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.on):
            z = self.linear(x)
        return y, z, self.linear(x)

    def again(self, x: Tensor):
        task = torch.jit.fork(self.method, x)
        return self.linear(x), torch.jit.wait(task)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            one = torch.jit.fork(self.again, x)
            two = torch.jit.fork(self.linear, x)
        tasks: list[torch.jit.Future[tuple[Tensor, Tensor, Tensor]]] = []
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                tasks.append(torch.jit.fork(self.method, x))
            tasks.append(torch.jit.fork(self.method, x))
        return torch.jit.wait(one), torch.jit.wait(two), [torch.jit.wait(each) for each in tasks]


@pytest.mark.usefixtures("no_weight_cache")
def test_scopes_reach_into_tasks_of_methods() -> None:
    results = assert_parity(Forking(), (matrix(),))
    assert dtypes_of(results["none"]) == [
        *[BF16, F16, F32, BF16],
        BF16,
        *[F16, F32, BF16, F16, F32, F32] * 3,
    ]


# Python.


@torch.jit.ignore
def seen(x: Tensor) -> tuple[bool, bool, Tensor, Tensor, Tensor]:
    cpu, cuda = torch.get_autocast_dtype("cpu"), torch.get_autocast_dtype("cuda")
    return (
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        x.to(cpu),
        x.to(cuda),
        x @ x,
    )


def seen_from_a_callee(x: Tensor):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return seen(x)


def sees(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        a, b = seen(x), seen_from_a_callee(x)
        with torch.autocast("cpu", enabled=False):
            c, d = seen(x), seen_from_a_callee(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                e = seen(x)
        f = seen(x)
    return a, b, c, d, e, f, seen(x)


class Sees(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", matrix(2))

    @torch.jit.ignore
    def look(self, x: Tensor) -> tuple[bool, Tensor]:
        return torch.is_autocast_enabled("cpu"), x @ self.weight

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            a = self.look(x)
            task = torch.jit.fork(self.through_a_method, x)
        with torch.autocast("cpu", enabled=False):
            b = self.through_a_method(x)
        return a, b, self.look(x), torch.jit.wait(task)

    def through_a_method(self, x: Tensor):
        return self.look(x)


def test_ignored_python_sees_the_scope() -> None:
    results = assert_parity(sees, (matrix(),))
    assert [each[0] for each in results["none"]] == [True, True, False, False, True, True, False]
    assert [each[2].dtype for each in results["none"]] == [F16, F16, F16, F16, BF16, F16, BF16]
    assert [each[4].dtype for each in results["none"]] == [F16, F16, F32, F32, BF16, F16, F32]


def test_an_ignored_method_sees_the_scope() -> None:
    results = assert_parity(Sees(), (matrix(),))
    assert [each[0] for each in results["none"]] == [True, False, False, True]
    assert dtypes_of(results["none"]) == [F16, F32, F32, F16]


@torch.jit.ignore
def cache_seen(x: Tensor) -> bool:
    return torch.is_autocast_cache_enabled()


def sees_the_cache(x: Tensor):
    with torch.autocast("cpu", cache_enabled=False):
        a = cache_seen(x)
        with torch.autocast("cpu", cache_enabled=True):
            b = cache_seen(x)
        with torch.autocast("cpu"):
            c = cache_seen(x)
    return a, b, c, cache_seen(x)


def test_ignored_python_sees_whether_the_cache_is_on() -> None:
    results = assert_parity(sees_the_cache, (matrix(),))
    assert results["none"] == (False, True, False, True)


@torch.jit.ignore
def opens_scopes_of_its_own(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = lowered_script(x)[0][0]
    with torch.autocast("cpu", enabled=False):
        b = x @ x
    return a, b


def python_that_opens_scopes(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        inside = opens_scopes_of_its_own(x)
        after = x @ x
    return inside, after, opens_scopes_of_its_own(x), x @ x


def test_ignored_python_may_open_scopes_and_call_scripted_code() -> None:
    results = assert_parity(python_that_opens_scopes, (matrix(),))
    assert dtypes_of(results["none"]) == [BF16, F32, F16, BF16, F32, F32]


@torch.jit.unused
def never(x: Tensor) -> Tensor:
    return x @ x


def calls_unused_python(x: Tensor, call: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = never(x) if call else x @ x
    return y, x @ x


def test_unused_python_is_no_obstacle_and_raises_when_it_is_called() -> None:
    scripted = jit_amp.script(calls_unused_python)
    x = matrix()
    for name in DEFAULT:
        with known_warnings_ignored(), AMBIENTS[name]():
            state = autocast_state()
            with pytest.raises(torch.jit.Error, match="annotated to be ignored and cannot be run"):
                scripted(x, True)
            assert autocast_state() == state
            assert_same(scripted(x, False), calls_unused_python(x, False), name)


class Multiply(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x @ y

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return gradient @ y.t(), x.t() @ gradient


class MultiplyInFloat32(Multiply):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x @ y


@torch.jit.ignore
def multiply(x: Tensor, y: Tensor) -> Tensor:
    return Multiply.apply(x, y)


@torch.jit.ignore
def multiply_in_float32(x: Tensor, y: Tensor) -> Tensor:
    return MultiplyInFloat32.apply(x, y)


def custom_gradients(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = multiply(x, y)
        b = multiply_in_float32(x @ y, y)
        with torch.autocast("cpu", enabled=False):
            c = multiply(x, y)
    return a, b, c


def leaves() -> tuple[Tensor, Tensor]:
    return matrix().requires_grad_(), matrix(1).requires_grad_()


def test_autograd_functions_in_ignored_python_are_in_the_scope() -> None:
    results = assert_parity(custom_gradients, leaves())
    assert dtypes_of(results["none"]) == [BF16, F32, F32]


def test_the_backward_of_autograd_functions_in_ignored_python_is_eagers() -> None:
    assert_gradient_parity(custom_gradients, leaves(), ambients=["none", "cpu", "cpu_off"])


# Traces.


def to_be_traced(x: Tensor, y: Tensor):
    return x @ y, torch.cat([x, y.to(torch.bfloat16)]), torch.softmax(x, 0)


traced = torch.jit.trace(to_be_traced, (matrix(), matrix(1)))


def calls_a_trace(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = traced(x, y)
        with torch.autocast("cpu", enabled=False):
            b = traced(x, y)
    with torch.autocast("cuda", dtype=torch.float16), torch.autocast("cpu", dtype=torch.float16):
        c = traced(x, y)
    return a, b, c, traced(x, y)


def calls_what_was_traced(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = to_be_traced(x, y)
        with torch.autocast("cpu", enabled=False):
            b = to_be_traced(x, y)
    with torch.autocast("cuda", dtype=torch.float16), torch.autocast("cpu", dtype=torch.float16):
        c = to_be_traced(x, y)
    return a, b, c, to_be_traced(x, y)


def test_scopes_reach_into_a_traced_function() -> None:
    results = assert_parity_with(calls_what_was_traced, calls_a_trace, (matrix(), matrix(1)))
    assert [each[0].dtype for each in results["none"]] == [BF16, F32, F16, F32]


class Calling(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            a = self.inner(x)
            with torch.autocast("cpu", enabled=False):
                b = self.inner(x)
        return a, b, self.inner(x)


@pytest.mark.usefixtures("no_weight_cache")
def test_scopes_reach_into_a_traced_module() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Softmax(-1), nn.Linear(4, 4))
    trace = torch.jit.trace(model, matrix())
    results = assert_parity_with(Calling(model), Calling(trace), (matrix(),))
    assert dtypes_of(results["none"]) == [F16, F32, F32]


scripted_in_a_trace = jit_amp.script(product_in_half)


def traces_a_scripted_callee(x: Tensor):
    return scripted_in_a_trace(x), x @ x


def test_a_trace_keeps_the_scopes_of_a_lowered_callee() -> None:
    trace = torch.jit.trace(traces_a_scripted_callee, (matrix(),))
    results = assert_parity_with(traces_a_scripted_callee, trace, (matrix(1),))
    assert dtypes_of(results["none"]) == [F16, F32]


# Ways out of a scope.


def returns_from_two_scopes(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ x
        with torch.autocast("cpu", dtype=torch.float16):
            return a, x @ x


def returns_from_the_only_statement_of_a_loop(x: Tensor):
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x
    return x


def returns_from_a_loop(x: Tensor):
    for i in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        if i == 2:
            return y, x @ x
    return x, x


def returns_from_either_branch(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if x.sum() > 0:
            return x @ y
        else:
            return y @ x


def returns_nothing(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x.add_(x @ x)
        return


def loop_in_a_scope(x: Tensor):
    y = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for i in range(4):
            if i == 1:
                continue
            y = x @ y
            if i == 2:
                break
            y = y + x
    return y, x @ x


def loop_of_scopes(x: Tensor):
    y = x
    for i in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ y.float()
        if i == 2:
            break
        y = x @ y.float()
    return y, x @ x


def conditions_in_a_scope(x: Tensor):
    count = 0
    y = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        while (x @ y).dtype == torch.bfloat16 and count < 3:
            y = x @ y
            count += 1
    while (x @ x).dtype == torch.bfloat16 and count < 5:
        count += 1
    return y, count


def scope_that_may_not_be_entered(x: Tensor, times: int):
    y = x
    for _ in range(times):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
    return y, x @ x


@pytest.mark.parametrize(
    ("function", "more", "dtypes"),
    [
        (returns_from_two_scopes, [], [BF16, F16]),
        (returns_from_the_only_statement_of_a_loop, [], [BF16]),
        (returns_from_a_loop, [], [BF16, F32]),
        (returns_from_either_branch, [matrix(1)], [BF16]),
        (returns_nothing, [], []),
        (loop_in_a_scope, [], [BF16, F32]),
        (loop_of_scopes, [], [BF16, F32]),
        (conditions_in_a_scope, [], [BF16]),
        (scope_that_may_not_be_entered, [0], [F32, F32]),
        (scope_that_may_not_be_entered, [2], [BF16, F32]),
    ],
)
def test_a_scope_ends_however_it_is_left(
    function: Callable[..., Any], more: list[Any], dtypes: list[torch.dtype]
) -> None:
    results = assert_parity(function, (matrix(), *more))
    assert dtypes_of(results["none"]) == dtypes


def test_conditions_are_evaluated_in_their_scope() -> None:
    results = assert_parity(conditions_in_a_scope, (matrix(),))
    assert results["none"][1] == 3
    assert results["cpu"][1] == 5


def returns_before_a_scope(x: Tensor, early: bool):
    if early:
        return x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
    return y


def continues_before_a_scope(x: Tensor):
    y = x
    for i in range(3):
        if i == 1:
            continue
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ y
    return y


@pytest.mark.parametrize("function", [returns_before_a_scope, continues_before_a_scope])
def test_leaving_before_a_scope_is_more_than_pytorchs_compiler_can(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(RuntimeError, match="INTERNAL ASSERT FAILED"):
        torch.jit.script(function)
    assert "PyTorch's own compiler fails" in refusal(function)


# Exceptions.


def fails_in_the_operator(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ (x[:2] if fail else x)


def fails_two_deep(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = seen(x)
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", dtype=torch.bfloat16):
            b = torch.einsum("ij,jk->ik", x, x)
            if fail:
                raise ValueError("no")
            c = seen(x)
    return a, b, c, seen(x)


def fails_in_a_callee(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.float16):
        a = fails_two_deep(x, fail)
    return a, x @ x


def fails_in_a_loop(x: Tensor, fail: bool):
    y = x
    for i in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if i == 2:
                assert not fail, "no"
            y = x @ y
        y = y.float()
    return y, seen(x)


@torch.jit.ignore
def fails_in_python(x: Tensor, fail: bool) -> Tensor:
    if fail:
        with torch.autocast("cpu", dtype=torch.float16):
            raise KeyError("no")
    return x @ x


def fails_in_ignored_python(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            a = fails_in_python(x, False)
        b = fails_in_python(x, fail)
    return a, b, fails_in_python(x, False)


def fails_in_a_task(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one = torch.jit.fork(fails_in_a_callee, x, fail)
        two = torch.jit.fork(task_that_fails, x, fail)
        a = x @ x
    return a, torch.jit.wait(one), torch.jit.wait(two), seen(x)


def task_that_fails(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.jit.wait(torch.jit.fork(fails_in_a_loop, x, fail))


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", matrix(2))

    def method(self, x: Tensor, fail: bool):
        with torch.autocast("cpu", enabled=False):
            y = x @ self.weight
            if fail:
                raise RuntimeError("no")
        return y, x @ self.weight

    def forward(self, x: Tensor, fail: bool):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.method(x, fail), seen(x)


@pytest.mark.parametrize("ambient", DEFAULT)
@pytest.mark.parametrize(
    "function",
    [
        fails_in_the_operator,
        fails_two_deep,
        fails_in_a_callee,
        fails_in_a_loop,
        fails_in_ignored_python,
        fails_in_a_task,
        Fails(),
    ],
    ids=lambda function: getattr(function, "__name__", type(function).__name__),
)
def test_after_an_exception_the_state_is_restored_and_the_next_call_is_right(
    function: Callable[..., Any], ambient: str
) -> None:
    scripted, x = jit_amp.script(function), matrix()
    with known_warnings_ignored(), AMBIENTS[ambient]():
        expected = function(x, False)
        state = autocast_state()
        for fail in (True, False, True, True, False, False):
            if fail:
                with pytest.raises((RuntimeError, torch.jit.Error)):
                    scripted(x, True)
            else:
                assert_same(scripted(x, False), expected, ambient)
            assert autocast_state() == state


def always_fails(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        raise ValueError("always")


def test_an_exception_has_its_type_and_text() -> None:
    with pytest.raises(torch.jit.Error, match="ValueError: always"):
        jit_amp.script(always_fails)(matrix())


# What is written in the parentheses.


def written(arguments: str) -> Callable[..., Any]:
    """A function whose scope is `torch.autocast(<arguments>)`."""
    source = f"""\
def scoped(x: Tensor):
    with torch.autocast({arguments}):
        inside = x @ x
    return inside, x @ x
"""
    name = f"<scope written as {arguments}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names = dict(inspect.getmodule(written).__dict__)  # type: ignore[union-attr]
    exec(compile(source, name, "exec"), names)
    return names["scoped"]


KEYWORDS = {
    "device_type": '"cpu"',
    "dtype": "torch.float16",
    "enabled": "True",
    "cache_enabled": "False",
}


@pytest.mark.parametrize("order", list(itertools.permutations(KEYWORDS)), ids="-".join)
def test_keywords_stand_in_any_order(order: tuple[str, ...]) -> None:
    function = written(", ".join(f"{key}={KEYWORDS[key]}" for key in order))
    results = assert_parity(function, (matrix(),), ambients=["none", "cpu"])
    assert dtypes_of(results["none"]) == [F16, F32]


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ('"cpu"', BF16),
        ('"cpu", torch.float16', F16),
        ('"cpu", torch.float16, False', F32),
        ('"cpu", torch.float16, True, False', F16),
        ('"cpu", torch.float16, True, None', F16),
        ('"cpu", None, True, True', BF16),
        ('"cpu", enabled=True, dtype=torch.float16', F16),
        ('"cpu", cache_enabled=None', BF16),
        ('"cpu", cache_enabled=True, enabled=False', F32),
        ('"cpu", cache_enabled=not True', BF16),
        ('"cpu", torch.half', F16),
        ('"c" + "pu", enabled=1 > 0 and not False', BF16),
    ],
)
def test_arguments_are_read_as_python_reads_them(arguments: str, dtype: torch.dtype) -> None:
    results = assert_parity(written(arguments), (matrix(),))
    assert dtypes_of(results["none"]) == [dtype, F32]


def cache_is_an_argument(x: Tensor, cached: bool):
    with torch.autocast("cpu", cache_enabled=cached):
        return x @ x


def cache_is_computed(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=x.size(0) > 3):
        return x @ x


def dtype_is_an_argument(x: Tensor, dtype: torch.dtype):
    with torch.autocast("cpu", dtype=dtype):
        return x @ x


def dtype_is_optional(x: Tensor, dtype: torch.dtype | None = None):
    with torch.autocast("cpu", dtype=dtype):
        return x @ x


def dtype_is_chosen(x: Tensor, half: bool):
    with torch.autocast("cpu", dtype=torch.float16 if half else torch.bfloat16):
        return x @ x


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (cache_is_an_argument, "cache_enabled"),
        (cache_is_computed, "cache_enabled"),
        (dtype_is_an_argument, "dtype"),
        (dtype_is_optional, "dtype"),
        (dtype_is_chosen, "dtype"),
    ],
)
def test_an_argument_that_is_known_at_run_time_only_is_refused(
    function: Callable[..., Any], name: str
) -> None:
    message = refusal(function)
    assert message.startswith(f"jit_amp: autocast's `{name}` is known only at run time")
    assert "with torch.autocast(" in message
    assert "<--- HERE" in message


@pytest.mark.parametrize("device", ['torch.device("cpu")', "x.device"])
def test_a_device_in_place_of_its_name_is_refused_as_in_eager(device: str) -> None:
    function = written(f"{device}, dtype=torch.bfloat16")
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        function(matrix())
    with pytest.raises(RuntimeError, match="Expected a value of type 'str' for argument 'device_"):
        jit_amp.script(function)


scope_made_outside = torch.autocast("cpu", dtype=torch.bfloat16)


def uses_a_scope_made_outside(x: Tensor):
    with scope_made_outside:
        return x @ x


def test_a_scope_that_is_made_outside_is_refused() -> None:
    assert "autocast object that was not made in the scripted code" in refusal(
        uses_a_scope_made_outside
    )
