"""The source tree: what may include and import what."""

from __future__ import annotations

import ast
import graphlib
import itertools
import re
from pathlib import Path

import pytest

import jit_amp
from jit_amp import _C

CSRC = Path(__file__).parents[2] / "csrc"
LAYERS = ("old_glibc.cpp", "core", "analysis", "passes", "pipelines", "runtime", "bindings.cpp")
"""Each may include itself and those before it."""

FILES = sorted(p.relative_to(CSRC) for p in CSRC.rglob("*") if p.suffix in (".h", ".cpp"))


def includes(file: Path) -> list[Path]:
    return [Path(name) for name in re.findall(r'#include "([^"]+)"', (CSRC / file).read_text())]


GENERATED = Path("definitions.inc")
"""Of the files in core/definitions, by setup.py."""


def layer(file: Path) -> int:
    return LAYERS.index(file.parts[0])


def test_no_file_includes_a_layer_above_its_own() -> None:
    files = [file for file in FILES if file.parts[0] != "precompiled.h"]
    upward = [
        f"{file} includes {other}"
        for file in files
        for other in includes(file)
        if other != GENERATED and layer(other) > layer(file)
    ]
    assert not upward, "\n".join(upward)


@pytest.mark.parametrize("file", [f for f in FILES if f.suffix == ".cpp"], ids=str)
def test_a_file_has_its_own_header_first(file: Path) -> None:
    if file.with_suffix(".h") in FILES:
        assert includes(file)[0] == file.with_suffix(".h")


@pytest.mark.parametrize(
    "file",
    [f for f in FILES if f.suffix == ".h" and f.parts[0] != "precompiled.h"],
    ids=str,
)
def test_a_header_says_first_what_it_is_for(file: Path) -> None:
    text = (CSRC / file).read_text()
    assert text.startswith(f"// {file.stem}: " if file.parts[0] == "passes" else "// ")


def test_no_string_is_longer_than_msvc_takes() -> None:
    for file in FILES:
        for text in re.findall(r'R"(\w*)\((.*?)\)\1"', (CSRC / file).read_text(), re.DOTALL):
            assert len(text[1].encode()) < 16_380, file
    for file in (CSRC / "core/definitions").glob("*.py"):  # setup.py makes one of each function
        for function in file.read_text().split("\ndef "):
            assert len(function.encode()) < 16_380, file


PASSES = {file.stem: file for file in FILES if file.parts[0] == "passes"}
ROWS = [(table, *row) for table, _, rows in _C.pipelines() for row in rows]
ROOMS = {"source", "lowering", "freeze", "quirks", "server"}
CALLED = {"wrap", "widen", "cast_tensors", "restore_trace", "specialize"}
"""What stands in no pipeline, because it is called where its input is made."""


def test_a_pass_is_in_a_file_of_its_name() -> None:
    """PyTorch's log finds passes by their files. What else the pipelines have says where it is
    from: PyTorch, an analysis, the core."""
    summaries = {name: folder for folder, name, _ in _C.passes()}
    named = {name: file.parent.relative_to("passes").as_posix() for name, file in PASSES.items()}
    elsewhere = {
        n for n, f in summaries.items() if f in ("core", "analysis", "pipelines", "PyTorch")
    }
    assert {name: f for name, f in summaries.items() if name not in elsewhere} == named
    assert {name for _, name, *_ in ROWS} == set(summaries) - CALLED


def test_a_pipeline_takes_what_the_one_before_it_gives() -> None:
    for _, _, rows in _C.pipelines():
        assert all(row[1] == before[2] for before, row in itertools.pairwise(rows))


def test_each_pass_has_a_room() -> None:
    """Quirks stand by the part of PyTorch that they are about."""
    assert {file.parts[1] for file in PASSES.values()} == ROOMS
    assert all(len(f.parts) == (4 if f.parts[1] == "quirks" else 3) for f in PASSES.values())


def test_the_tables_and_the_rooms_agree() -> None:
    """What mends a pass of PyTorch's is a row of that kind; what only servers get is for them."""
    ours = [row for row in ROWS if row[1] in PASSES]
    room = {name: file.parts[1] for name, file in PASSES.items()}
    assert {name for _, name, _, _, kind, *_ in ours if kind == "quirk"} == {
        name for _, name, *_ in ours if room[name] == "quirks"
    } | {"for_interpreter"}  # the interpreter's order
    for_servers = {name for _, name, _, _, _, targets, _ in ours if targets == "servers"}
    assert for_servers == {name for _, name, *_ in ours if room[name] == "server"}


def test_each_pass_has_tests_of_its_own() -> None:
    tests = {file.stem for file in (Path(__file__).parent / "passes").glob("test_*.py")}
    assert {f"test_{name}" for name in PASSES} <= tests


def test_what_is_known_of_operators_stands_in_one_table() -> None:
    """No pass and no analysis has a list of operators' names: csrc/analysis/traits.inc has."""
    lists = re.compile(
        r"(?:unordered_set|set|array|vector)(?:<[\w:]+>)?\s*\w*\{\s*(?:\"|aten::|Symbol::aten)"
    )
    found = [
        str(file) for file in FILES if file.parts[0] in ("analysis", "passes")
        and lists.search((CSRC / file).read_text())
    ]  # fmt: skip
    assert not found


PACKAGE = Path(jit_amp.__file__).parent
FLOORS = (
    ("_C", "_version"),
    ("_base",),
    ("policy",),
    ("_precision", "_source"),
    ("_script",),
    ("_runs",),
    ("_freeze",),
    ("_install",),
    ("_explain", "_tune"),
    ("_export",),
    ("jit_amp",),
    ("_cli",),
    ("__main__",),
)
"""Rooms of the package in Python. Each may import itself and what stands before it, but not its
neighbours on the same floor; ``jit_amp`` is the package, which has the public names."""
PYTHON = sorted(p.relative_to(PACKAGE) for p in PACKAGE.rglob("*.py"))
MOST_LINES = 400


def module_of(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "jit_amp"


def imports(file: Path) -> set[str]:
    """The modules of the package that a file imports, also inside of functions."""
    modules = {module_of(each) for each in PYTHON} | {"_C"}
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / file).read_text())):
        if isinstance(node, ast.Import) and any(a.name == "jit_amp" for a in node.names):
            found.add("jit_amp")
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "jit_amp":
            package = (node.module or "").removeprefix("jit_amp").lstrip(".")
            for name in node.names:
                inside = f"{package}.{name.name}".lstrip(".")
                found.add(inside if inside in modules else package)
    return found - {module_of(file), ""}


def floor(module: str) -> int:
    room = module.partition(".")[0]
    return next(i for i, rooms in enumerate(FLOORS) if room in rooms)


def test_no_python_file_imports_a_room_above_its_own_or_beside_it() -> None:
    wrong = [
        f"{file} imports {other}"
        for file in PYTHON
        for other in imports(file)
        if floor(other) > floor(module_of(file))
        or (
            floor(other) == floor(module_of(file))
            and other.partition(".")[0] != module_of(file).partition(".")[0]
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_no_python_files_import_one_another_in_a_circle() -> None:
    # A package is what its own files import for their side, and is left out.
    files = [file for file in PYTHON if file.name != "__init__.py"]
    graph = {module_of(file): imports(file) for file in files}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("file", PYTHON, ids=str)
def test_a_python_file_says_what_it_is_for_and_is_short(file: Path) -> None:
    """Or says why it is not."""
    text = (PACKAGE / file).read_text()
    said = ast.get_docstring(ast.parse(text)) or ""
    assert said or not text
    assert len(text.splitlines()) <= MOST_LINES or "In one piece: " in said
