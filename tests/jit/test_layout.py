"""The source tree: what may include and import what."""

from __future__ import annotations

import ast
import graphlib
import re
from pathlib import Path

import pytest

import jit_amp

CSRC = Path(__file__).parents[2] / "csrc"
LAYERS = ("old_glibc.cpp", "core", "analysis", "passes", "pipelines", "runtime", "bindings.cpp")
"""Each may include itself and those before it."""

FILES = sorted(p.relative_to(CSRC) for p in CSRC.rglob("*") if p.suffix in (".h", ".cpp"))


def includes(file: Path) -> list[Path]:
    return [Path(name) for name in re.findall(r'#include "([^"]+)"', (CSRC / file).read_text())]


def layer(file: Path) -> int:
    return LAYERS.index(file.parts[0])


def test_no_file_includes_a_layer_above_its_own() -> None:
    files = [file for file in FILES if file.parts[0] != "precompiled.h"]
    upward = [
        f"{file} includes {other}"
        for file in files
        for other in includes(file)
        if layer(other) > layer(file)
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


def test_a_pass_is_in_a_file_of_its_name() -> None:
    """The tables name passes by their files, so that PyTorch's log finds them; PyTorch's own
    passes, and an analysis, have their own names."""
    tables = "".join((CSRC / f).read_text() for f in FILES if f.parts[0] == "pipelines")
    names = set(re.findall(r'\{"(\w+)", run[_<]', tables))
    elsewhere = {
        "inputs",  # analysis
        "mark_loops", "unmark_loops",  # core/loops
        "constant_propagation", "remove_list_mutation", "optimize_frozen_graph",  # PyTorch's
    }  # fmt: skip
    assert names >= {"flatten", "lower", "legalize"}
    passes = {file.stem for file in FILES if file.parts[0] == "passes"}
    assert names - passes == elsewhere


ROOMS = {"source", "lowering", "freeze", "quirks", "server"}


def test_each_pass_has_a_room() -> None:
    rooms = {file.parts[1] for file in FILES if file.parts[0] == "passes"}
    assert rooms == ROOMS
    assert all(len(file.parts) == 3 for file in FILES if file.parts[0] == "passes")


def test_the_tables_and_the_rooms_agree() -> None:
    """What mends a pass of PyTorch's is a row of that kind; what only servers get is for them."""
    rows = re.findall(
        r'\{"(\w+)", run[\w<>:]+, [^{}]*?(?:Kind::(\w+))?(?:,\s+For::(\w+))?(?:,\s+Reads::\w+)?\}',
        "".join((CSRC / f).read_text() for f in FILES if f.parts[0] == "pipelines"),
    )
    room = {file.stem: file.parts[1] for file in FILES if file.parts[0] == "passes"}
    kinds = {name: kind or "meaning" for name, kind, _ in rows if name in room}
    assert len(rows) > 30
    assert {name for name, kind in kinds.items() if kind == "quirk"} == {
        name for name in kinds if room[name] == "quirks"
    } | {"for_interpreter"}  # the interpreter's order
    artefacts = {name: whom or "all" for name, _, whom in rows if name in room}
    for_servers = {name for name, whom in artefacts.items() if whom == "servers"}
    assert for_servers == {name for name in artefacts if room[name] == "server"}


def test_each_pass_has_tests_of_its_own() -> None:
    passes = {file.stem for file in FILES if file.parts[0] == "passes"}
    tests = {file.stem for file in (Path(__file__).parent / "passes").glob("test_*.py")}
    assert {f"test_{name}" for name in passes} <= tests


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
