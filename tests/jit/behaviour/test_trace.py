"""trace: scopes that traced code enters, and the one around the trace, are part of the result."""

import contextlib
import io
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import custom_bwd, custom_fwd

import jit_amp

from ..support import (
    AMBIENTS,
    DEFAULT,
    assert_parity,
    assert_parity_with,
    assert_same,
    fresh,
    known_warnings_ignored,
    needs_cuda,
    operators,
    operators_of_ours,
    tensors_of,
    text_of,
)

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
CPU_BF16 = {"device_type": "cpu", "dtype": BF16}


def matrix(seed: int = 0) -> Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))


def dtypes_of(value: Any) -> list[torch.dtype]:
    return [t.dtype for t in tensors_of(value)]


def traced(function: Any, *inputs: Any, **options: Any) -> Any:
    """With eager's warnings of the scopes that it runs left out."""
    with known_warnings_ignored():
        return jit_amp.trace(function, inputs, **options)


# Scopes survive a trace.


def nested(x: Tensor, y: Tensor):
    a = x @ y
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = x @ y
        with torch.autocast("cpu", enabled=False):
            c = b.float() @ y
            with torch.autocast("cpu", dtype=torch.float16):
                d = x @ y
        e = torch.cat([b, c])
    return a, b, c, d, e, x @ y


def without_a_dtype(x: Tensor, y: Tensor):
    with torch.autocast("cpu"):
        return x @ y


made_before = torch.autocast("cpu", dtype=torch.float16)


def enters_what_was_made_before(x: Tensor, y: Tensor):
    with made_before:
        a = x @ y
    with made_before:
        b = x @ y
    return a, b, x @ y


@torch.autocast("cpu", dtype=torch.bfloat16)
def decorated(x: Tensor, y: Tensor):
    return x @ y, torch.prod(x, 1)


def enters_by_hand(x: Tensor, y: Tensor):
    scope = torch.autocast("cpu", dtype=torch.bfloat16)
    scope.__enter__()
    a = x @ y
    scope.__exit__(None, None, None)
    return a, x @ y


def composites(x: Tensor, y: Tensor):
    """Operators that the dispatcher decomposes, and ones that take an optional tensor or a list."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (
            torch.einsum("ij,jk->ik", x, y),
            torch.linalg.multi_dot([x, y, x]),
            F.linear(x, y),
            F.linear(x, y, x[0]),
            torch.cat([x, x @ y]),
            torch.conv1d(x[None], y[:, :, None]),
            F.conv1d(x[None], y[:, :, None].repeat(1, 1, 3), padding="same"),
            F.layer_norm(x @ y, [4]),
            F.gelu(torch.prod(x, 1)),
        )


def casts_of_its_own(x: Tensor, y: Tensor):
    """What the author casts is cast, eligible or not."""
    a = x.to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = x.to(torch.bfloat16) @ y.to(torch.bfloat16)
        c = torch.prod(x.float(), 1)
        d = x.half().double()
        e = torch.cat([x.bfloat16(), y.type(torch.float32)])
    return a, b, c, d, e


def reads_the_state(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y
        if torch.is_autocast_enabled("cpu") and z.dtype == torch.bfloat16:
            z = z + 1
    return z


def for_cuda(x: Tensor, y: Tensor):
    with torch.autocast("cuda", dtype=torch.float16):
        a = x @ y
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b = x @ y
    return a, b


FUNCTIONS = [
    nested,
    without_a_dtype,
    enters_what_was_made_before,
    decorated,
    enters_by_hand,
    composites,
    casts_of_its_own,
    reads_the_state,
    for_cuda,
]


@pytest.mark.usefixtures("no_weight_cache")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_scopes_survive_a_trace(function: Callable[..., Any]) -> None:
    inputs = matrix(), matrix(1)
    assert_parity_with(function, traced(function, *inputs), inputs)


@pytest.mark.parametrize("dtype", [BF16, F16, F64])
@pytest.mark.parametrize("function", [nested, decorated, composites, casts_of_its_own])
def test_autocasts_casts_are_not_part_of_the_trace(
    function: Callable[..., Any], dtype: torch.dtype
) -> None:
    """Traced with float32, called with another dtype: eager casts other operands, or refuses."""
    function_traced = traced(function, matrix(), matrix(1))
    inputs = matrix(2).to(dtype), matrix(3).to(dtype)
    try:
        expected = function(*inputs)
    except RuntimeError:
        for _ in range(3):
            with pytest.raises(RuntimeError):
                function_traced(*inputs)
    else:
        for call in range(3):
            assert_same(function_traced(*inputs), expected, f"call {call + 1}")


def convolutions(x: Tensor, w: Tensor):
    """What the tracer records as others, and what autocast leaves alone under a like name."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (
            F.conv1d(x, w, padding="same"),
            F.conv1d(x[0], w),
            F.conv2d(x[None], w[:, :2, None]),
            F.conv_transpose1d(x, w),
            torch.convolution(x, w, None, [1], [0], [1], False, [0], 1),
        )


@pytest.mark.parametrize("example", [F32, BF16, F16, F64])
def test_convolutions(example: torch.dtype) -> None:
    x, w = torch.randn(2, 4, 6), torch.randn(4, 4, 3)
    function = jit_amp.trace(convolutions, (x.to(example), w.to(example)), check_trace=False)
    for dtype in (F32, BF16, F16, F64):
        inputs = x.to(dtype), w.to(dtype)
        for _ in range(3):
            assert_same(function(*inputs), convolutions(*inputs), f"{example}, {dtype}")


def waits_for_a_convolution(x: Tensor, w: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        task = torch.jit.fork(F.conv1d, x, w)
        other = torch.jit.fork(F.linear, x[0], x[1])
        return torch.jit.wait(task), torch.jit.wait(other), x @ x.transpose(1, 2)


def test_tasks() -> None:
    """The check of a trace that waits would go on in another thread, with the scopes left here."""
    inputs = torch.randn(2, 4, 6), torch.randn(4, 4, 3)
    for _ in range(3):
        function = jit_amp.trace(waits_for_a_convolution, inputs)
        assert not torch.is_autocast_enabled("cpu")
    assert_parity_with(waits_for_a_convolution, function, inputs)


@pytest.mark.parametrize("how", ["set_autocast_enabled", "set_autocast_dtype", "a guard"])
def test_a_state_that_no_scope_has_made_is_refused(how: str) -> None:
    def strays(x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            if how == "a guard":
                with torch._C._DisableAutocast():
                    return y, x @ x
            if how == "set_autocast_dtype":
                torch.set_autocast_dtype("cpu", torch.float16)
            else:
                torch.set_autocast_enabled("cpu", False)
            return y, x @ x

    with pytest.raises(
        jit_amp.AutocastError, match="`aten::matmul` ran, while it was traced, in an"
    ):
        jit_amp.trace(strays, matrix())


def test_another_threads_plain_trace_is_pytorchs() -> None:
    graphs: list[torch._C.Graph] = []

    def elsewhere() -> None:
        plain = torch.jit.trace(nested, (matrix(), matrix(1)), check_trace=False)
        graphs.append(plain.graph)

    def starts_a_thread(x: Tensor):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x

    with known_warnings_ignored():
        jit_amp.trace(starts_a_thread, matrix(), check_trace=False)
    [graph] = graphs
    assert not operators_of_ours(graph) and "of_autocast" not in text_of(graph)


class HoldsATrace(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x)


@pytest.mark.parametrize("trace", [torch.jit.trace, jit_amp.trace])
@torch.no_grad()
def test_a_submodule_that_was_traced_stays_as_it_is(trace: Callable[..., Any]) -> None:
    model, x = nn.Conv2d(3, 3, 1), torch.randn(1, 3, 4, 4)
    inner = trace(model, x)
    before = str(inner.graph)
    outer = jit_amp.trace(HoldsATrace(inner), x)
    assert str(inner.graph) == before
    assert outer(x).dtype == HoldsATrace(model)(x).dtype == BF16


@pytest.mark.filterwarnings("ignore")  # PyTorch's of its own trace, and of what is wrong on purpose
@pytest.mark.parametrize("check_trace", [True, False])
def test_the_function_runs_as_often_as_pytorch_runs_it(check_trace: bool) -> None:
    """And draws the same random numbers."""

    def runs(trace: Callable[..., Any]) -> tuple[int, int, float]:
        calls = []

        def adds(x: Tensor):
            calls.append(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return x @ x + torch.zeros(1)

        norm = nn.BatchNorm1d(3)
        torch.manual_seed(0)
        trace(adds, (matrix(),), check_trace=check_trace)
        trace(norm, (torch.randn(4, 3),), check_trace=check_trace)
        assert norm.num_batches_tracked is not None
        return len(calls), int(norm.num_batches_tracked), torch.rand(1).item()

    with known_warnings_ignored():
        assert runs(jit_amp.trace) == runs(torch.jit.trace)


@pytest.mark.filterwarnings("ignore")
def test_the_check_finds_what_pytorchs_finds() -> None:
    kept: list[Tensor] = []

    def remembers(x: Tensor):
        if not kept:
            kept.append(torch.neg(x))
        return x + kept[0]

    with pytest.raises(torch.jit.TracingCheckError):
        jit_amp.trace(remembers, torch.rand(3, 4), check_inputs=[(torch.rand(3, 4),)])


def test_a_scope_object_is_as_it_was() -> None:
    before = set(vars(made_before)) - {"prev", "prev_cache_enabled", "prev_fastdtype"}
    traced(enters_what_was_made_before, matrix(), matrix(1))
    assert set(vars(made_before)) - {"prev", "prev_cache_enabled", "prev_fastdtype"} == before


def test_a_trace_has_the_source_of_a_script() -> None:
    trace, script = traced(nested, matrix(), matrix(1)), jit_amp.script(nested)
    kinds = Counter(operators(trace.graph))
    assert kinds["prim::Enter"] == kinds["prim::Exit"] == 3
    assert kinds["aten::to"] == 1  # the author's
    assert kinds["aten::matmul"] == operators(script.graph).count("aten::matmul")
    # No value has a dtype or a shape: those of the trace are those of the state it was made in.
    assert "strides=" not in text_of(trace.graph)


@pytest.mark.parametrize("function", [nested, composites])
def test_gradients_of_a_trace(function: Callable[..., Any]) -> None:
    function_traced = traced(function, matrix(), matrix(1))
    for call in range(3):
        gradients = []
        for run in (function, function_traced):
            inputs = [matrix(seed).requires_grad_() for seed in (2, 3)]
            torch.stack([t.float().pow(2).sum() for t in tensors_of(run(*inputs))]).sum().backward()
            gradients.append([x.grad for x in inputs])
        for actual, expected in zip(gradients[1], gradients[0], strict=True):
            assert expected.abs().max() > 0
            off = (actual - expected).abs().max() / expected.abs().max()
            assert off <= 2.0**-7, f"call {call + 1}"


def off_inside(x: Tensor, y: Tensor):
    with torch.autocast("cpu", enabled=False):
        return x @ y


traced_off_inside = traced(off_inside, matrix(), matrix(1))


def calls_off_inside(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return off_inside(x, y), x @ y


def calls_traced_off_inside(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return traced_off_inside(x, y), x @ y


def test_a_disabled_scope_in_a_traced_callee_holds() -> None:
    """PyTorch: "ignored, and no way to emit a diagnostic"."""
    results = assert_parity_with(calls_off_inside, calls_traced_off_inside, (matrix(), matrix(1)))
    assert dtypes_of(results["none"]) == [F32, BF16]


# An ambient scope around the trace.


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor):
        y = torch.relu(self.a(x))
        return self.b(y), torch.cat([y, self.a(x)])


@contextlib.contextmanager
def ambient(dtype: torch.dtype = BF16, **options: Any) -> Any:
    with torch.autocast("cpu", dtype=dtype, **options):
        yield


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("cache_enabled", [False, True])
def test_the_ambient_scope_is_part_of_the_trace(cache_enabled: bool, warm: bool) -> None:
    net, x = Net(), matrix()
    with ambient(cache_enabled=cache_enabled):
        if warm:
            net(x)  # "Cannot insert a Tensor that requires grad as a constant", in PyTorch
        net_traced = jit_amp.trace(net, x)
        assert torch.is_autocast_cache_enabled() == cache_enabled

    def as_in_the_trace(x: Tensor):
        with ambient():
            return net(x)

    results = assert_parity_with(as_in_the_trace, net_traced, (matrix(1),))
    assert dtypes_of(results["none"]) == [BF16, BF16]


class Tied(nn.Module):
    """Two layers with one weight: each cast of it that is not shared has a gradient of its own."""

    def __init__(self, scope: Callable[[], Any] = contextlib.nullcontext) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.scope = nn.Linear(4, 4), nn.Linear(4, 4), scope
        self.b.weight = self.a.weight

    def forward(self, x: Tensor):
        with self.scope():
            return self.b(self.a(x))


@pytest.mark.parametrize("where", ["made", "made before", "ambient"])
@pytest.mark.parametrize("cache_enabled", [None, False, True])
def test_a_scope_without_its_cache(where: str, cache_enabled: bool | None) -> None:
    def scope() -> Any:
        return torch.autocast("cpu", dtype=BF16, cache_enabled=cache_enabled)

    before = scope()
    net = Tied({"made": scope, "made before": lambda: before}.get(where, contextlib.nullcontext))
    around = scope if where == "ambient" else contextlib.nullcontext
    with around():
        net_traced = jit_amp.trace(net, matrix())

    def gradient(call: Any) -> Tensor:
        net.zero_grad()
        call(matrix(1)).float().pow(2).sum().backward()
        assert net.a.weight.grad is not None
        return net.a.weight.grad.clone()

    with around():
        expected = gradient(net)
    for _ in range(3):
        assert_same(gradient(net_traced), expected, where)


def test_two_ambient_scopes() -> None:
    with AMBIENTS["both_switched_on"](), ambient(F16):
        function = traced(without_a_dtype, matrix(), matrix(1))

    def as_in_the_trace(x: Tensor, y: Tensor):
        with ambient(F16):
            return without_a_dtype(x, y)

    ambients = [name for name in DEFAULT if "cuda" not in name and "both" not in name]
    assert_parity_with(as_in_the_trace, function, (matrix(), matrix(1)), ambients=ambients)


def test_weights_stay_live() -> None:
    net, x = Net(), matrix()
    with ambient():
        net(x)
        net_traced = jit_amp.trace(net, x)
    assert dict(net_traced.named_parameters()).keys() == dict(net.named_parameters()).keys()
    for parameter, own in zip(net_traced.parameters(), net.parameters(), strict=True):
        assert parameter is own or parameter.data_ptr() == own.data_ptr()
    for _ in range(3):
        with torch.no_grad():
            net.a.weight += 1
        with ambient():
            expected = net(x)
        assert_same(net_traced(x), expected, "after a step")
    gradients = []
    for run in (net, net_traced):
        net.zero_grad()
        with ambient():
            result = run(x)
        torch.stack([t.float().pow(2).sum() for t in tensors_of(result)]).sum().backward()
        gradients.append([p.grad.clone() for p in net.parameters()])
    for actual, expected in zip(gradients[1], gradients[0], strict=True):
        off = (actual - expected).abs().max() / expected.abs().max()
        assert off <= 2.0**-7


class InScopes(Net):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            with torch.autocast("cpu", dtype=torch.float16):
                z = self.a(x)
        return y, z, self.b(x)


class Caches(Net):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=True):
            y = self.a(x)
            return y, self.a(y), F.linear(x, self.a.weight.to(torch.bfloat16))


def test_a_scope_that_caches() -> None:
    net, x = Caches(), matrix()
    net_traced = jit_amp.trace(net, x)
    assert_parity_with(net, net_traced, (matrix(1),))
    with torch.no_grad():
        net.a.weight += 1
    assert_parity_with(net, net_traced, (matrix(1),))
    # Each use of the weight is one of the parameter, and not of what another module has cast.
    kinds = [node.kind() for node in net_traced.a.forward1.graph.nodes()]
    assert kinds.count("prim::GetAttr") == 2


@pytest.mark.usefixtures("no_weight_cache")
@pytest.mark.parametrize("make", [Net, InScopes])
@pytest.mark.parametrize("dtype", [None, BF16, F16])
def test_check_trace_has_no_false_alarms(
    make: Callable[[], nn.Module], dtype: torch.dtype | None
) -> None:
    """Warnings are errors here: PyTorch's check warns where traces differ."""
    net, x = make(), matrix()
    around = ambient(dtype) if dtype else contextlib.nullcontext()
    with around:
        net(x)
        jit_amp.trace(net, x, check_trace=True, check_inputs=[(matrix(1),), (matrix(2),)])


class Random(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ torch.rand_like(x)


def test_check_trace_still_checks() -> None:
    with (
        pytest.warns(torch.jit.TracerWarning, match="nondeterministic"),
        pytest.warns(torch.jit.TracerWarning, match="does not match"),
    ):
        jit_amp.trace(Random(), matrix())


# Traced and scripted code that call each other, several levels deep.


def innermost(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        a = x @ x
    return a, x @ x


innermost_scripted = jit_amp.script(innermost)


def middle(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a, b = innermost(x)
        with torch.autocast("cpu", enabled=False):
            c, d = innermost(x)
    return a, b, c, d, innermost(x)


def middle_calls_a_script(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a, b = innermost_scripted(x)
        with torch.autocast("cpu", enabled=False):
            c, d = innermost_scripted(x)
    return a, b, c, d, innermost_scripted(x)


def outer(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        inside = middle(x)
    return inside, middle(x), x @ x


middle_traced = traced(middle_calls_a_script, matrix())


def outer_calls_a_trace(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        inside = middle_traced(x)
    return inside, middle_traced(x), x @ x


def test_a_trace_that_calls_a_script() -> None:
    results = assert_parity_with(middle, middle_traced, (matrix(1),))
    assert dtypes_of(results["none"]) == [F16, BF16, F16, F32, F16, F32]


def test_a_script_that_calls_a_trace_that_calls_a_script() -> None:
    assert_parity_with(outer, outer_calls_a_trace, (matrix(1),))


def test_a_trace_of_that() -> None:
    assert_parity_with(outer, traced(outer_calls_a_trace, matrix()), (matrix(1),))


def test_a_plain_script_that_is_traced() -> None:
    plain = torch.jit.script(innermost)

    def calls(x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return plain(x)

    def reference(x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return innermost(x)

    # What PyTorch's pass makes of a plain script while it is traced does not count.
    assert_parity_with(reference, traced(calls, matrix(), check_trace=False), (matrix(1),))


class Holds(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.last = inner, nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = self.inner(x)
            with torch.autocast("cpu", enabled=False):
                b = self.inner(x)
        return a, b, self.last(x)


@pytest.mark.usefixtures("no_weight_cache")
def test_submodules_that_were_traced_on_their_own() -> None:
    inner = InScopes()
    model = Holds(inner)
    own = Holds(jit_amp.trace(inner, matrix()))
    own.last = model.last
    assert_parity_with(model, own, (matrix(1),))  # scripted around a trace
    assert_parity_with(model, jit_amp.trace(own, matrix()), (matrix(1),))  # traced around it


class TwoMethods(Net):
    def encode(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.a(x)

    def decode(self, x: Tensor):
        return self.b(x)


def test_trace_module() -> None:
    model, x = TwoMethods(), matrix()
    with ambient(F16):
        model_traced = jit_amp.trace_module(model, {"encode": (x,), "decode": (x,)})
    for _ in range(3):
        with ambient(F16):
            encoded, decoded = model.encode(x), model.decode(x)
        assert_same(model_traced.encode(x), encoded, "encode")
        assert_same(model_traced.decode(x), decoded, "decode")
        with ambient():
            assert_same(model_traced.decode(x), decoded, "decode in another scope")


# Parts with exported methods, of whose attributes PyTorch takes the types from annotations.


class Encoder(nn.Module):
    """A weight and a bias that are annotated as Optional, as a convolution's bias is."""

    weight: Tensor | None
    bias: Tensor | None
    table: Tensor | None
    kept: Tensor | None

    def __init__(self, dtype: torch.dtype = F32) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3)
        self.depthwise = nn.Sequential(nn.Conv1d(4, 4, 3, groups=4), nn.ConvTranspose1d(4, 4, 3))
        self.weight = nn.Parameter(torch.randn(4, 4, 1))
        self.bias = nn.Parameter(torch.randn(4, dtype=dtype))
        self.register_buffer("table", torch.randn(4, dtype=dtype))
        self.kept = torch.randn(4)
        self.none = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor):
        y = self.depthwise(self.conv(x).relu())
        y = torch.conv1d(y, self.weight, self.bias) + torch.conv1d(y, self.weight, self.table)
        y = torch.layer_norm(y.transpose(1, 2).float(), [4], self.kept)
        return self.none(y), torch.prod(y, 1)

    @torch.jit.export
    def get_init_states(self, n: int) -> Tensor:
        bias = self.bias
        return torch.zeros(n, 4) if bias is None else bias + torch.zeros(n, 4)


class ScopedEncoder(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.encoder(x)


class ScopedAndExporting(ScopedEncoder):
    @torch.jit.export
    def twice(self, x: Tensor) -> Tensor:
        return x * 2


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("outer", [ScopedEncoder, ScopedAndExporting])
def test_a_part_with_exported_methods(outer: type[ScopedEncoder], dtype: torch.dtype) -> None:
    model, x = outer(Encoder(dtype)).eval(), torch.randn(2, 4, 20)
    model_traced = traced(model, x)
    assert_parity_with(model, model_traced, (torch.randn(2, 4, 20),))
    frozen = jit_amp.freeze(model_traced, optimize_numerics=False)
    with torch.no_grad():
        assert_parity_with(model, frozen, (x,), ambients=["none"])
    exported = model_traced.encoder.get_init_states
    assert_same(exported(2), model.encoder.get_init_states(2), "the exported method")
    assert_same(saved(model_traced).encoder.get_init_states(2), exported(2), "saved")


def saved(module: Any) -> Any:
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def test_exported_methods_around_the_call_of_a_trace() -> None:
    model, x = Encoder().eval(), torch.randn(2, 4, 20)
    with ambient():
        model_traced = traced(model, x)
        expected = model(x)
    for _ in range(3):
        assert_same(model_traced(x), expected, "traced in a scope")


class Cell(nn.Module):
    """What the tracer records as other operators, with an Optional weight."""

    b_ih: Tensor | None

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.w_ih, self.w_hh = (nn.Parameter(torch.randn(4, 4)) for _ in range(2))
        self.b_ih, self.b_hh = (nn.Parameter(torch.randn(4, dtype=dtype)) for _ in range(2))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.rnn_tanh_cell(x, x, self.w_ih, self.w_hh, self.b_ih, self.b_hh)

    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        return x


def test_an_exported_method_beside_what_is_recorded_as_others() -> None:
    model = Cell(F32).eval()
    assert_parity_with(model, traced(model, matrix()), (matrix(1),))


class Scaled(nn.Module):
    scale: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.rand(4))

    def forward(self, x: Tensor):
        return self.linear(x) * self.scale

    @torch.jit.export
    def get_init_states(self) -> Tensor:
        return torch.zeros(1, 4)


class ScaledAsAdvised(Scaled):
    scale: Tensor


class ScaledWithoutExported(Scaled):
    get_init_states = None


class Beside(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), encoder)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layers(x)


def test_what_the_tracer_fails_on_is_named_with_what_to_write() -> None:
    with pytest.raises(jit_amp.AutocastError, match="JA403") as error:
        traced(Beside(Scaled()), matrix())
    first, said, advice, _ = str(error.value).split("\n\n")
    assert "`layers.1` (Scaled), which has the exported method `get_init_states`" in first
    assert "INTERNAL ASSERT FAILED" in said
    assert advice.startswith("Instead: annotate `Scaled.scale` as `torch.Tensor`, or move ")
    assert "`Scaled.get_init_states` to a module that is not traced" in advice
    for advised in (Beside(ScaledAsAdvised()), Beside(ScaledWithoutExported())):
        assert_parity_with(advised, traced(advised, matrix()), (matrix(1),))


def test_the_exported_method_of_the_module_itself_is_named() -> None:
    with pytest.raises(jit_amp.AutocastError, match=r"`Scaled` \(Scaled\), which has .*JA403"):
        traced(Scaled(), matrix())


# autograd.Functions see eager's state.

seen: list[tuple[str, bool, torch.dtype]] = []


class InFloat(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, x: Tensor) -> Tensor:
        seen.append(("forward", torch.is_autocast_enabled("cpu"), x.dtype))
        ctx.save_for_backward(x)
        return x @ x

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        product = gradient @ x
        seen.append(("backward", torch.is_autocast_enabled("cpu"), product.dtype))
        return product


class AsItIs(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        product = x @ x
        seen.append(("forward", torch.is_autocast_enabled("cpu"), product.dtype))
        return product

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        product = gradient.float() @ x.float()
        seen.append(("backward", torch.is_autocast_enabled("cpu"), product.dtype))
        return product.to(x.dtype)


@pytest.mark.parametrize("function", [InFloat, AsItIs])
@pytest.mark.parametrize("around", ["none", "cpu", "cpu_off"])
def test_custom_functions_see_eagers_state(function: Any, around: str) -> None:
    def uses(x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = function.apply(torch.relu(x @ x))
        return a, function.apply(x)

    uses_traced = traced(uses, matrix(), check_trace=False)
    for call in range(3):
        states, gradients = [], []
        for run in (uses, uses_traced):
            seen.clear()
            x = matrix(1).requires_grad_()
            with AMBIENTS[around]():
                results = run(x)
            torch.stack([t.float().sum() for t in results]).sum().backward()
            states.append((sorted(map(str, seen)), dtypes_of(results)))
            gradients.append(x.grad)
        assert states[1] == states[0], f"call {call + 1}"
        torch.testing.assert_close(gradients[1], gradients[0], rtol=2e-2, atol=2e-2)


@torch.jit.ignore
def ignored(x: Tensor) -> Tensor:
    return x @ x if torch.is_autocast_enabled("cpu") else x @ x + 1


ignored_scripted = None


def calls_ignored(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return ignored(x)


def test_ignored_code_sees_eagers_state() -> None:
    script = jit_amp.script(calls_ignored)

    def calls(x: Tensor):
        return script(x), script(x + 1)

    def reference(x: Tensor):
        return calls_ignored(x), calls_ignored(x + 1)

    assert_parity_with(reference, traced(calls, matrix()), (matrix(1),))


# Freezing.


class ConvNorm(nn.Module):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=bias)
        self.norm = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 5)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.relu(self.norm(self.conv(x)))
            with torch.autocast("cpu", enabled=False):
                y = torch.exp(y.float().mean((2, 3)))
            return self.linear(y)


def casts_of(graph: torch._C.Graph) -> Counter[tuple[str, str]]:
    """The dtypes of casts and of weights, and the operators, by count."""
    found: Counter[tuple[str, str]] = Counter()
    for node in graph.nodes():
        if node.kind() == "aten::to":
            found["cast", str(node.inputsAt(1).toIValue())] += 1
        elif node.kind() == "prim::Constant":
            value = node.output().toIValue()
            if isinstance(value, Tensor):
                found["weight", f"{value.dtype} {list(value.shape)}"] += 1
        elif node.kind().startswith("aten::"):
            found["operator", node.kind()] += 1
    return found


@pytest.mark.parametrize("optimize_numerics", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_a_trace_and_a_script_freeze_to_the_same_casts(bias: bool, optimize_numerics: bool) -> None:
    model, x = ConvNorm(bias).eval(), torch.randn(2, 3, 6, 6)
    frozen = [
        jit_amp.freeze(form, example_inputs=(x,), optimize_numerics=optimize_numerics)
        for form in (jit_amp.trace(model, x), jit_amp.script(model))
    ]
    counts = [casts_of(form.graph) for form in frozen]
    for kind in ("cast", "weight"):
        each = [{key: n for key, n in count.items() if key[0] == kind} for count in counts]
        assert each[0] == each[1]
    assert ("operator", "aten::batch_norm") in counts[0] or optimize_numerics
    assert ("operator", "aten::batch_norm") not in counts[0] or not optimize_numerics
    for _ in range(3):
        assert_same(frozen[0](x), frozen[1](x), "frozen")
        if not optimize_numerics:
            assert_same(frozen[0](x), model(x), "frozen, and eager")


class Shapes(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.prod(x, 1, True) + x
            z = torch.zeros(y.size(0), dtype=y.dtype)
            return y.reshape(-1, y.size(0)), y.shape[1] * x, z.fill_(1).sum() * x


@pytest.mark.parametrize("dtype", [F32, BF16, F64])
@torch.no_grad()
def test_what_the_trace_saw_is_not_taken_for_what_must_be(dtype: torch.dtype) -> None:
    """Traced and frozen without an example: other shapes, other dtypes."""
    model = Shapes().eval()
    frozen = jit_amp.freeze(jit_amp.trace(model, torch.randn(4, 4)))
    x = torch.randn(6, 3).to(dtype)
    for _ in range(3):
        assert_same(frozen(x), model(x), "frozen")


@torch.no_grad()
def test_a_trace_under_an_ambient_scope_is_frozen_and_saved() -> None:
    net, x = Net().eval(), matrix()
    with ambient():
        expected = net(x)
        net_traced = jit_amp.trace(net, x)
    frozen = jit_amp.freeze(net_traced, example_inputs=(x,))
    file = io.BytesIO()
    torch.jit.save(frozen, file)
    file.seek(0)
    for module in (frozen, torch.jit.load(file)):
        assert_same(module(x), expected, "frozen")


@torch.no_grad()
def test_a_trace_is_saved_and_scripted_again() -> None:
    net, x = InScopes().requires_grad_(False), matrix()
    file = io.BytesIO()
    torch.jit.save(jit_amp.trace(net, x), file)
    file.seek(0)
    assert_same(jit_amp.script(torch.jit.load(file))(x), net(x), "loaded")


# What PyTorch tests of traces under autocast (test/jit/test_autocast.py, TestJitTraceAutocast).


class Mnist(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 8, 5)
        self.dropout = nn.Dropout2d()
        self.fc1, self.fc2 = nn.Linear(128, 20), nn.Linear(20, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.dropout(self.conv2(x)), 2))
        x = F.dropout(F.relu(self.fc1(x.reshape(-1, 128))), training=self.training)
        return F.log_softmax(self.fc2(x), 1)


class ConvBatchNorm(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, bias=bias), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class Cat(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y])


def image(channels: int, size: int, last: bool = False) -> Tensor:
    x = torch.randn(2, channels, size, size)
    return x.to(memory_format=torch.channels_last) if last else x


SEEDS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "MNIST": (Mnist, lambda: (image(1, 28),)),
    "MNIST, channels last": (Mnist, lambda: (image(1, 28, last=True),)),
    "conv, bn": (lambda: ConvBatchNorm(True), lambda: (image(3, 8),)),
    "conv without bias, bn": (lambda: ConvBatchNorm(False), lambda: (image(3, 8),)),
    "conv, bn, channels last": (lambda: ConvBatchNorm(True), lambda: (image(3, 8, last=True),)),
    "conv without bias, bn, channels last": (
        lambda: ConvBatchNorm(False),
        lambda: (image(3, 8, last=True),),
    ),
    "cat of two dtypes": (Cat, lambda: (torch.randn(24, 128), torch.randn(24, 128).to(BF16))),
    "cat of one": (Cat, lambda: (torch.randn(24, 128), torch.randn(24, 128))),
}


@pytest.mark.parametrize("frozen", [False, True], ids=["traced", "frozen"])
@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=needs_cuda)], ids=["cpu", "cuda"]
)
@pytest.mark.parametrize("name", SEEDS)
@torch.no_grad()
def test_pytorchs_cases(name: str, device: str, frozen: bool) -> None:
    make, example = SEEDS[name]
    model = make().eval().to(device)
    inputs = tuple(x.to(device) for x in example())
    with torch.autocast(device, dtype=BF16):
        expected = model(*inputs)
        model_traced = jit_amp.trace(model, inputs)
    if frozen:
        model_traced = jit_amp.freeze(model_traced, example_inputs=inputs, optimize_numerics=False)
    for call in range(3):
        result = model_traced(*inputs)
        assert_same(result, expected, f"call {call + 1}")
        assert result.stride() == expected.stride()


# Compiled autograd.


class Losses(Net):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(self.a(x))
            return torch.sigmoid(self.b(y)).float().sum()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # compiled autograd's own
@pytest.mark.parametrize("make", [jit_amp.script, lambda net: jit_amp.trace(net, matrix())])
def test_gradients_under_compiled_autograd(make: Callable[[nn.Module], Any]) -> None:
    """PyTorch: "compiled_args not implemented: DifferentiableGraphBackward"."""
    net, x = Losses(), matrix(1)
    form = make(net)
    for call in range(4):
        gradients = []
        for run in (net, form):
            net.zero_grad()
            loss = run(x)
            compiling = (
                contextlib.nullcontext()
                if run is net
                else torch._dynamo.compiled_autograd._enable(lambda graph: graph)
            )
            with compiling:
                loss.backward()
            gradients.append([p.grad.clone() for p in net.parameters()])
        for actual, expected in zip(gradients[1], gradients[0], strict=True):
            assert_same(actual, expected, f"call {call + 1}")


# What cannot be traced, and what is left behind.


def test_an_error_in_the_traced_code_leaves_nothing_behind() -> None:
    before = {name: vars(torch.autocast)[name] for name in ("__init__", "__enter__", "__exit__")}

    def fails(x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        jit_amp.trace(fails, (matrix(),))
    assert {name: vars(torch.autocast)[name] for name in before} == before
    assert torch.is_autocast_cache_enabled()
    assert dtypes_of(traced(nested, matrix(), matrix(1))(matrix(), matrix(1)))[1] == BF16


class Enters(nn.Module):
    def __init__(self, scope: torch.autocast) -> None:
        super().__init__()
        self.scope = [scope]

    def forward(self, x: Tensor) -> Tensor:
        self.scope[0].__enter__()
        return x @ x


class Leaves(Enters):
    def forward(self, x: Tensor) -> Tensor:
        self.scope[0].__exit__(None, None, None)
        return x @ x


def test_a_scope_that_another_module_leaves_is_refused() -> None:
    scope = torch.autocast("cpu", dtype=BF16)
    model = nn.Sequential(Enters(scope), Leaves(scope))
    with pytest.raises(jit_amp.AutocastError, match="one traced module enters and another leaves"):
        jit_amp.trace(model, matrix(), check_trace=False)


def test_a_refusal_shows_the_users_line() -> None:
    def never_left(x: Tensor):
        torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
        return x @ x

    with AMBIENTS["cpu_off"](), pytest.raises(jit_amp.AutocastError) as caught:
        try:
            jit_amp.trace(never_left, (matrix(),), check_trace=False)
        finally:
            torch.autocast_decrement_nesting()
    assert "entered and not left" in str(caught.value)
    assert "test_trace.py" in str(caught.value)


def test_keyword_examples() -> None:
    function = jit_amp.trace(nested, example_kwarg_inputs={"x": matrix(), "y": matrix(1)})
    assert_same(function(matrix(), matrix(1)), nested(matrix(), matrix(1)), "keywords")


def test_what_is_scripted_already_is_not_traced() -> None:
    script = jit_amp.script(Net())
    with pytest.warns(UserWarning, match="already a ScriptModule"):
        assert_same(jit_amp.trace(script, matrix())(matrix()), script(matrix()), "scripted")


def test_plain_trace_is_pytorchs_outside() -> None:
    jit_amp.trace(nested, (matrix(), matrix(1)))
    plain = torch.jit.trace(nested, (matrix(), matrix(1)), check_trace=False)
    assert "prim::Enter" not in operators(plain.graph)
    with jit_amp.install():
        installed = torch.jit.trace(nested, (matrix(), matrix(1)))
        module = torch.jit.trace_module(TwoMethods(), {"encode": (matrix(),)})
    for trace in (installed, module.encode):
        assert "prim::Enter" in operators(trace.graph)


def test_a_script_of_the_same_code_agrees() -> None:
    assert_parity(nested, (matrix(), matrix(1)))
    assert_same(
        traced(nested, matrix(), matrix(1))(*fresh((matrix(), matrix(1)))),
        jit_amp.script(nested)(matrix(), matrix(1)),
        "both",
    )


# Functions that are scripted where they are traced.


@torch.jit.script_if_tracing
def scripted_if_traced(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch.mm(x, y)
        with torch.autocast("cpu", enabled=False):
            b = torch.mm(x, y)
    return a, b, torch.mm(x, y)


@torch.jit.script_if_tracing
def without_a_scope_if_traced(x: Tensor, y: Tensor):
    for _ in range(x.size(0)):
        y = torch.mm(x, y)
    return y


def calls_scripted_if_traced(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        inside = scripted_if_traced(x, y)
        loop = without_a_scope_if_traced(x, y)
    return inside, loop, scripted_if_traced(x, y), without_a_scope_if_traced(x, y)


def test_what_is_scripted_if_it_is_traced_has_its_scopes() -> None:
    function = traced(calls_scripted_if_traced, matrix(), matrix(1))
    results = assert_parity_with(calls_scripted_if_traced, function, (matrix(2), matrix(3)))
    inside, _, outside, _ = results["none"]
    assert dtypes_of(inside) == [BF16, F32, F16] and dtypes_of(outside) == [BF16, F32, F32]


class OfTheUsers(torch.autocast):
    """A subclass with methods of its own around PyTorch's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu", *args, **kwargs)

    def __enter__(self) -> Any:
        return super().__enter__()


def subclasses_with_and_without_a_dtype(x: Tensor, y: Tensor):
    with OfTheUsers():
        a = torch.mm(x, y)
    with OfTheUsers(torch.bfloat16):
        b = torch.mm(x, y)
    with OfTheUsers(enabled=False):
        return a, b, torch.mm(x, y)


def test_a_subclass_of_autocast() -> None:
    """Whose dtype is the ambient's at each call, where none was given."""
    function = traced(subclasses_with_and_without_a_dtype, matrix(), matrix(1))
    assert_parity_with(subclasses_with_and_without_a_dtype, function, (matrix(2), matrix(3)))


def test_the_nesting_that_a_user_counts_is_no_scope() -> None:
    def counts(x: Tensor):
        torch.autocast_increment_nesting()
        y = torch.mm(x, x)
        torch.autocast_decrement_nesting()
        return y

    assert "prim::Enter" not in operators(traced(counts, matrix()).graph)


class ConstantsBesideAConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.rand(4, 4)
        self.conv = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            table = self.table @ self.table
        return table, self.conv(x)


def test_what_is_computed_of_constants_is_computed_in_its_scope() -> None:
    module, x = ConstantsBesideAConvolution(), torch.rand(1, 1, 4, 4)
    traced = jit_amp.trace(module, (x,))
    for _ in range(3):
        assert_same(traced(x), module(x), "traced")
