"""A process that never imports jit_amp, in which artefacts are loaded and called.

The process is this file run as a program; `Stock` starts it and talks to it.
"""

from __future__ import annotations

import importlib
import io
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import torch


class Stock:
    """Gives what an artefact gives there. One that ends or raises is a RuntimeError."""

    def __init__(self, extensions: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *extensions],
                pass_fds=[theirs.fileno()],
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
        self.pipe.close()
        self.process.wait()

    def load(self, artefact: bytes) -> None:
        self._ask(artefact)

    def call(self, *args: Any) -> Any:
        return self._ask(args)

    def _ask(self, question: Any) -> Any:
        try:
            _send(self.pipe, (question, torch.is_grad_enabled()))
            is_answer, answer = _receive(self.pipe)
        except (EOFError, OSError) as error:
            raise RuntimeError(
                f"the process without jit_amp ended with {self.process.wait()}"
            ) from error
        if not is_answer:
            raise RuntimeError(answer)
        return answer


def _send(pipe: Connection, value: Any) -> None:
    file = io.BytesIO()
    torch.save(value, file)
    pipe.send_bytes(file.getvalue())


def _receive(pipe: Connection) -> Any:
    return torch.load(io.BytesIO(pipe.recv_bytes()), weights_only=False)


def main() -> None:
    pipe = Connection(int(sys.argv[1]))
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parent))
    for extension in sys.argv[2:]:
        importlib.import_module(extension)
    assert not any(name.split(".")[0] == "jit_amp" for name in sys.modules)
    loaded: Any = None
    while True:
        try:
            question, is_grad_enabled = _receive(pipe)
        except EOFError:
            return
        try:
            if isinstance(question, bytes):
                loaded, answer = torch.jit.load(io.BytesIO(question)), None
            else:
                torch.manual_seed(0)
                with torch.set_grad_enabled(is_grad_enabled):
                    answer = loaded(*question)
            _send(pipe, (True, answer))
        except Exception as error:
            _send(pipe, (False, str(error) or type(error).__name__))


if __name__ == "__main__":
    main()
