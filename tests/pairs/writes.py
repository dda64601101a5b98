"""Features that write: to state in containers and objects, and in place to whatever can be.

Such state is no attribute that changes: nothing but the writes themselves says that it moves.
"""

from __future__ import annotations

from typing import Any

from .feature import Feature

SUM = "x.detach().float().nan_to_num().sum(0)"

# Traced, such state has moved by the run that was traced, and is not set back.
STATE_IN_CONTAINERS = [
    Feature(
        "tensors of a list, counted in a loop",
        "for each in self.ticks:\n    each += 1\nx = x + self.ticks[1]",
        "self.ticks = [torch.zeros(4), torch.zeros(4)]",  # equal at first: they stay two
        traced=False,
    ),
    Feature(
        "tensors of a list, written by index",
        f"self.running[0] += {SUM}\nself.running[1].mul_(0.5)\n"
        "x = x + self.running[1]\n$o = self.running[0] * 1",
        "self.running = [torch.zeros(4), torch.ones(4)]",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "tensors of a dictionary, written by key",
        f'self.moments["sum"] += {SUM}\nself.moments["one"] *= 0.5\n'
        'x = x + self.moments["one"]\n$o = self.moments["sum"] * 1',
        'self.moments = {"sum": torch.zeros(4), "one": torch.ones(4)}',
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "tensors of a dictionary, written in a loop",
        'for name, each in self.by_name.items():\n    each.add_(1)\nx = x * self.by_name["b"]',
        'self.by_name = {"a": torch.zeros(4), "b": torch.zeros(4)}',
        traced=False,
    ),
    Feature(
        "tensors of lists in a list, written",
        "self.grid[1][0] += 1\nx = x + self.grid[0][0]\n$o = self.grid[1][0] * 1",
        "self.grid = [[torch.zeros(4)], [torch.zeros(4)]]",
        traced=False,
    ),
    Feature(
        "tensors of lists in a dictionary, written",
        'for each in self.lists["a"]:\n    each.add_(0.5)\nx = x * self.lists["a"][0]',
        'self.lists = {"a": [torch.ones(4)], "b": [torch.ones(4)]}',
        traced=False,
    ),
    Feature(
        "tensors of a tuple, written",
        "self.two_kept[0].add_(1)\nx = x + self.two_kept[0] + self.two_kept[1]",
        "self.two_kept = (torch.zeros(4), torch.zeros(4))",
        traced=False,
    ),
    Feature(
        "tensor attribute that is no buffer, written",
        "self.no_buffer.add_(1)\nx = x + self.no_buffer",
        "self.no_buffer = torch.zeros(4)",
        traced=False,
    ),
    Feature(
        "list of tensors that changes its elements",
        f"self.latest[0] = self.latest[1]\nself.latest[1] = {SUM}\nx = x + self.latest[0]",
        "self.latest = [torch.zeros(4), torch.zeros(4)]",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "list of numbers that grows",
        "self.lengths.append(x.size(0))\nif len(self.lengths) > 2:\n    self.lengths.clear()\n"
        "x = x + len(self.lengths)",
        "self.lengths = []",
        members="lengths: List[int]\n",
        traced=False,
    ),
    Feature(
        "numbers of a dictionary, counted",
        'self.counts["calls"] += 1\nself.counts["rows"] = x.size(0)\n'
        'x = x * self.counts["calls"] + self.counts["rows"]',
        'self.counts = {"calls": 0, "rows": 0}',
        traced=False,
    ),
    Feature(
        "list by another name",
        f"same = self.by_two_names\nsame.append({SUM})\nx = x + self.by_two_names[-1]",
        "self.by_two_names = [torch.zeros(4)]",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "tensor of a list by another name",
        "first = self.named_twice[0]\nfirst += 1\nx = x + self.named_twice[0]",
        "self.named_twice = [torch.zeros(4), torch.zeros(4)]",
        traced=False,
    ),
    Feature(
        "state of a submodule, written from outside",
        "self.holder.seen.add_(1)\nself.holder.many[0].add_(1)\nx = self.holder(x)",
        "self.holder = Holder()",
        """
class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.many = [torch.zeros(4), torch.zeros(4)]

    def forward(self, x: Tensor) -> Tensor:
        return x + self.seen * self.many[0] + self.many[1]
""",
        traced=False,
    ),
    Feature(
        "list of tensors that a method writes to",
        "self.tick_all(self.ticked)\nx = x + self.ticked[1]",
        "self.ticked = [torch.zeros(4), torch.zeros(4)]",
        members="def tick_all(self, tensors: List[Tensor]) -> None:\n"
        "    for each in tensors:\n        each.add_(1)\n",
        traced=False,
    ),
    Feature(
        "reduced-precision state in a list",
        "y = self.to_state(x.detach()).detach().nan_to_num()\n"
        "self.narrow_state[0] += y.sum(0).clamp(-9, 9)\n$o = self.narrow_state[0] * 1",
        "self.narrow_state = [torch.zeros(4).bfloat16(), torch.zeros(4).bfloat16()]\n"
        "self.to_state = nn.Linear(4, 4)",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "list argument, written",
        "for each in written:\n    each.mul_(0.5)\nwritten[0] += 1\nx = x + written[0]",
        args=(("written: List[Tensor]", "[torch.rand(4), torch.rand(4)]", "[torch.rand(4)]"),),
        direct=True,
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "tensors of a dictionary argument, written",
        'store["old"].add_(1)\nx = x + store["old"]',
        args=(
            (
                "store: Dict[str, Tensor]",
                '{"old": torch.rand(4)}',
                '{"old": torch.rand(1)}',
            ),
        ),
        direct=True,
        traced=False,
        masks=("vmap", "checkpoint"),
    ),
]

FLOATS = ("+= 0.5", "-= 0.25", "*= 2", "/= 0.5", "%= 1.5", "**= 2")
ARITHMETIC = ("+= 0.5", "-= 0.25", "*= 2", "/= 0.5")
INTEGERS = (
    "+= 3", "-= 1", "*= 3", "%= 7", "&= 13", "|= 2", "^= 1", "<<= 1", ">>= 1", "**= 2",
)  # fmt: skip
OF_BOOL = ("&= flags", "|= other", "^= flags")


OBJECT = """
@torch.jit.script
class Target:
    def __init__(self, value: Tensor) -> None:
        self.value = value
"""


def _written(
    name: str, start: str, expression: str, operators: tuple[str, ...], end: str, **more: Any
) -> Feature:
    lines = [start, *(f"{expression} {each}" for each in operators), end]
    return Feature(f"in place, {name}", "\n".join(line for line in lines if line), **more)


def _floats(
    target: str,
    expression: str,
    start: str,
    whole: str,
    init: str = "",
    operators: tuple[str, ...] = FLOATS,
    **more: Any,
) -> Feature:
    start = f"y = self.of_target(x)\n{start}".strip()
    init = f"self.of_target = nn.Linear(4, 4)\n{init}".strip()
    end = f"x = x + {whole}"
    return _written(f"floats: {target}", start, expression, operators, end, init=init, **more)


def _integers(
    target: str,
    expression: str,
    start: str,
    whole: str,
    init: str = "pass",
    operators: tuple[str, ...] = INTEGERS,
    **more: Any,
) -> Feature:
    start = f"k = torch.arange(4) + 1\n{start}".strip()
    end = f"x = x + {whole}\n$o = ({whole}) * 1"
    return _written(f"integers: {target}", start, expression, operators, end, init=init, **more)


IN_PLACE = [
    _floats("a variable", "y", "", "y"),
    _floats("a tensor of a list", "ys[0]", "ys = [y, x]", "ys[0]"),
    _floats("a tensor of a dictionary", 'named["k"]', 'named = {"k": y}', 'named["k"] + y'),
    _floats("a field", "target.value", "target = Target(y)", "y", top=OBJECT, masks=("lite",)),
    _floats("a slice", "y[:, 1:]", "", "y", operators=ARITHMETIC),
    _floats("a column", "y[:, 0]", "", "y", operators=ARITHMETIC),
    _floats(
        "a mask",
        "y[chosen]",
        "chosen = x > 0.5",
        "y",
        operators=ARITHMETIC,
        masks=("vmap",),
        traced=False,  # a trace keeps how many were chosen
    ),
    _floats(
        "a slice of a list's tensor", "ys[0][:, :2]", "ys = [y]", "ys[0]", operators=ARITHMETIC
    ),
    _floats(
        "a slice, dropped operators",
        "y[:, 1:]",
        "",
        "y",
        operators=("%= 0.75",),
        refused_in_process=("JA210",),  # PyTorch's compiler drops the write
    ),
    _floats(
        "a buffer",
        "self.target",
        "",
        "self.target",
        'self.register_buffer("target", torch.rand(4))',
    ),
    _floats(
        "a tensor of the module's list",
        "self.targets[0]",
        "",
        "self.targets[0]",
        "self.targets = [torch.rand(4), torch.rand(4)]",
        traced=False,
    ),
    _floats(
        "a tensor of the module's dictionary",
        'self.targets_by_name["k"]',
        "",
        'self.targets_by_name["k"]',
        'self.targets_by_name = {"k": torch.rand(4)}',
        traced=False,
    ),
    _integers("a variable", "k", "", "k"),
    _integers(
        "a tensor of a list",
        "ks[0]",
        "ks = [k, k + 1]",
        "ks[0]",
        # With gradients PyTorch's executor makes `k` a constant, and writes to it at each call.
        apart=("input that requires grad",),
    ),
    _integers("a tensor of a dictionary", 'kept["k"]', 'kept = {"k": k}', 'kept["k"] + k'),
    _integers("a field", "target.value", "target = Target(k)", "k", top=OBJECT, masks=("lite",)),
    _integers(
        "a slice, dropped operators",
        "k[1:]",
        "",
        "k",
        operators=("&= 13", "|= 2", "^= 1"),
        refused_in_process=("JA210",),  # PyTorch's compiler drops the write
    ),
    _integers("a slice", "k[1:]", "", "k", operators=("+= 3", "-= 1", "*= 3")),
    _integers(
        "a buffer",
        "self.bits",
        "",
        "self.bits",
        'self.register_buffer("bits", torch.arange(4) + 1)',
        operators=INTEGERS[:-1],
    ),
    _integers(
        "a tensor of the module's dictionary",
        'self.bits_by_name["k"]',
        "",
        'self.bits_by_name["k"]',
        'self.bits_by_name = {"k": torch.arange(4) + 1}',
        traced=False,
        operators=INTEGERS[:-1],
    ),
    Feature(
        "in place, bool: a variable",
        "flags = x > 0.5\nother = x > 0\nm = other.clone()\n"
        + "\n".join(f"m {each}" for each in OF_BOOL)
        + "\nx = x * m\n$o = m * 1",
    ),
    Feature(
        "in place, bytes: a variable",
        "u = torch.arange(4, dtype=torch.uint8)\n"
        + "\n".join(f"u {each}" for each in INTEGERS[:-1])
        + "\nx = x + u\n$o = u * 1",
    ),
    Feature(
        "in place by a tensor of another dtype",
        "wide = torch.zeros(4, dtype=torch.float64)\nwide += x.detach().nan_to_num().sum(0)\n"
        "y = self.of_mixed(x)\ny *= torch.ones(4)\ny += torch.tensor(0.5).double()\n"
        "x = y + wide.type_as(y)",  # of `y.dtype` a trace makes a constant
        "self.of_mixed = nn.Linear(4, 4)",
        masks=("vmap",),
    ),
    Feature(
        "in place by a layer's result",
        "y = torch.ones_like(x)\ny += self.of_result(x)\ny -= self.of_result(x) * 0.5\n"
        "y *= self.of_result(x)\nx = y",
        "self.of_result = nn.Linear(4, 4)",
    ),
    Feature(
        "methods that write",
        "y = self.of_methods(x)\ny.clamp_(-2, 2).sub_(0.5).abs_().sqrt_()\n"
        "y.masked_fill_(y > 1, 0.5)\n"
        "y.t_()\nx = y.t() + torch.empty_like(x).fill_(0.25).zero_()",
        "self.of_methods = nn.Linear(4, 4)",
    ),
]

WRITES = STATE_IN_CONTAINERS + IN_PLACE
