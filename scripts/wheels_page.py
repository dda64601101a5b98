"""Writes FOLDER/index.html, for `pip install --find-links`: a link to each wheel, and its hash.

    wheels_page.py FOLDER [URL]

URL is where the wheels will lie, if that is not beside the page.
"""

from __future__ import annotations

import hashlib
import html
import sys
from pathlib import Path


def main(folder: str, base: str = "") -> None:
    lines = ["<!DOCTYPE html>", "<title>jit_amp</title>"]
    for path in sorted(p for p in Path(folder).iterdir() if p.name.endswith((".whl", ".tar.gz"))):
        name, digest = html.escape(path.name), hashlib.sha256(path.read_bytes()).hexdigest()
        address = f"{base.rstrip('/')}/{name}" if base else name
        lines.append(f'<a href="{address}#sha256={digest}">{name}</a><br>')
    Path(folder, "index.html").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main(*sys.argv[1:])
