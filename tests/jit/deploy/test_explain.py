"""jit_amp.explain: rows against what eager does, and the page as a browser shows it."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import jit_amp

from ..support import assert_same, imported, unsanitized


class Attention(nn.Module):
    """Logits that exceed float16 where the marked line is."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm = nn.Linear(8, 24), nn.LayerNorm(8)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            q, k, v = self.qkv(x).chunk(3, -1)
            logits = q @ (k * 100).transpose(-2, -1)  # overflows
            with torch.autocast("cpu", enabled=False):
                weights = torch.softmax(logits.float(), -1)
            y = weights @ v
            for _ in range(2):
                y = F.linear(y, self.norm.weight.diag())
        return self.norm(y.float()) + x


def large() -> tuple[Attention, Tensor]:
    torch.manual_seed(0)
    return Attention().eval(), torch.randn(2, 5, 8) * 40


def rows_of(report: jit_amp.Report, operator: str) -> list[Any]:
    return [row for row in report.rows if row.operator.startswith("aten::" + operator)]


def dtypes_of(row: Any) -> Any:
    """Operator, line and dtypes: overloads differ where a number is one operand."""
    return row.operator.partition(".")[0], row.line.line, row.operands[:1], row.results, row.policy


def test_rows_say_what_ran_where_and_why() -> None:
    model, x = large()
    report = jit_amp.explain(model, (x,))
    first, *_ = rows_of(report, "linear")
    assert first.module == "qkv"
    assert first.line.text == "q, k, v = self.qkv(x).chunk(3, -1)"
    assert first.place.file.endswith("linear.py")
    assert (first.operands, first.results) == (("float32",) * 3, ("float16",))
    assert [(c.source, c.target, c.count) for c in first.casts] == [("float32", "float16", 3)]
    assert first.casts[0].bytes == (x.numel() + 24 * 8 + 24) * (4 + 2)
    assert (first.policy, first.precision) == ("lower", "reduced")
    assert first.scopes[0].place.text == 'with torch.autocast("cpu", dtype=torch.float16):'
    [softmax] = rows_of(report, "softmax")
    assert softmax.precision == "float32"
    assert "off here" in softmax.reason
    [in_the_loop] = [row for row in rows_of(report, "linear") if row.module != "qkv"]
    assert in_the_loop.calls == 2
    assert any("in a loop" in hint.text for hint in report.hints)
    [norm] = rows_of(report, "layer_norm")
    assert (norm.policy, norm.reason) == ("", "outside every scope")
    assert jit_amp.explain(model, {"x": x}).rows == report.rows


def twice(x: Tensor, w: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch.mm(x, w)
        for _ in range(2):
            w = torch.mm(x, w.float())
        return a, w


def test_casts_that_are_shared_and_casts_in_a_loop() -> None:
    report = jit_amp.explain(twice, (torch.randn(2, 2), torch.randn(2, 2)))
    lines = [[place.text for place in cast.users] for cast in report.casts]
    assert ["a = torch.mm(x, w)", "w = torch.mm(x, w.float())"] in lines
    in_loop = [cast for cast in report.casts if cast.in_loop]
    assert [place.text for cast in in_loop for place in cast.users] == [
        "w = torch.mm(x, w.float())"
    ]
    assert any("made in each round" in hint.text for hint in report.hints)


def of_another_dtype(x: Tensor):
    with torch.autocast("cpu", dtype=torch.float64):
        return x @ x


def test_what_eager_would_warn_of_is_in_the_report() -> None:
    report = jit_amp.explain(of_another_dtype, torch.randn(2, 2))
    assert ["target dtype" in text for text in report.warnings] == [True]
    assert "off here" in report.rows[0].reason


@torch.no_grad()
def test_flops_are_those_of_pytorchs_counter() -> None:
    convolutions = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ConvTranspose2d(4, 2, 3))
    model, x = large()
    for each, given in ((model, x), (convolutions, torch.randn(2, 3, 9, 9))):
        with FlopCounterMode(display=False) as counter:
            each(given)
        report = jit_amp.explain(each, given)
        assert sum(row.flops for row in report.rows) == counter.get_total_flops()
        assert json.loads(report.to_json())["rows"][0]["precision"] in ("reduced", "float32")


def test_an_overflow_is_found_on_its_line() -> None:
    model, x = large()
    report = jit_amp.explain(model, x, numerics=True, timing=True)
    bad = [row for row in report.rows if row.numerics and row.numerics.overflows]
    assert bad[0].line.text.endswith("# overflows")
    assert any(hint.place == bad[0].line and "overflow" in hint.text for hint in report.hints)
    exact = [row for row in report.rows if row.numerics and row.precision == "float32"]
    assert all(row.numerics.introduced < 1e-5 for row in exact)
    assert sum(row.seconds for row in report.rows) > 0


class Small(nn.Module):
    """Gradients that are too small for float16 above the marked line, and too large below it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            small = self.first(x).relu_()
            y = small * 1e-10
            y = self.last(y) * 64.0
        return y.float().sum()


def noting(seen: dict[float, Tensor], scale: float) -> Any:
    """A forward hook that keeps the gradient of what the module gives."""

    def hook(module: nn.Module, arguments: Any, output: Tensor) -> None:
        output.register_hook(lambda gradient: seen.__setitem__(scale, gradient.clone()))

    return hook


def test_gradients_are_those_of_autograd_under_each_loss_scale() -> None:
    torch.manual_seed(0)
    model, x = Small(), torch.rand(2, 4)
    report = jit_amp.explain(model, (x,), gradients=True)
    assert report.gradients
    assert all(p.grad is None for p in model.parameters())

    seen: dict[str, dict[float, Tensor]] = {"first": {}, "last": {}}
    for scale in (1.0, 2.0**4, 2.0**8, 2.0**12, 2.0**16, 2.0**20, 2.0**24):
        hooks = [
            getattr(model, name).register_forward_hook(noting(by_scale, scale))
            for name, by_scale in seen.items()
        ]
        model.zero_grad()
        (model(x) * scale).backward()
        for hook in hooks:
            hook.remove()
    for name, by_scale in seen.items():
        [row] = [row for row in rows_of(report, "linear") if row.module == name]
        found = row.gradient
        assert found.dtype == "float16"
        assert found.elements == by_scale[1.0].numel()
        finite = {scale for scale, g in by_scale.items() if g.isfinite().all()}
        assert found.overflow_scale == min(set(by_scale) - finite, default=None)
        zeros = {scale: int((by_scale[scale] == 0).sum()) for scale in finite}
        assert found.underflows == zeros[1.0] - min(zeros.values())
        largest = max(by_scale[scale].abs().max().item() / scale for scale in finite)
        assert found.largest == pytest.approx(largest)
    texts = {hint.place.text: hint.text for hint in report.hints if "loss scale" in hint.text}
    assert "overflow float16 here first" in texts["y = self.last(y) * 64.0"]
    assert "underflow float16" in texts["small = self.first(x).relu_()"]
    assert "gradient" in str(report)
    assert json.loads(report.to_json())["rows"][0]["gradient"]["dtype"] == "float16"


def test_gradients_of_what_requires_none() -> None:
    model, x = large()
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"outside torch\.no_grad"):
        jit_amp.explain(model, (x,), gradients=True)


def test_weights_of_a_frozen_module() -> None:
    model, x = large()
    frozen = jit_amp.freeze(model, example_inputs=(x,))
    weights = jit_amp.explain(frozen, (x,)).weights
    [qkv] = [each for each in weights if each.shape == (24, 8)]
    assert (qkv.dtype, qkv.bytes) == ("float16", 24 * 8 * 2)
    assert qkv.users[0].file.endswith("linear.py")
    assert "float16" in str(jit_amp.explain(frozen, (x,))).split("weights: ")[1]
    assert jit_amp.explain(model, (x,)).weights == ()
    bf16 = jit_amp.script(nn.Linear(8, 24).eval(), autocast=torch.autocast("cpu", torch.bfloat16))
    for_server = jit_amp.freeze(bf16, example_inputs=(x,), target="server")
    assert (24, 8) in [each.shape for each in jit_amp.explain(for_server, (x,)).weights]


def test_nothing_of_the_object_changes() -> None:
    model = nn.BatchNorm1d(4).train()
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(3, 4)
    kept = x.clone()
    jit_amp.explain(model, (x,), timing=True, numerics=True)
    assert_same(dict(model.state_dict()), dict(before), "the module")
    assert_same(x, kept, "its input")


def test_what_has_been_scripted_traced_or_frozen_is_explained() -> None:
    model, x = large()
    eager, scripted = (jit_amp.explain(each, x).rows for each in (model, jit_amp.script(model)))
    assert [dtypes_of(row) for row in scripted] == [dtypes_of(row) for row in eager]
    with torch.no_grad():
        trace = jit_amp.explain(jit_amp.trace(model, (x,)), x)
        assert rows_of(trace, "linear")[0].policy == "lower"
        frozen = jit_amp.explain(jit_amp.freeze(model, example_inputs=(x,)), x)
        asking = jit_amp.explain(jit_amp.freeze(Asks().eval()), x)
        assert not jit_amp.explain(jit_amp.freeze(Asks().eval(), example_inputs=(x,)), x).casts
    assert not any(row.casts for row in frozen.rows)  # they are operators of their own
    assert [cast.at_run_time for cast in asking.casts] == [True, True]
    assert "freeze with example_inputs" in asking.hints[0].text
    assert asking.hints[0].place.text == "return x @ x.transpose(-2, -1)"


class Asks(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.transpose(-2, -1)


def refused(x: Tensor, on: bool):
    with torch.autocast("cpu", enabled=on):
        return x @ x


def test_a_refused_program_has_its_refusal_and_line() -> None:
    report = jit_amp.explain(refused, (torch.randn(2, 2), True))
    assert "JA101" in report.refusal
    assert report.refused_at and report.refused_at.text == 'with torch.autocast("cpu", enabled=on):'
    assert "JA101" in str(report)


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match="without `on`"):
        jit_amp.explain(refused, torch.randn(2, 2))
    with pytest.raises(TypeError, match="do not fit"):
        jit_amp.explain(refused, (torch.randn(2, 2), True, 3))


class _Dtypes(TorchDispatchMode):
    """The dtypes of results that eager's operators have, by overload."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.seen.append((func.name(), result.dtype))
        return result


def plain(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch.mm(x, y)
        b = torch.bmm(a.unsqueeze(0), x.unsqueeze(0))
        c = torch.addmm(x, y, y)
        return torch.mul(a, x), torch.cat([a, x]), b, c, torch.sigmoid(a)


@torch.no_grad()
def test_dtypes_are_those_that_a_dispatch_mode_sees_in_eager() -> None:
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    with _Dtypes() as mode:
        plain(x, y)
    ours = [
        (row.operator, getattr(torch, row.results[0]))
        for row in jit_amp.explain(plain, (x, y)).rows
    ]
    seen = [each for each in mode.seen if not each[0].startswith("aten::_to_copy")]
    assert ours == seen
    casts = sum(c.count for row in jit_amp.explain(plain, (x, y)).rows for c in row.casts)
    assert casts == len(mode.seen) - len(seen)


@pytest.mark.parametrize("width", [60, 200])
def test_the_table_fits_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    model, x = large()
    text = str(jit_amp.explain(model, x, numerics=True))
    assert "\x1b" not in text
    table = text.partition("hint:")[0]
    assert max(map(len, table.splitlines())) <= max(width, 100)


class Counts(nn.Module):
    """Writes to what is registered twice, to a weight, and by a number that it counts."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2))
        self.register_buffer("b", self.a)
        self.weight = nn.Parameter(torch.ones(2), requires_grad=False)
        self.number = 0

    def forward(self, x: Tensor):
        self.a.add_(1)
        assert bool((self.b == 1).all())
        self.weight.mul_(2)
        self.number += 1
        assert self.number == 1
        return x * self.weight


def test_each_run_begins_with_the_module_as_it_is() -> None:
    model = Counts()
    jit_amp.explain(model, torch.ones(2), timing=True)
    assert (model.a.sum(), model.weight.sum(), model.number) == (0, 2, 0)


def indexed(x: Tensor):
    i = torch.zeros([1], dtype=torch.long)
    i += 1
    c = torch.complex(x, x)
    c.mul_(2)
    y = x * 0.0
    y.uniform_()
    return x[i], c, y * 1.0, torch.empty([2]), torch.mm(x.unsqueeze(0).to_sparse(), x.unsqueeze(1))


def test_numerics_do_not_change_the_program() -> None:
    report = jit_amp.explain(indexed, torch.ones(2), numerics=True)
    *_, product = rows_of(report, "mul.Tensor")
    assert product.numerics and product.numerics.total == 0
    assert not rows_of(report, "empty")[0].numerics


@torch.jit.ignore
def inner_report(x):
    assert jit_amp.explain(twice, (x, x)).rows
    return x


def calls_python(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.mm(x, x)
        return inner_report(y.float()), torch.mm(x, x)


class Turns(nn.Module):
    """What PyTorch's deepcopy does not take, scripted."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.factor = 0, 2j

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


def test_a_scripted_part_of_what_python_runs_stays_as_it_is() -> None:
    scripted = jit_amp.script(Turns())
    report = jit_amp.explain(nn.Sequential(nn.ReLU(), scripted), torch.rand(2), timing=True)
    assert report.rows and not report.warnings
    assert scripted.calls == 0


def test_a_scripted_part_that_is_named_twice_is_copied_once() -> None:
    part = jit_amp.script(nn.Linear(2, 2))
    model = nn.Sequential(part, nn.ReLU())
    seen: list[bool] = []

    def step(x: Tensor) -> Tensor:
        seen.append(model[0] is part)
        return model(x)

    jit_amp.explain(step, torch.rand(1, 2))
    assert seen and all(seen)


def test_explain_inside_a_program_that_is_explained() -> None:
    report = jit_amp.explain(calls_python, torch.ones(2, 2))
    casts = [sum(c.count for c in row.casts) for row in rows_of(report, "mm")]
    assert len(casts) == 2
    assert min(casts) > 0


def for_its_device(x: Tensor, d: str):
    with torch.autocast(d, dtype=torch.bfloat16):
        return x @ x


OF_TEXT = torch.jit.CompilationUnit("""
def either(x: Tensor, twice: bool) -> Tensor:
    if twice:
        y = x * 2
    else:
        y = x + 1
    return y
""").either


def calls_of_text(x: Tensor, twice: bool):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.relu(OF_TEXT(x, twice)) @ x


def test_a_branch_of_code_without_a_file_is_no_cast() -> None:
    """What is a cast has jit_amp's own mark, and not the name of a file that there is not."""
    report = jit_amp.explain(jit_amp.script(calls_of_text), (torch.ones(2, 2), True))
    assert [[place.text.strip() for place in cast.users] for cast in report.casts] == [
        ["return torch.relu(OF_TEXT(x, twice)) @ x"]
    ] * len(report.casts)
    assert report.casts
    assert not any(cast.at_run_time for cast in report.casts)


def test_a_scope_whose_device_is_known_at_run_time() -> None:
    [row] = jit_amp.explain(for_its_device, (torch.ones(2, 2), "cpu")).rows
    assert (row.policy, row.results) == ("lower", ("bfloat16",))
    assert row.reason.startswith("in CPU's list")


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(self.linear(x))


def test_casts_that_eagers_cache_has_are_not_made_again() -> None:
    first, second = jit_amp.explain(Shared(), torch.ones(1, 2)).rows
    assert first.casts
    assert not second.casts
    assert (first.precision, second.precision) == ("reduced", "reduced")


def attends(q: Tensor):
    return F.scaled_dot_product_attention(q, q, q)


def test_flops_of_what_has_no_batch() -> None:
    [row] = jit_amp.explain(attends, torch.ones(2, 3, 4)).rows
    assert row.flops == 2 * 2 * 3 * 3 * (4 + 4)
    one, many = (
        jit_amp.explain(nn.Conv2d(3, 4, 3), torch.ones(shape)).rows[-1].flops
        for shape in ((3, 8, 8), (1, 3, 8, 8))
    )
    assert one == many


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    model = nn.TransformerEncoder(layer, 1).eval()
    mask = torch.tensor([[False, False, True], [False, False, False]])
    with torch.no_grad():
        given = {"src": torch.randn(2, 3, 4), "src_key_padding_mask": mask}
        assert jit_amp.explain(model, given, numerics=True).rows


# The page.

FOREIGN = "</script><script>document.title='taken over'</script><img src=x onerror=alert(1)>"
SOURCE = f'''
class Program(torch.nn.Module):
    """{FOREIGN}"""

    def __init__(self):
        super().__init__()
        self.add_module("a<b>&", torch.nn.Linear(4, 4))
        self.inner = getattr(self, "a<b>&")

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):  # {FOREIGN}
            return self.inner(x)
'''


def browser_at(path: Path, width: int = 1300) -> Any:
    selenium = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no chromium and chromedriver on the PATH: scripts/browser installs them")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},900",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = selenium.ChromeService(driver, env=unsanitized())
    browser = selenium.Chrome(options=options, service=service)
    browser.get(path.as_uri())
    return browser


def requests_of(browser: Any) -> list[str]:
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    return [url for url in urls if not url.startswith(("file:", "data:"))]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    model, x = large()
    report = jit_amp.explain(model, x, numerics=True, timing=True)
    report.to_html(tmp_path / "page.html")
    browser = browser_at(tmp_path / "page.html")
    yield browser
    assert not [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
    assert requests_of(browser) == []
    browser.quit()


def find(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements("css selector", selector))


def line_of(browser: Any, text: str) -> Any:
    return next(b for b in find(browser, "button.line") if text in b.text)


def test_a_click_or_enter_opens_a_line(page: Any) -> None:
    line = line_of(page, "self.qkv(x)")
    line.click()
    [row] = [r for r in find(page, ".details tr") if "linear" in r.text]
    assert "qkv" in row.text
    assert "3 x float32 to float16" in row.text
    assert "in CPU's list" in row.text
    assert line.get_attribute("aria-expanded") == "true"
    line.send_keys("\n")
    assert find(page, ".details") == []
    assert page.execute_script("return location.hash").startswith("#f0L")


def test_filters_and_search(page: Any) -> None:
    total = page.execute_script("return rows.length")
    find(page, "#search")[0].send_keys("softmax")
    assert find(page, "#found")[0].text == f"1 of {total} operators"
    find(page, "#search")[0].clear()
    find(page, "#search")[0].send_keys(" ")
    page.execute_script("byId('precision').value = 'float32'; filter()")
    kept = page.execute_script("return rows.filter((r) => r.precision == 'float32').length")
    assert find(page, "#found")[0].text == f"{kept} of {total} operators"
    overflows = line_of(page, "# overflows").find_element("xpath", "..")
    assert "out" in overflows.get_attribute("class")


def test_keyboard_deep_link_and_dark(page: Any) -> None:
    body = find(page, "body")[0]
    body.send_keys("j")
    body.send_keys("j")
    assert page.switch_to.active_element.get_attribute("class") == "line"
    page.switch_to.active_element.send_keys("/")
    page.execute_script("document.activeElement.blur()")
    body.send_keys("/")
    assert page.switch_to.active_element.get_attribute("id") == "search"
    page.execute_script("location.hash = '#r0'")
    time.sleep(0.2)
    assert find(page, "#r0")
    before = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    find(page, "#theme")[0].click()
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") != before


def test_without_what_a_page_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = jit_amp.explain(twice, (torch.ones(2, 2), torch.ones(2, 2)))
    monkeypatch.setitem(sys.modules, "pygments", None)
    for room, name in (("_base", "html"), ("_explain", "page")):
        monkeypatch.delitem(sys.modules, f"jit_amp.{room}.{name}", raising=False)
        monkeypatch.delattr(sys.modules[f"jit_amp.{room}"], name, raising=False)
    with pytest.raises(ImportError, match=r"pip install jit_amp\[explain\]"):
        report.to_html(tmp_path / "page.html")
    assert report._repr_html_() is None


def test_foreign_text_stays_text(tmp_path: Path) -> None:
    module = imported("import torch\nfrom torch import Tensor\n" + SOURCE, tmp_path / "a<i>b.py")
    report = jit_amp.explain(module.Program().eval(), torch.randn(2, 4))
    report.to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert FOREIGN not in text
    assert text.count("<script") == 2
    assert "<i>b" not in (report._repr_html_() or "<i>b")
    browser = browser_at(tmp_path / "page.html")
    assert browser.title.startswith("Program")
    assert not find(browser, "img")
    assert "a<i>b.py" in find(browser, "body")[0].text
    browser.quit()


def test_a_page_of_many_operators(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Only what is looked at is made: the page stays fluid. With --sweep it has 20,000."""
    calls = 50 if request.config.getoption("--sweep") else 10
    body = "\n".join(f"        x = torch.mm(x, y) + {i % 7}" for i in range(200))
    source = (
        "import torch\nfrom torch import Tensor\n\n\ndef part(x: Tensor, y: Tensor):\n"
        f"    with torch.autocast('cpu', dtype=torch.bfloat16):\n{body}\n    return x\n\n\n"
        "def program(x: Tensor, y: Tensor):\n"
    )
    source += "    x = part(x, y)\n" * calls + "    return x\n"
    program = imported(source, tmp_path / "large.py").program
    report = jit_amp.explain(program, (torch.eye(2), torch.eye(2) / 8))
    assert len(report.rows) == 400 * calls
    report.to_html(tmp_path / "page.html")
    browser = browser_at(tmp_path / "page.html")
    lines = {line.text.split()[0]: line for line in find(browser, "button.line")}
    lines["215"].click()  # a call: 400 operators
    assert len(find(browser, ".details tr")) == 1 + 100
    find(browser, ".more")[0].click()
    assert len(find(browser, ".details tr")) == 1 + 200
    elements = browser.execute_script("return document.querySelectorAll('*').length")
    took = browser.execute_script(
        "const t = performance.timing, begin = performance.now(); filter();"
        "return [t.domContentLoadedEventEnd - t.navigationStart, performance.now() - begin]"
    )
    browser.quit()
    print(f"opened in {took[0]:.0f} ms, filtered in {took[1]:.0f} ms")
    assert elements < 10_000


def every_policy(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = torch.mm(x, y)  # lower
        wide = torch.cdist(low, low)  # fp32
        both = torch.stack([low, wide.to(torch.bfloat16)])  # promote
        same = torch.mul(low, 2.0)  # untouched
        inside = torch.linalg.multi_dot([x, y, x])  # lower, inside
    return low, wide, both, same, inside, torch.mm(x, y)  # outside


def test_pages_of_every_policy_and_of_a_refusal(tmp_path: Path) -> None:
    inputs = torch.randn(4, 4), torch.randn(4, 4)
    report = jit_amp.explain(every_policy, inputs)
    assert {row.policy for row in report.rows} >= {"lower", "fp32", "promote", "untouched", ""}
    report.to_html(tmp_path / "page.html")
    browser = browser_at(tmp_path / "page.html")
    assert line_of(browser, "# lower")
    assert find(browser, "li.float32 button")
    browser.quit()
    jit_amp.explain(refused, (*inputs[:1], True)).to_html(tmp_path / "refused.html")
    browser = browser_at(tmp_path / "refused.html")
    assert "JA101" in find(browser, "pre.refusal")[0].text
    assert "enabled=on" in find(browser, "li.refused")[0].text
    assert not [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
    browser.quit()


class NeverScripts(nn.Module):
    """What TorchScript has no types for, with a counter that a run moves."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(4, 4), nn.Dropout(0.5)
        self.register_buffer("count", torch.zeros(1))
        self.calls: list[int] = []

    def forward(self, *inputs: Tensor, **more: Tensor):
        self.count += 1
        self.calls.append(len(inputs))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(self.drop(inputs[0]))
        return {"y": y, "z": y.float() @ inputs[0].t()}

    def other(self, *inputs: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            return inputs[0] @ inputs[0].t()


def test_what_cannot_be_scripted_is_explained_as_eager_runs_it() -> None:
    model, x = NeverScripts(), torch.rand(2, 4)
    random = torch.get_rng_state()
    report = jit_amp.explain(model, (x,))
    assert [row.results for row in report.rows if row.operator == "aten::linear"] == [("bfloat16",)]
    assert "torch.jit.script does not compile it: " in str(report) and report.not_compiled
    assert json.loads(report.to_json())["not_compiled"] == report.not_compiled
    assert torch.equal(torch.get_rng_state(), random)
    assert (model.count.item(), model.calls) == (0, [])
    other = jit_amp.explain(model, (x,), method="other")
    assert [row.results for row in other.rows if row.operator == "aten::matmul"] == [("float16",)]
    assert not jit_amp.explain(nn.Linear(4, 4), (x,)).not_compiled


# A model with layers: one page, looked at once.

LAYERS = """
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.up(x)) * 2


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x: Tensor):
        before = x * 1.5
        with torch.autocast("cpu", dtype=torch.float16):
            for layer in self.layers:
                before = layer(before)
            large = (before * 10).exp()
        after = x.softmax(-1)
        return after, large
"""


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("layered")
    source = "import torch\nfrom torch import Tensor\n" + LAYERS
    model = imported(source, folder / "layers.py").Layers()
    report = jit_amp.explain(model, torch.rand(2, 4), timing=True, numerics=True, gradients=True)
    report.to_html(folder / "page.html")
    browser = browser_at(folder / "page.html")
    browser.folder, browser.report = folder, report
    yield browser
    browser.quit()


def own_time(browser: Any, text: str) -> tuple[str, str]:
    """What a line shows of its own time, and of that with calls."""
    line = line_of(browser, text)
    return tuple(line.find_element("css selector", each).text for each in (".heat", ".calls"))


def test_the_page_begins_with_a_verdict_and_a_change(layered: Any) -> None:
    assert "values overflow at layers.py" in find(layered, ".verdict .first")[0].text
    assert "large = (before * 10).exp()" in find(layered, "#advice")[0].text
    assert "Layers(x: float32[2, 4])" in layered.title
    assert "Where gradients overflow" in find(layered, ".summary")[0].text


def test_a_line_has_its_own_time_and_that_of_its_calls(layered: Any) -> None:
    own, inclusive = own_time(layered, "before = layer(before)")
    assert (own, bool(inclusive)) == ("", True)
    own, inclusive = own_time(layered, "before = x * 1.5")
    assert "%" in own and not inclusive
    tint = line_of(layered, "before = x * 1.5").find_element("xpath", "..").get_attribute("class")
    assert tint == "float32"


def test_the_bar_of_a_scope_covers_its_lines_alone(layered: Any) -> None:
    bars = {
        text: len(line_of(layered, text).find_elements("css selector", ".bar"))
        for text in ("before = x * 1.5", "before = layer(before)", "large = ", "after = x.soft")
    }
    assert list(bars.values()) == [0, 1, 1, 0]


def test_the_tree_folds_layers_opens_a_level_and_filters(layered: Any) -> None:
    [names] = [find(layered, "nav .pick")]
    assert [name.text.split("\n")[0] for name in names] == ["layers"]
    find(layered, "nav .open")[0].click()
    folded = find(layered, "nav .pick")[1]
    assert "0\u20132 (3 x)" in folded.text
    folded.click()
    assert find(layered, "#module")[0].text.startswith("layers.0 and 2 more")
    assert "out" in line_of(layered, "after = x.soft").find_element("xpath", "..").get_attribute(
        "class"
    )
    find(layered, "#module")[0].click()
    assert "out" not in line_of(layered, "after = x.soft").find_element(
        "xpath", ".."
    ).get_attribute("class")


def test_repeated_layers_are_one_row_that_unfolds(layered: Any) -> None:
    line = line_of(layered, "return self.norm(self.up(x))")
    line.click()
    item = line.find_element("xpath", "..")
    rows = item.find_elements("css selector", ".details tr")
    names = [row.text.split()[0] for row in rows[1:]]
    assert names == ["linear", "layer_norm", "mul.Tensor", "linear"]  # the first one takes float32
    rows[2].find_element("css selector", "button.each").click()
    assert len(item.find_elements("css selector", ".details tr")) == 1 + 4 + 2
    line.click()


def test_own_files_come_first_and_libraries_are_folded(layered: Any) -> None:
    libraries = find(layered, "details.library")
    assert libraries and not any(each.get_attribute("open") for each in libraries)
    order = [each.get_attribute("aria-label") for each in find(layered, ".below section")]
    assert order[0].endswith("layers.py")


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(layered: Any, width: int) -> None:
    line = line_of(layered, "return self.norm(self.up(x))")
    layered.execute_script("arguments[0].click()", line)
    widest = at_width(layered, width)
    layered.execute_script("arguments[0].click()", line)
    assert widest <= width


def at_width(browser: Any, width: int) -> int:
    """How wide the page is in a window of that width."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        return int(browser.execute_script("return document.documentElement.scrollWidth"))
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_line_has_milliseconds_beside_its_share(layered: Any) -> None:
    own, _ = own_time(layered, "before = x * 1.5")
    assert re.fullmatch(r"\d+\.\d+, \d+\.\d %", own), own
    assert "own time, ms" in find(layered, ".heads")[0].text


def test_operators_that_never_ran_are_left_out(tmp_path: Path) -> None:
    source = """
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if x.dim() == 5:
                x = x.softmax(-1)
            return x @ x
    """
    source = f"import torch\nfrom torch import Tensor\nclass Rare(torch.nn.Module):{source}"
    model = imported(source, tmp_path / "rare.py").Rare()
    jit_amp.explain(model, torch.rand(4, 4)).to_html(tmp_path / "page.html")
    browser = browser_at(tmp_path / "page.html")
    assert browser.execute_script("return rows.map((r) => r.op)") == ["matmul"]
    assert not find(line_of_text(browser, "x.softmax"), "button")
    browser.quit()


def line_of_text(browser: Any, text: str) -> Any:
    return next(item for item in find(browser, "ol > li") if text in item.text)


def test_the_command_is_in_the_title(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(f"import torch\nfrom torch import Tensor\n{LAYERS}")
    command = "explain net:Layers --input float32[2,4] --html page.html"
    subprocess.run(
        [sys.executable, "-m", "jit_amp", *command.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        check=True,
        capture_output=True,
    )
    browser = browser_at(tmp_path / "page.html")
    assert "Layers(x: float32[2, 4])" in browser.title
    assert browser.title.endswith(
        "jit-amp explain net:Layers --input 'float32[2,4]' --html page.html"
    )
    browser.quit()


def test_the_page_of_two_reports_has_the_numbers_and_lines_of_both(layered: Any) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        after = jit_amp.explain(nn.Linear(4, 4), torch.rand(2, 4), numerics=True)
    layered.report.compare(after).to_html(layered.folder / "compared.html")
    browser = browser_at(layered.folder / "compared.html")
    numbers = [row.text for row in find(browser, "#numbers tr")]
    assert numbers[0] == "before after"
    assert any(re.fullmatch(r"overflows \d+ 0", row) for row in numbers), numbers
    lines = "\n".join(row.text for row in find(browser, "#lines tr"))
    assert "large = (before * 10).exp()" in lines
    assert at_width(browser, 390) <= 390 and at_width(browser, 1280) <= 1280
    browser.quit()


def test_in_a_notebook_the_page_is_folded_below_a_summary(layered: Any) -> None:
    (layered.folder / "notebook.html").write_text(layered.report._repr_html_())
    browser = browser_at(layered.folder / "notebook.html")
    assert "values overflow" in find(browser, "p")[0].text
    [frame] = find(browser, "iframe")
    assert not frame.is_displayed()
    find(browser, "summary")[0].click()
    assert frame.is_displayed()
    browser.switch_to.frame(frame)
    assert line_of(browser, "large = ")
    browser.quit()
