"""Branches and loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .parts import (
    Variable,
)
from .scopes import Scopes


class Blocks(Scopes):
    """Branches and loops."""

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
