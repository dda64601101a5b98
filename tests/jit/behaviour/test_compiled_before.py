"""What PyTorch compiled before: decorators that it has forgotten, an autocast around a trace of it,
functions, classes of torch.jit.ScriptModule, and constants of another default dtype."""

import contextlib
import copy
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same, known_warnings_ignored, operators, saved_and_loaded

BF16, F32 = torch.bfloat16, torch.float32


@pytest.fixture(autouse=True)
def _no_trace_of_what_is_scripted() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The input to trace is already a ScriptModule")
        yield


def autocast(enabled: bool = True) -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))


class Decorated(Part):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))


class DecoratedParts(Part):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def helper(self, x: Tensor) -> Tensor:
        return self.linear(x)

    @property
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def square(self) -> Tensor:
        return self.linear.weight @ self.linear.weight

    @torch.jit.export
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def chunk(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.helper(x), self.square, self.linear(x)


class Ignoring(Part):
    @jit_amp.ignore_amp
    def helper(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.helper(x), self.linear(x)


class Twice(nn.Module):
    """A part that is there two times."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.first = self.second = part
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = self.first(x)
        return inside, self.second(x), self.linear(x)


def installed(plain: Any) -> Any:
    with jit_amp.install():
        return torch.jit.script(plain)


DOORS: dict[str, Callable[[Any, Tensor], Any]] = {
    "script": lambda plain, _: jit_amp.script(plain),
    "script, again": lambda plain, _: jit_amp.script(jit_amp.script(plain)),
    "script, copied": lambda plain, _: copy.deepcopy(jit_amp.script(plain)),
    "script, saved": lambda plain, _: jit_amp.script(saved_and_loaded(jit_amp.script(plain))),
    "trace": lambda plain, x: jit_amp.trace(plain, (x,)),
    "freeze": lambda plain, _: jit_amp.freeze(plain),
    "install": lambda plain, _: installed(plain),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", [Decorated, DecoratedParts, Ignoring])
def test_decorators_that_pytorch_has_forgotten_count(kind: type[nn.Module], door: str) -> None:
    net, x = kind().eval(), torch.randn(2, 4)
    plain = torch.jit.script(net)
    with torch.no_grad():
        result = DOORS[door](plain, x)
        before = plain(x)
        for call in range(3):
            assert_same(result(x), net(x), f"call {call}")
        assert_same(plain(x), before, "what was given")


@pytest.mark.parametrize("door", [door for door in DOORS if door != "freeze"])
@pytest.mark.parametrize("kind", [Decorated, DecoratedParts, Ignoring])
def test_decorators_of_a_part_that_pytorch_has_compiled_count(
    kind: type[nn.Module], door: str
) -> None:
    eager, x = Twice(kind()).eval(), torch.randn(2, 4)
    given = copy.copy(eager)
    part = torch.jit.script(eager.first)
    given._modules = {**eager._modules, "first": part, "second": part}
    with torch.no_grad():
        result = DOORS[door](given, x)
        for call in range(3):
            assert_same(result(x), eager(x), f"call {call}")


def test_an_exported_method_that_pytorch_has_compiled_keeps_its_decorator() -> None:
    net, x = DecoratedParts().eval(), torch.randn(2, 4)
    scripted = jit_amp.script(torch.jit.script(net))
    frozen = jit_amp.freeze(scripted, ["chunk"])
    with torch.no_grad():
        for result in (scripted, frozen):
            assert_same(result.chunk(x), net.chunk(x), "chunk")


def entering(function: Any) -> Any:
    @functools.wraps(function)
    def inside(*args: Any) -> Any:
        with autocast():
            return function(*args)

    return inside


class OwnDecorator(Part):
    @entering
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))


@entering
def product(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


@pytest.mark.parametrize("door", DOORS)
def test_a_decorator_of_ones_own_is_refused_after_pytorch_too(door: str) -> None:
    plain = torch.jit.script(OwnDecorator().eval())
    with pytest.raises(jit_amp.AutocastError, match=r"OwnDecorator\.forward[^\0]*JA118"):
        DOORS[door](plain, torch.randn(2, 4))


def test_a_decorator_of_ones_own_of_a_function_is_refused_after_pytorch_too() -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"product[^\0]*JA118"):
        jit_amp.script(torch.jit.script(product))


class OfTheOldWay(torch.jit.ScriptModule):
    def __init__(self, part: Part) -> None:
        super().__init__()
        self.linear, self.norm = part.linear, part.norm

    @torch.jit.script_method
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))


COMPILED: dict[str, Callable[[Any, Tensor], Any]] = {
    "torch.jit.script": lambda part, _: torch.jit.script(part),
    "torch.jit.trace": lambda part, x: torch.jit.trace(part, (x,)),
    "ScriptModule": lambda part, _: OfTheOldWay(part),
    "jit_amp.script": lambda part, _: jit_amp.script(part),
    "jit_amp.trace": lambda part, x: jit_amp.trace(part, (x,)),
    "loaded": lambda part, _: saved_and_loaded(torch.jit.script(part)),
    "in a module": lambda part, _: nn.Sequential(torch.jit.script(part)).eval(),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.(script_method|trace|load|save)` is deprecated")
@pytest.mark.parametrize("compiled", COMPILED)
def test_a_trace_keeps_the_autocast_around_it(compiled: str) -> None:
    part, x = Part().eval(), torch.randn(2, 4)
    given = COMPILED[compiled](part, x)
    with torch.no_grad():
        with autocast():
            traced = jit_amp.trace(given, (x,))
            expected = part(x)
        for call in range(3):
            assert_same(traced(x), expected, f"call {call}")
        assert_same(given(x), part(x), "what was given")
        assert_same(jit_amp.script(saved_and_loaded(traced))(x), expected, "saved")


def test_a_trace_of_something_scripted_without_an_autocast_around_it_is_that() -> None:
    scripted = jit_amp.script(Part().eval())
    assert jit_amp.trace(scripted, (torch.randn(2, 4),)) is scripted


def normed(x: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x @ y, [4])


# PyTorch's own pass casts what layer_norm takes to float32, where eager's autocast does not.
scripted_normed = torch.jit.script(normed)


def calls_scripted(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return scripted_normed(x, x)


def calls_its_source(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return normed(x, x)


def test_a_function_that_pytorch_has_compiled_runs_as_its_source_would() -> None:
    x = torch.randn(4, 4)
    expected = calls_its_source(x)
    for result in (jit_amp.script(calls_scripted), jit_amp.trace(calls_scripted, (x,))):
        for call in range(3):
            assert_same(result(x), expected, f"call {call}")
    assert calls_scripted(x).dtype == F32, "PyTorch's pass has become eager's autocast"


def test_a_trace_of_a_scripted_function_keeps_the_autocast_around_it() -> None:
    x = torch.randn(4, 4)
    with autocast():
        traced = jit_amp.trace(scripted_normed, (x, x))
        expected = normed(x, x)
    for call in range(3):
        assert_same(traced(x, x), expected, f"call {call}")


SCRIPT_METHOD = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "`torch.jit.script_method` is deprecated")

    class WithScope(torch.jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

        @torch.jit.script_method
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.norm(self.linear(x))

    class WithDecorator(WithScope):
        @torch.jit.script_method
        @torch.autocast("cpu", dtype=torch.bfloat16)
        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.linear(x))

    class WithPythonsForward(WithScope):
        """As RWKV is written."""

        @torch.jit.script_method
        def mix(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.norm(self.linear(x))

        def forward(self, x: Tensor) -> list[Tensor]:
            return [self.mix(each) for each in x]

    class WithoutScope(WithScope):
        @torch.jit.script_method
        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.linear(x))


class EagerWithScope(Part):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.norm(self.linear(x))


class EagerWithPythonsForward(EagerWithScope):
    def forward(self, x: Tensor) -> Any:
        return [super(EagerWithPythonsForward, self).forward(each) for each in x]


@pytest.mark.parametrize("is_installed", [False, True])
@pytest.mark.parametrize("is_around", [False, True])
@pytest.mark.parametrize(
    ("old", "eager"),
    [
        (WithScope, EagerWithScope),
        (WithDecorator, EagerWithScope),
        (WithPythonsForward, EagerWithPythonsForward),
        (WithoutScope, Part),
    ],
)
def test_script_methods(
    old: type[nn.Module], eager: type[nn.Module], is_around: bool, is_installed: bool
) -> None:
    reference, x = eager().eval(), torch.randn(2, 3, 4)
    with jit_amp.install() if is_installed else contextlib.nullcontext():
        module = old()
    module.load_state_dict(reference.state_dict())
    module = module.eval()
    results = [module] if is_installed else []
    results.append(jit_amp.script(module))
    if old is not WithPythonsForward:
        results += [jit_amp.script(nn.Sequential(module).eval()), copy.deepcopy(results[-1])]
        results += [jit_amp.freeze(module)] if not is_around else []
    with torch.no_grad(), autocast(is_around):
        expected = reference(x)
        for i, result in enumerate(results):
            for call in range(3):
                assert_same(result(x), expected, f"result {i}, call {call}")


@SCRIPT_METHOD
def test_script_methods_that_pytorch_has_compiled_before_are_compiled_again() -> None:
    x = torch.randn(2, 4)
    plain = WithDecorator()
    with jit_amp.install():
        ours = WithDecorator()
    with torch.no_grad():
        assert (plain(x).dtype, ours(x).dtype) == (F32, BF16)


def filled(x: Tensor) -> Tensor:
    return torch.full((3,), 0.25) * x


class Filling(nn.Module):
    def __init__(self, is_scoped: bool) -> None:
        super().__init__()
        self.is_scoped = is_scoped

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.is_scoped):
            y = x @ x
        return torch.full((3,), 0.5), filled(x), y


@pytest.mark.parametrize("is_scoped", [False, True])
def test_constants_have_the_default_dtype_of_now(is_scoped: bool) -> None:
    before = torch.get_default_dtype()
    try:
        for dtype in (torch.float64, F32, torch.float64, F32):
            torch.set_default_dtype(dtype)
            net, x = Filling(is_scoped), torch.randn(3, 3)
            for program, source in ((jit_amp.script(net), net), (jit_amp.script(filled), filled)):
                for call in range(3):
                    assert_same(program(x), source(x), f"{dtype}, call {call}")
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("is_traced", [False, True])
def test_an_inlined_graph_has_operators(is_traced: bool) -> None:
    net, x = nn.Sequential(Part(), Decorated()).eval(), torch.randn(2, 4)
    module = jit_amp.trace(net, (x,)) if is_traced else jit_amp.script(net)
    for is_around in (False, True):
        with autocast(is_around):
            names = operators(module.inlined_graph)
        assert names.count("aten::linear") == names.count("aten::layer_norm") == 2
        assert not [name for name in names if name.startswith("jit_amp")]


def test_a_drawn_graph_has_operators() -> None:
    """As torch.utils.tensorboard draws it."""
    x = torch.randn(2, 4)
    with jit_amp.install(), autocast():
        graph = torch.jit.trace(nn.Sequential(Part(), Part()), (x,)).graph
        torch._C._jit_pass_inline(graph)
    names = operators(graph)
    assert names.count("aten::linear") == names.count("aten::layer_norm") == 2
    assert torch._C._jit_pass_inline.__module__ != "jit_amp._install"


@pytest.mark.parametrize("name", ["bf16-mixed", "16-mixed", 16, "16", "32-true", 32, "no"])
def test_names_of_trainers(name: Any) -> None:
    x = torch.randn(2, 4)
    dtypes = {"bf16-mixed": BF16, "16-mixed": torch.float16, 16: torch.float16}
    with jit_amp.get_autocast(name, "cpu")(), known_warnings_ignored():
        assert (x @ x.t()).dtype == dtypes.get(int(name) if name == "16" else name, F32)


@pytest.mark.parametrize("name", ["bf16-true", "16-true", "64-true", 64])
def test_names_for_models_that_are_cast(name: Any) -> None:
    with pytest.raises(ValueError, match=r"is no autocast, but a model .* model\.to\(torch\."):
        jit_amp.get_autocast(name, "cpu")
