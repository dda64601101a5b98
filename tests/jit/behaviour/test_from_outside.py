"""script(autocast=): the scope is around all that is called of the module from outside of it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same, operators, saved_and_loaded

BF16, F32 = torch.bfloat16, torch.float32


def autocast() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)


class Streaming(Part):
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))

    @torch.jit.export
    def chunk(self, x: Tensor) -> Tensor:
        return self.linear(x)


class WithUnusedForward(Part):
    @torch.jit.unused
    def forward(self, x: Tensor) -> Any:
        return {"loss": self.linear(x).sum()}

    @torch.jit.export
    def chunk(self, x: Tensor) -> Tensor:
        return self.linear(x)


class WithoutForward(Part):
    @torch.jit.export
    def chunk(self, x: Tensor) -> Tensor:
        return self.linear(x)


class CallsWhatIsExported(Part):
    """Where autocast is off inside, what is called there does not switch it on again."""

    @torch.jit.export
    def chunk(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", enabled=False):
            off = self.chunk(x)
        return off, self.chunk(x)


class CallsForward(Part):
    def helper(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.helper(x))

    @torch.jit.export
    def chunk(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast("cpu", enabled=False):
            off = self.forward(x)
        return off, self(x), self.helper(x)


class InATask(CallsWhatIsExported):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", enabled=False):
            off = torch.jit.wait(torch.jit.fork(self.chunk, x))
        return off, self.chunk(x)


class WithAFlag(Part):
    """A helper that cannot be compiled alone."""

    def helper(self, x: Tensor, enabled: bool) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            return self.linear(x)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.helper(x, True), self.helper(x, False)

    @torch.jit.export
    def chunk(self, x: Tensor) -> Tensor:
        return self.helper(x, False)


class WithAProperty(Part):
    @property
    def square(self) -> Tensor:
        return self.linear.weight @ self.linear.weight

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.square, self.linear(x)

    @torch.jit.export
    def chunk(self, x: Tensor) -> Tensor:
        return self.square @ x.t()


class Decorated(Part):
    @torch.jit.export
    @torch.autocast("cpu", enabled=False)
    def chunk(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x), self.chunk(x)


def inside(obj: Any) -> Any:
    return jit_amp.script(obj, autocast=autocast())


DOORS: dict[str, Callable[[nn.Module], Any]] = {
    "a module": inside,
    "of torch.jit.script": lambda net: inside(torch.jit.script(net)),
    "of jit_amp.script": lambda net: inside(jit_amp.script(net)),
    "of a file": lambda net: inside(saved_and_loaded(jit_amp.script(net))),
    "saved": lambda net: jit_amp.script(saved_and_loaded(inside(net))),
    "twice": lambda net: inside(inside(net)),
    "copied": lambda net: copy.deepcopy(inside(net)),
    "frozen": lambda net: jit_amp.freeze(inside(net), ["chunk"]),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "kind",
    [
        Streaming,
        WithUnusedForward,
        WithoutForward,
        CallsWhatIsExported,
        CallsForward,
        InATask,
        WithAFlag,
        WithAProperty,
        Decorated,
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.fork.* is deprecated")
def test_every_method_is_as_if_called_inside(kind: type[nn.Module], door: str) -> None:
    net, x = kind().eval(), torch.randn(2, 4)
    scripted = DOORS[door](net)
    names = ["chunk"] if kind in (WithUnusedForward, WithoutForward) else ["forward", "chunk"]
    with torch.no_grad():
        for name in names:
            with autocast():
                expected = getattr(net, name)(x)
            for call in range(3):
                assert_same(getattr(scripted, name)(x), expected, f"{name}, call {call}")


@pytest.mark.parametrize("kind", [Streaming, CallsWhatIsExported, CallsForward])
def test_every_method_has_eagers_gradients(kind: type[nn.Module]) -> None:
    net, x = kind().eval(), torch.randn(2, 4)
    scripted = inside(net)
    for name in ("forward", "chunk"):
        gradients = []
        for module in (net, scripted):
            net.zero_grad()
            with autocast() if module is net else torch.enable_grad():
                results = getattr(module, name)(x)
            results = results if isinstance(results, tuple) else (results,)
            torch.stack([each.float().pow(2).sum() for each in results]).sum().backward()
            gradients.append([p.grad for p in net.parameters() if p.grad is not None])
        assert_same(gradients[1], gradients[0], name)


def test_what_was_given_stays_as_it_is() -> None:
    net, x = CallsWhatIsExported().eval(), torch.randn(2, 4)
    plain = torch.jit.script(net)
    graph = str(plain.graph)
    inside(plain)
    assert str(plain.graph) == graph
    assert plain.chunk(x).dtype == F32
    assert not [name for name in plain._c._method_names() if "inside" in name]


def test_a_method_that_ignores_autocast_does_so_for_its_callers_inside() -> None:
    net, x = CallsWhatIsExported().eval(), torch.randn(2, 4)
    scripted = inside(net)
    jit_amp.ignore_amp(scripted.chunk)
    jit_amp.ignore_amp(net.chunk)
    with autocast():
        expected = net(x)
    assert expected[1].dtype == F32
    assert_same(scripted(x), expected, "ignoring")
    jit_amp.ignore_amp(scripted.chunk, ignore=False)
    assert scripted(x)[1].dtype != F32 or scripted.chunk(x).dtype != F32


def test_a_precision_has_its_scope_around_forward_alone() -> None:
    """As its `apply` has it."""
    net, x = Streaming().eval(), torch.randn(2, 4)
    found = jit_amp.tune(net, [(x,)], dtype=torch.bfloat16, tolerance=10.0)
    with found.apply(net):
        expected = net.chunk(x).dtype
    assert jit_amp.script(net, precision=found).chunk(x).dtype == expected == F32


def test_a_module_without_methods_is_refused() -> None:
    with pytest.raises(TypeError, match="ModuleList has no method to put it around"):
        inside(nn.ModuleList([nn.Linear(2, 2)]))


def test_a_method_that_nobody_calls_inside_is_there_once() -> None:
    scripted = inside(Streaming().eval())
    assert not [name for name in scripted._c._method_names() if "inside" in name]
    assert operators(scripted.chunk.graph).count("prim::Enter") == 1
