"""Features of models in company: what wraps them, what was compiled before and beside them, and
parts that are reached another way than by their names in `forward`."""

from __future__ import annotations

from typing import Any

from .feature import Feature

BF16 = 'torch.autocast("cpu", dtype=torch.bfloat16)'
# How a decorator that cannot be seen through is refused, and other wrappers of a forward.
UNSEEN = ("JA118",)
IMPORT = "from pairs import wrappers\n"
PART = f"""{IMPORT}

class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.ctx, self.fp16_enabled = wrappers.amp, True

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * 0.5
"""


def _wrapped(name: str, made: str, top: str = PART, **more: Any) -> Feature:
    """A part with something around its forward. Its result is seen by itself."""
    attribute = name.replace(" ", "_").replace("'", "").replace(",", "")
    return Feature(
        f"wrapped: {name}",
        f"y = self.{attribute}(x.float())\n$o = y\nx = x + y",
        f"self.{attribute} = {made}",
        top,
        refused_in_process=UNSEEN,
        **{"masks": ("pickle",), "scope": "out", **more},
    )


def _decorated(name: str, decorator: str, base: str = "nn.Module") -> Feature:
    title = "".join(word.capitalize() for word in name.replace("__", "").split())
    return _wrapped(
        name,
        f"Under{title}()",
        f"""{IMPORT}

class Under{title}({base}):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.ctx, self.fp16_enabled = wrappers.amp, True

    @{decorator}
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * 0.5
""",
    )


WRAPPERS = [
    _wrapped("prepared as Accelerate does", "wrappers.prepare(Wrapped())"),
    _wrapped("prepared, bound", "wrappers.prepare_bound(Wrapped())"),
    _wrapped("module of a precision", "wrappers.PrecisionModule(Wrapped())"),
    _wrapped("partial", "wrappers.bind_partial(Wrapped())"),
    _wrapped("bound anew", "wrappers.bind_method(Wrapped())", refused=()),
    _wrapped("closure", "wrappers.bind_closure(Wrapped())"),
    _decorated("own context", "wrappers.in_own_context"),
    _decorated("autocast by getattr", "wrappers.by_attribute"),
    _decorated("autocast by an ExitStack", "wrappers.by_exit_stack"),
    _decorated("mmengine decorator", 'wrappers.auto_fp16("x")'),
    _decorated("proxy", "wrappers.Proxy"),
    _wrapped(
        "class with a call of its own",
        "Called()",
        f"""
class Called(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)

    def __call__(self, x: Tensor) -> Tensor:
        with {BF16}:
            return super().__call__(x)
""",
        masks=(),
    ),
    Feature(
        "wrapped: helper by a callable object",
        "y = called_helper(x.float(), self.of_called)\n$o = y\nx = x + y",
        "self.of_called = nn.Parameter(torch.rand(4, 4))",
        f"""{IMPORT}

@wrappers.CallableDecorator
def called_helper(x: Tensor, w: Tensor) -> Tensor:
    return x @ w
""",
        refused_in_process=UNSEEN,
        scope="out",
    ),
    Feature(
        "wrapped: method in an own context",
        "y = self.in_ctx(x.float())\n$o = y\nx = x + y",
        "self.of_ctx, self.ctx = nn.Linear(4, 4), wrappers.amp",
        IMPORT,
        "@wrappers.in_own_context\ndef in_ctx(self, x: Tensor) -> Tensor:\n"
        "    return self.of_ctx(x)\n",
        refused_in_process=UNSEEN,
        scope="out",
    ),
    # Wrapped are the features that it has.
    Feature(
        "wrapped: all, as Accelerate does",
        init="wrappers.prepare(self)",
        top=IMPORT,
        kind="setting",
        refused_in_process=UNSEEN,
        masks=("pickle",),
        own_cache=True,
    ),
]


def _no_grad(name: str, *decorators: str, before: str = "") -> Feature:
    """Decorators from the outermost."""
    title = "".join(word.strip("_,").capitalize() for word in name.replace("_", " ").split())
    above = "".join(f"    @{each}\n" for each in decorators)
    return Feature(
        name,
        f"$o = self.part_{title.lower()}(x.float())",
        f"self.part_{title.lower()} = {title}()",
        f"""
class {title}(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

{above}    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)

{before.format(title)}""",
        refused_in_process=UNSEEN,
        own_cache=True,
        scope="out",
        masks=("lite",),
    )


PLAINLY = "\nwith contextlib.suppress(RuntimeError):\n    torch.jit.script({}())\n"

GRADIENT_MODES = [
    _no_grad("no_grad above autocast", "torch.no_grad()", BF16),
    _no_grad("no_grad below autocast", BF16, "torch.no_grad()"),
    _no_grad("inference_mode above autocast", "torch.inference_mode()", BF16),
    _no_grad("inference_mode below autocast", BF16, "torch.inference_mode()"),
    _no_grad("enable_grad below autocast", BF16, "torch.enable_grad()"),
    Feature(
        "no_grad below autocast on a helper",
        "$o = without_gradients(x.float(), self.of_without)",
        "self.of_without = nn.Parameter(torch.rand(4, 4))",
        f"@{BF16}\n@torch.no_grad()\n"
        "def without_gradients(x: Tensor, w: Tensor) -> Tensor:\n    return x @ w\n",
        refused_in_process=UNSEEN,
        own_cache=True,
        scope="out",
        masks=("lite",),
    ),
]

OWN_DECORATOR = f"""
def under_autocast(function):
    @functools.wraps(function)
    def inside(*args):
        with {BF16}:
            return function(*args)

    return inside
"""

BEFORE = [
    Feature(
        "custom_fwd",
        "$o = gram(x)",
        top="""
@torch.amp.custom_fwd(cast_inputs=torch.float32, device_type="cpu")
def gram(x: Tensor) -> Tensor:
    return x @ x.t()
""",
        scope="in",
        refused_in_process=UNSEEN,
    ),
    Feature(
        "custom_fwd, compiled before",
        "$o = gram_before(x)",
        top="""
@torch.amp.custom_fwd(cast_inputs=torch.float32, device_type="cpu")
def gram_before(x: Tensor) -> Tensor:
    return x @ x.t()


torch.jit.script(gram_before)
""",
        scope="in",
        refused_in_process=UNSEEN,
    ),
    Feature(
        "own decorator, compiled before",
        "$o = under_own(x.float(), self.of_own)",
        "self.of_own = nn.Parameter(torch.rand(4, 4))",
        f"""import contextlib
import functools

{OWN_DECORATOR}

@under_autocast
def under_own(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


with contextlib.suppress(RuntimeError):
    torch.jit.script(under_own)
""",
        scope="out",
        refused_in_process=UNSEEN,
    ),
    Feature(
        "own decorator of a class, compiled before",
        "$o = self.of_decorator(x.float())",
        "self.of_decorator = OwnDecorator()",
        f"""import contextlib
import functools

{OWN_DECORATOR}

class OwnDecorator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @under_autocast
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)

{PLAINLY.format("OwnDecorator")}""",
        scope="out",
        refused_in_process=UNSEEN,
    ),
    _no_grad(
        "no_grad above autocast, compiled before",
        "torch.no_grad()",
        BF16,
        before="import contextlib\n" + PLAINLY,
    ),
    Feature(
        "helper with a scope, compiled before",
        "$o = scoped_before(x.float(), self.of_before)",
        "self.of_before = nn.Parameter(torch.rand(4, 4))",
        f"""
def scoped_before(x: Tensor, w: Tensor) -> Tensor:
    with {BF16}:
        return x @ w


torch.jit.script(scoped_before)
""",
        scope="out",
    ),
    Feature(
        "class with a scope, compiled before",
        "$o = self.of_class(x.float())",
        "self.of_class = ScopedBefore()",
        f"""import contextlib


class ScopedBefore(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with {BF16}:
            return self.linear(x)

{PLAINLY.format("ScopedBefore")}""",
        scope="out",
    ),
    Feature(
        "ignoring helper, compiled before",
        "$o = ignoring_before(x, self.of_ignoring_before.to(x.dtype))",
        "self.of_ignoring_before = nn.Parameter(torch.rand(4, 4))",
        """import contextlib

import jit_amp


@jit_amp.ignore_amp
def ignoring_before(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


with contextlib.suppress(RuntimeError):
    torch.jit.script(ignoring_before)
""",
        scope="in",
        refused_in_process=UNSEEN,  # in what plain TorchScript has compiled
    ),
    Feature(
        "ScriptModule with script_method",
        "$o = self.old_way(x.float())",
        "self.old_way = (NewWay if REFERENCE else OldWay)()",
        f"""
REFERENCE = False


class OldWay(torch.jit.ScriptModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.requires_grad_(False)

    @torch.jit.script_method
    def forward(self, x: Tensor) -> Tensor:
        with {BF16}:
            return self.norm(self.linear(x)).softmax(-1)


class NewWay(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with {BF16}:
            return self.norm(self.linear(x)).softmax(-1)
""",
        scope="out",
        masks=("pickle", "deepcopy", "vmap", "checkpoint"),  # PyTorch's own modules
    ),
    Feature(
        "part that is scripted where jit_amp is installed",
        "$o = self.of_installed(x.float())",
        "self.of_installed = "
        "Installed() if REFERENCE else wrappers.script_if_installed(Installed())",
        f"""{IMPORT}
REFERENCE = False


class Installed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    @{BF16}
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x)).softmax(-1)
""",
        own_cache=True,
        scope="out",
        masks=("pickle", "deepcopy", "vmap", "checkpoint"),
    ),
]

INDEXED = [
    Feature(
        "layer by index, ignoring",
        "for layer in self.indexed:\n    x = layer(x.float())",
        "self.indexed = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])",
        "import jit_amp\n",
        after="jit_amp.ignore_amp(m.indexed[1])",
        direct=True,
        scope="in",
    ),
    Feature(
        "layers of a loop, ignoring",
        "for layer in self.looped:\n    x = layer(x.float())",
        "self.looped = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])",
        "import jit_amp\n",
        after="for layer in m.looped:\n    jit_amp.ignore_amp(layer)",
        direct=True,
        scope="in",
    ),
    Feature(
        "flag of a layer, set by index",
        "for layer in self.flagged:\n    x = layer(x)",
        "self.flagged = nn.ModuleList([Flagged(), Flagged()])",
        """
class Flagged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 4), 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.scale
""",
        after="m.flagged[1].scale = 0.25\nm.flagged[-2].scale = 2.0",
        direct=True,
    ),
    Feature(
        "layers of a Sequential and a ModuleDict, ignoring",
        'x = self.in_chain(x.float()) + self.in_dict["a"](x.float())',
        "self.in_chain = nn.Sequential(nn.Linear(4, 4), nn.Tanh())\n"
        'self.in_dict = nn.ModuleDict({"a": nn.Linear(4, 4)})',
        "import jit_amp\n",
        after='jit_amp.ignore_amp(m.in_chain[0])\njit_amp.ignore_amp(m.in_dict["a"])',
        direct=True,
        scope="in",
    ),
    Feature(
        "layer called by index",
        "for layer in self.callable:\n    x = layer(x)",
        "self.callable = nn.ModuleList([CalledByIndex(), CalledByIndex()])",
        f"""
class CalledByIndex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls = nn.Linear(4, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        with {BF16}:
            return self.linear(x) * self.calls
""",
        after="m.callable[1].calls = 2\nm.callable[1](torch.ones(1, 4))",
        direct=True,
        traced=False,
    ),
]


def _exported(
    name: str,
    decorators: tuple[str, ...],
    body: str,
    init: str,
    top: str = "",
    **more: Any,
) -> Feature:
    """A method that is called by its name alone, from outside."""
    method = "by_name_" + name.replace(" ", "_").replace(",", "")
    lines = "".join(f"@{each}\n" for each in decorators)
    body = "".join(f"    {line}\n" for line in body.splitlines())
    return Feature(
        f"exported: {name}",
        init=init,
        top=top,
        members=f"{lines}def {method}(self, x: Tensor) -> Tensor:\n{body}",
        kind="setting",
        by_name=f"m.{method}(x.float())",
        **more,
    )


EXPORTED = [
    _exported(
        "plain", ("torch.jit.export",), "return self.of_plain(x)", "self.of_plain = nn.Linear(4, 4)"
    ),
    _exported(
        "scope",
        ("torch.jit.export",),
        f"with {BF16}:\n    return self.of_scope(x)",
        "self.of_scope = nn.Linear(4, 4)",
    ),
    _exported(
        "decorated",
        ("torch.jit.export", BF16),
        "return self.of_export_decorated(x)",
        "self.of_export_decorated = nn.Linear(4, 4)",
        own_cache=True,
    ),
    _exported(
        "decorated above",
        (BF16, "torch.jit.export"),
        "return self.of_above(x)",
        "self.of_above = nn.Linear(4, 4)",
        own_cache=True,
    ),
    _exported(
        "ignoring",
        ("torch.jit.export", "jit_amp.ignore_amp"),
        "return self.of_ignoring(x)",
        "self.of_ignoring = nn.Linear(4, 4)",
        "import jit_amp\n",
    ),
    _exported(
        "calls a decorated function",
        ("torch.jit.export",),
        "return square_of(x, self.of_square)",
        "self.of_square = nn.Parameter(torch.rand(4, 4))",
        f"@{BF16}\ndef square_of(x: Tensor, w: Tensor) -> Tensor:\n    return x @ w\n",
        own_cache=True,
    ),
    _exported(
        "uses an ignoring layer",
        ("torch.jit.export",),
        f"with {BF16}:\n    return self.ignoring_layer(x) + self.heeding_layer(x)",
        "self.ignoring_layer = jit_amp.ignore_amp(nn.Linear(4, 4))\n"
        "self.heeding_layer = nn.Linear(4, 4)",
        "import jit_amp\n",
    ),
    _exported(
        "no_grad below autocast",
        ("torch.jit.export", BF16, "torch.no_grad()"),
        "return self.of_exported_no_grad(x)",
        "self.of_exported_no_grad = nn.Linear(4, 4)",
        own_cache=True,
        refused_in_process=UNSEEN,
        masks=("lite",),  # it has no `with`
    ),
    _exported(
        "own context",
        ("torch.jit.export", "wrappers.in_own_context"),
        "return self.of_exported_ctx(x)",
        "self.of_exported_ctx, self.ctx = nn.Linear(4, 4), wrappers.amp",
        IMPORT,
        refused_in_process=UNSEEN,
    ),
    _exported(
        "keeps state",
        ("torch.jit.export",),
        f"with {BF16}:\n    self.heard += self.of_heard(x).detach().float().sum(0)\n"
        "return self.heard * 1",
        'self.of_heard = nn.Linear(4, 4)\nself.register_buffer("heard", torch.zeros(4))',
        masks=("vmap",),
    ),
]


def _if_tracing(name: str, top: str, arguments: str = "x, self.{}", **more: Any) -> Feature:
    function = "if_tracing_" + name.replace(" ", "_").replace(",", "")
    weight = f"of_{function}"
    return Feature(
        f"script_if_tracing: {name}",
        f"$o = {function}({arguments.format(weight)})",
        f"self.{weight} = nn.Parameter(torch.rand(4, 4))",
        top.replace("$f", function),
        **more,
    )


BODY = "def $f(x: Tensor, w: Tensor) -> Tensor:\n"

IF_TRACING = [
    _if_tracing(
        "ignoring",
        "import jit_amp\n\n\n@torch.jit.script_if_tracing\n@jit_amp.ignore_amp\n"
        f"{BODY}    return x @ w.to(x.dtype)\n",
        scope="in",
        refused_in_process=UNSEEN,
    ),
    _if_tracing(
        "ignoring above",
        "import jit_amp\n\n\n@jit_amp.ignore_amp\n@torch.jit.script_if_tracing\n"
        f"{BODY}    return x @ w.to(x.dtype)\n",
        scope="in",
        refused_in_process=UNSEEN,
    ),
    _if_tracing(
        "decorated",
        f"@torch.jit.script_if_tracing\n@{BF16}\n{BODY}    return x @ w\n",
        "x.float(), self.{}",
        own_cache=True,
        scope="out",
        refused_in_process=UNSEEN,
    ),
    _if_tracing(
        "decorated above",
        f"@{BF16}\n@torch.jit.script_if_tracing\n{BODY}    return x @ w\n",
        "x.float(), self.{}",
        own_cache=True,
        scope="out",
        refused_in_process=UNSEEN,
    ),
    _if_tracing(
        "calls an ignoring function",
        "import jit_amp\n\n\n@jit_amp.ignore_amp\n"
        "def exact_product(x: Tensor, w: Tensor) -> Tensor:\n    return x @ w.to(x.dtype)\n\n\n"
        f"@torch.jit.script_if_tracing\n{BODY}    return exact_product(x, w) + 1\n",
        refused_in_process=UNSEEN,  # of what plain TorchScript has compiled
        scope="in",
    ),
    _if_tracing(
        "calls a decorated function",
        f"@{BF16}\ndef low_product(x: Tensor, w: Tensor) -> Tensor:\n    return x @ w\n\n\n"
        f"@torch.jit.script_if_tracing\n{BODY}    return low_product(x, w) + 1\n",
        "x.float(), self.{}",
        own_cache=True,
        scope="out",
    ),
]

STATE_IN_CONTAINERS_OF_CONTAINERS = [
    Feature(
        "state: dictionaries of tensors in a dictionary",
        'self.of_names["a"]["k"] += 1\nfor each in self.of_names["b"].values():\n'
        '    each.mul_(0.5)\nx = x + self.of_names["a"]["k"]\n$o = self.of_names["b"]["k"] * 1',
        'self.of_names = {"a": {"k": torch.zeros(4)}, "b": {"k": torch.ones(4)}}',
        traced=False,
    ),
    Feature(
        "state: dictionaries of numbers in a list",
        'self.records[0]["n"] += 1\nself.records[1]["n"] = x.size(0)\n'
        'x = x * self.records[0]["n"] + self.records[1]["n"]',
        'self.records = [{"n": 0}, {"n": 5}]',
        traced=False,
    ),
    Feature(
        "state: lists in a tuple",
        "self.of_lists[0].append(x.size(0))\nself.of_lists[1][0] += 0.5\n"
        "x = x * self.of_lists[1][0] + len(self.of_lists[0])",
        "self.of_lists = ([1], [0.5])",
        traced=False,
    ),
    Feature(
        "state: tuples in a dictionary",
        'self.spans["a"] = (self.spans["a"][1], x.size(0))\nx = x + self.spans["a"][0]',
        'self.spans = {"a": (1, 2)}',
        traced=False,
    ),
    Feature(
        "state: lists of numbers in a dictionary",
        'self.sizes_of["a"].append(x.size(0))\nif "b" not in self.sizes_of:\n'
        '    self.sizes_of["b"] = [3]\nx = x + len(self.sizes_of["a"]) + len(self.sizes_of)',
        'self.sizes_of = {"a": [1]}',
        members="sizes_of: Dict[str, List[int]]\n",
        traced=False,
    ),
    Feature(
        "state: pairs of tensors in a list",
        "key, value = self.caches[0]\n"
        "self.caches[0] = (self.to_cache(x).detach().float().nan_to_num().sum(0), value + 1)\n"
        "x = x + key + value\n$o = self.caches[0][0] * 1",
        "self.to_cache = nn.Linear(4, 4)\nself.caches = [(torch.zeros(4), torch.ones(4))]",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "state: optional tensors in lists in a dictionary",
        'slot = self.slots["a"][0]\nif slot is not None:\n    x = x + slot\n'
        'self.slots["a"][0] = x.detach().float().nan_to_num().sum(0)',
        'self.slots = {"a": [None]}',
        members="slots: Dict[str, List[Optional[Tensor]]]\n",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "state: inner dictionary by another name",
        'inner = self.layers_of["a"]\ninner["k"] = inner["k"] + 1\n'
        'x = x + self.layers_of["a"]["k"]',
        'self.layers_of = {"a": {"k": torch.zeros(4)}}',
        traced=False,
    ),
    Feature(
        "state: list of lists of tensors that grows",
        "self.history.append([x.detach().float().nan_to_num().sum(0)])\n"
        "self.history[-1].append(self.history[0][0] * 0.5)\n"
        "if len(self.history) > 3:\n    self.history.pop(0)\nx = x + self.history[-1][-1]",
        "self.history = []",
        members="history: List[List[Tensor]]\n",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "state: three containers deep",
        'self.deep[0]["k"][1] += 0.5\nself.deep[0]["k"].append(x.size(0) * 1.0)\n'
        'x = x * self.deep[0]["k"][1] + len(self.deep[0]["k"])',
        'self.deep = [{"k": [1.0, 1.0]}]',
        traced=False,
    ),
    Feature(
        "state: tensors three containers deep",
        'self.deeper["a"][0][1].add_(1)\nx = x + self.deeper["a"][0][1]\n'
        '$o = self.deeper["a"][0][0] * 1',
        'self.deeper = {"a": [(torch.zeros(4), torch.zeros(4))]}',
        traced=False,
    ),
]

TARGETS = [
    Feature(
        "target: tuple of attributes",
        "self.turn_a, self.turn_b = self.turn_b, self.turn_a + 1\nx = x + self.turn_a",
        "self.turn_a, self.turn_b = 1, 2",
        traced=False,
    ),
    Feature(
        "target: an attribute and a variable",
        "self.kept_sum, y = x.detach().float().nan_to_num().sum(0), self.of_kept_sum(x)\n"
        "x = y + self.kept_sum",
        'self.of_kept_sum = nn.Linear(4, 4)\nself.register_buffer("kept_sum", torch.zeros(4))',
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "target: nested tuples with subscripts",
        "ys = [x, x]\n(ys[0], (a, ys[1])) = (self.of_nested_target(x), (x * 2, x * 3))\n"
        "x = ys[0] + a + ys[1]",
        "self.of_nested_target = nn.Linear(4, 4)",
    ),
    Feature(
        "target: elements swapped",
        "zs = [x, self.of_swapped(x)]\nzs[0], zs[1] = zs[1], zs[0]\nx = zs[0] * 2 + zs[1]",
        "self.of_swapped = nn.Linear(4, 4)",
    ),
    Feature(
        "target: augmented attributes",
        "self.times += 1\nself.factor_of *= 0.5\nself.times -= 3\nself.factor_of /= 0.25\n"
        "x = x * self.factor_of + self.times",
        "self.times, self.factor_of = 1, 1.0",
        traced=False,
    ),
    Feature(
        "target: augmented elements",
        'ns = [1, 2]\nd = {"k": 0.5}\nns[0] += 2\nns[-1] *= 3\nd["k"] -= 0.25\n'
        'self.counted[1] -= 1\nself.tallied["k"] *= 0.5\n'
        'x = x * d["k"] + ns[0] * ns[1] + self.counted[1] + self.tallied["k"]',
        'self.counted, self.tallied = [1, 2], {"k": 1.0}',
        traced=False,
    ),
    Feature(
        "target: slices",
        "y = self.of_slices(x)\ny[:, :2] = 0.5\ny[..., -1:] = y[..., :1]\ny[0] = 0.25\n"
        "y[:, 0:4:2] = x[:, ::2].to(y.dtype)\nx = y * 0.5",
        "self.of_slices = nn.Linear(4, 4)",
    ),
    Feature(
        "target: a slice and a variable",
        "y = self.of_first(x)\nz, y[:, 0] = x * 2, 0.5\nx = y + z",
        "self.of_first = nn.Linear(4, 4)",
    ),
    Feature(
        "target: attributes of a submodule",
        "self.told.rows = x.size(0)\nself.told.count += 1\nself.told.last = "
        "x.detach().float().nan_to_num().sum(0)\nx = self.told(x)",
        "self.told = Told()",
        """
class Told(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows, self.count, self.last = 0, 0, torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.count + self.rows + self.last
""",
        traced=False,
        masks=("vmap",),
    ),
    Feature(
        "target: several at once",
        "a = b = self.of_several(x)\nx = a + b * 0.5",
        "self.of_several = nn.Linear(4, 4)",
    ),
    Feature(
        "target: annotated",
        "n: int = x.size(1)\ny: Tensor = self.of_annotated(x)\nzs: List[Tensor] = []\n"
        "zs.append(y)\nx = zs[0] * n",
        "self.of_annotated = nn.Linear(4, 4)",
        traced=False,
    ),
    Feature(
        "target: tuples of loops and comprehensions",
        "pairs = [(x, self.of_pairs(x)), (x * 2, x)]\nfor i, (a, b) in enumerate(pairs):\n"
        "    x = x + a * i + b\n"
        "x = x + torch.stack([a for a in [x, x]]).sum(0) * 0.1",
        "self.of_pairs = nn.Linear(4, 4)",
    ),
    Feature(
        "target: elements of a module's containers, in a tuple",
        'self.held_list[0], self.held_dict["k"] = x.size(0), self.held_list[0] + 1\n'
        'x = x + self.held_dict["k"]',
        'self.held_list, self.held_dict = [1, 2], {"k": 3}',
        traced=False,
    ),
]

COMPANY = (
    WRAPPERS
    + GRADIENT_MODES
    + BEFORE
    + INDEXED
    + EXPORTED
    + IF_TRACING
    + STATE_IN_CONTAINERS_OF_CONTAINERS
    + TARGETS
)
