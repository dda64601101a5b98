"""An argument that cannot be meant: the error names it, what was given, and what is accepted."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp import policy


class Scoped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)

    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        return x


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def function(x: Tensor) -> Tensor:
    return x + 1


X = torch.ones(2, 4)
WRONG: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda m: jit_amp.script(3), TypeError, "script: 3 is not a function or an nn.Module"),
    (lambda m: jit_amp.script(None), TypeError, "script: None is not a function"),
    (lambda m: jit_amp.script(math), TypeError, "script: <module 'math"),
    (lambda m: jit_amp.script(X), TypeError, "script: an object of type Tensor is not"),
    (lambda m: jit_amp.script(m, autocast="cpu"), TypeError, "torch.autocast or None, not 'cpu'"),
    (lambda m: jit_amp.lowered_graph(3), TypeError, "lowered_graph: 3 is not a function"),
    (
        lambda m: jit_amp.lowered_graph(m, "backward"),
        ValueError,
        "method: 'backward' is none of 'forward', 'other'",
    ),
    (lambda m: jit_amp.lowered_graph(m, 3), ValueError, "method: 3 is none of 'forward', 'other'"),
    (lambda m: jit_amp.lowered_graph(m, ambient=3), TypeError, "ambient: 3 is not a device type"),
    (
        lambda m: jit_amp.lowered_graph(m, ambient=("cpu", "xpu")),
        ValueError,
        "ambient: 'xpu' is none of 'cpu', 'cuda'",
    ),
    (lambda m: jit_amp.trace(3, (X,)), TypeError, "trace: 3 is not a function or an nn.Module"),
    (lambda m: jit_amp.trace(m), TypeError, "trace: example_inputs, or example_kwarg_inputs"),
    (lambda m: jit_amp.trace(m, 3), TypeError, "example_inputs: 3 is not a tuple of arguments"),
    (lambda m: jit_amp.trace_module(m, None), AttributeError, "expected a dictionary"),
    (lambda m: jit_amp.freeze(function), TypeError, "freeze takes a module, not <function"),
    (lambda m: jit_amp.freeze(Scoped), TypeError, "Scoped is a class: make an instance of it"),
    (lambda m: jit_amp.freeze(m.train()), RuntimeError, "freeze takes a module in eval mode"),
    (lambda m: jit_amp.freeze(m, "linear"), TypeError, "preserved_attrs: 'linear' is not a list"),
    (lambda m: jit_amp.freeze(m, {3}), TypeError, "preserved_attrs: 3 is not a name"),
    (lambda m: jit_amp.freeze(m, [3]), TypeError, "an example that forward does not"),
    (lambda m: jit_amp.freeze(m, 3), TypeError, "preserved_attrs: 3 is not a list of names"),
    (
        lambda m: jit_amp.freeze(m, ["scael"]),
        RuntimeError,
        "Unknown name: scael. preserved_attrs: the module has "
        "'forward', 'linear', 'other', 'scale', 'training'",
    ),
    (
        lambda m: jit_amp.freeze(m, ["linear.wieght"]),
        RuntimeError,
        "Unknown name: linear.wieght. preserved_attrs: the module has 'bias', 'forward'",
    ),
    (
        lambda m: jit_amp.freeze(m, None, "no"),
        TypeError,
        "optimize_numerics: 'no' is not True or False",
    ),
    (
        lambda m: jit_amp.freeze(m, example_kwarg_inputs=X),
        TypeError,
        "example_kwarg_inputs: an object of type Tensor is not a dictionary of arguments",
    ),
    (lambda m: jit_amp.freeze(m, example_inputs=()), TypeError, "an example without `x`"),
    (lambda m: jit_amp.freeze(m, example_inputs=3), TypeError, "an example that forward does not"),
    (
        lambda m: jit_amp.freeze(m, example_inputs=[]),
        ValueError,
        "example_inputs: a list of no examples; leave it out",
    ),
    (lambda m: jit_amp.facts(function), TypeError, "jit_amp.facts takes a module, not <function"),
    (
        lambda m: jit_amp.optimize_for_inference(3),
        TypeError,
        "jit_amp.optimize_for_inference takes a module, not 3",
    ),
    (
        lambda m: jit_amp.optimize_for_inference(m, "other"),
        TypeError,
        "other_methods: 'other' is not a list of names; write ['other']",
    ),
    (
        lambda m: jit_amp.optimize_for_inference(jit_amp.freeze(m), ["other"]),
        ValueError,
        "other_methods: 'other' is none of 'forward'",
    ),
    (
        lambda m: jit_amp.optimize_for_inference(jit_amp.freeze(m), example_inputs=X),
        TypeError,
        "the module is frozen already",
    ),
    (lambda m: jit_amp.get_autocast(3), ValueError, "precision: 3 is none of 'amp', 'amp_bf16'"),
    (
        lambda m: jit_amp.get_autocast(torch.bfloat16),
        ValueError,
        "precision: torch.bfloat16 is none of 'amp'",
    ),
    (lambda m: jit_amp.get_autocast("amp_"), ValueError, "precision: 'amp_' is none of"),
    (
        lambda m: jit_amp.tune(m, (X,), dtype=torch.bfloat16, device_type="cpu:0"),
        ValueError,
        "device_type: 'cpu:0' is one device, and autocast is for all of a type: write 'cpu'",
    ),
    (
        lambda m: jit_amp.tune(m, (X,), dtype=torch.bfloat16, seed=2**64),
        ValueError,
        "seed: 18446744073709551616 is not from -2**63 to 2**64 - 1",
    ),
    (
        lambda m: jit_amp.tune(m.bfloat16(), (X,), dtype=torch.bfloat16),
        ValueError,
        "its linear.weight is torch.bfloat16: give the model in float32, as model.float() makes it",
    ),
    (
        lambda m: jit_amp.freeze(m, (X,), example_inputs=(X,)),
        TypeError,
        "freeze: examples are given twice, as the second argument, preserved_attrs, and as",
    ),
    (
        lambda m: jit_amp.optimize_for_inference(m, X, example_inputs=X),
        TypeError,
        "optimize_for_inference: examples are given twice, as the second argument, other_methods",
    ),
    (lambda m: jit_amp.get_autocast("bf16", 3), TypeError, "device_type: 3 is not a device type"),
    (lambda m: jit_amp.ignore_amp(3), TypeError, "ignore_amp takes a function or a module, not 3"),
    (lambda m: jit_amp.ignore_amp(m, "no"), TypeError, "ignore: 'no' is not True or False"),
    (lambda m: jit_amp.ignore_amp(m, scopes=2), TypeError, "scopes: 2 is not True or False"),
    (lambda m: policy.register(3, "cpu", "lower"), TypeError, "op: 3 is not an operator's name"),
    (lambda m: policy.register("a::", "cpu", "lower"), ValueError, "op: 'a::' has no namespace"),
    (
        lambda m: policy.register("a::b", ["cpu"], "lower"),
        ValueError,
        "device_type: ['cpu'] is none of 'cpu', 'cuda'",
    ),
    (
        lambda m: policy.register("a::b", "cpu", "half"),
        ValueError,
        "policy: 'half' is none of 'lower', 'fp32', 'promote', 'untouched', 'opaque'",
    ),
    (lambda m: policy.unregister(3, "cpu"), TypeError, "op: 3 is not an operator's name"),
    (lambda m: policy.table(torch.device("cpu")), ValueError, "device_type: device(type='cpu')"),
    (
        lambda m: policy.drift("hpu"),
        ValueError,
        "device_type: 'hpu' is none of 'cpu', 'cuda', 'xpu', 'mps'",
    ),
]


@pytest.fixture
def module() -> Iterator[nn.Module]:
    yield Scoped().eval()


@pytest.mark.parametrize(("call", "kind", "message"), WRONG, ids=[each[2] for each in WRONG])
def test_the_error_says_what_was_given(
    call: Callable[[Any], Any], kind: type[Exception], message: str, module: nn.Module
) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        call(module)


def test_a_module_without_scopes_is_checked_as_well() -> None:
    with pytest.raises(RuntimeError, match=r"Unknown name: nope\. preserved_attrs: the module has"):
        jit_amp.freeze(Plain().eval(), ["nope"])


def test_what_a_submodule_has_is_preserved_by_its_path(module: nn.Module) -> None:
    frozen = jit_amp.freeze(module, ("linear.weight", "other", "scale"))
    assert frozen.linear.weight.shape == (4, 4)
    assert frozen.scale == 2.0
    assert torch.equal(frozen.other(X), X)


# A program that is none of TorchScript's, and what is to be given in its place.


class Holds(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x)


class CompiledForward(nn.Module):
    @torch.compile(backend="eager")
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


@torch.compile(backend="eager")
def compiled_function(x: Tensor) -> Tensor:
    return x + 1


DOORS: dict[str, Callable[[Any], Any]] = {
    "script": jit_amp.script,
    "lowered_graph": jit_amp.lowered_graph,
    "freeze": lambda m: jit_amp.freeze(m, (X,)),
    "facts": lambda m: jit_amp.facts(m, (X,)),
    "optimize_for_inference": lambda m: jit_amp.optimize_for_inference(m, (X,)),
    "export": lambda m: jit_amp.export(m, (X,)),
    "trace": lambda m: jit_amp.trace(m, (X,)),
    "trace_module": lambda m: jit_amp.trace_module(m, {"forward": (X,)}),
    "tune": lambda m: jit_amp.tune(m, (X,), dtype=torch.bfloat16),
    "explain": lambda m: jit_amp.explain(m, (X,)),
}
PYTHONS = {"trace", "trace_module", "tune", "explain"}  # which run what TorchScript cannot compile


def compiled() -> Any:
    return torch.compile(Scoped().eval(), backend="eager")


def exported() -> Any:
    return torch.export.export(Scoped().eval(), (X,))


def precision(*units: str) -> Any:
    with contextlib.redirect_stderr(io.StringIO()):
        found = jit_amp.tune(Holds(nn.Linear(4, 4)), (X,), dtype=torch.bfloat16)
    return dataclasses.replace(found, units=units)


OTHERS: dict[str, tuple[Callable[[], Any], str, set[str]]] = {
    "a compiled module": (
        compiled,
        "Scoped is compiled by torch.compile already: give the module as it is before that, "
        "`_orig_mod`",
        {"explain", "tune"},
    ),
    "a compiled part": (
        lambda: Holds(compiled()).eval(),
        "`part` of Holds is compiled by torch.compile already: give the module as it is before "
        "that, `part._orig_mod`",
        {"explain", "tune"},
    ),
    "a compiled function": (
        lambda: compiled_function,
        "compiled_function is compiled by torch.compile already: give the function as it is",
        {"explain"},
    ),
    "a compiled method": (
        lambda: torch.compile(Scoped().forward, backend="eager"),
        "Scoped.forward is compiled by torch.compile already: give the function as it is",
        {"explain"},
    ),
    "a compiled forward": (
        lambda: CompiledForward().eval(),
        "the forward of CompiledForward is compiled by torch.compile already: give a module whose",
        {"explain"},
    ),
    "an ExportedProgram": (
        exported,
        "does not take an ExportedProgram: give the model that it was exported from, or what "
        "jit_amp.trace makes of its module()",
        set(),
    ),
    "an exported module": (
        lambda: exported().module(),
        "this is the module() of an ExportedProgram, which TorchScript does not compile: give the "
        "model that was exported, or jit_amp.trace it",
        PYTHONS,
    ),
    "an exported part": (
        lambda: Holds(exported().module()),
        "`part` of Holds is the module() of an ExportedProgram, which TorchScript does not compile",
        PYTHONS,
    ),
    "what apply returned": (
        lambda: precision().apply(Holds(nn.Linear(4, 4)).eval()),
        "does not take what Precision.apply returned: give the model itself; jit_amp.script, "
        "jit_amp.trace and jit_amp.freeze take the precision beside it, as `precision=`",
        {"explain"},
    ),
    "a Precision": (precision, "does not take a Precision: give the model itself", {"explain"}),
}


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # of the guards of an export
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", OTHERS)
def test_a_program_of_another_kind_is_told_with_what_to_give(kind: str, door: str) -> None:
    make, message, works = OTHERS[kind]
    if door not in works:
        with pytest.raises(TypeError, match=f"^jit_amp.{door}.*{re.escape(message)}"):
            DOORS[door](make())
    elif kind != "a Precision":  # which nothing can run
        with contextlib.redirect_stderr(io.StringIO()):
            DOORS[door](make())


def test_what_compile_has_changed_in_place_is_scripted_and_not_traced(module: nn.Module) -> None:
    module.compile(backend="eager")
    whole = Holds(module).eval()
    assert jit_amp.script(whole)(X).dtype is torch.bfloat16
    for door in ("trace", "trace_module"):
        for program, name in ((module, "Scoped"), (whole, "`part` of Holds")):
            match = f"^jit_amp.{door}: {name} is compiled by its compile.. already"
            with pytest.raises(TypeError, match=match):
                DOORS[door](program)
    assert jit_amp.trace(copy.deepcopy(whole), (X,))(X).dtype is torch.bfloat16


@pytest.mark.parametrize("unit", ["", "part"])
def test_a_model_that_runs_with_a_precision_is_not_scripted(unit: str) -> None:
    model = Holds(nn.Linear(4, 4)).eval()
    applied = precision(unit).apply(model)
    with applied:
        for door in DOORS.keys() - PYTHONS:
            with pytest.raises(TypeError, match="leave its `with` block, and give jit_amp"):
                DOORS[door](model)
        assert torch.equal(jit_amp.trace(model, (X,))(X), model(X))
    assert jit_amp.script(model)(X).dtype is torch.float32


def test_a_function_that_is_kept_from_torch_compile_is_no_compiled_one() -> None:
    kept = torch.compiler.disable(function)
    assert torch.equal(jit_amp.script(kept)(X), X + 1)


SWITCHED_OFF = """
import torch
import jit_amp


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.t()


net, x = Net().eval(), torch.ones(2, 4)
assert jit_amp.script(net) is net
assert jit_amp.trace(net, (x,)) is net
assert jit_amp.explain(net, (x,)).rows
scope = torch.autocast("cpu", dtype=torch.bfloat16)
for name, call in (
    ("freeze", lambda: jit_amp.freeze(net, (x,))),
    ("facts", lambda: jit_amp.facts(net, (x,))),
    ("optimize_for_inference", lambda: jit_amp.optimize_for_inference(net, (x,))),
    ("lowered_graph", lambda: jit_amp.lowered_graph(net)),
    ("export", lambda: jit_amp.export(net, (x,))),
    ("script with autocast or precision", lambda: jit_amp.script(net, autocast=scope)),
):
    try:
        call()
    except RuntimeError as error:
        assert str(error).startswith(f"jit_amp.{name} needs TorchScript, which PYTORCH_JIT=0")
    else:
        raise AssertionError(name)
print("done")
"""


def test_torchscript_that_is_switched_off_is_told(tmp_path: Path) -> None:
    (tmp_path / "off.py").write_text(SWITCHED_OFF)
    root = str(Path(jit_amp.__file__).parents[1])
    paths = os.pathsep.join((root, os.environ.get("PYTHONPATH", "")))
    process = subprocess.run(
        [sys.executable, "off.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTORCH_JIT": "0", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert process.stdout == "done\n", process.stderr


# A wrapper in training mode.


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda m: m.part.eval(), "this Holds is in training mode, though none of its parts is: "),
        (lambda m: m, "this Holds is in training mode, and so are all its parts: "),
        (
            lambda m: m.part.train(False).linear.train(),
            "this Holds is in training mode, and so is `part.linear` of it: ",
        ),
        (torch.jit.script, "this Holds is in training mode, and so are all its parts: "),
    ],
)
@pytest.mark.parametrize("door", ["freeze", "facts"])
def test_a_wrapper_in_training_mode_is_named(
    prepare: Callable[[Any], Any], message: str, door: str
) -> None:
    model: Any = Holds(Scoped())
    prepared = prepare(model)
    model = prepared if isinstance(prepared, torch.jit.ScriptModule) else model
    with pytest.raises(RuntimeError, match=f"{message}call .eval.. on the Holds before freezing"):
        DOORS[door](model)
