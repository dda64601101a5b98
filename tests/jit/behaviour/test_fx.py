"""fx graphs, which hold a pair `_enter_autocast` / `_exit_autocast` in place of a `with`."""

import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.fx import GraphModule

import jit_amp

from ..support import (
    assert_parity,
    assert_same,
    autocast_state,
    known_warnings_ignored,
    operators,
    operators_of_ours,
    tensors_of,
    text_of,
)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
# What torch.jit.script says of GraphModule's own source.
pytestmark = pytest.mark.filterwarnings("ignore:The TorchScript type system doesn't support inst")
enter, leave = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast


@pytest.fixture
def no_weight_cache() -> Iterator[None]:
    """Eager's cache hands a weight's cast out in a scope of another dtype too."""
    torch.set_autocast_cache_enabled(False)
    yield
    torch.set_autocast_cache_enabled(True)


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.randn(4, 4))


class Builder:
    """An fx graph with one placeholder, written down operation by operation."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.x = self.graph.placeholder("x")

    def enter(self, *arguments: Any) -> fx.Node:
        return self.graph.call_function(enter, arguments)

    def leave(self, mode: fx.Node) -> None:
        self.graph.call_function(leave, (mode,))

    def product(self, a: fx.Node | None = None) -> fx.Node:
        return self.graph.call_function(torch.matmul, (a or self.x, self.x))

    def linear(self) -> fx.Node:
        return self.graph.call_module("linear", (self.x,))

    def weighted(self) -> fx.Node:
        return self.graph.call_function(torch.matmul, (self.x, self.graph.get_attr("weight")))

    def module(self, *outputs: fx.Node, root: nn.Module | None = None) -> GraphModule:
        self.graph.output(outputs)
        self.graph.lint()
        return GraphModule(root or Root(), self.graph)


def one_pair(*arguments: Any) -> GraphModule:
    build = Builder()
    before = build.product()
    mode = build.enter(*arguments)
    inside = build.product(), build.linear(), build.weighted()
    build.leave(mode)
    return build.module(before, *inside, build.product(), build.linear())


def nested() -> GraphModule:
    build = Builder()
    outer = build.enter("cpu", BF16, True, None)
    one = build.product()
    middle = build.enter("cpu", F16, True, None)
    two = build.product()
    inner = build.enter("cuda", F16, True, None)
    three = build.product()
    build.leave(inner)
    build.leave(middle)
    four = build.product()
    build.leave(outer)
    return build.module(one, two, three, four, build.product())


def disabled_inside() -> GraphModule:
    build = Builder()
    outer = build.enter("cpu", BF16, True, None)
    one = build.linear()
    inner = build.enter("cpu", None, False, None)
    two = build.linear()
    build.leave(inner)
    three = build.linear()
    build.leave(outer)
    return build.module(one, two, three, build.linear())


def default_dtype_inside() -> GraphModule:
    build = Builder()
    outer = build.enter("cpu", F16, True, None)
    inner = build.enter("cpu", None, True, None)
    one = build.product()
    build.leave(inner)
    build.leave(outer)
    again = build.enter("cpu", None, True, None)
    two = build.product()
    build.leave(again)
    return build.module(one, two)


def one_after_the_other() -> GraphModule:
    build = Builder()
    found = []
    for arguments in (("cpu", BF16, True, None), ("cpu", F16, True, True), ("cpu", BF16, False)):
        mode = build.enter(*arguments)
        found.append(build.weighted())
        build.leave(mode)
    return build.module(*found)


def result_used_outside() -> GraphModule:
    build = Builder()
    mode = build.enter("cpu", BF16, True, None)
    inside = build.product()
    build.leave(mode)
    outside = build.graph.call_method("float", (inside,))
    both = build.graph.call_function(torch.add, (inside, outside))
    return build.module(both, build.product(outside))


def pair_in_a_submodule() -> GraphModule:
    root = Root()
    root.add_module("inner", disabled_inside())
    build = Builder()
    one = build.graph.call_module("inner", (build.x,))
    mode = build.enter("cpu", F16, True, None)
    two = build.graph.call_module("inner", (build.x,))
    build.leave(mode)
    return build.module(one, two, root=root)


PAIRS: list[tuple[str, Callable[[], GraphModule], list[torch.dtype]]] = [
    ("bfloat16", lambda: one_pair("cpu", BF16, True, None), [F32, BF16, BF16, BF16, F32, F32]),
    ("float16", lambda: one_pair("cpu", F16, True, False), [F32, F16, F16, F16, F32, F32]),
    ("disabled", lambda: one_pair("cpu", BF16, False, None), [F32] * 6),
    ("device_alone", lambda: one_pair("cpu"), [F32, BF16, BF16, BF16, F32, F32]),
    ("device_and_dtype", lambda: one_pair("cpu", F16), [F32, F16, F16, F16, F32, F32]),
    ("another_device", lambda: one_pair("cuda", F16, True, None), [F32] * 6),
    ("nested", nested, [BF16, F16, F16, BF16, F32]),
    ("disabled_inside", disabled_inside, [BF16, F32, BF16, F32]),
    ("default_dtype_inside", default_dtype_inside, [F16, BF16]),
    ("one_after_the_other", one_after_the_other, [BF16, F16, F32]),
    ("result_used_outside", result_used_outside, [F32, F32]),
    (
        "pair_in_a_submodule",
        pair_in_a_submodule,
        [BF16, F32, BF16, F32, BF16, F32, BF16, F16],
    ),
]
each_pair = pytest.mark.parametrize(
    ("make", "dtypes"), [pair[1:] for pair in PAIRS], ids=[pair[0] for pair in PAIRS]
)


def dtypes_of(value: Any) -> list[torch.dtype]:
    return [t.dtype for t in tensors_of(value)]


@each_pair
@pytest.mark.usefixtures("no_weight_cache")
def test_a_pair_is_a_scope(make: Callable[[], GraphModule], dtypes: list[torch.dtype]) -> None:
    results = assert_parity(make(), (torch.randn(4, 4),))
    assert dtypes_of(results["none"]) == dtypes


@each_pair
@pytest.mark.usefixtures("no_weight_cache")
@pytest.mark.parametrize("with_examples", [False, True])
def test_a_pair_is_frozen_as_a_scope(
    make: Callable[[], GraphModule], dtypes: list[torch.dtype], with_examples: bool
) -> None:
    module, x = make().eval(), torch.randn(4, 4)
    frozen = jit_amp.freeze(module, example_inputs=(x,) if with_examples else None)
    buffer = io.BytesIO()
    torch.jit.save(frozen, buffer)
    buffer.seek(0)
    with torch.no_grad(), known_warnings_ignored():
        expected = module(x)
    assert dtypes_of(expected) == dtypes
    for artefact in (frozen, torch.jit.load(buffer)):
        for call in range(3):
            assert_same(artefact(x), expected, f"call {call + 1}")
    assert not [kind for kind in operators(frozen.graph) if "autocast" in kind]
    assert not operators_of_ours(frozen.graph)


@each_pair
def test_scripting_leaves_the_graph_module_as_it_was(
    make: Callable[[], GraphModule], dtypes: list[torch.dtype]
) -> None:
    module = make()
    code, parameters = module.code, dict(module.named_parameters())
    before = autocast_state()
    scripted = jit_amp.script(module)
    assert autocast_state() == before
    assert module.code == code
    assert module.forward.__func__ is type(module).forward
    ours = dict(scripted.named_parameters())
    assert all(ours[name] is parameter for name, parameter in parameters.items())


def test_keywords_are_more_than_eager_takes_and_mean_what_they_say() -> None:
    build = Builder()
    names = {"cache_enabled": None, "enabled": True, "dtype": BF16}
    mode = build.graph.call_function(enter, ("cpu",), names)
    inside = build.product()
    build.leave(mode)
    module, x = build.module(inside, build.product()), torch.randn(4, 4)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        module(x)
    before, inside_of_one, *_, after, _ = one_pair("cpu", BF16, True, None)(x)
    assert before.dtype == after.dtype == F32
    assert_same(jit_amp.script(module)(x), (inside_of_one, after), "keywords")


def test_nothing_of_a_pair_is_left_in_the_lowered_graph() -> None:
    graph = text_of(jit_amp.lowered_graph(one_pair("cpu", BF16, True, None)))
    assert "jit_amp::cast" in graph
    for kind in ("CreateObject", "CallMethod", "CallFunction", "autocast_mode", ": Function ="):
        assert kind not in graph


def test_a_pair_that_is_saved_with_its_source_can_be_scripted_again() -> None:
    module, x = one_pair("cpu", BF16, True, None), torch.randn(4, 4)
    buffer = io.BytesIO()
    torch.jit.save(jit_amp.script(module), buffer)
    buffer.seek(0)
    scripted = jit_amp.script(torch.jit.load(buffer))
    assert_same(scripted(x), module(x), "saved, loaded, scripted")


# In functions, the same pair written by hand.


def by_hand(x: Tensor):
    mode = torch.amp.autocast_mode._enter_autocast("cpu", torch.bfloat16, True, None)
    y = x @ x
    torch.amp.autocast_mode._exit_autocast(mode)
    return y, x @ x


def by_its_short_name(x: Tensor):
    mode = torch.amp._enter_autocast("cpu", torch.float16)
    with torch.autocast("cpu", enabled=False):
        y = x @ x
    z = x @ x
    torch.amp._exit_autocast(mode)
    return y, z, x @ x


@pytest.mark.parametrize(
    ("function", "dtypes"), [(by_hand, [BF16, F32]), (by_its_short_name, [F32, F16, F32])]
)
def test_a_pair_in_a_function(function: Callable[..., Any], dtypes: list[torch.dtype]) -> None:
    results = assert_parity(function, (torch.randn(4, 4),))
    assert dtypes_of(results["none"]) == dtypes


def entered_at_run_time(x: Tensor, on: bool):
    mode = torch.amp._enter_autocast("cpu", torch.bfloat16, on)
    y = x @ x
    torch.amp._exit_autocast(mode)
    return y


def never_left(x: Tensor):
    torch.amp._enter_autocast("cpu", torch.bfloat16)
    return x @ x


def left_in_the_wrong_order(x: Tensor):
    outer = torch.amp._enter_autocast("cpu", torch.bfloat16)
    inner = torch.amp._enter_autocast("cpu", torch.float16)
    y = x @ x
    torch.amp._exit_autocast(outer)
    torch.amp._exit_autocast(inner)
    return y


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (entered_at_run_time, "`enabled` is known only at run time"),
        (never_left, "an autocast scope that is entered and not left"),
        (left_in_the_wrong_order, "autocast scopes that do not nest"),
    ],
)
def test_a_pair_that_is_no_scope_is_refused(function: Callable[..., Any], what: str) -> None:
    with pytest.raises(jit_amp.AutocastError, match=what):
        jit_amp.script(function)


# What torch._dynamo makes.


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            with torch.autocast("cpu", enabled=False):
                z = self.norm(y.float()) @ x
        return y + x, z


@pytest.fixture
def dynamo() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch._dynamo

        yield torch._dynamo
        torch._dynamo.reset()


def test_what_dynamo_exports_is_scripted(dynamo: Any) -> None:
    model, x = Model(), torch.randn(4, 4)
    module = dynamo.export(model)(x).graph_module
    module.graph.set_codegen(fx.graph.CodeGen())  # its own takes and returns pytrees
    module = GraphModule(module, module.graph)
    assert "_enter_autocast" in module.code
    results = assert_parity(module, (x,))
    assert dtypes_of(results["none"]) == [F32, F32]
    assert_same(results["none"], list(model(x)), "the model")


def test_what_dynamo_gives_a_backend_is_scripted(dynamo: Any) -> None:
    model, x = Model(), torch.randn(4, 4)
    given: list[tuple[GraphModule, list[Any]]] = []

    def backend(module: GraphModule, examples: list[Any]) -> Callable[..., Any]:
        given.append((GraphModule(module, module.graph), examples))
        return module.forward

    torch.compile(model, backend=backend)(x)
    [(module, _)] = given
    assert "_enter_autocast" in module.code
    names = [node.target for node in module.graph.nodes if node.op == "placeholder"]
    parameters = dict(model.named_parameters())
    inputs = [
        next((p for key, p in parameters.items() if key.replace(".", "_") in _plain(name)), x)
        for name in names
    ]
    assert sum(value is x for value in inputs) == 1
    assert_same(jit_amp.script(module)(*inputs), model(x), "the model")
    assert_parity(module, [value.detach() for value in inputs])


def _plain(name: str) -> str:
    """`L_self_modules_linear_parameters_weight_` as `linear_weight`."""
    return name.replace("_parameters_", "_").replace("L_self_modules_", "")
