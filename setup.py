"""Builds jit_amp._C against the torch that is installed; docs/getting-started.md has commands."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import site
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import dropwhile
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
MSVC = sys.platform == "win32"
GROUPED, GROUP_LINES = {"core", "analysis", "passes"}, 600
# scripts/env sets JIT_AMP_FILES to "small", where one source changes and all is compiled again; a
# number is that of large files.
SMALL_FILES = os.environ.get("JIT_AMP_FILES") == "small"
STEP = re.compile(
    r"""(\[\d+/\d+\]) .*? [-/]c (?:["'][^"']*|[^ ]*)[/\\](?:csrc|groups)[/\\]([^ "']+)["']? """
)


def find_torch() -> Any:
    """The torch that is installed, or None.

    pip builds where nothing is seen that is installed, and would fetch a torch of its own if this
    package asked for one. What is compiled has to be for the torch that is there.
    """
    folders = site.getsitepackages()
    if sys.prefix == sys.base_prefix:
        folders.append(site.getusersitepackages())
    for folder in ["", *folders]:
        if folder:
            site.addsitedir(folder)
        try:
            return importlib.import_module("torch")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
    return None


torch = find_torch()
release = tuple(map(int, torch.__version__.split(".")[:2])) if torch else ()
missing = ""
if release < (2, 6):
    missing = (
        "jit_amp is compiled against the torch that is installed, 2.6 or newer, and "
        f"{f'torch {torch.__version__}' if torch else 'none'} is: run "
        f"`{'pip install --upgrade torch' if torch else 'pip install torch'}`, and then this again"
    )
if missing and "PIP_BUILD_TRACKER" in os.environ:
    sys.exit(missing)  # before pip has printed all that it copies
if not missing:
    from torch.utils import cpp_extension


def flags() -> tuple[list[str], list[str]]:
    """What the compiler and the linker are given."""
    if MSVC:
        return ["/std:c++20", "/O2", "/EHsc", "/utf-8", "/bigobj", f"/I{ROOT / 'csrc'}"], []
    # What is ours must be free of warnings where the project checks itself (scripts/env).
    checks = ["-Werror"] if os.environ.get("JIT_AMP_CHECKS") else []
    compiler = ["-std=c++20", "-O2", "-g0", "-Wall", "-Wextra", *checks, "-Wno-unused-parameter"]
    compiler.append(f"-I{ROOT / 'csrc'}")
    # What is built of the same sources is the same in every folder: messages name files from these
    # on.
    for folder in (ROOT, Path(torch.__file__).parents[1]):
        compiler.append(f"-ffile-prefix-map={folder}=.")
    # JIT_AMP_SANITIZE=address,undefined builds with these sanitizers: see scripts/sanitize. Types
    # of torch's libraries have their type information hidden, which "vptr" would take for another
    # type, and g++ warns without cause of what the instrumented standard library does.
    if sanitizers := os.environ.get("JIT_AMP_SANITIZE"):
        linker = [f"-fsanitize={sanitizers}", "-fno-sanitize=vptr"]
        more = ["-O1", "-g1", "-fno-omit-frame-pointer", "-Wno-maybe-uninitialized"]
        return [*compiler, *linker, *more], linker
    return compiler, []


def lines_of(source: str) -> int:
    return len((ROOT / source).read_text(encoding="utf-8").splitlines())


def in_small_files(sources: list[str]) -> dict[str, list[str]]:
    """Neighbours of one folder, up to a number of lines; others alone."""
    groups: dict[str, list[str]] = {}
    name, lines = "", 0
    for source in sources:
        path, count = Path(source), lines_of(source)
        if path.parts[1] not in GROUPED or count > GROUP_LINES:
            groups[source] = [source]
            continue
        lines += count
        folder_name = "_".join(path.parts[1:-1][:2])  # passes_freeze
        if not name.startswith(f"{folder_name}_from_") or lines > GROUP_LINES:
            name, lines = f"{folder_name}_from_{path.name}", count
        groups.setdefault(name, []).append(source)
    return groups


def in_large_files(sources: list[str]) -> dict[str, list[str]]:
    """Two or four parts of one sequence, which take about as long as each other.

    Names in unnamed namespaces have to differ in all of csrc for it. Who has compiled two parts has
    tried what is in four. More would take more memory, two or three GiB each.
    """
    processors = os.cpu_count() or 1
    number = 4 if int(os.environ.get("JIT_AMP_FILES") or processors) >= 4 else 2
    ordered = sorted(sources, key=lambda source: (Path(source).parts[1] not in GROUPED, source))
    costs = [lines_of(each) * (1 if Path(each).parts[1] in GROUPED else 3) for each in ordered]
    groups: dict[str, list[str]] = {}
    before = 0
    for source, cost in zip(ordered, costs, strict=True):
        part = (before + cost // 2) * number // sum(costs)
        groups.setdefault(f"part_{part + 1}_of_{number}.cpp", []).append(source)
        before += cost
    return groups


def is_gcc(command: list[str]) -> bool:
    compiler = next(part for part in command if part != "ccache")
    told = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    return "Free Software Foundation" in told


@contextmanager
def progress() -> Iterator[None]:
    """Shows ninja's commands as `[3/31] lower.cpp`, and all else, errors too, as it is.

    pip shows what a build prints only where it fails, or with `-v`: so the terminal is told too, if
    there is one.
    """
    with ExitStack() as stack:
        terminal = None
        if "PIP_BUILD_TRACKER" in os.environ and not MSVC:
            try:
                terminal = stack.enter_context(open("/dev/tty", "w"))
            except OSError:  # there is none
                terminal = None
        sys.stdout.flush()
        out = os.dup(1)
        read, write = os.pipe()
        os.dup2(write, 1)
        os.close(write)

        def shorten() -> None:
            with os.fdopen(read, errors="replace") as lines, os.fdopen(out, "w") as to:
                for line in lines:
                    step = STEP.match(line)
                    told = f"  {step[1]} {step[2]}" if step else line.rstrip("\n")
                    print(told, file=to, flush=True)
                    if terminal and told.startswith("  "):
                        print(f"\r\033[K{told} ", end="", file=terminal, flush=True)
                if terminal:
                    print(end="\r\033[K", file=terminal, flush=True)

        kept = os.dup(out)
        reader = threading.Thread(target=shorten)
        reader.start()
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(kept, 1)  # ends what the reader reads
            os.close(kept)
            reader.join()


class Build(build_ext if missing else cpp_extension.BuildExtension):  # type: ignore[misc]
    """BuildExtension with torch's include folders as system folders, and sources in groups."""

    command_name = "build_ext"  # or a development install compiles all a second time

    def run(self) -> None:
        if missing:  # an sdist is made without torch
            sys.exit(missing)
        super().run()

    def build_extension(self, ext):  # type: ignore[no-untyped-def]
        ext.sources = self.grouped(ext.sources)
        made = Path(self.build_temp).resolve() / "definitions/definitions.inc"
        made.parent.mkdir(parents=True, exist_ok=True)
        if not (made.exists() and made.read_text(encoding="utf-8") == definitions()):
            made.write_text(definitions(), encoding="utf-8")
        # PyTorch's headers are not ours to warn about.
        system = ["/external:W0", "/external:I"] if MSVC else ["-isystem"]
        given = ext.extra_compile_args["cxx"]
        given.append(f"{'/I' if MSVC else '-I'}{made.parent}")
        given += [f"{''.join(system[-1:])}{folder}" for folder in ext.include_dirs] + system[:-1]
        ext.include_dirs = []
        with progress():
            if not SMALL_FILES:
                print(f"  compiling {len(ext.sources)} parts, a minute or two", flush=True)
            given += self.precompiled(given)
            super().build_extension(ext)
        made_for = Path(self.get_ext_fullpath(ext.name)).with_name("_torch.txt")
        made_for.write_text(torch.__version__ + "\n")  # jit_amp/_base/load_extension.py reads it

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        shutil.copy(Path(self.build_lib) / "jit_amp/_torch.txt", ROOT / "jit_amp/_torch.txt")

    def grouped(self, sources: list[str]) -> list[str]:
        """What is compiled: files that include the sources.

        Most of the time goes to PyTorch's headers and their templates. So a few large files are
        made fastest: one for each processor, up to four. Where one source changes and all is made
        again, small files of neighbours are faster, with the headers compiled once for all.
        """
        groups = in_small_files(sources) if SMALL_FILES else in_large_files(sources)
        folder = Path(self.build_temp).resolve() / "groups"
        folder.mkdir(parents=True, exist_ok=True)
        made = []
        for name, members in groups.items():
            inside = (Path(each).relative_to("csrc").as_posix() for each in members)
            text = "".join(f'#include "{each}"\n' for each in inside)
            group = folder / name
            if len(members) > 1 and not (group.exists() and group.read_text() == text):
                group.write_text(text)
            made.append(members[0] if len(members) == 1 else str(group))
        return made

    def precompiled(self, flags: list[str]) -> list[str]:
        """Compiles csrc/precompiled.h with g++, if that is not done, and gives the flags to use it.

        It takes as long as three files, and each of thirty small ones takes half as long with it.
        The compiler ignores one that other flags made, and says so. Other compilers do without.
        """
        if not SMALL_FILES or MSVC or not is_gcc(self.compiler.compiler_so):
            return []
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
            print("  PyTorch's headers, for all files", flush=True)
            if subprocess.run(command).returncode or not made.exists():
                return []
            stamp.write_text(state)
        return ["-include", str(header), "-fpch-preprocess", "-Winvalid-pch"]


def definitions() -> str:
    """The files of csrc/core/definitions as C++ strings: `math_on_cpu.py` is kMathOnCpu."""
    text = "// Written by setup.py from csrc/core/definitions.\n#pragma once\n\n"
    text += "namespace jit_amp {\n\n"
    for source in sorted((ROOT / "csrc/core/definitions").glob("*.py")):
        name = "".join(part.capitalize() for part in source.stem.split("_"))
        lines = source.read_text(encoding="utf-8").splitlines()
        code = "\n".join(dropwhile(lambda line: line.startswith("#") or not line, lines))
        # In parts, because MSVC takes no longer ones.
        functions = re.split(r"\n(?=def )", code)
        strings = "\n".join(f'R"SCRIPT(\n{function})SCRIPT"' for function in functions)
        text += f'inline constexpr const char* k{name} = {strings}\nR"(\n)";\n\n'
    return text + "}  // namespace jit_amp\n"


def extension() -> Extension:
    sources = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "csrc").rglob("*.cpp"))
    if not os.environ.get("JIT_AMP_OLD_GLIBC"):  # scripts/wheels sets it
        sources.remove("csrc/old_glibc.cpp")
    if missing:
        return Extension("jit_amp._C", sources)
    compiler, linker = flags()
    return cpp_extension.CppExtension(
        "jit_amp._C",
        sources,
        depends=[str(p) for p in (ROOT / "csrc").rglob("*") if p.suffix in {".h", ".inc", ".py"}],
        extra_compile_args={"cxx": compiler},
        extra_link_args=linker,
    )


if not missing and sys.platform == "linux":
    # Newer releases of torch put ccache in front of the compiler themselves.
    os.environ.setdefault("CCACHE_SLOPPINESS", "pch_defines,time_macros")  # or it leaves these
    wraps = hasattr(cpp_extension, "_wrap_compiler")
    if shutil.which("ccache") and "CXX" not in os.environ and not wraps:
        os.environ["CXX"] = "ccache g++"

setup(ext_modules=[extension()], cmdclass={"build_ext": Build})
