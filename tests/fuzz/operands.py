"""A function that is being written: its values, and operators applied to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .operators import (
    CAST_OPERATORS,
    VIEW_OPERATORS,
    Operator,
)
from .parts import (
    BY_RULE,
    FROM_MATRICES,
    ON,
    Callee,
    Members,
    Shared,
    Variable,
    promoted,
)


class Operands:
    """A function that is being written: its values, and operators applied to them."""

    def __init__(
        self,
        shared: Shared,
        parameters: Sequence[Variable],
        callees: Sequence[Callee],
        *,
        state: str,
        statements: int,
        members: Members | None = None,
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
        dtype = {"idx": "int64", "mask": "bool"}.get(operator.result) or promoted(dtypes)
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
