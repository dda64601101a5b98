"""The lines of source files, by names that may be anybody's.

A file that was loaded, and JSON that was read, may name any file of this machine: one with
passwords, whose lines a page would publish, or a pipe, which never ends. So only regular files are
opened, below the folders from which Python imports, and those of modules that it has imported.
"""

from __future__ import annotations

import linecache
import os
import stat
import sys
import types

from jit_amp._base.printable import printable


def lines(path: str, *, anew: bool = False) -> list[str]:
    """The lines of a file, with their ends; none where it may not be opened.

    Args:
        path: of the file, or the name of a notebook's cell.
        anew: where the file may have changed since it was read.
    """
    whole = os.path.abspath(path)
    is_known = path in linecache.cache or whole in linecache.cache  # read by Python, or no file
    if not (is_known or _may_be_opened(path)):
        return []
    if anew:
        linecache.checkcache(path)
    return linecache.getlines(path)


def line(path: str, number: int) -> str:
    """One of them, as it is shown: without what is around it; empty where there is none."""
    known = lines(path) if number > 0 else []
    return shown(known[number - 1]) if 0 < number <= len(known) else ""


def shown(text: str) -> str:
    """A line of source as tables show it."""
    return printable(text.strip().expandtabs())


def whole(text: str) -> str:
    """The same with its indentation, for pages."""
    return printable(text.rstrip().expandtabs())


def note(frame: types.FrameType) -> None:
    """What Python runs has been read: where its module comes from, lines come from too."""
    file = frame.f_code.co_filename
    if file not in linecache.cache and frame.f_globals.get("__file__") == file:
        linecache.lazycache(file, frame.f_globals)


def _may_be_opened(path: str) -> bool:
    try:
        real = os.path.realpath(path, strict=True)
        is_regular = stat.S_ISREG(os.stat(real).st_mode)
    except (OSError, ValueError):  # there is none; or no file has such a name
        return False
    if not is_regular:
        return False
    folders = (os.path.realpath(folder) for folder in sys.path if isinstance(folder, str))
    if real.endswith(".py") and any(real.startswith(folder + os.sep) for folder in folders):
        return True
    names = path, os.path.abspath(path)
    return any(getattr(each, "__file__", None) in names for each in list(sys.modules.values()))
