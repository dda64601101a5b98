"""Places: an error shows a line of the user's, and none of a module of PyTorch's."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp
from jit_amp import _C

LIBRARY = torch.library.Library("jit_amp_tests_of_places", "DEF")
LIBRARY.define("unknown(Tensor x) -> Tensor")
LIBRARY.impl("unknown", lambda x: x + 1, "CPU")

OF_PYTORCH = """\
import torch


class Unknown(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.jit_amp_tests_of_places.unknown(x)


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), Unknown())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Asks(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.is_autocast_enabled(x.device.type) else x


class Enters(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=bool(x.sum() > 0)):
            return x @ x


class CallsPython(torch.nn.Module):
    @torch.jit.ignore
    def in_python(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.in_python(x)
"""


@pytest.fixture
def of_pytorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Modules of a file that counts as one of PyTorch's."""
    (tmp_path / "of_pytorch.py").write_text(OF_PYTORCH)
    monkeypatch.syspath_prepend(tmp_path)
    packages = [f"{path}/" for path in (*torch.__path__, *jit_amp.__path__)]
    _C.set_package_folders([f"{tmp_path}/", *packages])
    monkeypatch.delitem(__import__("sys").modules, "of_pytorch", raising=False)
    yield __import__("of_pytorch")
    _C.set_package_folders(packages)


class InScope(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x)  # in a scope


class Outside(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        return self.inner(x)  # outside


def place_of(make: Callable[[], Any], code: str) -> str:
    """What an error shows of the program."""
    with pytest.raises(jit_amp.AutocastError, match=code) as error:
        make()
    return str(error.value).split("\n\nInstead: ")[0].split("\n\n", 1)[1]


def assert_is_users(place: str, ends: str) -> None:
    """The line that is marked in the place, or stands alone in it."""
    assert place.startswith(f'  File "{__file__}", line '), place
    shown = place.splitlines()
    marked = next((i for i, line in enumerate(shown) if line.endswith("<--- HERE")), len(shown))
    assert shown[marked - 1].endswith(ends), place
    number = int(re.findall(r"line (\d+)", shown[0])[0])
    source = Path(__file__).read_text().splitlines()
    assert any(line.endswith(ends) for line in source[number - 1 : number + 4])


CASES = [
    ("Unknown", InScope, "JA301"),
    ("Nested", InScope, "JA301"),
    ("Asks", Outside, "JA309"),
    ("Enters", Outside, "JA101"),
    ("CallsPython", InScope, "JA301"),
    ("CallsPython", Outside, "JA301"),
]


@pytest.mark.parametrize(("inner", "outer", "code"), CASES)
def test_a_line_of_an_inlined_module_is_that_of_its_call(
    of_pytorch: Any, inner: str, outer: type[nn.Module], code: str
) -> None:
    model = outer(getattr(of_pytorch, inner)()).eval()
    ends = "# in a scope" if outer is InScope else "# outside"
    assert_is_users(place_of(lambda: jit_amp.freeze(model), code), ends)
    deeper = nn.Sequential(model, nn.ReLU()).eval()
    assert_is_users(place_of(lambda: jit_amp.freeze(deeper), code), ends)


@pytest.mark.parametrize("inner", ["Unknown", "Nested"])
def test_a_line_of_a_trace_is_the_users_alone(of_pytorch: Any, inner: str) -> None:
    model = InScope(getattr(of_pytorch, inner)()).eval()
    trace = jit_amp.trace(model, torch.rand(4, 4))
    place = place_of(lambda: jit_amp.freeze(trace), "JA301")
    assert_is_users(place, "# in a scope")
    assert len(place.splitlines()) == 2


def test_a_line_of_a_file_is_the_users(of_pytorch: Any) -> None:
    for make in (jit_amp.script, lambda model: jit_amp.trace(model, torch.rand(4, 4))):
        model = make(InScope(of_pytorch.Nested()).eval())
        buffer = io.BytesIO()
        torch.jit.save(model, buffer)
        buffer.seek(0)
        loaded = torch.jit.load(buffer)
        place = place_of(lambda: jit_amp.freeze(loaded), "JA301")  # noqa: B023
        assert place.startswith(f'  File "{__file__}", line '), place
        assert "of_pytorch.py" not in place


def test_without_a_line_of_the_user_it_is_the_innermost(of_pytorch: Any) -> None:
    place = place_of(lambda: jit_amp.freeze(of_pytorch.CallsPython().eval()), "JA301")
    assert "of_pytorch.py" in place and "return self.in_python(x)" in place


def test_a_hint_is_at_the_users_line() -> None:
    model = InScope(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))).eval()
    report = jit_amp.explain(jit_amp.freeze(model, check_inputs=False), torch.rand(2, 4))
    assert report.hints
    for hint in report.hints:
        assert (hint.place.file, hint.place.text) == (
            __file__,
            "return self.inner(x)  # in a scope",
        )
