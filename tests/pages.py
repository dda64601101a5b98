"""The headings of a page, as links name them."""

from __future__ import annotations

import re
from pathlib import Path


def slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def section(page: Path, anchor: str) -> str:
    """What stands under a heading: to the next one that is not below it."""
    text = page.read_text()
    if not anchor:
        return text
    headings = list(re.finditer(r"^(#+) (.+)$", text, re.MULTILINE))
    found = [i for i, each in enumerate(headings) if slug(each[2]) == anchor]
    assert found, f"{page.name} has no heading {anchor}"
    at = found[0]
    depth = len(headings[at][1])
    after = [each.start() for each in headings[at + 1 :] if len(each[1]) <= depth]
    return text[headings[at].start() : after[0] if after else len(text)]
