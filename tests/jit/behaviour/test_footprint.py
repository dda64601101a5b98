"""What has no autocast in it is what PyTorch made of it, and right under an ambient autocast."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import jit_amp

from ..support import AMBIENTS, assert_same, fresh, operators, operators_of_ours


def residual(x: Tensor, w: Tensor):
    y = torch.mm(x, w)
    return F.softmax(y, dim=-1) + x


def calls_another(x: Tensor, w: Tensor):
    return residual(x, w) @ w


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor):
        return self.linear(F.relu(self.norm(self.conv(x))).mean((2, 3)))


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

        def hook(self, given: tuple[Tensor], result: Tensor) -> Tensor:
            return result @ result

        self.linear.register_forward_hook(hook)

    def forward(self, x: Tensor):
        return self.linear(x)


def outcome(function: Any, inputs: tuple[Tensor, ...], ambient: str) -> tuple[Any, list[Any]]:
    inputs = fresh(inputs)
    with AMBIENTS[ambient]():
        result = function(*inputs)
    result.float().pow(2).sum().backward()
    return result, [x.grad for x in inputs]


@pytest.mark.parametrize("ambients", [("none",), ("cpu", "none"), ("none", "cpu", "cuda", "cpu")])
@pytest.mark.parametrize("function", [residual, calls_another])
def test_a_function(function: Any, ambients: tuple[str, ...]) -> None:
    """Results and gradients are eager's under an ambient autocast, three calls in a row."""
    scripted = jit_amp.script(function)
    assert jit_amp.script(scripted) is scripted
    assert not operators_of_ours(scripted.inlined_graph)
    inputs = tuple(torch.randn(4, 4, requires_grad=True) for _ in range(2))
    for ambient in ambients:
        for call in range(3):
            expected = outcome(function, inputs, ambient)
            assert_same(outcome(scripted, inputs, ambient), expected, f"{ambient}, call {call}")


def test_a_function_runs_on_pytorchs_executor() -> None:
    scripted = jit_amp.script(residual)
    for _ in range(3):
        scripted(torch.randn(4, 4), torch.randn(4, 4))
    ran = torch.jit.last_executed_optimized_graph()
    assert "aten::mm" in operators(ran)
    assert not operators_of_ours(ran) and not operators_of_ours(scripted.inlined_graph)


@pytest.mark.parametrize("training", [False, True])
def test_a_module(training: bool) -> None:
    module = Net().train(training)
    scripted = jit_amp.script(module)
    plain = torch.jit.script(module)
    assert scripted._c._type() == plain._c._type()
    assert jit_amp.script(scripted) is scripted
    x = torch.randn(2, 3, 6, 6)
    for ambient in ("none", "cpu", "none", "cpu"):
        with AMBIENTS[ambient]():
            assert_same(scripted(x), module(x), ambient)


def test_hooks_run() -> None:
    module, x = Hooked(), torch.randn(4, 4)
    scripted = jit_amp.script(module)
    for ambient in ("none", "cpu"):
        with AMBIENTS[ambient]():
            assert_same(scripted(x), module(x), ambient)


def late(x: Tensor):
    return torch.mm(x, x) + x.sum()


def test_what_was_called_under_an_ambient_autocast_before() -> None:
    """PyTorch has put its own casts in then, and another thread may be running it: it stays, and
    what jit_amp returns is another."""

    class Late(Net):
        pass

    module, x = Late().eval(), torch.randn(2, 3, 6, 6)
    plain, square = torch.jit.script(module), torch.randn(4, 4)
    plain_function = torch.jit.script(late)
    with AMBIENTS["cpu"]():
        was = plain_function(square)
        for _ in range(3):
            plain(x)
    for made in (jit_amp.script(plain), jit_amp.script(module)):
        assert made is not plain
        assert jit_amp.script(made) is made
        assert made.linear.weight is module.linear.weight
        for ambient in ("none", "cpu", "none"):
            with AMBIENTS[ambient]():
                for _ in range(3):
                    assert_same(made(x), module(x), ambient)
        assert not operators_of_ours(made.inlined_graph)
    assert jit_amp.script(module)._c._type() == jit_amp.script(Late().eval())._c._type()
    assert torch.jit.script(Late().eval())._c._type() == plain._c._type()
    function = jit_amp.script(plain_function)
    assert function is not plain_function
    assert jit_amp.script(function) is function
    for ambient in ("none", "cpu", "none"):
        with AMBIENTS[ambient]():
            for _ in range(3):
                assert_same(function(square), late(square), ambient)
    with AMBIENTS["cpu"]():
        assert_same(plain_function(square), was, "PyTorch's own")


def test_a_trace(tmp_path: Path) -> None:
    module, x = Net().eval(), torch.randn(2, 3, 6, 6)
    traced = jit_amp.trace(module, x)
    torch.jit.save(traced, tmp_path / "trace.pt")
    loaded = torch.jit.load(tmp_path / "trace.pt")
    served = jit_amp.script(loaded)
    assert served is loaded
    for ambient in ("none", "cpu"):
        for made in (traced, served):
            with AMBIENTS[ambient]():
                assert_same(made(x), module(x), ambient)


@pytest.mark.filterwarnings("ignore:Lite Interpreter is deprecated")
def test_every_form_of_file_is_stock() -> None:
    """After calls under an ambient autocast too."""
    scripted_net = jit_amp.script(Net().eval())
    x = torch.randn(2, 3, 6, 6)
    for ambient in ("none", "cpu"):
        with AMBIENTS[ambient]():
            scripted_net(x)
    assert not any(name.startswith("jit_amp") for name in torch.jit.export_opnames(scripted_net))
    assert scripted_net._save_to_buffer_for_lite_interpreter()
    frozen = torch.jit.freeze(scripted_net)
    buffer = io.BytesIO()
    torch.jit.save(frozen, buffer)
    assert not operators_of_ours(frozen.inlined_graph)


@pytest.mark.parametrize("ambient", ["none", "cpu"])
def test_weights_are_freed_with_the_module(ambient: str) -> None:
    module = Net().eval()
    weight = weakref.ref(module.linear.weight)
    scripted = jit_amp.script(module)
    with AMBIENTS[ambient]():
        scripted(torch.randn(2, 3, 6, 6))
    del module, scripted
    gc.collect()
    assert weight() is None


# What PyTorch takes besides functions and modules.


class Counter:
    def __init__(self) -> None:
        self.n = 1

    def get(self) -> int:
        return self.n


class Product:
    def __init__(self) -> None:
        self.n = 1

    def of(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x


def test_an_object_of_a_scripted_class() -> None:
    scripted = jit_amp.script(Counter())
    assert type(scripted) is torch.jit._script.RecursiveScriptClass and scripted.get() == 1
    assert jit_amp.script(Counter) is Counter
    with pytest.raises(TypeError, match="an object of Product, whose methods have autocast"):
        jit_amp.script(Product())


def uses_an_object(x: Tensor):
    return Product().of(x)


class HookInAScope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

        def hook(self, given: tuple[Tensor], result: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return result @ result

        self.linear.register_forward_hook(hook)

    def forward(self, x: Tensor):
        return self.linear(x)


def test_a_scope_in_a_method_of_a_class_or_in_a_hook_is_seen() -> None:
    x = torch.randn(4, 4)
    scripted = jit_amp.script(uses_an_object)
    assert "jit_amp::program" in operators(scripted.graph_for(x))
    for _ in range(3):
        assert_same(scripted(x), uses_an_object(x), "a method of a class")
    hooked = HookInAScope()
    scripted = jit_amp.script(hooked)
    for _ in range(3):
        assert_same(scripted(x), hooked(x), "a hook")


@torch.jit.interface
class Doing:
    def do(self, x: Tensor) -> Tensor:
        pass


@torch.jit.interface
class Making:
    def make(self, x: Tensor) -> Tensor:
        pass


@torch.jit.script
class Adds:
    def __init__(self, by: int) -> None:
        self.by = by

    def do(self, x: Tensor) -> Tensor:
        return x + self.by


@torch.jit.script
class Multiplies:
    def __init__(self, by: int) -> None:
        self.by = by

    def make(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x


def done(does: Doing, x: Tensor):
    return does.do(x)


def made(makes: Making, x: Tensor):
    return makes.make(x)


def test_an_interface_of_classes_is_left_where_none_has_a_scope_and_refused_where_one_has() -> None:
    x = torch.randn(4, 4)
    scripted = jit_amp.script(done)
    for _ in range(3):
        assert_same(scripted(Adds(2), x), x + 2, "no scope")
    assert not operators_of_ours(scripted.graph_for(Adds(2), x))
    with pytest.raises(jit_amp.AutocastError, match="JA202"):
        jit_amp.script(made)


def inlined_by_compile(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


def test_torch_compile_sees_through_a_scripted_function() -> None:
    """The Python function, as through one that PyTorch scripted."""
    scripted = jit_amp.script(inlined_by_compile)
    assert scripted.__doc__ == inlined_by_compile.__doc__
    compiled = torch.compile(lambda x: scripted(x) + 1, fullgraph=True, backend="eager")
    x = torch.randn(4, 4)
    assert_same(compiled(x), inlined_by_compile(x) + 1, "compiled")


class Exported(nn.Module):
    def forward(self, x: Tensor):
        return x + 1

    @torch.jit.export
    def extra(self, x: Tensor, flag: bool):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=flag):
            return x @ x


class HoldsIt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sub = Exported()

    def forward(self, x: Tensor):
        return self.sub(x)


def test_a_bad_scope_in_a_submodules_exported_method_is_refused_when_scripting() -> None:
    with pytest.raises(jit_amp.AutocastError, match="`enabled`"):
        jit_amp.script(HoldsIt())


class Ignores(nn.Module):
    __jit_ignored_attributes__: ClassVar[list[str]] = ["sub"]

    def __init__(self) -> None:
        super().__init__()
        self.sub = nn.Linear(1, 1)

    def forward(self, x: Tensor):
        return x + 1


class Unmade(nn.Module):
    def __init__(self) -> None:
        self.x = 2

    def forward(self, x: Tensor):
        return x


def test_ignored_attributes_and_a_module_that_was_not_made() -> None:
    assert jit_amp.script(Ignores())(torch.ones(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="has not been initialized"):
        jit_amp.script(Unmade())


class Squares(nn.Module):
    def forward(self, x: Tensor):
        return x * x


@torch.no_grad()
def test_freezing_what_has_no_autocast_is_pytorchs() -> None:
    module, x = Net().eval(), torch.randn(2, 3, 6, 6)
    scripted = torch.jit.script(module)
    ours, theirs = jit_amp.freeze(scripted, example_inputs=x), torch.jit.freeze(scripted)
    kinds = [[node.kind() for node in frozen.graph.nodes()] for frozen in (ours, theirs)]
    assert kinds[0] == kinds[1]
    with pytest.raises(TypeError, match="an example that forward does not take"):
        jit_amp.freeze(scripted, example_inputs=("no tensor",))
    wrapped = torch.ao.quantization.QuantWrapper(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()))
    wrapped.eval().qconfig = torch.ao.quantization.default_qconfig
    with pytest.warns(Warning):
        prepared = torch.ao.quantization.prepare(wrapped)
        prepared(x)
        quantized = torch.ao.quantization.convert(prepared)
    assert torch.equal(jit_amp.freeze(jit_amp.script(quantized))(x), quantized(x))


def in_another_process(source: str, folder: Path, **environment: str) -> str:
    path = folder / "program.py"
    path.write_text(source)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_without_torchscript(tmp_path: Path) -> None:
    source = """
import torch, jit_amp
def f(x): return x * 2
module = torch.nn.Linear(2, 2)
print(jit_amp.script(f) is f, jit_amp.script(module) is module)
print(jit_amp.trace(f, torch.ones(2)) is f, jit_amp.trace(module, torch.ones(2)) is module)
"""
    assert in_another_process(source, tmp_path, PYTORCH_JIT="0").split() == ["True"] * 4


def test_after_pytorch_has_forgotten_its_classes(tmp_path: Path) -> None:
    """As PyTorch's own test cases have it do after each test."""
    source = """
import torch, jit_amp
module, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
for forget in (True, False, True):
    with torch.autocast("cpu"), torch.no_grad():
        print(jit_amp.trace(module, x, check_trace=False)(x).dtype)
    torch._C._jit_clear_class_registry()
    if forget:
        torch.jit._state._clear_class_state()
"""
    assert in_another_process(source, tmp_path).split() == ["torch.bfloat16"] * 3


# torch.func


def product(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.tanh(x @ x.t()) * x.sum()


TRANSFORMS = {
    "vmap": lambda f: torch.func.vmap(f),
    "vmap of vmap": lambda f: torch.func.vmap(torch.func.vmap(f)),
    "jacfwd": lambda f: torch.func.vmap(torch.func.jacfwd(f)),
    "jacrev": lambda f: torch.func.jacrev(lambda x: f(x[0])),
    "grad": lambda f: torch.func.grad(lambda x: f(x[0]).float().sum()),
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x[0],), (x[0],)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    x = torch.rand(2, 3, 3)
    x = x.unsqueeze(0) if name == "vmap of vmap" else x
    scripted = jit_amp.script(product)
    for _ in range(3):
        expected = TRANSFORMS[name](product)(x)
        torch.testing.assert_close(TRANSFORMS[name](scripted)(x), expected, rtol=2e-2, atol=2e-2)
