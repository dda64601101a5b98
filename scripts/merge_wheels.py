"""Makes one wheel of several that differ in the release of torch that they were built for.

    merge_wheels.py OUT WHEEL...

Each has an extension `jit_amp/_C...` and the release in `jit_amp/_torch.txt`. In the one that is
written into OUT, these two lie in a folder for each release, `jit_amp/torch2.13`, from which
jit_amp/_base/load_extension.py takes the one for the torch that is installed. All else has to be
the same.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from filecmp import dircmp
from pathlib import Path


def wheel(*arguments: object) -> None:
    command = [sys.executable, "-m", "wheel", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def unpacked(path: Path, folder: Path) -> Path:
    """The wheel as a folder, with what is of one release of torch in a folder of its own."""
    wheel("unpack", "--dest", folder, path)
    [root] = folder.iterdir()
    package = root / "jit_amp"
    [extension] = (each for each in package.glob("_C.*") if each.suffix != ".pyi")
    made_for = package / "_torch.txt"
    release = ".".join(made_for.read_text().split(".")[:2])
    own = package / f"torch{release}"
    own.mkdir()
    for each in (extension, made_for):
        each.rename(own / each.name)
    return root


def add(root: Path, other: Path) -> None:
    """Moves the extension of `other` over; nothing else may differ."""
    compared = dircmp(root / "jit_amp", other / "jit_amp")
    [only] = compared.right_only
    if compared.diff_files or not only.startswith("torch"):
        sys.exit(f"{other}: built of other sources: {only} {compared.diff_files}")
    (other / "jit_amp" / only).rename(root / "jit_amp" / only)


def main(out: str, *wheels: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        roots = []
        for number, path in enumerate(wheels):
            (folder := Path(temporary) / str(number)).mkdir()
            roots.append(unpacked(Path(path), folder))
        for other in roots[1:]:
            add(roots[0], other)
        Path(out).mkdir(parents=True, exist_ok=True)
        wheel("pack", "--dest-dir", out, roots[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
