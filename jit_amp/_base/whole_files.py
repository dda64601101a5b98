"""Files that are written whole or not at all: the one place where jit_amp writes files.

A file gets its name when it is complete, and until then what stood there stays: whatever ends the
process leaves the older file or the new one. Linux has files without a name, of which nothing is
left behind, but for the instant between two names. Elsewhere it is ``.NAME.….part`` meanwhile, and
kill -9 leaves that.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from jit_amp import _C

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NAMELESS = getattr(os, "O_TMPFILE", 0) if os.path.isdir("/proc/self/fd") else 0
_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Part:
    """A file that is being written.

    Attributes:
        path: where it can be read meanwhile, once it is flushed; None of a device or a pipe, which
            is written to as it is.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str | None = None
        self._given = path
        self._target = _target_of(path)
        self._file: BinaryIO | None = None
        self._name = ""  # beside the file's own, where it has one
        self._old: os.stat_result | None = None

    def write(self, data: Buffer) -> int:
        """Writes all of it."""
        assert self._file is not None
        with self._failing():
            return self._file.write(data)

    def flush(self) -> None:
        assert self._file is not None
        with self._failing():
            self._file.flush()

    def begin(self) -> None:
        with self._failing():
            with contextlib.suppress(FileNotFoundError):
                self._old = os.stat(self._target)
            if self._old and not stat.S_ISREG(self._old.st_mode):
                self._file = open(self._target, "wb")  # noqa: SIM115  # a folder raises
            else:
                self._file = open(self._target, "wb", opener=self._opened)  # noqa: SIM115
                self.path = self._name or f"/proc/self/fd/{self._file.fileno()}"

    def _opened(self, path: str, _: int) -> int:
        if _NAMELESS:
            with contextlib.suppress(OSError):  # a file system without them
                return os.open(os.path.dirname(path), _FLAGS | _NAMELESS, 0o666)
        self._name = self._beside()
        return os.open(self._name, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)

    def _beside(self) -> str:
        part = f".{self._target.name[:100]}.{secrets.token_hex(4)}.part"
        return str(self._target.with_name(part))

    def complete(self) -> None:
        """All of it is there, and it has a name; not yet its own."""
        self.flush()
        assert self._file is not None
        with self._failing():
            descriptor = self._file.fileno()
            if self._old and self.path:
                if hasattr(os, "fchown"):
                    with contextlib.suppress(OSError):  # it is somebody else's
                        os.fchown(descriptor, self._old.st_uid, self._old.st_gid)
                    os.fchmod(descriptor, stat.S_IMODE(self._old.st_mode))
                os.fsync(descriptor)
            if self.path and not self._name:
                self._name = self._beside()
                # With a folder, which is not used, it follows the link that `path` is.
                os.link(self.path, self._name, src_dir_fd=descriptor)
            self._file.close()

    def take_name(self) -> None:
        if self._name:
            with self._failing():
                os.replace(self._name, self._target)
            self._name = ""

    def drop(self) -> None:
        """Nothing is left of it, if it did not take its name."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what it has not written yet does not fit
                self._file.close()
        if self._name:
            with contextlib.suppress(OSError):
                os.unlink(self._name)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = f"it could not be written ({error.strerror or error})"
            raise OSError(error.errno, why, os.fspath(self._given)) from error


def _target_of(path: str | os.PathLike[str]) -> Path:
    """The file that a link leads to, as the link stays one; not of /dev/stdout, for example."""
    is_special = os.path.exists(path) and not os.path.isfile(path)
    return Path(path if is_special else os.path.realpath(path))


def may_be_written(path: str | os.PathLike[str]) -> bool:
    """Whether one is allowed to: an older file, and the folder, where it gets its name."""
    target = _target_of(path)
    if not target.exists():
        return os.access(target.parent, os.W_OK)
    return os.access(target, os.W_OK) and (
        not target.is_file() or os.access(target.parent, os.W_OK)
    )


@contextlib.contextmanager
def written(*paths: str | os.PathLike[str]) -> Iterator[list[Part]]:
    """Writes files: they take their names when the block is left and all of them are complete.

    The mode of an older file is kept. Where the block raises, older files stay as they were.

    Raises:
        OSError: one cannot be written: ``filename`` is its path, and ``strerror`` says why.
    """
    parts = [Part(path) for path in paths]
    with _C.AtExit([part.drop for part in parts]):
        for part in parts:
            part.begin()
        yield parts
        for part in parts:
            part.complete()
        for part in parts:
            part.take_name()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text, in UTF-8."""
    with written(path) as (part,):
        part.write(text.encode())


class Archive(io.RawIOBase):
    """A file as PyTorch's writers of archives take it: they end the process where a write fails.

    ``check`` raises what a write has raised, once they are done.
    """

    def __init__(self, part: Part) -> None:
        output = _C.Output(part.write)
        self.check = output.check
        # Not a method of Python's, where Ctrl-C could come.
        setattr(self, "write", output.write)  # noqa: B010

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0
