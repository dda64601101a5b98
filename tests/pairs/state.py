"""What a public call of jit_amp must leave as it was: a module, and the state of the process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jit.support import autocast_state
from torch import Tensor, nn

OWN = ("_parameters", "_buffers", "_modules")
Snapshot = dict[str, Any]


class _Kept:
    """A tensor as it was: the same one, with the values that it had."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.version = 0 if tensor.is_inference() else tensor._version
        self.what = (tensor.dtype, tensor.device, tensor.requires_grad, tensor.is_leaf)
        self.grad = tensor.grad if tensor.is_leaf else None
        self.values = dense(tensor.detach()).clone()

    def difference(self, now: Any) -> str:
        if not isinstance(now, _Kept) or not _is_the_same(now.tensor, self.tensor):
            return "another object"
        if now.what != self.what:
            return f"{now.what}, before {self.what}"
        if now.grad is not self.grad:
            return "another gradient"
        if not _equal(now.values, self.values):
            return "other values"
        if now.tensor is self.tensor and now.version != self.version:
            return "written to"
        return ""


def _is_the_same(a: Tensor, b: Tensor) -> bool:
    """A script module gives a new Python object for a tensor that nobody holds."""
    if a is b:
        return True
    if a.layout != torch.strided or a.is_nested or b.layout != torch.strided or b.is_nested:
        return False
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()


def _equal(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a, b) or (
        a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    )


def dense(tensor: Tensor) -> Tensor:
    """The same numbers in the layout that all operators take."""
    if tensor.is_nested:
        return tensor.to_padded_tensor(0.0)
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def snapshot(module: nn.Module, like: nn.Module | None = None, *, runs: bool = False) -> Snapshot:
    """The module's tensors, attributes and hooks, and the process' state.

    Args:
        like: the module that a script module was made of, whose attributes it has.
        runs: the call runs the module, so its state, and random numbers, may move.
    """
    found: Snapshot = {}
    submodules = dict(module.named_modules(remove_duplicate=False))
    for path, child in (like or module).named_modules(remove_duplicate=False):
        owner = submodules.get(path)
        if owner is None:
            continue
        found[f"{path} is"] = owner.training
        for name, parameter in owner.named_parameters(recurse=False):
            found[f"{path}.{name}"] = _described(parameter)
        if not runs:
            for name, buffer in owner.named_buffers(recurse=False):
                found[f"{path}.{name}"] = _described(buffer)
            for name, value in vars(child).items():
                if like is not None and (name.startswith("__") or "hooks" in name or name in OWN):
                    continue
                if name not in OWN and name != "__overloads__":  # torch.jit.script's own
                    found[f"{path}.{name}"] = _described(
                        value if like is None else getattr(owner, name, None)
                    )
    found.update(_process(runs))
    return found


def _process(runs: bool) -> Iterator[tuple[str, Any]]:
    if not runs:
        yield "random state", torch.get_rng_state().numpy().tobytes()
    yield "autocast", autocast_state()
    yield "gradients on", torch.is_grad_enabled()
    yield "inference mode", torch.is_inference_mode_enabled()
    yield "oneDNN", torch._C._get_mkldnn_enabled()
    yield "threads", torch.get_num_threads()
    yield "autocast pass", _autocast_pass()
    yield "torch.autocast", sorted((n, id(v)) for n, v in vars(torch.autocast).items())
    yield "torch.jit", sorted((n, id(v)) for n, v in vars(torch.jit).items() if callable(v))


def _autocast_pass() -> bool:
    before: bool = torch._C._jit_set_autocast_mode(True)
    torch._C._jit_set_autocast_mode(before)
    return before


def _described(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _Kept(value)
    if isinstance(value, dict):
        return {key: _described(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_described(each) for each in value]
    if isinstance(value, (bool, int, float, complex, str, type(None), torch.dtype, torch.device)):
        return value
    return type(value).__name__


def difference(before: Snapshot, after: Snapshot) -> str:
    """The first thing that is not as it was; nothing if all is."""
    for name, value in before.items():
        if name not in after:
            return f"{name}: gone"
        if found := _differs(value, after[name]):
            return f"{name}: {found}"
    new = after.keys() - before.keys()
    return f"{min(new)}: new" if new else ""


def _differs(before: Any, after: Any) -> str:
    if isinstance(before, _Kept):
        return before.difference(after)
    if type(before) is not type(after):
        return f"{after!r}, before {before!r}"
    if isinstance(before, dict):
        return difference(before, after)
    if isinstance(before, list):
        if len(before) != len(after):
            return f"{len(after)} elements, before {len(before)}"
        for i, (a, b) in enumerate(zip(before, after, strict=True)):
            if found := _differs(a, b):
                return f"[{i}]: {found}"
        return ""
    return "" if before == after else f"{after!r:.60}, before {before!r:.60}"
