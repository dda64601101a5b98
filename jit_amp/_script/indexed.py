"""The parts of scripted containers, by index, by key and in loops: `script` calls this.

PyTorch gives a scripted ``nn.ModuleList``, ``Sequential`` or ``ModuleDict`` the methods of the one
in Python, as they are: ``scripted.layers[1]`` is the layer that was scripted, and no part of what
runs. In the modules that jit_amp makes these methods see the scripted layers.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from torch import nn
from torch._jit_internal import FunctionModifiers
from torch.jit import ScriptModule


def find_scripted_parts(container: ScriptModule) -> None:
    """Has the methods of a container, if it is one, give its scripted parts."""
    for name, method in list(vars(container).items()):
        of = getattr(method, "__self__", None)
        if isinstance(of, ScriptModule) or not isinstance(of, nn.Module):
            continue
        if _is_copied_by_pytorch(method):
            function = _seeing_scripted(of, method.__func__)
            vars(container)[name] = types.MethodType(function, container)


def _is_copied_by_pytorch(method: Any) -> bool:
    modifier = getattr(method, "_torchscript_modifier", None)
    return modifier is FunctionModifiers.COPY_TO_SCRIPT_WRAPPER


def _seeing_scripted(of: nn.Module, function: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a scripted container that runs this function of the one in Python, on a container
    of the same class with the scripted parts: slices are new containers of these."""

    def method(scripted: ScriptModule, *args: Any, **kwargs: Any) -> Any:
        container = object.__new__(type(of))
        parts: dict[str, Any] = dict(scripted._modules.items())
        vars(container).update(vars(of), _modules={**of._modules, **parts})
        return function(container, *args, **kwargs)

    return method
