"""What the generator of programs knows of values, functions and modules, and its tables."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .operators import (
    OPERATORS,
    Operator,
)

# A matrix of a value of another kind.
TO_MATRIX = {
    "m": "{}",
    "v": "{}.expand(4, 4)",
    "s": "{}.expand(4, 4)",
    "b": "{}[0]",
    "i": "{}[0, 1]",
    "w": "{}[0, 1, 0]",
    "x": "{}.sum().expand(4, 4)",
    "mask": "{}.float()",
    "idx": "{}.float().expand(4, 4)",
    "l": "{}[-1]",
}
# How a value of a kind is had from matrices, where no variable holds one.
FROM_MATRICES = {
    "v": ["{m}[0]"],
    "s": ["{m}.sum()"],
    "b": ["torch.stack([{m}, {m}])", "{m}.expand(2, 4, 4)"],
    "i": ["torch.stack([{m}, {m}]).unsqueeze(0)", "{m}.expand(1, 2, 4, 4)"],
    "w": ["{m}.expand(1, 2, 4, 4, 4)"],
    "idx": ["torch.argsort({m}[0])"],
    "mask": ["({m} > 0)"],
    "l": ["[{m}, {m}]"],
}
SHAPES = {"m": "4, 4", "v": "4", "b": "2, 4, 4", "i": "1, 2, 4, 4"}
ANNOTATIONS = {"opt": "Optional[Tensor]", "l": "List[Tensor]", "int": "int", "bool": "bool"}
ON = ("bfloat16", "float16", "on")  # states of a scope, "on" being one of an unknown dtype
FLOATING = ("float32", "bfloat16", "float16", "float64")

# The operators of a rule are chosen as often as those of another, however many there are.
BY_RULE = {
    rule: [operator for operator in OPERATORS if operator.rule == rule]
    for rule in ("lower", "fp32", "promote", "same", "mixed")
}


@dataclass
class Variable:
    name: str
    kind: str
    dtype: str  # "?" where it is not known
    used: bool = False
    leaf: bool = False  # it may share memory with a tensor that backward() gives a gradient to
    overlaps: bool = False  # several elements may be one in memory, so that it cannot be written to


@dataclass(frozen=True)
class Callee:
    """A function or method of the program's own."""

    name: str
    parameters: tuple[str, ...]  # kinds
    result: str  # "m", "pair" or "l"
    pure: bool


@dataclass
class Shared:
    """What all functions of a program have in common."""

    rng: random.Random
    gradients: bool
    dtypes: tuple[str, ...]  # of scopes
    # PyTorch's `wait` inside `no_grad` leaves gradients off after the call: one or the other.
    forks: bool
    features: set[str] = field(default_factory=set)
    names: int = 0

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability


@dataclass
class Members:
    """What a module has: expressions of `self`, and the lines that make them."""

    variables: list[Variable] = field(default_factory=list)
    submodules: list[tuple[str, Operator]] = field(default_factory=list)
    methods: list[Callee] = field(default_factory=list)
    flags: dict[str, bool] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)  # tensors that forward assigns
    layers: str | None = None
    counter: bool = False
    lines: list[str] = field(default_factory=list)
    declarations: list[str] = field(default_factory=list)


def promoted(dtypes: set[str]) -> str:
    if len(dtypes) == 1:
        return dtypes.pop()
    if "?" in dtypes or not dtypes or not dtypes <= set(FLOATING):
        return "?"
    return "float64" if "float64" in dtypes else "float32"
