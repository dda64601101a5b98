"""What the tests of this folder share: parity against eager, FileCheck on printed IR."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import inspect
import io
import linecache
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

import jit_amp

CUDA = torch.cuda.is_available()
needs_cuda = pytest.mark.cuda  # skipped where there is none (tests/conftest.py)

# The devices of tensors.
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]


@dataclass(frozen=True)
class Place:
    """The device that a scope names, and the one that the tensors are on."""

    scope: str
    tensors: str


# A scope for CUDA is there on a machine without CUDA too: eager switches it off.
PLACES = [
    pytest.param(Place("cpu", "cpu"), id="cpu"),
    pytest.param(Place("cuda", "cpu"), id="cuda_scope_cpu_tensors"),
    pytest.param(Place("cuda", "cuda"), id="cuda", marks=needs_cuda),
]

F = TypeVar("F", bound=Callable[..., Any])


def for_scope(function: F, device: str) -> F:
    """The same function (or nn.Module class) with `device` where its source says "cpu"."""
    source = inspect.getsource(function).replace('"cpu"', f'"{device}"')
    name = f"<{function.__module__}.{function.__name__} for {device}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names = dict(inspect.getmodule(function).__dict__)  # type: ignore[union-attr]
    exec(compile(source, name, "exec"), names)
    return names[function.__name__]


@contextlib.contextmanager
def known_warnings_ignored() -> Iterator[None]:
    """Without what eager says of scopes and of old spellings each time that it runs them, and
    jit_amp once."""
    with warnings.catch_warnings():
        for message in (
            ".*CUDA is not available.* Disabling",  # in these words until 2.10
            r"`torch.(cuda|cpu).amp.autocast\(args...\)` is deprecated.",
            r"torch.is_autocast_cpu_enabled\(\) is deprecated.",
            "In CPU autocast, but the target dtype .*is not supported. Disabling autocast.",
        ):
            warnings.filterwarnings("ignore", message)
        yield


@contextlib.contextmanager
def _switched_on(*devices: str) -> Iterator[None]:
    """Autocast on as the dispatcher sees it: for CUDA, on a machine without CUDA as well."""
    before = [torch.is_autocast_enabled(device) for device in devices]
    for device in devices:
        torch.set_autocast_enabled(device, True)
    try:
        yield
    finally:
        for device, enabled in zip(devices, before, strict=True):
            torch.set_autocast_enabled(device, enabled)


@contextlib.contextmanager
def _autocast(*scopes: Mapping[str, Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack, known_warnings_ignored():
        for scope in scopes:
            stack.enter_context(torch.autocast(**scope))
        yield


Ambient = Callable[[], AbstractContextManager[None]]
CPU_BF16 = {"device_type": "cpu", "dtype": torch.bfloat16}

# Autocast states around a call. The executor is chosen by which of CPU and CUDA is on.
AMBIENTS: dict[str, Ambient] = {
    "none": contextlib.nullcontext,
    "cpu": lambda: _autocast(CPU_BF16),
    "cpu_float16": lambda: _autocast({"device_type": "cpu", "dtype": torch.float16}),
    "cpu_off": lambda: _autocast({"device_type": "cpu", "enabled": False}),
    "cuda": lambda: _autocast({"device_type": "cuda"}),
    "both": lambda: _autocast(CPU_BF16, {"device_type": "cuda"}),
    "cuda_switched_on": lambda: _switched_on("cuda"),
    "both_switched_on": lambda: _switched_on("cpu", "cuda"),
}
DEFAULT = tuple(AMBIENTS)


def imported(source: str, path: Path) -> ModuleType:
    """Writes source to a file and imports it from there, where TorchScript can read it."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# PyTorch 2.11 says it of the first program that a process loads.
LOADS_PROGRAMS = pytest.mark.filterwarnings("ignore:The given buffer is not writable")


def captured(call: Any, *inputs: Tensor) -> tuple[torch.cuda.CUDAGraph, Any]:
    """A CUDA graph of a call, after three others, and its result, which each replay writes."""
    for _ in range(3):
        call(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call(*inputs)
    return graph, result


def autocast_state() -> tuple[Any, ...]:
    """Everything that the calling thread's autocast consists of."""
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    state: tuple[Any, ...] = (nesting, torch.is_autocast_cache_enabled())
    for device in ("cpu", "cuda"):
        state += (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
    return state


def restore_autocast(state: tuple[Any, ...]) -> None:
    """Leaves what was entered by hand since `autocast_state` gave this."""
    nesting, cache, *devices = state
    torch.set_autocast_cache_enabled(cache)
    for device in ("cpu", "cuda"):
        torch.set_autocast_enabled(device, devices.pop(0))
        torch.set_autocast_dtype(device, devices.pop(0))
    while autocast_state()[0] > nesting:
        torch.autocast_decrement_nesting()
    if not nesting:
        torch.clear_autocast_cache()


def tree_map(function: Callable[[Tensor], Any], value: Any) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(tree_map(function, item) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(tree_map(function, item) for item in value)
    if isinstance(value, dict):
        return {key: tree_map(function, item) for key, item in value.items()}
    return value


def tensors_of(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    tree_map(found.append, value)
    return found


def fresh(value: Any) -> Any:
    """A copy that shares no storage, with the leaves' requires_grad."""
    return tree_map(lambda t: t.detach().clone().requires_grad_(t.requires_grad), value)


def assert_same(actual: Any, expected: Any, where: str) -> None:
    """The same structure, dtypes, devices, shapes and values, bit for bit."""
    if isinstance(expected, Tensor):
        assert isinstance(actual, Tensor), f"{where}: {type(actual)}, not a tensor"
        assert actual.dtype == expected.dtype, f"{where}: {actual.dtype}, eager {expected.dtype}"
        assert actual.device == expected.device, where
        assert actual.shape == expected.shape, where
        assert actual.requires_grad == expected.requires_grad, f"{where}: requires_grad"
        assert torch.equal(actual, expected), (
            f"{where}: values differ by up to {(actual - expected).abs().max().item()}"
        )
    elif isinstance(expected, (tuple, list)):
        # A NamedTuple comes out of TorchScript as one of the same name, not of the same class.
        assert isinstance(actual, tuple if isinstance(expected, tuple) else list), where
        assert len(actual) == len(expected), where
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            assert_same(a, e, f"{where}[{i}]")
    elif isinstance(expected, dict):
        assert list(actual) == list(expected), where
        for key in expected:
            assert_same(actual[key], expected[key], f"{where}[{key!r}]")
    else:
        assert type(actual) is type(expected), f"{where}: {actual!r}, eager {expected!r}"
        assert actual == expected, f"{where}: {actual!r}, eager {expected!r}"


def _call(function: Callable[..., Any], inputs: Any, ambient: Ambient) -> tuple[Any, Any]:
    """What one call returns, and the inputs as it leaves them."""
    arguments = fresh(inputs)
    torch.manual_seed(0)
    with ambient():
        before = autocast_state()
        result = function(*arguments)
        assert autocast_state() == before, "the call left another autocast state behind"
    return result, arguments


def _own(function: Any) -> Any:
    """A module of the scripted side's own, so that what it writes to buffers can be compared."""
    return copy.deepcopy(function) if isinstance(function, nn.Module) else function


def assert_parity(
    function: Any, inputs: Sequence[Any], *, ambients: Sequence[str] = DEFAULT
) -> dict[str, Any]:
    """Asserts that `function`, scripted, does what it does in eager, around each ambient.

    One scripted object serves all calls: three in a row under each ambient, because the executor
    changes its plan between them. Compared are results, inputs after the call, a module's buffers
    and the thread's autocast state.

    Returns:
        The scripted results by ambient.
    """
    with known_warnings_ignored():
        scripted = jit_amp.script(_own(function))
    results: dict[str, Any] = {}
    for name in ambients:
        for count in range(3):
            where = f"ambient {name}, call {count + 1}"
            with known_warnings_ignored():
                expected, expected_inputs = _call(function, inputs, AMBIENTS[name])
            results[name], inputs_after = _call(scripted, inputs, AMBIENTS[name])
            assert_same(results[name], expected, f"{where}, result")
            assert_same(list(inputs_after), list(expected_inputs), f"{where}, inputs")
    if isinstance(function, nn.Module):
        assert_same(dict(scripted.state_dict()), dict(function.state_dict()), "state_dict")
    return results


def assert_parity_with(
    reference: Callable[..., Any],
    function: Any,
    inputs: Sequence[Any],
    *,
    ambients: Sequence[str] = DEFAULT,
) -> dict[str, Any]:
    """As assert_parity, for a function that is not its own reference.

    What jit_amp scripted or traced is called as it is.
    """
    scripted = jit_amp.script(function)
    results: dict[str, Any] = {}
    for name in ambients:
        for count in range(3):
            with known_warnings_ignored(), AMBIENTS[name]():
                expected = reference(*fresh(inputs))
            with AMBIENTS[name]():
                before = autocast_state()
                results[name] = scripted(*fresh(inputs))
                assert autocast_state() == before
            assert_same(results[name], expected, f"ambient {name}, call {count + 1}")
    return results


def assert_gradient_parity(
    function: Any,
    inputs: Sequence[Any],
    *,
    ambients: Sequence[str] = DEFAULT,
    rounding: float = 2.0**-7,
) -> None:
    """Asserts that gradients of the sum of all outputs are eager's, within bfloat16's rounding.

    Gradients with respect to the inputs that require them and to a module's parameters; a use of a
    weight more or less in one sum rounds differently, so `rounding` is relative to the largest
    entry of a gradient.
    """
    own = _own(function)
    scripted = jit_amp.script(own)
    for name in ambients:
        for count in range(3):
            where = f"ambient {name}, call {count + 1}"
            with known_warnings_ignored():
                expected = _gradients(function, function, inputs, AMBIENTS[name])
            actual = _gradients(scripted, own, inputs, AMBIENTS[name])
            assert actual.keys() == expected.keys(), where
            for key, gradient in expected.items():
                assert gradient.abs().max() > 0, f"{where}: no gradient to compare for {key}"
                assert actual[key].dtype == gradient.dtype, f"{where}, {key}"
                off = (actual[key] - gradient).abs().max() / gradient.abs().max()
                assert off <= rounding, f"{where}, {key}: off by {off:.2e} of the largest"


def _gradients(
    function: Any, owner: Any, inputs: Sequence[Any], ambient: Ambient
) -> dict[str, Tensor]:
    leaves: dict[str, Tensor] = {}
    if isinstance(owner, nn.Module):
        leaves.update(owner.named_parameters())
    result, arguments = _call(function, inputs, ambient)
    leaves.update((f"input {i}", t) for i, t in enumerate(tensors_of(list(arguments))))
    for leaf in leaves.values():
        leaf.grad = None
    outputs = [t for t in tensors_of(result) if t.requires_grad]
    assert outputs, "no output requires a gradient"
    torch.stack([t.float().pow(2).sum() for t in outputs]).sum().backward()
    return {key: leaf.grad for key, leaf in leaves.items() if leaf.grad is not None}


def nodes_of(block: torch._C.Graph | torch._C.Block) -> Iterator[torch._C.Node]:
    """All nodes, those in blocks and in the graphs that nodes run too, in program order."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes_of(inner)
        if node.hasAttribute("Subgraph"):
            yield from nodes_of(node.g("Subgraph"))


def operators(graph: torch._C.Graph) -> list[str]:
    """The kinds of all nodes but constants, in program order.

    Ask these what a graph has in it, not its text, which names the files that it is of: their
    folders may be called anything.
    """
    return [node.kind() for node in nodes_of(graph) if node.kind() != "prim::Constant"]


def operators_of_ours(graph: torch._C.Graph) -> list[str]:
    """Those that need jit_amp to run."""
    return [kind for kind in operators(graph) if kind.startswith("jit_amp::")]


def saved_and_loaded(scripted: Any) -> Any:
    """What another process would have of it."""
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def text_of(graph: torch._C.Graph) -> str:
    """The graph as text, for what its nodes do not tell, such as types; without names of files."""
    return re.sub(r"[ \t]*#[^\n]*", "", str(graph))


def check_ir(graph: torch._C.Graph, checks: str) -> None:
    """Matches printed IR against FileCheck directives; source locations are left out of the IR."""
    filecheck = pytest.importorskip("filecheck.main", reason="pip install filecheck")
    text = text_of(graph)
    messages = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        ir, directives = Path(folder, "ir"), Path(folder, "checks")
        ir.write_text(text)
        directives.write_text(inspect.cleandoc(checks) + "\n")
        # filecheck documents a command, not an API: this is the command, in process.
        with contextlib.redirect_stderr(messages), pytest.raises(SystemExit) as done:
            filecheck.main(["filecheck", str(directives), "--input-file", str(ir)])
    assert done.value.code == 0, f"{messages.getvalue()}\n{text}"


def refusal(function: Callable[..., Any] | nn.Module) -> str:
    """The text with which jit_amp.script refuses, with file and line left out."""
    with pytest.raises(jit_amp.AutocastError) as raised:
        jit_amp.script(function)
    return re.sub(r'File "[^"]*", line \d+', 'File "FILE", line N', str(raised.value)).rstrip()


def unsanitized() -> dict[str, str]:
    """The environment for programs that run without the runtimes which scripts/sanitize loads."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def matrix(seed: int = 0) -> Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))


def dtypes_of(value: Any) -> list[torch.dtype]:
    return [t.dtype for t in tensors_of(value)]
