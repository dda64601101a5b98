"""Imported before all else: finds the extension, and says in one sentence where there is none.

It lies in the package's folder where setup.py has built it, and in a folder for each release of
torch, such as torch2.13, in a wheel (scripts/wheels). In a checkout without it, it is the installed
one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from jit_amp._version import __version__

HERE = Path(__file__).parents[1]


def torch_version() -> str:
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        text = "jit_amp is an extension of PyTorch, which is not installed: run `pip install torch`"
        raise ImportError(text) from None
    return str(torch.__version__)


def check(installed: str, built_for: Path) -> None:
    """Raises ImportError where the extension is for another release: it would not load."""
    wanted = built_for.read_text().strip() if built_for.exists() else installed
    if _release(wanted) != _release(installed):
        raise ImportError(
            f"this jit_amp was built for torch {wanted}, and torch {installed} is installed: "
            f"run `pip install torch=={_release(wanted)}.*`, or build jit_amp again"
        )


def _release(version: str) -> str:
    """2.13 of "2.13.0+cpu": what is built for one patch release loads with all."""
    return ".".join(version.split(".")[:2])


def _has_extension(folder: Path) -> bool:
    """Whether there is one for this Python and this processor."""
    return any((folder / f"_C{suffix}").exists() for suffix in EXTENSION_SUFFIXES)


def _for_releases(package: Path) -> dict[str, Path]:
    """By release of torch, in a wheel: the folder of the extension."""
    found = [each for each in package.glob("torch*") if _has_extension(each)]
    by_number = sorted(found, key=lambda each: [int(n) for n in each.name[5:].split(".")])
    return {each.name[5:]: each for each in by_number}


def folder_of(package: Path, installed: str) -> Path | None:
    """The folder of a package's extension for the torch that is installed; None without any.

    Raises:
        ImportError: there are only others.
    """
    if _has_extension(package):
        return package
    if releases := _for_releases(package):
        if folder := releases.get(_release(installed)):
            return folder
        newest = list(releases)[-1]
        raise ImportError(
            f"this jit_amp is for torch {', '.join(releases)}, and torch {installed} is installed: "
            f"run `pip install torch=={newest}.*`, or build jit_amp"
        )
    others = [
        p for p in (*package.glob("_C.*"), *package.glob("torch*/_C.*")) if p.suffix != ".pyi"
    ]
    if others:
        made_for = others[0].name.split(".")[1]
        raise ImportError(
            f"this jit_amp was built for {made_for}, and this Python is "
            f"{EXTENSION_SUFFIXES[0].split('.')[1]}: "
            f"run `{sys.executable} -m pip install --force-reinstall jit_amp`"
        )
    return None


def _elsewhere() -> Iterator[Path]:
    """Other packages of this name that Python would find without this one, a checkout."""
    for entry in sys.path:
        package = Path(entry).resolve() / "jit_amp"
        if package != HERE.resolve() and (package / "_version.py").exists():
            yield package


def find(installed: str) -> Path:
    """The folder of the extension. ImportError, in one sentence: there is none that fits."""
    refusal = None
    try:
        if folder := folder_of(HERE, installed):
            return folder
    except ImportError as error:
        refusal = error
    for package in _elsewhere():
        # What the Python files here take from the extension stands in _C.pyi.
        same = all(
            (package / name).exists()
            and (package / name).read_bytes() == (HERE / name).read_bytes()
            for name in ("_version.py", "_C.pyi")
        )
        if same and (folder := folder_of(package, installed)):
            return folder
        raise refusal or ImportError(
            f"{HERE.parent} is a checkout of jit_amp {__version__}, and what is installed in "
            f"{package.parent} was built of another: run `pip install .` in the checkout"
        )
    raise refusal or ImportError(
        f"{HERE.parent} is a checkout of jit_amp, whose extension is not built: "
        "run `pip install .` there"
    )


def load() -> Path:
    """Imports the extension, and returns the file with the torch that it was built for."""
    installed = torch_version()
    folder = find(installed)
    built_for = folder / "_torch.txt"  # setup.py writes it beside the extension
    check(installed, built_for)
    path = sys.modules["jit_amp"].__path__
    if str(folder) not in path:
        path.append(str(folder))
    try:
        extension = importlib.import_module("jit_amp._C")
    except ImportError as error:
        raise ImportError(
            f"the extension in {folder} does not load with torch {installed} ({error}): "
            "build jit_amp again, with `pip install .` in its checkout"
        ) from error
    source_files = importlib.import_module("jit_amp._base.source_files")  # imports torch
    # What no error shows where there is a line of somebody else's.
    extension.set_package_folders([source_files.PYTORCH, source_files.PACKAGE])
    importlib.import_module("jit_amp._base.autocast_error")  # what is raised has its attributes
    return built_for


BUILT_FOR = load()
