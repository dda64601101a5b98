"""Attaching: a lowered function or module is one more of its kind, and disturbs nothing."""

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.jit import ScriptFunction, ScriptModule

import jit_amp

from ..support import (
    assert_parity,
    assert_same,
    autocast_state,
    operators,
    operators_of_ours,
    refusal,
    saved_and_loaded,
)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


# PyTorch's own pass casts a sum on CPU to float32, where eager leaves it alone. So the dtype tells
# which of the two a function was lowered by.
def product_and_sum(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y
        return z.sum(0)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.dropout(self.norm(self.linear(x)))
            return x.sum(0)


LOWERED, PLAIN = BF16, F32


def inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 4), torch.randn(4, 4)


def batch() -> Tensor:
    return torch.randn(5, 3)


def saved(scripted: Any) -> tuple[list[str], list[bytes]]:
    """The definitions and tensors that torch.jit.save writes, without the numbers in types'
    names (each number is a file of its own)."""
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    with zipfile.ZipFile(buffer) as archive:
        code = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".py")]
        data = [archive.read(name) for name in archive.namelist() if "/data/" in name]
    text = re.sub(r"___torch_mangle_\d+\.", "", "\n".join(code))
    return sorted(re.split(r"^(?=class |def )", text, flags=re.M)), data


def canonical(graph: torch._C.Graph) -> str:
    text = str(torch._C._jit_pass_canonicalize(graph.copy()))
    return re.sub(r"___torch_mangle_\d+\.", "", text)


def test_lowering_a_function_leaves_its_source_graph() -> None:
    plain = torch.jit.script(product_and_sum)
    graph, code = str(plain.graph), plain.code
    lowered = jit_amp.script(plain)
    assert str(plain.graph) == graph
    assert plain.code == code
    assert canonical(lowered.graph) == canonical(plain.graph)
    assert lowered.code == code
    assert "prim::Enter" in operators(plain.graph)
    assert not operators_of_ours(plain.graph)


def test_lowering_a_module_leaves_its_source_graph() -> None:
    plain = torch.jit.script(Network())
    graph, code = str(plain.graph), plain.code
    lowered = jit_amp.script(plain)
    assert str(plain.graph) == graph
    assert plain.code == code
    assert canonical(lowered.graph) == canonical(plain.graph)
    assert canonical(lowered.norm.graph) == canonical(plain.norm.graph)
    assert "prim::Enter" in operators(plain.graph)
    assert not operators_of_ours(plain.graph)


# PyTorch's inliner takes a callee's optimized graph, for a lowered callee the lowered one of the
# ambient state. So a plain caller runs what the callee would run on its own.


def plain_caller(x: Tensor) -> Tensor:
    return lowered_callee(x) + 1


def callee(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
    with torch.autocast("cpu", enabled=False):
        return y.float() @ x


lowered_callee = jit_amp.script(callee)


@pytest.mark.parametrize("ambient", [False, True])
def test_a_plain_caller_runs_what_a_lowered_callee_runs(ambient: bool) -> None:
    scripted = torch.jit.script(plain_caller)
    x = torch.randn(4, 4)
    for _ in range(3):
        with torch.autocast("cpu", enabled=ambient):
            assert_same(scripted(x), callee(x) + 1, "plain caller")


@pytest.mark.parametrize("run_first", [False, True])
def test_a_saved_function_is_the_plain_one(run_first: bool) -> None:
    plain = torch.jit.script(product_and_sum)
    lowered = jit_amp.script(plain)
    if run_first:
        lowered(*inputs())
    code, _ = expected = saved(plain)
    assert any("autocast" in definition for definition in code)
    assert saved(lowered) == expected


def test_a_saved_module_is_the_plain_one() -> None:
    plain = torch.jit.script(Network())
    lowered = jit_amp.script(plain)
    lowered(batch())
    code, data = expected = saved(plain)
    assert any("autocast" in definition for definition in code)
    assert len(data) == len(plain.state_dict())
    assert saved(lowered) == expected


def test_a_function_that_plain_scripting_made_is_untouched() -> None:
    before = torch.jit.script(product_and_sum)
    lowered = jit_amp.script(product_and_sum)
    after = torch.jit.script(product_and_sum)
    for _ in range(3):
        assert lowered(*inputs()).dtype == LOWERED
        assert before(*inputs()).dtype == PLAIN
        assert after(*inputs()).dtype == PLAIN


def test_a_sibling_instance_that_plain_scripting_made_is_untouched() -> None:
    before = torch.jit.script(Network())
    source = torch.jit.script(Network())
    assert before._c._type() == source._c._type()  # they share their methods' functions
    lowered = jit_amp.script(source)
    after = torch.jit.script(Network())
    for _ in range(3):
        assert lowered(batch()).dtype == LOWERED
        for plain in (before, source, after):
            assert plain(batch()).dtype == PLAIN


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("around", [False, True])
def test_a_function_that_has_already_run_is_lowered_all_the_same(calls: int, around: bool) -> None:
    plain = torch.jit.script(product_and_sum)
    with torch.autocast("cpu", enabled=around):
        for _ in range(calls):
            plain(*inputs())
    lowered = jit_amp.script(plain)
    for _ in range(3):
        assert lowered(*inputs()).dtype == LOWERED
        assert plain(*inputs()).dtype == PLAIN


def test_a_module_that_has_already_run_is_lowered_all_the_same() -> None:
    plain = torch.jit.script(Network())
    for _ in range(3):
        plain(batch())
    lowered = jit_amp.script(plain)
    for _ in range(3):
        assert lowered(batch()).dtype == LOWERED
        assert plain(batch()).dtype == PLAIN


def test_a_lowered_function_is_lowered_already() -> None:
    once = jit_amp.script(product_and_sum)
    once(*inputs())
    assert jit_amp.script(once) is once
    assert str(jit_amp.lowered_graph(once)) == str(jit_amp.lowered_graph(product_and_sum))


def test_a_lowered_module_is_lowered_already() -> None:
    once = jit_amp.script(Network())
    once(batch())
    assert jit_amp.script(once) is once
    assert once(batch()).dtype == LOWERED


@pytest.mark.parametrize(
    "make",
    [
        lambda: product_and_sum,
        lambda: torch.jit.script(product_and_sum),
        lambda: saved_and_loaded(torch.jit.script(product_and_sum)),
        lambda: torch.jit.trace(torch.jit.script(product_and_sum), inputs()),
    ],
    ids=["function", "ScriptFunction", "loaded", "traced"],
)
def test_every_kind_of_function_is_lowered(make: Callable[[], Any]) -> None:
    lowered = jit_amp.script(make())
    assert isinstance(lowered, (ScriptFunction, ScriptModule))
    x, y = inputs()
    for _ in range(3):
        result = lowered(x, y)
        assert result.dtype == LOWERED
        assert torch.equal(result, product_and_sum(x, y))


@pytest.mark.parametrize(
    "make",
    [
        lambda module: module,
        torch.jit.script,
        lambda module: saved_and_loaded(torch.jit.script(module)),
        lambda module: torch.jit.trace(Around(torch.jit.script(module)), (batch(),)),
    ],
    ids=["Module", "ScriptModule", "loaded", "traced"],
)
def test_every_kind_of_module_is_lowered(make: Callable[[nn.Module], Any]) -> None:
    module = Network().eval()
    lowered = jit_amp.script(make(module))
    assert isinstance(lowered, ScriptModule)
    x = batch()
    for _ in range(3):
        result = lowered(x)
        assert result.dtype == LOWERED
        assert torch.equal(result, module(x))


# A ScriptModule as the rest of the ecosystem knows it.


def test_parameters_and_buffers_are_the_very_tensors() -> None:
    module = Network()
    plain = torch.jit.script(module)
    for source, lowered in ((plain, jit_amp.script(plain)), (module, jit_amp.script(module))):
        for kind in ("named_parameters", "named_buffers"):
            ours, theirs = dict(getattr(lowered, kind)()), dict(getattr(source, kind)())
            assert list(ours) == list(theirs)
            assert all(ours[name] is theirs[name] for name in theirs)
    optimizer = torch.optim.SGD(lowered.parameters(), lr=1.0)
    before = module.linear.weight.detach().clone()
    lowered(batch()).float().square().sum().backward()
    optimizer.step()
    assert not torch.equal(module.linear.weight, before)


def test_the_state_dict_is_the_modules() -> None:
    module = Network()
    lowered = jit_amp.script(module)
    state, expected = lowered.state_dict(), module.state_dict()
    assert list(state) == list(expected)
    assert all(torch.equal(state[name], expected[name]) for name in expected)
    other = Network()
    lowered.load_state_dict(other.state_dict())
    lowered.eval()
    x = batch()
    assert torch.equal(lowered(x), other.eval()(x))


def test_to_changes_the_dtype() -> None:
    module = Network()
    lowered = jit_amp.script(module).to(torch.float64)
    assert {p.dtype for p in lowered.parameters()} == {torch.float64}
    assert lowered.norm.running_mean.dtype == torch.float64
    assert lowered(batch().double()).dtype == torch.float64


def test_train_and_eval_switch_it_and_not_its_source() -> None:
    plain = torch.jit.script(Network())
    lowered = jit_amp.script(plain)
    assert lowered.training
    lowered.eval()
    assert not lowered.training
    assert not lowered.dropout.training
    assert plain.training
    x = batch()
    assert torch.equal(lowered(x), lowered(x))
    lowered.train()
    assert not torch.equal(lowered(x), lowered(x))  # dropout


def test_it_is_saved_and_loaded_and_lowered_after_loading(tmp_path: Path) -> None:
    module = Network().eval()
    path = str(tmp_path / "network.pt")
    jit_amp.script(module).save(path)
    loaded = torch.jit.load(path)
    x = batch()
    assert loaded(x).dtype == PLAIN
    lowered = jit_amp.script(loaded)
    for _ in range(3):
        assert torch.equal(lowered(x), module(x))


class Around(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        return self.inner(x)


lowered_product = jit_amp.script(product_and_sum)


def calls_a_lowered_function(x: Tensor, y: Tensor):
    return lowered_product(x, y)


def test_a_lowered_function_is_called_from_scripted_code() -> None:
    outer = jit_amp.script(calls_a_lowered_function)
    for _ in range(3):
        assert outer(*inputs()).dtype == LOWERED
        assert lowered_product(*inputs()).dtype == LOWERED


def test_a_lowered_module_is_called_from_scripted_code() -> None:
    inner = jit_amp.script(Network())
    assert torch.jit.script(Around(inner))(batch()).shape == (3,)
    outer = jit_amp.script(Around(inner))
    for _ in range(3):
        assert outer(batch()).dtype == LOWERED
        assert inner(batch()).dtype == LOWERED
        assert Around(inner)(batch()).dtype == LOWERED  # eager around it
    assert outer.inner.linear.weight is inner.linear.weight


def with_defaults(x: Tensor, scale: float = 2.0, bias: Tensor | None = None, again: bool = False):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch._C._nn.linear(x, x, bias) * scale
        return y @ x if again else y.sum(0)


class WithDefaults(nn.Module):
    def forward(self, x: Tensor, scale: float = 2.0, bias: Tensor | None = None):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch._C._nn.linear(x, x, bias) * scale

    @torch.jit.export
    def in_half(self, x: Tensor, scale: float = 3.0):
        with torch.autocast("cpu", dtype=torch.float16):
            return (x @ x) * scale


def test_a_functions_defaults_and_keywords_keep_working() -> None:
    lowered = jit_amp.script(with_defaults)
    assert str(lowered.schema) == str(torch.jit.script(with_defaults).schema)
    x = torch.randn(3, 3)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x,), {}),
        ((x, 0.5), {}),
        ((x,), {"scale": 0.5, "bias": x[0]}),
        ((), {"again": True, "x": x, "bias": x[0]}),
    ]
    for args, kwargs in calls:
        assert torch.equal(lowered(*args, **kwargs), with_defaults(*args, **kwargs))
    with pytest.raises(RuntimeError, match="missing value for argument 'x'"):
        lowered()


def test_a_modules_defaults_keywords_and_exported_methods_keep_working() -> None:
    module = WithDefaults()
    lowered = jit_amp.script(module)
    x = torch.randn(3, 3)
    assert torch.equal(lowered(x), module(x))
    assert torch.equal(lowered(x, bias=x[0], scale=0.5), module(x, bias=x[0], scale=0.5))
    assert torch.equal(lowered.in_half(x), module.in_half(x))
    assert torch.equal(lowered.in_half(scale=1.0, x=x), module.in_half(x, 1.0))
    assert jit_amp.lowered_graph(module, "in_half").findNode("aten::matmul") is not None


def test_submodules_of_a_lowered_module_are_lowered() -> None:
    lowered = jit_amp.script(Around(Network()))
    assert lowered.inner(batch()).dtype == LOWERED


def doubled(self: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (inputs[0] * 2,)


def tripled(self: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    return output * 3


def hooked() -> nn.Module:
    module = Squaring()
    module.register_forward_pre_hook(doubled)
    module.register_forward_hook(tripled)
    return module


class Squaring(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x


@pytest.mark.parametrize("wrap", [lambda module: module, lambda module: Around(module)])
def test_forward_hooks_run(wrap: Callable[[nn.Module], nn.Module]) -> None:
    module = wrap(hooked())
    x = torch.randn(3, 3)
    assert torch.equal(jit_amp.script(module)(x), module(x))


def test_forward_hooks_of_what_is_copied_are_refused() -> None:
    # PyTorch leaves them out when it copies a module, silently.
    plain = torch.jit.script(hooked())
    with pytest.raises(jit_amp.AutocastError, match="forward hooks on `Squaring`"):
        jit_amp.script(plain)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor):
        self.calls += 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.total += (x @ x).sum(0)
        return self.total.clone(), self.calls


def test_attributes_that_a_method_writes_are_kept_between_calls() -> None:
    assert_parity(Counting(), (torch.randn(3, 3),))
    lowered = jit_amp.script(Counting())
    assert [lowered(torch.zeros(3, 3))[1] for _ in range(3)] == [1, 2, 3]
    assert lowered.calls == 3


def test_containers_stay_containers() -> None:
    sequential = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    assert len(torch.jit.script(sequential)) == 2
    lowered = jit_amp.script(sequential)
    assert len(lowered) == 2
    assert lowered[0].weight is sequential[0].weight


# What does not come to an end.


class Refused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = Network()
        self.on = True

    def forward(self, x: Tensor):
        y = self.network(x)
        with torch.autocast("cpu", enabled=self.on):
            self.on = not self.on
            return y


def test_a_refused_module_leaves_everything_as_it_was() -> None:
    module = Refused()
    plain = torch.jit.script(module)
    sibling = torch.jit.script(Network())
    graph, names, state = str(plain.inlined_graph), list(plain.state_dict()), autocast_state()
    methods = plain._c._method_names()
    for _ in range(2):
        refusal(plain)
        refusal(module)
    assert autocast_state() == state
    assert str(plain.inlined_graph) == graph
    assert str(torch.jit.script(module).inlined_graph) == graph
    assert list(plain.state_dict()) == names
    assert plain._c._method_names() == methods
    assert plain.network.linear.weight is module.network.linear.weight
    for _ in range(3):
        assert plain.network(batch()).dtype == PLAIN
        assert sibling(batch()).dtype == PLAIN


def raises_in_a_scope(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.float16), torch.autocast("cuda", enabled=False):
        y = torch.einsum("ij,jk->ik", x, x)
        if fail:
            raise ValueError("no")
        with torch.autocast("cpu", enabled=False):
            y = torch.einsum("ij,jk->ik", x, x)
    return y @ x


def fails_in_an_operator(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.einsum("ij,jk->ik", x, x[:2] if fail else x)


@torch.jit.ignore
def fails_in_python(x: Tensor) -> Tensor:
    raise ValueError("no")


def fails_in_ignored_python(x: Tensor, fail: bool):
    with torch.autocast("cpu", dtype=torch.float16):
        return fails_in_python(x) if fail else x @ x


@pytest.mark.parametrize(
    "function", [raises_in_a_scope, fails_in_an_operator, fails_in_ignored_python]
)
@pytest.mark.parametrize("device", [None, "cpu", "cuda"])
def test_an_exception_in_a_scope_restores_the_state(
    function: Callable[..., Any], device: str | None
) -> None:
    lowered = jit_amp.script(function)
    x = torch.randn(3, 3)
    before = {name: torch.is_autocast_enabled(name) for name in ("cpu", "cuda")}
    try:
        if device is not None:
            torch.set_autocast_enabled(device, True)
        state = autocast_state()
        for fail in (True, True, False, True):
            if fail:
                with pytest.raises((RuntimeError, torch.jit.Error)):
                    lowered(x, True)
            else:
                lowered(x, False)
            assert autocast_state() == state
    finally:
        for name, enabled in before.items():
            torch.set_autocast_enabled(name, enabled)


# What runs.


def test_the_graph_that_is_looked_at_is_a_copy() -> None:
    lowered = jit_amp.script(product_and_sum)
    graph = jit_amp.lowered_graph(lowered)
    for node in list(graph.nodes()):
        if node.kind() == "jit_amp::cast":
            node.output().replaceAllUsesWith(node.inputsAt(0))
    assert "jit_amp::cast" in operators(jit_amp.lowered_graph(lowered))
    assert lowered(*inputs()).dtype == LOWERED


def without_autocast(x: Tensor, y: Tensor):
    return x @ y


def test_what_runs_is_lowered_for_the_ambient_state_of_each_call() -> None:
    lowered = jit_amp.script(without_autocast)
    x, y = inputs()
    for enabled in (False, True, False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            assert_same(lowered(x, y), without_autocast(x, y), f"enabled={enabled}")
            # PyTorch's own graph where no autocast is; elsewhere out of reach of its passes.
            kinds = operators(lowered.graph_for(x, y))
        assert ("jit_amp::program" in kinds) == enabled
