"""Gradients bit for bit: where they are recorded, autocast casts as eager's does, cache and all."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import jit_amp

from ..support import AMBIENTS, assert_same

BF16 = torch.bfloat16


def gradients(module: Any, x: Tensor, steps: int = 1) -> list[Any]:
    """What some calls give, and the gradients that add up."""
    x = x.clone().requires_grad_()
    results = []
    for _ in range(steps):
        result = module(x)
        parts = result if isinstance(result, tuple) else (result,)
        torch.stack([part.float().pow(2).sum() for part in parts]).sum().backward()
        results.append(result)
    return [results, x.grad, [parameter.grad for parameter in module.parameters()]]


def assert_gradients(module: nn.Module, x: Tensor, steps: int = 3) -> Any:
    scripted = None
    for name in ("none", "cpu"):
        eager, ours = copy.deepcopy(module), copy.deepcopy(module)
        scripted = jit_amp.script(ours)
        with AMBIENTS[name]():
            expected = gradients(eager, x, steps)
        with AMBIENTS[name]():
            actual = gradients(scripted, x, steps)
        assert_same(actual, expected, f"ambient {name}")
    return scripted


class Shared(nn.Module):
    """An activation and a weight that are used three times."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.register_buffer("table", torch.randn(8, 8))

    def forward(self, x: Tensor):
        h = x * 1.0
        with torch.autocast("cpu", dtype=torch.float16):
            q, k = F.linear(h, self.weight), F.linear(h, self.weight)
            for _ in range(3):
                k = F.linear(k.float(), self.weight)
            return q, k, F.linear(h, self.table), F.linear(h, self.weight.t())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(8, 8).requires_grad_(False)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.second(self.frozen(self.first(x))), self.frozen(x)


class WithoutCache(Shared):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
            a = F.linear(x, self.weight)
            with torch.autocast("cpu", dtype=torch.float16):
                return a, F.linear(x, self.weight), F.linear(x, self.weight)


class NoGrad(Shared):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                target = F.linear(x, self.weight)
            return F.linear(x, self.weight) - target, F.layer_norm(x, [8])


class TwoDtypes(Shared):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = F.linear(x, self.weight)
            with torch.autocast("cpu", dtype=torch.float16):
                b = F.linear(x, self.weight)
            return a, b, F.linear(x, self.weight)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.linear = nn.Linear(4, 8)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.relu(self.norm(self.conv(x)), inplace=True).flatten(2).transpose(1, 2)
            y = self.attention(y, y, y)[0] + y
            return F.log_softmax(self.linear(y.mean(1)), dim=-1)


MODULES: list[tuple[type[nn.Module], tuple[int, ...]]] = [
    (Shared, (2, 8)),
    (Tied, (2, 8)),
    (WithoutCache, (2, 8)),
    (NoGrad, (2, 8)),
    (Network, (2, 3, 6, 6)),
]


@pytest.mark.parametrize(("cls", "shape"), MODULES)
def test_gradients_are_eagers(cls: type[nn.Module], shape: tuple[int, ...]) -> None:
    assert_gradients(cls(), torch.randn(shape))


@pytest.mark.parametrize("ambient", ["none", "cpu"])
def test_a_weight_in_scopes_of_two_dtypes_has_each(ambient: str) -> None:
    """Eager's cache would hand the second scope the first one's cast: it is off there."""
    module, x = TwoDtypes(), torch.randn(2, 8)
    scripted = jit_amp.script(copy.deepcopy(module))
    torch.set_autocast_cache_enabled(False)
    try:
        with AMBIENTS[ambient]():
            expected = gradients(module, x)
    finally:
        torch.set_autocast_cache_enabled(True)
    with AMBIENTS[ambient]():
        assert [r.dtype for r in scripted(x.requires_grad_())] == [BF16, torch.float16, BF16]
        scripted.zero_grad()
        x.grad = None
        assert_same(gradients(scripted, x.detach())[:2], expected[:2], "results, gradient of x")


def test_calls_inside_one_ambient_scope_share_a_cast() -> None:
    module, x = Tied(), torch.randn(2, 8)
    scripted = jit_amp.script(copy.deepcopy(module))
    found = []
    for each in (module, scripted):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            first = each(x)[0]
            each.first.weight.data.add_(1.0)  # a step inside the scope: eager's cast is stale
            second = each(x)[0]
        (first + second).sum().backward()
        found.append((first, second, each.first.weight.grad))
    assert_same(found[1], found[0], "a step inside an open scope")


def test_what_is_cast_is_dropped_when_the_outermost_scope_is_left() -> None:
    module, x = Tied(), torch.randn(2, 8)
    scripted = jit_amp.script(module)
    before = scripted(x)[0]
    with torch.no_grad():
        module.first.weight.add_(1.0)
    assert not torch.equal(scripted(x)[0], before)
    assert_same(scripted(x), module(x), "after a step")


class Raises(Shared):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
            y = F.linear(x, self.weight)
            if y.size(0) > 2:
                raise ValueError("no")
            return y


def test_the_state_after_an_exception_is_that_before() -> None:
    scripted = jit_amp.script(Raises())
    for _ in range(3):
        with pytest.raises(torch.jit.Error, match="no"):
            scripted(torch.randn(3, 8))
        assert not torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_cache_enabled()
    assert scripted(torch.randn(2, 8)).dtype is torch.float16


def in_containers(given: dict[str, list[Tensor]], x: Tensor):
    with torch.autocast("cpu", dtype=torch.float16):
        return x @ given["a"][0], x @ given["a"][0] + x @ given["a"][1]


def makes_a_leaf(x: Tensor):
    y = x * 1.0
    y.requires_grad_()
    with torch.autocast("cpu", dtype=torch.float16):
        return y @ y, y @ x, y


def test_a_tensor_that_requires_grad_is_found_in_containers() -> None:
    x, found = torch.randn(4, 4), []
    for function in (in_containers, jit_amp.script(in_containers)):
        leaves = [torch.full((4, 4), 3.0).requires_grad_(), torch.ones(4, 4)]
        results = function({"a": leaves}, x)
        (sum(r.sum() for r in results) * 100).backward()
        found.append((results, leaves[0].grad))
    assert_same(found[1], found[0], "in a dictionary of lists")


def test_a_tensor_that_begins_to_require_grad_inside() -> None:
    x, found = torch.randn(4, 4), []
    for function in (makes_a_leaf, jit_amp.script(makes_a_leaf)):
        *results, leaf = function(x)
        sum(r.float().sum() for r in results).backward()
        found.append((results, leaf.grad))
    assert_same(found[1], found[0], "a leaf of its own")


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing(use_reentrant: bool) -> None:
    module, x = Network(), torch.randn(2, 3, 6, 6)
    found = []
    for each in (module, jit_amp.script(copy.deepcopy(module))):
        given = x.clone().requires_grad_()
        # TorchScript makes an error of the exception that stops a recomputation early.
        with torch.utils.checkpoint.set_checkpoint_early_stop(False):
            result = checkpoint(each, given, use_reentrant=use_reentrant)
        result.sum().backward()
        found.append((result, given.grad, [p.grad for p in each.parameters()]))
    assert_same(found[1], found[0], "checkpoint")


def test_double_backward_and_forward_mode() -> None:
    module, x = Tied(), torch.randn(2, 8)
    found = []
    for each in (module, jit_amp.script(copy.deepcopy(module))):
        given = x.clone().requires_grad_()
        [slope] = torch.autograd.grad(each(given)[0].float().pow(3).sum(), given, create_graph=True)
        [curve] = torch.autograd.grad(slope.pow(2).sum(), given, retain_graph=True)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            tangent = torch.autograd.forward_ad.unpack_dual(each(dual)[0]).tangent
        found.append((slope, curve, tangent))
    assert_same(found[1], found[0], "derivatives of derivatives, and tangents")


def test_a_gradient_scaler_and_an_optimiser() -> None:
    module, x = Shared(), torch.randn(2, 8)
    found = []
    for each in (module, jit_amp.script(copy.deepcopy(module))):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=2)
        optimiser = torch.optim.SGD(each.parameters(), lr=0.01, momentum=0.9)
        for _ in range(6):
            optimiser.zero_grad()
            loss = sum(part.float().pow(2).mean() for part in each(x))
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
        found.append((scaler.get_scale(), list(each.parameters())))
    assert_same(found[1], found[0], "six steps")


def test_a_trace_has_eagers_gradients() -> None:
    module, x = Tied(), torch.randn(2, 8)
    traced = jit_amp.trace(copy.deepcopy(module), (x,))
    assert_same(gradients(traced, x, 3), gradients(module, x, 3), "a trace")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, contextlib.nullcontext])
def test_without_gradients_casts_are_in_the_graph(mode: Callable[[], Any]) -> None:
    module = Tied().requires_grad_(mode is not contextlib.nullcontext)
    scripted = jit_amp.script(module)
    x = torch.randn(2, 8)
    with mode():
        for _ in range(3):
            assert_same(scripted(x), module(x), str(mode))


class Projected(nn.Module):
    """Products of a weight with what is not contiguous: matmul asks whether the weight requires
    grad."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.inner(x).transpose(0, 1)
            return torch.matmul(h, self.weight), torch.matmul(self.weight, h.transpose(1, 2))


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_matmul_takes_eagers_kernel(
    mode: Callable[[], Any], requires_grad: bool, cached: bool
) -> None:
    module = Projected().requires_grad_(requires_grad)
    scripted = jit_amp.script(copy.deepcopy(module))
    strides = set()
    for n in (1, 2, 7):
        x = torch.randn(1, n, 8)
        with mode(), torch.autocast("cpu", enabled=False, cache_enabled=cached):
            expected = module(x)
            for _ in range(3):
                actual = scripted(x)
                assert_same(actual, expected, f"{n} rows")
                assert [y.stride() for y in actual] == [y.stride() for y in expected]
        strides.add(tuple(y.stride() for y in expected))
    assert strides


class Once(nn.Module):
    """Weights that are used once: PyTorch's cache of casts is one for all threads, and any thread
    that leaves its scope empties it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.second(torch.relu(self.first(x)))


def test_threads_with_a_replica_each() -> None:
    """As torch.nn.DataParallel's: each has its own autocast state and gradient mode."""
    module, inputs = Once(), [torch.randn(2, 8) for _ in range(4)]
    scripted = jit_amp.script(copy.deepcopy(module))

    def slopes(each: nn.Module, i: int) -> list[Any]:
        found = []
        with AMBIENTS["cpu" if i % 2 else "none"](), torch.set_grad_enabled(i != 3):
            for _ in range(20):
                result = each(inputs[i]).float().pow(2).sum()
                found.append(result)
                if i != 3:
                    found += torch.autograd.grad(result, list(each.parameters()))
        return found

    expected = [slopes(copy.deepcopy(module), i) for i in range(4)]
    replicas = [copy.deepcopy(scripted) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(slopes, replicas, range(4)))
    assert_same(actual, expected, "four threads")


class Decorated(nn.Module):
    """A decorator's autocast object keeps the cache's setting that it was made under."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    @torch.autocast("cpu", dtype=torch.float16)
    def product(self, x: Tensor):
        return torch.linalg.multi_dot([x, x]) + torch.linalg.multi_dot([x, x, x])

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            return self.product(self.weight) + x


def test_a_decorator_keeps_the_cache_that_it_was_made_under() -> None:
    assert_gradients(Decorated(), torch.randn(4, 4))


class InALoop(nn.Module):
    """One cast for all rounds: the outermost scope stays open."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=False):
            for _ in range(3):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    x = x + F.linear(x, self.weight)
        return x


class InFloat16(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            return F.linear(x, self.weight)


def test_what_another_program_ran_in_does_not_matter() -> None:
    module, x = InALoop(), torch.randn(2, 8)
    eager, scripted = copy.deepcopy(module), jit_amp.script(module)
    expected = gradients(eager, x)
    jit_amp.script(InFloat16())(x.clone().requires_grad_())
    assert_same(gradients(scripted, x), expected, "after a scope of float16")


class BackAndForth(nn.Module):
    """A scope of one dtype, after another that went back to the other dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=False):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                with torch.autocast("cpu", dtype=torch.float16):
                    a = F.linear(x, self.weight)
                b = F.linear(x, self.weight)
            with torch.autocast("cpu", dtype=torch.float16):
                return a, b, F.linear(x, self.weight)


def test_each_scope_has_casts_to_its_own_dtype() -> None:
    scripted, x = jit_amp.script(BackAndForth()), torch.randn(2, 8)
    for _ in range(3):
        found = scripted(x.clone().requires_grad_())
        assert [y.dtype for y in found] == [torch.float16, BF16, torch.float16]


class Rewritten(nn.Module):
    """A weight that is written to between two products of one scope."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.register_buffer("table", torch.randn(8, 8))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.linear(x, self.weight) + F.linear(x, self.table)
            with torch.no_grad():
                self.weight.mul_(0.5)
                self.table.mul_(0.5)
            return y, F.linear(x, self.weight), F.linear(x, self.table)


@pytest.mark.parametrize("with_gradients", [True, False])
@pytest.mark.parametrize("ambient", ["none", "cpu"])
@pytest.mark.parametrize("learns", [True, False])
def test_a_weight_that_is_written_to_keeps_the_cast_that_eager_keeps(
    with_gradients: bool, ambient: str, learns: bool
) -> None:
    eager, x = Rewritten().requires_grad_(learns), torch.randn(2, 8)
    scripted = jit_amp.script(copy.deepcopy(eager))
    for _ in range(3):
        with AMBIENTS[ambient](), torch.set_grad_enabled(with_gradients):
            expected = eager(x)
            actual = scripted(x)
        assert_same(actual, expected, f"ambient {ambient}")
