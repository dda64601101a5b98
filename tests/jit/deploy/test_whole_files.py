"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp._base import whole_files
from jit_amp._cli import saving
from jit_amp._cli.main import main
from jit_amp._tune.resume import MeasuredFile

FULL = Path("/dev/full")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


@pytest.fixture(params=["without a name", "beside it"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of writing: the second is for systems without the first."""
    if request.param == "beside it":
        monkeypatch.setattr(whole_files, "_NAMELESS", 0)
    return str(request.param)


def test_an_older_file_stays_until_the_new_one_is_complete(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    with whole_files.written(path) as (part,):
        part.write(b"new")
        part.flush()
        assert path.read_text() == "old" and Path(part.path or "").read_text() == "new"
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["file"]


def test_a_new_file_has_the_mode_of_others(tmp_path: Path, kind: str) -> None:
    whole_files.write_text(tmp_path / "new", "text")
    (tmp_path / "other").write_text("text")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "other")}
    assert len(modes) == 1


def test_where_it_fails_nothing_is_left(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyError), whole_files.written(path, tmp_path / "second") as parts:
        for part in parts:
            part.write(b"new")
        raise KeyError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_a_link_stays_one(tmp_path: Path, kind: str) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to("folder/file")
    for text in ("first", "second"):
        whole_files.write_text(link, text)
        assert link.is_symlink() and (tmp_path / "folder/file").read_text() == text


def test_a_long_name(tmp_path: Path, kind: str) -> None:
    whole_files.write_text(tmp_path / ("n" * 255), "text")
    assert os.listdir(tmp_path) == ["n" * 255]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[str] = []
    thread = threading.Thread(target=lambda: read.append(path.read_text()))
    thread.start()
    whole_files.write_text(path, "text")
    thread.join()
    assert read == ["text"] and stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.skipif(not FULL.exists(), reason="Linux has it")
@pytest.mark.parametrize("is_lite", [False, True])
def test_a_full_disk_ends_no_process(is_lite: bool) -> None:
    frozen = jit_amp.freeze(Net().eval(), (torch.rand(2, 4),))
    with pytest.raises(OSError, match="could not be written") as raised:
        saving.save_module(frozen, FULL, is_lite=is_lite)
    assert raised.value.errno == errno.ENOSPC and raised.value.filename == str(FULL)


@pytest.mark.skipif(not FULL.exists(), reason="Linux has it")
def test_a_full_disk_ends_no_process_that_exports() -> None:
    program = jit_amp.export(Net().eval(), (torch.rand(2, 4),))
    with pytest.raises(OSError, match="could not be written"):
        saving.save_program(program, FULL)


@pytest.mark.filterwarnings("ignore:Lite Interpreter is deprecated")
def test_what_is_saved_is_as_pytorch_saves_it(tmp_path: Path) -> None:
    x = torch.rand(2, 4)
    frozen = jit_amp.freeze(Net().eval(), (x,))
    saving.save_module(frozen, tmp_path / "ours.pt")
    assert torch.equal(torch.jit.load(tmp_path / "ours.pt")(x), frozen(x))
    saving.save_module(frozen, tmp_path / "ours.ptl", is_lite=True)
    frozen._save_for_lite_interpreter(str(tmp_path / "theirs.ptl"))
    sizes = {(tmp_path / name).stat().st_size for name in ("ours.ptl", "theirs.ptl")}
    assert max(sizes) - min(sizes) < 1024  # names inside are the file's in PyTorch's


def test_a_file_that_does_not_load_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(*_: Any) -> Any:
        raise RuntimeError("expected Optional")

    (tmp_path / "written.py").write_text("import torch\nnet = torch.nn.Linear(4, 4)\n")
    monkeypatch.setattr(torch.jit, "load", load)
    output = tmp_path / "net.pt"
    output.write_text("old")
    assert main(["freeze", f"{tmp_path}/written.py:net", "-o", str(output)]) == 1
    said = capsys.readouterr().err.strip()
    assert "cannot load again" in said and "expected Optional" in said
    assert output.read_text() == "old"


@pytest.mark.skipif(not FULL.exists(), reason="Linux has it")
def test_tune_goes_on_where_what_it_measured_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "measured.json"
    file = MeasuredFile(path)
    file.begin({"model": "Net"})
    file.add(("first",), 0.5)
    before = path.read_text()

    def fails(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "it could not be written (No space left on device)", str(path))

    monkeypatch.setattr(whole_files, "write_text", fails)
    with pytest.warns(UserWarning, match="measured.json: it could not be written") as told:
        file.add(("second",), 0.25)
        file.add(("third",), 0.125)
    assert len(told) == 1 and file.known(("third",)) == 0.125 and path.read_text() == before


MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)
"""


def in_a_shell(folder: Path, arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "net.py").write_text(MODEL)
    return subprocess.run(
        ["sh", "-c", f"'{sys.executable}' -W ignore -m jit_amp {arguments}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(jit_amp.__file__).parents[1])},
        capture_output=True,
        text=True,
    )


@pytest.mark.skipif(not FULL.exists(), reason="Linux has it")
def test_a_full_standard_output_is_told(tmp_path: Path) -> None:
    done = in_a_shell(tmp_path, "explain net.py:Net --input 'float32[2,4]' >/dev/full")
    assert done.returncode == 1 and "standard output: it could not be written" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(os.name == "nt", reason="a shell's redirections")
def test_closed_streams(tmp_path: Path) -> None:
    """The file would be standard output, and what PyTorch tells there would be in it."""
    done = in_a_shell(tmp_path, "freeze net.py:Net --input 'float32[2,4]' -o net.pt >&- 2>&- <&-")
    assert done.returncode == 0
    assert torch.jit.load(tmp_path / "net.pt")(torch.rand(2, 4)).dtype is torch.bfloat16


@pytest.mark.skipif(os.name == "nt", reason="a shell's redirections")
def test_standard_output_is_written_to(tmp_path: Path) -> None:
    done = in_a_shell(
        tmp_path, "explain net.py:Net --html /dev/stdout --input 'float32[2,4]' | cat"
    )
    assert done.returncode == 0 and "<html" in done.stdout
