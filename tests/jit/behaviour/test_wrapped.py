"""What stands between the call of a module and the function that TorchScript compiles."""

from __future__ import annotations

import functools
import types
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_gradient_parity, assert_parity, assert_same
from . import wrappers
from .wrappers import REDUCED, prepared, prepared_bound

X = torch.randn(3, 8)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).relu())


class Results(NamedTuple):
    one: Tensor
    some: list[Tensor]


class Many(Net):
    def forward(
        self, x: Tensor, y: Tensor | None = None
    ) -> tuple[Results, dict[str, Tensor], Tensor | None, int, Tensor]:
        h = self.first(x)
        return Results(self.last(h), [h, x]), {"h": h}, y, 3, h.double()


class HalfInside(Net):
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            y = self.first(x)
        return self.last(y)


class Pipeline(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part, self.out = part, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.part(x).float())


def installed(module: nn.Module) -> Any:
    with jit_amp.install():
        return torch.jit.script(module)


DOORS: dict[str, Any] = {
    "script": jit_amp.script,
    "install": installed,
    "freeze": lambda m: jit_amp.freeze(m, example_inputs=(X,), optimize_numerics=False),
    "export": lambda m: jit_amp.export(m, (X,)).module(),
    "trace": lambda m: jit_amp.trace(m, (X,)),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "module",
    [
        prepared(Net()),
        prepared_bound(Net()),
        prepared(HalfInside()),
        Pipeline(prepared(Net())),
        prepared(Pipeline(prepared(Net()))),
        prepared(prepared(Net())),
    ],
    ids=["prepared", "bound", "half inside", "a part", "nested", "twice"],
)
def test_a_prepared_module_is_as_eager(module: nn.Module, door: str) -> None:
    module.eval()
    with torch.no_grad():
        made = DOORS[door](module)
        for call in range(3):
            assert module(X).dtype is torch.float32
            assert_same(made(X), module(X), f"{door}, call {call + 1}")


@pytest.mark.parametrize("module", [prepared(Net()), prepared_bound(Net()), prepared(Many())])
def test_a_prepared_module_is_as_eager_around_each_autocast(module: nn.Module) -> None:
    assert_parity(module, (X,))


def test_gradients_of_a_prepared_module_are_eagers() -> None:
    assert_gradient_parity(prepared(Net()), (X,))


def test_a_prepared_module_and_its_original_are_of_two_types() -> None:
    net = Net()
    modules = (net, prepared(net), net, prepared_bound(net))
    for module in modules:
        assert_same(jit_amp.script(module)(X), module(X), "of two")


def test_what_casts_results_and_is_not_known_is_refused() -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"`Net.forward` has a decorator.*JA118"):
        jit_amp.script(prepared(Net(), wrappers.InFloat32))


def decorated_by(decorator: Any) -> nn.Module:
    class Decorated(Net):
        def __init__(self) -> None:
            super().__init__()
            self.scope = functools.partial(torch.autocast, "cpu", dtype=torch.bfloat16)
            self.scopes = {"half": self.scope}
            precision = types.SimpleNamespace(context=lambda: REDUCED)
            self.trainer = types.SimpleNamespace(precision=precision)

        @decorator
        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x))

    return Decorated().eval()


ENTERING = {
    "of self": wrappers.own_scope,
    "of a part": wrappers.scope_of_a_part,
    "in a dictionary": wrappers.scope_in_a_dictionary,
    "of a helper": wrappers.entering(lambda module: module.scope()),
    "by its name": wrappers.by_its_name,
    "imported inside": wrappers.imported_inside,
    "imported by name": wrappers.imported_by_name,
    "in a stack": wrappers.in_a_stack,
    "of an argument": wrappers.of_an_argument,
    "by hand": wrappers.by_hand,
    "a context decorator": wrappers.Entering(),
    "a gradient mode that does more": wrappers.EnteringToo(),
    "an object": wrappers.Called,
    "a proxy": wrappers.proxied,
}


@pytest.mark.parametrize("decorator", ENTERING.values(), ids=ENTERING)
def test_a_decorator_that_may_enter_autocast_is_refused(decorator: Any) -> None:
    module = decorated_by(decorator)
    if decorator is not wrappers.by_hand:  # a trace knows scopes
        with torch.no_grad():
            assert_same(jit_amp.trace(module, (X,))(X), module(X), "traced")
    for make in (jit_amp.script, installed, lambda m: jit_amp.freeze(m, example_inputs=(X,))):
        for each in (module, Pipeline(module).eval()):
            with pytest.raises(jit_amp.AutocastError, match=r"forward` has a decorator") as error:
                make(each)
            assert "JA118" in str(error.value) and "test_wrapped.py" in str(error.value)


def test_a_decorator_that_enters_no_autocast_is_as_plain() -> None:
    module = decorated_by(wrappers.harmless)
    assert_same(jit_amp.script(module)(X), module(X), "harmless")
    module = decorated_by(lambda function: REDUCED(wrappers.harmless(function)))
    assert_same(jit_amp.script(module)(X), module(X), "harmless, below a scope")


class CallsInHalf(Net):
    def __call__(self, *args: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().__call__(*args)


class CallsInItsScope(Net):
    def __init__(self) -> None:
        super().__init__()
        self.scope = functools.partial(torch.autocast, "cpu", dtype=torch.bfloat16)

    def _call_impl(self, *args: Any) -> Any:
        with self.scope():
            return super()._call_impl(*args)


class CallsDecorated(Net):
    @REDUCED
    def __call__(self, *args: Any) -> Any:
        return super().__call__(*args)


class CallsAsEver(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.last(self.first(x))

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x)


@pytest.mark.parametrize("cls", [CallsInHalf, CallsInItsScope, CallsDecorated])
def test_a_call_of_its_own_that_enters_autocast_is_refused(cls: type[nn.Module]) -> None:
    module = cls().eval()
    assert_same(jit_amp.trace(module, (X,))(X), module(X), "traced")
    for each in (module, Pipeline(module)):
        with pytest.raises(jit_amp.AutocastError, match=rf"`{cls.__name__}` has a `_.*JA118"):
            jit_amp.script(each)


def test_a_call_of_its_own_that_enters_none_is_as_plain() -> None:
    assert_parity(CallsAsEver(), (X,))


class Wraps(nn.Module):
    """As the module that Fabric returns."""

    def __init__(self, module: nn.Module, plugin: Any) -> None:
        super().__init__()
        self.module, self.plugin = module, plugin

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self.plugin.context():
            return self.module(*args, **kwargs)


class Plugin:
    def context(self) -> Any:
        return torch.autocast("cpu", dtype=torch.bfloat16)


class NoPlugin:
    def context(self) -> Any:
        return wrappers.named("none")


def test_a_module_around_another_is_refused_by_the_line_of_that() -> None:
    module = Wraps(Net(), Plugin())
    with pytest.raises(jit_amp.AutocastError, match=r"`Wraps.forward` has `\*args`") as error:
        jit_amp.script(module)
    assert "def forward(self, x: Tensor) -> Tensor:" in str(error.value)
    assert_same(jit_amp.trace(module.eval(), (X,))(X), module(X), "traced")
    with pytest.raises(torch.jit.frontend.NotSupportedError, match="variable number"):
        jit_amp.script(Wraps(Net(), NoPlugin()))


# Compiled before by PyTorch, which keeps what it has by function and by class.


@torch.amp.custom_fwd(cast_inputs=torch.float32, device_type="cpu")
def in_float32(x: Tensor):
    return x @ x.t()


def calls_in_float32(x: Tensor):
    return in_float32(x) * 2


@torch.amp.custom_fwd(device_type="cpu")
def keeps_its_state(x: Tensor):
    return x @ x.t()


@torch.no_grad()
def without_gradients(x: Tensor):
    return x @ x.t()


def calls_without_gradients(x: Tensor):
    return without_gradients(x) + x.sum()


def functions_in_a_module(function: Any) -> nn.Module:
    class Calls(nn.Module):
        def forward(self, x: Tensor):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return function(x * 1.5)

    return Calls()


@pytest.mark.parametrize("is_compiled_before", [False, True])
@pytest.mark.parametrize("function", [in_float32, calls_in_float32])
def test_custom_fwd_that_casts_is_refused_also_if_compiled_before(
    function: Any, is_compiled_before: bool
) -> None:
    for each in (function, functions_in_a_module(function)):
        if is_compiled_before:
            torch.jit.script(each)
        for _ in range(2):
            with pytest.raises(jit_amp.AutocastError, match=r"`in_float32` has a.*JA118"):
                jit_amp.script(each)
            with pytest.raises(jit_amp.AutocastError, match="JA118"):
                jit_amp.script(functions_in_a_module(function))


class CallsAFunction(nn.Module):
    """Without a scope of its own, so that PyTorch's type of it would do."""

    def forward(self, x: Tensor):
        return calls_in_float32(x)


class WithoutGradients(nn.Module):
    def forward(self, x: Tensor):
        return calls_without_gradients(x)


class OwnDecorator(nn.Module):
    @wrappers.by_its_name
    def forward(self, x: Tensor):
        return x @ x.t()


@pytest.mark.parametrize("cls", [CallsAFunction, OwnDecorator])
def test_a_module_of_a_class_that_pytorch_has_compiled_is_refused(cls: type[nn.Module]) -> None:
    torch.jit.script(cls())
    for _ in range(2):
        with pytest.raises(jit_amp.AutocastError, match="JA118"):
            jit_amp.script(cls())


def test_a_gradient_mode_is_kept_where_pytorch_has_compiled_it_before() -> None:
    x = torch.randn(3, 3, requires_grad=True)
    torch.jit.script(WithoutGradients())
    for function in (without_gradients, calls_without_gradients, WithoutGradients()):
        torch.jit.script(function)
        scripted = jit_amp.script(function)
        for _ in range(3):
            assert scripted(x).requires_grad == function(x).requires_grad
            assert_same(scripted(x), function(x), "compiled before")


def test_custom_fwd_that_casts_nothing_changes_nothing() -> None:
    assert_parity(keeps_its_state, (X,))
    assert_parity(functions_in_a_module(keeps_its_state), (X,))
