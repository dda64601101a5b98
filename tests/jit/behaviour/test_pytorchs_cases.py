"""The situations of PyTorch's test/test_jit_autocast.py, in functions of our own.

They run through plain torch.jit.script while jit_amp is installed, those that PyTorch skips or
expects to fail included. The reference is eager; where PyTorch's own pass differs from eager, the
dtypes here are eager's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import jit_amp

from ..support import (
    AMBIENTS,
    CUDA,
    DEFAULT,
    PLACES,
    Place,
    assert_parity,
    assert_same,
    autocast_state,
    check_ir,
    for_scope,
    fresh,
    known_warnings_ignored,
    operators,
    operators_of_ours,
    tensors_of,
)

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
LOW = "the scope's own dtype: bfloat16 on CPU, float16 on CUDA"


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with jit_amp.install():
        yield


def random(dtype: torch.dtype, seed: int, device: str = "cpu") -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(4, 4, generator=generator).to(device, dtype)


def dtypes_of(value: Any) -> list[torch.dtype]:
    return [t.dtype for t in tensors_of(value)]


def assert_eager(
    function: Any,
    inputs: Sequence[Any],
    *,
    ambients: Sequence[str] = DEFAULT,
    reference: Any = None,
) -> dict[str, Any]:
    """Asserts that torch.jit.script's result does what `function` (or `reference`) does in eager,
    three times around each ambient. Returns the results by ambient."""
    scripted = torch.jit.script(function)
    results: dict[str, Any] = {}
    for name in ambients:
        for count in range(3):
            mine, eagers = fresh(inputs), fresh(inputs)
            with known_warnings_ignored(), AMBIENTS[name]():
                expected = (reference or function)(*eagers)
            with known_warnings_ignored(), AMBIENTS[name]():
                before = autocast_state()
                results[name] = scripted(*mine)
                assert autocast_state() == before
            assert_same(results[name], expected, f"ambient {name}, call {count + 1}")
            for mine_after, eagers_after in zip(mine, eagers, strict=True):
                if isinstance(mine_after, Tensor):  # TorchScript copies lists and dicts
                    assert_same(mine_after, eagers_after, f"ambient {name}, inputs")
    return results


# One scope.


def minimal(a: Tensor, b: Tensor):
    with torch.autocast("cpu"):
        return torch.mm(a, b)


def off(a: Tensor, b: Tensor):
    with torch.autocast("cpu", enabled=False):
        return torch.mm(a, b)


def linear_in_bfloat16(x: Tensor, weight: Tensor, bias: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return functional.linear(x, weight), functional.linear(x, weight, bias[0])


def explicit_casts(a: Tensor, b: Tensor):
    with torch.autocast("cpu"):
        wide = torch.mm(a.double(), b.double())
        narrow = wide.float()
        back = torch.mm(a, b).to(torch.float64)
    return wide, narrow, back, torch.mm(a.double(), back)


def one_input_twice(a: Tensor):
    with torch.autocast("cpu"):
        square = torch.mm(a, a)
        fourth = torch.mm(square, square)
    return square, fourth, torch.mm(a, a)


def of_the_fp32_list(a: Tensor, b: Tensor):
    with torch.autocast("cpu", enabled=True):
        return functional.mse_loss(a, b), torch.log(a)


def of_the_promote_list(a: Tensor, b: Tensor, c: Tensor):
    with torch.autocast("cpu"):
        product = torch.mm(a, b)
        return product, torch.addcmul(product, b, c, value=0.5), torch.cat([product, c])


def of_the_promote_list_alone(a: Tensor, b: Tensor):
    with torch.autocast("cpu", enabled=True):
        return torch.addcmul(a, a, b, value=0.5), torch.stack([a, b])


def softmaxes(a: Tensor, like: Tensor, dtype: torch.dtype | None):
    with torch.autocast("cpu", enabled=True):
        return (
            torch.softmax(a, 1),
            torch.softmax(a, 1, None),
            torch.softmax(a, 1, torch.float64),
            torch.softmax(a, 1, dtype),
            torch.softmax(a, 1, like.dtype),
            functional.softmax(a, dim=1),
        )


def in_place_and_out(a: Tensor, b: Tensor, c: Tensor):
    with torch.autocast("cpu"):
        new = torch.addmm(a, b, c)
        out = torch.addmm(a, b, c, out=a).clone()
        written = a.addmm_(b, c)
    return new, out, written


# Several scopes.


def nested(a: Tensor, b: Tensor):
    with torch.autocast("cpu", enabled=False):
        outer = torch.mm(a, b)
        with torch.autocast("cpu", enabled=True):
            inner = torch.mm(outer, a)
            with torch.autocast("cpu", enabled=False):
                innermost = torch.mm(outer, b)
    return outer, inner, innermost, torch.mm(a, b)


def nested_in_one_statement(a: Tensor, b: Tensor):
    with torch.autocast("cpu", enabled=False), torch.autocast("cpu"):
        on = torch.mm(a, b)
    with torch.autocast("cpu"), torch.autocast("cpu", enabled=False):
        return on, torch.mm(a, b)


def one_object_twice(a: Tensor, b: Tensor):
    scope = torch.autocast("cpu")
    with scope:
        one = torch.mm(a, b)
    with scope as same:
        two = torch.mm(b, a)
    with same:
        three = torch.mm(a, a)
    return one, two, three, torch.mm(a, b)


# Branches.


def branches(a: Tensor, b: Tensor, first: bool):
    with torch.autocast("cpu"):
        if first:
            y = torch.mm(a, b)
            factor = 1
        else:
            y = torch.mm(b, a)
            factor = 2
        z = torch.mm(a, y) * factor
    return y, z


def branches_on_a_tensor(a: Tensor, b: Tensor):
    with torch.autocast("cpu"):
        y = torch.mm(a, b) if a[0][0] > 2 else torch.mm(b, a)
        return y, torch.mm(y, b)


def dtypes_that_differ_by_branch(a: Tensor, b: Tensor, first: bool):
    with torch.autocast("cpu"):
        if first:
            y = torch.mm(a, b)
            z = torch.mm(a, b).float()
        else:
            y = torch.mm(b, a).float()
            z = torch.mm(a, b)
    return y, z, torch.mm(y.float(), z.float())


def scopes_that_differ_by_branch(a: Tensor, b: Tensor, first: bool):
    on = torch.autocast("cpu", enabled=True)
    no = torch.autocast("cpu", enabled=False)
    if first:
        with on:
            y = torch.mm(a, b)
    else:
        with no:
            y = torch.mm(b, a)
    return y, torch.mm(y, y)


# Calls.


def helper(a: Tensor, b: Tensor):
    return torch.mm(a, b)


def helper_with_a_scope(a: Tensor, b: Tensor, device: str, enabled: bool):
    with torch.autocast(device, enabled=enabled):
        return torch.mm(a, b)


def calls(a: Tensor, b: Tensor):
    with torch.autocast("cpu"):
        y = helper(a, b)
        for _ in range(3):
            y = helper(y, y)
        z = helper(y, b)
    return y, z, helper(a, b)


def calls_a_helper_that_switches_on(a: Tensor, b: Tensor):
    with torch.autocast("cpu", enabled=False):
        inside = helper_with_a_scope(a, b, "cpu", True)
        return inside, torch.mm(a, b)


def calls_a_helper_that_switches_off(a: Tensor, b: Tensor):
    with torch.autocast("cpu"):
        inside = helper_with_a_scope(a, b, "cpu", False)
        return inside, torch.mm(a, b)


@torch.autocast("cpu")
def decorated(a: Tensor, b: Tensor):
    return torch.mm(a, b)


# Values of other types through a scope.


def optional(a: Tensor, b: Tensor | None):
    with torch.autocast("cpu"):
        y: Tensor | None = None
        if b is not None:
            y = torch.mm(a, b)
        z = y
    return y, torch.mm(a, a) if z is None else torch.mm(z, z)


def containers(a: Tensor, pair: tuple[Tensor, int], named: dict[str, Tensor], more: list[Tensor]):
    with torch.autocast("cpu"):
        first, count = pair
        named["product"] = torch.mm(first, a)
        more.append(torch.mm(named["product"], named["given"]))
        both = torch.mm(more[0], a), count
    return both, named, more, torch.mm(a, named["given"])


@dataclass(frozen=True)
class Case:
    function: Callable[..., Any]
    inputs: Sequence[Any]  # a dtype is a random matrix of it; anything else is itself
    dtypes: Sequence[Any]  # of the tensors it returns, nothing around it
    on_cuda: Sequence[Any] | None = None  # where CUDA's differ

    def arguments(self, device: str) -> list[Any]:
        return [
            random(value, i, device) if isinstance(value, torch.dtype) else value
            for i, value in enumerate(self.inputs)
        ]

    def expected(self, device: str) -> list[torch.dtype]:
        low = BF16 if device == "cpu" else F16
        given = self.on_cuda if device == "cuda" and self.on_cuda is not None else self.dtypes
        return [low if dtype == LOW else dtype for dtype in given]


CASES = [
    Case(minimal, [F32, F32], [LOW]),
    Case(off, [F32, F32], [F32]),
    Case(linear_in_bfloat16, [F32, F32, F32], [BF16, BF16]),
    Case(explicit_casts, [F32, F32], [F64, F32, F64, F64]),
    Case(one_input_twice, [F32], [LOW, LOW, F32]),
    Case(of_the_fp32_list, [F16, F16], [F32, F16], on_cuda=[F32, F32]),
    Case(of_the_fp32_list, [F64, F64], [F64, F64]),
    Case(of_the_promote_list, [F32, F32, F32], [LOW, F32, F32]),
    Case(of_the_promote_list_alone, [F64, F64], [F64, F64]),
    # PyTorch's pass leaves the fourth in float16 on CUDA.
    Case(
        softmaxes,
        [F16, F16, None],
        [F16, F16, F64, F16, F16, F16],
        on_cuda=[F32, F32, F64, F32, F16, F32],
    ),
    Case(
        softmaxes,
        [BF16, F32, None],
        [BF16, BF16, F64, BF16, F32, BF16],
        on_cuda=[F32, F32, F64, F32, F32, F32],
    ),
    Case(softmaxes, [F64, F64, None], [F64] * 6),
    Case(in_place_and_out, [F32, F32, F32], [LOW, F32, F32]),
    Case(nested, [F32, F32], [F32, LOW, F32, F32]),
    Case(nested_in_one_statement, [F32, F32], [LOW, F32]),
    Case(one_object_twice, [F32, F32], [LOW, LOW, LOW, F32]),
    Case(branches, [F32, F32, True], [LOW, LOW]),
    Case(branches, [F32, F32, False], [LOW, LOW]),
    Case(branches_on_a_tensor, [F32, F32], [LOW, LOW]),
    Case(dtypes_that_differ_by_branch, [F32, F32, True], [LOW, F32, F32]),
    Case(dtypes_that_differ_by_branch, [F32, F32, False], [F32, LOW, F32]),
    Case(scopes_that_differ_by_branch, [F32, F32, True], [LOW, LOW]),
    Case(scopes_that_differ_by_branch, [F32, F32, False], [F32, F32]),
    Case(calls, [F32, F32], [LOW, LOW, F32]),
    Case(calls_a_helper_that_switches_on, [F32, F32], [LOW, F32]),
    Case(calls_a_helper_that_switches_off, [F32, F32], [F32, LOW]),
    Case(decorated, [F32, F32], [LOW]),
    Case(optional, [F32, F32], [LOW, LOW]),
    Case(optional, [F32, None], [F32]),
    Case(
        containers,
        [F32, (torch.ones(4, 4), 3), {"given": torch.ones(4, 4)}, []],
        [LOW, F32, LOW, LOW, F32],
    ),
]


def name_of(case: Case) -> str:
    of = [str(v).removeprefix("torch.") for v in case.inputs if not isinstance(v, (tuple, dict))]
    return "-".join([case.function.__name__, *of])


def on(device: str, value: Any) -> Any:
    """The tensors in a container, on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: on(device, item) for key, item in value.items()}
    return type(value)(on(device, item) for item in value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=name_of(case)) for case in CASES],
)
def test_a_case_is_eagers(case: Case, place: Place) -> None:
    with known_warnings_ignored():
        function = for_scope(case.function, place.scope)
    inputs = [on(place.tensors, value) for value in case.arguments(place.tensors)]
    results = assert_eager(function, inputs)
    if place.scope == place.tensors:
        assert dtypes_of(results["none"]) == case.expected(place.tensors)


# What PyTorch refuses, and what it forgets to refuse.


def enabled_at_run_time(a: Tensor, b: Tensor, use: bool):
    with torch.autocast("cpu", enabled=use):
        return torch.mm(a, b)


def enabled_by_a_tensor(a: Tensor, b: Tensor):
    with torch.autocast("cpu", enabled=bool(a[0][0] > 0.5)):
        return torch.mm(a, b)


def enabled_by_an_expression(a: Tensor, b: Tensor):
    with torch.autocast("cpu", enabled=True if a[0][0] > 0.5 else False):  # noqa: SIM210
        return torch.mm(a, b)


def chosen_by_an_expression(a: Tensor, b: Tensor):
    on = torch.autocast("cpu", enabled=True)
    no = torch.autocast("cpu", enabled=False)
    with on if a[0][0] > 0.5 else no:
        return torch.mm(a, b)


def entered_while_open(a: Tensor, b: Tensor):
    scope = torch.autocast("cpu")
    with scope:
        y = torch.mm(a, b)
        with scope:
            z = torch.mm(y, y)
    return y, z


def entered_while_open_by_its_other_name(a: Tensor, b: Tensor):
    with torch.autocast("cpu") as scope:
        y = torch.mm(a, b)
        with scope:
            z = torch.mm(y, y)
    return y, z


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (enabled_at_run_time, "`enabled` is known only at run time"),
        (enabled_by_a_tensor, "`enabled` is known only at run time"),
        (enabled_by_an_expression, "`enabled` is known only at run time"),
    ],
)
def test_what_cannot_be_known_is_refused_when_scripting(
    function: Callable[..., Any], what: str
) -> None:
    with pytest.raises(jit_amp.AutocastError, match=what):
        torch.jit.script(function)


def test_a_scope_that_is_chosen_by_an_expression_is_the_chosen_one() -> None:
    for first in (0.0, 1.0):
        assert_parity(chosen_by_an_expression, (torch.full((2, 2), first), torch.rand(2, 2)))


@pytest.mark.parametrize("function", [entered_while_open, entered_while_open_by_its_other_name])
def test_a_scope_that_is_entered_again_while_it_is_open_nests(
    function: Callable[..., Any],
) -> None:
    scripted = torch.jit.script(function)
    matrices = torch.randn(4, 4), torch.randn(4, 4)
    for _ in range(3):
        with torch.autocast("cpu", enabled=False):  # eager leaves autocast switched on otherwise
            expected = function(*matrices)
        with torch.autocast("cpu", enabled=False):
            assert_same(scripted(*matrices), expected, function.__name__)


def entered_again_in_a_loop(a: Tensor, b: Tensor):
    scope, found = torch.autocast("cpu", dtype=torch.float16), [a @ b]
    with scope as outer:
        for _ in range(2):
            with outer:
                found.append(a @ b)
            found.append(a @ b)
    found.append(a @ b)
    return found


def test_the_state_after_a_scope_that_was_entered_again_is_that_before() -> None:
    """Eager overwrites what it has to go back to."""
    scripted = torch.jit.script(entered_again_in_a_loop)
    matrices = torch.randn(4, 4), torch.randn(4, 4)
    with torch.autocast("cpu", enabled=False):
        expected = entered_again_in_a_loop(*matrices)
    for _ in range(3):
        found = scripted(*matrices)
        assert_same(found[:-1], expected[:-1], "inside")
        assert found[-1].dtype is torch.float32
        assert not torch.is_autocast_enabled("cpu")


# Every way to write it, with and without a dtype.


def written_with_a_dtype(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch.mm(x, y)
    with torch.autocast("cuda", dtype=torch.half):
        b = torch.mm(x, y)
    return a, b


def written_by_device(x: Tensor, y: Tensor):
    with torch.cpu.amp.autocast():
        a = torch.mm(x, y)
    with torch.cuda.amp.autocast():
        b = torch.mm(x, y)
    return a, b


def written_without_a_dtype(x: Tensor, y: Tensor):
    with torch.autocast("cpu"):
        a = torch.mm(x, y)
    with torch.autocast("cuda"):
        b = torch.mm(x, y)
    return a, b


@pytest.mark.parametrize(
    "function", [written_with_a_dtype, written_by_device, written_without_a_dtype]
)
@pytest.mark.parametrize("device", ["cpu", "cuda"] if CUDA else ["cpu"])
def test_every_way_to_write_it(function: Callable[..., Any], device: str) -> None:
    results = assert_eager(function, (random(F32, 0, device), random(F32, 1, device)))
    expected = [BF16, F32] if device == "cpu" else [F32, F16]
    assert dtypes_of(results["none"]) == expected


def two_devices(a: Tensor, b: Tensor, c: Tensor, d: Tensor):
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("cuda", torch.float16):
        return torch.mm(a, b), torch.mm(c, d)


def two_products(a: Tensor, b: Tensor, c: Tensor, d: Tensor):
    return torch.mm(a, b), torch.mm(c, d)


def on_two_devices() -> list[Tensor]:
    other = "cuda" if CUDA else "cpu"
    return [random(F32, i, "cpu" if i < 2 else other) for i in range(4)]


def test_scopes_of_two_devices() -> None:
    results = assert_eager(two_devices, on_two_devices())
    assert dtypes_of(results["none"]) == [BF16, F16 if CUDA else BF16]


# Scripted code in eager's autocast.


def test_the_executor_follows_the_ambient_autocast() -> None:
    results = assert_eager(two_products, on_two_devices())
    assert dtypes_of(results["none"]) == [F32, F32]
    assert dtypes_of(results["cpu"])[0] == BF16
    assert dtypes_of(results["cpu_float16"])[0] == F16


def test_eager_switches_on_and_off_around_one_function() -> None:
    scripted = torch.jit.script(helper)
    a, b = random(F32, 0), random(F32, 1)
    for i in range(8):
        with torch.autocast("cpu", enabled=i % 2 == 0):
            result = scripted(a, b)
            assert_same(result, helper(a, b), f"call {i}")
        assert result.dtype == (BF16 if i % 2 == 0 else F32)


def test_an_eager_decorator_around_a_scripted_function() -> None:
    a, b = random(F32, 0), random(F32, 1)
    outside = torch.autocast("cpu")(torch.jit.script(helper))
    for _ in range(3):
        assert_same(outside(a, b), decorated(a, b), "decorated")
        assert outside(a, b).dtype == BF16


def asks(a: Tensor):
    if torch.is_autocast_cpu_enabled():
        return a.relu()
    return a.sin()


def asks_before_a_scope(a: Tensor):
    before = torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu"):
        y = torch.mm(a, a)
    return before, y


def asks_and_multiplies(a: Tensor, b: Tensor):
    one = torch.is_autocast_cpu_enabled()
    x = torch.mm(a, b)
    with torch.cpu.amp.autocast(enabled=True):
        two = torch.is_autocast_cpu_enabled()
        y = torch.mm(a, b)
        with torch.cpu.amp.autocast(enabled=False):
            three = torch.is_autocast_cpu_enabled()
            z = torch.mm(a, b)
    return (one, x), (two, y), (three, z)


def test_scripted_code_asks_for_the_state() -> None:
    signed = random(F32, 0) - 0.5
    assert_eager(asks, (signed,))
    results = assert_eager(asks_before_a_scope, (signed,))
    assert [results[name][0] for name in ("none", "cpu")] == [False, True]
    for name, result in assert_eager(asks_and_multiplies, (signed, signed)).items():
        for enabled, product in result:
            assert enabled == (product.dtype != F32), name


def relu_of_a_product(a: Tensor, b: Tensor):
    return torch.mm(a, b).relu()


@pytest.mark.parametrize("ambient", ["none", "cpu", "cpu_float16"])
def test_gradients_after_the_executor_has_made_its_plan(ambient: str) -> None:
    scripted = torch.jit.script(relu_of_a_product)
    for count in range(5):
        gradients = []
        for function in (relu_of_a_product, scripted):
            inputs = [random(F32, i).requires_grad_() for i in range(2)]
            with AMBIENTS[ambient]():
                result = function(*inputs)
            result.sum().backward()
            gradients.append([result.detach(), *(x.grad for x in inputs)])
        assert_same(gradients[1], gradients[0], f"call {count + 1}")
        assert dtypes_of(gradients[1])[1:] == [F32, F32]


# Modules.


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(random(F32, 5))
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor):
        with torch.autocast("cpu"):
            return self.linear(self.weight.mv(x))


def test_a_module() -> None:
    results = assert_eager(Weighted(), (random(F32, 0)[0],))
    assert results["none"].dtype == BF16


@torch.jit.interface
class Multiplying(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        pass


class Multiplies(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.mm(x, y)


class CallsAnInterface(nn.Module):
    inner: Multiplying

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, y: Tensor):
        with torch.autocast("cpu"):
            return self.inner.forward(torch.mm(x, y), x)


@pytest.mark.parametrize("script_first", [False, True])
def test_a_method_behind_an_interface(script_first: bool) -> None:
    inner = torch.jit.script(Multiplies()) if script_first else Multiplies()
    results = assert_eager(
        CallsAnInterface(inner),
        (random(F32, 0), random(F32, 1)),
        reference=CallsAnInterface(Multiplies()),
    )
    assert {result.dtype for result in results.values()} == {BF16, F16}


class FreezesAProduct(nn.Module):
    def forward(self, x: Tensor, y: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.mm(x, y)


class FreezesAConstant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.x = random(F32, 7)

    def forward(self, y: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.mm(self.x, y)


@pytest.mark.parametrize(
    ("module", "count"), [(FreezesAProduct().eval(), 2), (FreezesAConstant().eval(), 1)]
)
def test_a_frozen_module_has_its_casts_once(module: nn.Module, count: int) -> None:
    inputs = [random(F32, i) for i in range(count)]
    frozen = torch.jit.freeze(torch.jit.script(module))
    for _ in range(3):
        assert_same(frozen(*inputs), module(*inputs), "frozen")
        already_low = [x.to(BF16) for x in inputs]
        assert_same(frozen(*already_low), module(*already_low), "frozen, inputs in bfloat16")
    for graph in (frozen.graph, frozen.graph_for(*inputs)):
        assert operators(graph).count("aten::mm") == 1
        assert "prim::Enter" not in operators(graph)
        assert not operators_of_ours(graph)


def test_a_frozen_constant_is_cast_when_freezing() -> None:
    module, y = FreezesAConstant().eval(), random(F32, 0)
    frozen = torch.jit.freeze(torch.jit.script(module))
    constants = [
        node.t("value")
        for node in frozen.graph.findAllNodes("prim::Constant")
        if node.hasAttribute("value") and node.kindOf("value") == "t" and node.t("value").numel()
    ]
    assert [(each.dtype, torch.equal(each, module.x.to(BF16))) for each in constants] == [
        (BF16, True)
    ]
    assert_same(frozen(y), module(y), "frozen")


# To ignore autocast.


def test_ignored_autocast_is_no_part_of_the_graph() -> None:
    scripted, a = torch.jit.script(helper), random(F32, 0)
    plain = torch.mm(a, a)
    assert jit_amp.ignore_amp(scripted) is scripted
    for _ in range(3):
        with torch.autocast("cpu"):
            assert_same(scripted(a, a), plain, "ignored")
    check_ir(jit_amp.lowered_graph(scripted), "CHECK: aten::mm\nCHECK-NOT: jit_amp::cast")
    jit_amp.ignore_amp(scripted, ignore=False)


def test_pytorchs_own_switch_ignores_what_is_around() -> None:
    scripted, a = torch.jit.script(helper), random(F32, 0)
    for ignore in (True, False):
        scripted._set_ignore_amp(ignore)
        for _ in range(3):
            with torch.autocast("cpu", enabled=not ignore):
                expected = helper(a, a)
            with torch.autocast("cpu"):
                assert_same(scripted(a, a), expected, f"_set_ignore_amp({ignore})")
