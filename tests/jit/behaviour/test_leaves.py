"""Tensors that a program makes and that require grad, where its graph does not show it: gradients
are eager's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jit_amp


def leaf(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_()


@torch.jit.ignore
def leaf_of_python(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_()


@torch.jit.script
class Enters:
    def __init__(self, y: Tensor):
        self.y = y

    def __enter__(self):
        self.y = self.y.detach().clone().requires_grad_()

    def __exit__(self, a: Any, b: Any, c: Any) -> None:
        pass


class InATask(nn.Module):
    def forward(self, x: Tensor):
        w = torch.jit.wait(torch.jit.fork(leaf, x))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = w @ x + w @ w
        return torch.autograd.grad([y.float().sum()], [w])[0]


class InPython(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            w = leaf_of_python(x)
            y = w @ x + w @ w
        return torch.autograd.grad([y.float().sum()], [w])[0]


class WhereAnObjectIsEntered(nn.Module):
    def forward(self, x: Tensor):
        made = Enters(x)
        with made, torch.autocast("cpu", dtype=torch.bfloat16):
            w = made.y
            y = w @ x + w @ w
        return torch.autograd.grad([y.float().sum()], [w])[0]


@torch.jit.interface
class Makes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class MakesALeaf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.detach().clone().requires_grad_()


class MakesAProduct(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.detach().clone().requires_grad_() * 2


class BehindAnInterface(nn.Module):
    made: Makes

    def __init__(self) -> None:
        super().__init__()
        self.made, self.one, self.two = MakesALeaf(), MakesALeaf(), MakesAProduct()

    def forward(self, x: Tensor, second: bool = False):
        if second:
            self.made = self.two
        else:
            self.made = self.one
        w = self.made.forward(x)
        y = w @ x + w @ w
        return torch.autograd.grad([y.float().sum()], [w])[0]


@pytest.mark.parametrize("ambient", [False, True])
@pytest.mark.parametrize("make", [InATask, InPython, WhereAnObjectIsEntered, BehindAnInterface])
def test_gradients_of_a_leaf_that_is_made_out_of_sight(
    make: Callable[[], nn.Module], ambient: bool
) -> None:
    x = torch.rand(3, 3)
    scripted = jit_amp.script(make())
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=ambient):
        expected = make()(x)
        for _ in range(3):
            assert torch.equal(scripted(x), expected)
