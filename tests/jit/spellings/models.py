"""Spellings of autocast scopes as public projects write them: a small model of ours for each.

README.md has where they were found. A class or a function has the number of its row there.

Every forward takes x, float32 [2, 8], and returns what was computed inside the scope and what was
computed outside it, or in the enclosing scope: their dtypes tell whether the scope was applied.
"""

# Written as projects write them:
# ruff: noqa: B022, RUF015, SIM117, SIM201, SIM210

import argparse
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class Block(nn.Module):
    """Two linear layers: one for inside the scope, one for outside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.outer = nn.Linear(8, 8)


# helpers that are methods of the module


class S01_maybe_autocast_method(Block):
    @property
    def device(self) -> torch.device:
        return self.inner.weight.device

    def maybe_autocast(self, dtype=torch.bfloat16):
        if self.device != torch.device("meta"):
            return torch.autocast("cpu", dtype=dtype)
        return contextlib.nullcontext()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.maybe_autocast():
            h = self.inner(x)
        return h, self.outer(x)


class S02_maybe_autocast_with_dtype(Block):
    def maybe_autocast(self, dtype=torch.float16):
        enable = next(self.parameters()).device.type == "cpu"
        return torch.autocast("cpu", dtype=dtype) if enable else contextlib.nullcontext()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.maybe_autocast(dtype=torch.bfloat16):
            h = self.inner(x)
        return h, self.outer(x)


class _Captioner(Block):
    def maybe_autocast(self):
        return torch.autocast("cpu", dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class S03_method_of_a_part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = _Captioner()
        self.outer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.model.maybe_autocast():
            h = self.model(x)
        return h, self.outer(x)


class S04_method_reads_config_and_weight_device(Block):
    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(force_fp32=True)

    def head_context(self):
        if self.config.force_fp32:
            return torch.autocast(device_type=self.outer.weight.device.type, enabled=False)
        return contextlib.nullcontext()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.inner(x)
            with self.head_context():
                y = self.outer(x)
        return h, y


class S05_method_next_parameters(Block):
    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(dtype="bfloat16")

    def _autocast_context(self):
        dtype = getattr(torch, self.config.dtype)
        device_type = next(self.parameters()).device.type
        if dtype == torch.float32:
            return torch.autocast(device_type=device_type, enabled=False)
        if device_type not in ("cpu", "cuda"):
            raise RuntimeError(f"no autocast on {device_type}")
        return torch.autocast(device_type=device_type, dtype=dtype)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self._autocast_context():
            h = self.inner(x)
        return h, self.outer(x)


class S06_method_asks_a_property(Block):
    def __init__(self) -> None:
        super().__init__()
        self.settings = {"mixed": True}

    @property
    def _amp_enabled(self) -> bool:
        return bool(self.settings["mixed"])

    def _maybe_autocast(self):
        if self._amp_enabled:
            return torch.autocast(device_type="cpu", dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self._maybe_autocast():
            h = self.inner(x)
        return h, self.outer(x)


class S07_method_with_choice_of_dtype(Block):
    def __init__(self) -> None:
        super().__init__()
        self.precision = "bf16-mixed"
        self.device_name = "cpu"

    def autocast_context_manager(self) -> torch.autocast:
        dtype = torch.bfloat16 if self.precision == "bf16-mixed" else torch.half
        return torch.autocast(self.device_name, dtype=dtype, cache_enabled=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.autocast_context_manager():
            h = self.inner(x)
        return h, self.outer(x)


class AmpKind(Enum):
    APEX = "apex"
    PYTORCH = "pytorch"


class S08_staticmethod_autocast_or_suppress(Block):
    def __init__(self) -> None:
        super().__init__()
        self.task = SimpleNamespace(amp_type=AmpKind.PYTORCH)

    @staticmethod
    def create_amp_context(task):
        return (
            torch.autocast("cpu", dtype=torch.bfloat16)
            if task.amp_type == AmpKind.PYTORCH
            else contextlib.suppress()
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.create_amp_context(self.task):
            h = self.inner(x)
        return h, self.outer(x)


class _Wrapper(Block):
    @contextlib.contextmanager
    def optim_context(self, name: str) -> Iterator[None]:
        if not name:
            raise ValueError("a name")
        yield


class S09_inherited_contextmanager_then_autocast(_Wrapper):
    def __init__(self) -> None:
        super().__init__()
        self.cast_dtype = torch.bfloat16

    @contextlib.contextmanager
    def optim_context(self, name: str) -> Iterator[None]:
        with super().optim_context(name), torch.autocast("cpu", dtype=self.cast_dtype):
            yield

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.optim_context("inner"):
            h = self.inner(x)
        return h, self.outer(x)


class S10_method_of_an_exit_stack_generator(Block):
    def __init__(self) -> None:
        super().__init__()
        self.autocast_precision = torch.bfloat16
        self.device_type = "cpu"

    @contextlib.contextmanager
    def _forward_context(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self.autocast_precision is not None:
                stack.enter_context(torch.autocast(self.device_type, dtype=self.autocast_precision))
            yield

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self._forward_context():
            h = self.inner(x)
        return h, self.outer(x)


class S11_exit_stack_in_forward(Block):
    def __init__(self) -> None:
        super().__init__()
        self.use_autocast = True
        self.device_type = "cpu"

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            if self.use_autocast:
                stack.enter_context(torch.autocast(self.device_type, dtype=torch.bfloat16))
            h = self.inner(x)
        return h, self.outer(x)


# scopes and factories kept in attributes


class S12_partial_in_attribute(Block):
    def __init__(self) -> None:
        super().__init__()
        self.amp_dtype = torch.bfloat16
        self.amp_autocast = contextlib.nullcontext
        if self.amp_dtype is not None:
            self.amp_autocast = functools.partial(
                torch.amp.autocast, device_type="cpu", dtype=self.amp_dtype
            )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.amp_autocast():
            h = self.inner(x)
        return h, self.outer(x)


def get_autocast(precision: str, device_type: str = "cpu", fsdp: bool = False):
    if precision == "amp_bf16" and not fsdp:
        return functools.partial(torch.amp.autocast, device_type=device_type, dtype=torch.bfloat16)
    if precision == "amp":
        return functools.partial(torch.amp.autocast, device_type=device_type)
    return contextlib.nullcontext


class S13_get_autocast_in_attribute(Block):
    def __init__(self) -> None:
        super().__init__()
        args = argparse.Namespace(precision="amp_bf16")
        self.autocast = get_autocast(
            args.precision, device_type="cpu", fsdp=getattr(args, "fsdp", False)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.autocast():
            h = self.inner(x)
        return h, self.outer(x)


class S14_get_autocast_called_in_forward(Block):
    def __init__(self) -> None:
        super().__init__()
        self.args = argparse.Namespace(precision="amp_bf16")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        autocast = get_autocast(self.args.precision, device_type="cpu")
        with autocast():
            h = self.inner(x)
        return h, self.outer(x)


class S15_lambda_or_nullcontext(Block):
    def __init__(self, use_amp: bool = True) -> None:
        super().__init__()
        device = torch.device("cpu")
        amp_dtype = torch.bfloat16
        self.autocast = (
            (lambda: torch.autocast(device.type, dtype=amp_dtype))
            if use_amp
            else contextlib.nullcontext
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.autocast():
            h = self.inner(x)
        return h, self.outer(x)


def scope_maker(precision: str):
    if precision == "amp_bfloat16":
        return lambda: torch.autocast("cpu", dtype=torch.bfloat16)
    return contextlib.suppress


BF16_SCOPE = scope_maker("amp_bfloat16")


class S16_factory_of_lambdas(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with BF16_SCOPE():
            h = self.inner(x)
        return h, self.outer(x)


class _Features(nn.Module):
    def __init__(self, autocast_ctx: Callable[[], Any]) -> None:
        super().__init__()
        self.backbone = nn.Linear(8, 8)
        self.autocast_ctx = autocast_ctx

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.autocast_ctx():
            return self.backbone(x)


class S17_factory_given_to_the_part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = _Features(
            functools.partial(torch.autocast, "cpu", enabled=True, dtype=torch.bfloat16)
        )
        self.outer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.features(x), self.outer(x)


class S18_scope_made_in_init(Block):
    def __init__(self) -> None:
        super().__init__()
        self.bf16_context = torch.autocast(device_type="cpu", dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.bf16_context:
            h = self.inner(x)
        return h, self.outer(x)


class ForgivingAutocast:
    """A scope of its own class: nothing is entered when it is off."""

    def __init__(self, enabled: bool, *args: Any, **kwargs: Any) -> None:
        self.scope = torch.autocast(*args, **kwargs) if enabled else None

    def __enter__(self) -> None:
        if self.scope is None:
            return
        try:
            self.scope.__enter__()
        except RuntimeError as error:
            raise RuntimeError("autocast failed") from error

    def __exit__(self, *args: Any) -> None:
        if self.scope is not None:
            self.scope.__exit__(*args)


class S19_own_scope_class(Block):
    def __init__(self) -> None:
        super().__init__()
        self.autocast = ForgivingAutocast(enabled=True, device_type="cpu", dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.autocast:
            h = self.inner(x)
        return h, self.outer(x)


class S20_own_scope_class_after_set_grad_enabled(Block):
    def __init__(self) -> None:
        super().__init__()
        self.finetune = False
        self.autocast = ForgivingAutocast(
            self.finetune is not None, device_type="cpu", dtype=torch.bfloat16
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.set_grad_enabled(self.finetune), self.autocast:
            h = self.inner(x)
        return h, self.outer(x)


class DelegatingAutocast:
    """Holds a scope or a nullcontext, by its dtype, and passes on what it returns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        enabled = kwargs.get("dtype", torch.float32) != torch.float32
        self.context = torch.autocast(*args, **kwargs) if enabled else contextlib.nullcontext()

    def __enter__(self) -> Any:
        return self.context.__enter__()

    def __exit__(self, *args: Any) -> Any:
        return self.context.__exit__(*args)


class S21_delegating_scope_class(Block):
    def __init__(self) -> None:
        super().__init__()
        self.inference_ctx = DelegatingAutocast(device_type="cpu", dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.inference_ctx:
            h = self.inner(x)
        return h, self.outer(x)


class NoScope:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *args: Any) -> None:
        pass


class AmpManager:
    def __init__(self, activated: bool) -> None:
        self.activated = activated

    def context(self) -> Any:
        return torch.autocast("cpu", dtype=torch.bfloat16) if self.activated else NoScope()


class S22_manager_object(Block):
    def __init__(self) -> None:
        super().__init__()
        self.amp_manager = AmpManager(True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.amp_manager.context():
            h = self.inner(x)
        return h, self.outer(x)


@dataclass
class ScopeArguments:
    enabled: bool = True
    cache_enabled: bool | None = None

    def to_kwargs(self) -> dict[str, Any]:
        default = asdict(ScopeArguments())
        return {name: value for name, value in asdict(self).items() if value != default[name]}


class Accelerate:
    """A trainer's helper with the precision as a string and an `autocast` of its own."""

    def __init__(
        self, mixed_precision: str = "bf16", handler: ScopeArguments | None = None
    ) -> None:
        self.mixed_precision = mixed_precision
        self.handler = handler or ScopeArguments()
        self.device = torch.device("cpu")

    @contextlib.contextmanager
    def autocast(self, handler: ScopeArguments | None = None) -> Iterator[None]:
        kwargs = (handler or self.handler).to_kwargs()
        if self.mixed_precision == "bf16":
            scope: Any = torch.autocast(self.device.type, dtype=torch.bfloat16, **kwargs)
        elif self.mixed_precision == "fp16":
            scope = torch.autocast(self.device.type, dtype=torch.float16, **kwargs)
        else:
            scope = contextlib.nullcontext()
        with scope:
            yield


class S23_accelerator_autocast(Block):
    def __init__(self) -> None:
        super().__init__()
        self.accelerator = Accelerate("bf16")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.accelerator.autocast():
            h = self.inner(x)
        return h, self.outer(x)


NO_CAST = ScopeArguments(enabled=False)


class S24_accelerator_autocast_with_handler(Block):
    def __init__(self) -> None:
        super().__init__()
        self.accelerator = Accelerate("bf16", ScopeArguments(cache_enabled=False))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.accelerator.autocast():
            h = self.inner(x)
            with self.accelerator.autocast(handler=NO_CAST):
                y = self.outer(x)
        return h, y


class S25_grad_flags_and_accelerator(Block):
    def __init__(self) -> None:
        super().__init__()
        self.accelerator = Accelerate("bf16")
        self.is_train = True
        self.train_text_encoder = False

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with (
            torch.set_grad_enabled(self.is_train and self.train_text_encoder),
            self.accelerator.autocast(),
        ):
            h = self.inner(x)
        return h, self.outer(x)


class PrecisionPlugin:
    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    @contextlib.contextmanager
    def forward_context(self) -> Iterator[None]:
        with torch.autocast("cpu", dtype=self.dtype, cache_enabled=False):
            yield


class S26_plugin_forward_context(Block):
    def __init__(self) -> None:
        super().__init__()
        self._precision = PrecisionPlugin(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        precision = self._precision
        with precision.forward_context():
            h = self.inner(x)
        return h, self.outer(x)


class Pipeline:
    @property
    def autocast(self) -> Any:
        return None


class S27_one_factory_or_another(Block):
    def __init__(self) -> None:
        super().__init__()
        self.autocast = Pipeline().autocast or Accelerate("bf16").autocast

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.autocast():
            h = self.inner(x)
        return h, self.outer(x)


# dictionaries of arguments


class S28_all_arguments_from_a_dict(Block):
    def __init__(self) -> None:
        super().__init__()
        setup = {"device": torch.device("cpu")}
        self.amp_settings = dict(
            device_type=setup["device"].type, enabled=True, dtype=torch.bfloat16
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(**self.amp_settings):
            h = self.inner(x)
        return h, self.outer(x)


class S29_device_and_dict_of_an_object(Block):
    def __init__(self) -> None:
        super().__init__()
        self.engine = SimpleNamespace(amp=True, amp_kwargs={"dtype": torch.bfloat16})

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", **self.engine.amp_kwargs):
            h = self.inner(x)
        return h, self.outer(x)


class S30_state_of_torch_in_a_dict(Block):
    def __init__(self) -> None:
        super().__init__()
        self.cpu_autocast_kwargs = {
            "enabled": True,
            "dtype": torch.get_autocast_dtype("cpu"),
            "cache_enabled": torch.is_autocast_cache_enabled(),
        }

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad(), torch.autocast("cpu", **self.cpu_autocast_kwargs):
            h = self.inner(x)
        return h, self.outer(x)


class S31_three_items_kept_and_written_out(Block):
    def __init__(self) -> None:
        super().__init__()
        self.device_scope = torch.autocast("cpu", dtype=torch.float16)
        self.cpu_kwargs = {"dtype": torch.bfloat16}

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad(), self.device_scope, torch.amp.autocast("cpu", **self.cpu_kwargs):
            h = self.inner(x)
        return h, self.outer(x)


EVAL_CONFIG = {"fp16": True, "use_bf16": True}


class S32_choice_by_dict_get(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(
            "cpu",
            enabled=EVAL_CONFIG["fp16"],
            dtype=torch.bfloat16 if EVAL_CONFIG.get("use_bf16", False) else torch.float16,
        ):
            h = self.inner(x)
        return h, self.outer(x)


class S33_scope_from_a_dict_of_scopes(Block):
    def __init__(self) -> None:
        super().__init__()
        self.train_engine = "torch_fsdp"
        dtype = torch.bfloat16
        self.scope = {
            "deepspeed": torch.autocast(
                "cpu", enabled=dtype is not None, dtype=dtype, cache_enabled=False
            ),
            "torch_ddp": torch.autocast("cpu", enabled=False),
            "torch_fsdp": torch.autocast("cpu", dtype=dtype)
            if dtype is not None
            else contextlib.nullcontext(),
        }

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.scope[self.train_engine]:
            h = self.inner(x)
        return h, self.outer(x)


# values of the file

DTYPE_NAME = "bfloat16"
DEVICE_TYPE = "cpu"
PTDTYPE = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[
    DTYPE_NAME
]
CTX = (
    contextlib.nullcontext()
    if DEVICE_TYPE == "mps"
    else torch.amp.autocast(DEVICE_TYPE, dtype=PTDTYPE)
)


class S34_ctx_of_the_file(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with CTX:
            h = self.inner(x)
        return h, self.outer(x)


OPT = argparse.Namespace(precision="autocast", device="cpu")
precision_scope = torch.autocast if OPT.precision == "autocast" else contextlib.nullcontext


class S35_precision_scope(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with precision_scope("cpu"):
            h = self.inner(x)
        return h, self.outer(x)


class S36_precision_scope_in_forward(Block):
    def __init__(self) -> None:
        super().__init__()
        self.cast = True

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scope = torch.autocast if self.cast else contextlib.nullcontext
        with torch.no_grad():
            with scope("cpu"):
                h = self.inner(x)
        return h, self.outer(x)


class S37_as_name_unused(Block):
    def __init__(self) -> None:
        super().__init__()
        self.device_name = "cpu"

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            with torch.autocast(self.device_name) as precision_scope:  # noqa: F841
                h = self.inner(x)
        return h, self.outer(x)


MIXED_PRECISION = True
HALF = torch.bfloat16


class S38_globals_as_arguments(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(DEVICE_TYPE, dtype=HALF, enabled=MIXED_PRECISION):
            h = self.inner(x)
        return h, self.outer(x)


try:
    from torch.amp.autocast_mode import autocast as versioned_autocast
except ImportError:

    class versioned_autocast:  # type: ignore[no-redef]
        def __init__(self, device_type: str, enabled: bool = True) -> None:
            pass

        def __enter__(self) -> None:
            pass

        def __exit__(self, *args: Any) -> None:
            pass


class S39_import_or_dummy(Block):
    def __init__(self) -> None:
        super().__init__()
        self.args = argparse.Namespace(mixed_precision=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with versioned_autocast("cpu", enabled=self.args.mixed_precision):
            h = self.inner(x)
        return h, self.outer(x)


@contextlib.contextmanager
def torch_autocast(device_type: str = "cpu", **kwargs: Any) -> Iterator[None]:
    if int(torch.__version__.split(".")[0]) >= 2:
        with torch.amp.autocast(device_type=device_type, **kwargs):
            yield
    else:
        with torch.cpu.amp.autocast(**kwargs):
            yield


class AttributeDict(dict):
    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)


PARAMS = AttributeDict(use_autocast=True, dtype=torch.bfloat16)


class S40_generator_with_a_version_test(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.inner(x)
            with torch_autocast(enabled=False):
                y = self.outer(x)
        return h, y


class S41_generator_and_attribute_dict(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch_autocast(enabled=PARAMS.use_autocast, dtype=PARAMS.dtype):
            h = self.inner(x)
        return h, self.outer(x)


class Precision(str, Enum):
    FP32 = "fp32"
    AMP_FP16 = "amp_fp16"
    AMP_BF16 = "amp_bf16"


@contextlib.contextmanager
def get_precision_context(precision: str | Precision) -> Iterator[None]:
    precision = Precision(precision)
    if precision == Precision.FP32:
        yield
    elif precision == Precision.AMP_FP16:
        with torch.autocast("cpu", dtype=torch.float16):
            yield
    else:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=True):
            yield


class S42_generator_over_an_enum(Block):
    def __init__(self) -> None:
        super().__init__()
        self.state = SimpleNamespace(precision=Precision.AMP_BF16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with get_precision_context(self.state.precision):
            h = self.inner(x)
        return h, self.outer(x)


class S43_generator_over_a_string(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with get_precision_context("amp_fp16"):
            h = self.inner(x)
        return h, self.outer(x)


@contextlib.contextmanager
def library_autocast(
    device_type: str | None = None, dtype: torch.dtype | None = None, enabled: bool = True
) -> Iterator[None]:
    if device_type is None:
        device_type = "cuda" if torch.cuda.is_available() else "cpu"
    if device_type == "cpu" and dtype is None:
        dtype = torch.bfloat16
    with torch.autocast(device_type=device_type, enabled=enabled, dtype=dtype):
        yield


class S44_generator_that_looks_for_a_device(Block):
    def __init__(self) -> None:
        super().__init__()
        self.fp16 = True

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with library_autocast(enabled=self.fp16):
            h = self.inner(x)
        return h, self.outer(x)


@contextlib.contextmanager
def default_dtype_float32() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.amp.autocast(
            "cuda" if torch.cuda.is_available() else "cpu", dtype=torch.bfloat16
        ):
            yield
    finally:
        torch.set_default_dtype(before)


class S45_generator_with_try_finally(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with default_dtype_float32():
            h = self.inner(x)
        return h, self.outer(x)


def get_autocast_context(device_type: str, dtype: torch.dtype = torch.bfloat16) -> Any:
    if not torch.amp.autocast_mode.is_autocast_available(device_type):
        return contextlib.nullcontext()
    if device_type == "cpu" and dtype not in (torch.bfloat16, torch.float16):
        return contextlib.nullcontext()
    return torch.autocast(device_type=device_type, dtype=dtype)


class S46_function_that_returns_a_scope(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with get_autocast_context("cpu", torch.bfloat16):
            h = self.inner(x)
        return h, self.outer(x)


def device_scope(device: torch.device, *, enabled: bool) -> torch.autocast:
    return torch.autocast(device.type, enabled=enabled)


class S47_function_with_a_device(Block):
    def __init__(self) -> None:
        super().__init__()
        self.device = torch.device("cpu")
        self.use_autocast = True

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with device_scope(self.device, enabled=self.use_autocast), torch.no_grad():
            h = self.inner(x)
        return h, self.outer(x)


def no_cast_on(device_type: str) -> Any:
    if device_type in ("cpu", "cuda"):
        return torch.amp.autocast(device_type, enabled=False)
    if device_type == "mps":
        return contextlib.nullcontext()
    raise ValueError(device_type)


class S48_function_of_a_weight_device(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.inner(x)
            with no_cast_on(self.outer.weight.device.type):
                y = self.outer(x)
        return h, y


class devices:
    """Stands for a module of helpers that reads its own variables."""

    dtype = torch.bfloat16
    fp8 = False

    @staticmethod
    def autocast(disable: bool = False) -> Any:
        if disable or devices.dtype == torch.float32:
            return contextlib.nullcontext()
        if devices.fp8:
            return torch.autocast("cpu", dtype=torch.float16, enabled=True)
        return torch.autocast("cpu", dtype=devices.dtype)


class S49_helper_in_a_namespace(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with devices.autocast():
            h = self.inner(x)
        return h, self.outer(x)


def get_device_name() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


class S50_device_by_a_call(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(device_type=get_device_name(), dtype=torch.bfloat16):
            h = self.inner(x)
        return h, self.outer(x)


TORCH_DEVICE = "cpu:0"


class S51_device_from_a_string(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.amp.autocast(device_type=torch.device(TORCH_DEVICE).type, dtype=torch.bfloat16):
            h = self.inner(x)
        return h, self.outer(x)


class S52_device_by_str(Block):
    def __init__(self) -> None:
        super().__init__()
        self.device = torch.device("cpu")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(device_type=str(self.device), cache_enabled=True):
            h = self.inner(x)
        return h, self.outer(x)


class S53_device_by_split(Block):
    def __init__(self) -> None:
        super().__init__()
        self.device = "cpu:0"
        self.mixed_precision = True

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cpu_or_cuda = self.device.split(":")[0]
        with torch.autocast(device_type=cpu_or_cuda, enabled=self.mixed_precision):
            h = self.inner(x)
        return h, self.outer(x)


class S54_device_is_available(Block):
    def __init__(self) -> None:
        super().__init__()
        self.cfg = SimpleNamespace(amp=True, amp_dtype="bfloat16")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.amp.autocast(
            "cuda" if torch.cuda.is_available() else "cpu",
            dtype=torch.bfloat16,
            enabled=self.cfg.amp,
        ):
            h = self.inner(x)
        return h, self.outer(x)


# dtypes from names and from configuration


class S55_getattr_of_torch(Block):
    def __init__(self) -> None:
        super().__init__()
        self.dtype_name = "bfloat16"

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", getattr(torch, self.dtype_name)):
            h = self.inner(x)
        return h, self.outer(x)


PRECISION_TO_TYPE = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class S56_table_of_precisions(Block):
    def __init__(self) -> None:
        super().__init__()
        self.args = argparse.Namespace(precision="bf16", disable_autocast=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        target_dtype = PRECISION_TO_TYPE[self.args.precision]
        autocast_enabled = (target_dtype != torch.float32) and not self.args.disable_autocast
        with torch.autocast(device_type="cpu", dtype=target_dtype, enabled=autocast_enabled):
            h = self.inner(x)
        return h, self.outer(x)


@dataclass
class TrainConfig:
    precision: str = "amp_bf16"

    @property
    def autocast_precision(self) -> torch.dtype:
        if self.precision == "amp_bf16":
            return torch.bfloat16
        if self.precision == "amp_fp16":
            return torch.float16
        raise ValueError(self.precision)


class S57_property_of_a_dataclass(Block):
    def __init__(self) -> None:
        super().__init__()
        self.cfg = TrainConfig()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", enabled=True, dtype=self.cfg.autocast_precision):
            h = self.inner(x)
        return h, self.outer(x)


class ModelDtype(Enum):
    FLOAT32 = "fp32"
    BFLOAT16 = "bf16"

    @property
    def autocast_dtype(self) -> torch.dtype:
        return {ModelDtype.FLOAT32: torch.float32, ModelDtype.BFLOAT16: torch.bfloat16}[self]


@dataclass
class DepthConfig:
    model_dtype: ModelDtype | None = ModelDtype.BFLOAT16


class S58_property_of_an_enum(Block):
    def __init__(self) -> None:
        super().__init__()
        config = DepthConfig()
        dtype = config.model_dtype.autocast_dtype if config.model_dtype is not None else None
        self.autocast_ctx = functools.partial(
            torch.autocast, device_type="cpu", dtype=dtype or torch.float32
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.autocast_ctx():
            h = self.inner(x)
        return h, self.outer(x)


def get_amp_type(name: str | None = None) -> torch.dtype | None:
    if name is None:
        return None
    return {"bfloat16": torch.bfloat16, "float16": torch.float16}[name]


class S59_nested_config_or_none(Block):
    def __init__(self) -> None:
        super().__init__()
        self.optim_conf = SimpleNamespace(amp=SimpleNamespace(enabled=True, amp_dtype="bfloat16"))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.amp.autocast(
            device_type="cpu",
            enabled=(self.optim_conf.amp.enabled if self.optim_conf else False),
            dtype=(get_amp_type(self.optim_conf.amp.amp_dtype) if self.optim_conf else None),
        ):
            h = self.inner(x)
        return h, self.outer(x)


class CfgNode(dict):
    def __getattr__(self, name: str) -> Any:
        return self[name]


cfg = CfgNode(TRAIN=CfgNode(MIXED_PRECISION=True))


class S60_config_node_of_the_file(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", enabled=cfg.TRAIN.MIXED_PRECISION):
            h = self.inner(x)
        return h, self.outer(x)


class S61_namespace_in_attribute(Block):
    def __init__(self) -> None:
        super().__init__()
        self.conf = SimpleNamespace(mp=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(enabled=self.conf.mp, device_type="cpu"):
            h = self.inner(x)
        return h, self.outer(x)


class HParams:
    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, HParams(**value) if isinstance(value, dict) else value)


HPS = HParams(train={"fp16_run": True})


class S62_nested_hyperparameters(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", enabled=HPS.train.fp16_run):
            h = self.inner(x)
        return h, self.outer(x)


def get_object(path: str) -> Any:
    obj: Any = torch
    for name in path.split(".")[1:]:
        obj = getattr(obj, name)
    return obj


class S63_dtype_by_dotted_name(Block):
    def __init__(self) -> None:
        super().__init__()
        amp = AttributeDict(enabled=True, dtype="torch.bfloat16")
        self.autocast = functools.partial(
            torch.autocast, "cpu", enabled=amp.enabled, dtype=get_object(amp.dtype)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.autocast():
            h = self.inner(x)
        return h, self.outer(x)


def get_dtype(name: str) -> torch.dtype:
    if name in ("fp16", "torch.float16"):
        return torch.float16
    if name in ("bf16", "torch.bfloat16"):
        return torch.bfloat16
    raise NotImplementedError(name)


class S64_dtype_by_a_call(Block):
    def __init__(self) -> None:
        super().__init__()
        self.config = {"autocast_dtype": "bf16"}

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", get_dtype(self.config["autocast_dtype"])):
            h = self.inner(x)
        return h, self.outer(x)


class S65_environment_variable(Block):
    def __init__(self) -> None:
        super().__init__()
        self._autocast_dtype = (
            torch.float16
            if os.environ.get("MIXED_PRECISION_OF_SPELLINGS", "bf16") == "fp16"
            else torch.bfloat16
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.amp.autocast(device_type="cpu", dtype=self._autocast_dtype):
            h = self.inner(x)
        return h, self.outer(x)


class S66_environment_in_the_expression(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.amp.autocast(
            "cpu", enabled=os.environ.get("AUTOCAST_OF_SPELLINGS", "true") == "true"
        ):
            h = self.inner(x)
        return h, self.outer(x)


# expressions about the module


class S67_attributes_only(Block):
    def __init__(self) -> None:
        super().__init__()
        self.amp_device = "cpu"
        self.use_autocast = True
        self.amp_dtype = torch.bfloat16

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(self.amp_device, enabled=self.use_autocast, dtype=self.amp_dtype):
            h = self.inner(x)
        return h, self.outer(x)


class S68_not_an_attribute(Block):
    def __init__(self) -> None:
        super().__init__()
        self.disable_autocast = True

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.inner(x)
            with torch.autocast("cpu", enabled=not self.disable_autocast):
                y = self.outer(x)
        return h, y


class S69_comparison_of_a_string(Block):
    def __init__(self) -> None:
        super().__init__()
        self.accelerator = Accelerate("bf16")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(
            "cpu", dtype=torch.bfloat16, enabled=self.accelerator.mixed_precision != "no"
        ):
            h = self.inner(x)
        return h, self.outer(x)


class S70_is_not_none(Block):
    def __init__(self) -> None:
        super().__init__()
        self.dtype = torch.bfloat16

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.amp.autocast("cpu", enabled=self.dtype is not None, dtype=self.dtype):
            h = self.inner(x)
        return h, self.outer(x)


class S71_true_if_else_false(Block):
    def __init__(self) -> None:
        super().__init__()
        self.model_dtype = torch.bfloat16

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(
            "cpu", dtype=self.model_dtype, enabled=True if self.model_dtype is not None else False
        ):
            h = self.inner(x)
        return h, self.outer(x)


class S72_is_true_and_hasattr(Block):
    def __init__(self) -> None:
        super().__init__()
        self.fp16 = True
        self.stream_context = contextlib.nullcontext()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with (
            self.stream_context,
            torch.autocast(
                "cpu", enabled=self.fp16 is True and hasattr(self.inner, "vllm") is False
            ),
        ):
            h = self.inner(x)
        return h, self.outer(x)


class S73_isinstance(Block):
    def __init__(self) -> None:
        super().__init__()
        self.optimizer = AmpManager(True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", enabled=(isinstance(self.optimizer, AmpManager))):
            h = self.inner(x)
        return h, self.outer(x)


class S74_flag_and_device_name(Block):
    def __init__(self) -> None:
        super().__init__()
        self.amp = True
        self.device = "cpu"

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(self.device, enabled=(self.amp and self.device == "cpu")):
            h = self.inner(x)
        return h, self.outer(x)


class S75_dtype_in_a_tuple(Block):
    def __init__(self) -> None:
        super().__init__()
        self.autocast_dtype = torch.bfloat16

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(
            "cpu",
            enabled=self.autocast_dtype in (torch.half, torch.bfloat16),
            dtype=self.autocast_dtype,
        ):
            h = self.inner(x)
        return h, self.outer(x)


class S76_bool_of_a_string(Block):
    def __init__(self) -> None:
        super().__init__()
        self.args = argparse.Namespace(amp="bf16")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", enabled=bool(self.args.amp), dtype=HALF):
            h = self.inner(x)
        return h, self.outer(x)


class S77_precision_name_compared(Block):
    def __init__(self) -> None:
        super().__init__()
        self.args = argparse.Namespace(precision="AMP", with_cuda_graph=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with (
            torch.no_grad(),
            torch.autocast(
                "cpu",
                enabled=self.args.precision == "AMP",
                cache_enabled=not self.args.with_cuda_graph,
            ),
        ):
            h = self.inner(x)
        return h, self.outer(x)


class _Typed(nn.Linear):
    @property
    def dtype(self) -> torch.dtype:
        return self.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.weight.device


class S78_dtype_of_a_part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unet = _Typed(8, 8)
        self.outer = nn.Linear(8, 8)
        self.dtype = torch.bfloat16

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.amp.autocast("cpu", dtype=self.dtype, enabled=self.dtype != self.unet.dtype):
            h = self.unet(x)
        return h, self.outer(x)


class S79_device_of_a_part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.m = _Typed(8, 8)
        self.outer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.outer(x)
            with torch.autocast(self.m.device.type, enabled=False):
                y = self.m(x)
        return h, y


class S80_parameter_in_a_variable(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        p = next(self.parameters())
        with torch.amp.autocast("cpu", enabled=p.device.type == "cpu"):
            h = self.inner(x)
        return h, self.outer(x)


class S81_inference_mode_and_device_property(Block):
    @property
    def device(self) -> torch.device:
        return self.inner.weight.device

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode(), torch.amp.autocast(device_type=self.device.type):
            h = self.inner(x)
        return h, self.outer(x)


class S82_device_of_the_input(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(x.device.type, torch.bfloat16):
            h = self.inner(x)
        return h, self.outer(x)


# choices between a scope and another


class S83_scope_or_nullcontext(Block):
    def __init__(self) -> None:
        super().__init__()
        self.use_amp = True

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.amp.autocast("cpu") if self.use_amp else contextlib.nullcontext():
            h = self.inner(x)
        return h, self.outer(x)


class dummy_context:
    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        pass


class S84_scope_or_dummy_class(Block):
    def __init__(self) -> None:
        super().__init__()
        self.device = torch.device("cpu")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with (
            torch.autocast(self.device.type, enabled=True)
            if self.device.type == "cpu"
            else dummy_context()
        ):
            h = self.inner(x)
        return h, self.outer(x)


class S85_choice_by_an_if_statement(Block):
    def __init__(self) -> None:
        super().__init__()
        self.device = torch.device("cpu")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if torch.backends.mps.is_available():
            autocast_ctx = contextlib.nullcontext()
        else:
            autocast_ctx = torch.autocast(self.device.type, dtype=torch.bfloat16)
        with autocast_ctx:
            h = self.inner(x)
        return h, self.outer(x)


class S86_partial_or_nullcontext_in_forward(Block):
    def __init__(self) -> None:
        super().__init__()
        self.force_f32 = True

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        quantization_context = (
            functools.partial(torch.autocast, "cpu", enabled=False)
            if self.force_f32
            else contextlib.nullcontext
        )
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.inner(x)
            with quantization_context():
                y = self.outer(x)
        return h, y


class S87_condition_in_a_variable(Block):
    def __init__(self) -> None:
        super().__init__()
        self.dtype = torch.bfloat16
        self.device = torch.device("cpu")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        autocast_condition = (self.dtype != torch.float32) and not self.device.type == "mps"
        with (
            torch.autocast(get_device_name(), dtype=self.dtype)
            if autocast_condition
            else contextlib.nullcontext()
        ):
            h = self.inner(x)
        return h, self.outer(x)


class S88_choice_among_parenthesised_items(Block):
    def __init__(self) -> None:
        super().__init__()
        self.device = torch.device("cpu")
        self.use_amp = True

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with (
            torch.no_grad(),
            torch.autocast(device_type=self.device.type)
            if self.device.type == "cpu" and self.use_amp
            else contextlib.nullcontext(),
        ):
            h = self.inner(x)
        return h, self.outer(x)


class S89_and_keeps_the_second(Block):
    def __init__(self) -> None:
        super().__init__()
        self.enable_grad = True

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.float16) and torch.set_grad_enabled(
            self.enable_grad
        ):
            h = self.inner(x)
        return h, self.outer(x)


class S90_and_keeps_the_scope(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad() and torch.amp.autocast(DEVICE_TYPE, dtype=HALF):
            h = self.inner(x)
        return h, self.outer(x)


# other items beside the scope


@contextlib.contextmanager
def sdpa_kernel_context() -> Iterator[None]:
    with sdpa_kernel([SDPBackend.MATH]):
        yield


class S91_sdpa_kernel_beside(Block):
    def __init__(self) -> None:
        super().__init__()
        self.autocast = functools.partial(torch.amp.autocast, device_type="cpu")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.autocast(enabled=True), sdpa_kernel_context():
            h = self.inner(x)
        return h, self.outer(x)


class S92_record_function_beside(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with (
            torch.profiler.record_function("inner"),
            torch.autocast(device_type=x.device.type, enabled=True),
        ):
            h = self.inner(x)
        return h, self.outer(x)


class InferenceContext:
    def __init__(self, benchmark: bool = False) -> None:
        self._chosen = benchmark

    def __enter__(self) -> None:
        self._before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = self._chosen

    def __exit__(self, *args: Any) -> None:
        torch.backends.cudnn.benchmark = self._before


bf16_scope = functools.partial(torch.amp.autocast, "cpu", dtype=torch.bfloat16)


@contextlib.contextmanager
def inference_mode() -> Iterator[None]:
    with InferenceContext(), torch.no_grad(), bf16_scope():
        yield


class S93_generator_of_several_items(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with inference_mode():
            h = self.inner(x)
        return h, self.outer(x)


# CUDA's own names, and functions


class S94_cuda_amp_positional_flag(Block):
    def __init__(self) -> None:
        super().__init__()
        self.fp16 = True

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.cuda.amp.autocast(self.fp16):
            h = self.inner(x)
        return h, self.outer(x)


class S95_cuda_amp_autocast_mode(Block):
    def __init__(self) -> None:
        super().__init__()
        self.with_fp16 = True

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.cuda.amp.autocast_mode.autocast(enabled=self.with_fp16):
            h = self.inner(x)
        return h, self.outer(x)


class S96_cpu_amp(Block):
    def __init__(self) -> None:
        super().__init__()
        self.dtype = torch.bfloat16

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.cpu.amp.autocast(enabled=self.dtype == torch.bfloat16), torch.no_grad():
            h = self.inner(x)
        return h, self.outer(x)


amp_autocast = torch.cuda.amp.autocast
if hasattr(torch, "cpu"):
    amp_autocast = functools.partial(torch.amp.autocast, "cpu")


class S97_alias_replaced_by_another_device(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.inner(x)
            with amp_autocast(enabled=False):
                y = self.outer(x)
        return h, y


def fn_98(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.autocast(
        DEVICE_TYPE, dtype=getattr(torch, DTYPE_NAME), enabled=OPT.precision == "autocast"
    ):
        h = torch.mm(x, x.t())
    return h, torch.mm(x, x.t())


def wrap_with_scope(device_type: str, dtype: torch.dtype):
    def forward_with_scope(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(device_type=device_type, dtype=dtype):
            h = torch.mm(x, x.t())
        return h, torch.mm(x, x.t())

    return forward_with_scope


fn_99 = wrap_with_scope("cpu", torch.bfloat16)


class S108_property_over_all_parameters(Block):
    @property
    def device(self) -> torch.device:
        return list(self.parameters())[0].device

    def maybe_autocast(self, dtype=torch.bfloat16):
        enable_autocast = self.device != torch.device("meta")
        return torch.autocast("cpu", dtype=dtype) if enable_autocast else contextlib.nullcontext()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.maybe_autocast():
            h = self.inner(x)
        return h, self.outer(x)


# what is known only at run time


def avoid_bfloat16_context() -> Any:
    if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16:
        return torch.autocast("cpu", enabled=False)
    return contextlib.nullcontext()


class S100_helper_asks_the_state(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.inner(x)
            with avoid_bfloat16_context():
                y = self.outer(x)
        return h, y


class S101_state_in_the_expression(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.float16):
            with torch.autocast(
                "cpu",
                enabled=torch.is_autocast_enabled("cpu"),
                dtype=torch.get_autocast_dtype("cpu"),
            ):
                h = self.inner(x)
        return h, self.outer(x)


class S102_argument_and_property(Block):
    @property
    def dtype(self) -> torch.dtype:
        return self.inner.weight.dtype

    def forward(self, x: torch.Tensor, use_fp16: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(
            "cpu", dtype=torch.float16, enabled=use_fp16 and self.dtype != torch.float16
        ):
            h = self.inner(x)
        return h, self.outer(x)


class S103_bool_of_an_argument(Block):
    def forward(self, x: torch.Tensor, use_amp: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bool(use_amp)):
            h = self.inner(x)
        return h, self.outer(x)


class S104_choice_by_is_cuda(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.inner(x)
            with torch.amp.autocast("cuda" if x.is_cuda else "cpu", enabled=False):
                y = self.outer(x)
        return h, y


def get_autocast_params(
    device: torch.device | None = None, enabled: bool = False, dtype: torch.dtype | None = None
) -> tuple[str, bool, torch.dtype | None]:
    name = "cpu" if device is None else str(device).split(":")[0]
    return name, enabled, dtype


class S105_three_values_of_a_call(Block):
    def __init__(self) -> None:
        super().__init__()
        self.amp = True
        self.amp_dtype = torch.bfloat16

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        device, enabled, dtype = get_autocast_params(x.device, self.amp, self.amp_dtype)
        with torch.autocast(device, enabled=enabled, dtype=dtype):
            h = self.inner(x)
        return h, self.outer(x)


class S106_index_of_a_loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.enable_fp16 = True

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = x
        for i, layer in enumerate(self.layers):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.enable_fp16 and i != 0):
                x = layer(x)
            if i == 0:
                first = x
        return x, first


class S107_lock_beside(Block):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def autocast_context(self):
        return torch.autocast("cpu", dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.autocast_context(), self.lock:
            h = self.inner(x)
        return h, self.outer(x)


class S109_dtype_of_a_tensor(Block):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        latents = x.to(torch.bfloat16)
        with torch.autocast(device_type="cpu", dtype=latents.dtype):
            h = self.inner(x)
        return h, self.outer(x)


class S110_dtype_of_a_tensor_compared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unet = _Typed(8, 8)
        self.outer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        latents = x.to(torch.bfloat16)
        with torch.amp.autocast(
            "cpu", dtype=latents.dtype, enabled=latents.dtype != self.unet.dtype
        ):
            h = self.unet(x)
        return h, self.outer(x)
