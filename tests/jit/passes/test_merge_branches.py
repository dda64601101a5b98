"""merge_branches: a branch whose two sides do the same is no branch."""

from __future__ import annotations

import pytest
import torch

from .ir import check, operators, parse, unchanged, values_of


def case(one: str, other: str, *before: str) -> str:
    sides = [
        "".join(f"          {line}\n" for line in side.splitlines()[:-1])
        + f"          -> ({side.splitlines()[-1]})\n"
        for side in (one, other)
    ]
    return (
        "graph(%x : Tensor, %y : Tensor, %b : bool):\n"
        "      %none : NoneType = prim::Constant()\n"
        '      %eq : str = prim::Constant[value="ij,jk->ik"]()\n'
        + "".join(f"      {line}\n" for line in before)
        + f"      %z : Tensor = prim::If(%b)\n        block0():\n{sides[0]}"
        + f"        block1():\n{sides[1]}      return (%z)\n"
    )


def test_nothing_on_either_side() -> None:
    graph = check("merge_branches", case("%x", "%x", "%n : Tensor = aten::neg(%x)"))
    assert operators(graph) == []  # what only the branch asked for is gone too


def test_the_same_operators() -> None:
    text = case(
        "%1 : Tensor = aten::neg(%x)\n%2 : Tensor = aten::mm(%1, %y)\n%2",
        "%3 : Tensor = aten::neg(%x)\n%4 : Tensor = aten::mm(%3, %y)\n%4",
    )
    graph = check("merge_branches", text)
    assert operators(graph) == ["aten::neg", "aten::mm"]
    x = torch.randn(3, 3)
    assert torch.equal(values_of(graph, x, x, True)[0], values_of(parse(text), x, x, False)[0])


def test_lists_of_the_same() -> None:
    text = case(
        "%l : Tensor[] = prim::ListConstruct(%x, %y)\n"
        "%1 : Tensor = aten::einsum(%eq, %l, %none)\n%1",
        "%2 : Tensor = aten::einsum(%eq, %k, %none)\n%2",
        "%k : Tensor[] = prim::ListConstruct(%x, %y)",
    )
    assert operators(check("merge_branches", text)).count("aten::einsum") == 1


def test_inner_branches_first() -> None:
    inner = "%{0} : Tensor = prim::If(%b)\n  block0():\n    -> (%x)\n  block1():\n    -> (%x)\n%{0}"
    assert operators(check("merge_branches", case(inner.format("p"), "%x"))) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("%x", "%y"),
        ("%1 : Tensor = aten::neg(%x)\n%1", "%2 : Tensor = aten::neg(%y)\n%2"),
        ("%1 : Tensor = aten::neg(%x)\n%1", "%2 : Tensor = aten::abs(%x)\n%2"),
        ("%1 : Tensor = aten::neg_(%x)\n%1", "%2 : Tensor = aten::neg_(%x)\n%2"),
        ("%y", "%2 : Tensor = aten::neg_(%x)\n%y"),
        (
            "%1 : Tensor = aten::rand_like(%x, %none, %none, %none, %none, %none)\n%1",
            "%2 : Tensor = aten::rand_like(%x, %none, %none, %none, %none, %none)\n%2",
        ),
        (
            "%c : int = prim::Constant[value=1]()\n%1 : Tensor = aten::add(%x, %y, %c)\n%1",
            "%d : int = prim::Constant[value=2]()\n%2 : Tensor = aten::add(%x, %y, %d)\n%2",
        ),
        (
            "%c : int = prim::Constant[value=1]()\n%1 : Tensor = aten::add(%x, %c, %c)\n%1",
            "%d : float = prim::Constant[value=1.]()\n%e : int = prim::Constant[value=1]()\n"
            "%2 : Tensor = aten::add(%x, %d, %e)\n%2",
        ),
    ],
    ids=[
        "values",
        "operands",
        "operators",
        "writes",
        "a write on one side",
        "random",
        "numbers",
        "types of numbers",
    ],
)
def test_left_alone(one: str, other: str) -> None:
    unchanged("merge_branches", case(one, other))


def test_a_list_that_is_appended_to() -> None:
    text = case(
        "%l : Tensor[] = prim::ListConstruct(%x, %y)\n"
        "%1 : Tensor = aten::einsum(%eq, %l, %none)\n%1",
        "%2 : Tensor = aten::einsum(%eq, %k, %none)\n%2",
        "%k : Tensor[] = prim::ListConstruct(%x, %y)",
        "%a : Tensor[] = aten::append(%k, %x)",
    )
    unchanged("merge_branches", text)
