"""Random modules for artefacts, with inputs A to freeze them with and others, B, to call them with.

A program is what `programs` says, a module always, with `others()` besides `inputs()`: calls whose
sizes, ranks, lengths, keys, orders, numbers, dtypes, strides and gradients are not the example's.
An artefact gives what eager gives for each, or its check refuses it. So programs are full of what
rests on such things: type promotion with tensors that may have no dimensions, elements of lists,
tuples and dictionaries chosen at run time, loops of zero turns, questions about dtypes, and an
operator of which nothing is known. Shapes are free: matrices are square, all of one size.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from .programs import Program

HEADER = """\
from typing import Dict, List, Optional, Tuple

import fuzz.opaque
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def t(*shape, dtype=torch.float32, by_columns=False, grad=False):
    x = (torch.rand(shape) / 2 + 0.25).to(dtype)
    x = x.t().contiguous().t() if by_columns and len(shape) == 2 else x
    return x.requires_grad_(grad)
"""

# Expressions, each behind the kind that it gives: m a square matrix, r a tensor that a matrix can
# be multiplied with, l a list of m, d a dictionary of m, p a pair of m. Operands also: o an r or
# None, k a small number, i 0 or 1, b a bool, s a shape of an r, key a string.
EXPRESSIONS = """
m  $m @ $m
m  torch.mm($m, $m)
m  F.linear($m, $m)
m  torch.addmm($m, $m, $m)
m  torch.einsum("ij,jk->ik", $m, $m)
m  torch.einsum("ij,jk->ik", $m, $m[:$i * 9 + 1])
m  torch.einsum("ij,jk->ik", [$m, $m])
m  $m * $r
m  $m + $r
m  $r - $m
m  $m / ($r.abs() + 1)
m  $m * 2.0
m  $m + $k
m  torch.add($m, $r, alpha=2)
m  torch.where($m > 0.5, $m, $r)
m  torch.maximum($m, $r.to($m.dtype))
m  torch.addcmul($m, $m, $r)
m  torch.atan2($m, $r)
m  F.softmax($m, dim=-1)
m  F.gelu($m)
m  F.relu($m, inplace=False)
m  $m.clone().mul_($r)
m  $m.clone().relu_()
m  $m.clone().copy_($r)
m  $m.t()
m  $m.float()
m  $m.to($r.dtype)
m  $m.type_as($r)
m  $m.masked_fill($m > 0.5, 0.5)
m  torch.zeros_like($m) + $r
m  $m.new_ones($m.shape)
m  torch.ones($m.size(0), $m.size(0), dtype=$r.dtype)
m  torch.cumsum($m, 0)
m  $l[0]
m  $l[-1]
m  $l[$i]
m  ($l + [$m])[1]
m  ($l + $l)[$k]
m  ([$m] + $l)[$k]
m  ([$m] * len($l) + [$m])[1]
m  $l[::-1][0]
m  $l[$i:][0]
m  list(torch.stack($l).unbind(0))[0]
m  (list(torch.stack($l).unbind(0)) + [$m])[1]
m  torch.stack($l)[0]
m  torch.cat($l)[:$m.size(0)]
m  torch.cat([$m, $r.expand_as($m)])[:$m.size(0)]
m  sum_of($l, $m)
m  $p[0]
m  $p[$i]
m  ($m, $m)[$i]
m  [$m, $m][$i]
m  $d["a"]
m  $d[$key]
m  list($d.values())[0]
m  list($d.values())[-1]
m  either($o, $m)
m  self.scale * $m
m  $m + self.shift
r  $m.sum()
r  $m.mean(-1)
r  $m.sum(0, keepdim=True)
r  $m.amax(0, keepdim=$b)
r  $m[0]
r  $m.select(0, 0)
r  $m[0, 0]
r  $m.diagonal()
r  $m.unbind(0)[0]
r  $m.flatten()[:1].squeeze()
r  $m.max()
r  torch.prod($m)
r  torch.prod($m, 0)
r  torch.prod($r)
r  torch.norm($m)
r  F.mse_loss($m, $m)
r  $r.squeeze()
r  $r.squeeze(0)
r  $r.mean()
r  $r.clone()
r  $r + 1
r  $r * $r
r  $r * self.scale
r  torch.sigmoid($r)
r  $r.to($m.dtype)
r  torch.ones($s)
r  torch.full($s, 0.5)
r  torch.zeros($s, dtype=torch.bfloat16)
r  $r.new_ones($s)
r  $m.new_full($s, 0.25)
r  torch.tensor(0.5)
r  torch.tensor([0.5])
r  torch.tensor(float($k))
r  torch.tensor($k)
r  $m.argmax($i)
r  torch.arange($m.size(1))
r  ($m > 0.5)
r  self.scale
r  self.shift
r  either($o, $r)
r  ($r, $r)[$i]
r  [$r, $r, $r][$k]
l  [$m, $m]
l  $l + [$m]
l  [$m] + $l
l  [$m] * $k + $l
l  $l[::-1]
l  $l[$i:]
l  list(torch.stack($l).unbind(0))
l  list($d.values())
l  [each * $r for each in $l]
l  [each @ each for each in $l]
d  {"a": $m, "b": $m}
d  {"a": $m, $key: $m}
d  {$key: $m, "b": $m}
p  ($m, $m)
p  ($l[0], $m)
"""
CONDITIONS = """
$r.dtype == torch.bfloat16
$m.dtype == torch.float32
$m.dtype == $r.dtype
$r.dim() == 0
$r.dim() < 2
$r.is_floating_point()
$r.numel() == 1
$m.size(0) > 2
$o is None
$o is not None
$b
not $b
$k > 1
$i == 0
len($l) > 2
len($s) == 0
$key == "a"
$key in $d
bool($m.sum() > 1)
"""
HELPERS = """
def either(given: Optional[Tensor], other: Tensor) -> Tensor:
    if given is None:
        return other
    return given


def sum_of(given: List[Tensor], start: Tensor) -> Tensor:
    for each in given:
        start = start + each
    return start
"""
ANNOTATIONS = {
    "m": "Tensor", "r": "Tensor", "l": "List[Tensor]", "d": "Dict[str, Tensor]",
    "p": "Tuple[Tensor, Tensor]", "o": "Optional[Tensor]", "k": "int", "i": "int", "b": "bool",
    "s": "List[int]", "key": "str",
}  # fmt: skip
DTYPES = ("float32",) * 5 + ("bfloat16",) * 4 + ("float16", "float64")

TABLE = [tuple(line.split(maxsplit=1)) for line in EXPRESSIONS.strip().splitlines()]
BY_KIND = {
    kind: [text for given, text in TABLE if given == kind] for kind in ("m", "r", "l", "d", "p")
}
CHECKS = CONDITIONS.strip().splitlines()


class _Body:
    """The statements of forward."""

    def __init__(self, rng: random.Random, inputs: dict[str, str], statements: int) -> None:
        self.rng, self.left = rng, statements
        self.names: dict[str, list[str]] = {kind: [] for kind in ANNOTATIONS}
        for name, kind in inputs.items():
            self.names[kind].append(name)
        self.lines: list[str] = []
        self.depth, self.loops, self.count = 2, 0, 0
        self.changed = ""  # a matrix that was assigned again
        self.given = set(inputs)

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def operand(self, kind: str, deep: bool = True) -> str:
        """A variable of the kind, mostly a late one, or an expression."""
        names = self.names[kind]
        if kind in BY_KIND and (not names or (deep and self.rng.random() < 0.2)):
            return f"({self.expression(kind, deep=False)})"
        if not names:
            return {"i": "1", "k": "2", "b": "True", "s": "[1]", "key": '"b"', "o": "None"}[kind]
        return self.rng.choice(names[-4:] + names)

    def expression(self, kind: str, deep: bool = True) -> str:
        choices = BY_KIND[kind]
        if not deep:  # of what is there, or this would not end
            choices = [
                text
                for text in choices
                if all(self.names[k] for k in re.findall(r"\$(\w+)", text) if k in BY_KIND)
            ]
        return self.filled(self.rng.choice(choices), deep)

    def filled(self, text: str, deep: bool = True) -> str:
        return re.sub(r"\$(\w+)", lambda found: self.operand(found[1], deep), text)

    def assign(self) -> None:
        kind = self.rng.choices(["m", "r", "l", "d", "p"], [6, 4, 1.2, 0.6, 0.6])[0]
        value = self.expression(kind)
        mine = [n for n in self.names[kind] if n not in self.given and not n.startswith("each")]
        if mine and self.rng.random() < 0.25:
            name = self.rng.choice(mine)
        else:
            self.count += 1
            name = f"{kind}{self.count}"
            self.names[kind].append(name)
        self.emit(f"{name} = {value}")
        if kind in "mr" and self.rng.random() < 0.4:
            self.emit(f"out.append({name})")

    def again(self) -> None:
        """A matrix of before becomes another: of another dtype maybe, if the block runs."""
        mine = [n for n in self.names["m"] if n not in self.given and not n.startswith("each")]
        if mine:
            self.changed = self.rng.choice(mine)
            self.emit(f"{self.changed} = {self.expression('m')}")
        else:
            self.assign()

    def change(self) -> None:
        mine = [n for n in self.names["l"] if n not in self.given]
        if not mine:
            return self.assign()
        name, m = self.rng.choice(mine), self.operand("m")
        i = self.operand("i")
        changes = [
            f"{name}.append({m})",
            f"{name}.insert({i}, {m})",
            f"{name}[{i}] = {m}",
            f"{name}.reverse()",
            f"{name}.extend([{m}, {m}])",
            f"{name} += [{m}]",
        ]
        if not self.loops:
            changes.append(f"{name}.append({name}.pop({i}))")
        self.emit(self.rng.choice(changes))

    def inside(self, *first: Callable[[], None]) -> None:
        """A block: its names are gone after it."""
        before = {kind: list(names) for kind, names in self.names.items()}
        self.depth += 1
        for statement in first:
            statement()
        self.run(self.rng.randint(1, 3))
        self.depth -= 1
        self.names = before

    def branch(self) -> None:
        self.emit(f"if {self.filled(self.rng.choice(CHECKS))}:")
        self.inside(self.again)
        if self.rng.random() < 0.5:
            self.emit("else:")
            self.inside(self.again)

    def loop(self) -> None:
        if self.loops > 1:
            return self.assign()
        self.loops += 1
        self.changed = ""
        lists = self.names["l"]
        if lists and self.rng.random() < 0.5:
            self.count += 1
            each = f"each{self.count}"
            self.emit(f"for {each} in {self.rng.choice(lists)}[:3]:")
            self.inside(lambda: self.names["m"].append(each), self.again)
        else:
            self.emit(f"for _ in range({self.operand('k')}):")
            self.inside(self.again)
        # Of a loop that nobody needs PyTorch's executor makes "IValue is not a Scalar", in plain
        # TorchScript too: `x + k` in a loop, and `baddbmm` in another.
        if self.changed in self.names["m"]:
            self.emit(f"out.append({self.changed})")
        self.loops -= 1

    def scope(self) -> None:
        dtype = self.rng.choice(["bfloat16", "bfloat16", "bfloat16", "float16"])
        off = ", enabled=False" if self.rng.random() < 0.15 else ""
        self.emit(f'with torch.autocast("cpu", dtype=torch.{dtype}{off}):')
        before = self.depth
        self.depth += 1
        self.run(self.rng.randint(2, 6))
        self.depth = before

    def run(self, statements: int) -> None:
        kinds = [(6.0, self.assign), (1.0, self.branch), (0.7, self.loop), (0.8, self.change)]
        if self.depth < 5:
            kinds.append((1.2, self.scope))
        for n in range(statements):
            if self.left <= 0 and n:
                return
            self.left -= 1
            self.rng.choices([k for _, k in kinds], [w for w, _ in kinds])[0]()


def _tensor(shape: str, dtype: str, more: str = "") -> str:
    return f"t({shape}{', ' if shape else ''}dtype=torch.{dtype}{more})"


class _Inputs:
    """Values for the inputs: the example's, and others."""

    def __init__(self, rng: random.Random, kinds: dict[str, str]) -> None:
        self.rng, self.kinds = rng, kinds
        self.dtypes = {name: [rng.choice(DTYPES) for _ in range(3)] for name in kinds}
        self.dtypes["x"][0] = rng.choice(["float32", "float32", "bfloat16"])
        self.none = {name: rng.random() < 0.5 for name in kinds}
        self.alike = {name: rng.random() < 0.8 for name in kinds}

    def values(self, *, others: bool) -> str:
        rng = self.rng
        size = rng.choice([1, 2, 3, 3, 5, 0]) if others else rng.choice([2, 3])
        swapped = rng.choice(list(self.kinds)) if others and rng.random() < 0.35 else ""
        grad = others and rng.random() < 0.2
        made = []
        for name, kind in self.kinds.items():
            dtypes = list(self.dtypes[name])
            none = self.none[name]
            if name == swapped:
                dtypes = [rng.choice(DTYPES) for _ in dtypes]
                none = not none
            made.append(self.value(kind, name, size, dtypes, none, others, grad))
        return f"({', '.join(made)},)"

    def value(
        self,
        kind: str,
        name: str,
        size: int,
        dtypes: list[str],
        none: bool,
        others: bool,
        grad: bool,
    ) -> str:
        rng = self.rng
        more = (", by_columns=True" if rng.random() < 0.2 else "") + (", grad=True" if grad else "")
        m = [_tensor(f"{size}, {size}", dtype, more) for dtype in dtypes]
        shapes = ["", f"{size}", "1", f"1, {size}", f"{size}, 1", "1, 1"]
        if kind == "m":
            return m[0]
        if kind in "ro":
            value = _tensor(rng.choice(shapes), dtypes[0], ", grad=True" if grad else "")
            return "None" if kind == "o" and none else value
        if kind == "l":
            n = rng.choice([1, 2, 3, 4]) if others else rng.choice([2, 3])
            same = [m[0]] * 4 if self.alike[name] else [*m, m[0]]
            return f"[{', '.join(same[:n])}]"
        if kind == "d":
            pairs = [f'"a": {m[0]}', f'"b": {m[0] if self.alike[name] else m[1]}']
            if others and rng.random() < 0.3:
                pairs.reverse()
            return f"{{{', '.join(pairs)}}}"
        if kind == "p":
            return f"({m[0]}, {m[1]})"
        if kind == "s":
            return f"[{rng.choice(shapes)}]"
        if kind == "key":
            return rng.choice(['"a"', '"b"'])
        if kind == "b":
            return str(rng.random() < 0.5)
        if kind == "i":
            return str(rng.choice([0, 1]))
        return str(rng.choice([0, 1, 2, 3] if others else [1, 2]))


def generate(seed: int) -> Program:
    """The program of a seed, with eight other calls."""
    rng = random.Random(f"artefact {seed}")
    more = rng.sample(["m", "r", "r", "l", "d", "p", "o", "k", "i", "b", "s", "key"], 5)
    kinds = {"x": "m", **{f"{kind}_{n}": kind for n, kind in enumerate(more)}}
    body = _Body(rng, kinds, rng.randint(4, 14))
    if rng.random() < 0.25:  # outside scopes: in them it is refused
        body.emit(f"m0 = torch.ops.jit_amp_fuzz.odd({body.operand('m')})")
        body.names["m"].append("m0")
    body.scope()
    body.run(3)
    rest = body.names["m"][1:] + body.names["r"]
    rest = [name for name in rest if name not in kinds] or ["x"]
    body.emit(f"out.extend([{', '.join(rest)}])")
    parameters = ", ".join(f"{name}: {ANNOTATIONS[kind]}" for name, kind in kinds.items())
    inputs = _Inputs(rng, kinds)
    scale, shift = rng.choice(["torch.tensor(0.5)", "torch.rand(1)"]), rng.choice(DTYPES)
    example = inputs.values(others=False)
    others = "".join(f"        {inputs.values(others=True)},\n" for _ in range(8))
    lines = "\n".join(body.lines)
    source = f"""{HEADER}
{HELPERS}

class Program(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter({scale})
        self.register_buffer("shift", torch.rand(1).to(torch.{shift}))

    def forward(self, {parameters}) -> List[Tensor]:
        out: List[Tensor] = []
{lines}
        return out


def inputs():
    return {example}


def others():
    return [
{others}    ]
"""
    # Of an input that requires gradients eager caches the cast, and forgets which dtype it is of.
    cache = 'autocast("cpu", dtype=torch.float16' not in source
    features = frozenset({"artefact"})
    return Program(seed, source, ("none",), freeze=True, cache=cache, features=features)
