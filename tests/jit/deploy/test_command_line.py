"""jit-amp: what is printed, written and returned."""

from __future__ import annotations

import importlib
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import jit_amp
from jit_amp.__main__ import main

from ..support import LOADS_PROGRAMS

SOURCE = """
from contextlib import nullcontext

import torch
from torch import Tensor, nn


class Scoped(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x), {"again": x @ x.t()}


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor):
        return self.linear(x)


class Writing(Plain):
    def forward(self, x: Tensor, cache: list[Tensor]):
        cache[0].add_(x)
        return self.linear(x)


class WritingOtherwise(Plain):
    def forward(self, x: Tensor, cache: list[Tensor]):
        cache[0].copy_(x)
        return self.linear(x)


def factory():
    return Plain()


constant = 3


def nothing():
    pass


class NeedsArgument(nn.Module):
    def __init__(self, size):
        super().__init__()


class FailsWhenMade(nn.Module):
    def __init__(self):
        raise ValueError("when made")


class Fails(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("no, of the model")


class Mixes(Plain):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(x)
        return self.linear(y.double())


class Random(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x: Tensor):
        return self.linear(x).float() * 1.5 - 0.25


class Choice(Random):
    def __init__(self):
        super().__init__()
        self.config = {"amp": True}

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16) if self.config["amp"] else nullcontext():
            return self.linear(x)


class Recorded(Random):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.profiler.record_function("a"):
            return self.linear(x)


class Nearly(Random):
    def forward(self, x: Tensor):
        return self.linear(x).float() * 1.5 - 0.25 + self.off

    def __init__(self):
        super().__init__()
        self.off = 2.0**-8


class NotFinite(Plain):
    def forward(self, x: Tensor):
        return self.linear(x) * float("nan")


class Prints(Plain):
    def forward(self, x: Tensor):
        print("hello")
        return self.linear(x)


def other():
    model = Plain()
    model.linear.weight.data += 0.5
    return model


def annotated() -> nn.Module:
    return Plain()


class Counting(Plain):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        self.count += 1
        return y * self.count


class CountingOtherwise(Counting):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        count = self.count + 1
        self.count += 2
        return y * count


class Hot(Plain):
    def forward(self, x: Tensor):
        y = self.linear(x) * 1e5
        return y / 1e5


class Largest(nn.Module):
    def forward(self, x: Tensor):
        return x.argmax(-1), x > 0, torch.cat([x, x * float("inf")])


class Smallest(nn.Module):
    def forward(self, x: Tensor):
        return x.argmin(-1), x <= 0, torch.cat([x, x * float("inf")])


class Named(nn.Module):
    def forward(self, x: Tensor):
        return {"a": x}


class OtherwiseNamed(nn.Module):
    def forward(self, x: Tensor):
        return {"b": x}


def function(x: Tensor, flag: bool, xs: list[Tensor]):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x if flag else xs[0]


def refused(x: Tensor, on: bool):
    with torch.autocast("cpu", enabled=on):
        return x @ x
"""


FORMS = ["Python", "scripted", "traced"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(SOURCE)
    sys.modules.pop("models", None)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def test_explain(capsys: Any) -> None:
    status, out, _ = run(
        capsys, "explain", "models:Scoped", "--input", "float32[2,8]", "--html", "page.html"
    )
    assert status == 0
    assert "linear" in out
    assert "models.py" in Path("page.html").read_text()
    status, out, _ = run(capsys, "explain", "models:Scoped", "--input", "float32[2,8]", "--json")
    assert json.loads(out)["rows"][0]["results"] == ["bfloat16"]
    given = ["--input", "float32[2,2]", "--input", "false", "--input", '["float32[3,3]"]']
    assert run(capsys, "explain", "models:function", *given)[0] == 0
    status, out, _ = run(capsys, "explain", "models:refused", *given[:4])
    assert status == 1
    assert "JA101" in out


def test_freeze_and_verify(capsys: Any) -> None:
    given = ["--input", "float32[2,8]"]
    status, out, _ = run(capsys, "freeze", "models:Scoped", *given, "--output", "a.pt")
    assert status == 0
    assert "a.pt" in out
    status, out, _ = run(capsys, "verify", "models:Scoped", "a.pt", *given)
    assert (status, out.splitlines()[0]) == (
        0,
        "18 of 18 outputs agree, of three calls of each form",
    )
    scoped = ["--autocast", "bf16"]
    assert run(capsys, "freeze", "models:factory", *scoped, *given, "--output", "b.pt")[0] == 0
    assert run(capsys, "verify", "models:factory", "b.pt", *scoped, *given)[0] == 0
    status, out, _ = run(capsys, "verify", "models:factory", "b.pt", *given)  # without autocast
    assert status == 1
    assert "worst: output of b.pt: torch.float32 [2, 4] and torch.bfloat16 [2, 4]" in out
    assert "made in linear.py:" in out
    assert "return F.linear(input, self.weight, self.bias)" in out
    status, out, _ = run(capsys, "verify", "models:factory", "models:other", *given, "--json")
    assert status == 1
    assert json.loads(out)["worst"]["off"] > 1000
    assert run(capsys, "freeze", "models:Scoped", "--output", "c.ptl", "--lite")[0] == 0
    torch.save((torch.randn(2, 8),), "inputs.pt")
    assert run(capsys, "verify", "models:Scoped", "a.pt", "--input", "inputs.pt")[0] == 0


def test_for_a_server(capsys: Any) -> None:
    given = ["--input", "float32[2,8]"]
    server = [*given, "--target", "server", "--output", "server.pt"]
    assert run(capsys, "freeze", "models:Scoped", *server)[0] == 0
    assert run(capsys, "verify", "models:Scoped", "server.pt", *given)[0] == 0
    half = ["--autocast", "fp16", *given, "--triton", "--output", "repository/net"]
    status, _, said = run(capsys, "freeze", "models:factory", *half)
    assert (status, "has no" in said, "scope" in said) == (0, False, False)
    config = Path("repository/net/config.pbtxt").read_text()
    assert 'name: "net"' in config
    assert "TYPE_FP16" in config
    assert torch.jit.load("repository/net/1/model.pt")(torch.rand(2, 8)).dtype == torch.float16
    wide = ["--autocast", "bf16", *given, "--io-dtype", "float32", "--triton"]
    assert run(capsys, "freeze", "models:factory", *wide, "--output", "wide/net")[0] == 0
    assert "BF16" not in (config := Path("wide/net/config.pbtxt").read_text())
    assert config.count("TYPE_FP32") == 2
    assert "results are cast" in run(capsys, "explain", "wide/net/1/model.pt", *given)[1]
    status, _, said = run(capsys, "freeze", "models:factory", "--triton", "--output", "r/n")
    assert (status, "--triton needs --input" in said) == (2, True)


@LOADS_PROGRAMS
def test_verify_compares_what_is_written_to_arguments(capsys: Any) -> None:
    given = ["--input", "float32[2,8]", "--input", '["float32[2,8]"]']
    status, out, _ = run(capsys, "verify", "models:Writing", "models:WritingOtherwise", *given)
    assert status == 1
    assert "argument[1][0] after the call" in out
    assert run(capsys, "verify", "models:Writing", "models:Writing", *given)[0] == 0


@LOADS_PROGRAMS
def test_export_and_verify_across_formats(capsys: Any) -> None:
    given = ["--inputs", "float32[2,8]"]
    status, out, _ = run(capsys, "export", "models:Scoped", *given, "-o", "a.pt2", "--json")
    assert (status, "aten.linear.default" in json.loads(out)["operators"]) == (0, True)
    other = ["models:other", "--plain", "--steps", "0"]
    status, out, _ = run(capsys, "verify", "models:factory", "models:factory", *other, *given)
    table = out.splitlines()[-3:]
    assert status == 1
    assert [line.split()[:2] for line in table[1:]] == [
        ["models:other", "no"],
        ["models:factory", "yes"],
    ]
    status, out, _ = run(capsys, "verify", "models:Scoped", "a.pt2", *given)
    assert status == 0
    Path("b.pt2").write_text("nothing")
    status, _, told = run(capsys, "verify", "models:Scoped", "b.pt2", *given)
    assert status == 2
    assert "b.pt2: cannot be loaded" in told


def test_what_verify_takes_for_different(capsys: Any) -> None:
    given = ["--input", "float32[3,4]", "--json"]
    status, out, _ = run(capsys, "verify", "models:Largest", "models:Smallest", *given)
    rows = json.loads(out)["rows"]
    assert status == 1
    assert [row["agrees"] for row in rows[:3]] == [False, False, True]  # infinities are the same
    assert run(capsys, "verify", "models:Named", "models:OtherwiseNamed", *given)[0] == 1
    assert run(capsys, "verify", "models:Largest", "models:Largest", *given)[0] == 0
    assert (
        run(capsys, "verify", "models:annotated", "models:factory", "--input", "float32[2,8]")[0]
        == 0
    )
    values = ["--input", json.dumps([1.5] * 100)]
    assert "is no file" not in run(capsys, "explain", "models:Plain", *values)[2]


def test_lower_and_policy(capsys: Any) -> None:
    status, out, _ = run(capsys, "lower", "models:Scoped")
    assert (status, "jit_amp::cast" in out) == (0, True)
    status, out, _ = run(capsys, "policy", "--json")
    assert json.loads(out)["cuda"]["aten::pow.Tensor_Scalar"] == "fp32"
    status, out, _ = run(capsys, "policy", "aten::linear", "--json")
    assert "lower, by csrc/analysis/cpu_policy.inc" in [
        rows["cpu"] for rows in json.loads(out).values()
    ]
    status, out, _ = run(capsys, "policy", "aten::linear")
    assert status == 0 and "cpu      lower, by csrc/analysis/cpu_policy.inc" in out
    status, _, err = run(capsys, "policy", "aten::no_such", "--json")
    assert status == 2 and "TorchScript has no operator 'aten::no_such'" in err


def test_env(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JIT_AMP_STOP_AFTER", "9")
    monkeypatch.setenv("JIT_AMP_CHECKS", "")
    status, out, _ = run(capsys, "env")
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert status == 0 and lines["JIT_AMP_STOP_AFTER"] == "9"
    assert lines["JIT_AMP_CHECKS"] == "(set to nothing)"
    assert lines["torch"].startswith(torch.__version__) and sys.executable in lines["Python"]
    assert lines["jit_amp"].startswith(f"{jit_amp.__version__}, built for torch ")
    assert json.loads(run(capsys, "env", "--json")[1]) == lines


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain", "nothing.pt"], "is no file, and no package.module:name"),
        (["explain", "models:missing"], "models has no `missing`"),
        (["explain", "no_such_package:x"], "No module named"),
        (["explain", "models:Scoped", "--input", "float99[2]"], "is no dtype of PyTorch's"),
        (["explain", "models:Scoped", "--input", "what"], "no tensor such as float32[2,3]"),
        (["explain", "models:Scoped", "--input", "damaged"], "--input damaged: write a file that"),
        (["explain", "models:Scoped", "--input", "float32[2 3]"], "no such tensor can be made"),
        (["explain", "models:Scoped", "--input", "qint8[2]"], "no such tensor can be made"),
        (["explain", "models:Scoped", "--input", "float32[9999999999999999999]"], "no such tensor"),
        (["explain", "models:Scoped", "--input", "float32[2,8]", "--device", "toaster"], "toaster"),
        (["explain", "models:Scoped", "--input", "float32[2,8]", "--method", "m"], "no method 'm'"),
        (["explain", "models:Scoped"], "models:Scoped takes (x: torch.Tensor), one --input for"),
        (["explain", "models:Scoped", *(["--input", "1"] * 2)], "one --input for each"),
        (["explain", "models:Scoped", "--input", "3"], "Tensor"),
        (["explain", "models:function", "--input", "true"], "one --input for each"),
        (["explain", "models:Scoped", "--input", "1", "--html", "no/p.html"], "no folder 'no'"),
        (["explain", "models:constant", "--input", "1"], "models:constant gives 3: write the name"),
        (["explain", "models:NeedsArgument"], "is called without arguments"),
        (["explain", "models:nothing"], "models:nothing gives None"),
        (["explain", "models:torch"], "write the name of a module"),
        (["explain", ":Scoped"], "write package.module:name"),
        (["explain", "models:"], "write package.module:name"),
        (["explain", ".models:Scoped"], "relative import"),
        (["explain", "broken:Scoped"], "SyntaxError"),
        (["explain", "damaged", "--input", "1"], "damaged: no TorchScript file"),
        (["explain", "state.pt", "--input", "1"], "state.pt: no TorchScript file"),
        (["lower", "models:Scoped", "--method", "m"], "method: 'm' is none of 'forward'"),
        (["freeze", "models:function", "--output", "f.pt"], "is a function"),
        (["freeze", "models:Scoped", "--output", "no/f.pt"], "there is no folder 'no'"),
        (["freeze", "models:Scoped", "--output", "."], "is a folder"),
        (["freeze", "models:Scoped", "--input", "3", "--output", "f.pt"], "takes a Tensor as"),
        (["verify", "models:Scoped", "damaged", "--input", "1"], "no TorchScript file"),
        (["verify", "models:Scoped", "models:Scoped"], "one --input for each"),
    ],
)
def test_mistakes_are_told_in_a_line(capsys: Any, arguments: list[str], said: str) -> None:
    Path("damaged").write_text("hello")
    Path("broken.py").write_text("def (")
    torch.save({"a": torch.ones(1)}, "state.pt")
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_two_reports_are_compared_and_not_three(capsys: Any) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["explain", "models:Scoped", "--against", "bf16", "--against", "none"])
    assert exited.value.code == 2
    assert "--against is given twice" in capsys.readouterr().err


@pytest.mark.parametrize("steps", ["nan", "-1", "inf", "many"])
def test_mistakes_that_argparse_tells(capsys: Any, steps: str) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["verify", "models:Scoped", "models:Scoped", "--steps", steps])
    assert exited.value.code == 2
    assert f"{steps!r} is no number from 0 on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "form"),
    [("tune", "Python"), *itertools.product(["freeze", "export", "verify"], FORMS)],
)
def test_the_line_of_a_model_that_raises(capsys: Any, command: str, form: str) -> None:
    model = "models:Mixes"
    if form != "Python":
        run(capsys, "env")  # the folder is on Python's path
        made = importlib.import_module("models").Mixes().eval()
        wide = torch.rand(2, 8)
        if form == "traced":
            made.linear.double()
        make = {"scripted": jit_amp.script, "traced": lambda m: jit_amp.trace(m, wide)}[form]
        make(made).save("mixes.pt")
        model = "mixes.pt"
    sizes = "2,9" if form == "traced" else "2,8"
    more = {"freeze": ["-o", "m.pt"], "export": ["-o", "m.pt2"], "tune": ["--dtype", "bf16"]}
    second = ["models:Plain"] if command == "verify" else []
    status, _, told = run(
        capsys, command, model, *second, "--input", f"float32[{sizes}]", *more.get(command, [])
    )
    lines = told.splitlines()
    [said] = [each for each in lines if each.startswith("jit-amp:")]
    line = SOURCE.splitlines().index("        return self.linear(y.double())") + 1
    assert status == 1 and f"models.py:{line}: " in said and "mat1 and mat2" in said
    shown = ["    return self.linear(y.double())"] * (form != "traced")  # no file has its text
    assert lines[lines.index(said) + 1 :] == [
        *shown,
        f"`jit-amp explain {model}` with the same inputs tells what each operator there was given",
    ]


def test_what_a_model_raises_is_no_mistake_in_the_command(capsys: Any) -> None:
    given = ["--input", "float32[2,8]"]
    status, out, err = run(capsys, "explain", "models:FailsWhenMade", *given)
    assert (status, out, "ValueError: when made" in err) == (1, "", True)
    status, out, err = run(capsys, "explain", "models:Fails", *given)
    assert (status, err) == (1, "")
    assert "stops at models.py:" in out and "ValueError: no, of the model" in out


@pytest.mark.parametrize(
    "command",
    [
        ["verify", "models:NotFinite", "models:Plain"],
        ["verify", "models:NotFinite", "models:NotFinite"],
        ["explain", "models:NotFinite", "--numerics"],
        ["explain", "models:Prints"],
        ["freeze", "models:Prints", "--output", "f.pt"],
        ["freeze", "models:Plain", "--triton", "--output", "repository/other"],
        ["policy", "--reach"],
        ["policy"],
        ["lower", "models:Prints"],
    ],
)
def test_json_is_json(capsys: Any, command: list[str]) -> None:
    takes_input = command[0] not in ("policy", "lower")
    given = ["--input", "float32[2,8]"] if takes_input else []
    _, out, _ = run(capsys, *command, *given, "--json")

    def refused(name: str) -> None:
        raise ValueError(name)

    assert json.loads(out, parse_constant=refused)


def test_json_has_numbers_that_are_not_finite_as_texts(capsys: Any) -> None:
    given = ["models:NotFinite", "models:Plain", "--input", "float32[2,8]", "--json"]
    assert json.loads(run(capsys, "verify", *given)[1])["worst"]["off"] == "Infinity"


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(Exception, match="no file"):
        main(["--debug", "explain", "nothing.pt"])


def test_as_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jit_amp", "explain", "models:Scoped"]
    done = subprocess.run(
        [*command, "--input", "float32[2,8]"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "bfloat16" in done.stdout


def test_ctrl_c_is_a_line_that_says_what_was_kept(
    capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: Any, resume: Path | None = None, **__: Any) -> None:
        if resume:
            resume.write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(jit_amp, "tune", interrupted)
    monkeypatch.setattr(jit_amp, "freeze", interrupted)
    given = ("--input", "float32[2,8]")
    tuned = ("tune", "models:factory", *given, "--dtype", "float16")
    status, out, err = run(capsys, *tuned)
    assert (status, out, err) == (130, "", "jit-amp: interrupted; nothing was written\n")
    measured = str(tmp_path / "measured.json")
    status, _, err = run(capsys, *tuned, "--resume", measured, "-o", str(tmp_path / "p.json"))
    assert f"what was measured is in {measured}: the same command goes on with it; " in err
    assert "p.json is not there" in err
    assert err.count("\n") == 1
    (tmp_path / "old.pt").write_text("old")
    _, _, err = run(capsys, "freeze", "models:Scoped", *given, "-o", str(tmp_path / "old.pt"))
    assert "old.pt is as it was" in err


def test_verify_compares_what_is_written_to_buffers(capsys: Any) -> None:
    given = ("--input", "float32[2,8]")
    assert run(capsys, "freeze", "models:Counting", *given, "-o", "count.pt")[0] == 0
    assert run(capsys, "verify", "models:Counting", "count.pt", *given)[0] == 0
    status, out, _ = run(capsys, "verify", "models:Counting", "models:CountingOtherwise", *given)
    assert status == 1 and "buffer count after the call" in out
    _, out, _ = run(
        capsys, "verify", "models:Counting", "models:CountingOtherwise", *given, "--json"
    )
    wrong = [row for row in json.loads(out)["rows"] if not row["agrees"]]
    assert {row["output"] for row in wrong if row["call"] == 1} == {"buffer count after the call"}


@pytest.mark.parametrize("units", ["module", "operator"])
def test_verify_with_a_precision(capsys: Any, units: str) -> None:
    given = ("--input", "float32[2,8]")
    tuned = ("--dtype", "float16", "--units", units, "-o", "p.json")
    assert run(capsys, "tune", "models:Hot", *given, *tuned)[0] == 0
    precise = ("--precision", "p.json")
    assert run(capsys, "freeze", "models:Hot", *given, *precise, "-o", "hot.pt")[0] == 0
    assert run(capsys, "verify", "models:Hot", "hot.pt", *given, *precise)[0] == 0
    # In modules all of it stays in float32, as the model has it without a scope.
    assert run(capsys, "verify", "models:Hot", "hot.pt", *given)[0] == (units == "operator")
    for wrong in (
        ("models:Hot", "hot.pt", *precise, "--autocast", "fp16"),  # it has the scope
        ("hot.pt", "models:Hot", *precise),
        ("models:Hot", "hot.pt", "--precision", "models.py"),
    ):
        status, _, err = run(capsys, "verify", *wrong, *given)
        assert status == 2 and err.startswith("jit-amp: ") and err.count("\n") == 1


@pytest.mark.parametrize("name", ["Random", "Choice", "Recorded"])
def test_what_freeze_takes_the_command_takes(capsys: Any, name: str) -> None:
    """Scopes that plain torch.jit.script refuses, drops, or has nothing for; and each command makes
    the same weights by chance."""
    given = ["--input", "float32[2,8]"]
    status, out, err = run(capsys, "freeze", f"models:{name}", *given, "-o", "m.pt")
    slow = "bfloat16 is emulated on this processor: elsewhere it is faster\n"
    assert status == 0 and err in ("", slow)
    assert out.startswith("m.pt: ") and " 0 kinds" not in out
    status, out, _ = run(capsys, "verify", f"models:{name}", "m.pt", *given, "--plain")
    assert status == 0 and "3 of 3 outputs agree" in out


def test_steps_are_those_of_the_dtype_in_which_the_first_model_computes(capsys: Any) -> None:
    given = ["--input", "float32[2,8]", "--steps", "2"]
    status, out, _ = run(capsys, "verify", "models:Random", "models:Nearly", *given)
    assert status == 0 and "steps of bfloat16 apart, in which the first model computes" in out
    status, out, _ = run(capsys, "verify", "models:Nearly", "models:Random", *given)
    assert status == 1 and "steps of float32 apart" in out


def test_a_dtype_that_never_ran_passes_no_limit(capsys: Any) -> None:
    asked = ["explain", "models:Random", "--input", "float32[2,8]", "--autocast", "fp16"]
    status, _, err = run(capsys, *asked)
    assert status == 0 and "nothing ran in float16: the model's own scopes are for bfl" in err
    status, _, err = run(capsys, *asked, "--fail-over", "overflows=0")
    assert status == 1 and "nothing ran in float16" in err
    status, _, err = run(capsys, "explain", "models:Plain", *asked[2:], "--fail-over", "nans=0")
    assert (status, err) == (0, "")
