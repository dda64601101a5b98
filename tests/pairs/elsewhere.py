"""A process that never imports jit_amp, loads what is frozen, and runs it.

It stays: `Elsewhere().call(buffer, calls)` has it load a file and call it, and returns what each
call gave, or the error.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
import subprocess
import sys
from typing import Any, BinaryIO


class Gone(RuntimeError):
    """The process has ended."""


class Elsewhere:
    """The process, started when it is first needed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def call(self, saved: bytes, calls: list[tuple[tuple[Any, ...], bool]]) -> list[Any]:
        """Loads and calls.

        Args:
            saved: what torch.jit.save wrote.
            calls: for each the arguments, and whether gradients are on.

        Returns:
            For each call what it gave, or the text of an error as an Exception.
        """
        import torch

        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self.process.stdin and self.process.stdout
        asked = io.BytesIO()
        torch.save((saved, calls), asked)
        try:
            _write(self.process.stdin, asked.getvalue())
            answer = _read(self.process.stdout)
        except (BrokenPipeError, EOFError):
            raise Gone(f"the process elsewhere ended with {self.process.wait()}") from None
        found: list[Any] = torch.load(io.BytesIO(answer), weights_only=False)
        return found

    def stop(self) -> None:
        if self.process is not None:
            assert self.process.stdin and self.process.stdout
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


def _write(file: Any, data: bytes) -> None:
    file.write(struct.pack("<Q", len(data)) + data)
    file.flush()


def _read(file: Any) -> bytes:
    head = file.read(8)
    if len(head) < 8:
        raise EOFError
    data: bytes = file.read(struct.unpack("<Q", head)[0])
    return data


def _plain(value: Any) -> Any:
    """NamedTuples of a script module's have a class that nobody else can load."""
    if isinstance(value, tuple):
        return tuple(_plain(each) for each in value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value.detach().requires_grad_(value.requires_grad) if hasattr(value, "detach") else value


def _serve(given: BinaryIO, answers: BinaryIO) -> None:
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            asked = _read(given)
        except EOFError:
            return
        saved, calls = torch.load(io.BytesIO(asked), weights_only=False)
        results: list[Any] = []
        try:
            loaded = torch.jit.load(io.BytesIO(saved))  # type: ignore[no-untyped-call]
            for arguments, gradients in calls:
                torch.manual_seed(0)
                with torch.set_grad_enabled(gradients), contextlib.redirect_stdout(io.StringIO()):
                    results.append(_plain(loaded(*arguments)))
        except Exception as error:
            results.append(RuntimeError(str(error)))
        assert "jit_amp" not in sys.modules
        answer = io.BytesIO()
        torch.save(results, answer, pickle_module=pickle)
        _write(answers, answer.getvalue())


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
