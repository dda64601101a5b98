"""Differences that are known and not yet mended: each matched as narrowly as it can be.

A campaign counts them and goes on. An entry goes when what it stands for is mended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .oracle import Outcome
from .programs import Program


@dataclass(frozen=True)
class Known:
    what: str
    kinds: tuple[str, ...]
    source: str  # a pattern that the program's source has, over its lines
    detail: str = ""  # and one that the outcome's detail has


KNOWN: list[Known] = []


def known(program: Program, outcome: Outcome) -> str | None:
    """What is known of a difference, if anything is."""
    for issue in KNOWN:
        if (
            outcome.kind in issue.kinds
            and re.search(issue.source, program.source)
            and re.search(issue.detail, outcome.detail)
        ):
            return issue.what
    return None
