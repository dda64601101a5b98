"""What a call of jit_amp leaves as it was: all that its arguments are made of, and the process.

``watched`` wraps a public function so that each call compares. tests/jit/conftest.py wraps all of
them, for every test of this folder.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.jit import ScriptModule

SMALL = 1 << 16
"""Elements of tensors whose values are compared; of others, PyTorch's count of writes."""


@dataclass(frozen=True)
class Changes:
    """What a function is documented to change, and so is not compared."""

    values: bool = False  # of tensors, lists, attributes; the random state and autocast
    members: bool = False  # what a module has in its __dict__
    functions: bool = False  # those of torch.jit
    classes: bool = False  # those of modules

    def __call__(self, path: str) -> bool:
        return (
            (self.values and path.startswith(("value of ", "random ", "autocast ")))
            or (self.members and path.startswith(("member ", "value of ")))
            or (self.members and path.startswith("class of ") and "." in path)
            or (self.classes and path.startswith("class of "))
            or (self.functions and path.startswith("torch.jit."))
        )


CHANGES = {
    "script": Changes(),
    "freeze": Changes(),
    "export": Changes(),
    "facts": Changes(),
    "explain": Changes(),
    "lowered_graph": Changes(),
    # They run the module, as torch.jit.trace does: what it does when it is called is done.
    "trace": Changes(values=True),
    "trace_module": Changes(values=True),
    # Puts the module in eval mode, and changes what is frozen in place.
    "optimize_for_inference": Changes(members=True),
    # Switches the module in place.
    "ignore_amp": Changes(members=True, classes=True),
    # Replace torch.jit's functions; nothing else.
    "install": Changes(functions=True),
    "uninstall": Changes(functions=True),
}
_FUNCTIONS = ("script", "trace", "trace_module", "freeze", "load", "optimize_for_inference")
_PER_DEVICE = ("cpu", "cuda", "mps", "xpu")


def process() -> dict[str, Any]:
    """What every program in the process shares."""
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    state: dict[str, Any] = {
        "autocast nesting": nesting,
        "autocast cache": torch.is_autocast_cache_enabled(),
        "gradients are recorded": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "random state of PyTorch": torch.get_rng_state().numpy().tobytes(),
        "random state of Python": random.getstate(),
        "random state of NumPy": np.random.get_state()[1].tobytes(),  # type: ignore[index]
        "oneDNN": torch._C._get_mkldnn_enabled(),
        "oneDNN fusion": torch._C._jit_llga_enabled(),
        "fusion on CPU": torch._C._jit_can_fuse_on_cpu(),
        "NNC": torch._C._jit_texpr_fuser_enabled(),
        "optimizing": torch._C._get_graph_executor_optimize(),
        "profiled runs": torch._C._jit_get_num_profiled_runs(),
        "threads": torch.get_num_threads(),
        "determinism": torch.are_deterministic_algorithms_enabled(),
        "methods of torch.autocast": {k: id(v) for k, v in vars(torch.autocast).items()},
    }
    for device in _PER_DEVICE:
        state[f"autocast for {device}"] = (
            torch.is_autocast_enabled(device),
            torch.get_autocast_dtype(device),
        )
    for name, switch in (
        ("profiling executor", torch._C._jit_set_profiling_executor),
        ("autocast pass", torch._C._jit_set_autocast_mode),
    ):
        before = switch(True)  # there is no other way to ask
        switch(before)
        state[name] = before
    state.update({f"torch.jit.{name}": getattr(torch.jit, name) for name in _FUNCTIONS})
    return state


def snapshot(*objects: Any) -> dict[str, Any]:
    """Everything that can be seen of the objects, and the process, by a text that says what."""
    seen: dict[int, Any] = {}  # held, so that no address is used again
    state = process() | {"objects": seen}
    for number, each in enumerate(objects):
        state.update(_members(each, f"argument {number}", seen))
    return state


def _tensor(t: Tensor, path: str) -> Iterator[tuple[str, Any]]:
    grad = t.grad if t.is_leaf or t.retains_grad else None
    yield f"tensor {path}", (id(t), type(t), t.dtype, t.device, t.requires_grad, id(grad))
    yield f"hooks of {path}", list((t._backward_hooks or {}).values())
    if not t.is_inference():
        yield f"value of {path}, writes", t._version
    if t.layout == torch.strided and not t.is_nested and not t.is_meta:
        yield f"tensor {path}, sizes", (t.shape, t.stride())
        if t.numel() <= SMALL:
            with torch.no_grad():
                yield f"value of {path}", t.detach().clone()
                if grad is not None and grad.layout == torch.strided:
                    yield f"value of {path}.grad", grad.detach().clone()


def _members(value: Any, path: str, seen: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Tensor):
        yield from _tensor(value, path)
        return
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None), torch.dtype)):
        yield f"value of {path}", value
        return
    if id(value) in seen:
        yield f"member {path}", id(value)
        return
    seen[id(value)] = value
    yield f"class of {path}", type(value)
    if isinstance(value, (list, tuple)):
        yield f"value of {path}, elements", [id(each) for each in value]
        for i, each in enumerate(value):
            yield from _members(each, f"{path}[{i}]", seen)
    elif isinstance(value, dict):
        yield f"value of {path}, entries", [(k, id(v)) for k, v in value.items()]
        for key, each in value.items():
            yield from _members(each, f"{path}[{key!r}]", seen)
    elif isinstance(value, ScriptModule):
        yield from _script_module(value, path, seen)
    elif isinstance(value, nn.Module):
        for name, each in vars(value).items():
            yield f"member {path}.{name}", id(each) if not _is_number(each) else None
            yield from _members(each, f"{path}.{name}", seen)
        yield f"member {path}, names", sorted(vars(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))


def _script_module(module: Any, path: str, seen: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    """What TorchScript has of it; Python's wrapper remembers what it was asked for."""
    for found in (torch._C.ParameterDict(module._c), torch._C.BufferDict(module._c)):
        for name, each in found.items():
            yield from _tensor(each, f"{path}.{name}")
    yield f"type of {path}", module._c._type()
    known = getattr(module, "_concrete_type", None)  # none in what PyTorch has frozen
    for name in sorted(known.get_attributes()) if known else ():
        if module._c.hasattr(name):
            yield from _scripted_value(module._c.getattr(name), f"{path}.{name}")
    for name, child in module.named_children():
        yield f"type of {path}.{name}", child._c._type()
        yield from _script_module(child, f"{path}.{name}", seen)


def _scripted_value(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Lists come out of TorchScript as copies, their tensors as they are."""
    if isinstance(value, Tensor):
        yield from _tensor(value, path)
    elif isinstance(value, (list, tuple)):
        yield f"value of {path}, length", len(value)
        for i, each in enumerate(value):
            yield from _scripted_value(each, f"{path}[{i}]")
    elif isinstance(value, dict):
        yield f"value of {path}, keys", list(value)
        for key, each in value.items():
            yield from _scripted_value(each, f"{path}[{key!r}]")
    elif isinstance(value, (bool, int, float, complex, str)):
        yield f"value of {path}", value


def changed(
    before: dict[str, Any], after: dict[str, Any], may_change: Callable[[str], bool] = Changes()
) -> list[str]:
    """What differs between two snapshots, but for what may change."""
    paths = [path for path in {**before, **after} if path != "objects" and not may_change(path)]
    nothing = "nothing"
    return [
        f"{path}: {before.get(path, nothing)!r:.200}, then {after.get(path, nothing)!r:.200}"
        for path in paths
        if not (path in before and path in after and _same(before[path], after[path]))
    ]


def assert_untouched(
    before: dict[str, Any], after: dict[str, Any], may_change: Callable[[str], bool] = Changes()
) -> None:
    """Asserts that two snapshots are equal, but for what may change."""
    found = changed(before, after, may_change)
    assert not found, "a call has changed\n" + "\n".join(found)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and bool(torch.equal(a, b) or torch.allclose(a, b, 0, 0, True))
    return bool(a == b)


_nested = threading.local()


def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; each call of it by a test compares what was before and after, also where it
    raises. Not while other threads run: the process is theirs too."""

    @functools.wraps(function)
    def watching(*args: Any, **kwargs: Any) -> Any:
        if name == "script":  # which looks at the frames of its callers, and now has one more
            if len(args) > 2:
                args = (*args[:2], args[2] + 1, *args[3:])
            else:
                kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1
        if getattr(_nested, "is_open", False) or threading.active_count() > 1:
            return function(*args, **kwargs)
        given = (*args, *kwargs.values())
        _nested.is_open = True
        try:
            before = snapshot(*given)
            try:
                return function(*args, **kwargs)
            finally:
                assert_untouched(before, snapshot(*given), CHANGES[name])
        finally:
            _nested.is_open = False

    return watching
