"""Hostile graphs, in short; scripts/fuzz runs more of them."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from jit.support import imported

import jit_amp

from . import hostile, workers


def test_mutated_graphs_are_refused_or_agree() -> None:
    outcomes, bad = workers.run(hostile.CASES, 1500, seed=0)
    assert not bad
    assert outcomes["agrees"] > 100  # and not everything was refused
    assert sum(count for what, count in outcomes.items() if what.startswith("refused")) > 100


def test_a_wrong_result_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for n in range(100) if (case := hostile.make_case(n, 0)))
    wrong = hostile.judge
    monkeypatch.setattr(jit_amp, "script", lambda function: lambda *inputs: 0)
    found = [
        wrong(case, lambda stage: None) for n in range(60) if (case := hostile.make_case(n, 0))
    ]
    assert any(outcome.startswith("BAD") for outcome in found)


def compiled(folder: Path, source: str) -> Any:
    header = "import torch\nfrom torch import Tensor\n\n\n"
    return imported(header + source, folder / "program.py")


@pytest.mark.parametrize("depth", [19, 300])
def test_deep_nesting(tmp_path: Path, depth: int) -> None:
    """Python nests 20 blocks in a function; helpers that call helpers nest as deep as one likes."""
    lines = ["def f0(x: Tensor):", "    return x @ x"]
    for i in range(1, depth + 1):
        dtype = ("bfloat16", "float16")[i % 2]
        lines += [
            f"def f{i}(x: Tensor):",
            f"    with torch.autocast('cpu', dtype=torch.{dtype}):",
            f"        return f{i - 1}(x)",
        ]
    module = compiled(tmp_path, "\n".join(lines))
    function = getattr(module, f"f{depth}")
    for i in range(depth):  # from the innermost: PyTorch's frontend is recursive
        torch.jit.script(getattr(module, f"f{i}"))
    x = torch.randn(4, 4)
    scripted = jit_amp.script(function)
    for _ in range(3):
        assert torch.equal(scripted(x), function(x))


def resident() -> int:
    """Bytes of memory that the process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def scoped(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.cat([x @ x, x])


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer keeps what is freed"
)
def test_thousands_of_lowerings_do_not_fill_the_memory() -> None:
    plain, x = torch.jit.script(scoped), torch.randn(4, 4)

    def lower_and_run() -> None:
        lowered = jit_amp.script(plain)
        lowered(x)
        with torch.autocast("cpu"):
            lowered(x)

    for _ in range(500):
        lower_and_run()
    before = resident()
    for _ in range(3000):
        lower_and_run()
    grown = resident() - before
    assert grown < 3000 * 1024, f"{grown / 3000:.0f} bytes a lowering"


def test_a_task_with_an_operand_of_another_type_is_refused() -> None:
    """PyTorch's executor fails to compile it once, and crashes when it is called again."""
    found = hostile.make_case(526, 11)
    assert found and found.mutations[0] == "replace_input"
    assert hostile.judge(found, lambda stage: None).startswith("refused: jit_amp: a malformed")
