"""Models as Hugging Face Accelerate and Lightning hand them out: eager's values, or a refusal.

They are no dependencies of the tests: `test_wrapped.py` has their like.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_parity, assert_same

X = torch.randn(3, 8)
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).relu())


class Results(NamedTuple):
    one: Tensor
    some: list[Tensor]


class Many(Net):
    def forward(
        self, x: Tensor, y: Tensor | None = None
    ) -> tuple[Results, dict[str, Tensor], Tensor | None, int]:
        h = self.first(x)
        return Results(self.last(h), [h, x]), {"h": h}, y, 3


class Pipeline(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part, self.out = part, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.part(x))


def installed(module: nn.Module) -> Any:
    with jit_amp.install():
        return torch.jit.script(module)


SCRIPTED: dict[str, Callable[[nn.Module], Any]] = {
    "script": jit_amp.script,
    "install": installed,
    "freeze": lambda m: jit_amp.freeze(m, example_inputs=(X,), optimize_numerics=False),
    "server": lambda m: jit_amp.freeze(m, example_inputs=(X,), target="server"),
    "export": lambda m: jit_amp.export(m, (X,)).module(),
}
DOORS = SCRIPTED | {"trace": lambda m: jit_amp.trace(m, (X,))}


def assert_as_eager(module: nn.Module, door: str) -> None:
    module.eval()
    with torch.no_grad():
        made = DOORS[door](module)
        for call in range(3):
            eager, ours = module(X), made(X)
            if door == "server":  # which rounds otherwise
                assert ours.dtype == eager.dtype
                assert torch.allclose(ours, eager, atol=2**-6)
            else:
                assert_same(ours, eager, f"{door}, call {call + 1}")


@pytest.fixture
def prepare() -> Iterator[Callable[..., nn.Module]]:
    accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed")
    state = pytest.importorskip("accelerate.state")

    def prepared(module: nn.Module, **autocast: Any) -> nn.Module:
        state.AcceleratorState._reset_state(True)
        handlers = [accelerate.utils.AutocastKwargs(**autocast)]
        accelerator = accelerate.Accelerator(
            cpu=True, mixed_precision="bf16", kwargs_handlers=handlers
        )
        return accelerator.prepare(module)

    yield prepared
    state.AcceleratorState._reset_state(True)


@pytest.mark.parametrize("door", DOORS)
def test_a_module_that_accelerate_has_prepared_is_as_eager(prepare: Any, door: str) -> None:
    assert_as_eager(prepare(Net()), door)
    assert_as_eager(Pipeline(prepare(Net())), door)
    assert_as_eager(prepare(Pipeline(prepare(Net()))), door)
    assert_as_eager(copy.deepcopy(prepare(Net())), door)


def test_all_that_accelerate_casts_is_cast(prepare: Any) -> None:
    assert_parity(prepare(Many()), (X,))


@pytest.mark.parametrize("options", [{"enabled": False}, {"cache_enabled": False}])
def test_accelerates_scope_has_its_options(prepare: Any, options: Any) -> None:
    assert_parity(prepare(Net(), **options), (X,))


def test_a_prepared_module_below_a_hook_of_accelerates_is_refused(prepare: Any) -> None:
    hooks = pytest.importorskip("accelerate.hooks")
    module = hooks.add_hook_to_module(prepare(Net()), hooks.AlignDevicesHook("cpu"))
    with pytest.raises(jit_amp.AutocastError, match="JA118"):
        jit_amp.script(module)


@pytest.mark.parametrize("door", SCRIPTED)
def test_a_module_of_fabrics_is_refused_by_the_line_of_its_part(door: str) -> None:
    fabric = pytest.importorskip("lightning.fabric", reason="Lightning is not installed")
    module = fabric.Fabric(precision="bf16-mixed", accelerator="cpu", devices=1).setup(Net())
    assert_as_eager(module.eval(), "trace")
    with pytest.raises(jit_amp.AutocastError, match=r"`\*args`, and enters.*JA118") as error:
        SCRIPTED[door](module)
    assert "def forward(self, x: Tensor) -> Tensor:" in str(error.value)
    assert_as_eager(module.module, door)


def test_a_lightning_module_is_as_eager_after_its_trainer() -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed")

    class Predicts(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

        def predict_step(self, batch: Tensor) -> Tensor:
            return self(batch)

    trainer = lightning.Trainer(
        precision="bf16-mixed",
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Predicts()
    [reduced] = trainer.predict(module, torch.utils.data.DataLoader(X, batch_size=3))
    scripted = jit_amp.script(module, autocast=jit_amp.get_autocast("bf16", "cpu"))
    with torch.no_grad():
        assert_same(scripted(X), reduced, "as the trainer's")
        assert_same(jit_amp.script(module)(X), module(X), "by itself")
