"""Every example of the README, of docs and of examples runs, and prints what is shown there.

The rules, for those who write a page:

- The blocks tagged ``python`` run in their order, as one program in an empty folder. One that
  begins with the comment ``# net.py`` is a file of that name, written before the program runs.
- The blocks tagged ``bash`` whose commands are all ``jit-amp`` run after the program.
- A block tagged ``text`` right below one of these is what it prints; ``...`` stands for anything.
- An example that is not to be run is tagged ``py``.
"""

from __future__ import annotations

import ast
import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from pages import section

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
ELSEWHERE = {"engines"}  # tests/jit/deploy/test_engines.py runs it, where the engines are installed
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"# (\w+\.py)\n")
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
END_OF_BLOCK = "--- end of a block ---"
# What a user sees of PyTorch's deprecation of TorchScript; any other warning is an error.
WARNINGS = [
    "error",
    "ignore:`torch.jit.",
    "ignore:Lite Interpreter is deprecated",
    # torch.export.load of torch 2.11 reads what it may not write to.
    "ignore:The given buffer is not writable",
]


@dataclass
class Block:
    language: str
    title: str
    text: str
    line: int
    expected: str | None = None  # what the page says that it prints


def blocks_of(page: str) -> list[Block]:
    found: list[Block] = []
    end = -1
    broken = re.findall(r"^```\w* .*$", page, re.MULTILINE)
    assert not broken, "code on the line of the language"
    for match in FENCE.finditer(page):
        language, text = match.groups()
        if language == "text" and found and not page[end : match.start()].strip():
            found[-1].expected = text
            assert not found[-1].title, f"the file {found[-1].title} prints nothing"
        title = TITLE.match(text)
        line = page.count("\n", 0, match.start()) + 1
        found.append(Block(language, title[1] if title else "", text, line))
        end = match.end()
    return found


def is_commands(block: Block) -> bool:
    commands = block.text.replace("\\\n", " ").strip().splitlines()
    return block.language == "bash" and all(line.startswith("jit-amp ") for line in commands)


ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "PYTHONWARNINGS": ",".join(WARNINGS),
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "100",
}


def run(command: list[str], folder: Path) -> str:
    ran = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def assert_printed(page: Path, block: Block, printed: str) -> None:
    if block.expected is not None:
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        shown = f"{page.name}, line {block.line}, prints:\n{printed}\nand the page says:\n"
        same = doctest.OutputChecker().check_output(block.expected, printed, options)
        assert same, shown + block.expected


def has_examples(page: Path) -> bool:
    return any(
        each.language == "python" or is_commands(each) for each in blocks_of(page.read_text())
    )


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if has_examples(page) and page.stem not in ELSEWHERE],
    ids=lambda page: page.stem,
)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    blocks = blocks_of(page.read_text())
    program = []
    for block in blocks:
        if block.language == "python" and block.title:
            (tmp_path / block.title).write_text(block.text)
        elif block.language == "python":
            program.append(block)
    if program:
        # Errors tell the page's own lines.
        source = ""
        for block in program:
            source += "\n" * (block.line - source.count("\n")) + block.text
            source += f"print({END_OF_BLOCK!r})\n"
        (tmp_path / "page.py").write_text(source)
        printed = run([sys.executable, "page.py"], tmp_path).split(END_OF_BLOCK + "\n")
        for block, text in zip(program, printed, strict=False):
            assert_printed(page, block, text)
    for block in filter(is_commands, blocks):
        commands = block.text.replace("jit-amp ", f"{shlex.quote(sys.executable)} -m jit_amp ")
        assert_printed(page, block, run(["bash", "-e", "-c", commands], tmp_path))


def test_the_first_example_is_a_file_and_prints_what_the_readme_shows(tmp_path: Path) -> None:
    lines, printed, source = blocks_of((ROOT / "README.md").read_text())[:3]
    example = ROOT / "examples/first.py"
    assert "examples/first.py" in lines.text and source.text == example.read_text()
    assert_printed(ROOT / "README.md", lines, run([sys.executable, str(example)], tmp_path))
    assert lines.expected == printed.text


@pytest.mark.parametrize(
    "example",
    [each for each in sorted((ROOT / "examples").glob("*.py")) if each.stem != "first"],
    ids=lambda example: example.stem,
)
def test_an_example_prints_what_its_doc_string_says(example: Path, tmp_path: Path) -> None:
    said = ast.get_docstring(ast.parse(example.read_text()))
    assert said is not None
    title, _, expected = said.partition("It prints:\n\n")
    assert title
    assert run([sys.executable, str(example)], tmp_path) == expected + "\n"


@pytest.mark.skipif(torch.version.cuda is not None, reason="PyTorch's CMake files ask for nvcc")
def test_the_server_of_the_examples_answers_as_its_page_says(tmp_path: Path) -> None:
    """A program of the user's own in C++, built as PyTorch's pages tell."""
    folder = ROOT / "examples" / "server"
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    [commands] = blocks_of((folder / "README.md").read_text())[:1]
    beside = {**ENVIRONMENT, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-e", "-c", commands.text],
        cwd=tmp_path,
        env=beside,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert_printed(folder / "README.md", commands, ran.stdout)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem
)
def test_links_from_outside_the_pages_lead_somewhere(page: Path) -> None:
    """Those between the pages are checked by scripts/docs."""
    for target, anchor in LINK.findall(page.read_text()):
        file = ROOT / target if target else page
        assert file.is_file(), target
        if anchor:
            assert section(file, anchor), f"{target}#{anchor}"


def test_the_tables_of_internals_are_what_stands_in_csrc() -> None:
    assert subprocess.run([sys.executable, ROOT / "scripts/internals", "--check"]).returncode == 0


def test_a_page_is_read_as_its_rules_say() -> None:
    page = "```python\n# net.py\na = 1\n```\n\n```python\nprint(2)\n```\n\n```text\n2\n```\n"
    page += "```bash\njit-amp lower net.py\n```\n```bash\npip install x\n```\n"
    net, program, text, command, other = blocks_of(page)
    assert (net.title, net.text, net.expected) == ("net.py", "# net.py\na = 1\n", None)
    assert (program.title, program.expected, program.line) == ("", "2\n", 6)
    assert (text.language, is_commands(command), is_commands(other)) == ("text", True, False)
