"""The version, and the torch that the extension was built for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

import jit_amp
from jit_amp import _built


def test_the_version_is_the_packages() -> None:
    assert metadata.version("jit_amp").partition("+")[0] == jit_amp.__version__


def test_another_torch_than_it_was_built_for_is_told(tmp_path: Path) -> None:
    made_for = tmp_path / "_torch.txt"
    made_for.write_text("2.1.0+cu118\n")
    with pytest.raises(ImportError, match=r"2\.1\.0\+cu118, and torch 2\.13\.0"):
        _built.check("2.13.0+cpu", made_for)
    _built.check("2.1.0+cpu", made_for)  # the same release for another accelerator
    _built.check("2.1.2", made_for)  # a patch release, which pip takes for "torch==2.1.*"
    with pytest.raises(ImportError, match=r"install torch==2\.1\.\*, or build jit_amp again"):
        _built.check("2.10.0", made_for)


def test_a_copy_with_another_torch_says_so_when_it_is_imported(tmp_path: Path) -> None:
    """In one sentence, and not with what the loader says of symbols."""
    package = Path(jit_amp.__file__).parent
    shutil.copytree(package, tmp_path / "jit_amp", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "jit_amp/_torch.txt").write_text("2.1.0\n")
    ran = subprocess.run(
        [sys.executable, "-c", "import jit_amp"],
        cwd=tmp_path,  # before the checkout, and before what is installed
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        f"ImportError: this jit_amp was built for torch 2.1.0, and torch {torch.__version__} is "
        "installed: install torch==2.1.*, or build jit_amp again"
    )


def test_pip_is_told_the_release_that_it_was_built_for() -> None:
    needed = metadata.requires("jit_amp") or []
    release = ".".join(torch.__version__.split(".")[:2])
    assert f"torch=={release}.*" in needed
    assert {'jinja2; extra == "explain"', 'pygments; extra == "explain"'} <= set(needed)


def test_the_packages_of_the_scripts_are_those_of_the_extras() -> None:
    scripts = Path(__file__).parents[2] / "scripts"
    lists = [scripts / "requirements.txt", scripts / "requirements-demo.txt"]
    lines = [line for each in lists for line in each.read_text().splitlines()]
    pinned = {line.partition("==")[0] for line in lines if "==" in line}
    needed = [each.split("; ") for each in metadata.requires("jit_amp") or []]
    extra = {each[0] for each in needed if each[1:] in (['extra == "test"'], ['extra == "demo"'])}
    assert pinned == extra
    assert _built.BUILT_FOR.read_text().strip() == torch.__version__
