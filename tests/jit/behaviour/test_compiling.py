"""How modules are compiled: lowered where they are, of types of their own, with all decorators."""

from __future__ import annotations

import contextlib
import functools
import io
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import AMBIENTS, assert_parity, assert_same, operators_of_ours, saved_and_loaded

BF16 = torch.bfloat16
reduced = torch.autocast("cpu", dtype=BF16)
X = torch.randn(4, 4)


def assert_as_eager(module: Any, x: Tensor = X) -> Any:
    """The scripted module, after three calls under each ambient autocast."""
    scripted = jit_amp.script(module)
    for name in ("none", "cpu"):
        for call in range(3):
            with AMBIENTS[name]():
                assert_same(scripted(x), module(x), f"{name}, call {call}")
    return scripted


def product(a: Tensor, b: Tensor):
    return a @ b


class InAScope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class UnderTwoNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = InAScope()
        self.second = self.first

    def forward(self, x: Tensor):
        return self.first(x) + self.second(x)


def test_one_submodule_may_stand_under_two_names() -> None:
    assert_as_eager(UnderTwoNames())


def test_types_are_shared_among_themselves_and_not_with_plain_ones() -> None:
    plain = torch.jit.script(UnderTwoNames())
    ours, other = jit_amp.script(UnderTwoNames()), jit_amp.script(UnderTwoNames())
    again = torch.jit.script(UnderTwoNames())
    assert ours._c._type() == other._c._type()
    assert plain._c._type() == again._c._type() != ours._c._type()
    assert not operators_of_ours(again.graph_for(X))

    ours.first = other.first  # one instance stands in for another
    for _ in range(3):
        expected = other.first(X) + ours.second(X)
        assert_same(ours(X), expected, "an exchanged submodule")


def test_what_has_no_scope_shares_pytorchs_types() -> None:
    ours, plain = jit_amp.script(InAScope()), torch.jit.script(nn.Linear(4, 4))
    assert ours.linear._c._type() == plain._c._type()


class Holds(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor):
        return self.part(x) + 1


def test_plain_containers_of_modules_of_ours_are_of_their_own_types() -> None:
    """PyTorch would take what holds modules of the same classes for the same."""
    module = InAScope()
    makes = [lambda: Holds(jit_amp.script(module)), lambda: Holds(module)]
    for make in makes + makes:
        assert torch.jit.script(make())(X).dtype is BF16
    assert_as_eager(Holds(module))


@pytest.mark.parametrize("compiled_first", ["plain", "ours"])
def test_a_plainly_scripted_part_stays_what_it_is(compiled_first: str) -> None:
    module = InAScope()
    if compiled_first == "ours":
        jit_amp.script(Holds(module))
    part = torch.jit.script(module)
    holder = jit_amp.script(Holds(part))
    for _ in range(3):
        assert_same(holder(X), Holds(module)(X), "the holder")
    assert not operators_of_ours(part.graph_for(X))


class Fails(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor):
        return self.part(x).nothing_of_the_kind()


def test_a_class_that_failed_once_is_not_broken_afterwards() -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="nothing_of_the_kind"):
            jit_amp.script(Fails(InAScope()))
    assert_as_eager(InAScope())
    with pytest.raises(RuntimeError, match="nothing_of_the_kind"):
        torch.jit.script(Fails(nn.Linear(4, 4)))


# Hooks.


def before(self, given: tuple[Tensor]) -> tuple[Tensor]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return ((given[0] @ given[0]).float(),)


def after(self, given: tuple[Tensor], result: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.float16):
        return given[0] @ result.float()


def after_without_a_scope(self, given: tuple[Tensor], result: Tensor) -> Tensor:
    return result @ result


@reduced
def decorated_hook(self, given: tuple[Tensor], result: Tensor) -> Tensor:
    return product(result, result)


@pytest.mark.parametrize("module", [InAScope, lambda: nn.Linear(4, 4)], ids=["scope", "none"])
@pytest.mark.parametrize("hook", [after, after_without_a_scope, decorated_hook])
def test_hooks_run(module: Callable[[], nn.Module], hook: Any) -> None:
    hooked = module()
    hooked.register_forward_hook(hook)
    hooked.register_forward_pre_hook(before)
    assert_as_eager(hooked)
    assert_as_eager(Holds(hooked))


# Decorators.


class Property(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    @property
    @reduced
    def squared(self) -> Tensor:
        return product(self.weight, self.weight)

    def forward(self, x: Tensor):
        return self.squared + x @ x


class InheritsAProperty(Property):
    def forward(self, x: Tensor):
        return self.squared + x, x @ x


class InheritsAPropertyThatItDoesNotUse(Property):
    def forward(self, x: Tensor):
        return x @ x


class HasAPropertyOfItsOwn(Property):
    @property
    def squared(self) -> Tensor:
        return product(self.weight, self.weight)

    def forward(self, x: Tensor):
        return self.squared + x, x @ x


class Static(nn.Module):
    @staticmethod
    @reduced
    def square(x: Tensor) -> Tensor:
        return product(x, x)

    def forward(self, x: Tensor):
        return self.square(x), x @ x


class Attribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = reduced(product)

    def forward(self, x: Tensor):
        return self.act(x, x), product(x, x)


class Object:
    def __init__(self, x: Tensor):
        self.x = x

    @reduced
    def times(self, y: Tensor) -> Tensor:
        return product(self.x, y)

    @staticmethod
    @reduced
    def square(y: Tensor) -> Tensor:
        return product(y, y)

    @property
    @reduced
    def squared(self) -> Tensor:
        return product(self.x, self.x)


class UsesAnObject(nn.Module):
    def forward(self, x: Tensor):
        made = Object(x)
        return made.times(x), made.squared, Object.square(x), x @ x


@pytest.mark.parametrize(
    "cls",
    [
        Property,
        InheritsAProperty,
        InheritsAPropertyThatItDoesNotUse,
        HasAPropertyOfItsOwn,
        Static,
        Attribute,
        UsesAnObject,
    ],
)
def test_a_decorated_member_has_its_scope(cls: type[nn.Module]) -> None:
    assert_as_eager(cls())


def test_instances_that_are_decorated_otherwise_are_of_other_types() -> None:
    decorated, plain = nn.Linear(4, 4), nn.Linear(4, 4)
    decorated.forward = reduced(decorated.forward)  # type: ignore[method-assign]
    for each in (decorated, plain, decorated):
        assert_as_eager(each)


def mine(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def entered(*args: Any) -> Any:
        with torch.autocast("cpu", dtype=BF16):
            return function(*args)

    return entered


@contextlib.contextmanager
def entered() -> Iterator[None]:
    with reduced:
        yield


def with_a_helper(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any) -> Any:
        return mine(function)(*args)

    return wrapped


def harmless(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any) -> Any:
        return function(*args)

    return wrapped


def made_by(decorator: Callable[..., Any]) -> type[nn.Module]:
    class Decorated(nn.Module):
        @decorator
        def forward(self, x: Tensor):
            return x @ x

    return Decorated


@mine
def decorated_by_hand(x: Tensor) -> Tensor:
    return x @ x


class CallsIt(nn.Module):
    def forward(self, x: Tensor):
        return decorated_by_hand(x)


class ObjectByHand:
    def __init__(self, x: Tensor):
        self.x = x

    @reduced
    @mine
    def times(self, y: Tensor) -> Tensor:
        return self.x @ y


def uses_an_object_by_hand(x: Tensor):
    return ObjectByHand(x).times(x)


@pytest.mark.parametrize("decorator", [mine, entered(), with_a_helper])
def test_a_decorator_of_the_users_own_is_refused(decorator: Any) -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"`.*forward` has a decorator.*JA118"):
        jit_amp.script(made_by(decorator)())


def test_a_decorator_of_the_users_own_is_refused_below() -> None:
    for each in (decorated_by_hand, CallsIt(), uses_an_object_by_hand):
        with pytest.raises(jit_amp.AutocastError, match="JA118"):
            jit_amp.script(each)


@pytest.mark.parametrize("decorator", [harmless, torch.no_grad()])
def test_a_decorator_that_enters_no_autocast_is_as_plain(decorator: Any) -> None:
    assert_as_eager(made_by(decorator)())


def test_other_threads_keep_their_decorators() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        @torch.autocast("cpu", dtype=torch.bfloat16)
        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)

    eager, x, stop = Block(), torch.rand(2, 8), threading.Event()
    seen: set[Any] = set()

    def run() -> None:
        while not stop.is_set():
            seen.add(eager(x).dtype)
            # Plainly: it refuses what is decorated, or forgets it; and before Python 3.13 two
            # threads cannot read source beside one another (jit_amp/_base/syntax_trees.py).
            with contextlib.suppress(RuntimeError, SystemError):
                torch.jit.script(eager)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(20):
            jit_amp.script(Block())
    finally:
        stop.set()
        thread.join()
    assert seen == {BF16}


# Saving.


class WithState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ self.weight

    @torch.jit.export
    def __getstate__(self):
        return self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[Tensor, bool]):
        self.weight = state[0]
        self.training = state[1]


@pytest.mark.parametrize("cls", [WithState, UnderTwoNames, Property, UsesAnObject])
def test_it_is_saved_and_loaded(cls: type[nn.Module]) -> None:
    module = cls()
    scripted = assert_as_eager(module)
    loaded = jit_amp.script(saved_and_loaded(scripted))
    for _ in range(3):
        assert_same(loaded(X), module(X), "loaded")


@pytest.mark.filterwarnings("ignore:Lite Interpreter is deprecated")
@pytest.mark.parametrize(
    "save",
    [
        lambda module, path: module._save_for_lite_interpreter(path),
        lambda module, path: torch.jit.save_jit_module_to_flatbuffer(module, path),
    ],
    ids=["lite", "flatbuffer"],
)
def test_a_form_that_cannot_hold_lowered_code_is_refused(save: Any, tmp_path: Any) -> None:
    scripted = assert_as_eager(Holds(InAScope()))
    with pytest.raises(jit_amp.AutocastError, match=r"JA308(.|\n)*jit_amp\.freeze"):
        save(scripted, str(tmp_path / "module"))


def test_pytorchs_own_passes_meet_no_operator_of_ours() -> None:
    scripted = assert_as_eager(Holds(InAScope()))
    assert "aten::add" in torch.jit.export_opnames(scripted)[0]
    frozen = torch.jit.freeze(scripted.eval())
    assert not operators_of_ours(frozen.graph)
    saved_and_loaded(frozen)


# Traces and files.


def test_a_trace_is_lowered_where_it_is() -> None:
    module = Holds(InAScope())
    traced = jit_amp.trace(module, (X,))
    assert isinstance(traced, torch.jit.TopLevelTracedModule)
    assert operators_of_ours(traced.graph_for(X))
    for _ in range(3):
        assert_same(traced(X), module(X), "a trace")


def test_a_scripted_part_of_a_trace_stays_what_it_is() -> None:
    part = torch.jit.script(InAScope())
    traced = jit_amp.trace(Holds(part), (X,))
    for _ in range(3):
        assert_same(traced(X), Holds(part)(X), "a trace")
    assert not operators_of_ours(part.graph_for(X))


def test_hooks_of_what_was_loaded_run_while_installed() -> None:
    module = InAScope()
    module.register_forward_hook(after)
    buffer = io.BytesIO()
    torch.jit.save(jit_amp.script(Holds(module)), buffer)
    buffer.seek(0)
    with jit_amp.install():
        loaded = torch.jit.load(buffer)
    for _ in range(3):
        assert_same(loaded(X), Holds(module)(X), "loaded")


@mine
@torch.no_grad()
@torch.autocast("cpu", dtype=torch.bfloat16)
def decorated_by_hand_too(x: Tensor):
    return x @ x


def test_another_decorator_around_known_ones_is_refused() -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"has a decorator that enters.*JA118"):
        jit_amp.script(decorated_by_hand_too)


@torch.autocast("cpu", dtype=torch.bfloat16)
def without_gradients(x: Tensor):
    with torch.no_grad():
        return x @ x


def without_gradients_in_one_with(x: Tensor):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


@pytest.mark.parametrize("function", [without_gradients, without_gradients_in_one_with])
def test_a_gradient_mode_in_a_with_is_as_eager(function: Any) -> None:
    scripted = jit_amp.script(function)
    x = torch.randn(4, 4, requires_grad=True)
    for recording in (True, False, True):
        with torch.set_grad_enabled(recording):
            eager, ours = function(x), scripted(x)
        assert not ours.requires_grad
        assert_same(ours, eager, f"with gradients: {recording}")


partial_autocast = functools.partial(torch.autocast, "cpu", dtype=torch.bfloat16)


def enters_a_partial(x: Tensor):
    with partial_autocast():
        y = x @ x
    return y


def test_a_partial_of_autocast_is_a_scope() -> None:
    class Enters(nn.Module):
        def forward(self, x: Tensor):
            y = x
            with partial_autocast():
                y = x @ x
            return y

    for each in (enters_a_partial, Enters()):
        assert_parity(each, (torch.rand(4, 4),))
