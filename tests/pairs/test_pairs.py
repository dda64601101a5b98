"""Modules of features through doors: eager and jit_amp agree. scripts/pairs runs all pairs."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzz.workers import environment
from stock import Stock
from torch import nn

import jit_amp

from . import campaign, plan
from .campaign import Campaign, Found, Log, Worker, reduced, same, to_line, write
from .check import check, loaded, outcome, pytorchs, without_scopes
from .compose import Composed, compose
from .doors import CARRIES, MAKES, Door, PyTorch, doors
from .features import FEATURES
from .plan import Item
from .planted import PLANTED
from .undone import FAULTS, ROOT, Fault

MODULES = 5  # of each two doors; scripts/pairs takes all
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_eager_and_jit_amp_agree_at_each_two_doors(
    part: int,
) -> None:
    """Workers check them, so that a crash is one program's."""
    worker = Worker()
    differ, verdicts = [], Counter[str]()
    for item in plan.of_door_pairs(MODULES, seed=0)[part::PARTS]:
        answer = worker.ask(to_line(item))
        verdicts[answer["verdict"]] += 1
        if answer["verdict"] == "differs":
            differ.append(f"{item.door}: {answer['kind']}: {item.features}: {answer['detail']}")
    worker.stop()
    assert not differ, "scripts/pairs makes them small\n" + "\n".join(differ)
    # refused is only what has a feature that is to be refused
    assert verdicts["agrees"] > 0.9 * (verdicts.total() - verdicts["refused"]), verdicts
    assert verdicts["agrees"] > 0.6 * verdicts.total(), verdicts


@pytest.mark.parametrize("count", [1, 2, plan.WIDTH + 1, 50, len(FEATURES)])
def test_rows_bring_each_two_together(count: int) -> None:
    names = tuple(f"n{i}" for i in range(count))
    met = {pair for row in plan.rows(names) for pair in plan.pairs_of(row)}
    assert met >= set(plan.pairs_of(names))
    assert all(len(row) <= plan.WIDTH for row in plan.rows(names))


def test_modules_for_each_two_doors() -> None:
    items = plan.of_door_pairs(MODULES, seed=1)
    found = Counter(pair for item in items for pair in itertools.combinations(item.door.values, 2))
    wanted = {pair for door in doors() for pair in itertools.combinations(door.values, 2)}
    assert wanted and all(found[pair] >= MODULES for pair in wanted)


def test_a_seed_makes_the_same_module_in_every_process() -> None:
    names = ("LSTM", "cache list", "scope in a loop", "shared submodule")
    command = f"from pairs.compose import compose; print(compose({names}, 3).source, end='')"
    made = subprocess.run(
        [sys.executable, "-c", command],
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    assert made.stdout == compose(names, 3).source != compose(names, 4).source


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FEATURES)
def test_eager_runs_each_feature(name: str) -> None:
    with loaded(compose((name,), 0).source) as module:
        made = module.Program().train(name == "training mode")
        made(*module.inputs())
        module.Outer(made)(*module.inputs())


# What is noticed.

PLAIN = compose(("list attribute", "list result"), 0)


def test_nothing_is_noticed_where_nothing_is_planted() -> None:
    for make, carry in (*((m, "as it is") for m in MAKES), *(("exact", c) for c in CARRIES)):
        call = "no_grad" if carry == "lite" or make == "optimize_for_inference" else "plain"
        assert check(PLAIN, Door(make, carry, call)).verdict == "agrees", (make, carry)


def test_pytorch_alone_does_what_excuses_jit_amp() -> None:
    """A difference is PyTorch's where PyTorch differs alike: so it must not at every program."""
    bare = Composed(without_scopes(PLAIN.source), PLAIN.features, PLAIN.seed)
    differ = []
    before = torch._C._jit_set_autocast_mode(False)
    try:
        for door in {pytorchs(door) for door in doors()}:
            found = outcome(bare, door, PyTorch())
            known = "requires_grad" if door.call == "vmap" else ""  # its executor forgets it
            if found.verdict != "agrees" and found.kind != known:
                differ.append(f"{door}: {found.kind}: {found.detail}")
    finally:
        torch._C._jit_set_autocast_mode(before)
    assert not differ


class Planted(nn.Module):
    """A scripted module whose results are changed."""

    def __init__(self, scripted: Any, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self.scripted, self.change = scripted, change

    def named_parameters(self, *options: Any, **more: Any) -> Any:
        return self.scripted.named_parameters(*options, **more)

    def forward(self, *arguments: Any) -> Any:
        return [self.change(each) for each in self.scripted(*arguments)]


def random_drawn(result: Any) -> Any:
    torch.rand(1)
    return result


def scope_left_on(result: Any) -> Any:
    torch.set_autocast_enabled("cpu", not torch.is_autocast_enabled("cpu"))
    return result


def printed(result: Any) -> Any:
    print("planted")
    return result


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda t: t + 0.01, "values"),
        (lambda t: t.double(), "dtype"),
        (lambda t: t.detach(), "requires_grad"),
        (random_drawn, "values"),
        (scope_left_on, "state of the thread"),
        (printed, "prints"),
    ],
)
def test_a_result_is_noticed(
    change: Callable[[Any], Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = jit_amp.script
    monkeypatch.setattr(jit_amp, "script", lambda made: Planted(script(made), change))
    try:
        found = check(PLAIN, Door("script"))
    finally:
        torch.set_autocast_enabled("cpu", False)
    assert (found.verdict, found.kind) == ("differs", kind), found


def buffer_moved(module: nn.Module) -> None:
    for buffer in module.buffers():
        buffer += 1


def frozen_weight(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        module.requires_grad_(False)


def attribute_changed(module: nn.Module) -> None:
    if hasattr(module, "scales"):
        module.scales.append(1.0)


def random_moved(module: nn.Module) -> None:
    torch.rand(1)


def switched_off(module: nn.Module) -> None:
    torch._C._set_mkldnn_enabled(False)


def prints(module: nn.Module) -> None:
    print("planted")


@pytest.mark.parametrize(
    "touch", [buffer_moved, frozen_weight, attribute_changed, random_moved, switched_off, prints]
)
def test_what_is_touched_is_noticed(
    touch: Callable[[nn.Module], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compose(("buffer written", "list attribute"), 5)
    script = jit_amp.script

    def touching(module: nn.Module) -> Any:
        for each in module.modules():
            touch(each)
        return script(module)

    monkeypatch.setattr(jit_amp, "script", touching)
    try:
        found = check(program, Door("script"))
    finally:
        torch._C._set_mkldnn_enabled(True)
    assert (found.verdict, found.kind) == ("differs", "touched"), found


def test_a_write_to_the_examples_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    freeze = jit_amp.freeze

    def writing(module: Any, names: Any, *, example_inputs: Any, **options: Any) -> Any:
        frozen = freeze(module, names, example_inputs=example_inputs, **options)
        example_inputs[0].mul_(0.5)
        return frozen

    monkeypatch.setattr(jit_amp, "freeze", writing)
    found = check(PLAIN, Door("exact, examples"))
    assert (found.verdict, found.kind) == ("differs", "touched"), found


def test_an_artefact_that_needs_jit_amp_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lowered(module: Any, **options: Any) -> Any:
        return jit_amp.script(module)

    monkeypatch.setattr(jit_amp, "freeze", lowered)
    found = check(PLAIN, Door("exact", "elsewhere"))
    assert found.verdict == "differs", found


def test_the_process_elsewhere_says_what_was_raised() -> None:
    with Stock([]) as stock, pytest.raises(RuntimeError, match="reader failed"):
        stock.load(b"no file")


def test_what_differs_is_made_small_and_written_as_a_test(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = jit_amp.script

    def wrong(module: Any) -> Any:
        for each in module.modules():
            if hasattr(each, "calls"):
                each.calls = 5
        return script(module)

    monkeypatch.setattr(jit_amp, "script", wrong)
    item = Item(("counter", "list result", "forward that calls methods"), 0, Door("script"))
    found = check(item.program(), item.door)
    assert found.verdict == "differs"
    small = reduced(item, found.kind, same(found.kind))
    assert small.features == ("counter",)
    path = write(tmp_path, small, small.program().source, found)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        env={**environment(), "PYTHONWARNINGS": "ignore"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "1 passed" in done.stdout, done.stdout  # without what is planted


def test_a_campaign_goes_on_where_it_ended(tmp_path: Path) -> None:
    item = Item(("counter",), 1, Door("script"))
    found = Found("values", "script", frozenset({"counter"}), "a path", 7)
    path = tmp_path / "log.jsonl"
    Log(path, resume=False).add(to_line(item), {"verdict": "differs", "kind": "values"}, found)
    again = Campaign(tmp_path, 1, 60.0, log=Log(path, resume=True))
    again.run(iter([item]))
    assert again.tally.found == [found] and again.tally.verdicts == {"differs": 1}
    assert len(path.read_text().splitlines()) == 2  # it did not run again
    path.write_text(path.read_text().replace('"', '"other ', 1))
    with pytest.raises(ValueError, match="is of other code"):
        Log(path, resume=True)


def test_code_is_what_the_sources_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder that is no repository, and without what a build makes there."""
    monkeypatch.setattr(campaign, "ROOT", tmp_path)
    (tmp_path / "jit_amp").mkdir()
    source = tmp_path / "jit_amp" / "source.py"
    source.write_text("x = 1\n")
    before = campaign.code_hash("jit_amp")
    (tmp_path / "jit_amp" / "_C.so").write_bytes(b"built")
    assert campaign.code_hash("jit_amp") == before
    source.write_text("x = 2\n")
    assert campaign.code_hash("jit_amp") != before
    source.rename(source.with_name("other.py"))
    assert campaign.code_hash("jit_amp") != before


def test_a_refusal_is_right_only_where_a_feature_says_so() -> None:
    program = compose(("ignored method", "scope of bfloat16"), 0)
    assert check(program, Door("exact")).verdict == "refused"
    other = Composed(program.source, ("scope of bfloat16",), 0)
    assert check(other, Door("exact")).kind.startswith("refused")


def test_each_room_has_a_mutation() -> None:
    """The folders of csrc, and those of its passes by their own names."""
    csrc = ROOT / "csrc"
    rooms = {f"{path.relative_to(csrc)}" for path in csrc.rglob("*") if any(path.glob("*.h"))}
    assert {each.name.partition(":")[0] for each in PLANTED} == {
        room.removeprefix("passes/") for room in rooms
    }


@pytest.mark.parametrize("fault", [*FAULTS, *PLANTED], ids=lambda fault: fault.name)
def test_a_fault_can_be_put_back(fault: Fault) -> None:
    installed = Path(jit_amp.__file__).parents[1]  # which need not be the checkout
    for edit in fault.edits:
        root = installed if edit.file.startswith("jit_amp/") else ROOT
        assert (root / edit.file).read_text().count(edit.now) == 1, edit
    for name in fault.features:
        assert any(feature.startswith(name) for feature in FEATURES), name
    assert set(fault.makes) <= set(MAKES)
