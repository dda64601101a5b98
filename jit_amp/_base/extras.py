"""What jit_amp needs beside torch, in one place: an import that fails says what to install."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def for_pages() -> Iterator[None]:
    """Around the import of what writes a page.

    Raises:
        ImportError: Jinja2 or Pygments is not there.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        text = f"a page needs {error.name}: pip install jit_amp[explain]"
        raise ImportError(text) from error
