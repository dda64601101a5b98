"""Scopes: what `with autocast(...)` means, however it is written. The reference is eager."""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import (
    AMBIENTS,
    DEVICES,
    PLACES,
    Place,
    assert_parity,
    assert_parity_with,
    autocast_state,
    for_scope,
    known_warnings_ignored,
    tensors_of,
)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def nested(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        with torch.autocast("cpu", enabled=False):
            b = x @ y
            with torch.autocast("cpu", dtype=torch.float16):
                c = x @ y
            d = x @ y
        e = x @ y
    return a, b, c, d, e, x @ y


def two_items(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", dtype=torch.float16):
        a = x @ y
    return a, x @ y


def two_devices(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cuda", dtype=torch.float16):
        a = x @ y
        with torch.autocast("cuda", enabled=False):
            b = x @ y
        with torch.autocast("cpu", enabled=False):
            c = x @ y
    return a, b, c, x @ y


def beside_another_manager(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        a = x @ y
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        b = x @ y
    return a, b, x @ y


def instance_reused(x: Tensor, y: Tensor):
    scope = torch.autocast("cpu", dtype=torch.bfloat16)
    with scope:
        a = x @ y
    b = x @ y
    with scope:
        c = x @ y
    return a, b, c, x @ y


def instance_reused_in_a_loop(x: Tensor, y: Tensor):
    scope = torch.autocast("cpu", dtype=torch.bfloat16)
    inside = x
    outside = x
    for _ in range(3):
        with scope:
            inside = x @ inside
        outside = inside.float() @ y
    return inside, outside


def as_name_entered_again(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.float16) as scope:
        a = x @ y
    b = x @ y
    with scope as again:
        c = x @ y
    with again:
        d = x @ y
    return a, b, c, d, x @ y


def made_in_another_scope(x: Tensor, y: Tensor):
    # Without a dtype, a scope takes the one in force where it is made, not where it is entered.
    with torch.autocast("cpu", dtype=torch.float16):
        scope = torch.autocast("cpu")
    with scope:
        a = x @ y
    with torch.autocast("cpu", dtype=torch.bfloat16), scope:
        b = x @ y
    return a, b


def default_dtype_in_a_scope(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        with torch.autocast("cpu"):
            a = x @ y
        with torch.autocast("cpu", enabled=False), torch.autocast("cpu"):
            b = x @ y
    return a, b


def keywords_in_any_order(x: Tensor, y: Tensor):
    with torch.autocast(dtype=torch.float16, cache_enabled=False, device_type="cpu"):
        a = x @ y
    with torch.autocast(enabled=False, device_type="cpu"):
        b = x @ y
    with torch.autocast("cpu", torch.bfloat16, True, False):
        c = x @ y
    with torch.autocast("cpu", torch.bfloat16, False):
        d = x @ y
    with torch.autocast(enabled=not False, dtype=None, device_type="cpu"):
        e = x @ y
    return a, b, c, d, e.float()


def enabled_in_disabled(x: Tensor, y: Tensor):
    with torch.autocast("cpu", enabled=False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ y
        b = x @ y
    return a, b


def unsupported_dtype(x: Tensor, y: Tensor):
    # Eager switches such a scope off, and the scopes that take their dtype from it.
    with torch.autocast("cpu", dtype=torch.float32):
        a = x @ y
        with torch.autocast("cpu"):
            b = x @ y
    return a, b


def scope_in_branches(x: Tensor, y: Tensor, flag: bool):
    if flag:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ y
    else:
        with torch.autocast("cpu", enabled=False):
            a = x @ y
    return a, x @ y


def branches_in_scope(x: Tensor, y: Tensor, flag: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if flag:
            a = x @ y
        else:
            with torch.autocast("cpu", dtype=torch.float16):
                a = x @ y
        b = x @ y
    return a, b


def scope_in_loops(x: Tensor, y: Tensor):
    found: list[Tensor] = []
    while len(found) < 4:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found.append(x @ y)
        found.append(x @ y)
    with torch.autocast("cpu", dtype=torch.float16):
        for i in range(2):
            found.append(x @ found[0].float() if i == 0 else x + y)
    return found


def break_in_scope(x: Tensor, y: Tensor):
    out = x
    for i in range(5):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = x @ out
            if i == 2:
                break
        out = out.float() @ y
    return out, x @ y


def early_return(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ y


def early_return_from_one_branch(x: Tensor, y: Tensor, flag: bool):
    if flag:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ y
            return a, a @ y
    b = x @ y
    return b, b @ y


def multiply(x: Tensor, y: Tensor):
    return x @ y


def multiply_in_its_own_scope(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ y


def multiply_unless_off(x: Tensor, y: Tensor, enabled: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
        return x @ y


def multiply_in_the_scope_given(x: Tensor, y: Tensor, scope: torch.autocast):
    with scope:
        return x @ y


def half_scope():
    return torch.autocast("cpu", dtype=torch.float16)


def helpers(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        a = multiply(x, y)
        b = multiply_in_its_own_scope(x, y)
        c = multiply(x, y)
    return a, b, c, multiply(x, y)


def helpers_given_constants(x: Tensor, y: Tensor):
    return multiply_unless_off(x, y, True), multiply_unless_off(x, y, not True)


def helpers_given_a_scope(x: Tensor, y: Tensor):
    with half_scope():
        a = x @ y
    return a, multiply_in_the_scope_given(x, y, torch.autocast("cpu", dtype=torch.bfloat16)), x @ y


def by_hand(x: Tensor, y: Tensor):
    scope = torch.autocast("cpu", dtype=torch.bfloat16)
    scope.__enter__()
    a = x @ y
    inner = torch.autocast("cpu", enabled=False)
    inner.__enter__()
    b = x @ y
    inner.__exit__(None, None, None)
    c = x @ y
    scope.__exit__(None, None, None)
    return a, b, c, x @ y


def by_hand_in_branches_and_loops(x: Tensor, y: Tensor, flag: bool):
    scope = torch.autocast("cpu", dtype=torch.bfloat16)
    z = x
    if flag:
        scope.__enter__()
        z = x @ y
        scope.__exit__(None, None, None)
    for _ in range(2):
        scope.__enter__()
        z = z @ y
        scope.__exit__(None, None, None)
        z = z.float() @ y
    return z, x @ y


def by_hand_and_by_with(x: Tensor, y: Tensor):
    scope = torch.autocast("cpu", dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.float16) as around:
        scope.__enter__()
        a = x @ y
        with torch.autocast("cpu", enabled=False):
            b = x @ y
        c = x @ y
        scope.__exit__(None, None, None)
        d = x @ y
    with scope:
        e = x @ y
    around.__enter__()
    f = x @ y
    around.__exit__(None, None, None)
    return a, b, c, d, e, f, x @ y


def enter_by_hand(dtype: torch.dtype):
    scope = torch.autocast("cpu", dtype=dtype)
    scope.__enter__()
    return scope


def leave_by_hand(scope: torch.autocast):
    scope.__exit__(None, None, None)


def by_helpers_by_hand(x: Tensor, y: Tensor):
    scope = enter_by_hand(torch.bfloat16)
    a = x @ y
    leave_by_hand(scope)
    return a, x @ y


def result_in_containers(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = {"one": [a @ y for a in [x, y]], "two": [x @ y]}
        nothing: Tensor | None = None
        return found, (x @ y, nothing)


def state_asked_for(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = torch.is_autocast_cpu_enabled()
        with torch.autocast("cpu", enabled=False):
            disabled = torch.is_autocast_cpu_enabled()
        again = torch.is_autocast_cpu_enabled()
    return inside, disabled, again, torch.is_autocast_cpu_enabled(), x @ y


@dataclass(frozen=True)
class Program:
    function: Callable[..., Any]
    dtypes: Sequence[torch.dtype]  # of the tensors it returns on CPU, nothing around it
    more: Sequence[Any] = ()  # arguments besides two matrices

    def inputs(self, device: str) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(0)
        matrices = (torch.randn(4, 4, generator=generator).to(device) for _ in range(2))
        return (*matrices, *self.more)


PROGRAMS = [
    Program(nested, [BF16, F32, F16, F32, BF16, F32]),
    Program(two_items, [F16, F32]),
    Program(two_devices, [BF16, BF16, F32, F32]),
    Program(beside_another_manager, [BF16, F32, F32]),
    Program(instance_reused, [BF16, F32, BF16, F32]),
    Program(instance_reused_in_a_loop, [BF16, F32]),
    Program(as_name_entered_again, [F16, F32, F16, F16, F32]),
    Program(made_in_another_scope, [F16, F16]),
    Program(default_dtype_in_a_scope, [F16, F16]),
    Program(keywords_in_any_order, [F16, F32, BF16, F32, F32]),
    Program(enabled_in_disabled, [BF16, F32]),
    Program(unsupported_dtype, [F32, F32]),
    Program(scope_in_branches, [BF16, F32], more=[True]),
    Program(scope_in_branches, [F32, F32], more=[False]),
    Program(branches_in_scope, [BF16, BF16], more=[True]),
    Program(branches_in_scope, [F16, BF16], more=[False]),
    Program(scope_in_loops, [BF16, F32, BF16, F32, F16, F32]),
    Program(break_in_scope, [BF16, F32]),
    Program(early_return, [BF16]),
    Program(early_return_from_one_branch, [BF16, BF16], more=[True]),
    Program(early_return_from_one_branch, [F32, F32], more=[False]),
    Program(helpers, [F16, BF16, F16, F32]),
    Program(helpers_given_constants, [BF16, F32]),
    Program(helpers_given_a_scope, [F16, BF16, F32]),
    Program(by_hand, [BF16, F32, BF16, F32]),
    Program(by_hand_in_branches_and_loops, [F32, F32], more=[True]),
    Program(by_hand_in_branches_and_loops, [F32, F32], more=[False]),
    Program(by_hand_and_by_with, [BF16, F32, BF16, F16, BF16, F16, F32]),
    Program(by_helpers_by_hand, [BF16, F32]),
    Program(result_in_containers, [BF16, BF16, BF16, BF16]),
]


def name_of(program: Program) -> str:
    return "-".join([program.function.__name__, *(str(value) for value in program.more)])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_a_scope_means_what_it_means_in_eager(program: Program, place: Place) -> None:
    function = for_scope(program.function, place.scope)
    results = assert_parity(function, program.inputs(place.tensors))
    if place == Place("cpu", "cpu"):
        assert [t.dtype for t in tensors_of(results["none"])] == list(program.dtypes)


@pytest.fixture
def no_weight_cache() -> Iterator[None]:
    """Eager without its cache of leaves' casts: the cache hands a cast out in a scope of another
    dtype too, so that nested scopes of two dtypes get the first one's, or an error."""
    torch.set_autocast_cache_enabled(False)
    yield
    torch.set_autocast_cache_enabled(True)


@pytest.mark.usefixtures("no_weight_cache")
@pytest.mark.parametrize("program", [PROGRAMS[0], PROGRAMS[3]], ids=name_of)
def test_a_scope_means_the_same_to_tensors_that_require_gradients(program: Program) -> None:
    x, y = program.inputs("cpu")
    assert_parity(program.function, (x.requires_grad_(), y.requires_grad_()))


def test_the_state_can_be_asked_for() -> None:
    inputs = PROGRAMS[0].inputs("cpu")
    results = assert_parity(state_asked_for, inputs)
    assert results["none"][:4] == (True, False, True, False)
    assert results["cpu"][:4] == (True, False, True, True)


def test_the_state_that_is_asked_for_is_not_folded_into_the_program() -> None:
    with torch.autocast("cpu"):
        scripted = jit_amp.script(state_asked_for)
    assert scripted(*PROGRAMS[0].inputs("cpu"))[:4] == (True, False, True, False)


def continue_in_scope(x: Tensor, y: Tensor):
    out = x
    for i in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if i == 1:
                continue
            out = x @ out
        out = out.float() @ y
    return out


def return_from_a_branch_in_scope(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if x.sum() < 1000:
            return x @ y
        z = x + y
    return z @ y


@pytest.mark.parametrize("function", [continue_in_scope, return_from_a_branch_in_scope])
def test_leaving_a_scope_from_within_a_branch_is_more_than_pytorchs_compiler_can(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(jit_amp.AutocastError, match="PyTorch's own compiler fails") as refused:
        jit_amp.script(function)
    assert "INTERNAL ASSERT" not in str(refused.value)
    assert "Instead: set a variable in the branch" in str(refused.value)


def calls_what_leaves_a_scope(x: Tensor, y: Tensor):
    return return_from_a_branch_in_scope(x, y) + 1


def test_what_pytorchs_compiler_fails_on_is_named_and_not_what_calls_it() -> None:
    with pytest.raises(jit_amp.AutocastError, match="JA208") as refused:
        jit_amp.script(calls_what_leaves_a_scope)
    assert "`return_from_a_branch_in_scope`" in str(refused.value)
    assert "return x @ y" in str(refused.value)


# Every spelling.


def spelled_torch_autocast(x: Tensor, y: Tensor):
    with torch.autocast("cpu"):
        a = x @ y
    with torch.autocast("cuda"):
        b = x @ y
    return a, b


def spelled_torch_amp_autocast(x: Tensor, y: Tensor):
    with torch.amp.autocast("cpu"):
        a = x @ y
    with torch.amp.autocast("cuda"):
        b = x @ y
    return a, b


def spelled_torch_amp_autocast_mode_autocast(x: Tensor, y: Tensor):
    with torch.amp.autocast_mode.autocast("cpu"):
        a = x @ y
    with torch.amp.autocast_mode.autocast("cuda"):
        b = x @ y
    return a, b


def spelled_by_device(x: Tensor, y: Tensor):
    with torch.cpu.amp.autocast():
        a = x @ y
    with torch.cuda.amp.autocast():
        b = x @ y
    return a, b


def spelled_by_device_with_arguments(x: Tensor, y: Tensor):
    with torch.cpu.amp.autocast(True, torch.float16), torch.cuda.amp.autocast(dtype=torch.bfloat16):
        a = x @ y
        with torch.cpu.amp.autocast(enabled=False), torch.cuda.amp.autocast(False):
            b = x @ y
    return a, b


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("function", "on_cpu", "on_cuda"),
    [
        (spelled_torch_autocast, [BF16, F32], [F32, F16]),
        (spelled_torch_amp_autocast, [BF16, F32], [F32, F16]),
        (spelled_torch_amp_autocast_mode_autocast, [BF16, F32], [F32, F16]),
        (spelled_by_device, [BF16, F32], [F32, F16]),
        (spelled_by_device_with_arguments, [F16, F32], [BF16, F32]),
    ],
)
def test_every_spelling_is_a_scope(
    function: Callable[..., Any],
    on_cpu: list[torch.dtype],
    on_cuda: list[torch.dtype],
    device: str,
) -> None:
    if sys.version_info >= (3, 13) and function.__name__.startswith("spelled_by_device"):
        with pytest.raises(TypeError):
            torch.jit.script(function)
        pytest.skip("on this Python PyTorch compiles no function that is marked as deprecated")
    results = assert_parity(function, PROGRAMS[0].inputs(device))
    assert [t.dtype for t in results["none"]] == (on_cpu if device == "cpu" else on_cuda)


# The default dtype is the ambient one at the call.


def default_dtype(x: Tensor, y: Tensor):
    with torch.autocast("cpu"):
        return x @ y


def test_a_scope_without_a_dtype_takes_the_ambient_one() -> None:
    results = assert_parity(default_dtype, PROGRAMS[0].inputs("cpu"))
    assert {name: r.dtype for name, r in results.items() if name.startswith(("none", "cpu"))} == {
        "none": BF16,
        "cpu": BF16,
        "cpu_float16": F16,
        "cpu_off": BF16,
    }


def test_a_scope_without_a_dtype_follows_set_autocast_dtype() -> None:
    scripted = jit_amp.script(default_dtype)
    inputs = PROGRAMS[0].inputs("cpu")
    before = torch.get_autocast_dtype("cpu")
    try:
        for dtype in (BF16, F16, BF16, F16):
            torch.set_autocast_dtype("cpu", dtype)
            assert scripted(*inputs).dtype == default_dtype(*inputs).dtype == dtype
    finally:
        torch.set_autocast_dtype("cpu", before)


def test_a_scope_whose_ambient_dtype_autocast_cannot_do_says_what_to_write() -> None:
    # Eager warns and computes in the inputs' dtype.
    scripted = jit_amp.script(default_dtype)
    before = torch.get_autocast_dtype("cpu")
    try:
        torch.set_autocast_dtype("cpu", F32)
        with pytest.raises(RuntimeError, match="give the scope a dtype, bfloat16 or float16"):
            scripted(*PROGRAMS[0].inputs("cpu"))
    finally:
        torch.set_autocast_dtype("cpu", before)


def test_a_dtype_that_a_scope_cannot_do_is_warned_of_once_in_python(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jit_amp.script(unsupported_dtype)
    assert capfd.readouterr().err == ""
    assert len([w for w in caught if "is not supported. Disabling" in str(w.message)]) == 2


@pytest.mark.parametrize("ambient", ["cpu", "cpu_float16", "both_switched_on"])
def test_the_state_while_scripting_changes_nothing_and_is_kept(ambient: str) -> None:
    reference = str(jit_amp.lowered_graph(default_dtype))
    inputs = PROGRAMS[0].inputs("cpu")
    with AMBIENTS[ambient]():
        before = autocast_state()
        scripted = jit_amp.script(default_dtype)
        assert autocast_state() == before
        assert str(jit_amp.lowered_graph(default_dtype)) == reference
        with known_warnings_ignored():
            expected = default_dtype(*inputs)
        assert torch.equal(scripted(*inputs), expected)
    assert scripted(*inputs).dtype == BF16


# A device that is known at run time only.


def device_of_a_tensor(x: Tensor, y: Tensor):
    with torch.autocast(x.device.type):
        a = x @ y
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        b = x @ y
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=False):
            c = x @ y
        with torch.autocast("cpu", dtype=torch.float16):
            d = x @ y
        with torch.autocast("cuda", dtype=torch.float16):
            e = x @ y
        f = torch.einsum("ij,jk->ik", x, y)
    return a, b, c, d, e, f, x @ y


def device_given(x: Tensor, y: Tensor, device: str):
    with torch.autocast(device, dtype=torch.bfloat16):
        a = x @ y
        b = torch.softmax(a, 0), torch.cat([x, a]), torch.cdist(x, a)
        c = torch.einsum("ij,jk->ik", x, y)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            d = x @ y
    return a, b, c, d, x @ y


def device_given_around_a_disabled_scope(x: Tensor, y: Tensor, device: str):
    with torch.autocast(device, dtype=torch.bfloat16), torch.autocast("cpu", enabled=False):
        return x @ y


def device_given_made_elsewhere(x: Tensor, y: Tensor, device: str):
    scope = torch.autocast(device)
    with torch.autocast("cpu", dtype=torch.float16), scope:
        return x @ y


@pytest.mark.parametrize("device", DEVICES)
def test_a_scope_may_be_for_the_device_of_a_tensor(device: str) -> None:
    results = assert_parity(device_of_a_tensor, PROGRAMS[0].inputs(device))
    if device == "cpu":
        assert [t.dtype for t in results["none"]] == [BF16, BF16, F32, F16, BF16, BF16, F32]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("given", ["cpu", "cuda"])
def test_a_scope_may_be_for_a_device_that_is_given(given: str, device: str) -> None:
    results = assert_parity(device_given, (*PROGRAMS[0].inputs(device), given))
    low = BF16 if given == device else F32
    assert results["none"][0].dtype == low


def test_a_default_dtype_is_the_one_where_a_scope_for_a_given_device_is_made() -> None:
    results = assert_parity(device_given_made_elsewhere, (*PROGRAMS[0].inputs("cpu"), "cpu"))
    assert results["none"].dtype == BF16


def test_a_disabled_scope_needs_no_dtype_in_one_for_a_given_device() -> None:
    inputs = PROGRAMS[0].inputs("cpu")
    results = assert_parity(device_given_around_a_disabled_scope, (*inputs, "cpu"))
    assert results["none"].dtype == F32


def test_a_device_that_is_given_and_has_no_autocast_is_refused_at_the_call() -> None:
    scripted = jit_amp.script(device_given)
    with pytest.raises(RuntimeError, match="can be 'cpu' or 'cuda', not 'toaster'"):
        scripted(*PROGRAMS[0].inputs("cpu"), "toaster")
    assert scripted(*PROGRAMS[0].inputs("cpu"), "cpu")[0].dtype == BF16


# Modules.


class Layer(nn.Module):
    scoped: Final[bool]

    def __init__(self, scoped: bool) -> None:
        super().__init__()
        self.scoped = scoped
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.scoped):
            y = self.linear(x.float())
        return y


class Layers(nn.Module):
    device: Final[str]

    def __init__(self) -> None:
        super().__init__()
        self.device = "cpu"
        self.plain = nn.Linear(4, 4)
        self.layers = nn.ModuleList([Layer(True), Layer(False)])

    def forward(self, x: Tensor):
        found: list[Tensor] = []
        with torch.autocast(self.device, dtype=torch.bfloat16):
            found.append(self.plain(x))
            for layer in self.layers:
                x = layer(x)
                found.append(x)
            found.append(self.plain(x))
        found.append(self.plain(x))
        return found


@pytest.mark.usefixtures("no_weight_cache")
def test_scopes_reach_into_submodules_and_final_attributes_are_constants() -> None:
    results = assert_parity(Layers(), (torch.randn(2, 4),))
    assert [t.dtype for t in results["none"]] == [BF16, F16, F32, BF16, F32]
    assert [t.dtype for t in results["cpu"]] == [BF16, F16, F32, BF16, BF16]


class SwitchedByItsCaller(nn.Module):
    def forward(self, x: Tensor, enabled: bool):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            return x @ x


class Switching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = SwitchedByItsCaller()

    def forward(self, x: Tensor):
        return self.inner(x, True), self.inner(x, False)


def test_a_constant_reaches_a_submodules_scope_as_it_reaches_a_helpers() -> None:
    results = assert_parity(Switching(), (torch.randn(4, 4),))
    assert [t.dtype for t in results["none"]] == [BF16, F32]


def test_a_submodule_that_is_refused_on_its_own_says_so_when_it_is_called() -> None:
    scripted = jit_amp.script(Switching())
    with pytest.raises((RuntimeError, torch.jit.Error), match="`enabled` is known only at run"):
        scripted.inner(torch.randn(4, 4), True)


@torch.jit.interface
class Multiplying(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class MultipliesInHalf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return x @ x


class Multiplies(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x @ x


class CallsAnInterface(nn.Module):
    inner: Multiplying

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = self.inner(x)
            with torch.autocast("cpu", enabled=False):
                b = self.inner(x)
        return a, b, self.inner(x)


@pytest.mark.parametrize(
    ("inner", "dtypes"),
    [(Multiplies(), [BF16, F32, F32]), (MultipliesInHalf(), [F16, F16, F16])],
    ids=["plain", "with_a_scope"],
)
def test_a_scope_reaches_through_an_interface(inner: nn.Module, dtypes: list[torch.dtype]) -> None:
    results = assert_parity(CallsAnInterface(inner), (torch.randn(4, 4),))
    assert [t.dtype for t in results["none"]] == dtypes


@torch.jit.ignore
def state_and_product(x: Tensor) -> tuple[bool, Tensor]:
    return torch.is_autocast_enabled("cpu"), x @ x


def calls_ignored_python(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        a = state_and_product(x)
        with torch.autocast("cpu", enabled=False):
            b = state_and_product(x)
    return a, b, state_and_product(x)


def test_a_scope_reaches_through_ignored_python() -> None:
    results = assert_parity(calls_ignored_python, (torch.randn(4, 4),), ambients=["none"])
    assert [enabled for enabled, _ in results["none"]] == [True, False, False]


def test_the_ambient_state_reaches_through_ignored_python() -> None:
    assert_parity(calls_ignored_python, (torch.randn(4, 4),), ambients=["cpu", "cpu_float16"])


# Other threads.


def work(x: Tensor, y: Tensor):
    for _ in range(200):
        x = torch.tanh(x @ y).float()
    return x @ y


def forks(x: Tensor, y: Tensor):
    with torch.autocast("cpu"):
        task = torch.jit.fork(work, x, y)
        a = x @ y
        with torch.autocast("cpu", dtype=torch.float16):
            b = torch.jit.wait(task) @ y
    return a, b, x @ y


def forks_alone(x: Tensor, y: Tensor):
    # Nothing else for the calling thread to do: it waits while the task runs.
    with torch.autocast("cpu"):
        return torch.jit.wait(torch.jit.fork(work, x, y))


@pytest.mark.parametrize("function", [forks, forks_alone])
def test_a_scope_reaches_into_a_forked_task(function: Callable[..., Any]) -> None:
    inputs = (torch.randn(64, 64), torch.randn(64, 64))
    assert_parity(function, inputs, ambients=["none", "cpu_off", "cuda"])


@pytest.mark.parametrize("function", [forks, forks_alone])
def test_a_forked_task_leaves_the_ambient_state_of_the_caller(
    function: Callable[..., Any],
) -> None:
    # After a wait, PyTorch's interpreter may go on in another thread.
    inputs = (torch.randn(64, 64), torch.randn(64, 64))
    assert_parity(function, inputs, ambients=["cpu", "both_switched_on"])


def test_ambient_state_is_the_calling_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    scripted = jit_amp.script(default_dtype)
    inputs = PROGRAMS[0].inputs("cpu")

    def call(around: AbstractContextManager[Any]) -> torch.dtype:
        with around:
            return scripted(*inputs).dtype

    with torch.autocast("cpu", dtype=torch.float16), ThreadPoolExecutor(1) as other:
        assert other.submit(call, nullcontext()).result() == BF16
        assert other.submit(call, torch.autocast("cpu", dtype=torch.bfloat16)).result() == BF16
        assert call(nullcontext()) == F16


class Overloaded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4))

    @torch.jit._overload_method
    def product(self, x: Tensor) -> Tensor:
        pass

    @torch.jit._overload_method  # type: ignore[no-redef]
    def product(self, x: list[Tensor]) -> Tensor:  # noqa: F811
        pass

    @torch.autocast("cpu", dtype=torch.bfloat16)  # type: ignore[no-redef]
    def product(self, x):  # noqa: F811
        if isinstance(x, Tensor):
            return x @ self.weight
        return x[0] @ x[1] @ self.weight

    def forward(self, x: Tensor):
        return self.product(x), self.product([x, x]), x + 1


def test_an_overloaded_method_has_the_scope_of_its_decorator() -> None:
    model = Overloaded()
    scripted = jit_amp.script(model)
    results = assert_parity_with(model, scripted, (torch.rand(4, 4),))
    assert [each.dtype for each in results["none"]] == [torch.bfloat16] * 2 + [torch.float32]
