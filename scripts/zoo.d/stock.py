"""A process that never imports jit_amp, in which artefacts are loaded and called.

The process is this file run as a program; `Stock` starts it and talks to it.
"""

from __future__ import annotations

import importlib
import io
import itertools
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import torch


class Gone(RuntimeError):
    """The process has ended."""


class Stock:
    """The process.

    Args:
        extensions: modules that it imports, for operators that are not PyTorch's.
        threads: that it computes with.
    """

    def __init__(self, extensions: Sequence[str], threads: int = 1) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-W", "ignore", __file__),
                    *(str(theirs.fileno()), str(threads), *extensions),
                ],
                pass_fds=[theirs.fileno()],
                stdout=subprocess.DEVNULL,  # what artefacts print
            )
        self.pipe = Connection(ours.detach())

    def __enter__(self) -> Stock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.pipe.close()
        self.process.wait()

    def load(self, artefact: bytes) -> int:
        """Loads what torch.jit.save wrote; what it is known by there."""
        number: int = self._ask("load", artefact)
        return number

    def call(self, number: int, *args: Any, **kwargs: Any) -> Any:
        """What it gives there, with random numbers from seed 0 and gradients as they are here.

        Raises:
            Gone: The process has ended.
            RuntimeError: It raises there, with the text.
        """
        return self._ask("call", (number, args, kwargs, torch.is_grad_enabled()))

    def forget(self, number: int) -> None:
        self._ask("forget", number)

    def _ask(self, what: str, value: Any) -> Any:
        try:
            _send(self.pipe, (what, value))
            is_answer, answer = _receive(self.pipe)
        except (EOFError, OSError) as error:
            code = self.process.wait()
            raise Gone(f"the process without jit_amp ended with {code}") from error
        if not is_answer:
            raise RuntimeError(answer)
        return answer


def _send(pipe: Connection, value: Any) -> None:
    file = io.BytesIO()
    torch.save(value, file)
    pipe.send_bytes(file.getvalue())


def _receive(pipe: Connection) -> Any:
    return torch.load(io.BytesIO(pipe.recv_bytes()), weights_only=False)


def _plain(value: Any) -> Any:
    """NamedTuples of a script module have a class that no other process knows."""
    if isinstance(value, tuple):
        return tuple(_plain(each) for each in value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, torch.Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    return value


def main() -> None:
    pipe = Connection(int(sys.argv[1]))
    torch.set_num_threads(int(sys.argv[2]))
    sys.path.insert(0, str(Path(__file__).parent))
    for extension in sys.argv[3:]:
        importlib.import_module(extension)
    assert not any(name.split(".")[0] == "jit_amp" for name in sys.modules)
    loaded: dict[int, Any] = {}
    numbers = itertools.count()
    while True:
        try:
            what, value = _receive(pipe)
        except EOFError:
            return
        answer: Any = None
        try:
            if what == "load":
                answer = next(numbers)
                loaded[answer] = torch.jit.load(io.BytesIO(value))
            elif what == "call":
                number, args, kwargs, is_grad_enabled = value
                torch.manual_seed(0)
                with torch.set_grad_enabled(is_grad_enabled):
                    answer = _plain(loaded[number](*args, **kwargs))
            else:
                loaded.pop(value, None)
            _send(pipe, (True, answer))
        except Exception as error:
            _send(pipe, (False, str(error) or type(error).__name__))


if __name__ == "__main__":
    main()
