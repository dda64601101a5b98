"""The valid programs whose graphs tests/fuzz/hostile.py mutates."""

import torch
from torch import Tensor


def plain(x: Tensor, y: Tensor, flag: bool, n: int):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = torch.mm(x, y)
    return z + x


def nested(x: Tensor, y: Tensor, flag: bool, n: int):
    a = x @ y
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = a @ y
        with torch.autocast("cpu", enabled=False):
            c = b.float() @ x
        with torch.autocast("cpu", dtype=torch.float16):
            d = c @ x
        e = b @ x
    return a, b, c, d, e


def reused(x: Tensor, y: Tensor, flag: bool, n: int):
    scope = torch.autocast("cpu", dtype=torch.bfloat16)
    with scope:
        a = x @ y
    b = x @ y
    with scope as entered:  # noqa: F841
        c = torch.cat([a, y])
    return a, b, c


def branches(x: Tensor, y: Tensor, flag: bool, n: int):
    if flag:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = x @ y
    else:
        with torch.autocast("cpu", dtype=torch.float16):
            z = x @ y
    if n > 1:
        z = z.float() @ y
    return z


def loops(x: Tensor, y: Tensor, flag: bool, n: int):
    z = x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for i in range(n):
            z = z @ y
            if i > 1:
                z = z + x
    while flag:
        with torch.autocast("cpu"):
            z = z @ y
        flag = False
    return z


def writes(x: Tensor, y: Tensor, flag: bool, n: int):
    buffer = torch.zeros(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        buffer.add_(1.0)
        b = buffer @ y
        buffer[0].mul_(2.0)
        c = buffer @ y
        torch.mm(x, y, out=buffer)
    return a, b, c, buffer @ x


def lists(x: Tensor, y: Tensor, flag: bool, n: int):
    items = [x, y]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        items.append(x @ y)
        z = torch.cat(items)
        w = torch.stack([item.float() for item in items])
    return z, w, items


def optionals(x: Tensor, y: Tensor, flag: bool, n: int):
    bias = x[0] if flag else None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = torch.nn.functional.linear(x, y, bias)
        m = torch.nn.functional.mse_loss(z, y)
    return z, m


def asks(x: Tensor, y: Tensor, flag: bool, n: int):
    before = torch.is_autocast_cpu_enabled()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = torch.is_autocast_cpu_enabled()
        z = x @ y if inside else x
    return before, inside, z


def helper(x: Tensor, y: Tensor):
    return torch.cat([x @ y, x])


def calls(x: Tensor, y: Tensor, flag: bool, n: int):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = helper(x, y)
        b = torch.einsum("ij,jk->ik", x, y)
    return a, b, helper(x, y)


def forks(x: Tensor, y: Tensor, flag: bool, n: int):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        future = torch.jit.fork(helper, x, y)
        z = x @ y
    return torch.jit.wait(future), z


def devices(x: Tensor, y: Tensor, flag: bool, n: int):
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        z = x @ y
    with torch.autocast("cuda"):
        w = x @ y
    return z, w


SEEDS = [
    plain,
    nested,
    reused,
    branches,
    loops,
    writes,
    lists,
    optionals,
    asks,
    calls,
    forks,
    devices,
]
