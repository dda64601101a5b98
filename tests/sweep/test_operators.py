"""Every operator of PyTorch's OpInfo database in a scope: eager, in process, exported.

`--sweep` runs four samples an operator, in float16 too. The short form runs one, in bfloat16, and
explains and traces it only where autocast changes a dtype; on CUDA it freezes it only there too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing._internal.opinfo.core import OpInfo

import jit_amp

from .programs import inputs, operators, programs
from .table import REFUSED, note, note_change

DEVICES = ["cpu", *(pytest.param(d, marks=getattr(pytest.mark, d)) for d in ("cuda", "xpu", "mps"))]

# Their values are whatever was in memory: those of attention are its seeds, where it drops nothing.
UNINITIALISED = {"empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty"}
UNINITIALISED |= {"torch.ops.aten._efficient_attention_forward"}

# PyTorch's executor splits an addmm whose alpha and beta are 1 into mm and add, which rounds once
# more. In process jit_amp keeps it whole; an artefact runs without jit_amp.
ROUNDS_MORE = {"addmm.decomposed"}

# LAPACK's results differ in the last bits with the alignment of the memory that it is given.
UNSTEADY = {"linalg.lstsq", "linalg.lstsq.grad_oriented"}


def outcome(program: Any, arguments: list[torch.Tensor]) -> tuple[bool, Any]:
    """Whether the call worked, and its result or the last line of its error."""
    torch.manual_seed(7)
    try:
        return True, program(*[argument.clone() for argument in arguments])
    except Exception as error:  # what an operator raises is its own affair
        return False, (str(error).strip().splitlines() or [""])[-1]


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def difference(
    expected: tuple[bool, Any], got: tuple[bool, Any], rounding: float | None
) -> str | None:
    """What differs between two outcomes, or None.

    `rounding` 0 asks for equal values, None for dtypes and shapes alone.
    """
    if expected[0] != got[0]:
        return f"expected {expected}, got {got}"
    if not expected[0]:
        return None
    ours, theirs = leaves(got[1]), leaves(expected[1])
    if len(ours) != len(theirs):
        return f"{len(theirs)} results expected, got {len(ours)}"
    for a, b in zip(theirs, ours, strict=True):
        if not isinstance(a, torch.Tensor):
            continue  # TorchScript's numbers for dtypes and the like
        if a.dtype != b.dtype or a.shape != b.shape or a.device != b.device:
            return f"expected {a.dtype} {a.shape}, got {b.dtype} {b.shape}"
        if a.layout is torch.strided and rounding is not None:
            wide = torch.complex128 if a.is_complex() else torch.float64
            x, y = (t.resolve_conj().resolve_neg().to(wide) for t in (a, b))
            if not torch.allclose(x, y, rtol=rounding, atol=rounding, equal_nan=True):
                return f"values: expected {a}, got {b}"
    return None


def traced(
    module: Any, arguments: list[torch.Tensor], others: list[list[torch.Tensor]], exact: bool
) -> list[str] | None:
    """What disagrees with eager in a trace of the program, on its arguments and on others; None
    where PyTorch cannot trace it.

    On others only where a trace of the program without its scope agrees with eager: PyTorch's
    tracer makes constants of what Python computes.
    """
    rounding = 0 if exact else None

    def made(trace: Any, program: Any) -> Any:
        torch.manual_seed(7)
        return trace(program, tuple(a.clone() for a in arguments), check_trace=False)

    try:
        plain = made(torch.jit.trace, module.bare)
        made(torch.jit.trace, module.program)
    except Exception:  # not to be traced, with or without jit_amp
        return None
    trace = made(jit_amp.trace, module.program)
    expected = outcome(module.program, arguments)
    results = [difference(expected, outcome(trace, arguments), rounding) for _ in range(3)]
    for other in others:
        expected = outcome(module.program, other)
        if expected[0] and not difference(outcome(module.bare, other), outcome(plain, other), 0):
            results.append(difference(expected, outcome(trace, other), rounding))
    return [str(result) for result in results if result]


def other_dtypes(arguments: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """float64 and integers in the place of float32."""
    for dtype in (torch.float64, torch.int64):
        yield [a.to(dtype) if a.is_floating_point() else a for a in arguments]


def dtypes_of(result: Any) -> list[Any]:
    return [leaf.dtype for leaf in leaves(result) if isinstance(leaf, torch.Tensor)]


def explained(program: Any, arguments: list[torch.Tensor], dtypes: list[Any]) -> list[str]:
    """What disagrees with the dtypes that eager's results have in the row of the operator, the last
    one that has a result of each of them."""
    report = jit_amp.explain(program, tuple(arguments))
    results = {dtype for row in report.rows for dtype in row.results}
    names = {str(dtype).removeprefix("torch.") for dtype in dtypes}
    if not report.rows and dtypes == [arguments[0].dtype]:
        return []  # `contiguous` and `conj` give what they were given, and nothing runs
    last = set(report.rows[-1].results) if report.rows else set()
    if names <= results and (last & names or not last):
        return []
    return [f"rows have {[row.results for row in report.rows]}, eager {dtypes}"]


def sweep(
    op: OpInfo, device: str, lower: torch.dtype, samples: int, folder: Path, whole: bool
) -> list[str]:
    """Returns what disagrees with eager."""
    name = f"{op.name}.{op.variant_test_name}".rstrip(".")
    scope = f'torch.autocast("{device}", dtype={lower})'
    row = f"{device}, {str(lower).removeprefix('torch.')}"
    values = name not in UNINITIALISED
    wrong = []

    def found(form: str, kind: str, differences: list[str]) -> None:
        note(row, name, form, "differs" if differences else "right")
        wrong.extend(f"{form}, {kind}: {program.call}: {text}" for text in differences)

    for program in programs(op, device, samples):
        module = program.write(folder, scope)
        note(row, name, "scripted", "")
        try:
            torch.jit.script(module.program)
        except Exception:  # not TorchScript, with or without autocast
            continue
        scripted = jit_amp.script(module.program)
        for kind, arguments in inputs(program, lower).items():
            expected = outcome(module.program, arguments)
            if difference(expected, outcome(module.program, arguments), 0):
                values = False  # eager does not agree with itself
            bare = outcome(module.bare, arguments)
            changes = bare[0] and expected[0] and dtypes_of(bare[1]) != dtypes_of(expected[1])
            if changes:
                note_change(row, name)
            rounding: float | None = 0 if values else None
            if name in UNSTEADY:
                rounding = 1e-4
            results = [difference(expected, outcome(scripted, arguments), rounding) for _ in "123"]
            found("scripted", kind, [result for result in results if result])
            if not expected[0]:
                continue
            if whole or changes:
                if dtypes := dtypes_of(expected[1]):
                    found("explained", kind, explained(module.program, arguments, dtypes))
                others = list(other_dtypes(arguments)) if kind == "fp32" else []
                differences = traced(module, arguments, others, values and name not in UNSTEADY)
                if differences is not None:
                    found("traced", kind, differences)
            elif device != "cpu":
                continue
            try:
                frozen = jit_amp.freeze(
                    module.Program().eval(), example_inputs=tuple(a.clone() for a in arguments)
                )
            except jit_amp.AutocastError as error:
                note(row, name, "frozen", "refused")
                REFUSED[f"{row}: {name}"] = str(error).splitlines()[0]
                continue
            if name in ROUNDS_MORE and values:
                rounding = torch.finfo(lower).eps * 8
            results = [difference(expected, outcome(frozen, arguments), rounding) for _ in "123"]
            found("frozen", kind, [result for result in results if result])
    return wrong


@pytest.mark.filterwarnings("ignore")  # of the operators, not of ours
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", operators(), ids=lambda op: op.full_name.replace("/", "_"))
def test_agrees_with_eager(
    op: OpInfo, device: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    whole = request.config.getoption("--sweep")
    run = functools.partial(sweep, op, device, folder=tmp_path, whole=whole)
    wrong = run(lower=torch.bfloat16, samples=4 if whole else 1)
    if whole:
        wrong += run(lower=torch.float16, samples=4)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("device", ["cpu", "cuda", "xpu", "mps"])
def test_the_tables_have_what_the_dispatcher_has(device: Any) -> None:
    missing, _ = jit_amp.policy.drift(device)
    assert missing == []
