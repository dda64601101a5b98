"""What people make modules of: each feature is a snippet that compose.py puts into a module.

A step changes `x`, a floating tensor of shape (n, 4), float32 unless a scope is open around it. An
`around` holds others, where it says `$inside`. A setting changes the input, the result, or what is
around the whole. `$o` is a further result, a tensor. The comment on a refusal says why it is right.
"""

from __future__ import annotations

from .company import COMPANY
from .feature import Feature
from .statements import STATEMENTS
from .writes import WRITES

BF16 = 'torch.autocast("cpu", dtype=torch.bfloat16)'

ATTRIBUTES = [
    Feature(
        "shared submodule",
        "x = self.share_b(self.share_a(x))",
        "act = nn.SiLU()\nself.share_a, self.share_b = ShareBlock(act), ShareBlock(act)",
        """
class ShareBlock(nn.Module):
    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.linear, self.act = nn.Linear(4, 4), act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x))
""",
    ),
    Feature(
        "tied submodule",
        "x = self.tied_b(torch.tanh(self.tied_a(x)))",
        "self.tied_a = nn.Linear(4, 4)\nself.tied_b = self.tied_a",
    ),
    Feature(
        "tied weight",
        "x = self.head_b(self.head_a(x))",
        "self.head_a, self.head_b = nn.Linear(4, 4), nn.Linear(4, 4)\n"
        "self.head_b.weight = self.head_a.weight",
    ),
    Feature(
        "list attribute", "x = x * self.scales[1] + self.scales[0]", "self.scales = [0.5, 0.25]"
    ),
    Feature(
        "list of tensors attribute",
        "for each in self.tables:\n    x = x + each",
        "self.tables = [torch.rand(4), torch.rand(1)]",
    ),
    Feature(
        "dictionary attribute",
        'x = x * self.options["scale"] + len(self.options)',
        'self.options = {"scale": 0.5, "shift": 1.5}',
    ),
    Feature(
        "dictionary of tensors attribute",
        'x = F.linear(x, self.mixers["b"].to(x.dtype))',
        'self.mixers = {"a": torch.rand(4), "b": torch.rand(4, 4)}',
    ),
    Feature(
        "tuple attribute",
        "x = x.reshape(self.shape)[:, self.sizes[0]:].reshape(x.shape) * self.sizes[1]",
        "self.shape, self.sizes = (-1, 4), (0, 0.5)",
    ),
    Feature("device attribute", "x = x.to(self.place)", 'self.place = torch.device("cpu")'),
    Feature("unused device attribute", "x = x * 1.5", 'self._device = torch.device("cpu")'),
    Feature(
        "list of devices attribute",
        "x = x.to(self.places[0])",
        'self.places = [torch.device("cpu"), torch.device("cpu")]',
    ),
    Feature(
        "complex attribute",
        "x = x + torch.real(torch.ones(1) * self.factor)",
        "self.factor = 0.5 + 2j",
    ),
    Feature("None attribute", "if self.nothing is None:\n    x = x + 0.5", "self.nothing = None"),
    Feature(
        "string attribute",
        'if self.activation == "tanh":\n    x = torch.tanh(x)\nelse:\n    x = torch.relu(x)',
        'self.activation = "tanh"',
    ),
    Feature("dtype attribute", "x = x.to(self.kind) * 0.5", "self.kind = torch.float32"),
    Feature(
        "attribute called _packed",
        "x = x * self._packed + self._c_like",
        "self._packed, self._c_like = 0.5, 1",
        direct=True,
    ),
    Feature(
        "enumeration attribute",
        "if self.color == Color.RED:\n    x = x * 0.5",
        "self.color = Color.RED",
        "class Color(enum.Enum):\n    RED = 1\n    BLUE = 2\n",
    ),
    Feature(
        "constants",
        "for i in range(self.depth):\n    x = x * self.CLASS_WIDE",
        "self.depth = 2",
        members="__constants__ = ['CLASS_WIDE']\nCLASS_WIDE = 0.75\ndepth: Final[int]\n",
    ),
    Feature(
        "property",
        "x = F.linear(x, self.half_weight.to(x.dtype))",
        "self.whole = nn.Parameter(torch.rand(4, 4))",
        members="@property\ndef half_weight(self) -> Tensor:\n    return self.whole * 0.5\n",
    ),
    Feature(
        "property with a product",
        "x = F.linear(x, self.squared.to(x.dtype))",
        "self.rooted = nn.Parameter(torch.rand(4, 4) * 0.5)",
        members="@property\ndef squared(self) -> Tensor:\n    return self.rooted @ self.rooted\n",
    ),
    Feature(
        "interface",
        "x = self.proxy.forward(x)",
        "self.proxy = Doubling()",
        """
@torch.jit.interface
class Transform(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Doubling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * 2
""",
        "proxy: Transform\n",
        # a module behind an interface is chosen when the program runs
        refused=("JA303",),
        # TorchScript loses the gradients of such a call in vmap; and what is behind an interface it
        # optimizes at its second call, which then saves other tensors than the first.
        masks=("vmap", "checkpoint"),
    ),
    Feature(
        "frozen parameter",
        "x = F.linear(x, self.still)",
        "self.still = nn.Parameter(torch.rand(4, 4), requires_grad=False)",
        scope="in",
    ),
    Feature(
        "bfloat16 weight",
        "x = F.linear(x, self.narrow, self.narrow_bias)",
        "self.narrow = nn.Parameter(torch.rand(4, 4).bfloat16())\n"
        "self.narrow_bias = nn.Parameter(torch.rand(4))",
        scope="in",
    ),
]

STATE = [
    Feature(
        "buffer written",
        "self.seen += x.detach().float().mean(0).nan_to_num()\nx = x + self.seen",
        'self.register_buffer("seen", torch.zeros(4))',
        masks=("vmap",),
    ),
    Feature(
        "product added to a buffer",
        "self.total += self.to_total(x.detach()).sum(0).detach()\n$o = self.total * 1",
        'self.to_total = nn.Linear(4, 4)\nself.register_buffer("total", torch.zeros(4))',
        masks=("vmap",),
    ),
    Feature(
        "buffer assigned",
        "self.average = self.average * 0.5 + x.detach().float().sum()\nx = x + self.average",
        'self.register_buffer("average", torch.zeros(1))',
        traced=False,
        masks=("vmap",),  # eager leaves a tensor of vmap's in the module
    ),
    Feature(
        "counter",
        "self.calls += 1\nx = x * self.calls",
        "self.calls = 0",
        traced=False,
    ),
    Feature(
        "state set anew in a branch",
        "if self.rows != 0 and self.rows != x.size(0):\n    self.kept_rows = torch.zeros(4)\n"
        "    self.rows = 0\nx = x + self.kept_rows\n"
        "self.kept_rows = x.detach().float().sum(0)\nself.rows = x.size(0)",
        "self.kept_rows, self.rows = torch.zeros(4), 0",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "cache list",
        "self.past.append(x.detach().float().sum(0))\n"
        "x = x + torch.stack(self.past).mean(0)\n$o = torch.stack(self.past)",
        "self.past = []",
        members="past: List[Tensor]\n",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "cache dictionary",
        'if "k" in self.kept:\n    x = x + self.kept["k"]\nself.kept["k"] = x.detach().sum(0)',
        "self.kept = {}",
        members="kept: Dict[str, Tensor]\n",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "cache tensor of an optional",
        "memory = self.memory\nif memory is None:\n    self.memory = x.detach().sum(0)\n"
        "else:\n    x = x + memory\n    self.memory = memory * 0.5",
        "self.memory = None",
        members="memory: Optional[Tensor]\n",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "growing key cache",
        "self.keys = torch.cat([self.keys, self.to_key(x[:1]).detach()])\n"
        "x = x + self.keys.sum(0) * 0.1\n$o = self.keys * 1",
        'self.to_key = nn.Linear(4, 4)\nself.register_buffer("keys", torch.zeros(0, 4))',
        traced=False,
        masks=("vmap",),  # eager leaves a tensor of vmap's in the module
    ),
    Feature("write to the input", "x_given.mul_(0.5)\nx = x + x_given", direct=True),
]

ARGUMENTS = [
    Feature(
        "optional argument, None",
        "if mask is not None:\n    x = x * mask",
        args=(("mask: Optional[Tensor] = None", "None", "None"),),
        direct=True,
        traced=False,
    ),
    Feature(
        "optional argument, given later",
        "if late is not None:\n    x = x * late\nelse:\n    x = x + 1",
        args=(("late: Optional[Tensor] = None", "None", "torch.full((4,), 0.5)"),),
        direct=True,
        traced=False,
    ),
    Feature(
        "optional argument, given",
        "if bias is not None:\n    x = x + bias",
        args=(("bias: Optional[Tensor] = None", "torch.rand(4)", "torch.rand(1)"),),
        direct=True,
    ),
    Feature(
        "unused=None",
        args=(("unused=None", "", ""),),
        direct=True,
        masks=("saved", "elsewhere", "lite", "inside another"),  # no save, no call of a submodule
    ),
    Feature(
        "number argument with a default",
        "x = x * gain + shift",
        args=(("gain: float = 0.5", "", ""), ("shift: int = 1", "", "")),
        direct=True,
    ),
    Feature(
        "number argument",
        "x = x * times",
        args=(("times: int", "2", "3"),),
        direct=True,
        traced=False,
    ),
    Feature(
        "switch argument",
        "if flag:\n    x = self.if_flag(x)",
        "self.if_flag = nn.Linear(4, 4)",
        args=(("flag: bool", "True", "False"),),
        direct=True,
        traced=False,
    ),
    Feature(
        "string argument",
        'if how == "relu":\n    x = torch.relu(x)\nelse:\n    x = torch.tanh(x)',
        args=(("how: str", '"relu"', '"tanh"'),),
        direct=True,
        traced=False,
    ),
    Feature(
        "list argument",
        "for each in parts:\n    x = x + each",
        args=(("parts: List[Tensor]", "[torch.rand(4), torch.rand(1)]", "[torch.rand(4)] * 2"),),
        direct=True,
    ),
    Feature(
        "list argument of another length",
        "for each in more:\n    x = self.for_more(x + each)",
        "self.for_more = nn.Linear(4, 4)",
        args=(("more: List[Tensor]", "[torch.rand(4)]", "[torch.rand(4)] * 3"),),
        direct=True,
        traced=False,
    ),
    Feature(
        "dictionary argument",
        'x = x * named["scale"] + named["shift"]',
        args=(
            (
                "named: Dict[str, Tensor]",
                '{"scale": torch.rand(4), "shift": torch.rand(1)}',
                '{"scale": torch.rand(1), "shift": torch.rand(4)}',
            ),
        ),
        direct=True,
    ),
    Feature(
        "tuple argument",
        "x = x * two[0] + two[1]",
        args=(
            (
                "two: Tuple[Tensor, Tensor]",
                "(torch.rand(4), torch.rand(4))",
            )
            * 1
            + ("(torch.rand(1), torch.rand(4))",),
        ),
        direct=True,
    ),
    Feature(
        "index argument",
        "x = x + self.table[index][:4]",
        'self.register_buffer("table", torch.arange(8.0))',
        args=(("index: Tensor", "torch.arange(4)", "torch.arange(4, 8)"),),
        direct=True,
    ),
    Feature(
        "sparse argument",
        "$o = torch.relu(self.of_sparse(sparse))",
        # Large enough for a server's own operators, here and below.
        "self.of_sparse = nn.Linear(4, 1024)",
        args=(("sparse: Tensor", "torch.rand(2, 4)", "torch.rand(3, 4).to_sparse()"),),
        direct=True,
        scope="in",
    ),
    Feature(
        "adjacency that may be sparse",
        "if adj.layout == torch.sparse_csr or adj.layout == torch.sparse_coo:\n"
        "    $o = torch.sparse.mm(adj, self.node)\n"
        "else:\n    $o = adj @ self.node",
        "self.node = nn.Parameter(torch.rand(4, 4))",
        args=(("adj: Tensor", "torch.eye(4)", "torch.rand(4, 4)"),),
        direct=True,
        traced=False,
    ),
    Feature(
        "nested argument",
        f"with {BF16}:\n    wide = self.of_nested(nested)\n"
        "if nested.is_nested:\n    $o = wide.to_padded_tensor(0.0)\nelse:\n    $o = wide",
        "self.of_nested = nn.Linear(4, 1024)",
        args=(
            (
                "nested: Tensor",
                "torch.rand(2, 4)",
                "torch.nested.nested_tensor([torch.rand(2, 4), torch.rand(3, 4)])",
            ),
        ),
        direct=True,
        scope="out",
        traced=False,
    ),
    Feature(
        "double argument",
        "x = x + double_given.float()\n$o = double_given + x",
        args=(("double_given: Tensor", "torch.rand(4).double()", "torch.rand(1).double()"),),
        direct=True,
    ),
]

HELD = """
@torch.jit.script
class Held:
    def __init__(self, w: Tensor) -> None:
        self.w = w

    def __enter__(self) -> None:
        self.w = self.w @ self.w

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.w = self.w @ self.w
"""

OBJECTS = [
    Feature(
        "TorchScript class",
        "acc = Accumulator(x)\nacc.add(self.to_acc(x))\nacc.add(x)\nx = acc.total",
        "self.to_acc = nn.Linear(4, 4)",
        """
@torch.jit.script
class Accumulator:
    def __init__(self, start: Tensor) -> None:
        self.total = start
        self.count = 0

    def add(self, x: Tensor) -> None:
        self.total = self.total + x
        self.count += 1
""",
        masks=("lite",),
    ),
    Feature(
        "TorchScript class with a product",
        "x = Rotation(self.turn).apply(x)",
        "self.turn = nn.Parameter(torch.rand(4, 4))",
        """
@torch.jit.script
class Rotation:
    def __init__(self, weight: Tensor) -> None:
        self.weight = torch.mm(weight, weight)

    def apply(self, x: Tensor) -> Tensor:
        return torch.mm(x.to(self.weight.dtype), self.weight)
""",
        masks=("lite",),
    ),
    Feature(
        "class as context manager",
        f"held = Held(self.held)\nwith {BF16}:\n    with held:\n        $inside\n"
        "x = x + held.w.float().sum()",
        "self.held = torch.rand(4, 4)",
        HELD,
        kind="around",
        inside=True,
        # what __enter__ and __exit__ compute has no node in the graph
        refused=("JA202", "JA301"),
        masks=("lite",),
    ),
    Feature(
        "class as context manager around nothing",
        f"held = Held(self.held)\nwith {BF16}:\n    with held:\n        pass\n"
        "x = x + held.w.float().sum()\n$o = held.w",
        "self.held = torch.rand(4, 4)",
        HELD,
        # what __enter__ and __exit__ compute has no node in the graph
        refused=("JA202", "JA301"),
        masks=("lite",),
    ),
    Feature(
        "sorted objects",
        "items = [Item(self.heavy, 2), Item(self.light, 1)]\nitems = sorted(items)\n"
        "x = x + items[0].w.sum(0)\n$o = items[1].w * 1",
        "self.heavy, self.light = torch.rand(4, 4), torch.rand(4, 4)",
        """
@torch.jit.script
class Item:
    def __init__(self, w: Tensor, rank: int) -> None:
        self.w = w
        self.rank = rank

    def __lt__(self, other: "Item") -> bool:
        self.w = self.w @ self.w
        return self.rank < other.rank
""",
        # __lt__ is called by sort itself
        refused=("JA301",),
        refused_in_process=("JA209",),
        masks=("lite",),
    ),
    Feature(
        "dataclass",
        "made = Settings(self.setting, 0.5)\nx = x * made.by(x)",
        "self.setting = torch.rand(4)",
        """
@torch.jit.script
@dataclass
class Settings:
    value: Tensor
    scale: float

    def by(self, x: Tensor) -> Tensor:
        return self.value * self.scale
""",
        masks=("lite",),
    ),
    Feature(
        "NamedTuple",
        "pair = Pair(x, self.to_pair(x))\nx = pair.first + pair[1]\n$o = pair.second * 1",
        "self.to_pair = nn.Linear(4, 4)",
        "class Pair(NamedTuple):\n    first: Tensor\n    second: Tensor\n",
    ),
    Feature(
        "objects in a list",
        "boxes = [Box(x), Box(self.to_box(x))]\nfor box in boxes:\n    x = x + box.value\n",
        "self.to_box = nn.Linear(4, 4)",
        """
@torch.jit.script
class Box:
    def __init__(self, value: Tensor) -> None:
        self.value = value
""",
        masks=("lite",),
    ),
]

CONTAINERS = [
    Feature(
        "ModuleList",
        "for i, layer in enumerate(self.layers):\n    x = layer(x) * (i + 1)",
        "self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])",
    ),
    Feature(
        "ModuleDict",
        'for name, layer in self.named_layers.items():\n    x = layer(x) if name != "b" else x',
        'self.named_layers = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Tanh()})',
    ),
    Feature(
        "Sequential",
        "x = self.chain(x)",
        "self.chain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 4))",
    ),
    Feature(
        "ParameterList",
        "for p in self.weights:\n    x = F.linear(x, p.to(x.dtype))",
        "self.weights = nn.ParameterList([nn.Parameter(torch.rand(4, 4)) for _ in range(2)])",
    ),
    Feature(
        "LSTM",
        "x = self.lstm(x[None])[0][0]",
        # With a projection: oneDNN has no LSTM of a reduced dtype on every machine.
        "self.lstm = nn.LSTM(4, 8, proj_size=4)",
        masks=("vmap",),
    ),
    Feature(
        "GRU",
        "x = self.gru(x[:, None])[0][:, 0]",
        "self.gru = nn.GRU(4, 4, num_layers=2)",
        masks=("vmap",),
    ),
    Feature("LSTMCell", "x = self.cell(x)[0]", "self.cell = nn.LSTMCell(4, 4)"),
    Feature(
        "conv and batch norm",
        "x = F.relu(self.bn(self.conv(x[:, None, :, None])))[:, :, :, 0].sum(1)",
        "self.conv, self.bn = nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)",
    ),
    Feature(
        "conv channels last",
        "image = x.reshape(-1, 2, 2, 1).contiguous(memory_format=torch.channels_last)\n"
        "x = self.conv_last(image).reshape(-1, 4)",
        "self.conv_last = nn.Conv2d(2, 2, 1).to(memory_format=torch.channels_last)",
        masks=("vmap",),
    ),
    Feature(
        "residual conv",
        "wide = self.conv_one(x.reshape(-1, 1, 2, 2))\n"
        "wide = wide + F.relu(self.conv_two(wide))\nx = wide.reshape(-1, 4)",
        "self.conv_one, self.conv_two = nn.Conv2d(1, 1, 3, padding=1), "
        "nn.Conv2d(1, 1, 3, padding=1)",
    ),
    Feature(
        "convolution with a computed weight",
        "kernel = self.kernel * self.kernel_scale\n"
        "x = F.conv2d(x.reshape(-1, 1, 2, 2), kernel.to(x.dtype), padding=1).reshape(-1, 4)",
        "self.kernel = nn.Parameter(torch.rand(1, 1, 3, 3))\n"
        "self.kernel_scale = nn.Parameter(torch.rand(1))",
    ),
    Feature(
        "large layers",
        "x = self.from_large(F.relu(self.to_large(x)))",
        "self.to_large, self.from_large = nn.Linear(4, 1024), nn.Linear(1024, 4)",
    ),
    Feature(
        "running statistics",
        "rows = torch.cat([x.float(), torch.ones(2, 4)])\n"
        "x = F.batch_norm(rows, self.running_mean, self.running_var, None, None, True, 0.1)[:-2]",
        'self.register_buffer("running_mean", torch.zeros(4))\n'
        'self.register_buffer("running_var", torch.ones(4))',
        masks=("vmap",),
    ),
    Feature(
        "norms",
        "x = self.layer_norm(x)\nx = self.group_norm(x)",
        "self.layer_norm, self.group_norm = nn.LayerNorm(4), nn.GroupNorm(2, 4)",
        scope="in",
    ),
    Feature(
        "embedding",
        "x = x + self.embedding(torch.arange(4) % 3).sum(-1)",
        "self.embedding = nn.Embedding(3, 2)",
    ),
    Feature(
        "attention",
        "wide = x[None]\nx = self.attention(wide, wide, wide, need_weights=False)[0][0]",
        "self.attention = nn.MultiheadAttention(4, 2, batch_first=True)",
    ),
    Feature(
        "scaled_dot_product_attention",
        "heads = self.qkv(x).reshape(-1, 3, 1, 4).permute(1, 2, 0, 3)\n"
        "x = F.scaled_dot_product_attention(heads[0], heads[1], heads[2])[0]",
        "self.qkv = nn.Linear(4, 12)",
    ),
    Feature(
        "weight norm",
        "x = self.normed(x)",
        "self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))",
        scripted=False,
    ),
    Feature(
        "weight norm by hook",
        "x = self.hook_normed(x)",
        "self.hook_normed = nn.utils.weight_norm(nn.Linear(4, 4))",
        scripted=False,
    ),
    Feature(
        "parametrised weight",
        "weight = self.direction / self.direction.norm(2, 1, True) * self.length\n"
        "x = F.linear(x, weight.to(x.dtype))",
        "self.direction = nn.Parameter(torch.rand(4, 4))\n"
        "self.length = nn.Parameter(torch.rand(4, 1))",
    ),
    Feature(
        "forward hook",
        "x = self.hooked(x)",
        "self.hooked = nn.Linear(4, 4)\nself.hooked.register_forward_hook(halved)",
        """
def halved(self, given: Tuple[Tensor], result: Tensor) -> Tensor:
    return result * 0.5 + given[0]
""",
        # PyTorch drops hooks when it copies a module
        refused=("JA206",),
        refused_in_process=("JA206",),
    ),
    Feature(
        "forward pre-hook",
        "x = self.prehooked(x)",
        "self.prehooked = nn.Linear(4, 4)\nself.prehooked.register_forward_pre_hook(beforehand)",
        """
def beforehand(self, given: Tuple[Tensor]) -> Tensor:
    return torch.mm(given[0].float(), torch.eye(4))
""",
        # PyTorch drops hooks when it copies a module
        refused=("JA206",),
        refused_in_process=("JA206",),
    ),
]

FLOW = [
    Feature(
        "loop over a size",
        "for i in range(x.size(1) - 2):\n    $inside",
        kind="around",
        traced=False,
    ),
    Feature(
        "while loop",
        "turns = 0\nwhile turns < 2:\n    $inside\n    turns += 1",
        kind="around",
    ),
    Feature(
        "loop of a number argument",
        "for _ in range(turn_count):\n    $inside",
        args=(("turn_count: int", "2", "0"),),
        kind="around",
        direct=True,
        traced=False,
    ),
    Feature(
        "branch on a switch",
        "if taken:\n    $inside\nelse:\n    x = x + 1",
        args=(("taken: bool", "True", "False"),),
        kind="around",
        direct=True,
        traced=False,
    ),
    Feature(
        "branch on a size",
        "if x.size(0) > 2:\n    $inside",
        kind="around",
        traced=False,
    ),
    Feature(
        "branch on a value",
        "if bool((x * 0).nan_to_num().sum() > 1):\n    $inside\nelse:\n    x = x * 0.5",
        kind="around",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "early return",
        "x = self.returning(x)",
        "self.returner = nn.Linear(4, 4)",
        members="""
def returning(self, x: Tensor) -> Tensor:
    if x.size(0) > 3:
        return x * 0.5
    for i in range(3):
        if i == 1:
            return self.returner(x) + i
    return x
""",
        traced=False,
    ),
    Feature(
        "break and continue",
        "for i in range(4):\n    if i == 0:\n        continue\n    x = self.breaker(x)\n"
        "    if i >= 2:\n        break",
        "self.breaker = nn.Linear(4, 4)",
    ),
    Feature(
        "loop in a branch with an optional",
        "for i, each in enumerate([x, x, x]):\n    if i < x.size(0):\n"
        "        skip: Optional[Tensor] = each\n    else:\n        skip = None\n"
        "    x = self.padding(x, skip)",
        "self.padded = nn.Linear(4, 4)\nself.is_pad = True",
        members="""
def padding(self, x: Tensor, e: Optional[Tensor]) -> Tensor:
    y = self.padded(x)
    if e is not None:
        if self.is_pad:
            n = len(x.shape)
            sizes = [0] * (n * 2)
            for i in range(n):
                if e.shape[-i - 1] != y.shape[-i - 1]:
                    sizes[i * 2 + 1] = 1
            y = F.pad(y, sizes)
        x = self.padded(torch.cat([e.to(y.dtype), y], dim=1)[:, :4])
    else:
        x = self.padded(y)
    return x
""",
        traced=False,
    ),
    Feature(
        "padding to a skip",
        "image = x.float()[:, :, None, None]\n"
        "x = self.up(image, [image, image], x.shape[1] - 2)[:, :, 0, 0]",
        "self.up = Up()",
        """
class UpBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.is_pad = nn.Conv2d(4, 4, 1), True

    def forward(self, x: Tensor, e: Optional[Tensor]) -> Tensor:
        y = self.conv(x)
        if e is not None and torch.jit.isinstance(e, torch.Tensor):
            if self.is_pad:
                n = len(x.shape) - 2
                sizes = [0] * (n * 2)
                for i in range(n):
                    if e.shape[-i - 1] != y.shape[-i - 1]:
                        sizes[i * 2 + 1] = 1
                y = F.pad(y, sizes, "replicate")
            x = self.conv(torch.cat([e, y], dim=1)[:, :4])
        else:
            x = self.conv(y)
        return x


class Up(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([UpBlock() for _ in range(3)])

    def forward(self, x: Tensor, skips: List[Tensor], n: int) -> Tensor:
        for i, block in enumerate(self.blocks):
            if i < n:
                skip = skips[i]
            else:
                skip = None
            x = block(x, skip)
        return x
""",
        scope="in",
        traced=False,
    ),
    Feature(
        "loop whose result is used at once",
        "y = self.at_once(x)\nif self.does_loop:\n    n = 0\n    for i in range(len(y.shape)):\n"
        "        n += y.shape[i] * 0 + i\n    y = y * n\n"
        "x = torch.cat([x.to(y.dtype), y], 1)[:, :4]",
        "self.at_once = nn.Linear(4, 4)\nself.does_loop = True",
        traced=False,
    ),
    Feature(
        "list comprehension",
        "many = [self.for_list(x) * i for i in range(3)]\nx = torch.stack(many).sum(0)",
        "self.for_list = nn.Linear(4, 4)",
    ),
    Feature(
        "generator",
        "if all([s >= 0 for s in x.shape]) and any([s == 4 for s in x.shape]):\n    x = x * 0.5",
        traced=False,
    ),
    Feature(
        "list of tensors written",
        "ys = [x, self.to_ys(x)]\nys[0] = ys[1]\nys.append(x)\nlast = ys.pop()\n"
        "ys[1].mul_(0.5)\nx = ys[0] + last",
        "self.to_ys = nn.Linear(4, 4)",
    ),
    Feature(
        "dictionary of tensors",
        'found: Dict[str, Tensor] = {}\nfound["a"] = self.to_found(x)\nfound["b"] = x\n'
        'for key, value in found.items():\n    x = x + value\n$o = found["a"] * 1',
        "self.to_found = nn.Linear(4, 4)",
    ),
    Feature(
        "zip and tuples",
        "for a, b in zip([x, x * 2], [0.5, 0.25]):\n    x = x + a * b\n"
        "q, r = x, x * 0.5\nx = q + r",
    ),
    Feature(
        "unbind and stack",
        "x = torch.stack([self.of_row(row) for row in x.unbind(1)], 1)",
        "self.of_row = nn.Identity()",
    ),
    Feature(
        "training branch",
        "if self.training:\n    x = self.when_training(x)\nelse:\n    x = x * 0.5",
        "self.when_training = nn.Linear(4, 4)",
    ),
    Feature(
        "error by a switch",
        'if wrong:\n    raise ValueError("wrong")\nx = x * 0.5',
        args=(("wrong: bool = False", "False", "True"),),
        direct=True,
        traced=False,
    ),
    Feature(
        "assertion",
        'assert x.size(1) == 4, f"four columns, not {x.size(1)}"\nassert x.dim() == 2',
        traced=False,
    ),
    Feature(
        "text",
        'text = "{}-{}".format(x.size(1), "b")\nif text == "4-b" and f"{x.dim()}" == "2":\n'
        "    x = x * 0.5",
        traced=False,
    ),
    Feature("print", 'print("columns", x.size(1))', traced=False),
    Feature(
        "is_scripting",
        "if torch.jit.is_scripting():\n    x = x * 1.0\nelse:\n    x = x * 1.0",
    ),
    Feature(
        "fork and wait",
        "waiting = torch.jit.fork(self.forked, x)\n"
        "x = self.in_task(x.float()) + torch.jit.wait(waiting)",
        "self.in_task = nn.Linear(4, 4)",
        members="def forked(self, x: Tensor) -> Tensor:\n    return self.in_task(x.float())\n",
        masks=("vmap", "fork"),  # tasks have their casts in their graphs; a child has no threads
    ),
    Feature(
        "script_if_tracing",
        "x = helper_if_tracing(x, self.if_tracing)",
        "self.if_tracing = nn.Parameter(torch.rand(4, 4))",
        f"""
@torch.jit.script_if_tracing
def helper_if_tracing(x: Tensor, w: Tensor) -> Tensor:
    with {BF16}:
        for i in range(x.size(1) - 3):
            x = torch.mm(x, w)
    return x
""",
    ),
    Feature(
        "exported method",
        "x = self.exported(x)",
        "self.of_export = nn.Linear(4, 4)",
        members=f"""
@torch.jit.export
def exported(self, x: Tensor) -> Tensor:
    with {BF16}:
        return self.of_export(x)
""",
        refused_in_process=("JA403",),  # traced, with a tensor in an Optional beside it
    ),
    Feature(
        "ignored method",
        "x = self.in_python(x)",
        members="@torch.jit.ignore\ndef in_python(self, x: Tensor) -> Tensor:\n"
        "    return torch.mm(x.float(), torch.eye(4))\n",
        # Python is not exported
        refused=("JA301", "JA308"),
        masks=("saved", "elsewhere", "lite"),  # PyTorch saves no Python
    ),
    Feature(
        "unused method",
        "if self.never:\n    x = self.not_compiled(x)",
        "self.never = False",
        members="@torch.jit.unused\ndef not_compiled(self, x: Tensor) -> Tensor:\n"
        "    return torch.mm(x.float(), torch.eye(4)).numpy()\n",
    ),
    Feature(
        "static helper",
        "x = half_of(x, self.of_helper)",
        "self.of_helper = nn.Parameter(torch.rand(4, 4))",
        "def half_of(x: Tensor, w: Tensor, scale: float = 0.5) -> Tensor:\n"
        "    return F.linear(x * scale, w.to(x.dtype))\n",
    ),
]


def _alias(name: str, expression: str, write: str = "z += 0.5") -> Feature:
    return Feature(
        f"write to {name}",
        f"y = self.of_alias(x)\nz = {expression}\n{write}\nx = y * 0.5\n$o = z * 1",
        "self.of_alias = nn.Linear(4, 4)\nself.drop, self.same = nn.Dropout(0.5), nn.Identity()",
    )


def _lost(name: str, expression: str, write: str = "z += 0.5") -> Feature:
    return Feature(
        f"lost write to {name}",
        f"y = self.of_lost(x)\nz = {expression}\n{write}\nx = y * 0.5",
        "self.of_lost = nn.Linear(4, 4)\nself.losing = nn.Dropout(0.5)",
        # nobody reads the result: PyTorch's compiler drops the write before it can be seen
        refused_in_process=("JA210",),
    )


# Two modules of a class have one text, and a graph each.
_NORMED = """
class Normed(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor):
        y = F.relu(x)
        z = y.type_as(y)
        z += 0.5
        if self.norm is not None:
            y = self.norm(z) * y
        return y
"""

ALIASES = [
    Feature(
        "lost write in one of two modules of a class",
        "x = self.normed_b(self.normed_a(x))",
        "self.normed_a, self.normed_b = Normed(nn.Identity()), Normed(None)",
        _NORMED,
        refused_in_process=("JA210",),
    ),
    Feature(
        "write in a branch that cannot be",
        "if self.no_norm is not None:\n    z = x.type_as(x)\n    z += 0.5\n    x = x * z",
        "self.no_norm = None",
    ),
    _lost("dropout's result", "self.losing(y)"),
    _lost("F.dropout's result", "F.dropout(y, 0.5, self.training)", "z.add_(1)"),
    _lost("type_as' result", "y.type_as(y)"),
    _lost("einsum's result", 'torch.einsum("ij->ij", y)', "z.mul_(0.5)"),
    _lost("atleast_2d's result", "torch.atleast_2d(y)"),
    _lost("sum_to_size' result", "y.sum_to_size(y.shape)"),
    _lost("to's result", "y.to(y.dtype)"),
    _lost("contiguous' result", "y.contiguous()", "z.mul_(0.5)"),
    _lost("reshape's result", "y.reshape(-1, 4)", "z[:, 0] = 2.0"),
    _lost("a result, by a function", "y.type_as(y)", "torch.relu_(z)"),
    _lost("a result, named in a call", "y.type_as(y)", "torch.relu_(input=z)"),
    _lost("a result, one of two", "y.type_as(y)", "z[0], other = x[0] * 2, x[-1]"),
    _lost("a tensor in a list", "y.type_as(y)", "torch._foreach_add_([z], 1)"),
    _lost("what a function views", "torch.reshape(y.type_as(y), [-1, 4])", "z /= 2"),
    _lost("a second name of a result", "y.type_as(y)", "other: Tensor = z\nother -= 1"),
    _alias("dropout's result", "self.drop(y)"),
    _alias("F.dropout's result", "F.dropout(y, 0.5, self.training)", "z.add_(1)"),
    _alias("Identity's result", "self.same(y)"),
    _alias("type_as' result", "y.type_as(y)"),
    _alias("einsum's result", 'torch.einsum("ij->ij", y)', "z.mul_(0.5)"),
    _alias("atleast_2d's result", "torch.atleast_2d(y)"),
    _alias("sum_to_size' result", "y.sum_to_size(y.shape)"),
    _alias("expand_as' result", "y.expand_as(y)"),
    _alias("contiguous' result", "y.contiguous()", "z.mul_(0.5)"),
    _alias("to's result", "y.to(y.dtype)"),
    _alias("float's result", "y.float()"),
    _alias("reshape's result", "y.reshape(-1, 4)", "z[:, 0] = 2.0"),
    _alias("view's result", "y.view(-1)", "z[:2].fill_(0.5)"),
    _alias("a slice", "y[:, 1:3]"),
    _alias("a part that narrow gives", "y.narrow(1, 2, 2)", "z.clamp_(max=0.1)"),
    _alias("broadcast_tensors' result", "torch.broadcast_tensors(y, y)[0]", "z.mul_(0.5)"),
    _alias("nan_to_num's result", "y.nan_to_num()"),
    _alias("detach's result", "y.detach()"),
    _alias("positive's result", "torch.positive(y)"),
    _alias("resolve_conj's result", "y.resolve_conj()"),
    Feature(
        "in-place activation",
        "y = self.of_relu(x)\nF.relu(y, inplace=True)\nx = y + 1",
        "self.of_relu = nn.Linear(4, 4)",
    ),
    Feature(
        "in-place on an alias of a module's result",
        "y = self.of_y(x)\nz = self.dropping(y)\nz += x\nx = y * 0.5 + z",
        "self.of_y, self.dropping = nn.Linear(4, 4), nn.Dropout(0.1)",
    ),
    Feature(
        "index_put",
        "y = torch.zeros_like(x)\ny[:, 0] = x[:, 1]\ny[x > 0.5] = 0.25\nx = y + x",
        masks=("vmap",),
    ),
    Feature("out=", "y = torch.empty_like(x)\ntorch.mul(x.detach(), 0.5, out=y)\nx = y + x"),
]

VALUES = [
    Feature(
        "0-dim tensors",
        "x = x * torch.tensor(0.5, dtype=torch.float64) + self.zero_dim",
        "self.zero_dim = nn.Parameter(torch.tensor(0.5).bfloat16())",
    ),
    Feature(
        "0-dim result",
        "$o = x.sum() * self.of_zero\nx = x + $o.detach()",
        "self.of_zero = torch.tensor(2)",
    ),
    Feature(
        "complex arithmetic",
        "z = torch.complex(x.float(), x.float() * 0.5) * (1 + 2j)\n"
        "$o = z\nx = torch.view_as_real(z).sum(-1)",
    ),
    Feature(
        "norm of complex numbers with a dtype",
        "z = torch.complex(x.float(), x.float())\n"
        "$o = torch.linalg.vector_norm(z, dtype=torch.complex64)\nx = x.to($o.dtype)",
    ),
    Feature(
        "integers times 1j",
        "z = torch.arange(4) * 1j\n$o = x.to(z.dtype) + z\nx = x + torch.imag(z)",
    ),
    Feature(
        "integer argument times 1j",
        "z = counts * 1j\n$o = x.to(z.dtype)\nx = x + torch.imag(z)",
        args=(("counts: Tensor", "torch.arange(4)", "torch.arange(4) + 1"),),
        direct=True,
    ),
    Feature(
        "integer arithmetic",
        "k = torch.arange(4)\nx = x * (k / 2) + (k // 2) + k.sum()\n"
        "$o = k * 0.5 + k.float().mean()",
    ),
    Feature(
        "dtype= arguments",
        "$o = torch.sum(x, dtype=torch.float64) + torch.mean(x, dtype=torch.float32)\n"
        "x = F.softmax(x, -1, dtype=torch.float32) + torch.cumsum(x, 1, dtype=torch.bfloat16)",
    ),
    Feature("bool arithmetic", "b = x > 0.5\nx = x * b + (b * 0.5)\n$o = b.sum()"),
    # Replayed, PyTorch's trace of this does not take the bool.
    Feature("tensor and bool", "x = x + True\n$o = (x > 0.5).sum() + True", traced=False),
    Feature(
        "float64 arithmetic",
        "$o = x.double() * 0.5 + torch.ones(1, dtype=torch.float64)\nx = x + $o.to(x.dtype)",
    ),
    Feature("where and comparisons", "x = torch.where(x > 0.5, x, torch.tensor(0.5)) + (x == x)"),
    Feature(
        "cat of two dtypes",
        "x = torch.cat([x, x.to(torch.bfloat16)], 1)[:, 2:6]",
    ),
    # The random state is the process': another thread that keeps it takes this one's draws back.
    Feature("random numbers", "x = x + torch.rand(4) * 0.1", masks=("beside",)),
    Feature("dropout that drops", "x = F.dropout(x, 0.5, True)", masks=("beside",)),
    Feature(
        "rand_like",
        # What is drawn in vain PyTorch does not draw.
        "noise = torch.randn(2)\nx = x + torch.rand_like(x) + noise.sum() * 0.1\n$o = noise",
        masks=("beside",),
    ),
    Feature(
        "gradient in forward",
        "p = x.detach().float().requires_grad_(True)\n"
        f"with {BF16}:\n    e = F.silu(self.force_b(F.silu(self.force_a(p))))\n"
        "    e = self.force_c(e).sum()\n"
        "g = torch.autograd.grad([e], [p])[0]\nassert g is not None\nx = x + g\n$o = g",
        "self.force_a, self.force_b, self.force_c = "
        "nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 1)",
        traced=False,
        scope="out",
        masks=("vmap", "no_grad", "inference_mode", "lite"),
    ),
    Feature(
        "custom operator",
        "x = torch.ops.jit_amp_fuzz.odd(x)",
        "pass",
        "import fuzz.opaque\n",
        masks=("elsewhere",),
        scope="out",
    ),
    Feature(
        "loss", "$o = F.mse_loss(x, x * 0.5) + F.cross_entropy(x, torch.zeros_like(x[:, 0]).long())"
    ),
    Feature("prod and cumprod", "$o = x.prod(1)\nx = x * 0.5 + torch.cumprod(x, 1)"),
    Feature(
        "einsum and bmm",
        "x = torch.einsum('ij,kj->ik', x, self.of_einsum.to(x.dtype))\n"
        "x = torch.bmm(x[None], x[None].transpose(1, 2)).sum(2).t() + x",
        "self.of_einsum = nn.Parameter(torch.rand(4, 4))",
    ),
    Feature(
        "numbers of sizes",
        "x = x * x.shape[1] / (x.numel() + 1) + len(x.shape)",
        traced=False,
        masks=("vmap",),
    ),
]

SCOPES = [
    Feature("scope of bfloat16", f"with {BF16}:\n    $inside", kind="around", inside=True),
    Feature(
        "scope of float16",
        'with torch.autocast("cpu", dtype=torch.float16):\n    $inside',
        kind="around",
        inside=True,
        two_dtypes=True,
    ),
    Feature(
        "switched off scope",
        'with torch.autocast("cpu", enabled=False):\n    $inside',
        kind="around",
        inside=False,
    ),
    Feature(
        "two scopes in one with",
        'with torch.no_grad(), torch.autocast("cpu"):\n    $inside',
        kind="around",
        masks=("lite",),
        inside=True,
        scope="any",
    ),
    Feature(
        "scope object used again",
        f"again = {BF16}\nwith again:\n    x = self.of_again(x)\nwith again:\n    $inside",
        "self.of_again = nn.Linear(4, 4)",
        kind="around",
        inside=True,
    ),
    Feature(
        "decorated method",
        "x = self.decorated(x)",
        "self.of_decorated = nn.Linear(4, 4)",
        members=f"@{BF16}\ndef decorated(self, x: Tensor) -> Tensor:\n"
        "    return self.of_decorated(x)\n",
        own_cache=True,
    ),
    Feature(
        "decorated helper",
        "x = decorated_helper(x, self.of_dhelper)",
        "self.of_dhelper = nn.Parameter(torch.rand(4, 4))",
        f"@{BF16}\ndef decorated_helper(x: Tensor, w: Tensor) -> Tensor:\n    return x @ w\n",
        own_cache=True,
    ),
    Feature(
        "scope in a loop",
        f"for i in range(2):\n    with {BF16}:\n        $inside",
        kind="around",
        inside=True,
    ),
    Feature(
        "scope in a branch",
        f"if x.size(0) >= 2:\n    with {BF16}:\n        $inside\nelse:\n    x = x * 0.5",
        kind="around",
        inside=True,
        traced=False,
    ),
    Feature(
        "scope by an attribute",
        "with torch.autocast(self.scope_device, enabled=self.uses_amp):\n    $inside",
        'self.scope_device, self.uses_amp = "cpu", True',
        kind="around",
        inside=True,
        direct=True,
    ),
    Feature(
        "scope without its cache",
        'with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):\n    $inside',
        kind="around",
        inside=True,
    ),
    Feature(
        "weight used twice in a scope without its cache",
        'with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):\n'
        "    x = F.linear(F.linear(x, self.used_twice), self.used_twice)",
        "self.used_twice = nn.Parameter(torch.rand(4, 4))",
    ),
    Feature(
        "scope of the tensor's device",
        "with torch.autocast(x.device.type, dtype=torch.bfloat16):\n    $inside",
        kind="around",
        inside=True,
        refused=("JA301",),  # an operator of which autocast's kernels differ by device
        refused_in_process=("JA104",),  # a scope inside without a dtype
    ),
    Feature(
        "scope for cuda",
        'with torch.autocast("cuda", dtype=torch.float16, enabled=False):\n    $inside',
        kind="around",
    ),
    Feature(
        "scope entered by hand",
        f"by_hand = {BF16}\nby_hand.__enter__()\n$inside\nby_hand.__exit__(None, None, None)",
        kind="around",
        inside=True,
    ),
    Feature(
        "scope in a submodule",
        "x = self.with_scope(x)",
        "self.with_scope = WithScope()",
        f"""
class WithScope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with {BF16}:
            x = self.linear(x)
        return self.linear(x.float())
""",
    ),
    Feature(
        "is_autocast_enabled",
        'if torch.is_autocast_enabled("cpu"):\n    x = x + 1\nelse:\n    x = x * 2',
    ),
    Feature(
        "get_autocast_dtype",
        'x = x.to(torch.get_autocast_dtype("cpu")) * 2\n',
        scope="in",
    ),
    Feature(
        "no_grad block",
        "with torch.no_grad():\n    $inside",
        kind="around",
        masks=("lite",),
    ),
    Feature(
        "no scope at all",
        'if torch.is_autocast_enabled("cpu"):\n    x = x + 1',
        kind="setting",
    ),
    Feature("input that requires grad", kind="setting"),
    Feature("empty input", kind="setting"),
    Feature("input with other strides", kind="setting"),
    Feature("input of bfloat16", kind="setting"),
    Feature("dictionary result", kind="setting"),
    Feature("NamedTuple result", kind="setting"),
    Feature("list result", kind="setting"),
    Feature("forward that calls methods", kind="setting"),
    Feature("everything in a submodule", kind="setting"),
    Feature("training mode", kind="setting", masks=("beside",)),  # with dropout
]

# Eager runs PyTorch's own autocast pass in what is compiled already. It keeps no casts of weights,
# and raises in vmap; and the second call, which is optimized, saves other tensors than the first.
COMPILED = [
    Feature(
        "scripted submodule",
        "x = self.scripted_part(x)",
        "self.scripted_part = torch.jit.script(ScriptedPart().requires_grad_(False))",
        f"""
class ScriptedPart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with {BF16}:
            return self.linear(x)
""",
        masks=("pickle", "deepcopy", "vmap", "checkpoint"),
        scope="out",  # in a scope of another dtype PyTorch's pass does something else
    ),
    Feature(
        "traced submodule",
        "x = self.traced_part(x.float())",
        "self.traced_part = torch.jit.trace("
        "nn.Linear(4, 4).requires_grad_(False), torch.rand(2, 4))",
        masks=("pickle", "deepcopy", "vmap", "checkpoint"),
    ),
    Feature(
        "scripted function",
        "x = scripted_product(x.float(), self.of_scripted)",
        "self.of_scripted = torch.rand(4, 4)",
        """
@torch.jit.script
def scripted_product(x: Tensor, w: Tensor) -> Tensor:
    if x.size(0) > 100:
        return x
    return torch.mm(x, w)
""",
        masks=("vmap", "checkpoint"),
    ),
    Feature(
        "overloaded method",
        "x = self.overloaded(x) * self.overloaded(0.5)",
        "self.of_overload = nn.Linear(4, 4)",
        members="""
@torch.jit._overload_method
def overloaded(self, x: Tensor) -> Tensor:
    pass

@torch.jit._overload_method
def overloaded(self, x: float) -> float:
    pass

def overloaded(self, x):
    if isinstance(x, Tensor):
        return self.of_overload(x)
    else:
        return x * 0.5
""",
    ),
    Feature(
        "value of an enumeration",
        "x = x * self.level.value + float(len(self.level.name))",
        "self.level = Level.HIGH",
        "class Level(enum.Enum):\n    LOW = 0.25\n    HIGH = 0.5\n",
    ),
    Feature(
        "Union argument",
        "if isinstance(either, Tensor):\n    x = x + either\nelse:\n    x = x * either",
        args=(("either: Union[float, Tensor]", "torch.rand(4)", "0.5"),),
        direct=True,
        traced=False,
        # The lite interpreter crashes, and PyTorch does not load such a branch in a loop.
        masks=("vmap", "lite", "saved", "elsewhere", "inside another"),
    ),
    Feature(
        "autograd function",
        "x = Doubled.apply(x)",
        "pass",
        """
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2
""",
        scripted=False,
        # Python is not exported
        refused=("JA301", "JA308"),
        masks=("saved", "elsewhere", "lite", "pickle", "deepcopy", "inside another"),
    ),
    Feature(
        "checkpointed part",
        "x = torch.utils.checkpoint.checkpoint(self.rerun, x, use_reentrant=False)",
        "self.rerun = nn.Linear(4, 4)",
        "import torch.utils.checkpoint\n",
        scripted=False,
    ),
    Feature(
        "scope object in the module",
        "with self.own_scope:\n    $inside",
        f"self.own_scope = {BF16}",
        kind="around",
        inside=True,
        scripted=False,
    ),
    Feature(
        "return inside a scope",
        "x = self.returns_inside(x)",
        "self.of_return = nn.Linear(4, 4)",
        members=f"""
def returns_inside(self, x: Tensor) -> Tensor:
    for i in range(3):
        with {BF16}:
            x = self.of_return(x)
            if i == 1:
                return x * 0.5
    return x
""",
    ),
    Feature(
        "layer inside and outside",
        f"y = self.both(x.float())\nwith {BF16}:\n    x = self.both(x)\nx = x + y",
        "self.both = nn.Linear(4, 4)",
    ),
    Feature(
        "weight written between its uses",
        "y = F.linear(x, self.rewritten)\nwith torch.no_grad():\n    self.rewritten.mul_(0.5)\n"
        "x = F.linear(x, self.rewritten) + y",
        "self.rewritten = nn.Parameter(torch.rand(4, 4))",
        scope="in",
        masks=("lite", "checkpoint", "vmap"),
        traced=False,  # a trace forgets no_grad, and may not write
    ),
    Feature(
        "branch on a dtype",
        "if x.dtype == torch.bfloat16 or x.dtype == torch.float16:\n    x = self.if_narrow(x)\n"
        "else:\n    x = x * 0.5",
        "self.if_narrow = nn.Linear(4, 4)",
    ),
    Feature(
        "factories of x's dtype",
        "wide = self.to_wide(x)\nx = wide + torch.zeros(4, dtype=wide.dtype) + wide.new_ones(4)\n"
        "$o = torch.full((2,), 0.5, dtype=x.dtype)",
        "self.to_wide = nn.Linear(4, 4)",
    ),
    Feature(
        "item to a number",
        "n = float(x.detach().float().nan_to_num().abs().sum())\nx = x / (n + 1.0)",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "math of numbers",
        "x = x * (1.0 / math.sqrt(x.size(1))) + math.floor(2.5) + (-x.size(1) // 3) % 5",
        top="import math\n",
        traced=False,
    ),
    Feature(
        "slices",
        "y = x[..., None]\nx = y[:, ::2].repeat(1, 2, 1)[:, -4:, 0] + x.flip(1)[:, [0, 1, 2, 3]]",
    ),
    Feature(
        "mask select and scatter",
        "rows = torch.arange(x.size(0))\nx = torch.zeros_like(x).index_add(0, rows, x)\n"
        "x = x.scatter_add(1, torch.zeros_like(x, dtype=torch.long), x)\n$o = x[x > 0.5]",
        masks=("vmap",),
        traced=False,
    ),
    Feature(
        "packed sequence",
        "packed = nn.utils.rnn.pack_padded_sequence("
        "x.float()[None], torch.tensor([x.size(0)]), batch_first=True)\n"
        "packed, _ = self.of_packed(packed)\n"
        "x = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0][0]",
        "self.of_packed = nn.GRU(4, 2, batch_first=True, bidirectional=True)",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "encoder layer",
        "x = self.encoder(x[None])[0]",
        "self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)",
        masks=("vmap",),
        traced=False,  # it takes other ways without gradients, and PyTorch's check of traces fails
    ),
    Feature(
        "batch norm of small variances, float16",
        'with torch.autocast("cpu", dtype=torch.float16):\n'
        "    x = self.bn_small(self.conv_small(x.float().reshape(-1, 4, 1, 1))).reshape(-1, 4)\n"
        "x = x.float() * 1e-4",
        "self.conv_small, self.bn_small = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)\n"
        "self.bn_small.running_var.fill_(1e-9)\n"
        "with torch.no_grad():\n    self.conv_small.weight.mul_(1e-3)",
        two_dtypes=True,
        masks=("vmap",),
    ),
    Feature(
        "number after a product, float16",
        'with torch.autocast("cpu", dtype=torch.float16):\n'
        "    y = self.of_number(x.float()) * 1e-6\n"
        "x = x.float() + y.float() * 1e5",
        "self.of_number = nn.Linear(4, 4)",
        two_dtypes=True,
    ),
    Feature(
        "activations after layers",
        "image = self.act_conv(x.reshape(-1, 1, 2, 2))\n"
        "image = F.hardswish(image) + F.leaky_relu(image, 0.1)\n"
        "image = image + F.gelu(image)\n"
        "image = F.silu(self.act_conv(image[:, :1])).sigmoid()\n"
        "x = F.relu6(self.act_linear(image.mean(1).flatten(1))).clamp(-1.0, 1.0)",
        "self.act_conv, self.act_linear = nn.Conv2d(1, 3, 3, padding=1), nn.Linear(4, 4)",
    ),
    Feature(
        "one-dimensional and transposed convolutions",
        "y = self.conv_1d(x[:, None])\nx = self.transposed(y)[:, 0, :4] + y.sum(1)",
        "self.conv_1d = nn.Conv1d(1, 2, 3, padding=1)\n"
        "self.transposed = nn.ConvTranspose1d(2, 1, 3, padding=1)",
    ),
    Feature(
        "pooling and interpolation",
        "image = F.interpolate(x.reshape(-1, 1, 2, 2), scale_factor=2.0, mode='bilinear')\n"
        "image = self.of_pool(F.max_pool2d(image, 2) + F.adaptive_avg_pool2d(image, 2))\n"
        "x = image.reshape(-1, 4)",
        "self.of_pool = nn.Conv2d(1, 1, 1)",
    ),
    Feature(
        "products of other kinds",
        "x = torch.addmm(self.of_bias.to(x.dtype), x, self.of_addmm.to(x.dtype), beta=0.5)\n"
        "x = torch.baddbmm(x[None], x[None], self.of_addmm[None].to(x.dtype))[0]\n"
        "$o = torch.mv(x, x.mean(0)) + torch.matmul(x, x.mean(0))\n"
        "x = torch.matmul(self.of_addmm.to(x.dtype), x.t()).t()",
        "self.of_addmm, self.of_bias = nn.Parameter(torch.rand(4, 4)), nn.Parameter(torch.rand(4))",
    ),
    Feature(
        "float32 operators",
        "$o = torch.cdist(x, x).sum() + F.cosine_similarity(x, x * 0.5).sum()\n"
        "x = F.layer_norm(x.exp().log1p(), [4]) + torch.linalg.matrix_norm(x.float())",
    ),
    Feature(
        "operators that promote",
        "x = torch.addcmul(x, x, x.to(torch.float32)) + torch.atan2(x, x + 2)\n"
        "$o = torch.tensordot(x, x.float(), [[1], [1]])\nx = torch.stack([x, x.float()]).mean(0)",
        scope="in",
    ),
    Feature(
        "buffer that is not saved",
        "x = x + self.unsaved",
        'self.register_buffer("unsaved", torch.rand(4), persistent=False)',
    ),
    Feature(
        "call of a submodule's method",
        "x = self.has_methods.half(x) + self.has_methods.twice(x)",
        "self.has_methods = HasMethods()",
        f"""
class HasMethods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @torch.jit.export
    def half(self, x: Tensor) -> Tensor:
        with {BF16}:
            return self.linear(x) * 0.5

    def twice(self, x: Tensor) -> Tensor:
        return self.half(x) * 2

    def forward(self, x: Tensor) -> Tensor:
        return self.twice(x)
""",
    ),
    Feature(
        "deleted variable",
        "y = self.of_deleted(x)\nz = y * 2\ndel y\nx = z",
        "self.of_deleted = nn.Linear(4, 4)",
    ),
    Feature(
        "swapped in place",
        "x, y = self.swap_a(x), x\nx, y = y, x\nx += y.to(x.dtype)",
        "self.swap_a = nn.Linear(4, 4)",
        apart=("input that requires grad",),  # eager's cache keeps its cast; docs/limits.md
    ),
    Feature(
        "write through a transposed view",
        "y = self.of_transposed(x)\ny.t()[0] = 0.5\ny.transpose(0, 1).mul_(2)\nx = y * 0.5",
        "self.of_transposed = nn.Linear(4, 4)",
    ),
    Feature(
        "two results of one layer, one written",
        "y = self.of_two(x)\na, b = y[:, :2], y[:, 2:]\na += 1\nx = torch.cat([a, b], 1) + y",
        "self.of_two = nn.Linear(4, 4)",
    ),
]

ALL = (
    ATTRIBUTES
    + STATE
    + ARGUMENTS
    + OBJECTS
    + CONTAINERS
    + FLOW
    + ALIASES
    + VALUES
    + SCOPES
    + COMPILED
    + WRITES
    + STATEMENTS
    + COMPANY
)
FEATURES = {feature.name: feature for feature in ALL}
assert len(FEATURES) == len(ALL)
