"""The version, and the torch that the extension was built for."""

from __future__ import annotations

import importlib.machinery
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

import jit_amp
from jit_amp import _C
from jit_amp._base import load_extension


def test_the_version_is_the_packages() -> None:
    assert metadata.version("jit_amp").partition("+")[0] == jit_amp.__version__


def test_another_torch_than_it_was_built_for_is_told(tmp_path: Path) -> None:
    made_for = tmp_path / "_torch.txt"
    made_for.write_text("2.1.0+cu118\n")
    with pytest.raises(ImportError, match=r"2\.1\.0\+cu118, and torch 2\.13\.0"):
        load_extension.check("2.13.0+cpu", made_for)
    load_extension.check("2.1.0+cpu", made_for)  # the same release for another accelerator
    load_extension.check("2.1.2", made_for)  # a patch release
    told = r"run `pip install torch==2\.1\.\*`, or build jit_amp again"
    with pytest.raises(ImportError, match=told):
        load_extension.check("2.10.0", made_for)


PACKAGE = Path(jit_amp.__file__).parent
EXTENSION = Path(_C.__file__)
VERSION = ".".join(torch.__version__.split(".")[:2])


def copy(folder: Path, extension: str | None) -> Path:
    """A copy of the package in a folder, with its extension at a path in it, or without."""
    package = folder / "jit_amp"
    left_out = shutil.ignore_patterns("__pycache__", "_C.*.so", "torch*", "_torch.txt")
    shutil.copytree(PACKAGE, package, ignore=left_out)
    if extension:
        made = package / extension
        made.parent.mkdir(exist_ok=True)
        made.symlink_to(EXTENSION)
        made.with_name("_torch.txt").write_text(torch.__version__)
    return package


def ran(checkout: Path, *installed: Path, python: Sequence[str] = (sys.executable,)) -> Any:
    """`import jit_amp` in a checkout, before what is installed in other folders."""
    return subprocess.run(
        [*python, "-c", "import jit_amp; print(jit_amp._C.__file__)"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, installed))},
        capture_output=True,
        text=True,
    )


ALONE = (sys.executable, "-S")  # sees nothing that is installed


def refusal(checkout: Path, *installed: Path) -> str:
    """The one sentence, with a module torch that has a version and nothing else."""
    torchs = checkout / "torchs"
    torchs.mkdir(parents=True)
    (torchs / "torch.py").write_text(f"__version__ = {torch.__version__!r}\n")
    told = ran(checkout, *installed, torchs, python=ALONE)
    assert told.returncode == 1, told.stdout
    kind, _, text = told.stderr.splitlines()[-1].partition(": ")
    assert kind == "ImportError"
    return text


NAME = EXTENSION.name
OTHER = "_C.cpython-36m-mips-linux-gnu.so"


@pytest.mark.parametrize("where", [NAME, f"torch{VERSION}/{NAME}"])
def test_a_checkout_without_its_extension_takes_the_installed_one(
    tmp_path: Path, where: str
) -> None:
    checkout, installed = tmp_path / "checkout", tmp_path / "installed"
    copy(checkout, None)
    extension = copy(installed, where) / where
    told = ran(checkout, installed)
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip() == str(extension)


def test_a_checkout_without_any_extension_says_what_to_run(tmp_path: Path) -> None:
    copy(tmp_path, None)
    assert refusal(tmp_path) == (
        f"{tmp_path} is a checkout of jit_amp, whose extension is not built: "
        "run `pip install .` there"
    )


def test_without_torch_it_says_what_to_run(tmp_path: Path) -> None:
    copy(tmp_path, NAME)
    assert ran(tmp_path, python=ALONE).stderr.splitlines()[-1] == (
        "ImportError: jit_amp is an extension of PyTorch, which is not installed: "
        "run `pip install torch`"
    )


@pytest.mark.parametrize("name", ["_version.py", "_C.pyi"])
def test_a_checkout_does_not_take_what_was_built_of_another(tmp_path: Path, name: str) -> None:
    checkout, installed = tmp_path / "checkout", tmp_path / "installed"
    copy(checkout, None)
    other = copy(installed, NAME) / name
    other.write_text(other.read_text().replace("0.1.0", "0.0.9") + "\n")
    assert refusal(checkout, installed) == (
        f"{checkout} is a checkout of jit_amp {jit_amp.__version__}, and what is installed in "
        f"{installed} was built of another: run `pip install .` in the checkout"
    )


def test_one_sentence_for_another_torch_python_and_a_broken_file(tmp_path: Path) -> None:
    """And not what the loader says of symbols."""
    package = copy(tmp_path / "torch", NAME)
    (package / "_torch.txt").write_text("2.1.0\n")
    assert refusal(tmp_path / "torch") == (
        f"this jit_amp was built for torch 2.1.0, and torch {torch.__version__} is installed: "
        "run `pip install torch==2.1.*`, or build jit_amp again"
    )
    copy(tmp_path / "wheel", f"torch2.9/{NAME}")
    shutil.copytree(tmp_path / "wheel/jit_amp/torch2.9", tmp_path / "wheel/jit_amp/torch2.10")
    assert refusal(tmp_path / "wheel") == (
        f"this jit_amp is for torch 2.9, 2.10, and torch {torch.__version__} is installed: "
        "run `pip install torch==2.10.*`, or build jit_amp"
    )
    copy(tmp_path / "python", OTHER)
    tag = importlib.machinery.EXTENSION_SUFFIXES[0].split(".")[1]
    assert refusal(tmp_path / "python") == (
        f"this jit_amp was built for cpython-36m-mips-linux-gnu, and this Python is {tag}: "
        f"run `{sys.executable} -m pip install --force-reinstall jit_amp`"
    )
    broken = copy(tmp_path / "broken", NAME)
    (broken / NAME).unlink()
    (broken / NAME).write_bytes(b"no library")
    told = refusal(tmp_path / "broken")
    assert told.startswith(
        f"the extension in {broken} does not load with torch {torch.__version__}"
    )
    assert told.endswith("build jit_amp again, with `pip install .` in its checkout")


def test_pip_fetches_no_torch_for_it() -> None:
    """Another torch than the one that is there is never fetched: importing says what is missing."""
    needed = metadata.requires("jit_amp") or []
    assert [each for each in needed if "extra ==" not in each] == []
    assert {'jinja2; extra == "explain"', 'pygments; extra == "explain"'} <= set(needed)


def test_the_packages_of_the_scripts_are_those_of_the_extras() -> None:
    scripts = Path(__file__).parents[2] / "scripts"
    lists = [scripts / "requirements.txt", scripts / "requirements-demo.txt"]
    lines = [line for each in lists for line in each.read_text().splitlines()]
    pinned = {line.partition("==")[0] for line in lines if "==" in line}
    needed = [each.split("; ") for each in metadata.requires("jit_amp") or []]
    extra = {each[0] for each in needed if each[1:] in (['extra == "test"'], ['extra == "demo"'])}
    assert pinned == extra
    assert load_extension.BUILT_FOR.read_text().strip() == torch.__version__
