"""Random programs: the source of a function or module with autocast scopes in it, from a seed.

A program is the text of a Python file that defines `inputs()` and either a function `program` or a
module `Program`. What is written follows kinds and dtypes of the values roughly, so that most
programs run; one that raises in eager is a program too. Values are kept alive up to the result:
TorchScript drops what nobody uses, errors included.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from .calls import Calls
from .operators import (
    SUBMODULE_CLASSES,
    Operator,
)
from .parts import (
    ANNOTATIONS,
    FLOATING,
    SHAPES,
    TO_MATRIX,
    Callee,
    Members,
    Shared,
    Variable,
)

HEADER = """\
from typing import Dict, Final, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
"""


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


class _Function(Calls):
    """One function, its statements chosen among all that there are."""

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


class _Generator:
    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.seed, self.rng = seed, rng
        both = rng.random() < 0.45
        dtypes = ("bfloat16", "float16") if both else ("bfloat16",)
        self.shared = Shared(rng, rng.random() < 0.3, dtypes, rng.random() < 0.5)
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

    def callee(self, members: Members | None, callees: Sequence[Callee]) -> Callee:
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
        members: Members | None,
    ) -> None:
        written = [f"{v.name}: {ANNOTATIONS.get(v.kind, 'Tensor')}" for v in parameters]
        if members:
            written.insert(0, "self")
        text = [*decorators, f"def {name}({', '.join(written)}) -> {annotation}:", *body]
        if members:
            members.lines += ["", *("    " + line for line in text)]
        else:
            self.parts.append("\n".join(text) + "\n")

    def members(self, nested: Sequence[str]) -> Members:
        """A module's parameters, buffers, attributes and submodules."""
        shared, rng = self.shared, self.rng
        members = Members()
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

    def module(self, name: str, members: Members) -> None:
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
