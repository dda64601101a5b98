"""A plugin: the table of the sweep at the end of the run, of several processes too (pytest -n)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

FORMS = ("scripted", "frozen", "traced", "explained")
OUTCOMES = ("", "right", "refused", "differs")  # from the best; "" is not to be had at all

# By "device, dtype" and operator: by form the worst outcome, and whether autocast changes anything.
ROWS: dict[str, dict[str, dict[str, Any]]] = {}
REFUSED: dict[str, str] = {}


def note(scope: str, operator: str, form: str, outcome: str) -> None:
    """Notes the outcome of one call, of which the worst stays."""
    row = ROWS.setdefault(scope, {}).setdefault(operator, dict.fromkeys(FORMS, ""))
    row[form] = max(row[form], outcome, key=OUTCOMES.index)


def note_change(scope: str, operator: str) -> None:
    """Notes that autocast changes a dtype of what the operator returns."""
    ROWS[scope][operator]["changed"] = True


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["sweep"] = [ROWS, REFUSED]
    elif path := session.config.getoption("--sweep-results"):
        path.write_text(json.dumps([ROWS, REFUSED]))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes over what a process of pytest-xdist has noted."""
    add(*getattr(node, "workeroutput", {}).get("sweep", ({}, {})))


def add(rows: dict[str, dict[str, dict[str, Any]]], refused: dict[str, str]) -> None:
    """Takes over what another run has noted."""
    REFUSED.update(refused)
    for scope, operators in rows.items():
        ROWS.setdefault(scope, {}).update(operators)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not ROWS:
        return
    terminalreporter.section("sweep over OpInfo: operators")
    write_table(terminalreporter.write_line)


def write_table(write: Callable[[str], Any]) -> None:
    for scope, rows in sorted(ROWS.items()):
        for what, some in (
            ("all", list(rows.values())),
            ("that autocast changes", [row for row in rows.values() if row.get("changed")]),
        ):
            write(f"{scope}, {what}: {len(some)}")
            for form in FORMS:
                counts = Counter(row[form] for row in some)
                write(
                    f"  {form:9} {counts['right']:4} right {counts['refused']:4} refused "
                    f"{counts['differs']:4} different {counts['']:4} left out"
                )
    write("left out: not by PyTorch either; without --sweep also what autocast does not change")
    for operator, why in sorted(REFUSED.items()):
        write(f"refused in export: {operator}: {why}")
