"""Writes to tensors."""

from __future__ import annotations

from .operands import Operands
from .operators import (
    WRITE_OPERATORS,
)
from .parts import (
    ON,
    Variable,
)


class Writes(Operands):
    """Writes to tensors."""

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
