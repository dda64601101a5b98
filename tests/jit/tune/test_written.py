"""What a precision is written as: a diff, a page, and files of the command line."""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import jit_amp
from jit_amp.__main__ import main
from jit_amp._tune import relative_error as tune_error

from ..deploy.test_explain import browser_at, find, requests_of

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
