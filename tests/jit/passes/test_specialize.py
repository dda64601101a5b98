"""specialize: a definition with what is known where it is to stand."""

from __future__ import annotations

import torch

from jit_amp import _C

from .ir import nodes_of, operators, parse, values_of

SOURCE = """
def twice(x: Tensor, n: int) -> Tensor:
    return x * n

def several(xs: List[Tensor], n: int, often: bool) -> Tensor:
    total = xs[0]
    for i in range(n):
        if often:
            total = total + twice(xs[i], i)
    return total

def lowered(x: Tensor) -> Tensor:
    return x

def cast(x: Tensor, n: int) -> Tensor:
    return lowered(x) + n

def outside_product(x: Tensor) -> Tensor:
    return x @ x

def marked(x: Tensor, n: int) -> Tensor:
    return outside_product(x) + n
"""


def specialized(operands: str, name: str, body: str = "") -> torch._C.Graph:
    return _C.specialized(
        parse(
            f"""
        graph(%x : Tensor, %y : Tensor, %m : int):
          %n : int = prim::Constant[value=2]()
          %yes : bool = prim::Constant[value=1]()
          {body}
          %z : Any = prim::TupleConstruct({operands})
          return (%z)
    """
        ),
        SOURCE,
        name,
    )


LIST = "%xs : Tensor[] = prim::ListConstruct(%x, %y)"


def test_loops_of_known_length_and_branches_are_gone() -> None:
    graph = specialized("%xs, %n, %yes", "several", LIST)
    assert not {"prim::Loop", "prim::If", "prim::CallFunction"} & set(operators(graph))
    assert operators(graph).count("aten::mul") == 2


def test_what_is_not_known_stays() -> None:
    assert "prim::Loop" in operators(specialized("%xs, %m, %yes", "several", LIST))


def test_a_list_that_is_written_to_is_not_taken_apart() -> None:
    written = LIST + "\n          %l : Tensor[] = aten::append(%xs, %x)"
    assert "prim::Loop" not in operators(specialized("%xs, %n, %yes", "several", written))
    elements = "aten::__getitem__"
    assert elements in operators(specialized("%xs, %n, %yes", "several", written))
    assert elements not in operators(specialized("%xs, %n, %yes", "several", LIST))


def test_what_is_lowered_is_what_the_caller_gives() -> None:
    graph = specialized("%x, %n", "cast")
    assert operators(graph) == ["aten::add"]
    assert torch.equal(values_of(graph, torch.ones(2), 2)[0], torch.full((2,), 3.0))


def test_what_is_outside_is_marked() -> None:
    marks = {n.kind(): n.hasAttribute("outside") for n in nodes_of(specialized("%x, %n", "marked"))}
    assert marks["aten::matmul"]
    assert not marks["aten::add"]
