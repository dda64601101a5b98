"""Why an expression of a scope cannot be evaluated."""

from __future__ import annotations


class Failed(Exception):
    """Why a `with` item cannot be compiled: a diagnostic's code, and what its text says."""

    def __init__(self, code: int, *said: str) -> None:
        super().__init__(code, *said)
        self.code, self.said = code, said
