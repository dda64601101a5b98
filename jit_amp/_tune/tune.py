"""jit_amp.tune: the fewest units in float32 with which a model keeps its accuracy."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from jit_amp._base import arguments, process_state
from jit_amp._precision import in_float32
from jit_amp._precision.precision import Precision
from jit_amp._tune.measuring import Run
from jit_amp._tune.metrics import TOLERANCES


@process_state.around(process_state.onednn)
@process_state.around(process_state.modes)
@process_state.around(process_state.random_state)  # which a DataLoader moves
def tune(
    model: nn.Module,
    data: Any,
    *,
    dtype: torch.dtype,
    device_type: str = "cpu",
    metric: Callable[..., Any] | None = None,
    tolerance: float | None = None,
    units: str = "module",
    budget: float | None = None,
    seed: int = 0,
    resume: str | os.PathLike[str] | None = None,
) -> Precision:
    """Finds the fewest units that have to stay in float32 under autocast.

    The model runs in eager. First all of it runs in float32, so that a tolerance that cannot be met
    is said at once; then under autocast, where each operator of reduced precision also runs in
    float32 beside it, which tells where values are out of range and where accuracy is lost; then
    with sets of units in float32, until a smallest one is found with which the metric holds. Of
    sets of one size it is the one that costs least. Progress goes to stderr.

    A unit that stays in float32 runs with autocast off, scopes of its own included, and its
    arguments in bfloat16 and float16 are cast to float32; all that it calls stays in float32 with
    it.

    Args:
        model: a module, in the mode in which it is to be used: eval, or training. Not a scripted
            one; of what ``torch.compile`` returned, the module that it was given. Afterwards it is
            as it was: weights, buffers and gradients included.
        data: a tuple of example inputs, a tensor if that is the only one, or a dictionary of
            inputs by name; a list of these; or any iterable of such batches, such as a DataLoader.
            It is read once, and kept: give a part of a large one. Where a batch has more entries
            than ``forward`` takes, such as labels, only the first ones are given to it, and of a
            dictionary those whose names it has.
        dtype: ``torch.float16`` or ``torch.bfloat16``. That of the model's scopes, if it has some.
        device_type: the device of autocast: ``"cpu"``, ``"cuda"``, ...
        metric: ``metric(outputs, reference)``, a number that is larger the further the outputs
            are from the reference, which are the outputs in float32: the largest one of all
            batches counts. Or ``metric(model)``, a number such as an accuracy or a loss, which your
            own loop measures, with a backward pass if it is to be trained: the error is how far it
            is from float32's, and is infinite where it is not finite. It calls the model itself:
            other methods of a model without scopes do not run under autocast. Default: the largest
            difference of any output, relative to its largest value; outputs are tensors, numbers
            and arrays, also in tuples, lists, dictionaries, data classes and namespaces.
        tolerance: the largest error that is accepted. Default: 0.01 in float16 and 0.05 in
            bfloat16; with ``metric(model)``, 1 % of what it gives in float32.
        units: ``"module"``: submodules; ``"function"``: Python functions, as ``file:function``;
            ``"line"``: source lines, as ``file:line``, and what these call; ``"operator"``:
            PyTorch's operators, as ``aten::softmax``, wherever the model calls them.
        budget: seconds after which it stops, with the best that it has found.
        seed: the random state before each evaluation.
        resume: a file to keep what was measured in. Where it exists, that is not measured again, so
            that an interrupted call goes on where it was and gives the same result.

    Returns:
        Precision: what to keep in float32, and why. Give it to ``jit_amp.script``, ``trace`` or
            ``freeze`` as ``precision``, or use its ``apply``.

    Raises:
        TypeError: an argument of another type; a model that was scripted, or whose ``forward``
            was compiled, or that ``torch.export`` or ``Precision.apply`` returned.
        ValueError: another name, dtype or device type; a tolerance that the model does not meet
            even when all of it is in float32, or that no set of units meets; a scope of the model's
            of another dtype; a ``metric(model)`` that does not call the model; outputs that the
            default metric cannot look into; parameters that are not initialised yet, or are in
            float16 or bfloat16 already, so that the model does not run in float32; ``resume`` is a
            file of another model or call; or there is nothing to measure, and why: no operator
            ran in ``dtype`` (on another device than ``device_type``, in float64, on inputs without
            elements), or in no unit of that kind, or no output has an element.
        RuntimeError: what the model raises in float32.
    """
    arguments.traceable("tune", model, takes_compiled=True)
    arguments.module("jit_amp.tune", model)
    model = arguments.below_compiled(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            "jit_amp.tune takes a module that was not scripted: give jit_amp.script what it returns"
        )
    arguments.choice("units", units, in_float32.KINDS)
    if dtype not in TOLERANCES:
        raise ValueError(f"dtype: {dtype} is none of torch.float16, torch.bfloat16")
    arguments.device_type("device_type", device_type)
    arguments.instance("seed", seed, int, "a whole number")
    if not -(2**63) <= seed < 2**64:
        raise ValueError(
            f"seed: {seed} is not from -2**63 to 2**64 - 1, as torch.manual_seed has it"
        )
    if budget is not None:
        arguments.instance("budget", budget, (int, float), "a number of seconds")
        if not budget >= 0:
            raise ValueError(f"budget: {budget} is not a number of seconds from 0 on")
    if tolerance is not None:
        arguments.instance("tolerance", tolerance, (int, float), "a number")
        if not tolerance >= 0:
            raise ValueError(f"tolerance: {tolerance} is not a number from 0 on")
    for name, each in (*model.named_parameters(), *model.named_buffers()):
        if nn.parameter.is_lazy(each):
            raise ValueError(
                f"jit_amp.tune: {name} of {type(model).__name__} has no shape yet: call the model"
                " once with an example, which initialises it"
            )
    run = Run(model, data, dtype, device_type, metric, units, budget, seed, resume)
    try:
        with _nothing_compiled():
            return run.tuned(tolerance)
    finally:
        run.progress.end()


def _nothing_compiled() -> contextlib.AbstractContextManager[Any]:
    """What torch.compile has made runs as it was before: it would compile each evaluation anew."""
    if "torch._dynamo" not in sys.modules:  # whose import takes seconds
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")  # type: ignore[no-any-return]
