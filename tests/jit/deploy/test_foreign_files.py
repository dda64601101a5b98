"""Files that somebody else made: what is opened because of them, and what is shown of them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pickle
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp._base import source_lines
from jit_amp._base.printable import printable, printable_lines
from jit_amp._cli.main import main

from ..support import imported

SOURCE = """
import torch
from torch import Tensor


class Net(torch.nn.Module):
    def forward(self, x: Tensor):
        x = x + 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x
"""
X = torch.ones(2, 2)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


def saved(tmp_path: Path) -> bytes:
    module = imported(SOURCE, tmp_path / "net.py").Net()
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module), file)
    return file.getvalue()


def changed(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The file with other debug information."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            held = old.read(name)
            new.writestr(name, change(held) if name.endswith(".debug_pkl") else held)
    return made.getvalue()


def named(data: bytes, old: Path, name: bytes) -> bytes:
    """The file whose debug information names another source."""

    def change(held: bytes) -> bytes:
        text = os.fsencode(old)
        was = b"X" + len(text).to_bytes(4, "little") + text
        return held.replace(was, b"X" + len(name).to_bytes(4, "little") + name)

    return changed(data, change)


def loaded(data: bytes) -> Any:
    return torch.jit.load(io.BytesIO(data))


def all_shown(report: jit_amp.Report, folder: Path) -> str:
    page = folder / "page.html"
    report.to_html(page)
    return report.to_text(all=True, width=300) + report.to_json() + page.read_text()


def test_the_text_is_that_which_was_saved(tmp_path: Path) -> None:
    """Lines were added above since."""
    data = saved(tmp_path)
    (tmp_path / "net.py").write_text("# another line\n" * 3 + SOURCE)
    report = jit_amp.explain(loaded(data), (X,))
    assert [row.line.text for row in report.rows] == ["x = x + 1", "return x @ x"]
    shown = all_shown(report, tmp_path)
    assert "another line" not in shown
    assert "import torch" not in shown  # what is outside of the function is not in the file


def test_the_bars_of_scopes_are_those_of_the_saved_text(tmp_path: Path) -> None:
    report = jit_amp.explain(loaded(saved(tmp_path)), (X,))
    report.to_html(tmp_path / "page.html")
    bars = re.findall(
        r'class="no">(\d+)</span>\s*<span class="bars"><span', (tmp_path / "page.html").read_text()
    )
    assert bars == ["9", "10"]


def test_a_trace_of_this_process_has_its_lines_and_a_loaded_one_has_none(tmp_path: Path) -> None:
    traced = jit_amp.trace(Net().eval(), (X,))
    line = "return self.linear(x)"
    assert line in [place.text for row in jit_amp.explain(traced, (X,)).rows for place in row.stack]
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(Net().eval(), X, check_trace=False), file)
    report = jit_amp.explain(loaded(file.getvalue()), (X,))
    assert not any(place.text for row in report.rows for place in row.stack)
    assert line not in all_shown(report, tmp_path)


@pytest.mark.parametrize("name", ["secret.py", "pipe", "/etc/passwd", "/dev/zero", "../../x", ""])
def test_no_other_file_is_opened(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = saved(tmp_path)
    (tmp_path / "secret.py").write_text("password = 'hunter2'\n" * 30)
    os.mkfifo(tmp_path / "pipe")
    path = name if name.startswith(("/", ".")) or not name else str(tmp_path / name)
    opened: list[Any] = []
    monkeypatch.setattr("linecache.updatecache", lambda *args: opened.append(args) or [])
    data = named(data, tmp_path / "net.py", path.encode())
    shown = all_shown(jit_amp.explain(loaded(data), (X,)), tmp_path)
    assert "hunter2" not in shown and "root:" not in shown
    assert "return x @ x" in shown
    assert not [args for args in opened if args[0] == path]


@pytest.mark.parametrize(
    "name",
    [
        b"\x1b]0;owned\x07\x1b[2Jnet.py",
        "\u202enet\u2066.py".encode(),
        b"a\nb\tc.py",
        "\u2028".encode(),
    ],
)
def test_what_moves_a_cursor_is_escaped(name: bytes, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "net.pt"
    path.write_bytes(named(saved(tmp_path), tmp_path / "net.py", name))
    assert main(["explain", str(path), "--input", "float32[2,2]", "--all"]) == 0
    told = capsys.readouterr()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u2028\u202e\u2066]", told.out + told.err)
    assert "\\" in told.out
    page = tmp_path / "page.html"
    jit_amp.explain(torch.jit.load(path), (X,)).to_html(page)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u2028\u202e\u2066]", page.read_text())


def test_a_refusal_shows_names_escaped(tmp_path: Path) -> None:
    source = SOURCE.replace("x: Tensor", "x: Tensor, on: bool").replace(
        "bfloat16", "bfloat16, enabled=on"
    )
    module = imported(source, tmp_path / "net.py").Net()
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module), file)
    data = named(file.getvalue(), tmp_path / "net.py", b"\x1b[2Ja\nb.py")
    with pytest.raises(
        jit_amp.AutocastError, match=re.escape(r'"\x1b[2Ja\x0ab.py", line 9')
    ) as caught:
        jit_amp.freeze(loaded(data).eval())
    assert "\x1b" not in str(caught.value)


DAMAGES = {
    "an index beyond the table of texts": lambda data: data.replace(b"K\x04", b"K\x7f"),
    "no text": lambda data: data.replace(b"autocast", b"\xff\xfe\xff\xfeaut"[:8]),
    "a memo that takes all memory": lambda data: data.replace(b"q\x01", b"r\xff\xff\xff\x7f"),
    "tuples that take all of the stack": lambda data: b"\x80\x02)" + b"\x85" * 10**6 + b".",
    "an empty piece of a text": lambda data: data.replace(b"(K\x01K\x02", b"(K\x00K\x02"),
    "cut off": lambda data: data[: len(data) // 2],
    "nothing": lambda data: b"",
    "another object": lambda data: pickle.dumps(("FORMAT_WITH_STRING_TABLE",), 2),
    "no table": lambda data: pickle.dumps((1, "a", ()), 2),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_debug_information_is_none(damage: str, tmp_path: Path, capsys: Any) -> None:
    """PyTorch raises where it reads the first kinds, or crashes."""
    whole = loaded(saved(tmp_path))
    data = changed(saved(tmp_path), DAMAGES[damage])
    report = jit_amp.explain(loaded(data), (X,))
    assert [row.operator for row in report.rows] == ["aten::add.Scalar", "aten::matmul"]
    assert report.rows[-1].line.file.startswith("code/")
    all_shown(report, tmp_path)
    with torch.no_grad():
        assert torch.equal(jit_amp.script(loaded(data))(X), jit_amp.script(whole)(X))
        frozen = jit_amp.freeze(loaded(data).eval(), example_inputs=(X,))
        assert torch.equal(frozen(X), jit_amp.freeze(whole.eval(), example_inputs=(X,))(X))
    path, out = tmp_path / "damaged.pt", tmp_path / "out.pt"
    path.write_bytes(data)
    assert main(["freeze", str(path), "--input", "float32[2,2]", "-o", str(out)]) == 0
    assert main(["verify", str(path), str(path), "--input", "float32[2,2]"]) in (0, 1)
    assert "outputs agree" in capsys.readouterr().out
    assert torch.equal(torch.jit.load(out)(X), frozen(X))


def test_a_file_that_is_no_model_is_told_in_a_sentence(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "net.pt"
    for data in (b"", b"PK\x03\x04", b"\xff" * 100, saved(tmp_path)[:-30]):
        path.write_bytes(data)
        assert main(["explain", str(path), "--input", "float32[2,2]"]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"jit-amp: {path}: no TorchScript file") and told.count("\n") == 1


# Which files are opened at all.


def test_only_files_that_python_imports_from_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "net.py").write_text("x = 1\n")
        (folder / "secret.txt").write_text("hunter2\n")
    (inside / "linked.py").symlink_to(outside / "net.py")
    (inside / "folder.py").mkdir()
    os.mkfifo(inside / "pipe.py")
    monkeypatch.syspath_prepend(str(inside))
    monkeypatch.chdir(tmp_path)
    opened = [
        name
        for name in (
            *("inside/net.py", f"{inside}/net.py", "inside/../inside/net.py"),
            *("net.py", "outside/net.py", "inside/../outside/net.py", "inside/linked.py"),
            *("inside/secret.txt", "inside/folder.py", "inside/pipe.py", "inside/no.py"),
            *("/dev/zero", "/etc/passwd", "<stdin>", "", "a\0b", "a" * 10_000, "../" * 3000),
        )
        if source_lines.lines(name)
    ]
    assert opened == ["inside/net.py", f"{inside}/net.py", "inside/../inside/net.py"]
    assert source_lines.line("inside/net.py", 1) == "x = 1"
    assert source_lines.line("inside/net.py", 0) == source_lines.line("inside/net.py", 2) == ""


def test_what_python_has_read_and_imported_is_known(tmp_path: Path) -> None:
    """A module from outside of sys.path, whose lines Python's own tracebacks show."""
    module = imported(SOURCE, tmp_path / "net.py")
    report = jit_amp.explain(module.Net(), (X,))
    assert [row.line.text for row in report.rows] == ["x = x + 1", "return x @ x"]
    assert torch.__file__ in {m.__file__ for m in [sys.modules["torch"]]}
    assert source_lines.lines(torch.__file__)


def test_printable() -> None:
    assert printable("a é 漢 🙂 \\x1b") == "a é 漢 🙂 \\x1b"
    assert printable("\x1b\x00\x7f\x85\u202e\u200b\ufeff\U000e0041\n\t") == (
        r"\x1b\x00\x7f\x85\u202e\u200b\ufeff\U000e0041\x0a\x09"
    )
    assert printable_lines("a\n\tb\r") == "a\n\tb\\x0d"
    assert printable("\udcff") == r"\udcff"


# JSON.


def report_json() -> dict[str, Any]:
    return json.loads(jit_amp.explain(Net().eval(), (X,)).to_json())  # type: ignore[no-any-return]


def precision_json(**changes: Any) -> str:
    found = jit_amp.tune(Net().eval(), (X,), dtype=torch.bfloat16, tolerance=1e-9)
    return json.dumps({**json.loads(found.to_json()), **changes})


def test_a_report_of_json_shows_its_own_text(tmp_path: Path) -> None:
    made = report_json()
    (tmp_path / "secret.py").write_text("hunter2\n" * 30)
    for row in made["rows"]:
        for place in (*row["stack"], row["place"]):
            place |= {"file": str(tmp_path / "secret.py"), "text": "<b>\x1b[2J\u202e"}
    report = jit_amp.Report.from_json(json.dumps(made))
    shown = all_shown(report, tmp_path)
    assert "hunter2" not in shown and "<b>" not in (tmp_path / "page.html").read_text()
    assert "\x1b" not in shown and "\u202e" not in shown
    assert jit_amp.Report.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("where", "value", "told"),
    [
        (("rows", 0, "operands", 1), 3, r"rows\[0\].operands\[1\]: 3 is not a text"),
        (("rows", 0, "calls"), 1.5, r"rows\[0\].calls: 1.5 is not a whole number"),
        (("rows", 0, "calls"), True, "rows.*true is not a whole number"),
        (("rows", 0, "seconds"), "Infinity", "seconds: 'Infinity' is not a finite number"),
        (("rows", 0, "place", "line"), 10**30, "line: 1000.* is not a whole number"),
        (("rows", 0, "numerics"), [], r"rows\[0\].numerics: \[\] is not an object"),
        (("rows",), None, "rows: null is not a list"),
        (("warnings",), ["a", {}], r"warnings\[1\]: {} is not a text"),
    ],
)
def test_a_report_is_checked(where: tuple[Any, ...], value: Any, told: str) -> None:
    made: Any = report_json()
    inside = made
    for each in where[:-1]:
        inside = inside[each]
    inside[where[-1]] = value
    with pytest.raises(ValueError, match=told):
        jit_amp.Report.from_json(json.dumps(made))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "modules"}, "kind: 'modules' is not one of module, function, line"),
        ({"dtype": "float"}, "dtype: 'float' is not one of bfloat16, float16"),
        ({"device_type": "gpu"}, "device_type: 'gpu' is not a device type"),
        ({"device_type": 1}, "device_type: 1 is not a text"),
        ({"units": "a"}, "units: 'a' is not a list"),
        ({"units": ["a", 1]}, r"units\[1\]: 1 is not a text"),
        ({"kind": "line", "units": ["a.py:b"]}, r"units\[0\]: 'a.py:b' is not a file and"),
        ({"around": "no"}, "around: 'no' is not true or false"),
        ({"error": -1}, "error: -1 is not a number that is not negative"),
        ({"tolerance": "NaN"}, "tolerance: 'NaN' is not a finite number"),
        ({"more": 1}, "more: there is no such attribute"),
        ({"kept": [{"unit": "a"}]}, r"kept\[0\].why: it is missing"),
    ],
)
def test_a_precision_is_checked(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    path = tmp_path / "precision.json"
    path.write_text(precision_json(**changes))
    with pytest.raises(ValueError, match=told):
        jit_amp.Precision.from_json(path.read_text())
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: .*{told}"):
        jit_amp.script(Net(), precision=path)


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, "{", "", "[]", "null"])
def test_texts_that_are_no_such_json(text: str) -> None:
    for read in (jit_amp.Precision.from_json, jit_amp.Report.from_json):
        with pytest.raises(ValueError, match="from_json"):
            read(text)


def test_a_precision_opens_no_other_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("hunter2 = 1\n" * 9)
    line = {"file": str(secret), "line": 2, "units": [""], "stays": True}
    found = jit_amp.Precision.from_json(precision_json(lines=[line], name="\x1b[2J"))
    found.to_html(tmp_path / "page.html")
    assert "hunter2" not in (tmp_path / "page.html").read_text()
    assert "\x1b" not in str(found)
    text = precision_json(kind="line", units=[f"{secret}:2"], lines=[line])
    with pytest.raises(ValueError):
        jit_amp.Precision.from_json(text).to_code(Net())


@pytest.mark.parametrize(
    "measured",
    ["[]", '{"of": 1, "measured": []}', '{"of": {}, "measured": [[["a"], "b"]]}', "[" * 100_000],
)
def test_what_is_resumed_is_checked(measured: str, tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    path.write_text(measured)
    with pytest.raises(ValueError, match=r"no file of jit_amp\.tune's"):
        jit_amp.tune(Net().eval(), (X,), dtype=torch.bfloat16, tolerance=1e-9, resume=path)


def test_inputs_are_checked(tmp_path: Path, capsys: Any) -> None:
    model, path = tmp_path / "net.pt", tmp_path / "inputs.pt"
    model.write_bytes(saved(tmp_path))
    deep: Any = X
    for _ in range(100):
        deep = [deep]
    itself: list[Any] = []
    itself += [itself, itself]
    for value, told in (
        ((X, [torch.ones(2, device="meta")]), "[1][0] is a tensor without values"),
        (deep, "nested too deeply"),
        (itself, "nested too deeply, or in itself"),
    ):
        torch.save(value, path)
        assert main(["explain", str(model), "--input", str(path), "--device", "cpu"]) == 2
        assert told in capsys.readouterr().err
    for text in ("[" * 100_000, "1" * 5000):
        assert main(["explain", str(model), "--input", text]) == 2
        assert "Traceback" not in capsys.readouterr().err


# Pages.


def pages(folder: Path) -> list[str]:
    report = jit_amp.explain(Net().eval(), (X,))
    report.to_html(folder / "report.html")
    report.compare(report).to_html(folder / "compared.html")
    jit_amp.Precision.from_json(precision_json()).to_html(folder / "precision.html")
    return [(folder / f"{name}.html").read_text() for name in ("report", "compared", "precision")]


def test_a_page_says_that_nothing_is_fetched(tmp_path: Path) -> None:
    for page in pages(tmp_path):
        [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
        assert "default-src 'none'" in policy and "form-action 'none'" in policy
        [script] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}';" in policy
        assert page.index("Content-Security-Policy") < page.index("<style")
        assert not re.search(r"\son\w+=", page)  # handlers in attributes, which it forbids
        assert not re.search(r"(src|href)=\"(?!#|data:)", page)
