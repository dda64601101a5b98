"""A feature of a module: a snippet that compose.py puts into it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Feature:
    """A snippet.

    Attributes:
        name: what a person would call it.
        body: statements of `forward`, or of a method or submodule that it calls.
        init: statements of `__init__`.
        top: what the module's file holds besides.
        members: methods, and annotations of attributes.
        args: arguments of `forward`: how they are declared, the example's value, another one.
        kind: "step", "around" or "setting".
        inside: of an around, whether a scope is open inside; None: as outside.
        scope: "any"; "in" or "out", where it stands only inside or outside an open scope.
        direct: it has to stand in `forward` itself.
        traced: False: a trace cannot hold it, because it is not of tensors, or a Python state.
        scripted: False: TorchScript cannot compile it, but traces it.
        refused: the codes with which freezing may refuse it.
        refused_in_process: the codes with which scripting may refuse it.
        two_dtypes: eager's cache of weights would forget which dtype a cast is of.
        own_cache: its scope has a cache of weights whatever is set, as it is a decorator's: it
            cannot meet a feature of two dtypes.
        masks: makes, carries and calls at which eager or PyTorch itself raises.
        apart: features that it cannot meet.
        after: statements that change the module `m` when it is made: an eager one, or what the
            door gives.
        by_name: a call of a method of the module `m` with `x`, besides the calls of the module.
    """

    name: str
    body: str = ""
    init: str = ""
    top: str = ""
    members: str = ""
    args: tuple[tuple[str, str, str], ...] = ()
    kind: str = "step"
    inside: bool | None = None
    scope: str = "any"
    direct: bool = False
    traced: bool = True
    scripted: bool = True
    refused: tuple[str, ...] = ()
    refused_in_process: tuple[str, ...] = ()
    two_dtypes: bool = False
    own_cache: bool = False
    masks: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    after: str = ""
    by_name: str = ""
