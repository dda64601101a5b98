"""Random programs: the source of a function or module with autocast scopes in it, from a seed.

A program is the text of a Python file that defines `inputs()` and either a function `program` or a
module `Program`. What is written follows kinds and dtypes of the values roughly, so that most
programs run; one that raises in eager is a program too. Values are kept alive up to the result:
TorchScript drops what nobody uses, errors included.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace

from .operators import (
    CAST_OPERATORS,
    OPERATORS,
    SUBMODULE_CLASSES,
    VIEW_OPERATORS,
    WRITE_OPERATORS,
    Operator,
)

HEADER = """\
from typing import Dict, Final, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
"""

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


@dataclass(frozen=True)
class Program:
    """A program and how it is compared.

    Attributes:
        cache: whether eager may keep casts of weights: not in programs of two reduced dtypes,
            because its cache forgets which one a cast is of.
    """

    seed: int
    source: str
    ambients: tuple[str, ...]
    gradients: bool = False
    freeze: bool = False
    cache: bool = True
    features: frozenset[str] = frozenset()


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
class _Shared:
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
class _Members:
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


class _Function:
    """Writes the body of one function."""

    def __init__(
        self,
        shared: _Shared,
        parameters: Sequence[Variable],
        callees: Sequence[Callee],
        *,
        state: str,
        statements: int,
        members: _Members | None = None,
        pure: bool = False,
        collects: bool = False,
    ) -> None:
        self.shared, self.rng = shared, shared.rng
        self.variables = list(parameters)
        self.callees, self.members = callees, members
        self.state, self.left = state, statements
        self.pure, self.collects = pure, collects
        self.scopes: dict[str, str] = {}  # autocast objects by the state that they make
        self.open: set[str] = set()
        self.lines: list[str] = []
        self.depth = 1
        self.withs = self.loops = 0
        self.fixed: set[str] = set()  # what may not be assigned here
        # PyTorch's compiler fails on a `with` that a `return` or `break` may skip.
        self.returned = False
        self.jumped = 0
        if members:
            self.variables += [replace(variable) for variable in members.variables]

    # Text.

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def feature(self, name: str) -> None:
        self.shared.features.add(name)

    def chance(self, probability: float) -> bool:
        return self.shared.chance(probability)

    # Values.

    def of_kind(self, kind: str) -> list[Variable]:
        return [variable for variable in self.variables if variable.kind == kind]

    def pick(self, kind: str) -> Variable | None:
        """A variable, one that nothing has used yet where there is one."""
        found = self.of_kind(kind)
        unused = [variable for variable in found if not variable.used]
        if not found:
            return None
        chosen = self.rng.choice(unused if unused and self.chance(0.6) else found)
        chosen.used = True
        return chosen

    def operand(self, kind: str, deep: bool = True) -> Variable:
        """An operand: its expression as the name."""
        if kind == "opt":
            if (given := self.pick("opt")) and self.chance(0.6):
                self.feature("Optional operand")
                return replace(given)
            return Variable("None", "opt", "") if self.chance(0.3) else self.operand("v")
        variable = self.pick(kind)
        if variable is None and kind == "m":
            raise AssertionError("a function without a matrix")
        if deep and (variable is None or self.chance(0.15)):
            views = [o for o in VIEW_OPERATORS if o.result == kind and self.has(o.operands)]
            if views and (variable is not None or self.chance(0.5)):
                view = self.rng.choice(views)
                self.feature("view as operand")
                return self.applied(view, [self.operand(k, False) for k in view.operands])
        if variable is None:
            text = self.rng.choice(FROM_MATRICES[kind])
            made = Operator("promote" if "stack" in text else "mixed", kind, text)
            return self.promoted(made, [self.operand("m", False) for _ in made.operands])
        if variable.dtype == "int64" and kind == "m" and self.chance(0.85):
            return Variable(f"{variable.name}.float()", "m", "float32", True)
        return replace(variable)

    def has(self, kinds: Sequence[str]) -> bool:
        return all(self.of_kind(kind) for kind in kinds)

    def applied(self, operator: Operator, operands: list[Variable]) -> Variable:
        """The result of an operator on operands that it takes as they are."""
        dtypes = {operand.dtype for operand in operands if operand.kind not in ("idx", "mask")}
        dtype = {"idx": "int64", "mask": "bool"}.get(operator.result) or _promoted(dtypes)
        shares = operator.rule in ("view", "cast")
        overlaps = ".expand(" in operator.text
        return Variable(
            operator.write([operand.name for operand in operands]),
            operator.result,
            dtype,
            True,
            shares and any(operand.leaf for operand in operands),
            overlaps or (shares and any(operand.overlaps for operand in operands)),
        )

    def promoted(self, operator: Operator, operands: list[Variable]) -> Variable:
        """The same, where autocast may refuse to promote: float64, and the other reduced dtype."""
        if operator.rule == "promote" and self.state != "off":
            for operand in operands:
                if operand.dtype not in ("float32", self.state, "") and self.chance(0.95):
                    text = f"[t.float() for t in {operand.name}]"
                    operand.name = text if operand.kind == "l" else f"{operand.name}.float()"
                    operand.dtype = "float32"
        return self.applied(operator, operands)

    def aligned(self, operator: Operator, first: str | None = None) -> Variable:
        """The result of an operator on operands of dtypes that it takes, most of the time."""
        operands = [self.operand(kind) for kind in operator.operands]
        rule = operator.rule
        if rule in ("mixed", "promote"):
            return self.promoted(operator, operands)
        floats = [o for o in operands if o.kind not in ("idx", "mask", "opt", "l")]
        if rule in ("lower", "fp32", "submodule") and self.state in ON:
            for operand in floats:
                if operand.dtype in ("float64", "int64", "?") and self.chance(0.9):
                    operand.name, operand.dtype = f"{operand.name}.float()", "float32"
            result = self.applied(operator, operands)
            if rule == "lower":
                result.dtype = self.state if self.state != "on" else "?"
            else:
                result.dtype = "float32" if rule == "fp32" else "?"
            return result
        known = {operand.dtype for operand in floats}
        if first is not None:
            known.add(first)
        if (len(known) > 1 or "?" in known) and self.chance(0.97):
            if first is None and self.chance(0.5):
                self.cast(floats[1:], f"{floats[0].name}.dtype", floats[0].dtype)
            elif first is None or first == "float32":
                self.cast(floats, "torch.float32", "float32")
            else:
                self.cast(floats, f"{first}.dtype", "?")
        result = self.applied(operator, operands)
        if rule in ("lower", "submodule") and self.state == "?":
            result.dtype = "?"
        return result

    def cast(self, operands: Sequence[Variable], expression: str, dtype: str) -> None:
        for operand in operands:
            if operand.dtype != dtype or dtype == "?":
                operand.name, operand.dtype = f"{operand.name}.to({expression})", dtype

    def assign(self, value: Variable) -> None:
        """A variable for a value: a new one, or one whose value has been used."""
        if value.kind == "m" and self.chance(0.2):
            again = [v for v in self.of_kind("m") if v.used and self.assignable(v)]
            if again:
                target = self.rng.choice(again)
                self.emit(f"{target.name} = {value.name}")
                target.dtype, target.used = value.dtype, False
                target.leaf, target.overlaps = value.leaf, value.overlaps
                return
        name = self.shared.name("t")
        self.emit(f"{name} = {value.name}")
        self.variables.append(replace(value, name=name, used=False))

    def assignable(self, variable: Variable) -> bool:
        return variable.name not in self.fixed and not variable.name.startswith("self.")

    # Statements.

    def body(self, statements: int) -> None:
        """Some statements. Each kind of statement counts as one, what it holds as more."""
        kinds: list[tuple[float, Callable[[], None]]] = [
            (5.0, self.operation),
            (0.8, self.view),
            (0.8, self.explicit_cast),
            (1.5, self.scope),
            (0.5, self.scope_object),
            (0.9, self.branch),
            (0.6, self.loop),
            (0.6, self.list_of_tensors),
            (0.3, self.dictionary),
            (0.2, self.pair),
        ]
        if not self.pure:
            kinds += [(1.3, self.write), (0.9, self.write_between)]
        if self.collects:
            kinds += [(0.6, self.query), (0.5, self.collect), (0.2, self.early_return)]
        if self.callees:
            kinds += [(1.2, self.call), (0.4 * self.shared.forks, self.fork)]
        if self.members:
            kinds += [(1.5, self.submodule), (0.7, self.attribute)]
        weights = [weight for weight, _ in kinds]
        for _ in range(statements):
            if self.left <= 0:
                break
            self.left -= 1
            self.rng.choices([kind for _, kind in kinds], weights)[0]()

    def operation(self) -> None:
        rule = self.rng.choices(list(BY_RULE), [4, 2, 1.5, 0.5, 3])[0]
        operator = self.rng.choice(BY_RULE[rule])
        self.feature(f"operator: {rule}")
        if "l" in operator.operands:
            self.feature("list operand")
        self.assign(self.aligned(operator))

    def view(self) -> None:
        operator = self.rng.choice(VIEW_OPERATORS)
        self.feature("view")
        operands = [self.operand(kind) for kind in operator.operands]
        self.assign(self.applied(operator, operands))

    def explicit_cast(self) -> None:
        operator = self.rng.choice(CAST_OPERATORS)
        self.feature("explicit cast")
        value = self.applied(
            replace(operator, result="m"), [self.operand("m") for _ in operator.operands]
        )
        value.dtype = operator.result
        self.assign(value)

    def writable(self) -> list[Variable]:
        return [
            v
            for v in self.of_kind("m")
            if not ((self.shared.gradients and v.leaf) or v.overlaps) and v.dtype != "int64"
        ]

    def write_between(self) -> None:
        """A value is cast, written to, perhaps under another name, and cast again."""
        targets = self.writable()
        if not targets or self.state not in ON:
            return self.write()
        target = self.rng.choice(targets)
        name, other = target.name, self.operand("m").name
        products = [
            f"{name}.float() @ {other}.float()",
            f"torch.mm({other}.float(), {name}.float())",
        ]
        if target.dtype not in ("float64", "?"):
            products = [
                f"torch.mm({name}, {name})",
                f"torch.logsumexp({name}, 1, True).expand(4, 4)",
                f"F.linear({name}, {name}, {name}[0])",
                f"torch.cumsum({name}, 0)",
            ]
        product = self.rng.choice(products)
        under = self.rng.choice(
            ["{}", "{}", "{}[0]", "{}.t()", "{}[:, 1:]", "[{}][0]", "{}.detach()"]
        )
        if self.shared.gradients and "detach" in under:
            under = "{}"
        how = self.rng.choice(["fill_(0.5)", "mul_(2.0)", "add_(1.0)", "zero_()", "neg_()"])
        self.feature("write between casts")
        self.assign(Variable(product, "m", "?"))
        if self.chance(0.3):
            alias = self.shared.name("t")
            self.emit(f"{alias} = {under.format(name)}")
            under = alias
        self.emit(f"{under.format(name)}.{how}")
        self.assign(Variable(product, "m", "?"))

    def write(self) -> None:
        targets = self.writable()
        operator = self.rng.choice(WRITE_OPERATORS)
        if not targets or ("out=" in operator.text and self.shared.gradients):
            return self.operation()
        target = self.rng.choice(targets)
        text = operator.text
        if (" = " in text and text.startswith("{T} ")) or "+=" in text or "*=" in text:
            # `a += b` is an assignment to the name too.
            targets = [t for t in targets if self.assignable(t)]
            if not targets:
                return self.operation()
            target = self.rng.choice(targets)
        operands = [self.operand(kind) for kind in operator.operands if kind != "T"]
        for operand in operands:
            if operator.rule == "same" or self.chance(0.5):  # it may share memory with the target
                operand.name = f"{operand.name}.clone()"
        if operator.rule == "same":
            floats = [operand for operand in operands if operand.kind != "idx"]
            self.cast(floats, f"{target.name}.dtype", target.dtype)
        rest = iter(operands)
        names = [target.name if kind == "T" else next(rest).name for kind in operator.operands]
        self.feature("out=" if "out=" in text else "in-place write")
        if target.name.startswith("self."):
            self.feature("in-place write to a buffer")
        self.emit(operator.write(names))
        target.used = target.name.startswith("self.")

    def scope_expression(self) -> tuple[str, str]:
        """An autocast object's constructor, and the state that it makes."""
        rng, state = self.rng, self.state
        dtype = rng.choice(self.shared.dtypes)
        default = "bfloat16" if len(self.shared.dtypes) == 1 else "on"
        if state in ("bfloat16", "float16"):
            default = state
        torch_dtype = f"torch.{dtype}"
        choices = [
            (5.0, f'torch.autocast("cpu", dtype={torch_dtype})', dtype),
            (1.5, 'torch.autocast("cpu")', default),
            (2.0, 'torch.autocast("cpu", enabled=False)', "off"),
            (0.5, f'torch.autocast(dtype={torch_dtype}, cache_enabled=False, device_type="cpu")',
             dtype),
            (0.3, f'torch.autocast("cpu", {torch_dtype}, False)', "off"),
            (0.3, f'torch.amp.autocast("cpu", dtype={torch_dtype}, enabled=not False)', dtype),
            (0.2, f"torch.cpu.amp.autocast(dtype={torch_dtype})", dtype),
            (0.4, 'torch.autocast("cuda")', state),
            (0.2, 'torch.autocast("cuda", dtype=torch.bfloat16, enabled=False)', state),
            (0.2, 'torch.autocast("cpu", dtype=torch.float64)', "off"),
        ]  # fmt: skip
        tensors = [v.name for v in self.of_kind("m")]
        text = f"torch.autocast({rng.choice(tensors)}.device.type, dtype={torch_dtype})"
        choices.append((0.15, text, dtype))
        for name, value in self.members.flags.items() if self.members else ():
            made = dtype if value else "off"
            text = f'torch.autocast("cpu", dtype={torch_dtype}, enabled=self.{name})'
            choices.append((1.0, text, made))
        _, text, made = rng.choices(choices, [weight for weight, _, _ in choices])[0]
        features = {
            "cuda": "scope for cuda",
            "self.": "scope enabled by an attribute",
            "enabled=False": "disabled scope",
            "False)": "disabled scope",
            ".device.type": "scope for a tensor's device",
            "float64": "scope of an unsupported dtype",
        }
        self.shared.features.update(f for part, f in features.items() if part in text)
        if text == 'torch.autocast("cpu")':
            self.feature("scope without a dtype")
        if f"dtype={torch_dtype}" in text:
            self.feature(f"scope of {dtype}")
        return text, made

    def scope(self) -> None:
        """`with`, or the same by hand."""
        if self.returned or self.jumped:
            return self.operation()
        before = self.state
        if self.withs:
            self.feature("nested scopes")
        closed = [name for name in self.scopes if name not in self.open]
        entered: list[str] = []
        items: list[str] = []
        named: dict[str, str] = {}
        for _ in range(2 if self.chance(0.1) else 1):
            if closed and self.chance(0.5):
                name = closed.pop(self.rng.randrange(len(closed)))
                text, made = name, self.scopes[name]
                entered.append(name)
                self.feature("scope object entered")
            else:
                text, made = self.scope_expression()
            if self.chance(0.12):
                alias = self.shared.name("s")
                named[alias] = made
                text = f"{text} as {alias}"
                self.feature("scope with a name")
                if entered and text.startswith(entered[-1]):
                    entered[-1:] = []  # one object, two names: the first is not used again
                    self.scopes.pop(text.split(" as ")[0])
            items.append(text)
            self.state = made
        if not self.shared.gradients and not self.shared.forks and self.chance(0.1):
            items.insert(self.rng.randrange(len(items) + 1), "torch.no_grad()")
            self.feature("no_grad")
        if len(items) == 1 and not named and self.chance(0.07):
            self.by_hand(items[0], entered)
        else:
            self.emit(f"with {', '.join(items)}:")
            self.inside(entered)
        self.state = before
        self.scopes.update(named)

    def inside(self, entered: Sequence[str]) -> None:
        """The block of a `with`. What it makes is there after it."""
        self.open.update(entered)
        self.depth += 1
        self.withs += 1
        written = len(self.lines)
        self.body(self.rng.randint(1, 4))
        if len(self.lines) == written:
            self.operation()
        self.withs -= 1
        self.depth -= 1
        self.open.difference_update(entered)

    def by_hand(self, text: str, entered: Sequence[str]) -> None:
        name = text
        if not entered:
            name = self.shared.name("s")
            self.emit(f"{name} = {text}")
        self.feature("scope entered by hand")
        self.emit(f"{name}.__enter__()")
        self.open.update(entered)
        self.withs += 1
        for _ in range(self.rng.randint(1, 2)):
            self.operation()
        self.withs -= 1
        self.open.difference_update(entered)
        self.emit(f"{name}.__exit__(None, None, None)")

    def scope_object(self) -> None:
        if self.returned or self.jumped:
            return self.operation()
        text, made = self.scope_expression()
        name = self.shared.name("s")
        self.emit(f"{name} = {text}")
        self.scopes[name] = made
        self.feature("scope object")
        self.left += 1
        self.scope()

    def condition(self) -> str:
        choices = []
        for variable in self.of_kind("int"):
            choices.append(f"{variable.name} > {self.rng.randint(0, 4)}")
        for variable in self.of_kind("bool"):
            choices.append(variable.name)
        for variable in self.of_kind("opt"):
            choices.append(f"{variable.name} is not None")
        for name in self.members.flags if self.members else ():
            choices.append(f"self.{name}")
        if not choices or self.chance(0.5):
            m = self.operand("m").name
            choices = [
                f"bool({m}.sum() > 0)",
                f"float({m}[0, 0]) > 0.0",
                f"{m}.sum().item() > 0",
                f"{m}.dtype == torch.bfloat16",
                f"{m}.dtype == torch.float32",
                'torch.is_autocast_enabled("cpu")',
                f"bool(({m} > 1).any())",
            ]
        chosen = self.rng.choice(choices)
        if "torch.is_autocast" in chosen:
            self.feature("query of the state")
        if ".sum()" in chosen or "float(" in chosen or "any()" in chosen:
            self.feature("condition on a tensor")
        return f"not {chosen}" if self.chance(0.2) and " " not in chosen else chosen

    def block(self, body: Callable[[], None], carried: set[str] | None) -> list[Variable]:
        """An indented block whose own names are not there after it.

        Of the names outside, it may assign those in `carried`, or all if that is None.

        Returns:
            The variables outside as the block leaves them.
        """
        outside = [replace(variable) for variable in self.variables]
        scopes, fixed = dict(self.scopes), set(self.fixed)
        if carried is not None:
            self.fixed |= {v.name for v in outside} - carried
        self.depth += 1
        written = len(self.lines)
        body()
        names = {variable.name for variable in outside}
        lost = self.leftovers(names)
        if lost and self.collects:
            for value in lost:
                self.emit(f"out.append({value})")
        elif lost:
            targets = [v for v in self.of_kind("m") if v.name in names and self.assignable(v)]
            if targets:
                target = self.rng.choice(targets)
                self.emit(f"{target.name} = {' + '.join(lost)}")
                target.dtype, target.leaf, target.used, target.overlaps = "?", True, False, True
        if len(self.lines) == written:
            self.emit("pass")
        self.depth -= 1
        after = [v for v in self.variables if v.name in names]
        self.variables, self.scopes, self.fixed = outside, scopes, fixed
        return after

    def merge(self, *others: list[Variable]) -> None:
        """What is known after blocks of which any, or none, has run."""
        for branch in others:
            for variable, other in zip(self.variables, branch, strict=True):
                if variable.dtype != other.dtype:
                    variable.dtype = "?"
                variable.leaf |= other.leaf
                variable.used &= other.used

    def branch(self) -> None:
        self.feature("if")
        made = self.shared.name("t") if self.chance(0.3) else None
        ends: list[Variable] = []

        def body() -> None:
            self.body(self.rng.randint(1, 3))
            if made:
                value = self.operand("m")
                self.emit(f"{made} = {value.name}")
                ends.append(value)

        self.emit(f"if {self.condition()}:")
        first = self.block(body, None)
        if made or self.chance(0.5):
            self.emit("else:")
            self.merge(first, self.block(body, None))
        else:
            self.merge(first)
        if made:
            dtype = ends[0].dtype if ends[0].dtype == ends[1].dtype else "?"
            self.variables.append(Variable(made, "m", dtype, False, any(e.leaf for e in ends)))

    def loop(self) -> None:
        if self.loops >= 2:
            return self.operation()
        assignable = [v for v in self.of_kind("m") if self.assignable(v)]
        carried = set()
        for variable in assignable:
            if self.chance(0.3):
                carried.add(variable.name)
                variable.dtype = "?"
        kinds = (
            ["range", "while"]
            + ["list"] * len(self.of_kind("l"))
            + ["n"] * len(self.of_kind("int"))
        )
        if self.members and self.members.layers:
            kinds.append("layers")
        kind = self.rng.choice(kinds)
        counter = self.shared.name("k")
        local: Variable | None = Variable(counter, "int", "")
        if kind == "while":
            self.emit(f"{counter} = 0")
            self.emit(f"while {counter} < {self.rng.randint(1, 3)}:")
        elif kind == "list":
            self.emit(f"for {counter} in {self.rng.choice(self.of_kind('l')).name}:")
            local = Variable(counter, "m", "?")
        elif kind == "layers" and self.members:
            self.emit(f"for {counter} in self.{self.members.layers}:")
            local = None
        else:
            n = self.rng.choice(self.of_kind("int")).name if kind == "n" else None
            self.emit(f"for {counter} in range({n or self.rng.randint(1, 3)}):")
        self.feature("while" if kind == "while" else "for")

        def body() -> None:
            if kind == "while":
                self.emit(f"{counter} += 1")
            if local:
                self.variables.append(local)
                self.fixed.add(counter)
            else:
                self.feature("loop over submodules")
                operand = self.operand("m", False)
                self.assign(Variable(f"{counter}({operand.name}.float())", "m", "?"))
            self.body(self.rng.randint(1, 3))
            if kind != "layers" and self.chance(0.15):
                jump = self.rng.choice(["break", "continue"])
                self.feature(jump)
                self.emit(f"if {self.condition()}:")
                self.emit(f"    {jump}")
                self.jumped += 1
                self.body(1)
                self.jumped -= 1

        self.loops += 1
        self.merge(self.block(body, carried))
        self.loops -= 1

    def list_of_tensors(self) -> None:
        """A list is made, grown, changed or read."""
        lists = [v for v in self.of_kind("l") if v.name not in self.fixed]
        self.feature("list")
        if not lists or self.chance(0.3):
            name = self.shared.name("l")
            items = ", ".join(self.operand("m").name for _ in range(self.rng.randint(1, 3)))
            self.emit(f"{name} = [{items}]")
            self.variables.append(Variable(name, "l", "?", leaf=True))
            return
        name = self.rng.choice(lists).name
        kind = self.rng.randrange(4)
        if kind == 0 and not self.loops:
            self.emit(f"{name}.append({self.operand('m').name})")
        elif kind == 1:
            self.emit(f"{name}[0] = {self.operand('m').name}")
        elif kind == 2:
            self.assign(Variable(f"[t * 2.0 for t in {name}][0]", "m", "?"))
        else:
            self.assign(Variable(f"{name}[{self.rng.choice([0, -1])}]", "m", "?", leaf=True))

    def dictionary(self) -> None:
        name = self.shared.name("d")
        self.feature("dict")
        self.emit(f'{name} = {{"a": {self.operand("m").name}, "b": {self.operand("m").name}}}')
        if self.chance(0.5):
            self.emit(f'{name}["{self.rng.choice("abc")}"] = {self.operand("m").name}')
        self.assign(Variable(f'{name}["{self.rng.choice("ab")}"]', "m", "?", leaf=True))

    def pair(self) -> None:
        self.feature("tuple")
        first, second = self.shared.name("t"), self.shared.name("t")
        values = [self.operand("m"), self.operand("m")]
        self.emit(f"{first}, {second} = {values[0].name}, {values[1].name}")
        for name, value in zip((first, second), values, strict=True):
            self.variables.append(Variable(name, "m", value.dtype, False, value.leaf))

    def query(self) -> None:
        self.feature("query of the state")
        m = self.operand("m").name
        choices = [
            'torch.is_autocast_enabled("cpu")',
            "torch.is_autocast_enabled()",
            'torch.is_autocast_enabled("cuda")',
            "torch.is_autocast_cpu_enabled()",
            'torch.get_autocast_dtype("cpu") == torch.bfloat16',
            f"{m}.dtype == torch.float32",
            f"{m}.dtype == torch.get_autocast_dtype('cpu')",
        ]
        self.emit(f"notes.append(int({self.rng.choice(choices)}))")

    def collect(self) -> None:
        kind = self.rng.choice(["m", "m", "v", "s", "b"])
        self.emit(f"out.append({self.operand(kind).name})")

    def early_return(self) -> None:
        if self.withs:
            return self.collect()
        self.feature("early return")
        self.emit(f"if {self.condition()}:")
        self.emit("    return out, notes")
        self.returned = True

    def arguments(self, callee: Callee) -> list[str]:
        written = []
        for kind in callee.parameters:
            if kind == "int":
                written.append(str(self.rng.randint(1, 3)))
            elif kind == "bool":
                flags = [variable.name for variable in self.of_kind("bool")]
                written.append(self.rng.choice([*flags, "True", "False"]))
            elif kind == "l":
                name = self.operand(kind).name
                written.append("many[:]" if name == "many" else name)
            else:
                written.append(self.operand(kind).name)
        return written

    def received(self, callee: Callee, call: str) -> None:
        if callee.result == "pair":
            first, second = self.shared.name("t"), self.shared.name("t")
            self.emit(f"{first}, {second} = {call}")
            for name in (first, second):
                self.variables.append(Variable(name, "m", "?", leaf=True))
        elif callee.result == "l":
            name = self.shared.name("l")
            self.emit(f"{name} = {call}")
            self.variables.append(Variable(name, "l", "?", True, True))
            self.assign(Variable(f"{name}[0]", "m", "?", leaf=True))
        else:
            self.assign(Variable(call, "m", "?", leaf=True))

    def call(self) -> None:
        callees = [c for c in self.callees if c.pure or not (self.pure or self.shared.gradients)]
        if not callees:
            return self.operation()
        callee = self.rng.choice(callees)
        self.feature("call in a scope" if self.withs else "call outside scopes")
        self.received(callee, f"{callee.name}({', '.join(self.arguments(callee))})")

    def fork(self) -> None:
        callees = [c for c in self.callees if c.pure and not c.name.startswith("self.")]
        if not callees or self.pure:
            return self.operation()
        callee = self.rng.choice(callees)
        self.feature("fork")
        name = self.shared.name("f")
        self.emit(f"{name} = torch.jit.fork({', '.join([callee.name, *self.arguments(callee)])})")
        if self.chance(0.5):
            self.operation()
        self.received(callee, f"torch.jit.wait({name})")

    def submodule(self) -> None:
        if not self.members or not self.members.submodules:
            return self.operation()
        name, call = self.rng.choice(self.members.submodules)
        value = self.aligned(call, "float32")
        self.feature("submodule in a scope" if self.withs else "submodule outside scopes")
        self.assign(replace(value, name=value.name.replace("{}", name, 1)))

    def attribute(self) -> None:
        """A tensor or number of the module is assigned."""
        if not self.members or self.pure:
            return self.operation()
        if self.members.counter and self.chance(0.3):
            self.feature("number written to an attribute")
            self.emit("self.count += 1")
        elif self.members.written:
            self.feature("tensor written to an attribute")
            m = self.operand("m")
            detach = ".detach()" if self.shared.gradients or m.leaf else ""
            self.emit(f"{self.rng.choice(self.members.written)} = {m.name}{detach}")

    # Whole functions.

    def leftovers(self, outside: Set[str] = frozenset()) -> list[str]:
        """Matrices of all values that nothing has used, of variables that are not outside."""
        return [
            TO_MATRIX[v.kind].format(v.name)
            for v in self.variables
            if not v.used and v.kind in TO_MATRIX and v.name not in outside
        ]

    def last_block(self) -> None:
        """Sometimes the end of the function, its `return` included, is in a scope."""
        if self.chance(0.15) and not self.returned:
            text, self.state = self.scope_expression()
            self.emit(f"with {text}:")
            self.depth += 1
            self.left += 2
            self.withs += 1
            self.body(2)
            self.feature("return in a scope")


def _promoted(dtypes: set[str]) -> str:
    if len(dtypes) == 1:
        return dtypes.pop()
    if "?" in dtypes or not dtypes or not dtypes <= set(FLOATING):
        return "?"
    return "float64" if "float64" in dtypes else "float32"


class _Generator:
    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.seed, self.rng = seed, rng
        both = rng.random() < 0.45
        dtypes = ("bfloat16", "float16") if both else ("bfloat16",)
        self.shared = _Shared(rng, rng.random() < 0.3, dtypes, rng.random() < 0.5)
        self.parts: list[str] = []
        self.callees: list[Callee] = []

    def decorators(self) -> tuple[list[str], str | None]:
        """Decorators of a function, and the state that they make."""
        lines: list[str] = []
        state = None
        while self.shared.chance(0.2) and len(lines) < 2:
            dtype = self.rng.choice(self.shared.dtypes)
            choices = [
                (f'@torch.autocast("cpu", dtype=torch.{dtype})', dtype),
                ('@torch.autocast("cpu", enabled=False)', "off"),
                ('@torch.autocast("cuda")', None),
            ]
            line, made = self.rng.choices(choices, [4, 2, 1])[0]
            lines.append(line)
            state = made or state
            self.shared.features.add("decorator")
        return lines, state

    def callee(self, members: _Members | None, callees: Sequence[Callee]) -> Callee:
        """Writes a helper or method, and says how it is called."""
        shared, rng = self.shared, self.rng
        kinds = ["m"] * rng.randint(1, 2)
        kinds += rng.sample(["v", "b", "opt", "l", "int", "bool"], rng.choice([0, 0, 1, 2]))
        pure = shared.chance(0.6) or shared.gradients
        lines, state = self.decorators()
        parameters = [
            Variable(f"{kind}_{i}", kind, "?", kind in ANNOTATIONS, True)
            for i, kind in enumerate(kinds)
        ]
        function = _Function(
            shared,
            parameters,
            callees,
            state=state or "?",
            statements=rng.randint(1, 5),
            members=members,
            pure=pure,
        )
        function.operation()
        function.body(5)
        function.last_block()
        result = rng.choice(["m", "m", "m", "pair", "l"])
        values = function.leftovers() or [function.operand("m").name]
        if result == "m":
            text = " + ".join(values)
        elif result == "l":
            text = f"[{', '.join(values)}]"
        else:
            text = f"{values[0]}, {' + '.join(values[1:] or values)}"
        function.emit(f"return {text}")
        annotation = {"m": "Tensor", "pair": "Tuple[Tensor, Tensor]", "l": "List[Tensor]"}[result]
        name = shared.name("method" if members else "helper")
        self.define(lines, name, parameters, annotation, function.lines, members)
        shared.features.add("method" if members else "helper")
        return Callee(f"self.{name}" if members else name, tuple(kinds), result, pure)

    def define(
        self,
        decorators: Sequence[str],
        name: str,
        parameters: Sequence[Variable],
        annotation: str,
        body: Sequence[str],
        members: _Members | None,
    ) -> None:
        written = [f"{v.name}: {ANNOTATIONS.get(v.kind, 'Tensor')}" for v in parameters]
        if members:
            written.insert(0, "self")
        text = [*decorators, f"def {name}({', '.join(written)}) -> {annotation}:", *body]
        if members:
            members.lines += ["", *("    " + line for line in text)]
        else:
            self.parts.append("\n".join(text) + "\n")

    def members(self, nested: Sequence[str]) -> _Members:
        """A module's parameters, buffers, attributes and submodules."""
        shared, rng = self.shared, self.rng
        members = _Members()
        made = members.lines
        made += ["    def __init__(self) -> None:", "        super().__init__()"]

        def add(line: str) -> None:
            made.append(f"        {line}")

        if shared.chance(0.6):
            add("self.weight = nn.Parameter(torch.randn(4, 4) / 2)")
            members.variables.append(Variable("self.weight", "m", "float32", True, True))
        if shared.chance(0.4):
            add("self.bias = nn.Parameter(torch.randn(4) / 2)")
            members.variables.append(Variable("self.bias", "v", "float32", True, True))
        if shared.chance(0.4):
            dtype = rng.choice(["float32", "float32", "bfloat16"])
            add(f'self.register_buffer("buffer", torch.randn(4, 4, dtype=torch.{dtype}) / 2)')
            members.variables.append(Variable("self.buffer", "m", "?", True, False))
            members.written.append("self.buffer")
            shared.features.add("buffer")
        if shared.chance(0.3):
            add("self.state = torch.zeros(4, 4)")
            members.variables.append(Variable("self.state", "m", "?", True, False))
            members.written.append("self.state")
        if shared.chance(0.3):
            add("self.count = 0")
            members.counter = True
        if shared.chance(0.4):
            for name in rng.sample(["flag", "switch"], rng.randint(1, 2)):
                members.flags[name] = rng.random() < 0.7
                add(f"self.{name} = {members.flags[name]}")
                if shared.chance(0.3):
                    members.declarations.append(f"    {name}: Final[bool]")
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            chosen = rng.choice(SUBMODULE_CLASSES)
            name = shared.name("sub")
            add(f"self.{name} = {chosen.make}")
            members.submodules.append((f"self.{name}", chosen.call))
            shared.features.add(f"nn.{chosen.make.split('(')[0].removeprefix('nn.')}")
        if shared.chance(0.15):
            members.layers = "layers"
            add("self.layers = nn.ModuleList([nn.Linear(4, 4), nn.LayerNorm(4)])")
        for owner in nested:
            name = shared.name("own")
            add(f"self.{name} = {owner}()")
            members.submodules.append((f"self.{name}", Operator("mixed", "m", "{}({m})")))
        return members

    def module(self, name: str, members: _Members) -> None:
        text = [f"class {name}(nn.Module):", *members.declarations]
        if members.declarations:
            text.append("")
        self.parts.append("\n".join([*text, *members.lines]) + "\n")

    def submodule(self, nested: Sequence[str]) -> str:
        """A module class of the program's own, of which the main module holds an instance."""
        members = self.members(nested)
        lines, state = self.decorators()
        parameters = [Variable("x", "m", "?", leaf=True)]
        function = _Function(
            self.shared, parameters, self.callees, state=state or "?",
            statements=self.rng.randint(1, 4), members=members, pure=self.shared.gradients,
        )  # fmt: skip
        function.operation()
        function.body(4)
        function.last_block()
        function.emit(f"return {' + '.join(function.leftovers()) or function.operand('m').name}")
        self.define(lines, "forward", parameters, "Tensor", function.lines, members)
        name = self.shared.name("Part")
        self.module(name, members)
        self.shared.features.add("submodule of the program's own")
        return name

    def inputs(self) -> tuple[list[Variable], list[str]]:
        """The parameters of the program and the expressions of their values."""
        rng, gradients = self.rng, self.shared.gradients
        parameters: list[Variable] = []
        values = []

        def tensor(kind: str, dtype: str) -> str:
            made = f"torch.randn({SHAPES[kind]}).to(torch.{dtype}) / 2"
            return f"({made}).requires_grad_()" if gradients and dtype in FLOATING else made

        def add(name: str, kind: str, dtype: str, value: str) -> None:
            parameters.append(Variable(name, kind, dtype, kind in ANNOTATIONS, leaf=True))
            values.append(value)

        main = rng.choice(["float32", "float32", "float32", "bfloat16"])
        add("x", "m", main, tensor("m", main))
        dtypes = ["float32", "float32", "bfloat16", "float16", "float64"]
        for name in ("y", "z")[: rng.randint(1, 2)]:
            dtype = rng.choice(dtypes)
            self.shared.features.add(f"input of {dtype}")
            add(name, "m", dtype, tensor("m", dtype))
        for kind in rng.sample(["v", "b", "i", "idx", "int", "bool", "opt", "l", "n"], 2):
            dtype = rng.choice(["float32", "float32", rng.choice(dtypes)])
            if kind in SHAPES:
                add(kind, kind, dtype, tensor(kind, dtype))
            elif kind == "idx":
                add("idx", "idx", "int64", "torch.randperm(4)")
            elif kind == "n":
                add("whole", "m", "int64", "torch.randint(1, 4, (4, 4))")
                self.shared.features.add("input of int64")
            elif kind == "int":
                add("n", "int", "", str(rng.randint(1, 3)))
            elif kind == "bool":
                add("flag", "bool", "", str(rng.random() < 0.5))
            elif kind == "opt":
                add("opt", "opt", "", rng.choice(["None", tensor("v", "float32")]))
            else:
                add("many", "l", "?", f"[{tensor('m', dtype)}, {tensor('m', main)}]")
        return parameters, values

    def program(self) -> Program:
        shared, rng = self.shared, self.rng
        is_module = rng.random() < 0.4
        for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
            self.callees.append(self.callee(None, list(self.callees)))
        nested: list[str] = []
        members = None
        if is_module:
            for _ in range(rng.choice([0, 0, 1, 2])):
                # The second may hold the first: a level more.
                inner = [nested.pop()] if nested and shared.chance(0.5) else []
                nested.append(self.submodule(inner))
            members = self.members(nested)
            for _ in range(rng.choice([0, 0, 1])):
                members.methods.append(self.callee(members, list(self.callees)))
        parameters, values = self.inputs()
        lines, state = self.decorators()
        alone = state is not None or rng.random() < 0.4
        collects = rng.random() < 0.7
        callees = [*self.callees, *(members.methods if members else [])]
        function = _Function(
            shared, parameters, callees, state=state or ("off" if alone else "?"),
            statements=rng.randint(3, 15), members=members, collects=collects,
        )  # fmt: skip
        function.fixed.add("many")  # TorchScript is given a copy of a list
        if collects:
            function.emit("out: List[Tensor] = []")
            function.emit("notes: List[int] = []")
        function.body(15)
        function.last_block()
        tensors = [
            f"{v.name}[-1]" if v.kind == "l" else v.name
            for v in function.variables
            if not v.used and v.kind in TO_MATRIX
        ]
        tensors = tensors or [function.operand("m").name]
        if collects and rng.random() < 0.2:
            annotation = "Tuple[List[Tensor], List[int]]"
            pairs = ", ".join(f'"key{i}": {name}' for i, name in enumerate(tensors))
            function.emit(f"found: Dict[str, Tensor] = {{{pairs}}}")
            function.emit("out.extend(list(found.values()))")
            function.emit("return out, notes")
        elif collects:
            annotation = "Tuple[List[Tensor], List[int]]"
            function.emit(f"out.extend([{', '.join(tensors)}])")
            function.emit("return out, notes")
        elif len(tensors) == 1:
            annotation = "Tensor"
            function.emit(f"return {tensors[0]}")
        else:
            annotation = f"Tuple[{', '.join(['Tensor'] * len(tensors))}]"
            function.emit(f"return {', '.join(tensors)}")
        name = "forward" if members else "program"
        self.define(lines, name, parameters, annotation, function.lines, members)
        if members:
            self.module("Program", members)
        shared.features.add("module" if members else "function")
        given = "".join(f"        {value},\n" for value in values)
        self.parts.append(f"def inputs():\n    return (\n{given}    )\n")
        ambients = ["none", *self.ambients(alone)]
        if shared.gradients:
            shared.features.add("gradients")
        freeze = members is not None and not shared.gradients and rng.random() < 0.4
        # PyTorch's executor makes mm and add of an addmm, which rounds once more. In process
        # jit_amp keeps it whole; an artefact runs without jit_amp.
        freeze = freeze and not any("addmm(" in part for part in self.parts)
        if freeze:
            shared.features.add("freeze")
        return Program(
            self.seed,
            "\n\n".join([HEADER, *self.parts]),
            tuple(ambients),
            shared.gradients,
            freeze,
            len(shared.dtypes) == 1,
            frozenset(shared.features),
        )

    def ambients(self, alone: bool) -> list[str]:
        """Two autocast states around calls, besides none; such as the program was written for."""
        names = ["cpu_off", "cuda"]
        if not alone or self.shared.chance(0.2):
            names += ["cpu", "cpu"] + ["cpu_float16"] * (2 * len(self.shared.dtypes) - 2)
        return sorted(set(self.rng.choices(names, k=2)))


def generate(seed: int) -> Program:
    """The program of a seed."""
    return _Generator(seed).program()
