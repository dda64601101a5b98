"""install: plain torch.jit.script, trace, freeze and load go through jit_amp, until they do not."""

import inspect
import io
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.jit import ScriptFunction, ScriptModule

import jit_amp

from ..support import AMBIENTS, DEFAULT, assert_same, known_warnings_ignored, operators

BF16, F32 = torch.bfloat16, torch.float32
NAMES = ("script", "trace", "trace_module", "freeze", "load", "optimize_for_inference")
PYTORCHS = {name: getattr(torch.jit, name) for name in NAMES}


# PyTorch's own pass casts a sum on CPU to float32, where eager leaves it alone. So the dtype tells
# whose a scripted function is.
def product_and_sum(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y
        return z.sum(0)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, scale: float = 1.0):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (self.linear(x) * scale).sum(0)


class WithAnotherMethod(Network):
    @torch.jit.export
    def twice(self, x: Tensor):
        return self.forward(x, 1.0) + self.forward(x, 2.0)


JIT_AMPS, PLAIN = BF16, F32


def matrices() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 4), torch.randn(4, 4)


def functions() -> dict[str, Any]:
    return {name: getattr(torch.jit, name) for name in NAMES}


def are_pytorchs() -> bool:
    return functions() == PYTORCHS


def whose() -> torch.dtype:
    """JIT_AMPS or PLAIN: what torch.jit.script makes now."""
    return torch.jit.script(product_and_sum)(*matrices()).dtype


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    PYTORCHS.update(functions())  # others, such as torch._dynamo, may have replaced them
    yield
    left = not are_pytorchs()
    jit_amp.uninstall()
    assert not left, "the test left jit_amp installed"


# What is scripted while it is installed.


def test_a_function_is_jit_amps() -> None:
    x, y = matrices()
    with jit_amp.install():
        scripted = torch.jit.script(product_and_sum)
    assert isinstance(scripted, ScriptFunction)
    assert_same(scripted(x, y), product_and_sum(x, y), "function")


def test_a_decorated_function_is_jit_amps() -> None:
    with jit_amp.install():

        @torch.jit.script
        def decorated(x: Tensor, y: Tensor):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return (x @ y).sum(0)

        @torch.jit.script
        @torch.autocast("cpu", dtype=torch.bfloat16)
        def decorated_twice(x: Tensor, y: Tensor):
            return (x @ y).sum(0)

    x, y = matrices()
    for function in (decorated, decorated_twice):
        assert isinstance(function, ScriptFunction)
        assert_same(function(x, y), product_and_sum(x, y), "decorated")


def test_a_module_is_jit_amps() -> None:
    net, (x, _) = WithAnotherMethod(), matrices()
    with jit_amp.install():
        scripted = torch.jit.script(net)
    assert isinstance(scripted, ScriptModule)
    assert scripted.linear.weight is net.linear.weight
    assert_same(scripted(x), net(x), "module")
    assert_same(scripted(x, scale=2.0), net(x, 2.0), "module, keyword")
    assert_same(scripted.twice(x), net.twice(x), "method")


def test_what_pytorch_scripted_before_is_jit_amps_when_scripted_again() -> None:
    net, (x, y) = Network(), matrices()
    function, module = torch.jit.script(product_and_sum), torch.jit.script(net)
    with jit_amp.install():
        assert_same(torch.jit.script(function)(x, y), product_and_sum(x, y), "function")
        assert_same(torch.jit.script(module)(x), net(x), "module")
    assert function(x, y).dtype == module(x).dtype == PLAIN


def test_a_trace_is_jit_amps() -> None:
    (x, y), net = matrices(), Network()
    plain = torch.jit.script(product_and_sum)

    def calls(x: Tensor, y: Tensor) -> Tensor:
        return plain(x, y)

    # PyTorch's pass makes its own check of the trace fail.
    assert torch.jit.trace(calls, (x, y), check_trace=False)(x, y).dtype == PLAIN
    with jit_amp.install():
        function = torch.jit.trace(calls, (x, y), check_trace=False)
        module = torch.jit.trace(net, (x,))
    assert isinstance(function, ScriptFunction)
    assert isinstance(module, ScriptModule)
    assert_same(function(x, y), product_and_sum(x, y), "function")
    assert_same(module(x), net(x), "module")


def test_a_frozen_module_is_jit_amps() -> None:
    net, (x, _) = Network().eval(), matrices()
    plain = torch.jit.script(net)
    assert torch.jit.freeze(plain)(x).dtype == PLAIN
    with jit_amp.install():
        of_pytorchs, of_jit_amps = torch.jit.freeze(plain), torch.jit.freeze(torch.jit.script(net))
    for frozen in (of_pytorchs, of_jit_amps):
        assert_same(frozen(x), net(x).detach(), "frozen")
        assert "prim::Enter" not in operators(frozen.graph)
        assert not list(frozen.parameters())


def test_a_loaded_module_is_jit_amps(tmp_path: Path) -> None:
    net, (x, _) = Network(), matrices()
    path = tmp_path / "network.pt"
    torch.jit.script(net).save(str(path))
    assert torch.jit.load(path)(x).dtype == PLAIN
    with jit_amp.install():
        from_a_file = torch.jit.load(path)
        from_a_stream = torch.jit.load(io.BytesIO(path.read_bytes()))
    for loaded in (from_a_file, from_a_stream):
        assert isinstance(loaded, ScriptModule)
        assert_same(loaded(x), net(x), "loaded")


def test_a_frozen_module_is_saved_and_loaded(tmp_path: Path) -> None:
    net, (x, _) = Network().eval(), matrices()
    with jit_amp.install():
        torch.jit.freeze(torch.jit.script(net)).save(str(tmp_path / "frozen.pt"))
        loaded = torch.jit.load(tmp_path / "frozen.pt")
    for frozen in (loaded, torch.jit.load(tmp_path / "frozen.pt")):
        assert_same(frozen(x), net(x).detach(), "frozen and loaded")


# What PyTorch's own scripting calls torch.jit.script for.

WITH_CALLEES = """
import sys, warnings
import torch
import jit_amp
from torch import Tensor, nn

warnings.simplefilter("ignore")


def helper(x: Tensor):
    return (x @ x).sum(0)


def switched(x: Tensor, enabled: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
        return helper(x)


def calls_a_function(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return helper(x), torch.nn.functional.relu(helper(x))


def calls_with_a_constant(x: Tensor):
    return switched(x, True), switched(x, False)


class CallsAFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        return calls_a_function(self.linear(x)), calls_with_a_constant(x)


function = CallsAFunction() if sys.argv[1] == "CallsAFunction" else globals()[sys.argv[1]]
x = torch.randn(4, 4)
with jit_amp.install():
    scripted = torch.jit.script(function)
for count in range(3):
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            assert str(scripted(x)) == str(function(x)), (enabled, scripted(x), function(x))
"""


# In a process of its own, and with nothing kept: what is freed too early is seen as a crash.
@pytest.mark.parametrize(
    "function", ["calls_a_function", "calls_with_a_constant", "CallsAFunction"]
)
def test_a_scripted_function_calls_functions(tmp_path: Path, function: str) -> None:
    script = tmp_path / "with_callees.py"
    script.write_text(WITH_CALLEES)
    done = subprocess.run(
        [sys.executable, str(script), function], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_script_class_is_pytorchs() -> None:
    class_before = torch.jit.script(Doubling)
    with jit_amp.install():

        @torch.jit.script
        class Local:
            def __init__(self, x: Tensor) -> None:
                self.inner = Doubling(x)

            def tripled(self) -> Tensor:
                return self.inner.doubled() + self.inner.x

        assert torch.jit.script(Doubling) is class_before
        assert isinstance(Local, type)
        scripted = torch.jit.script(uses_a_class)
    x, _ = matrices()
    assert_same(Local(x).tripled(), 2 * x + x, "local class")
    assert_same(scripted(x), uses_a_class(x), "function")


class Doubling:
    def __init__(self, x: Tensor) -> None:
        self.x = x

    def doubled(self) -> Tensor:
        return self.x + self.x


def uses_a_class(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return Doubling(x @ x).doubled().sum(0)


def test_dicts_and_lists_are_pytorchs() -> None:
    with jit_amp.install():
        named, listed = torch.jit.script({"one": 1}), torch.jit.script([1, 2])
    assert isinstance(named, torch._C.ScriptDict)
    assert isinstance(listed, torch._C.ScriptList)
    assert (named["one"], listed[1]) == (1, 2)


def test_what_pytorch_refuses_is_refused() -> None:
    with jit_amp.install():
        with pytest.raises(RuntimeError, match="cannot be compiled since it inherits"):
            torch.jit.script(Network)
        with pytest.raises(TypeError):
            torch.jit.script(3)
        with pytest.raises(RuntimeError, match="eval"):
            torch.jit.freeze(torch.jit.script(Network()))


# Arguments.


@pytest.mark.parametrize("name", NAMES)
def test_names_texts_and_signatures_are_kept(name: str) -> None:
    with jit_amp.install():
        ours = getattr(torch.jit, name)
    assert ours is not PYTORCHS[name]
    assert ours.__name__ == name
    assert ours.__doc__ == PYTORCHS[name].__doc__
    assert inspect.signature(ours) == inspect.signature(PYTORCHS[name])


def returns_a_dict(x: Tensor) -> dict[str, Tensor]:
    return {"sum": x.sum(0), "product": x @ x}


def test_arguments_of_trace_are_kept() -> None:
    x, y = matrices()
    with jit_amp.install():
        with pytest.raises(RuntimeError, match="strict=False"):
            torch.jit.trace(returns_a_dict, (x,))
        loose = torch.jit.trace(returns_a_dict, (x,), strict=False)
        named = torch.jit.trace(
            product_and_sum, example_kwarg_inputs={"x": x, "y": y}, check_trace=False
        )
    assert_same(loose(y), returns_a_dict(y), "strict=False")
    assert_same(named(x, y), product_and_sum(x, y), "example_kwarg_inputs")


def test_arguments_of_freeze_are_kept() -> None:
    net, (x, _) = WithAnotherMethod().eval(), matrices()
    with jit_amp.install():
        scripted = torch.jit.script(net)
        positional = torch.jit.freeze(scripted, ["twice"], False)
        by_name = torch.jit.freeze(mod=scripted, preserved_attrs=["twice"], optimize_numerics=False)
        without = torch.jit.freeze(scripted)
    for frozen in (positional, by_name):
        assert_same(frozen.twice(x), net.twice(x).detach(), "preserved")
    assert not hasattr(without, "twice")


def test_the_installed_freeze_takes_examples() -> None:
    net, (x, _) = WithAnotherMethod().eval(), matrices()
    with jit_amp.install():
        frozen = torch.jit.freeze(torch.jit.script(net), example_inputs=(x,))
    assert_same(frozen(x), net(x).detach(), "frozen")
    with pytest.raises(torch.jit.Error, match="frozen by jit_amp with an example"):
        frozen(x.double())


def test_arguments_of_load_are_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "network.pt")
    torch.jit.save(torch.jit.script(Network()), path, _extra_files={"note": b"kept"})
    files = {"note": b""}
    with jit_amp.install():
        loaded = torch.jit.load(path, map_location="meta", _extra_files=files)
    assert files["note"] == b"kept"
    assert {str(parameter.device) for parameter in loaded.parameters()} == {"meta"}


def test_arguments_of_script_are_kept() -> None:
    x, y = matrices()
    with jit_amp.install(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `optimize` is deprecated
        scripted = torch.jit.script(obj=product_and_sum, optimize=True)
    assert_same(scripted(x, y), product_and_sum(x, y), "optimize")


def without_annotations(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ y).sum(0)


def test_example_inputs_of_script_are_kept() -> None:
    # Without MonkeyType PyTorch warns and does without them.
    x, y = matrices()
    with jit_amp.install(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(without_annotations, example_inputs=[(x, y)])
    assert_same(scripted(x, y), without_annotations(x, y), "example_inputs")


# To undo it.


def test_leaving_the_with_undoes_it() -> None:
    with jit_amp.install():
        assert not any(getattr(torch.jit, name) is PYTORCHS[name] for name in NAMES)
        assert whose() == JIT_AMPS
    assert are_pytorchs()
    assert whose() == PLAIN


def test_uninstalling_undoes_it() -> None:
    jit_amp.install()
    assert whose() == JIT_AMPS
    jit_amp.uninstall()
    assert are_pytorchs()
    assert whose() == PLAIN


def test_an_exception_in_the_with_undoes_it() -> None:
    with pytest.raises(KeyError), jit_amp.install():
        raise KeyError("not swallowed")
    assert are_pytorchs()


def test_a_refusal_in_the_with_undoes_it() -> None:
    def refused(x: Tensor, on: bool):
        with torch.autocast("cpu", enabled=on):
            return x @ x

    with pytest.raises(jit_amp.AutocastError), jit_amp.install():
        torch.jit.script(refused)
    assert are_pytorchs()
    assert whose() == PLAIN


def test_installing_again_changes_nothing() -> None:
    jit_amp.install()
    once = functions()
    jit_amp.install()
    assert functions() == once
    jit_amp.uninstall()
    assert are_pytorchs()
    jit_amp.uninstall()
    assert are_pytorchs()


def test_an_inner_with_leaves_the_outer_one_in_place() -> None:
    with jit_amp.install():
        outer = functions()
        with jit_amp.install():
            assert whose() == JIT_AMPS
        assert functions() == outer
        assert whose() == JIT_AMPS
    assert are_pytorchs()


def test_a_with_after_install_leaves_it_in_place() -> None:
    jit_amp.install()
    with jit_amp.install():
        pass
    assert whose() == JIT_AMPS
    jit_amp.uninstall()
    assert whose() == PLAIN


def test_uninstalling_in_a_with_is_final() -> None:
    with jit_amp.install():
        jit_amp.uninstall()
        assert whose() == PLAIN
    assert are_pytorchs()


def test_a_function_of_someone_else_is_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def someone_elses(obj: Any) -> Any:
        return obj

    with monkeypatch.context() as patched:
        patched.setattr(torch.jit, "script", someone_elses)
        with jit_amp.install():
            assert whose() == JIT_AMPS
        assert torch.jit.script is someone_elses


# What was scripted at another time.


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (lambda: torch.jit.script(product_and_sum), matrices),
        (lambda: torch.jit.script(Network()), lambda: matrices()[:1]),
        (lambda: torch.jit.freeze(torch.jit.script(Network().eval())), lambda: matrices()[:1]),
    ],
    ids=["function", "module", "frozen"],
)
def test_what_is_scripted_stays_whose_it_was(
    make: Callable[[], Any], arguments: Callable[[], tuple[Tensor, ...]]
) -> None:
    before = make()
    assert before(*arguments()).dtype == PLAIN
    with jit_amp.install():
        between = make()
        for _ in range(3):
            assert between(*arguments()).dtype == JIT_AMPS
            assert before(*arguments()).dtype == PLAIN
    after = make()
    for _ in range(3):
        assert before(*arguments()).dtype == PLAIN
        assert between(*arguments()).dtype == JIT_AMPS
        assert after(*arguments()).dtype == PLAIN


@pytest.mark.parametrize("ambient", [name for name in DEFAULT if not name.startswith("cuda")])
def test_jit_amps_own_functions_are_the_same_while_it_is_installed(ambient: str) -> None:
    net, (x, _) = Network().eval(), matrices()
    with jit_amp.install():
        scripted = jit_amp.script(net)
        frozen = jit_amp.freeze(net, example_inputs=(x,))
        graph = str(jit_amp.lowered_graph(net))
    assert_same(frozen(x), net(x).detach(), "freeze")
    assert graph == str(jit_amp.lowered_graph(net))
    with known_warnings_ignored(), AMBIENTS[ambient]():
        assert_same(scripted(x), net(x), ambient)
