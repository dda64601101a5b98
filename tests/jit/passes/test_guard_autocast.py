"""guard_autocast: which graphs begin with a check of the autocast around, and for which devices.

What it does when it runs: tests/jit/deploy/test_guard_autocast.py.
"""

from __future__ import annotations

import pytest
import torch

from .ir import check, operators, unchanged

ON_CPU = "Float(2, strides=[1], requires_grad=0, device=cpu)"
PROGRAM = """
graph(%self : int, %x : {type}):
  %y : Tensor = aten::{operator}(%x)
  return (%y)
"""
MATMUL = """
graph(%self : int, %x : {type}):
  %y : Tensor = aten::matmul(%x, %x)
  return (%y)
"""


def test_one_check_for_the_cpu() -> None:
    graph = check("guard_autocast", MATMUL.format(type=ON_CPU))
    assert operators(graph)[:5] == [
        "prim::ListConstruct",
        "aten::expand",
        "aten::prod",
        "prim::dtype",
        "aten::ne",
    ]
    assert operators(graph)[-1] == "aten::matmul"
    assert operators(graph).count("aten::prod") == 1


def test_an_input_of_which_nothing_is_known_may_be_on_an_accelerator() -> None:
    """It is asked where it is, and nothing more where it is on the CPU."""
    graph = check("guard_autocast", MATMUL.format(type="Tensor"))
    assert operators(graph).count("aten::prod") == 2
    assert "prim::is_cpu" in operators(graph)


@pytest.mark.parametrize(
    "text",
    [
        PROGRAM.format(type="Tensor", operator="relu"),
        PROGRAM.format(type=ON_CPU, operator="relu"),
        """
graph(%self : int, %n : int):
  %y : int = aten::add(%n, %n)
  return (%y)
""",
    ],
)
def test_what_autocast_does_not_concern_stays(text: str) -> None:
    unchanged("guard_autocast", text)


@pytest.mark.parametrize("operator", ["exp", "log"])
def test_what_is_in_cudas_list_alone_is_concerned(operator: str) -> None:
    """PyTorch's pass takes that list for the CPU, too."""
    text = PROGRAM.format(type=ON_CPU, operator=operator)
    assert "aten::prod" in operators(check("guard_autocast", text))


def test_in_a_branch() -> None:
    check(
        "guard_autocast",
        f"""
graph(%self : int, %c : bool, %x : {ON_CPU}):
  %y : Tensor = prim::If(%c)
    block0():
      %1 : Tensor = aten::matmul(%x, %x)
      -> (%1)
    block1():
      -> (%x)
  return (%y)
""",
    )


def test_questions_are_answered() -> None:
    check(
        "guard_autocast",
        """
graph(%self : int):
  # CHECK-NOT: aten::is_autocast
  # CHECK: return
  %a : bool = aten::is_autocast_enabled()
  %b : bool = aten::is_autocast_cpu_enabled()
  return (%a, %b)
""",
    )


def test_nothing_that_computes_constants_takes_it_away() -> None:
    graph = check("guard_autocast", MATMUL.format(type=ON_CPU))
    torch._C._jit_pass_constant_propagation(graph)
    torch._C._jit_pass_remove_mutation(graph)
    torch._C._jit_pass_constant_propagation(graph)
    torch._C._jit_pass_peephole(graph)
    torch._C._jit_pass_dce(graph)
    assert "aten::prod" in operators(graph)


def test_pytorchs_executor_takes_it_away() -> None:
    x = torch.ones(2)
    graph = check("guard_autocast", MATMUL.format(type=ON_CPU))
    function = torch._C._create_function_from_graph("case", graph)
    for _ in range(3):
        assert torch.equal(function(1, x), x @ x)
        run = torch.jit.last_executed_optimized_graph()
        assert "aten::prod" not in operators(run)
