"""jit_amp.AutocastError, as Python sees it: what its text says is in attributes too."""

from __future__ import annotations

import os
import re

from jit_amp._C import AutocastError as AutocastError

_CODE = re.compile(r"\[(JA\d+)\]")
_PLACE = re.compile(r'^ *File "(.+?)", line (\d+)', re.MULTILINE)


def _code(self: AutocastError) -> str:
    """The code, such as ``"JA101"``; empty where the text has none."""
    found = _CODE.search(str(self))
    return found[1] if found else ""


def _file(self: AutocastError) -> str | None:
    """The file of the line that is refused; None where no line is known."""
    found = _PLACE.search(str(self))
    return found[1] if found else None


def _line(self: AutocastError) -> int | None:
    """The number of the line that is refused; None where no line is known."""
    found = _PLACE.search(str(self))
    return int(found[2]) if found else None


def _repr(self: AutocastError) -> str:
    first = next(iter(str(self).splitlines()), "")
    what = _CODE.sub("", first).removeprefix("jit_amp: ").strip()
    at = f"{os.path.basename(self.file)}:{self.line}" if self.file else ""
    return f"AutocastError({', '.join(filter(None, (self.code, at, repr(what))))})"


AutocastError.__module__ = "jit_amp"
AutocastError.__doc__ = """jit_amp cannot do what eager does, and refuses the program.

The text says what is not supported, shows the line, and says what to write instead. ``code``, such
as ``"JA101"``, is what ``jit-amp errors`` explains; ``file`` and ``line`` are those of the line, or
None.
"""
for _name, _get in (("code", _code), ("file", _file), ("line", _line)):
    setattr(AutocastError, _name, property(_get, doc=_get.__doc__))
AutocastError.__repr__ = _repr  # type: ignore[assignment, method-assign]
