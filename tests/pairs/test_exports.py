"""jit_amp.export of modules of features: what it gives, it gives as eager does."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from jit.support import fresh, tensors_of
from torch import Tensor

import jit_amp

from .check import loaded
from .compose import compose
from .features import FEATURES

NAMES = [
    name
    for name, feature in FEATURES.items()
    # A nested tensor has no sizes that torch.export could look at; docs/limits.md has the last.
    if feature.scripted
    and name not in ("training mode", "nested argument", "weight written between its uses")
]
KEPT = {
    "counter", "growing key cache", "state set anew in a branch",
    "list of tensors that changes its elements", "list of numbers that grows",
    "numbers of a dictionary, counted", "list by another name",
    *(name for name in NAMES if name.startswith("cache ")),
    "layer called by index", "target: tuple of attributes", "target: augmented attributes",
    "target: augmented elements", "target: attributes of a submodule",
    "target: elements of a module's containers, in a tuple",
    *(name for name in NAMES if name.startswith("state: ")),
}  # fmt: skip
# What PyTorch's compiler raises for, unless jit_amp refuses it before.
NOT_COMPILED = {
    "wrapped: module of a precision", "wrapped: partial", "wrapped: closure", "wrapped: proxy",
    "wrapped: helper by a callable object",
}  # fmt: skip
REFUSED = {  # by the code, of which features it may be
    "JA210": {
        name for name in NAMES if name.startswith("lost write") or "dropped operators" in name
    },
    "JA301": {"ignored method"},
    "JA501": {"branch on a value"},
    "JA503": KEPT,
    "JA505": {"sorted objects", "gradient in forward", "packed sequence"},
}
# torch.export takes an argument that is None in the example, or a tensor, for one that stays so.
STAYS = {"optional argument, given later", "Union argument"}


def same(a: Tensor, b: Tensor) -> bool:
    if (a.dtype, a.layout, a.shape) != (b.dtype, b.layout, b.shape):
        return False
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    return bool(((a == b) | ((a != a) & (b != b))).all())


def outcome(names: tuple[str, ...], seed: int = 0) -> str:
    """ "agrees", a refusal's code, or what differs."""
    with loaded(compose(names, seed).source) as module:
        torch.manual_seed(0)
        made = module.Program().eval()
        torch.manual_seed(0)
        vars(module)["REFERENCE"] = True
        eager = module.Program().eval()
        given = module.inputs()
        try:
            program: Any = jit_amp.export(made, fresh(given)).module()
        except jit_amp.AutocastError as error:
            found = re.search(r"\[(JA\d+)\]", str(error))
            return found[1] if found else "no code"
        except Exception:
            if NOT_COMPILED & set(names):
                return "agrees"
            raise
        others = [] if STAYS & set(names) else module.others()
        for arguments in (given, given, *others):
            torch.manual_seed(3)
            try:
                expected = eager(*fresh(arguments))
            except Exception:  # of any class: the program's own
                return "agrees"
            torch.manual_seed(3)
            try:
                actual = program(*fresh(arguments))
            except (AssertionError, ValueError, RuntimeError):
                if arguments is given:
                    raise
                return "agrees"  # torch.export's guards; eager's state is ahead now
            pairs = zip(tensors_of(actual), tensors_of(expected), strict=True)
            if not all(same(a, b) for a, b in pairs):
                return f"differs: {arguments}"
    return "agrees"


def allowed(names: tuple[str, ...]) -> Iterator[str]:
    yield "agrees"
    yield from (code for code, features in REFUSED.items() if features & set(names))
    for name in names:
        yield from (*FEATURES[name].refused, *FEATURES[name].refused_in_process)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(4))
def test_each_feature(part: int) -> None:
    found = {name: outcome((name,)) for name in NAMES[part::4]}
    assert {name: it for name, it in found.items() if it not in allowed((name,))} == {}


@pytest.mark.filterwarnings("ignore")
def test_some_together() -> None:
    rng = random.Random(0)
    some = [name for name in NAMES if not any(name in each for each in REFUSED.values())]
    drawn = [tuple(rng.sample(some, rng.randint(2, 4))) for _ in range(40)]
    drawn = [names for names in drawn if not any(FEATURES[name].args for name in names)]
    found = {names: outcome(names) for names in drawn}
    assert {names: it for names, it in found.items() if it not in allowed(names)} == {}
