"""The data of `tune`, as arguments of calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from jit_amp._base import arguments
from jit_amp._precision import in_float32
from jit_amp._runs.copies import fresh


@dataclass
class Batch:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def given_to(self, model: nn.Module) -> Any:
        args, kwargs = fresh((self.args, self.kwargs))
        return model(*args, **kwargs)


def batches_of(model: nn.Module, data: Any) -> list[Batch]:
    if data is None:
        return []
    if isinstance(data, (tuple, Tensor, Mapping)):
        data = [data]
    arguments.instance("data", data, Iterable, "a tuple of inputs or an iterable of batches")
    return [_batch(model, each) for each in data]


def _batch(model: nn.Module, given: Any) -> Batch:
    args = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return Batch((), dict(given)) if isinstance(given, Mapping) else Batch(args, {})
    if isinstance(given, Mapping):
        takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
        names = {each.name for each in parameters}
        return Batch((), {k: v for k, v in given.items() if takes_any or k in names})
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return Batch(args, {})
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return Batch(args[: sum(each.kind in by_position for each in parameters)], {})


def arguments_of(metric: Callable[..., Any]) -> int:
    """Returns how many arguments a metric takes: 1 or 2."""
    arguments.instance("metric", metric, Callable, "a function")  # type: ignore[arg-type]
    try:
        parameters = inspect.signature(metric).parameters.values()
    except (TypeError, ValueError):
        return 2
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty:
            raise TypeError(
                f"metric: {arguments.shown(metric)} needs `{each.name}` by name, and is given"
                " (model) or (outputs, reference): give it with"
                f" functools.partial(metric, {each.name}=...)"
            )
    required = [
        each
        for each in parameters
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) not in (1, 2) and not any(e.kind is e.VAR_POSITIONAL for e in parameters):
        raise TypeError(
            f"metric: {arguments.shown(metric)} takes {len(required)} arguments, and not (model) or"
            " (outputs, reference)"
        )
    return 1 if len(required) == 1 else 2


def copied(outputs: Any) -> Any:
    """Outputs that nobody writes to: neither the model, whose buffers they may be, nor a metric."""
    return in_float32.mapped(outputs, lambda tensor: tensor.detach().clone(), anew=True)
