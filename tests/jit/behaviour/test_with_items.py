"""What people write in a `with`: taken as Python takes it, or refused at its line."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, autocast, nn

import jit_amp

from ..support import assert_parity, assert_same, autocast_state, known_warnings_ignored, tree_map

X = torch.rand(2, 8, generator=torch.Generator().manual_seed(0)) - 0.5
AMBIENTS = ("none", "cpu_float16")
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
DEVICE, HALF, USE_AMP = "cpu", torch.bfloat16, True
DTYPES = {"half": torch.bfloat16, "full": torch.float32}
SCOPE = torch.autocast("cpu", dtype=torch.bfloat16)
COUNTS = {"entered": 0}


@dataclasses.dataclass
class Config:
    amp: bool = True
    dtype: str = "bfloat16"
    entered: int = 0


CONFIG = Config()


class Net(nn.Module):
    def __init__(self, amp: bool = True, dtype: str = "bfloat16") -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.flag, self.name, self.dtype = amp, "half", dtype
        self.config = Config(amp, dtype)
        self.arguments = {"device_type": "cpu", "dtype": torch.bfloat16, "enabled": True}
        self.scope = torch.autocast("cpu", dtype=torch.bfloat16)
        self.scopes = {"half": self.scope, "full": nullcontext()}
        self.factory = functools.partial(torch.autocast, "cpu", dtype=torch.bfloat16)


class Constants(Net):
    def forward(self, x: Tensor):
        with torch.autocast(DEVICE, dtype=HALF, enabled=USE_AMP):
            return self.linear(x)


class Helper(Net):
    def maybe_autocast(self, dtype=torch.bfloat16):
        if self.flag:
            return torch.autocast("cpu", dtype=dtype)
        return contextlib.nullcontext()

    def forward(self, x: Tensor):
        with self.maybe_autocast():
            return self.linear(x)


class InheritedHelper(Helper):
    def maybe_autocast(self, dtype=torch.float16):
        return super().maybe_autocast(dtype)


class Configured(Net):
    def forward(self, x: Tensor):
        with torch.autocast(
            "cpu", dtype=getattr(torch, self.config.dtype), enabled=self.config.amp
        ):
            return self.linear(x)


class Looked(Net):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=DTYPES[self.name]):
            return self.linear(x)


class Unpacked(Net):
    def forward(self, x: Tensor):
        with torch.autocast(**self.arguments):
            return self.linear(x)


class Kept(Net):
    def forward(self, x: Tensor):
        with self.scope:
            return self.linear(x)


class KeptInADictionary(Net):
    def forward(self, x: Tensor):
        with self.scopes[self.name] as _:
            return self.linear(x)


class Partial(Net):
    def forward(self, x: Tensor):
        with self.factory(enabled=self.flag):
            return self.linear(x)


class ChosenGradients(Net):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16) if self.flag else torch.no_grad():
            return self.linear(x)


class ChosenByAnIf(Net):
    def forward(self, x: Tensor):
        if self.name == "half":  # noqa: SIM108
            precision_scope = autocast
        else:
            precision_scope = nullcontext
        with precision_scope("cpu"):
            return self.linear(x)


class ChosenByTheInput(Net):
    def forward(self, x: Tensor):
        if x.sum() > 0:
            scope = torch.autocast("cpu", dtype=torch.bfloat16)
        else:
            scope = torch.autocast("cpu", dtype=torch.float16)
        with scope:
            x = self.linear(x)
        return x


class ChosenInALoop(Net):
    def forward(self, x: Tensor):
        scope = torch.autocast("cpu", dtype=torch.bfloat16)
        results = [x]
        for _ in range(3):
            with scope:
                results.append(self.linear(x))
            scope = torch.autocast("cpu", enabled=False)
        return results


class Stacked(Net):
    def forward(self, x: Tensor):
        with ExitStack() as stack:
            if self.flag:
                stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
            y = self.linear(x)
            stack.enter_context(torch.no_grad())
            z = self.linear(y.float())
        return y, z


class StackedInALoop(Net):
    def contexts(self):
        return [torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad()]

    def forward(self, x: Tensor):
        with ExitStack() as stack:
            for context in self.contexts():
                stack.enter_context(context)
            return self.linear(x)


@contextmanager
def amp_context(on: bool) -> Iterator[None]:
    if on:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            yield
    else:
        yield


class Generator(Net):
    def forward(self, x: Tensor):
        with amp_context(USE_AMP):
            return self.linear(x)


class OwnClass:
    def __init__(self, on: bool) -> None:
        self.inner = torch.autocast("cpu", dtype=torch.bfloat16, enabled=on)

    def __enter__(self) -> None:
        self.inner.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.inner.__exit__(*error)


class OwnContext(Net):
    def forward(self, x: Tensor):
        with OwnClass(True):
            return self.linear(x)


class FilledStack(Net):
    def contexts(self):
        stack = ExitStack()
        stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        stack.enter_context(torch.no_grad())
        return stack

    def forward(self, x: Tensor):
        with self.contexts():
            return self.linear(x)


class PropertyScope(Net):
    @property
    def amp(self):
        return torch.autocast("cpu", dtype=torch.bfloat16) if self.config.amp else nullcontext()

    def forward(self, x: Tensor):
        with self.amp:
            return self.linear(x)


class DeviceProperty(Net):
    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def maybe_autocast(self):
        if self.device != torch.device("meta"):
            return torch.autocast("cpu", dtype=torch.bfloat16)
        return nullcontext()

    def forward(self, x: Tensor):
        with self.maybe_autocast(), torch.autocast(self.device.type, dtype=torch.float16):
            return self.linear(x)


class PropertyThatIsNotReached(Net):
    @property
    def first(self) -> Tensor:
        return next(self.parameters())

    @property
    def device(self) -> torch.device:
        return self.first.device

    def maybe_autocast(self):
        if self.config.amp:
            return torch.autocast("cpu", dtype=torch.bfloat16)
        return torch.autocast(self.device.type, enabled=False)

    def forward(self, x: Tensor):
        with self.maybe_autocast():
            return self.linear(x)


class Elements(Net):
    """Of lists and dictionaries that TorchScript holds."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes, self.flags = {"half": torch.bfloat16, "full": torch.float32}, [True, False]

    def forward(self, x: Tensor):
        half = self.dtypes[self.name]
        with torch.autocast("cpu", dtype=half, enabled=self.flags[0] and self.flag):
            y = self.linear(x)
        with torch.autocast("cpu", dtype=self.dtypes.get("half", HALF)):
            z = self.linear(x)
        with torch.autocast("cpu", dtype=HALF) if self.flags[1] else nullcontext():
            return y, z, x @ x.t()


class Member(Net):
    def forward(self, x: Tensor):
        off = self.name not in ("half", "mixed")
        with torch.autocast("cpu", dtype=HALF, enabled=self.name in {"half", "mixed"}):
            y = self.linear(x)
        with torch.autocast("cpu", dtype=HALF, enabled=off):
            return y, self.linear(x)


class Several(Net):
    def forward(self, x: Tensor):
        with (
            self.scope,
            torch.set_grad_enabled(self.training),
            nullcontext(x) as y,
            torch.inference_mode() if not USE_AMP else torch.enable_grad(),
        ):
            return self.linear(y)


class Private(Net):
    __amp = True

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.__amp):
            return self.linear(x)


class DefaultsOutside(Net):
    """The default dtype is that of the place where the object is made."""

    def forward(self, x: Tensor):
        scope = torch.autocast("cpu") if self.flag else nullcontext()
        with torch.autocast("cpu", dtype=torch.float16), scope:
            y = self.linear(x)
        with torch.autocast("cpu", dtype=torch.float16):
            inner = torch.autocast("cpu") if self.flag else nullcontext()
            with inner:
                z = self.linear(x)
        return y, z


class DtypeOfAWeight(Net):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=BF16, enabled=self.linear.weight.dtype == torch.float32):
            return self.linear(x)


class BranchOnAConstant(Net):
    def forward(self, x: Tensor):
        if USE_AMP:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                x = self.linear(x)
        else:
            x = self.linear(x)
        return x


class LocalDtype(Net):
    def forward(self, x: Tensor):
        half = DTYPES[self.name]
        amp = CONFIG.amp
        with torch.autocast("cpu", dtype=half, enabled=amp):
            y = self.linear(x)
        return y.to(half)


class Encoder(Net):
    def encode(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.config.amp):
            return self.linear(x)

    def forward(self, x: Tensor) -> Tensor:
        return x


class CallsParts(nn.Module):
    """Two of one class, whose methods have scopes of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Encoder(False), Encoder(True)
        self.layers = nn.ModuleList(
            [Configured(True), Configured(False), Configured(True, "float16")]
        )

    def forward(self, x: Tensor):
        results = [self.first.encode(x), self.second.encode(x)]
        for layer in self.layers:
            results.append(layer(x))
        return results


class Computes(Net):
    """What is computed on the way to a scope is left as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {"calls": 0, "rows": 1}

    def forward(self, x: Tensor):
        self.counts["calls"] += 1
        x = x * self.counts["calls"] + draw()
        rows = self.counts["rows"] + draw().numel()
        if rows > 100 or x.sum() > 100:
            with torch.autocast(x.device.type, dtype=HALF):
                x = self.linear(x)
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return self.linear(x)


def draw():
    return torch.rand(2)[0]


def scope_of(dtype: torch.dtype):
    return torch.autocast("cpu", dtype=dtype)


def with_a_global(x: Tensor):
    with SCOPE:
        y = x @ x.t()
    with scope_of(torch.float16):
        return y, x @ x.t()


def calls_with_a_global(x: Tensor):
    return with_a_global(x), x @ x.t()


@torch.autocast("cpu", dtype=torch.float16)
def decorated(x: Tensor):
    with scope_of(HALF):
        y = x @ x.t()
    return y, x @ x.t()


def closed_over() -> Callable[..., Any]:
    settings = types.SimpleNamespace(dtype=torch.bfloat16)

    def inside(x: Tensor):
        with torch.autocast("cpu", dtype=settings.dtype):
            return x @ x.t()

    return inside


NETS = [
    value
    for value in list(globals().values())
    if isinstance(value, type) and issubclass(value, nn.Module) and hasattr(value, "forward")
    if value.__module__ == __name__ and value not in (Net, Computes)
]


@pytest.mark.parametrize("kind", NETS, ids=lambda kind: kind.__name__)
def test_a_scope_is_what_it_is_in_eager(kind: type) -> None:
    torch.manual_seed(0)
    assert_parity(kind().eval(), (X,), ambients=AMBIENTS)


def test_what_is_computed_on_the_way_to_a_scope_is_left_as_it_is() -> None:
    assert_parity(Computes().eval(), (X,), ambients=AMBIENTS)


@pytest.mark.parametrize("kind", NETS, ids=lambda kind: kind.__name__)
def test_what_is_frozen_has_it_too(kind: type) -> None:
    torch.manual_seed(0)
    net = kind().eval()
    frozen = jit_amp.freeze(net, example_inputs=(X,), optimize_numerics=False)
    with torch.no_grad():
        expected = net(X)
    for _ in range(3):
        assert_same(frozen(X), tree_map(Tensor.detach, expected), "frozen")


@pytest.mark.parametrize("kind", [Helper, Configured, Looked, Kept, Stacked, ChosenByAnIf])
def test_export_has_it_too(kind: type) -> None:
    torch.manual_seed(0)
    net = kind().eval()
    assert_same(jit_amp.export(net, (X,)).module()(X), net(X), "exported")


@pytest.mark.parametrize("kind", [Helper, Configured, Kept, Stacked])
def test_installed_it_is_torchs_script(kind: type) -> None:
    net = kind().eval()
    with jit_amp.install():
        scripted = torch.jit.script(net)
    assert_same(scripted(X), net(X), "installed")


@pytest.mark.parametrize("kind", [Helper, Configured, Kept, Partial, KeptInADictionary])
def test_what_is_saved_has_the_scope_in_its_source(kind: type, tmp_path: Any) -> None:
    net = kind().eval()
    jit_amp.script(net).save(str(tmp_path / "net.pt"))
    loaded = jit_amp.script(torch.jit.load(str(tmp_path / "net.pt")))
    assert_same(loaded(X), net(X), "loaded")


@pytest.mark.parametrize("function", [with_a_global, calls_with_a_global, decorated, closed_over()])
def test_a_function_with_scopes_of_its_file(function: Callable[..., Any]) -> None:
    assert_parity(function, (X,), ambients=AMBIENTS)


@torch.jit.script_if_tracing
def compiled_when_traced(x: Tensor):
    with scope_of(HALF):
        y = x @ x.t()
    return y


class WithCompiledParts(Kept):
    @torch.jit.export
    def other(self, x: Tensor):
        with scope_of(HALF), self.scope:
            return x @ x.t()

    @torch.jit.export
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def decorated(self, x: Tensor):
        return x @ x.t()

    def forward(self, x: Tensor):
        with self.scope:
            return self.linear(x), compiled_when_traced(x.float())


@pytest.mark.parametrize("trace", [jit_amp.trace, "installed"])
def test_what_a_trace_compiles_has_its_scopes(trace: Any) -> None:
    net = WithCompiledParts().eval()
    if trace == "installed":
        with jit_amp.install():
            traced: Any = torch.jit.trace(net, (X,))
    else:
        traced = trace(net, (X,))
    for _ in range(3):
        assert_same(traced(X), net(X), "traced")
        assert_same(traced.other(X), net.other(X), "exported")
        assert_same(traced.decorated(X), net.decorated(X), "exported, decorated")


# What changes afterwards.


def test_an_attribute_that_is_written_out_is_asked_when_it_runs() -> None:
    class Live(Net):
        @property
        def is_on(self) -> bool:
            return self.flag

        def forward(self, x: Tensor):
            with torch.autocast("cpu", dtype=HALF, enabled=self.is_on and USE_AMP):
                y = self.linear(x)
            with self.factory(enabled=not self.flag):
                return y, self.linear(x)

    scripted, net = jit_amp.script(Live()), Live()
    for flag in (True, False, True):
        scripted.flag = net.flag = flag
        assert [t.dtype for t in scripted(X)] == [t.dtype for t in net(X)]


def test_a_config_object_is_what_it_was_until_it_is_scripted_again() -> None:
    net = Configured()
    first = jit_amp.script(net)
    net.config.amp = False
    second = jit_amp.script(net)
    net.config.amp, net.config.dtype = True, "float16"
    third = jit_amp.script(net)
    assert [each(X).dtype for each in (first, second, third)] == [BF16, F32, F16]
    assert [each(X).dtype for each in (first, second, third)] == [BF16, F32, F16]


def test_a_global_is_what_it_was_until_it_is_scripted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = sys.modules[__name__]
    net, dtypes, of_functions = Constants(), [], []
    for dtype in (torch.float16, torch.bfloat16, torch.float16):
        monkeypatch.setattr(module, "HALF", dtype)
        monkeypatch.setattr(module, "SCOPE", torch.autocast("cpu", dtype=dtype))
        dtypes.append(jit_amp.script(net)(X).dtype)
        of_functions.append(jit_amp.script(calls_with_a_global)(X)[0][0].dtype)
    assert dtypes == of_functions == [F16, BF16, F16]


def test_a_global_of_a_function_that_a_module_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    class Calls(Net):
        def forward(self, x: Tensor):
            return calls_with_a_global(self.linear(x))

    module = sys.modules[__name__]
    for dtype in (torch.float16, torch.bfloat16, torch.float16):
        monkeypatch.setattr(module, "SCOPE", torch.autocast("cpu", dtype=dtype))
        assert jit_amp.script(Calls())(X)[0][0].dtype == dtype


def test_a_helper_that_is_replaced_counts_when_it_is_scripted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Helper()
    assert jit_amp.script(net)(X).dtype == BF16
    monkeypatch.setattr(
        Helper, "maybe_autocast", lambda self: torch.autocast("cpu", dtype=torch.float16)
    )
    assert jit_amp.script(net)(X).dtype == F16
    monkeypatch.setattr(sys.modules[__name__], "scope_of", lambda dtype: nullcontext())
    assert jit_amp.script(with_a_global)(X)[1].dtype == F32


def test_a_weight_that_a_scope_asks_is_checked_when_it_runs() -> None:
    scripted = jit_amp.script(DtypeOfAWeight())
    assert scripted(X).dtype == BF16
    scripted.double()
    with pytest.raises(torch.jit.Error, match=r"linear.weight.dtype was torch.float32 .*script it"):
        scripted(X.double())


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("flags", [False, False], r"self\.flags\[0\] was True"),
        ("name", "full", r"self\.dtypes\[self\.name\] was torch\.bfloat16"),
        ("dtypes", {"half": F16}, r"self\.dtypes\[self\.name\] was torch\.bfloat16"),
    ],
)
def test_an_element_is_checked_when_it_runs(name: str, value: Any, told: str) -> None:
    scripted, net = jit_amp.script(Elements()), Elements()
    setattr(scripted, name, value)
    with pytest.raises(torch.jit.Error, match=told + " .*script it again"):
        scripted(X)
    setattr(net, name, value)
    if name == "dtypes":
        assert jit_amp.script(net)(X)[0].dtype == F16


def test_an_element_that_decides_about_a_branch_is_asked_when_it_runs() -> None:
    scripted = jit_amp.script(Elements())
    scripted.flags = [True, True]
    assert [each.dtype for each in scripted(X)] == [BF16, BF16, BF16]


def test_a_name_that_is_one_of_several_is_asked_when_it_runs() -> None:
    scripted, net = jit_amp.script(Member()), Member()
    for name in ("mixed", "full", "half"):
        scripted.name = net.name = name
        assert [t.dtype for t in scripted(X)] == [t.dtype for t in net(X)]


def test_instances_of_one_class_share_a_type_where_their_scopes_are_the_same() -> None:
    layers = nn.Sequential(*(Configured(amp) for amp in (True, False, True, False)))
    types_ = [each._c._type() for each in jit_amp.script(layers).children() if hasattr(each, "_c")]
    first, second, third, fourth = types_
    assert first == third and second == fourth and first != second
    assert next(jit_amp.script(layers).children())._c._type() == first


# What is refused.


def refused(obj: Any) -> str:
    with pytest.raises(jit_amp.AutocastError) as error, known_warnings_ignored():
        jit_amp.script(obj)
    text = str(error.value)
    assert f'{__file__}", line ' in text and "\n    with " in text.replace(
        "        with", "    with"
    )
    return text


class ForAnInput(Net):
    def scope_for(self, x: Tensor):
        return torch.autocast(x.device.type, dtype=torch.bfloat16)

    def forward(self, x: Tensor):
        with self.scope_for(x):
            return self.linear(x)


class Counting(Net):
    def counting(self):
        self.config.entered += 1
        return self.scope

    def forward(self, x: Tensor):
        with self.counting():
            return self.linear(x)


def counts_globally():
    COUNTS["entered"] += 1
    return SCOPE


class CountingGlobally(Net):
    def forward(self, x: Tensor):
        with counts_globally():
            return self.linear(x)


class Dicing(Net):
    def diced(self):
        return torch.autocast("cpu", dtype=BF16, enabled=random.random() > 0.5)

    def forward(self, x: Tensor):
        with self.diced():
            return self.linear(x)


class Raising(Net):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=DTYPES[self.dtype]):
            return self.linear(x)


@contextmanager
def timed() -> Iterator[None]:
    before = time.perf_counter()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield
    print(time.perf_counter() - before)


class Timed(Net):
    def forward(self, x: Tensor):
        with timed():
            return self.linear(x)


class Asking(Net):
    def opposite(self):
        return torch.autocast("cpu", enabled=not torch.is_autocast_enabled("cpu"))

    def forward(self, x: Tensor):
        with self.opposite():
            return self.linear(x)


class Pushing(Net):
    def forward(self, x: Tensor):
        with ExitStack() as stack:
            stack.push(torch.autocast("cpu"))
            return self.linear(x)


class Suppressing(Net):
    def forward(self, x: Tensor):
        with contextlib.suppress(ValueError), self.scope:
            return self.linear(x)


class Switching(Helper):
    """What the scope depends on changes at each call."""

    def forward(self, x: Tensor):
        self.flag = not self.flag
        with self.maybe_autocast():
            return self.linear(x)


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        (ForAnInput, 101, "`x` in `self.scope_for(x)` is known only at run time"),
        (Counting, 124, "`self.counting()`, a scope that changes `self.config.entered`"),
        (CountingGlobally, 124, "`counts_globally()`, a scope that changes `COUNTS['entered']`"),
        (Dicing, 124, "`self.diced()`, a scope that changes the random state"),
        (Raising, 123, "raises an error where it is evaluated: KeyError: 'bfloat16'"),
        (Timed, 125, "`timed()`, a context manager that is more than scopes of autocast: it calls"),
        (Asking, 101, "`torch.is_autocast_enabled()` in `self.opposite()`"),
        (Pushing, 126, "`stack.push("),
        (Suppressing, 125, "catches exceptions"),
        (Switching, 116, "rests on `self.flag`, which the module's own code assigns"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_and_leaves_all_as_it_was(
    kind: type, code: int, said: str
) -> None:
    net = kind()
    before = autocast_state(), random.getstate(), dict(COUNTS), net.config.entered, sys.getprofile()
    assert f"[JA{code}]" in (text := refused(net)) and said in text
    now = autocast_state(), random.getstate(), dict(COUNTS), net.config.entered, sys.getprofile()
    assert now == before


class EntersByHand(Net):
    def forward(self, x: Tensor):
        self.scope.__enter__()
        y = self.linear(x)
        self.scope.__exit__(None, None, None)
        return y


class ReturnsTheChoice(Net):
    def forward(self, x: Tensor):
        scope = torch.autocast("cpu") if self.flag else contextlib.nullcontext()
        with scope:
            y = self.linear(x)
        return y, scope


class PassesAScope(Net):
    def inner(self, x: Tensor, given):
        with given:
            return self.linear(x)

    def forward(self, x: Tensor):
        return self.inner(x, torch.autocast("cpu"))


@pytest.mark.parametrize(
    ("kind", "code", "line"),
    [
        (EntersByHand, 117, "self.scope.__enter__()"),
        (ReturnsTheChoice, 112, "contextlib.nullcontext()"),
        (PassesAScope, 111, "with given:"),
    ],
)
def test_an_object_that_is_no_with_item_is_refused_at_its_line(
    kind: type, code: int, line: str
) -> None:
    with pytest.raises(jit_amp.AutocastError, match=rf"JA{code}") as error:
        jit_amp.script(kind())
    assert line in str(error.value) and __file__ in str(error.value)


def test_a_scope_that_is_never_compiled_is_not_refused() -> None:
    class Never(Net):
        def forward(self, x: Tensor):
            if torch.jit.is_scripting():
                return self.linear(x)
            with timed():
                return self.linear(x)

    assert jit_amp.script(Never())(X).dtype == F32


def test_an_expression_is_evaluated_once() -> None:
    calls: list[str] = []

    class Seen(Helper):
        def maybe_autocast(self, dtype=torch.bfloat16):
            seen(calls)
            return torch.autocast("cpu", dtype=dtype)

    assert jit_amp.script(Seen())(X).dtype == BF16
    assert len(calls) == 1


def seen(calls: list[str]) -> None:
    """What no comparison of the module and of its file shows."""
    calls.append("called")
