"""Scopes that differ between instances of one class, or that change after scripting."""

import contextlib
import cProfile
import dataclasses
import gc
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import AMBIENTS, DEFAULT, assert_same, known_warnings_ignored

X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))


def assert_agrees(scripted: Any, eager: Any) -> None:
    for name in DEFAULT:
        for _ in range(3):
            with AMBIENTS[name](), known_warnings_ignored():
                assert_same(scripted(X), eager(X), f"ambient {name}")


class Settings:
    def __init__(self, dtype: torch.dtype = torch.bfloat16, enabled: bool = True) -> None:
        self.dtype, self.enabled = dtype, enabled


class Block(nn.Module):
    def __init__(self, *settings: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.settings = Settings(*settings)

    def maybe_autocast(self) -> Any:
        if self.settings.enabled:
            return torch.autocast("cpu", dtype=self.settings.dtype)
        return contextlib.nullcontext()

    def encode(self, x: Tensor) -> Tensor:
        with self.maybe_autocast():
            return self.linear(x)

    def forward(self, x: Tensor) -> Tensor:
        return x


class Pair(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.first, self.second = kind(torch.float16), kind(torch.bfloat16, False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(x), self.second(x)


def hook(self: Any, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    with self.maybe_autocast():
        return torch.mm(output, output)


def pre_hook(self: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
    with self.maybe_autocast():
        return (torch.mm(inputs[0], inputs[0]).float() * 3,)


class Hooked(Block):
    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.register_forward_hook(hook)


class PreHooked(Block):
    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.register_forward_pre_hook(pre_hook)


class ByName(Block):
    def forward(self, x: Tensor) -> Tensor:
        return getattr(self, "encode")(x)  # noqa: B009


@pytest.mark.parametrize("kind", [Hooked, PreHooked, ByName])
def test_instances_of_one_class_have_scopes_of_their_own(kind: Any) -> None:
    module = Pair(kind)
    assert_agrees(jit_amp.script(module), module)


class ByNameOfParts(Pair):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return getattr(self.first, "encode")(x), getattr(self.second, "encode")(x)  # noqa: B009


class MethodsInNames(Pair):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        encode = self.first.encode
        other = self.second.encode
        return encode(x), other(x)


@pytest.mark.parametrize("kind", [ByNameOfParts, MethodsInNames])
def test_methods_of_parts_are_found_however_they_are_asked(kind: Any) -> None:
    module = kind(Block)
    assert_agrees(jit_amp.script(module), module)


depth = 0


class Changing(Block):
    """Its scopes change something for as long as they are open."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.scale, self.name = 1.0, name

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        global depth
        if self.name == "attribute":
            self.scale = 2.0
        elif self.name == "object":
            self.settings.enabled = False
        else:
            depth += 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            yield
        self.scale, self.settings.enabled, depth = 1.0, True, 0

    def forward(self, x: Tensor) -> Tensor:
        with self.scope(), self.maybe_autocast():
            return self.linear(x) * self.scale


@pytest.mark.parametrize("name", ["attribute", "object", "global"])
def test_a_scope_that_changes_something_while_it_is_open_is_refused(name: str) -> None:
    module = Changing(name)
    with pytest.raises(jit_amp.AutocastError, match=r"JA12[45](.|\n)*with self.scope\(\)"):
        jit_amp.script(module)
    assert (module.scale, module.settings.enabled, depth) == (1.0, True, 0)


class Encoding(Block):
    def forward(self, x: Tensor) -> Tensor:
        return self.encode(x)


def test_weights_may_be_inference_tensors() -> None:
    with torch.inference_mode():
        module = Encoding()
    assert_agrees(jit_amp.script(module), module)


class Plain:
    enabled = True

    def __init__(self) -> None:
        self.dtype = torch.bfloat16


class Switched(nn.Module):
    """Its scopes depend on attributes that TorchScript holds, by code that it does not compile."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.settings, self.plain = Settings(), Plain()
        self.use, self.name, self.dtype = True, "bfloat16", torch.bfloat16

    def scope(self) -> Any:
        is_on = self.training and self.use
        return torch.autocast("cpu", dtype=self.settings.dtype, enabled=is_on)

    def is_on(self) -> bool:
        return self.plain.enabled and self.training


class InAHelper(Switched):
    def forward(self, x: Tensor) -> Tensor:
        with self.scope():
            return self.linear(x)


class InAName(Switched):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scope = self.scope()
        with torch.autocast("cpu", dtype=torch.float16):
            x = x + 1
            with scope:
                y = torch.mm(x, x)
        with scope:
            return y, torch.mm(x, x)


class InABranch(Switched):
    def forward(self, x: Tensor) -> Tensor:
        if self.is_on():
            with torch.autocast("cpu", dtype=self.plain.dtype):
                return self.linear(x)
        return self.linear(x)


class InALocal(Switched):
    def forward(self, x: Tensor) -> Tensor:
        is_on = self.is_on()
        with torch.autocast("cpu", dtype=self.plain.dtype, enabled=is_on):
            return self.linear(x)


@pytest.mark.parametrize("kind", [InAHelper, InAName, InABranch, InALocal])
def test_scopes_that_depend_on_an_attribute_tell_that_it_has_changed(kind: Any) -> None:
    module = kind()
    scripted = jit_amp.script(module)
    assert_agrees(scripted, module)
    scripted.eval()
    with pytest.raises(torch.jit.Error, match=r"self.training was True .* script it again"):
        scripted(X)
    assert_agrees(jit_amp.script(module.eval()), module)


class ByDtype(Switched):
    def scope(self) -> Any:
        return torch.autocast("cpu", dtype=self.dtype, enabled=self.settings.enabled)

    def forward(self, x: Tensor) -> Tensor:
        with self.scope():
            return self.linear(x)


class ByText(Switched):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=getattr(torch, self.name)):
            return self.linear(x)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(ByDtype, "dtype", torch.float16), (ByText, "name", "float16")],
)
def test_scopes_tell_that_an_attribute_has_changed(kind: Any, name: str, value: Any) -> None:
    module = kind()
    scripted = jit_amp.script(module)
    assert_agrees(scripted, module)
    setattr(scripted, name, value)
    with pytest.raises(torch.jit.Error, match=f"self.{name} was .* script it again"):
        scripted(X)


autocast: Any = torch.autocast


def multiplied(x: Tensor) -> Tensor:
    with autocast("cpu", dtype=torch.bfloat16):
        return torch.mm(x, x)


def calls_multiplied(x: Tensor) -> Tensor:
    return multiplied(x)


class CallsMultiplied(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return calls_multiplied(x)


def nothing(*arguments: Any, **named: Any) -> Any:
    return contextlib.nullcontext()


def test_functions_follow_a_name_that_becomes_another_scope(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = CallsMultiplied()
    for value in (torch.autocast, nothing, torch.autocast):
        monkeypatch.setitem(globals(), "autocast", value)
        for each in (calls_multiplied, module):
            assert_agrees(jit_amp.script(each), each)


def test_scripting_under_a_profiler_leaves_it_on() -> None:
    profile = cProfile.Profile()
    module = Encoding()
    with profile:
        scripted = jit_amp.script(module)
        profiler = sys.getprofile()
    assert profiler is profile
    assert_agrees(scripted, module)


class OfScripted(Block):
    def __init__(self) -> None:
        super().__init__(torch.float16)
        self.part: Any = jit_amp.script(Encoding())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with self.maybe_autocast():
            return self.part(x), self.part.encode(x)


def test_parts_may_be_scripted() -> None:
    module = OfScripted()
    assert_agrees(jit_amp.script(module), module)


@dataclasses.dataclass
class Options:
    enabled: bool
    dtype: torch.dtype = torch.bfloat16


class ReturnsEarly(nn.Module):
    def __init__(self, enabled: bool) -> None:
        super().__init__()
        self.linear, self.settings = nn.Linear(4, 4), Options(enabled)

    def forward(self, x: Tensor) -> Tensor:
        if not self.settings.enabled:
            return self.linear(x)
        with torch.autocast("cpu", dtype=self.settings.dtype):
            return self.linear(x)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_branch_that_returns_may_ask_what_torchscript_does_not_hold(enabled: bool) -> None:
    module = ReturnsEarly(enabled)
    assert_agrees(jit_amp.script(module), module)


class ReturnsInAScope(Block):
    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if x.shape[0] < 2:
                return x
            y = self.linear(x)
        return y


def test_what_pytorch_fails_on_is_told_with_the_users_line() -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"JA208(.|\n)*\n +return x"):
        jit_amp.script(ReturnsInAScope())


class Cached(nn.Module):
    """State that is empty, or None, when it is scripted, and decides about what a scope asks."""

    kept: dict[str, Tensor]
    slots: dict[str, list[Tensor | None]]
    history: list[Tensor]
    lists: dict[str, list[Tensor]]

    def __init__(self) -> None:
        super().__init__()
        self.kept, self.history, self.slots, self.lists = {}, [], {"a": [None]}, {"a": []}


class InADictionary(Cached):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            if "k" in self.kept:
                x = x + self.kept["k"]
            self.kept["k"] = x
            return x @ x


class InAList(Cached):
    def forward(self, x: Tensor) -> Tensor:
        if len(self.history) > 0:
            x = x + self.history[-1]
        self.history.append(x)
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return x @ x


class InAListOfADictionary(Cached):
    def forward(self, x: Tensor) -> Tensor:
        slot = self.slots["a"][0]
        if slot is not None:
            x = x + slot
        self.slots["a"][0] = x
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return x @ x


class ByAnotherName(Cached):
    def forward(self, x: Tensor) -> Tensor:
        slots = self.slots["a"]
        slot = slots[0]
        if slot is not None:
            x = x + slot
        slots[0] = x
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return x @ x


class InAnEmptyListOfADictionary(Cached):
    def forward(self, x: Tensor) -> Tensor:
        if len(self.lists["a"]) > 0:
            x = x + self.lists["a"][0]
        self.lists["a"].append(x)
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return x @ x


@pytest.mark.parametrize("make", [jit_amp.script, lambda m: jit_amp.freeze(m.eval())])
@pytest.mark.parametrize("kind", Cached.__subclasses__(), ids=lambda kind: kind.__name__)
def test_state_that_is_empty_when_it_is_scripted_is_no_setting(kind: Any, make: Any) -> None:
    eager, made = kind(), make(kind())
    for call in range(4):
        with torch.no_grad(), known_warnings_ignored():
            assert_same(made(X), eager(X), f"call {call}")


@contextlib.contextmanager
def on_what_is_there() -> Iterator[None]:
    """As accelerate's and others' helpers find their device."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.autocast(device, dtype=torch.bfloat16):
        yield


class OnWhatIsThere(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with on_what_is_there():
            return x @ x


@pytest.mark.skipif(torch.cuda.is_available(), reason="a builtin stands in for the driver")
def test_a_helper_may_ask_the_driver_for_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a build for CUDA that is a function in C, and it changes nothing that a scope is about."""
    asks_the_driver = gc.isenabled  # says no while an expression is evaluated
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", asks_the_driver, raising=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "_nvml_based_avail", lambda: False)
        scripted = jit_amp.script(OnWhatIsThere())
    monkeypatch.undo()
    for _ in range(3):
        assert_same(scripted(X), OnWhatIsThere()(X), "asked")
