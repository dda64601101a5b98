"""Artefacts whose convolutions compute with channels last, or with activations fused and weights
packed: what they give, in which strides, and what it shares memory with, is eager's."""

from __future__ import annotations

import copy
import io
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import jit_amp

from ..support import fresh, imported, operators, tensors_of, text_of
from .packed import kernel, old_processor

HEAD = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def written(x: Tensor):
    return x.mul_(2.0)


def detached(x: Tensor):
    return x.detach() * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.third = nn.Conv2d(8, 8, 1, bias=False)
        self.fourth = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.fifth = nn.ConvTranspose2d(8, 8, 2, stride=2)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = self.first(x).relu_()
            b = F.relu(self.second(a), inplace=True)
            b += a
"""
# What is done with `a` and `b`, feature maps with 8 channels, and what is returned.
TAILS = {
    "as it is": "return b",
    "flattened": "return b.flatten(1)",
    "viewed": "return b.view(b.size(0), -1), b",
    "a slice written to": "c = b[:, 1:]\nc += 1\nreturn b",
    "a slice, then the whole written to": "c = b[:, 1:]\nb.relu_()\nreturn c, b",
    "a mean": "return b.mean((2, 3)), b.mean([-1, -2], keepdim=True), b.mean(1)",
    "permuted": "return b.permute(0, 2, 3, 1), b",
    "strides asked for": "return torch.cat([b, a], 1), b.stride(1) if b.numel() > 0 else 0",
    "another convolution": "return self.third(b).view(-1), self.third(a)",
    "a flattened one written to": "c = b.flatten(1)\nc.relu_()\nreturn c",
    "a flattened one written to, and the whole": "c = b.flatten(1)\nc.add_(1)\nreturn c, b.relu()",
    "the input written to": "x += b[:, :3]\nreturn x",
    "in a list": "c = [b]\nc.append(a)\nreturn c",
    "in a dictionary": 'c = {"x": x}\nc["b"] = b\nb += 1\nreturn c',
    "put into a list": "c = [x]\nfor _ in range(2):\n    c.insert(0, b)\n    b += 1\nreturn c",
    "twice": "return b, b",
    "written to later": "c = self.third(b)\nb.add_(1)\nreturn c, b",
    "made larger": "return F.interpolate(F.pad(b, (1, 1)), scale_factor=2.0), F.max_pool2d(b, 2)",
    "in a branch": "if x.size(0) > 1:\n    b = self.third(b)\nelse:\n    b = b[:, :4]\nreturn b",
    "in a branch too": "c = self.third(b)\nif x.size(0) > 1:\n    c = self.third(b)\nreturn c",
    "in a branch of one line": "return self.third(b) if x.size(0) > 1 else b.neg_()",
    "in branches": (
        "if x.size(0) > 1:\n    c = self.third(b)\nelse:\n    c = F.relu(a)\nreturn c.view(-1)"
    ),
    "a branch of another": "c = self.third(a.neg())\nif x.size(0) > 1:\n    c = b\nreturn c + 1, b",
    "in a branch, viewed": (
        "if x.size(0) > 1:\n    b = self.third(b)\n    c = b.view(-1)\n    c += 1\nreturn b"
    ),
    "its dimensions": (
        "c = self.third(b)\nif c.dim() == 4:\n    c = F.max_pool2d(c, 2)\nreturn c, c.dim()"
    ),
    "written in a branch": "c = b.view(-1)\nif x.size(0) > 1:\n    b = b.relu_()\nreturn b, c",
    "its dimensions, of two": "c = self.fourth(self.third(b))\nreturn c, c.dim(), c.ndim",
    "its dimensions, in a list": (
        "c = [self.third(b)]\nc.append(self.fourth(c[0]))\nreturn c[0].dim(), c[1].dim()"
    ),
    "its dimensions, in a loop": "c = b\nfor _ in range(2):\n    c = self.third(c)\nreturn c.dim()",
    "its dimensions, dropped": "c = F.dropout(self.third(b), 0.5, False)\nreturn c, c.dim()",
    "its dimensions, in a dictionary": 'c = {"c": self.third(b)}\nreturn c["c"].dim()',
    "kept in a list": (
        "c = [a]\nc.append(F.max_pool2d(b, 2).relu_())\nd = self.third(c[1]).relu_()\n"
        "c.append(d)\nreturn torch.cat([F.interpolate(c[-1], scale_factor=2.0), c[0]], 1)"
    ),
    "nearest": 'return F.interpolate(b, size=(5, 7), mode="nearest"), a',
    "bilinear": 'return self.third(F.interpolate(b, scale_factor=2.0, mode="bilinear"))',
    "corners": 'return F.interpolate(b, (12, 3), mode="bilinear", align_corners=True)',
    "bicubic": 'return F.interpolate(b, (12, 3), mode="bicubic").relu()',
    "in a loop": "for _ in range(2):\n    b = self.third(b).relu()\nreturn b",
    "with what has more dimensions": "return b + torch.ones(2, 1, 1, 1, 1)",
    "of two layouts": "c = self.third(a.contiguous())\nreturn a + c, c + a, torch.cat([a, c])",
    "with a constant": "return torch.ones(1, 8, 8, 8) + b, torch.ones(8, 1, 1) + b",
    "in a named layout": "return b.to(torch.float32, memory_format=torch.channels_last), b",
    "beside a task": "c = b.view(-1)\nd = torch.jit.fork(written, x)\nreturn c, torch.jit.wait(d)",
    "of a type": "c = x * 2\nd = c.type_as(x).relu_()\nreturn c, self.first(d)",
    "of no indices": (
        "c = x * 2\nd = torch.einsum('...ij->...ij', c).relu_()\nreturn c, b + d.sum()"
    ),
    "not dropped": "c = x * 2\nd = F.dropout(c, 0.0, True).relu_()\nreturn c, self.first(d)",
    "leaky at random": "return F.rrelu_(self.third(b))",
    "transposed": "return self.fifth(b), torch.stack([b, a], 2)",
    "detached in a task": "c = torch.jit.fork(detached, b)\nreturn torch.jit.wait(c), b.relu()",
    "in a task": "c = torch.jit.fork(written, b[:, :2])\nreturn torch.jit.wait(c), b.relu()",
}
FORMS = ["portable", "server"]


def last(x: Tensor) -> Tensor:
    """A picture, as a file has it: the channels of a pixel beside each other."""
    return x.permute(1, 2, 0).contiguous().permute(2, 0, 1)


INPUTS = {
    "the example's": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "another size": lambda x: x[:, :, :6],
    "one": lambda x: x[:1],
    "none": lambda x: x[:0],
    "without a batch": lambda x: x[0],
    "a picture": lambda x: last(x[0]).unsqueeze(0),
    "a picture without a batch": lambda x: last(x[0]),
    "one pixel": lambda x: x[:, :, :1, :1],
}


def made(tail: str, folder: Path, head: str = HEAD) -> nn.Module:
    body = "".join(f"            {line}\n" for line in tail.splitlines())
    torch.manual_seed(0)
    return imported(head + body, folder / "layouts.py").Model().eval().requires_grad_(False)


def saved_copy(module: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(module, file)
    return torch.jit.load(io.BytesIO(file.getvalue()))


def strides(tensor: Tensor) -> list[int]:
    """Of the dimensions where they mean something."""
    return [s for s, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def sharing(arguments: Any, result: Any) -> list[int]:
    """For each tensor, the first that has its memory."""
    storages = [t.untyped_storage().data_ptr() for t in tensors_of((arguments, result))]
    return [storages.index(each) for each in storages]


def plain(result: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(result) if not isinstance(leaf, Tensor)]


def ran(call: Any, x: Tensor) -> tuple[Any, Any]:
    arguments = (fresh(x),)
    try:
        return arguments, call(*arguments)
    except (RuntimeError, IndexError, ValueError):
        return arguments, None


def assert_near(call: Any, model: nn.Module, x: Tensor, case: str, tolerance: float = 0.03) -> None:
    given, expected = ran(copy.deepcopy(model), x)
    if expected is None:
        assert case != "the example's"
        return  # TorchScript drops what has no effect, and with it its errors
    for _ in range(3):
        taken, actual = ran(call, x)
        assert actual is not None, case
        assert sharing(taken, actual) == sharing(given, expected), case
        assert plain(actual) == plain(expected), case
        pairs = zip(tensors_of((taken, actual)), tensors_of((given, expected)), strict=True)
        for ours, eagers in pairs:
            assert (ours.dtype, ours.shape) == (eagers.dtype, eagers.shape), case
            assert not ours.numel() or strides(ours) == strides(eagers), case
            torch.testing.assert_close(ours, eagers, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("target", FORMS)
@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_values_strides_and_memory(tail: str, target: Any, tmp_path: Path) -> None:
    model, x = made(tail, tmp_path), torch.randn(2, 3, 8, 8)
    frozen = jit_amp.freeze(model, example_inputs=(x,), target=target)
    for call in (frozen, saved_copy(frozen)):
        for name, change in INPUTS.items():
            assert_near(call, model, change(x), name)


STATEMENTS = (
    "{v} = {u}.relu()",
    "{v} = {u}.relu_()",
    "{v} = self.third({u})",
    "{v} = F.silu(self.second({u}))",
    "{v} = {w} + self.third({u})",
    "{v} = self.fourth({u}).add_({w}).relu_()",
    "{v} = {u} + {w}",
    "{v} = {u}.add_({w})",
    "{v} = {u}.flatten(2).view({u}.size(0), 8, {u}.size(2), -1)",
    "{v} = {u}.permute(0, 1, 3, 2)",
    "{v} = torch.cat([{u}, {w}], 1)[:, 4:12]",
    "{v} = F.max_pool2d({u}, 3, 1, 1)",
    "{v} = {u}.clone()",
    "{u}[:, 2:5].mul_(0.5)",
    "{u}[:, :1] = 0.25",
    "{v} = {u}.detach()",
    "{v} = {u}.reshape({u}.shape)",
    "{v} = {u}.contiguous()",
    "{v} = {u}.to(torch.float32).to(torch.bfloat16)",
    "{v} = {u}[:, [1, 0, 3, 2, 5, 4, 7, 6]]",
    "if {u}.size(0) > 1:\n    {u}.neg_()",
    "{v} = {u}\nif {u}.size(0) > 1:\n    {v} = self.third({w})",
    "if {u}.size(3) > 7:\n    {v} = F.relu({w})\nelse:\n    {v} = {u}[:, :, 1:-1]",
    "{v} = {u}\nif {w}.dim() == 4:\n    {v} = F.max_pool2d({u}, 3, 1, 1)\n    {v} += {w}",
)


def written(seed: int, statements: tuple[str, ...] = STATEMENTS) -> str:
    """A random tail of statements on a growing number of feature maps, or of tokens."""
    choose = random.Random(seed)
    names, lines = ["a", "b"], []
    for i in range(choose.randint(2, 6)):
        u, w, v = choose.choice(names), choose.choice(names), f"v{i}"
        statement = choose.choice(statements)
        lines.append(statement.format(u=u, w=w, v=v))
        if "{v}" in statement:
            names.append(v)
    results = choose.sample(names, choose.randint(1, min(3, len(names))))
    return "\n".join([*lines, f"return ({', '.join(results)},)"])


@pytest.mark.parametrize("target", FORMS)
def test_random_programs(target: Any, tmp_path: Path, layouts: int) -> None:
    changed = 0
    for seed in range(layouts):
        tail = written(seed)
        (folder := tmp_path / str(seed)).mkdir()
        model, x = made(tail, folder), torch.randn(2, 3, 8, 8)
        frozen = jit_amp.freeze(model, example_inputs=(x,), target=target)
        changed += "aten::stride" in operators(frozen.graph)
        for name, change in INPUTS.items():
            assert_near(frozen, model, change(x), f"seed {seed}, {name}:\n{tail}")
    assert target == "portable" or changed > layouts / 4  # or the test would look at nothing


TOKENS = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64, bias=False)
        self.wide = nn.Linear(64, 160)
        self.narrow = nn.Linear(160, 64)
        self.norm = nn.LayerNorm(64)
        self.drop = nn.Dropout(0.2)
        self.register_buffer("bias", torch.randn(4, 800, 800))

    def heads(self, x: Tensor):
        return x.view(x.size(0), x.size(1), 4, 16).transpose(1, 2)

    def tokens(self, x: Tensor):
        return x.transpose(1, 2).reshape(x.size(0), x.size(2), 64)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = self.first(x)
            b = F.relu(self.second(a), inplace=True)
            n = a.size(1)
            causal = torch.ones(n, n, dtype=torch.bool).triu(1)
"""
SCORES = "q, k, s = self.heads({u}), self.heads({w}), self.heads({u}) @ self.heads({w}).mT\n"
PLAIN = SCORES + "{v} = self.tokens((s * 0.25).softmax(-1) @ k)"
MASKED = (
    SCORES + "s.masked_fill_(causal, float('-inf'))\n"
    "{v} = self.tokens(self.drop(s.softmax(-1)) @ k)"
)
STATEMENTS_OF_TOKENS = (
    *(PLAIN, MASKED) * 2,
    SCORES + "s = s * 0.25 + self.bias[:, :n, :n]\n{v} = self.tokens(s.softmax(-1) @ k)",
    SCORES
    + "s = s.float().softmax(-1)\n{v} = self.tokens(s.to(k.dtype) @ k) + s.sum().to(k.dtype)",
    SCORES + "s = s.softmax(-1)\nq *= 0.5\n{v} = self.tokens(s @ q)",
    SCORES + "s.div_(4)\ns += self.bias[:1, :n, :n].to(s.dtype)\n"
    "{v} = self.tokens(torch.where(causal, -1e9, s).softmax(-1) @ q.relu_())",
    "{v} = self.narrow(F.gelu(self.wide({u})))",
    "{v} = {w} + self.narrow(F.silu(self.wide({u})))",
    "{v} = self.first({u})\n{v} += {w}",
    "{v} = self.first({u}).relu_()",
    "{v} = self.second({u}[:, :1]) + {w}",
    "{v} = torch.tanh(self.second({u}).add_({w}))",
    "{v} = self.norm({u} + {w}).to(torch.bfloat16)",
    "{v} = {u}.add_({w})",
    "{u}[:, :1].mul_(0.5)",
    "{u}[..., 3:9] = 0.25",
    "{v} = {u}.detach()",
    "{v} = {u}.transpose(0, 1).contiguous().transpose(0, 1)",
    "{v} = torch.cat([{u}, {w}], 1)[:, :n]",
    "if {u}.size(1) > 100:\n    {u}.neg_()",
    "{v} = {u}\nif {u}.size(0) > 1:\n    {v} = self.first({w}).relu()",
)
LONG_INPUTS = {
    "the example's": lambda x: x,
    "columns": lambda x: x.mT.contiguous().mT,
    "another length": lambda x: x.repeat(1, 4, 1)[:, 3:],
    "one": lambda x: x[:1],
    "one token": lambda x: x[:, :1],
    "none": lambda x: x[:0],
    "without a batch": lambda x: x[0],
    "so long that attention is computed in blocks": lambda x: x.repeat(1, 64, 1),
    "and longer": lambda x: x[:1].repeat(1, 100, 1),
}
PROCESSORS = [lambda: kernel(slow=True), lambda: kernel(slow=False), old_processor]


@torch.no_grad()
def test_random_programs_of_tokens(tmp_path: Path, layouts: int) -> None:
    """Layers with what follows them, attention by hand and writes, on three kinds of processors."""
    changed, attended, programs = 0, 0, layouts // 2
    for seed in range(programs):
        tail = written(seed, STATEMENTS_OF_TOKENS)
        (folder := tmp_path / str(seed)).mkdir()
        model, x = made(tail, folder, TOKENS), torch.randn(2, 8, 64)
        with PROCESSORS[seed % 3]():
            frozen = jit_amp.freeze(model, example_inputs=(x,), target="server")
        changed += "_linear_pointwise" in text_of(frozen.graph)
        attended += "scaled_dot_product" in text_of(frozen.graph)
        for name, change in LONG_INPUTS.items():
            assert_near(frozen, model, change(x), f"seed {seed}, {name}:\n{tail}", 0.1)
    assert changed > programs / 2
    assert attended > programs / 4


def test_a_server_needs_numerics_and_a_known_name() -> None:
    model = nn.Linear(2, 2).eval()
    with pytest.raises(ValueError, match="needs optimize_numerics=True"):
        jit_amp.freeze(model, None, False, target="server")
    with pytest.raises(ValueError, match="target: 'phone' is none of 'portable', 'server'"):
        jit_amp.freeze(model, target="phone")  # type: ignore[arg-type]


def test_elsewhere_layouts_are_eagers(tmp_path: Path) -> None:
    model, x = made("return b", tmp_path), torch.randn(2, 3, 8, 8)
    for optimize_numerics in (True, False):
        frozen = jit_amp.freeze(model, None, optimize_numerics, example_inputs=(x,))
        assert "aten::stride" not in operators(frozen.graph)
        assert torch.equal(frozen(x), model(x))


RESIDUALS = {
    "added to": "return F.relu(self.fourth(b) + a)",
    "added": "return a + self.fourth(b)",
    "to one with groups": "return F.relu(self.second(b) + a)",
    "in place": "c = self.fourth(b)\nc += a\nreturn c.relu_(), a",
    "of two convolutions": "c = self.fourth(b)\nc += self.third(a)\nreturn F.relu(c)",
    "of itself": "return self.fourth(b) + b",
    "twice": "c = self.fourth(b)\nreturn c + c, F.relu(self.third(a) + self.third(b))",
    "another activation": "return F.hardswish(self.third(b) + a)",
    "the input's dtype": "return self.third(b) + x[:, :1]",
    "of one channel": "return self.third(b) + a[:, :1]",
    "a transposed one": "return F.relu(self.third(b) + a.transpose(2, 3))",
    "twice as much": "return torch.add(self.third(b), a, alpha=2)",
    "a number": "return self.third(b) + 1",
    "written to between": "c = self.third(b)\nb.mul_(2)\nreturn c + a, b",
    "its sum written to": "c = self.third(b) + a\nd = c[:1]\nc += 1\nreturn c, d",
}


@pytest.mark.parametrize("tail", RESIDUALS.values(), ids=RESIDUALS)
def test_additions(tail: str, tmp_path: Path) -> None:
    model, x = made(tail, tmp_path), torch.randn(2, 3, 8, 8)
    frozen = jit_amp.freeze(model, example_inputs=(x,), target="server")
    for call in (frozen, saved_copy(frozen)):
        for name, change in INPUTS.items():
            assert_near(call, model, change(x), name)


def assert_gradients_near(frozen: Any, model: nn.Module, x: Tensor) -> None:
    gradients = []
    for call in (model, frozen, frozen, frozen):
        given = x.clone().requires_grad_()
        call(given).float().sum().backward()
        gradients.append(given.grad)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=0.05, atol=0.05)


def test_additions_and_gradients(tmp_path: Path) -> None:
    """Of what is added alone: the fused operator has no derivative."""
    tail = (
        "c = self.third(torch.ones([2, 8, 8, 8], dtype=torch.bfloat16))\n"
        "return c + x[:, [0, 1, 2, 0, 1, 2, 0, 1]].to(torch.bfloat16)"
    )
    model, x = made(tail, tmp_path), torch.randn(2, 3, 8, 8)
    frozen = jit_amp.freeze(model, example_inputs=(x,), target="server")
    assert_gradients_near(frozen, model, x)


class Activations(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 8, 3), nn.Linear(62, 70, bias=False)
        self.activation = activation

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.activation(self.linear(self.activation(self.conv(x))))


@pytest.mark.parametrize(
    "activation",
    [
        nn.ReLU(),
        nn.ReLU(inplace=True),
        nn.ReLU6(inplace=True),
        nn.Sigmoid(),
        nn.Tanh(),
        nn.SiLU(inplace=True),
        nn.Hardswish(),
        nn.Hardsigmoid(inplace=True),
        nn.GELU(),
        nn.GELU("tanh"),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Hardtanh(-0.5, 0.75),
        nn.ELU(),
    ],
    ids=repr,
)
def test_activations(activation: nn.Module) -> None:
    torch.manual_seed(0)
    model = Activations(activation).eval().requires_grad_(False)
    x = torch.randn(2, 3, 8, 64) * 3
    frozen = jit_amp.freeze(model, example_inputs=(x,), target="server")
    kinds = text_of(frozen.graph)
    assert kinds.count("_convolution_pointwise(") == kinds.count("_linear_pointwise(") == 1
    for call in (frozen, saved_copy(frozen)):
        for name, change in INPUTS.items():
            if name != "another size":  # the linear layer's
                assert_near(call, model, change(x), name)
    assert_near(frozen, model, x[..., :5, :], "another height")


def test_gradients_of_inputs() -> None:
    """The fused operators have no derivative."""
    torch.manual_seed(0)
    model, x = Activations(nn.SiLU()).eval().requires_grad_(False), torch.randn(2, 3, 64, 64)
    frozen = jit_amp.freeze(model, example_inputs=(x,), target="server")
    assert "_convolution_pointwise" in text_of(frozen.graph)
    assert_gradients_near(frozen, model, x)


def test_weights_stand_in_the_file_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).eval()
    scoped = jit_amp.script(model, autocast=torch.autocast("cpu", dtype=torch.bfloat16))
    x = torch.randn(4, 512)
    sizes = {}
    for target in FORMS:
        path = tmp_path / f"{target}.pt"
        torch.jit.save(jit_amp.freeze(scoped, example_inputs=(x,), target=target), path)
        sizes[target] = path.stat().st_size
    assert sizes["server"] < sizes["portable"] * 1.1
    loaded = torch.jit.load(tmp_path / "server.pt")
    assert_near(copy.deepcopy(loaded), jit_amp.script(scoped), x, "a copy of what was loaded")
    again = tmp_path / "again.pt"
    torch.jit.save(loaded, again)
    assert_near(torch.jit.load(again), jit_amp.script(scoped), x, "saved twice")


def test_a_weight_of_two_layers(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(8, 8)

        def forward(self, x: Tensor):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.one(self.one(x)[:1]) + self.one.weight.sum()

    model, x = Tied().eval().requires_grad_(False), torch.randn(4, 8)
    frozen = jit_amp.freeze(model, example_inputs=(x,), target="server")
    for given in (x, x[:1], x[0][None, None]):
        assert_near(frozen, model, given, "tied")


class Looped(nn.Module):
    """Its layers are called with a loop's own values on the interpreter's stack."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = torch.zeros(x.size(1), 64)
            for t in range(x.size(0)):
                h = torch.tanh(self.one(x[t]) + self.two(h))
        return h


def test_weights_in_a_loop_are_packed(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = Looped().eval().requires_grad_(False), torch.randn(3, 2, 64)
    frozen = jit_amp.freeze(model, example_inputs=(x,), target="server")
    assert capfd.readouterr().err == ""
    assert sorted(frozen._packed.plans) == [[2], [2]]
    for given in (x, x[:, :1], x[:0]):
        assert_near(frozen, model, given, "in a loop")
