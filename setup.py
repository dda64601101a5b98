"""Builds jit_amp._C against the torch that is installed (see README.md for the two commands)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from setuptools import setup
from torch.utils import cpp_extension
from torch.utils.cpp_extension import BuildExtension, CppExtension

ROOT = Path(__file__).parent
SOURCES = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "csrc").rglob("*.cpp"))

# PyTorch's headers are not ours to warn about, so they come in as system headers; what is ours must
# be free of warnings.
FLAGS = ["-std=c++20", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
FLAGS.append(f"-I{ROOT / 'csrc'}")
# What is built of the same sources is the same in every folder: messages name files from these on.
FLAGS += [f"-ffile-prefix-map={p}=." for p in (ROOT, Path(torch.__file__).parents[1])]
LINK_FLAGS = []
GROUPED, GROUP_LINES = {"core", "analysis", "passes"}, 600
# JIT_AMP_SANITIZE=address,undefined builds with these sanitizers: see scripts/sanitize. Types of
# torch's libraries have their type information hidden, which "vptr" would take for another type,
# and g++ warns without cause of what the instrumented standard library does.
if sanitizers := os.environ.get("JIT_AMP_SANITIZE"):
    LINK_FLAGS = [f"-fsanitize={sanitizers}", "-fno-sanitize=vptr"]
    FLAGS += [*LINK_FLAGS, "-O1", "-g1", "-fno-omit-frame-pointer", "-Wno-maybe-uninitialized"]


class Build(BuildExtension):
    """BuildExtension with torch's include folders as system folders, and a precompiled header."""

    command_name = "build_ext"  # with_options hides it, and a development install looks for it

    def build_extension(self, ext):  # type: ignore[no-untyped-def]
        ext.sources = self.grouped(ext.sources)
        for folder in ext.include_dirs:
            ext.extra_compile_args["cxx"].append(f"-isystem{folder}")
        ext.include_dirs = []
        ext.extra_compile_args["cxx"] += self.precompiled(ext.extra_compile_args["cxx"])
        super().build_extension(ext)
        made_for = Path(self.get_ext_fullpath(ext.name)).with_name("_torch.txt")
        made_for.write_text(torch.__version__ + "\n")  # jit_amp/_built.py reads it

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        shutil.copy(Path(self.build_lib) / "jit_amp/_torch.txt", ROOT / "jit_amp/_torch.txt")

    def grouped(self, sources: list[str]) -> list[str]:
        """Puts small files of one folder together, and gives what is to be compiled.

        Half of the time that g++ takes for a small file goes to templates of PyTorch's headers.
        """
        folder = Path(self.build_temp).resolve() / "groups"
        folder.mkdir(parents=True, exist_ok=True)
        groups: dict[str, list[str]] = {}
        name, lines = "", 0
        for source in sources:
            path = Path(source)
            count = len((ROOT / path).read_text().splitlines())
            if path.parent.name not in GROUPED or count > GROUP_LINES:
                groups[source] = [source]
                continue
            lines += count
            if not name.startswith(path.parent.name) or lines > GROUP_LINES:
                name, lines = f"{path.parent.name}_from_{path.name}", count
            groups.setdefault(name, []).append(source)
        made = []
        for name, members in groups.items():
            text = "".join(f'#include "{Path(each).relative_to("csrc")}"\n' for each in members)
            group = folder / name
            if len(members) > 1 and not (group.exists() and group.read_text() == text):
                group.write_text(text)
            made.append(members[0] if len(members) == 1 else str(group))
        return made

    def precompiled(self, flags: list[str]) -> list[str]:
        """Compiles csrc/precompiled.h with g++, if that is not done, and gives the flags to use it.

        It takes as long as three files, and each of thirty takes half as long with it. The compiler
        ignores one that other flags made, and says so.
        """
        source, folder = (
            ROOT / "csrc/precompiled.h",
            Path(self.build_temp).resolve() / "precompiled",
        )
        header, made, stamp = (folder / f"precompiled.h{end}" for end in ("", ".gch", ".by"))
        compiler = [*self.compiler.compiler_so, *(f"-I{d}" for d in self.compiler.include_dirs)]
        given = [*flags, "-DTORCH_API_INCLUDE_EXTENSION_H", "-DTORCH_EXTENSION_NAME=_C"]
        command = [*compiler, *given, "-x", "c++-header", str(header), "-o", str(made)]
        command = [part for part in command if part != "ccache"]
        state = f"{command} {torch.__version__} {source.read_text()}"
        if not (made.exists() and stamp.exists() and stamp.read_text() == state):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, header)
            if subprocess.run(command).returncode or not made.exists():
                return []  # another compiler than g++
            stamp.write_text(state)
        return ["-include", str(header), "-fpch-preprocess", "-Winvalid-pch"]


# Newer releases of torch put ccache in front of the compiler themselves.
wraps = hasattr(cpp_extension, "_wrap_compiler")
os.environ.setdefault("CCACHE_SLOPPINESS", "pch_defines,time_macros")  # or it leaves these files
if shutil.which("ccache") and "CXX" not in os.environ and not wraps:
    os.environ["CXX"] = "ccache g++"

# What is built works with the release of torch that it was built against, and pip is told so. The
# sources build against any release from 2.11 on.
release = ".".join(torch.__version__.split(".")[:2])
needed = "torch>=2.11" if "sdist" in sys.argv else f"torch=={release}.*"

setup(
    install_requires=[needed],
    ext_modules=[
        CppExtension(
            "jit_amp._C",
            SOURCES,
            depends=[str(p) for p in (ROOT / "csrc").rglob("*") if p.suffix in {".h", ".inc"}],
            extra_compile_args={"cxx": FLAGS},
            extra_link_args=LINK_FLAGS,
        )
    ],
    cmdclass={"build_ext": Build.with_options(use_ninja=True)},
)
