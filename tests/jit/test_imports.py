"""What is imported when: torch and the extension at once, the rest when it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jit_amp

ROOT = Path(jit_amp.__file__).parents[1]


def run(*arguments: str, path: Path | None = None) -> str:
    folders = [str(each) for each in (path, ROOT) if each]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_each_public_name_is_there() -> None:
    assert {*jit_amp._MODULES, "policy", "__version__"} == {*jit_amp.__all__}  # type: ignore[attr-defined]
    for name in jit_amp.__all__:
        assert getattr(jit_amp, name) is not None
        assert name in dir(jit_amp)
    with pytest.raises(AttributeError, match="no attribute 'scrpt'"):
        jit_amp.scrpt  # type: ignore[attr-defined]  # noqa: B018


def test_an_import_brings_the_extension_and_no_sympy() -> None:
    code = "import sys, jit_amp; print(*(n in sys.modules for n in ('jit_amp._C', 'sympy')))"
    assert run("-c", code).split() == ["True", "False"]


def test_to_script_needs_no_sympy() -> None:
    code = "import sys, jit_amp; jit_amp.script, jit_amp.freeze; print('sympy' in sys.modules)"
    assert run("-c", code).split() == ["False"]


@pytest.mark.parametrize("arguments", [("errors", "JA101"), ("errors",), ("completion", "bash")])
def test_commands_that_need_no_torch(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch was imported')")
    assert "jit" in run("-m", "jit_amp", *arguments, path=tmp_path).lower()


def test_a_command_in_a_process_of_its_own_finds_the_extension() -> None:
    assert "fp32" in run("-m", "jit_amp", "policy", "aten::layer_norm")


def test_the_limits_and_units_of_the_parser_are_those_that_there_are() -> None:
    from jit_amp._cli import main, running
    from jit_amp._explain import limits
    from jit_amp._precision import in_float32

    assert (*limits.LIMITS,) == main.LIMITS
    assert in_float32.KINDS == main.UNITS
    assert (*running.DTYPES,) == main.DTYPES
