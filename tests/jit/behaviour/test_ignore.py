"""ignore_amp: what is ignored runs as in disabled scopes, whoever calls it and whenever."""

import copy
import gc
import io
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import (
    AMBIENTS,
    DEFAULT,
    assert_parity,
    assert_same,
    autocast_state,
    check_ir,
    known_warnings_ignored,
    tensors_of,
)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))


def assert_calls_agree(scripted: Any, eager: Callable[..., Any], where: str = "") -> None:
    """Parity of an object that is scripted already, around each ambient."""
    for name in DEFAULT:
        for count in range(3):
            with AMBIENTS[name](), known_warnings_ignored():
                expected = eager(X)
                assert_same(scripted(X), expected, f"{where}, ambient {name}, call {count + 1}")


def off(function: Callable[..., Any]) -> Callable[..., Any]:
    """What ignoring means: the function inside disabled scopes."""

    def inside(*args: Any) -> Any:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            return function(*args)

    return inside


def with_names(function: Callable[..., Any], **names: Callable[..., Any]) -> Callable[..., Any]:
    """The function with other globals: what it calls is then Python too."""
    return types.FunctionType(function.__code__, {**function.__globals__, **names})


# Functions.


def leaf(x: Tensor):
    a = torch.mm(x, x)
    with torch.autocast("cpu", dtype=torch.float16):
        b = torch.mm(x, x)
    return a, b, torch.is_autocast_cpu_enabled(), torch.is_autocast_enabled()


@pytest.mark.parametrize("run_first", [False, True])
def test_a_function_is_switched_before_its_first_run_and_between_runs(run_first: bool) -> None:
    scripted = jit_amp.script(leaf)
    if run_first:
        assert_calls_agree(scripted, leaf, "at first")
    assert jit_amp.ignore_amp(scripted) is scripted
    assert_calls_agree(scripted, off(leaf), "ignoring")
    jit_amp.ignore_amp(scripted)
    assert_calls_agree(scripted, off(leaf), "ignoring, said twice")
    assert jit_amp.ignore_amp(scripted, ignore=False) is scripted
    assert_calls_agree(scripted, leaf, "no longer")
    jit_amp.ignore_amp(scripted)
    assert_calls_agree(scripted, off(leaf), "ignoring again")


def test_no_other_function_of_the_same_source_is_switched() -> None:
    ignored, other = jit_amp.script(leaf), jit_amp.script(leaf)
    jit_amp.ignore_amp(ignored)
    assert_calls_agree(other, leaf)
    assert_calls_agree(ignored, off(leaf))


def multiply(x: Tensor):
    return torch.mm(x, x)


@pytest.fixture(autouse=True)
def multiply_is_heeding() -> Iterator[None]:
    """It has no scopes: all that script it share one compiled function, and its switch."""
    yield
    jit_amp.ignore_amp(jit_amp.script(multiply), ignore=False)


def test_a_function_at_the_address_of_an_ignored_one_is_not_ignored() -> None:
    graph = torch.jit.script(multiply).graph
    for _ in range(50):
        scripted = jit_amp.script(torch._C._create_function_from_graph("multiply", graph.copy()))
        with torch.autocast("cpu"):
            assert scripted(X).dtype is BF16
            jit_amp.ignore_amp(scripted)
            assert scripted(X).dtype is F32
        del scripted


def test_the_graph_of_an_ignored_function_has_no_ambient_casts() -> None:
    scripted = jit_amp.script(multiply)
    jit_amp.ignore_amp(scripted)
    check_ir(
        jit_amp.lowered_graph(scripted, ambient=("cpu", "cuda")),
        """
        CHECK-LABEL: graph(
        CHECK-NOT:   jit_amp::
        CHECK:       aten::mm(%x.1, %x.1)
        """,
    )


def in_float16(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.mm(x, x)


def many_scopes(x: Tensor, flag: bool):
    a = in_float16(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = torch.mm(x, x)
        with torch.autocast("cpu", dtype=torch.float16, enabled=flag):
            c = torch.mm(x, x)
    return a, b, c, torch.is_autocast_enabled("cpu")


def no_scopes(x: Tensor, flag: bool):
    return torch.mm(x, x), torch.mm(x, x), torch.mm(x, x), torch.is_autocast_enabled("cpu")


class ManyScopes(nn.Module):
    def forward(self, x: Tensor):
        return many_scopes(x, True)

    @torch.jit.export
    def other(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.mm(x, x)


class HoldsManyScopes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = ManyScopes()

    def forward(self, x: Tensor):
        return self.part(x), self.part.other(x)


def test_a_functions_own_scopes_are_ignored_too() -> None:
    def eager(x: Tensor):
        return many_scopes(x, True)

    def none(x: Tensor):
        return no_scopes(x, True)

    scripted = jit_amp.script(HoldsManyScopes()).part
    for ignore, scopes, expected in [
        (False, False, eager),
        (True, True, off(none)),
        (True, False, off(eager)),
        (True, True, off(none)),
        (False, True, eager),
    ]:
        jit_amp.ignore_amp(scripted, ignore, scopes=scopes)
        assert_calls_agree(scripted, expected, f"{ignore}, {scopes}")


def test_what_is_ignored_with_its_scopes_is_ignored_by_its_callers() -> None:
    scripted = jit_amp.script(HoldsManyScopes())
    jit_amp.ignore_amp(scripted.part.other, scopes=True)
    for _ in range(3):
        assert_same(scripted(X), (many_scopes(X, True), torch.mm(X, X)), "one method")
    jit_amp.ignore_amp(scripted, scopes=True)
    for _ in range(3):
        assert_same(scripted(X), (no_scopes(X, True), torch.mm(X, X)), "all of it")


def test_pytorchs_own_flag_is_this_one_while_installed() -> None:
    def eager(x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.mm(x, x)

    before = torch.jit.ScriptFunction._set_ignore_amp
    with jit_amp.install():
        scripted, plain = (
            torch.jit.script(one_scope),
            torch._C._create_function_from_graph("plain", torch.jit.script(multiply).graph.copy()),
        )
        plain._set_ignore_amp(True)
        for ignore, expected in [(True, off(multiply)), (False, eager), (True, off(multiply))]:
            scripted._set_ignore_amp(ignore)
            assert_calls_agree(scripted, expected, str(ignore))
    assert torch.jit.ScriptFunction._set_ignore_amp is before


def one_scope(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.mm(x, x)


def test_scopes_of_python_cannot_be_ignored() -> None:
    for each in (one_scope, ManyScopes(), ManyScopes):
        with pytest.raises(TypeError, match=r"scopes=True takes what jit_amp\.script returned"):
            jit_amp.ignore_amp(each, scopes=True)


def raises(x: Tensor, fail: bool):
    y = torch.mm(x, x)
    if fail:
        raise ValueError("no")
    return y


def test_an_exception_in_an_ignored_function_restores_the_state() -> None:
    scripted = jit_amp.script(raises)
    jit_amp.ignore_amp(scripted)
    with torch.autocast("cpu"):
        state = autocast_state()
        for fail in (True, False, True):
            if fail:
                with pytest.raises(torch.jit.Error, match="no"):
                    scripted(X, True)
            else:
                assert scripted(X, False).dtype is F32
            assert autocast_state() == state
            assert torch.mm(X, X).dtype is BF16


# Their callers.

lowered_leaf = jit_amp.script(leaf)


@pytest.fixture
def switch_leaf() -> Iterator[Callable[[bool], Callable[..., Any]]]:
    """Switches `lowered_leaf`, and returns what it then is in eager."""

    def switch(ignore: bool) -> Callable[..., Any]:
        jit_amp.ignore_amp(lowered_leaf, ignore=ignore)
        return off(leaf) if ignore else leaf

    yield switch
    jit_amp.ignore_amp(lowered_leaf, ignore=False)


def calls(x: Tensor):
    return lowered_leaf(x)


def calls_in_scopes(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = lowered_leaf(x)
        b = torch.mm(x, x)
        with torch.autocast("cuda", dtype=torch.float16):
            c = lowered_leaf(x)
        d = torch.mm(x, x)
    return a, b, c, d, lowered_leaf(x), torch.mm(x, x)


def calls_in_branches_and_loops(x: Tensor):
    found = [x]
    for i in range(3):
        if i > 0:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found.append(lowered_leaf(x)[0])
        else:
            found.append(lowered_leaf(x)[1])
        found.append(torch.mm(x, x))
    return found


def calls_a_caller(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return calls_in_scopes(x), calls(x)


def calls_a_caller_of_a_caller(x: Tensor):
    return calls_a_caller(x), calls_in_branches_and_loops(x)


def forks(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        direct = torch.jit.fork(lowered_leaf, x)
        deeper = torch.jit.fork(calls_in_scopes, x)
        y = torch.mm(x, x)
        return torch.jit.wait(direct), torch.jit.wait(deeper), y


def forks_a_fork(x: Tensor):
    return torch.jit.wait(torch.jit.fork(forks, x))


def in_eager(function: Callable[..., Any], of_leaf: Callable[..., Any]) -> Callable[..., Any]:
    names: dict[str, Callable[..., Any]] = {"lowered_leaf": of_leaf}
    for callee in (calls, calls_in_scopes, calls_in_branches_and_loops, calls_a_caller, forks):
        names[callee.__name__] = with_names(callee, **names)
    return with_names(function, **names)


CALLERS = [
    calls,
    calls_in_scopes,
    calls_in_branches_and_loops,
    calls_a_caller,
    calls_a_caller_of_a_caller,
    forks,
    forks_a_fork,
]


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.__name__)
@pytest.mark.parametrize("at_first", [False, True])
def test_callers_see_what_is_ignored(
    caller: Callable[..., Any], at_first: bool, switch_leaf: Callable[..., Any]
) -> None:
    of_leaf = switch_leaf(at_first)
    scripted = jit_amp.script(caller)
    assert_calls_agree(scripted, in_eager(caller, of_leaf), f"ignore={at_first}")
    for ignore in (not at_first, at_first):
        of_leaf = switch_leaf(ignore)
        assert_calls_agree(scripted, in_eager(caller, of_leaf), f"switched to ignore={ignore}")


def forks_plainly(x: Tensor):
    future = torch.jit.fork(lowered_leaf, x)
    return torch.jit.wait(future), lowered_leaf(x)


def calls_plainly(x: Tensor):
    return calls(x), lowered_leaf(x + 1)


@pytest.mark.parametrize("caller", [calls, calls_plainly, forks_plainly])
@pytest.mark.parametrize("at_first", [False, True])
def test_plainly_scripted_callers_see_what_is_ignored(
    caller: Callable[..., Any], at_first: bool, switch_leaf: Callable[..., Any]
) -> None:
    of_leaf = switch_leaf(at_first)
    scripted = torch.jit.script(caller)
    assert_calls_agree(scripted, in_eager(caller, of_leaf), f"ignore={at_first}")
    for ignore in (not at_first, at_first):
        of_leaf = switch_leaf(ignore)
        assert_calls_agree(scripted, in_eager(caller, of_leaf), f"switched to ignore={ignore}")


def test_what_an_ignored_function_calls_is_inside(switch_leaf: Callable[..., Any]) -> None:
    scripted = jit_amp.script(calls_a_caller)
    jit_amp.ignore_amp(scripted)
    assert_calls_agree(scripted, off(in_eager(calls_a_caller, leaf)))
    assert_calls_agree(scripted, off(in_eager(calls_a_caller, switch_leaf(True))))


def test_a_function_that_is_scripted_again_still_ignores() -> None:
    scripted = jit_amp.script(leaf)
    jit_amp.ignore_amp(scripted)
    assert_calls_agree(jit_amp.script(scripted), off(leaf))


# Scripted modules.


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4), requires_grad=False)

    def helper(self, x: Tensor):
        return torch.mm(x, self.weight)

    def forward(self, x: Tensor):
        y = self.helper(x)
        with torch.autocast("cpu", dtype=torch.float16):
            return y, self.helper(x)

    @torch.jit.export
    def other(self, x: Tensor):
        return torch.mm(self.weight, x)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Layer(), Layer()
        self.list = nn.ModuleList([Layer(), nn.Sequential(Layer())])

    def forward(self, x: Tensor):
        outside = torch.mm(x, x), self.first(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = [self.first(x), self.second(x)]
            for layer in self.list:
                found.append(layer(x))
            forked = torch.jit.fork(self.first, x)
            found.append(torch.jit.wait(forked))
            return found, self.first.other(x), self.second.other(x), outside


def at(module: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        module = getattr(module, name)
    return module


def switched_off(module: nn.Module, path: str, method: str = "forward") -> nn.Module:
    """A copy with that method in disabled scopes."""
    module = copy.deepcopy(module)
    owner = at(module, path)
    vars(owner)[method] = off(getattr(owner, method))
    return module


@pytest.mark.parametrize("path", ["", "first", "second", "list.0", "list.1", "list.1.0"])
@pytest.mark.parametrize("run_first", [False, True])
def test_a_module_is_switched_and_no_other_of_its_class(path: str, run_first: bool) -> None:
    module = Layers()
    scripted = jit_amp.script(module)
    if run_first:
        assert_calls_agree(scripted, module, "at first")
    for _ in range(2):
        assert jit_amp.ignore_amp(at(scripted, path)) is at(scripted, path)
        reference = switched_off(module, path)
        assert_calls_agree(scripted, reference, "ignoring")
        assert_calls_agree(at(scripted, path), at(reference, path), "ignoring, called alone")
        jit_amp.ignore_amp(at(scripted, path), ignore=False)
        assert_calls_agree(scripted, module, "no longer")
        assert_calls_agree(at(scripted, path), at(module, path), "no longer, called alone")


@pytest.mark.parametrize("method", ["forward", "other"])
@pytest.mark.parametrize("run_first", [False, True])
def test_a_single_method_is_switched(method: str, run_first: bool) -> None:
    module = Layers()
    scripted = jit_amp.script(module)
    if run_first:
        assert_calls_agree(scripted, module, "at first")
        assert_calls_agree(scripted.first.other, module.first.other, "other, at first")
    for _ in range(2):
        jit_amp.ignore_amp(getattr(scripted.first, method))
        reference: Any = switched_off(module, "first", method)
        assert_calls_agree(scripted, reference, "ignoring")
        assert_calls_agree(scripted.first, reference.first, "forward, ignoring")
        assert_calls_agree(scripted.first.other, reference.first.other, "other, ignoring")
        jit_amp.ignore_amp(getattr(scripted.first, method), ignore=False)
        assert_calls_agree(scripted, module, "no longer")
        assert_calls_agree(scripted.first.other, module.first.other, "other, no longer")


def test_a_module_is_ignored_by_plainly_scripted_callers() -> None:
    layer = Layer()
    lowered = jit_amp.script(layer)
    scripted = torch.jit.script(nn.Sequential(lowered))
    for ignore in (True, False, True):
        jit_amp.ignore_amp(lowered, ignore=ignore)
        assert_calls_agree(scripted, off(layer) if ignore else layer, f"ignore={ignore}")


@torch.jit.interface
class Multiplying(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Multiplies(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.mm(x, x)


class CallsAnInterface(nn.Module):
    inner: Multiplying

    def __init__(self) -> None:
        super().__init__()
        self.inner = Multiplies()

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner.forward(x)


def test_a_module_behind_an_interface_is_ignored() -> None:
    module = CallsAnInterface()
    scripted = jit_amp.script(module)
    for ignore in (True, False):
        jit_amp.ignore_amp(scripted.inner, ignore=ignore)
        reference = switched_off(module, "inner") if ignore else module
        assert_calls_agree(scripted, reference, f"ignore={ignore}")


class ChoosesAModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Layer(), Layer()

    def forward(self, x: Tensor):
        layer = self.first if bool(x[0, 0] == x[0, 0]) else self.second
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer.forward(x)


def test_a_module_that_is_chosen_at_run_time_cannot_be_ignored() -> None:
    gc.collect()  # another of its class that ignores autocast would do: those of other tests
    scripted = jit_amp.script(ChoosesAModule())
    scripted(X)
    jit_amp.ignore_amp(scripted.first)
    with pytest.raises(RuntimeError, match="a module that is chosen at run time"):
        scripted(X)
    jit_amp.ignore_amp(scripted.first, False)
    scripted(X)


@pytest.mark.parametrize("path", ["", "first", "list.1.0"])
def test_a_module_that_is_scripted_again_still_ignores(path: str) -> None:
    module = Layers()
    scripted = jit_amp.script(module)
    jit_amp.ignore_amp(at(scripted, path))
    assert_calls_agree(jit_amp.script(scripted), switched_off(module, path))


def test_an_ignored_module_still_ignores_in_one_that_is_scripted_later() -> None:
    layer = Layer()
    inner = jit_amp.script(layer)
    jit_amp.ignore_amp(inner)
    assert_calls_agree(jit_amp.script(nn.Sequential(inner)), off(layer))


def test_freezing_a_scripted_module_keeps_what_it_ignores() -> None:
    module = Layers().eval()
    scripted = jit_amp.script(module)
    jit_amp.ignore_amp(scripted.first)
    frozen = jit_amp.freeze(scripted, example_inputs=(X,))
    assert_same(frozen(X), switched_off(module, "first")(X), "frozen")


def averaged(scripted: Any) -> Any:
    return torch.optim.swa_utils.AveragedModel(scripted).module


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, copy.copy, lambda s: s._replicate_for_data_parallel(), averaged],
    ids=["deepcopy", "copy", "replica", "average"],
)
@pytest.mark.parametrize("path", ["", "first", "list.1"])
def test_a_copy_of_a_scripted_module_ignores_what_it_does(copied: Any, path: str) -> None:
    module = Layers()
    scripted = jit_amp.script(module)
    jit_amp.ignore_amp(at(scripted, path))
    reference = switched_off(module, path)
    copies = [copied(scripted), copy.deepcopy(copied(scripted))]
    for each in copies:
        assert_calls_agree(each, reference, path)
    if path and copied is copy.deepcopy:  # others have the original's submodules, or none in Python
        assert_calls_agree(at(copies[0], path), at(reference, path), "called alone")
        jit_amp.ignore_amp(at(copies[0], path), ignore=False)
        assert_calls_agree(copies[0], module, "no longer")
    assert_calls_agree(scripted, reference, "the original")


# In Python: decorated functions and classes, and modules in place.


@jit_amp.ignore_amp
def decorated(x: Tensor):
    a = torch.mm(x, x)
    with torch.autocast("cpu", dtype=torch.float16):
        return a, torch.mm(x, x)


@jit_amp.ignore_amp()
def decorated_with_parentheses(x: Tensor):
    return torch.mm(x, x)


@jit_amp.ignore_amp(ignore=False)
def decorated_to_heed(x: Tensor):
    return torch.mm(x, x)


@jit_amp.ignore_amp(ignore=False)
@jit_amp.ignore_amp
def decorated_to_heed_again(x: Tensor):
    return torch.mm(x, x)


@jit_amp.ignore_amp
@torch.autocast("cpu", dtype=torch.float16)
def in_a_scope_of_its_own(x: Tensor):
    return torch.mm(x, x)


@torch.autocast("cpu", dtype=torch.float16)
@jit_amp.ignore_amp
def around_a_scope(x: Tensor):
    return torch.mm(x, x)


def calls_decorated(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        future = torch.jit.fork(decorated, x)
        a = decorated_with_parentheses(x), decorated_to_heed(x), decorated_to_heed_again(x)
        return decorated(x), a, in_a_scope_of_its_own(x), around_a_scope(x), torch.jit.wait(future)


@pytest.mark.parametrize(
    ("function", "dtypes"),
    [
        (decorated, [F32, F16]),
        (decorated_with_parentheses, [F32]),
        (decorated_to_heed, [BF16]),
        (decorated_to_heed_again, [BF16]),
        (in_a_scope_of_its_own, [F16]),
        (around_a_scope, [F32]),
        (calls_decorated, [F32, F16, F32, BF16, BF16, F16, F32, F32, F16]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_decorated_function_ignores(function: Any, dtypes: list[torch.dtype]) -> None:
    results = assert_parity(function, (X,))
    assert [t.dtype for t in tensors_of(results["cpu"])] == dtypes


def test_a_decorator_leaves_the_function_as_it_was() -> None:
    ignoring = jit_amp.ignore_amp(multiply)
    with torch.autocast("cpu"):
        assert multiply(X).dtype is jit_amp.script(multiply)(X).dtype is BF16
        assert ignoring(X).dtype is jit_amp.script(ignoring)(X).dtype is F32
    assert ignoring.__name__ == "multiply"
    assert jit_amp.ignore_amp(ignoring) is ignoring
    assert jit_amp.ignore_amp(ignoring, ignore=False) is multiply
    assert jit_amp.ignore_amp(multiply, ignore=False) is multiply


@jit_amp.ignore_amp
class Decorated(nn.Module):
    def forward(self, x: Tensor):
        a = torch.mm(x, x)
        with torch.autocast("cpu", dtype=torch.float16):
            return a, torch.mm(x, x)

    @torch.jit.export
    def other(self, x: Tensor):
        return torch.mm(x, x)


class Inherits(Decorated):
    pass


class Overrides(Decorated):
    def forward(self, x: Tensor):
        return torch.mm(x, x), torch.mm(x, x)


@jit_amp.ignore_amp(ignore=False)
class InheritsToHeed(Decorated):
    pass


class DecoratedMethods(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.method(x), self.other(x), torch.mm(x, x)

    @jit_amp.ignore_amp
    def method(self, x: Tensor):
        return torch.mm(x, x)

    @torch.jit.export
    @jit_amp.ignore_amp
    def other(self, x: Tensor):
        return torch.mm(x, x)


class InAScope(nn.Module):
    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleList(inner)

    def forward(self, x: Tensor):
        found: list[Tensor] = []
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for layer in self.inner:
                found += layer(x)
            return found, torch.mm(x, x)


@pytest.mark.parametrize(
    ("module", "dtypes"),
    [
        (Decorated(), [F32, F16]),
        (Inherits(), [F32, F16]),
        (Overrides(), [BF16, BF16]),
        (InheritsToHeed(), [BF16, F16]),
        (DecoratedMethods(), [F32, F32, BF16]),
        (InAScope(Decorated(), InheritsToHeed()), [F32, F16, BF16, F16, BF16]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_decorated_class_or_method_ignores(module: nn.Module, dtypes: list[torch.dtype]) -> None:
    results = assert_parity(module, (X,))
    assert [t.dtype for t in tensors_of(results["cpu"])] == dtypes


def test_a_decorated_class_means_its_forward() -> None:
    module = Decorated()
    scripted = jit_amp.script(module)
    assert_calls_agree(scripted.other, module.other)
    with torch.autocast("cpu"):
        assert scripted.other(X).dtype is BF16


def test_a_module_is_switched_in_place_for_eager_and_for_scripting() -> None:
    module = Layers()
    for path in ("first", "list.1.0", ""):
        reference = switched_off(module, path)
        layer = at(module, path)
        assert jit_amp.ignore_amp(layer) is layer
        assert_calls_agree(module, reference, f"{path}, eager")
        assert_calls_agree(jit_amp.script(module), reference, f"{path}, scripted")
        assert jit_amp.ignore_amp(layer, ignore=False) is layer
        assert type(layer).forward is type(layer).__dict__["forward"]
        assert_calls_agree(jit_amp.script(module), Layers.forward.__get__(module), "no longer")


def test_a_method_of_a_module_is_switched_in_place() -> None:
    module = Layers()
    reference: Any = switched_off(module, "first", "other")
    jit_amp.ignore_amp(module.first.other)
    scripted = jit_amp.script(module)
    for each in (module, scripted):
        assert_calls_agree(each, reference, "forward")
        assert_calls_agree(each.first.other, reference.first.other, "other")
        assert_calls_agree(each.second.other, reference.second.other, "another's")


def test_a_method_of_a_module_is_switched_back_in_place() -> None:
    module = Layers()
    jit_amp.ignore_amp(module.first.other)
    jit_amp.ignore_amp(module.first.other, ignore=False)
    assert_calls_agree(module, Layers.forward.__get__(copy.deepcopy(module)))
    with torch.autocast("cpu"):
        assert module.first.other(X).dtype is BF16


def test_a_module_of_a_decorated_class_is_switched_back_in_place() -> None:
    module, other = Decorated(), Decorated()
    jit_amp.ignore_amp(module, ignore=False)
    with torch.autocast("cpu"):
        for each in (module, jit_amp.script(module)):
            assert each(X)[0].dtype is BF16
        assert other(X)[0].dtype is F32


def test_a_copy_of_a_module_that_ignores_has_its_own_parameters() -> None:
    module = Layer()
    jit_amp.ignore_amp(module)
    other = copy.deepcopy(module)
    other.weight.zero_()
    assert_same(other(X), off(Layer.forward.__get__(other))(X), "the copy")


def pickled(module: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def replica(module: nn.Module) -> Any:
    made = module._replicate_for_data_parallel()  # type: ignore[operator]
    made.first = copy.deepcopy(module.first)
    return made


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, pickled, replica])
@pytest.mark.parametrize(
    ("path", "method"), [("", "forward"), ("first", "forward"), ("first", "other")]
)
@pytest.mark.parametrize("float32", [False, True])
def test_copies_of_a_module_ignore_and_run_what_is_theirs(
    copied: Any, path: str, method: str, float32: bool
) -> None:
    module = Layers()
    reference = switched_off(module, path, method)
    jit_amp.ignore_amp(getattr(at(module, path), method), float32=float32)
    made = copied(module)
    assert isinstance(made, Layers)
    assert_calls_agree(made, reference, "eager")
    assert_calls_agree(jit_amp.script(made), reference, "scripted")
    made._modules = dict(made._modules)  # a shallow copy's is the original's
    made.first = copy.deepcopy(made.first)
    with torch.no_grad():
        made.first.weight.zero_()
    assert not torch.equal(made.first(X)[0], module.first(X)[0])
    jit_amp.ignore_amp(getattr(at(made, path), method), ignore=False)
    assert type(at(made, path)) is type(at(Layers(), path))


def test_a_parametrized_module_ignores_and_is_copied() -> None:
    module = nn.Linear(4, 4)
    jit_amp.ignore_amp(module)
    nn.utils.parametrizations.weight_norm(module)
    made = copy.deepcopy(module)
    with torch.autocast("cpu"):
        assert made(X).dtype is module(X).dtype is F32
        jit_amp.ignore_amp(made, ignore=False)
        assert (made(X).dtype, module(X).dtype) == (BF16, F32)


def test_what_is_switched_after_scripting_is_the_module_and_not_the_scripted_one() -> None:
    module = Layer()
    scripted = jit_amp.script(module)
    jit_amp.ignore_amp(module)
    assert_calls_agree(scripted, Layer.forward.__get__(module))
    jit_amp.ignore_amp(module, ignore=False)
    jit_amp.ignore_amp(scripted)
    assert_calls_agree(jit_amp.script(module), module)


def test_scripting_leaves_a_module_ignoring() -> None:
    module = Layers()
    jit_amp.ignore_amp(module.first)
    kind = type(module.first)
    jit_amp.script(module)
    assert type(module.first) is kind


@pytest.mark.parametrize("method", ["forward", "other"])
def test_a_module_that_ignores_freezes(method: str) -> None:
    module = Layers().eval()
    jit_amp.ignore_amp(getattr(module.first, method))
    frozen = jit_amp.freeze(module, example_inputs=(X,))
    assert_same(frozen(X), module(X), "frozen")
    # Of the two, the first is ignored.
    first, second = (
        (frozen(X)[0][i][0] for i in range(2)) if method == "forward" else frozen(X)[1:3]
    )
    assert [first.dtype, second.dtype] == [F32, BF16]


def test_a_module_of_a_decorated_class_freezes() -> None:
    module = InAScope(Decorated(), InheritsToHeed(), DecoratedMethods()).eval()
    assert_same(jit_amp.freeze(module, example_inputs=(X,))(X), module(X), "frozen")


def test_a_module_that_ignores_is_saved_ignoring() -> None:
    module = InAScope(Decorated())
    buffer = io.BytesIO()
    torch.jit.save(jit_amp.script(module), buffer)
    buffer.seek(0)
    assert_calls_agree(jit_amp.script(torch.jit.load(buffer)), module)


# What cannot be ignored.


def multiply_plainly(x: Tensor):
    return torch.mm(x, x)


def test_what_jit_amp_did_not_script_is_refused() -> None:
    function = torch.jit.script(multiply_plainly)
    module = torch.jit.script(Layers())
    buffer = io.BytesIO()
    torch.jit.save(jit_amp.script(multiply), buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    for ignore in (True, False):
        for plain in (function, module, module.first, module.first.other, loaded):
            with pytest.raises(
                TypeError, match=r"was not scripted by jit_amp: use what jit_amp\.script"
            ):
                jit_amp.ignore_amp(plain, ignore=ignore)
    with torch.autocast("cpu"):
        assert function(X).dtype is module.first.other(X).dtype is BF16


@pytest.mark.parametrize("value", [3, "forward", torch.ones(1)])
def test_what_cannot_be_called_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="takes a function or a module, not"):
        jit_amp.ignore_amp(value)


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("of", [lambda s: s, lambda s: s.forward, lambda s: s.first])
def test_a_module_that_is_gone_takes_its_weights_with_it(of: Any, called: bool) -> None:
    module = Layers()
    weights = [weakref.ref(weight) for weight in module.parameters()]
    others = jit_amp.script(Layers())
    scripted = jit_amp.script(module)
    jit_amp.ignore_amp(of(scripted))
    if called:
        for each in (scripted, others):
            each(X)
    del scripted, module
    gc.collect()
    assert weights
    assert not any(weight() is not None for weight in weights)


def test_modules_that_follow_at_the_address_of_an_ignored_one_heed_autocast() -> None:
    module = Layers()
    expected = [t.dtype for t in tensors_of(jit_amp.script(module)(X))]
    for _ in range(20):
        scripted = jit_amp.script(module)
        assert [t.dtype for t in tensors_of(scripted(X))] == expected
        jit_amp.ignore_amp(scripted.first)
        del scripted
        gc.collect()
