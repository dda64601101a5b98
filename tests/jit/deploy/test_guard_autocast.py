"""A frozen module under an ambient autocast gives what it gives outside, or raises."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from engines import libtorch
from torch import Tensor, nn
from torch.jit.mobile import _load_for_lite_interpreter

import jit_amp

from ..support import assert_same, operators

# Of the lite interpreter.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Lite Interpreter is deprecated"),
]
SAYS = r"jit_amp: autocast for cpu is on around this call.*call it outside autocast"
ERRORS = (RuntimeError, torch.jit.Error)
AROUND = [torch.bfloat16, torch.float16]


class Net(nn.Module):
    """What is reduced, and what a scope keeps in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(self.linear(x))
        with torch.autocast("cpu", enabled=False):
            return y.float() @ x.t()

    @torch.jit.export
    def plain(self, x: Tensor) -> Tensor:
        return x @ x.t()


def packed(module: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return file


def in_process(module: Any) -> Any:
    return module


def loaded(module: Any) -> Any:
    return torch.jit.load(packed(module))


def lite(module: Any, flatbuffer: bool = False) -> Any:
    data = module._save_to_buffer_for_lite_interpreter(_use_flatbuffer=flatbuffer)
    return _load_for_lite_interpreter(io.BytesIO(data))


def flatbuffer(module: Any) -> Any:
    return lite(module, True)


def frozen_again(module: Any) -> Any:
    return torch.jit._recursive.wrap_cpp_module(
        torch._C._freeze_module(loaded(module)._c, [], True, True)
    )


class Holder(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def in_a_plain_script(module: Any) -> Any:
    return torch.jit.script(Holder(loaded(module)))


def in_a_plain_frozen_module(module: Any) -> Any:
    return torch.jit.freeze(torch.jit.script(Holder(loaded(module)).eval()))


def in_a_frozen_module(module: Any) -> Any:
    return jit_amp.freeze(Holder(module).eval())


def in_a_script(module: Any) -> Any:
    return jit_amp.script(Holder(module).eval())


def optimized(module: Any) -> Any:
    return torch.jit.optimize_for_inference(module)


FORMS: list[Callable[[Any], Any]] = [
    in_process,
    loaded,
    lite,
    flatbuffer,
    frozen_again,
    in_a_plain_script,
    in_a_plain_frozen_module,
    in_a_frozen_module,
    in_a_script,
    optimized,
]
X = torch.randn(4, 8)
KINDS: dict[str, dict[str, Any]] = {
    "without examples": {},
    "with examples": {"example_inputs": (X,)},
    "unchecked": {"check_inputs": False},
    "exact": {"optimize_numerics": False},
    "server": {"target": "server", "example_inputs": (X,)},
    "io_dtype": {"io_dtype": torch.float32, "example_inputs": (X,)},
}
CASES = [
    (kind, form)
    for kind in KINDS
    for form in FORMS
    # A packed weight is no value of the lite interpreter's.
    if kind != "server" or form not in (lite, flatbuffer)
]


def check_raises(call: Callable[[Tensor], Any], x: Tensor = X, says: str = SAYS) -> None:
    """Three calls outside, three under each autocast, in turns."""
    for _ in range(3):
        outside = call(x)
        for dtype in AROUND:
            with torch.autocast("cpu", dtype=dtype), pytest.raises(ERRORS, match=says):
                call(x)
        with torch.autocast("cpu"), torch.autocast("cpu", enabled=False):
            assert_same(call(x), outside, "in a scope that is off")
        assert_same(call(x), outside, "after it")


@pytest.mark.parametrize(("kind", "form"), CASES)
@torch.no_grad()
def test_under_an_autocast_it_raises(kind: str, form: Callable[[Any], Any]) -> None:
    check_raises(form(jit_amp.freeze(Net().eval(), **KINDS[kind])))


@pytest.mark.parametrize("form", [in_process, loaded, lite])
def test_where_gradients_are_recorded(form: Callable[[Any], Any]) -> None:
    check_raises(form(jit_amp.freeze(Net().eval())), X.clone().requires_grad_())


@torch.no_grad()
def test_every_method_that_is_kept() -> None:
    module = loaded(jit_amp.freeze(Net().eval(), ["plain"]))
    check_raises(module)
    check_raises(module.plain)


@contextmanager
def unoptimized() -> Iterator[None]:
    with torch.jit.optimized_execution(False):
        yield


@contextmanager
def without_profiling() -> Iterator[None]:
    before = torch._C._jit_set_profiling_executor(False)
    try:
        yield
    finally:
        torch._C._jit_set_profiling_executor(before)


@contextmanager
def without_pytorchs_pass() -> Iterator[None]:
    before = torch._C._jit_set_autocast_mode(False)
    try:
        yield
    finally:
        torch._C._jit_set_autocast_mode(before)


@pytest.mark.parametrize("mode", [unoptimized, without_profiling, without_pytorchs_pass])
@torch.no_grad()
def test_in_other_modes_of_the_executor(mode: Callable[[], Any]) -> None:
    with mode():
        check_raises(loaded(jit_amp.freeze(Net().eval())))


@torch.no_grad()
def test_the_first_call_is_under_an_autocast() -> None:
    frozen = jit_amp.freeze(Net().eval())
    module = loaded(frozen)
    for _ in range(3):
        with torch.autocast("cpu"), pytest.raises(torch.jit.Error, match=SAYS):
            module(X)
    for _ in range(3):
        assert_same(module(X), frozen(X), "outside")


@torch.no_grad()
def test_in_a_program_of_plain_torchscript_with_a_scope() -> None:
    """PyTorch's pass casts what is inlined there."""
    outer = torch.jit.script(Scoped(loaded(jit_amp.freeze(Net().eval()))))
    for _ in range(3):
        with pytest.raises(torch.jit.Error, match=SAYS):
            outer(X)


class Scoped(Holder):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x)


@torch.no_grad()
def test_in_a_scope_of_a_scripted_program() -> None:
    for _ in range(3):
        with pytest.raises(ERRORS, match=SAYS):
            Scoped(jit_amp.freeze(Net().eval()))(X)
        with pytest.raises(ERRORS, match=SAYS):
            jit_amp.script(Scoped(jit_amp.freeze(Net().eval())))(X)


@torch.no_grad()
def test_autocast_for_another_device_changes_nothing() -> None:
    module = loaded(jit_amp.freeze(Net().eval(), optimize_numerics=False))
    outside = module(X)
    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        for _ in range(3):
            assert_same(module(X), outside, "under CUDA's")
    finally:
        torch.set_autocast_enabled("cuda", before)


class Elementwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(x * self.scale) + 1


@torch.no_grad()
def test_what_autocast_does_not_concern_has_no_check() -> None:
    module = loaded(jit_amp.freeze(Elementwise().eval()))
    assert "aten::prod" not in operators(module.graph)
    outside = module(X)
    for dtype in AROUND:
        for _ in range(3):
            with torch.autocast("cpu", dtype=dtype):
                assert_same(module(X), outside, "inside")


class Asks(nn.Module):
    """Outside its scope, whether autocast is on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        if torch.is_autocast_cpu_enabled():
            y = y * 2
        return y


@torch.no_grad()
def test_what_asks_for_the_autocast_around() -> None:
    """PyTorch's pass ends the process at such a question."""
    module = loaded(jit_amp.freeze(Asks().eval(), optimize_numerics=False))
    check_raises(module)


class Forked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            task = torch.jit.fork(self.linear, x)
        return torch.jit.wait(task)


class WithoutWeights(nn.Module):
    def forward(self, x: Tensor, others: list[Tensor | None]) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.t()
        for other in others:
            if other is not None:
                y = y + other.sum()
        return y


@torch.no_grad()
def test_what_computes_in_a_task() -> None:
    check_raises(loaded(jit_amp.freeze(Forked().eval())))


@torch.no_grad()
def test_what_has_no_weights() -> None:
    module = loaded(jit_amp.freeze(WithoutWeights().eval()))
    check_raises(lambda x: module(x, [None, x]))


@torch.no_grad()
def test_the_executor_takes_the_check_away() -> None:
    """So it costs nothing."""
    module = loaded(jit_amp.freeze(Net().eval(), example_inputs=(X,)))
    assert operators(module.graph).count("aten::prod") == 1
    for _ in range(3):
        module(X)
    assert "aten::prod" not in operators(torch.jit.last_executed_optimized_graph())


@torch.no_grad()
def test_the_error_has_a_title_and_no_line_of_a_file() -> None:
    module = loaded(jit_amp.freeze(Net().eval()))
    with torch.autocast("cpu"), pytest.raises(torch.jit.Error) as caught:
        module(X)
    text = str(caught.value)
    assert "check of the autocast around" in text and "enabled=False" in text


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return libtorch.built("server", tmp_path_factory.mktemp("libtorch"))


@torch.no_grad()
def test_in_cpp(server: Path, tmp_path: Path) -> None:
    """By at::autocast::set_autocast_enabled, as a server in C++ has it."""
    module = jit_amp.freeze(Net().eval())
    torch.jit.save(module, tmp_path / "model.pt")
    for result in libtorch.ran(server, tmp_path / "model.pt", (X,), tmp_path):
        assert_same(result, module(X), "outside")
    with pytest.raises(RuntimeError, match=SAYS):
        libtorch.ran(server, tmp_path / "model.pt", (X,), tmp_path, autocast=True)
