"""The operators of jit_amp's dialect (csrc/core/dialect.h), as the interpreter runs them."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from jit_amp import _C
from jit_amp._export.interpreter.interpreter import Interpreter, implements
from jit_amp._export.interpreter.plain_operators import (
    DTYPE_OF,
    NUMBER_OF,
)
from jit_amp._export.interpreter.steps import Code, Kernel, Step
from jit_amp._export.interpreter.values import (
    Frame,
    Raised,
)


@implements("jit_amp::cast")
def _cast(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    def cast(x: Tensor, targets: dict[str, Any]) -> Tensor:
        made = _converted(x, targets)
        if made is x:
            interpreter.check_dtype(x)
        return made

    def run(_: Frame, x: Any, cpu: Any, other: Any, accelerator: str = "cuda") -> Any:
        targets = {"cpu": cpu, accelerator: other}
        if isinstance(x, list):
            return [cast(each, targets) for each in x]
        return x if x is None else cast(x, targets)

    return run


@implements("jit_amp::widest")
def _widest(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    def run(_: Frame, xs: list[Tensor], lower: Any, device: str) -> Any:
        result = lower
        for x in xs if lower is not None else ():
            if x.device.type == device and _is_eligible(x):
                if x.dtype is torch.float32:
                    result = NUMBER_OF[torch.float32]
                elif result == lower and NUMBER_OF[x.dtype] != lower:
                    raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
        return result

    return run


@implements("jit_amp::opt_dtype")
def _opt_dtype(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    def run(_: Frame, x: Tensor, dtype: Any, on: bool, accelerator: str = "cuda") -> Any:
        needs = dtype is None and on and x.device.type == accelerator and _is_eligible(x)
        return NUMBER_OF[torch.float32] if needs else dtype

    return run


@implements("jit_amp::known_device")
def _known_device(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    def run(_: Frame, name: str, accelerator: str = "cuda") -> None:
        if name not in ("cpu", accelerator):
            raise Raised(
                "jit_amp: a scripted torch.autocast whose device_type is known at run time can "
                f"be for 'cpu' or '{accelerator}'"
            )

    return run


@implements("jit_amp::fail")
def _fail(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    def run(_: Frame, message: str) -> NoReturn:
        raise Raised(f"jit_amp: {message}")

    return run


@implements("jit_amp::deferred")
def _deferred(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    number = step.node.i("value")
    step.is_fixed = True
    return lambda *_: number


@implements("jit_amp::scoped", "jit_amp::scoped_effect")
def _scoped(interpreter: Interpreter, step: Step, blocks: list[Code]) -> Kernel:
    """An operator that autocast's policies do not cover stands free of its scope where none of
    its operands is on the scope's device."""
    [code] = blocks
    devices = step.node.ss("devices")
    inner = next(s.node for s in code.steps if s.node.kind() != "prim::Constant")

    def run(frame: Frame, *operands: Any) -> Any:
        given = operands[2 * len(devices) :]
        for i, device in enumerate(devices):
            if operands[2 * i] and _C.policy_of(inner, device) != "untouched":
                tensors = [x for x in pytree.tree_leaves(given) if isinstance(x, Tensor)]
                if any(x.device.type == device for x in tensors):
                    interpreter.refuse(step, 301, [inner.kind(), device, ""])
        results = interpreter.run(code, frame)
        return results[0] if len(results) == 1 else results

    return run


def _is_eligible(x: Tensor) -> bool:
    return x.is_floating_point() and x.dtype is not torch.float64


def _converted(x: Tensor, targets: dict[str, Any]) -> Tensor:
    target = targets.get(x.device.type)
    if target is None or not _is_eligible(x) or x.dtype is DTYPE_OF[target]:
        return x
    made: Tensor = torch.ops.aten.to.dtype(x, DTYPE_OF[target])
    return made
