"""What a precision is written as: a diff, a page, and files of the command line."""

from __future__ import annotations

import dataclasses
import importlib
import json
import linecache
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import jit_amp
from jit_amp.__main__ import main
from jit_amp._tune.metrics import relative_error as tune_error

from ..deploy.test_explain import browser_at, find, requests_of
from .test_apply import precision

MODEL = '''"""A model."""

from typing import Tuple

import torch
from torch import Tensor, nn


def scores(q: Tensor, k: Tensor):
    return (q * 300.0) @ (
        k * 300.0
    ).transpose(-2, -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x: Tensor):
        q, k, v = self.qkv(x).chunk(3, -1)
        return torch.softmax(scores(q, k) / 90000.0, -1) @ v


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(16, 16), Attention(), nn.Linear(16, 16))
        self.heads = nn.ModuleDict({"a": nn.Linear(16, 4)})

    def forward(self, x: Tensor):
        return self.heads["a"](self.blocks(x))


def make():
    torch.manual_seed(0)
    return Net()


def loader():
    torch.manual_seed(1)
    return [(torch.randn(2, 6, 16), torch.zeros(2)) for _ in range(2)]


def worst(outputs, reference):
    return (outputs - reference).abs().max()
'''


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The module's name, another one in each test: it lies in the working directory."""
    made = "written_" + "".join(c if c.isalnum() else "_" for c in request.node.name)
    (tmp_path / f"{made}.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return made


UNITS = {
    "module": "blocks.1",
    "function": "{}.py:scores",
    "line": "{}.py:10",
}


@pytest.mark.parametrize("units", [*UNITS])
def test_the_diff(units: str, name: str, tmp_path: Path) -> None:
    """`patch` applies it, and the model then does by itself what the precision says."""
    module = importlib.import_module(name)
    net, x = module.make().eval(), module.loader()[0][0]
    result = jit_amp.tune(net, (x,), dtype=torch.float16, units=units)
    assert result.units == (UNITS[units].format(name),)
    with torch.no_grad():
        expected = result.apply(net)(x)
    diff = result.to_code(net)
    subprocess.run(["patch", "-p0"], input=diff, text=True, check=True, cwd=tmp_path)
    program = (
        f"import torch, {name}, jit_amp\nnet, x = {name}.make().eval(), {name}.loader()[0][0]\n"
        "with torch.no_grad(), torch.autocast('cpu', dtype=torch.float16):\n"
        "    eager = net(x)\n"
        "scripted = jit_amp.script(net, autocast=torch.autocast('cpu', dtype=torch.float16))\n"
        "with torch.no_grad():\n"
        "    assert torch.equal(scripted(x), eager)\n"
        "torch.save(eager, 'y.pt')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
    made = torch.load(tmp_path / "y.pt")
    if units == "line":  # the diff is of the whole statement, whose other lines run in float32 too
        assert tune_error(made, expected) <= result.tolerance
    else:
        assert torch.equal(made, expected)
    assert jit_amp.tune(net, (x,), dtype=torch.bfloat16).to_code(net) == ""


HEAD = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        h = self.a(x) * 300
"""
WRITTEN = {
    "an attribute": ("line", "self.h = h\n[y = torch.mm(self.h, self.h.t())\nreturn y / 1e6"),
    "a subscript": ("line", "hs = [h]\n[y = torch.mm(hs[0], hs[-1].t())\nreturn y / 1e6"),
    "a dtype": ("line", "[y = torch.mm(h, h.T).div(1e6).to(h.dtype)\nreturn y"),
    "a comprehension": (
        "line",
        "[y = [torch.mm(each, each.t()) for each in (h,)]\nreturn y[0] / 1e6",
    ),
    "a text": ("line", '[y, t = torch.mm(h, h.t()), """a\nb"""\nreturn y / 1e6 + t.count(" ")'),
    "what is written to": (
        "line",
        "o = torch.zeros(4, 4)\n[o[:] = torch.mm(h, h.t())\nreturn o / 1e6",
    ),
    "a method": (
        "line",
        "[return self.dot(h) * 1e-6\n\ndef dot(self, q):\n    return torch.mm(q, q.t())",
    ),
    "the function of a comprehension": (
        "function",
        "ys = [torch.mm(h, h.t()) for _ in range(2)]\nreturn ys[0] / 1e6",
    ),
    "a static method": (
        "function",
        "return self.dot(h) / 1e6\n\n@staticmethod\ndef dot(q):\n    return torch.mm(q, q.t())",
    ),
    "a property": (
        "function",
        "self.q = h\nreturn self.dot / 1e6\n\n@property\ndef dot(self):\n"
        "    return torch.mm(self.q, self.q.t())",
    ),
}
REFUSED = {
    "while": (
        "n = 0\n[while torch.mm(h, h.t()).isfinite().all() and n < 3:\n    h, n = h / 2, n + 1\n"
        "return h",
        "is the head of `while`",
    ),
    "elif": (
        "y = h\nif x.dim() == 3:\n    y = h\n[elif torch.mm(h, h.t()).isfinite().all():\n"
        "    y = h * 2\nreturn y",
        "is the head of `elif`",
    ),
    "if": ("y = h\n[if x.dim() == 2: y = torch.mm(h, h.t())\nreturn y / 1e6", "shares its line"),
    "semicolon": ("[y = torch.mm(h, h.t()).float(); z = y / 1e6\nreturn z", "shares its line"),
    "lambda": ("[f = lambda q: torch.mm(q, q.t())\nreturn f(h) / 1e6", "has a lambda in it"),
    "a list": ("hs = [h, h.t()]\n[y = torch.mm(*hs)\nreturn y / 1e6", "reads `hs`"),
    "a property": (
        "self.h = h\n[y = torch.mm(self.q, self.q.t())\nreturn y / 1e6\n\n@property\n"
        "def q(self):\n    return self.h",
        "reads `self.q`",
    ),
    "a cast": ("[y = torch.mm(h.half(), h.t().half())\nreturn y / 1e6", r"casts with `h.half\(\)`"),
    "out": (
        "o = torch.zeros(4, 4)\n[torch.add(torch.mm(h, h.t()), 1.0, out=o)\nreturn o / 1e6",
        "writes with `out=`",
    ),
}


def kept_at(code: str, name: str, kind: str) -> tuple[Any, Any, Tensor]:
    """A model with this code in its forward, and what keeps the line that begins with a bracket."""
    lines = code.splitlines()
    body = "".join(f"        {each.removeprefix('[')}\n" for each in lines)
    is_def = [each.startswith(("@", "def")) for each in lines]
    if any(is_def):  # a method
        at = is_def.index(True)
        body = "".join(f"        {each.removeprefix('[')}\n" for each in lines[:at])
        body += "".join(f"    {each}\n" for each in lines[at:])
    Path(f"{name}_.py").write_text(HEAD + body)
    net = importlib.import_module(f"{name}_").Net().eval()
    torch.manual_seed(1)
    x = torch.randn(4, 8) * 4
    found = jit_amp.tune(net, (x,), dtype=torch.float16, units=kind)
    if kind == "line":
        number = HEAD.count("\n") + 1 + [each[:1] for each in lines].index("[")
        found = dataclasses.replace(found, units=(f"{name}_.py:{number}",))
    return net, found, x


@pytest.mark.parametrize("case", [*WRITTEN])
def test_what_is_written_does_the_same(case: str, name: str) -> None:
    kind, code = WRITTEN[case]
    net, found, x = kept_at(code, name, kind)
    with torch.no_grad():
        expected = found.apply(net)(x)
    assert expected.isfinite().all()
    subprocess.run(["patch", "-p0"], input=found.to_code(net), text=True, check=True)
    Path(f"{name}_.py").rename(f"{name}_changed.py")
    changed = importlib.import_module(f"{name}_changed").Net().eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        made = changed(x)
    assert made.dtype == expected.dtype and torch.equal(made, expected)


@pytest.mark.parametrize("case", [*REFUSED])
def test_what_cannot_be_written(case: str, name: str) -> None:
    code, why = REFUSED[case]
    net, found, _ = kept_at(code, name, "line")
    with pytest.raises(ValueError, match=rf"to_code: {name}_.py:\d+ {why}"):
        found.to_code(net)


def test_an_init_that_cannot_be_written_in(name: str) -> None:
    Path(f"{name}_.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n"
        "    def __init__(self): super().__init__(); self.a = nn.Linear(8, 8)\n\n"
        "    def forward(self, x): return self.a(x)\n"
    )
    net = importlib.import_module(f"{name}_").Net()
    found = jit_amp.tune(net, (torch.full((2, 8), 1e9),), dtype=torch.float16)
    assert found.units == ("a",)
    with pytest.raises(ValueError, match="the __init__ of Net is one line"):
        found.to_code(net)


@pytest.mark.parametrize("kind", ["module", "function", "line"])
def test_scopes_in_what_stays_are_not_written(kind: str, name: str) -> None:
    """ignore_amp and a disabled scope leave scopes inside on; apply does not."""
    Path(f"{name}_.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n"
        "    def forward(self, x):\n        return self.dot(x * 1.0) * 1.0\n\n"
        "    def dot(self, h):\n        with torch.autocast('cpu', dtype=torch.float16):\n"
        "            return torch.mm(h, h.t()) + 1\n"
    )
    net = importlib.import_module(f"{name}_").Net()
    found = jit_amp.tune(net, (torch.full((2, 2), 300.0),), dtype=torch.float16, units=kind)
    assert len(found.units) == 1 and not found.around
    if kind == "line":
        assert found.to_code(net)
        found = dataclasses.replace(found, units=(f"{name}_.py:7",))
    with pytest.raises(ValueError, match=r"to_code: .* has scopes of its own"):
        found.to_code(net)


def test_a_diff_of_nothing_to_write_in() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4))
    result = jit_amp.tune(net, (torch.randn(2, 4) * 1e5,), dtype=torch.float16)
    assert result.units == ("0",)
    with pytest.raises(TypeError, match="takes a module"):
        result.to_code(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Sequential is PyTorch's"):
        result.to_code(net)


def test_the_page(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(name)
    result = jit_amp.tune(module.make().eval(), module.loader(), dtype=torch.float16)
    again = jit_amp.Precision.from_json(result.to_json())
    again.to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<h1>Net in float16 on cpu</h1>" in text
    assert text.count('class="point') == len(result.measured)
    browser = browser_at(tmp_path / "page.html")
    try:
        [row] = find(browser, "#kept tr")[1:]
        assert row.text.startswith("blocks.1 ") and "beyond 65504" in row.text
        assert [each.text.split()[0] for each in find(browser, "#bars tr.stays")] == ["blocks.1"]
        assert len(find(browser, "#bars tr")) == 1 + result.candidates
        assert len(find(browser, "circle.chosen")) == 1
        kept = [each.text for each in find(browser, "li.float32")]
        assert any("scores(q, k)" in line for line in kept)
        assert any("self.heads" in each.text for each in find(browser, "li.reduced"))
        background = "return getComputedStyle(document.body).backgroundColor"
        before = browser.execute_script(background)
        find(browser, "#theme")[0].click()
        assert browser.execute_script(background) != before
        assert not [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
        assert requests_of(browser) == []
    finally:
        browser.quit()


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def test_the_command_line(name: str, tmp_path: Path, capsys: Any) -> None:
    status, out, _ = run(
        capsys, "tune", f"{name}.py:make", "--data", f"{name}.py:loader", "--dtype", "float16",
        "--tolerance", "1e-2", "-o", "precision.json", "--html", "page.html",
        "--resume", "measured.json",
    )  # fmt: skip
    assert status == 0 and "1 of" in out and "blocks.1" in out
    result = jit_amp.Precision.from_json((tmp_path / "precision.json").read_text())
    assert result.units == ("blocks.1",) and (tmp_path / "page.html").exists()
    status, _, err = run(
        capsys, "freeze", f"{name}:make", "--precision", "precision.json",
        "--input", "float32[2,6,16]", "--output", "net.pt",
    )  # fmt: skip
    assert status == 0, err
    net = importlib.import_module(name).make().eval()
    x = torch.randn(2, 6, 16)
    with torch.no_grad():
        assert torch.allclose(torch.jit.load("net.pt")(x), result.apply(net)(x), atol=1e-2)
    status, out, _ = run(
        capsys, "tune", f"{name}.py:make", "--input", "float32[2,6,16]", "--dtype", "fp16",
        "--metric", f"{name}.py:worst", "--tolerance", "0.1", "--code", "--units", "line",
    )  # fmt: skip
    assert status == 0 and "+    with torch.autocast" in out
    status, out, _ = run(
        capsys, "tune", f"{name}:make", "--data", f"{name}:loader", "--dtype", "bf16", "--json"
    )
    assert status == 0 and json.loads(out)["units"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dtype", "fp16"], "tune needs either --data or --input"),
        (["--dtype", "fp16", "--data", "x"], "--data 'x' is no package.module:name"),
        (["--dtype", "fp16", "--data", "nothing.py:x"], "nothing.py: there is no such file"),
        (["--dtype", "fp16", "--input", "3", "-o", "no/where.json"], "there is no folder 'no'"),
    ],
)
def test_mistakes(arguments: list[str], said: str, name: str, capsys: Any) -> None:
    status, _, err = run(capsys, "tune", f"{name}:make", *arguments)
    assert status == 2 and said in err


def test_a_precision_that_is_not_there(name: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        run(capsys, "freeze", f"{name}:make", "--precision", "no.json", "--output", "x.pt")
    assert "there is no file 'no.json'" in capsys.readouterr().err


NAMES = '''import collections

import torch
from torch import nn


class Own(nn.Module):
    """Its names are digits, and it can be indexed by something else."""

    def __init__(self):
        super().__init__()
        self.add_module("0", nn.Linear(4, 4))

    def __getitem__(self, key):
        raise KeyError(key)

    def forward(self, x):
        return self.get_submodule("0")(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.whole = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
        self.rest = self.whole[2:]
        self.cut = nn.Sequential(collections.OrderedDict({"1": nn.Linear(4, 4)}))
        self.heads = nn.ModuleDict({"0": nn.Linear(4, 4), "a b": nn.Linear(4, 4)})
        self.listed = nn.ModuleList([nn.Linear(4, 4)])
        self.own = Own()
        self.add_module("class", nn.Linear(4, 4))

    def forward(self, x):
        x = self.own(self.cut(self.rest(self.whole(x))))
        x = self.listed[0](self.heads["a b"](self.heads["0"](x)))
        return getattr(self, "class")(x)


def make():
    torch.manual_seed(0)
    return Net()
'''


def patched(diff: str, tmp_path: Path) -> None:
    # With bytes, which keep "\r\n".
    subprocess.run(["patch", "-p0", "--fuzz=0"], input=diff.encode(), check=True, cwd=tmp_path)


def kept(units: tuple[str, ...], kind: str, name: str = "Net") -> jit_amp.Precision:
    return precision(units, "float16", kind=kind, name=name)


@pytest.mark.parametrize(
    ("unit", "written"),
    {
        "whole.1": "self.whole[1]",
        "rest.3": "self.rest.get_submodule('3')",
        "cut.1": "self.cut.get_submodule('1')",
        "heads.0": "self.heads['0']",
        "heads.a b": "self.heads['a b']",
        "listed.0": "self.listed[0]",
        "own.0": "self.own.get_submodule('0')",
        "class": "self.get_submodule('class')",
    }.items(),
)
def test_names_of_modules(unit: str, written: str, name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text(NAMES)
    net = importlib.import_module(name).make().eval()
    x = torch.rand(2, 4)
    result = kept((unit,), "module")
    with torch.no_grad():
        expected = result.apply(net)(x)
    diff = result.to_code(net)
    assert f"+        jit_amp.ignore_amp({written}, float32=True)\n" in diff
    patched(diff, tmp_path)
    del sys.modules[name]
    importlib.invalidate_caches()
    changed = importlib.import_module(name).make().eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(changed(x), expected)


@pytest.mark.parametrize("units", [*UNITS])
@pytest.mark.parametrize("form", ["carriage returns", "no newline at the end", "tabs"])
def test_files_of_other_forms(form: str, units: str, name: str, tmp_path: Path) -> None:
    text = MODEL
    if form == "carriage returns":
        text = text.replace("\n", "\r\n")
    elif form == "tabs":
        text = text.replace("    ", "\t")
    else:
        text = text[: text.index("\n\ndef make")].rstrip()
    file = tmp_path / f"{name}.py"
    file.write_bytes(text.encode())
    net = importlib.import_module(name).Net().eval()
    line = next(i for i, each in enumerate(text.splitlines(), 1) if "300.0) @" in each)
    x = torch.randn(2, 6, 16)
    result = jit_amp.tune(net, (x,), dtype=torch.float16, units=units)
    assert result.units == (UNITS[units].format(name),) and line == 10
    before = net.state_dict()
    with torch.no_grad():
        expected = result.apply(net)(x)
    patched(result.to_code(net), tmp_path)
    changed = file.read_bytes().decode()
    assert changed.count("\r\n") == (changed.count("\n") if form == "carriage returns" else 0)
    assert changed.endswith("\n") == text.endswith("\n")
    del sys.modules[name]
    importlib.invalidate_caches()
    again = importlib.import_module(name).Net().eval()
    again.load_state_dict(before)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        made = again(x)
    if units == "line":  # the whole statement, as above
        assert tune_error(made, expected) <= result.tolerance
    else:
        assert torch.equal(made, expected)


def test_a_source_that_is_no_file(name: str, tmp_path: Path) -> None:
    """As a notebook's cells are."""
    net = importlib.import_module(name).make().eval()
    result = kept(("blocks.1",), "module")
    expected = result.to_code(net)
    path = tmp_path / f"{name}.py"
    linecache.getlines(str(path))
    linecache.cache[str(path)] = (len(MODEL), None, MODEL.splitlines(keepends=True), str(path))
    path.unlink()
    assert result.to_code(net) == expected


@pytest.mark.parametrize("change", ["another line", "another function"])
def test_a_file_that_has_changed_since(change: str, name: str, tmp_path: Path) -> None:
    module = importlib.import_module(name)
    net, x = module.make().eval(), module.loader()[0][0]
    kind = "line" if change == "another line" else "function"
    result = jit_amp.tune(net, (x,), dtype=torch.float16, units=kind)
    result = jit_amp.Precision.from_json(result.to_json())
    result.apply(net)(x)
    text = "\n" + MODEL if kind == "line" else MODEL.replace("scores", "scored")
    (tmp_path / f"{name}.py").write_text(text)
    message = (
        r"was `return \(q \* 300.0\) @ \(` when it was tuned, and is `def scores"
        if kind == "line"
        else "has no function 'scores'"
    )
    ways: list[Any] = [
        lambda: result.apply(net),
        lambda: jit_amp.script(net, precision=result),
        lambda: jit_amp.freeze(net, precision=result),
        lambda: result.to_code(net),
    ]
    for way in ways:
        with pytest.raises(ValueError, match=message):
            way()


SAME_NAME = """import torch
from torch import nn


def scaled(x):
    y = x * {scale}
    return (y @ y.transpose(-2, -1)) / {scale}


class {cls}(nn.Module):
    def forward(self, x):
        return scaled(x)
"""


def test_two_files_of_one_name(name: str, tmp_path: Path) -> None:
    """One in the working directory, one in a folder: names of PyTorch's files, too."""
    for folder in "", f"sub_{name}":
        (tmp_path / folder).mkdir(exist_ok=True)
        for file in "functional", f"ops_{name}":
            text = SAME_NAME.format(scale="3000.0" if folder else "2.0", cls="Inner")
            (tmp_path / folder / f"{file}.py").write_text(text)
    ops = importlib.import_module(f"ops_{name}")
    inner = importlib.import_module(f"sub_{name}.ops_{name}")
    own = importlib.import_module("functional")
    try:
        x = torch.randn(2, 4, 16)
        net = torch.nn.Sequential(own.Inner(), ops.Inner(), inner.Inner()).eval()
        for kind, at in (("line", "7"), ("function", "scaled")):
            files = (f"ops_{name}.py", "functional.py", f"sub_{name}/ops_{name}.py")
            for file, module in zip(files, (ops, own, inner), strict=True):
                result = kept((f"{file}:{at}",), kind, "Sequential")
                module_kept = torch.nn.Sequential(module.Inner()).eval()
                others = [each for each in (ops, own, inner) if each is not module]
                with torch.no_grad():
                    assert result.apply(module_kept)(x).dtype is torch.float32
                    scripted = jit_amp.script(module_kept, precision=result)
                    assert scripted(x).dtype is torch.float32
                    for other in others:
                        not_kept = torch.nn.Sequential(other.Inner()).eval()
                        assert result.apply(not_kept)(x).dtype is torch.float16
                        assert jit_amp.script(not_kept, precision=result)(x).dtype is torch.float16
        found = jit_amp.tune(net, (x,), dtype=torch.float16, units="function")
        assert f"sub_{name}/ops_{name}.py:scaled" in found.units
        assert f"ops_{name}.py:scaled" not in found.units
    finally:
        for each in (ops, inner, own):
            del sys.modules[each.__name__]
