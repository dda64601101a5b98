"""Counts of the sweep, printed at the end of the run."""

from __future__ import annotations

from collections import Counter

import pytest

TALLY: Counter[str] = Counter()
REFUSED: dict[str, str] = {}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TALLY:
        terminalreporter.section("sweep over OpInfo")
        for name, count in sorted(TALLY.items()):
            terminalreporter.write_line(f"{name}: {count}")
        if REFUSED:
            terminalreporter.write_line("refused in export:")
            for operator, why in sorted(REFUSED.items()):
                terminalreporter.write_line(f"  {operator}: {why}")
