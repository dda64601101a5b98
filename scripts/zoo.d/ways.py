"""How a model becomes TorchScript, without autocast and in a scope of it."""

from __future__ import annotations

import contextlib
import copy
import itertools
import linecache
import typing
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import jit_amp

Args = tuple[Any, ...]


def scope() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


class Way:
    """`jit` is torch.jit, or jit_amp in its place.

    Attributes:
        has_scope: the model enters autocast by itself, so that it is nothing without.
    """

    has_scope: bool = False

    def without_scope(self, model: nn.Module) -> nn.Module:
        return model

    def around_eager(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.has_scope else scope()

    def compile(self, jit: Any, model: nn.Module, example: Args) -> Any:
        raise NotImplementedError

    def scoped(self, model: nn.Module, plain: Any, example: Args) -> nn.Module:
        """A module that calls the model in a scope. `plain` is the model compiled without."""
        return Scoped(model)

    def compile_in_scope(self, model: nn.Module, plain: Any, example: Args) -> Any:
        return self.compile(jit_amp, self.scoped(model, plain, example).eval(), example)


class Trace(Way):
    def __init__(self, **options: Any) -> None:
        self.options = options

    def compile(self, jit: Any, model: nn.Module, example: Args) -> Any:
        return jit.trace(model, example, **self.options)


class Script(Way):
    def compile(self, jit: Any, model: nn.Module, example: Args) -> Any:
        return jit.script(model)

    def scoped(self, model: nn.Module, plain: Any, example: Args) -> nn.Module:
        return declared(model, plain, example)


class ScriptInScope(Script):
    """With the scope around forward that jit_amp.script is told of."""

    def compile_in_scope(self, model: nn.Module, plain: Any, example: Args) -> Any:
        return jit_amp.script(model, autocast=scope())


class Prepared(Way):
    """Of a model that a trainer has prepared: the scope is around its forward already.

    Args:
        door: "script", "trace", or "install", plain torch.jit.script where jit_amp is installed.
        below: a copy's model without what the trainer has put around it, for plain torch.jit.
        around: the trainer's autocast, for jit_amp.script, where the model itself has none.
    """

    def __init__(
        self,
        door: str,
        below: Callable[[Any], nn.Module] = lambda model: model,
        around: Callable[[], Any] | None = None,
    ) -> None:
        self.door, self.below, self.around = door, below, around
        self.has_scope = around is None

    def without_scope(self, model: nn.Module) -> nn.Module:
        return self.below(copy.deepcopy(model))

    def compile(self, jit: Any, model: nn.Module, example: Args) -> Any:
        plain = self.without_scope(model)
        if self.door == "trace":
            return jit.trace(plain, example, check_trace=False, strict=False)
        return jit.script(plain)

    def compile_in_scope(self, model: nn.Module, plain: Any, example: Args) -> Any:
        if self.around is not None:
            return jit_amp.script(model, autocast=self.around)
        if self.door == "install":
            with jit_amp.install():
                return torch.jit.script(model)
        if self.door == "trace":
            return jit_amp.trace(model, example, check_trace=False, strict=False)
        return jit_amp.script(model)


class Own(Way):
    """For libraries with a method or function of their own, which asks torch.jit."""

    @contextlib.contextmanager
    def through(self, jit: Any) -> Iterator[None]:
        """Within it, torch.jit is `jit`."""
        with jit_amp.install() if jit is jit_amp else contextlib.nullcontext():
            yield


class ToTorchScript(Own):
    """The method of a LightningModule, which `base` is."""

    def __init__(self, base: type[nn.Module], method: str) -> None:
        self.base, self.method = base, method

    def compile(self, jit: Any, model: Any, example: Args) -> Any:
        with self.through(jit):
            if self.method == "script":
                return model.to_torchscript()
            return model.to_torchscript(method="trace", example_inputs=example)

    def scoped(self, model: nn.Module, plain: Any, example: Args) -> nn.Module:
        return declared(model, plain, example, self.base)


class ByName(nn.Module):
    """Takes by position what a model takes by name; `fixed` are arguments of every call."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *args: Any) -> Any:
        return self.model(**dict(zip(self.names, args, strict=True)), **self.fixed)


class Scoped(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(*args)


_SCOPED = """
class Scoped(base):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, {declared}):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model({given})
"""
_numbers = itertools.count()


def declared(
    model: nn.Module, plain: Any, example: Args, base: type[nn.Module] = nn.Module
) -> nn.Module:
    """Scoped for scripting, which has to know the arguments: those of `plain` that are given."""
    taken = plain.forward.schema.arguments[1:]
    arguments = {
        each.name: "Tensor" if isinstance(given, Tensor) else each.type.annotation_str
        for each, given in zip(taken, example, strict=False)
    }
    if len(arguments) < len(example):  # a trace names them otherwise
        arguments = {f"arg{i}": "Tensor" for i in range(len(example))}
    source = _SCOPED.format(
        declared=", ".join(f"{name}: {kind}" for name, kind in arguments.items()),
        given=", ".join(arguments),
    )
    file = f"<scoped {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {**vars(typing), "torch": torch, "Tensor": Tensor, "base": base}
    exec(compile(source, file, "exec"), names)
    return names["Scoped"](model)
