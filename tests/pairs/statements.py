"""Features of the language: what Python has for lists, dictionaries, numbers and modules."""

from __future__ import annotations

from .feature import Feature

STATEMENTS = [
    Feature(
        "list methods",
        "ys = [x, x * 2]\nys.insert(0, self.to_lists(x))\nys.extend([x, x * 3])\nys.reverse()\n"
        "other = ys.copy()\nother.clear()\ndel ys[0]\nfirst = ys.pop(0)\n"
        "x = ys[0] + ys[-1] + first + len(other)",
        "self.to_lists = nn.Linear(4, 4)",
    ),
    Feature(
        "lists of numbers",
        "ns = [3, 1, 2]\nns.sort()\nns += [5]\nns = ns * 2 + [1]\n"
        "if 5 in ns and ns.count(5) == 2:\n"
        "    x = x * (sum(ns) + max(ns) - min(ns) + ns.index(2)) * 0.01",
    ),
    Feature(
        "dictionary methods",
        'd = {"a": x, "b": self.to_dicts(x)}\nd.update({"c": x * 2})\n'
        "e = {name: each * 2 for name, each in d.items()}\n"
        'x = d.get("z", x) + d.setdefault("y", x * 0.5) + e.pop("b")\n'
        'if "a" in d and len(d.keys()) == 4:\n    del d["a"]\n'
        "for each in d.values():\n    x = x + each",
        "self.to_dicts = nn.Linear(4, 4)",
    ),
    Feature(
        "conditions",
        "n = x.size(1)\nx = x if n == 4 else x * 2\n"
        "x = x * 0.5 if 0 < n < 9 and not (n == 5 or n != 4) else self.to_never(x)",
        "self.to_never = nn.Linear(4, 4)",
        traced=False,
    ),
    Feature(
        "reversed operators",
        "y = x.abs().clamp(max=2) + 1\nx = (1 - x) + 2 / y + 2 ** y + (3 % y) + (-x) * 0.5",
    ),
    Feature(
        "reversed operators of bytes",
        "u = torch.arange(4, dtype=torch.uint8)\n"
        "x = x + (1 - u) + (1.5 - u) + (200 + u) + (2 * u)\n$o = 1 - u",
    ),
    Feature(
        "alpha= of sums",
        "y = self.of_alpha(x)\nx = torch.add(x, y, alpha=2) - torch.sub(y, x, alpha=0.5)",
        "self.of_alpha = nn.Linear(4, 4)",
    ),
    Feature(
        "products by @",
        "w = self.of_at.to(x.dtype)\nx = x @ w.t() + (w @ x.t()).t() + (x @ w[0])[:, None]",
        "self.of_at = nn.Parameter(torch.rand(4, 4))",
    ),
    Feature(
        "unpacking",
        "(a, b), c = (x[:, :2], x[:, 2:]), self.to_unpacked(x)\nd, *rest = (c, x, x * 2)\n"
        "x = torch.cat([a, b], 1) + d + rest[0]",
        "self.to_unpacked = nn.Linear(4, 4)",
    ),
    Feature(
        "slices with steps",
        "y = x[:, ::2]\n"
        "x = torch.cat([y, x[:, 1::2]], -1)[..., :4] + x[None, :, :, None][0, ..., 0]",
    ),
    Feature(
        "while True",
        "turn = 0\nwhile True:\n    turn += 1\n    if turn > 2:\n        break\n"
        "    x = self.of_turns(x)",
        "self.of_turns = nn.Linear(4, 4)",
    ),
    Feature(
        "loops in loops",
        "for i in range(2):\n    for j in range(i, 3, 2):\n        x = self.of_loops(x) * (i + j)\n"
        "        if j == 2:\n            break",
        "self.of_loops = nn.Linear(4, 4)",
    ),
    Feature(
        "static method",
        "x = self.halved(x) + self.halved(self.to_static(x))",
        "self.to_static = nn.Linear(4, 4)",
        members="@staticmethod\ndef halved(x: Tensor) -> Tensor:\n    return x * 0.5\n",
    ),
    Feature(
        "keyword arguments",
        "x = self.keywords(scale=0.5, x=x, shift=1.0)",
        "self.to_keywords = nn.Linear(4, 4)",
        members="def keywords(self, x: Tensor, shift: float, *, scale: float) -> Tensor:\n"
        "    return self.to_keywords(x) * scale + shift\n",
    ),
    Feature(
        "several results",
        "q, k, v = self.three(x)\nx = q + k * v",
        "self.to_three = nn.Linear(4, 12)",
        members="def three(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:\n"
        "    q, k, v = self.to_three(x).chunk(3, -1)\n    return q, k, v\n",
    ),
    Feature(
        "layers of a list by number",
        "x = self.by_number[0](x)\nx = self.by_number[-1](x)",
        "self.by_number = nn.ModuleList([nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)])",
    ),
    Feature(
        "layers of two lists at once",
        "for a, b in zip(self.list_a, self.list_b):\n    x = a(x) + b(x)",
        "self.list_a = nn.ModuleList([nn.Linear(4, 4), nn.Tanh()])\n"
        "self.list_b = nn.ModuleList([nn.Identity(), nn.Linear(4, 4)])",
    ),
    Feature(
        "layers of a dictionary by key",
        'x = self.by_key["a"](x) + self.by_key["b"](x)',
        'self.by_key = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Sequential(nn.Linear(4, 4))})',
    ),
    Feature(
        "ParameterDict",
        'x = x * self.weights_by_name["a"] + self.weights_by_name["b"]',
        'self.weights_by_name = nn.ParameterDict({"a": torch.rand(4), "b": torch.rand(4)})',
    ),
    Feature(
        "class of classes",
        "x = self.derived(x)",
        "self.derived = Derived()",
        """
class Base(nn.Module):
    scale = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def inner(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.linear(x)) * self.factor


class Derived(Base):
    def __init__(self) -> None:
        super().__init__()
        self.factor = self.scale
        self.second = nn.Linear(4, 4)

    def inner(self, x: Tensor) -> Tensor:
        return self.second(x)
""",
    ),
    Feature(
        "Optional narrowed by an assertion",
        "maybe: Optional[Tensor] = x\nif x.size(0) > 99:\n    maybe = None\n"
        "assert maybe is not None\n"
        "x = self.of_maybe(maybe)",
        "self.of_maybe = nn.Linear(4, 4)",
        traced=False,
    ),
    Feature(
        "annotate and isinstance",
        "ys = torch.jit.annotate(List[Tensor], [])\nfor i in range(2):\n"
        "    ys.append(self.of_annotate(x))\n"
        "if isinstance(ys, list) and torch.jit.isinstance(ys, List[Tensor]):\n"
        "    x = torch.stack(ys).sum(0)",
        "self.of_annotate = nn.Linear(4, 4)",
        traced=False,
    ),
    Feature(
        "results of several kinds",
        "values, indices = x.max(1)\nordered, order = torch.sort(x, 1)\ntop = torch.topk(x, 2, 1)\n"
        "x = ordered + values[:, None] + top.values.sum(1)[:, None]\n"
        "$o = indices + order.sum() * 0",
        masks=("vmap",),
    ),
    Feature(
        "split and chunk",
        "a, b = x.split([1, 3], 1)\nc, d = self.to_chunks(x).chunk(2, dim=-1)\n"
        "x = torch.cat([b, a], 1) + torch.cat([d, c], 1)",
        "self.to_chunks = nn.Linear(4, 4)",
    ),
    Feature(
        "comparisons of tensors",
        "m = (x > 0.25) & ~(x > 0.75) | (x == 0)\n"
        "x = x.masked_fill(m, 0.5) + m.float() + (x != x)\n"
        "$o = m.any() | m.all()",
    ),
    Feature(
        "numbers out of shapes",
        "b, n = x.shape\nhalf = n // 2\n"
        "x = x.view(b, half, -1).transpose(1, 2).reshape(b, n) * (1 / n)",
        traced=False,
    ),
]
