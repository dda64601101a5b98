"""Lists, dictionaries, pairs, and what is asked and collected."""

from __future__ import annotations

from .blocks import Blocks
from .parts import (
    Variable,
)


class Containers(Blocks):
    """Lists, dictionaries, pairs, and what is asked and collected."""

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
