"""Calls of functions, tasks and submodules, attributes, and ways out."""

from __future__ import annotations

from dataclasses import replace

from .containers import Containers
from .parts import (
    Callee,
    Variable,
)


class Calls(Containers):
    """Calls of functions, tasks and submodules, attributes, and ways out."""

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
