"""write_activations: an activation in place makes a new tensor where nobody observes it."""

from __future__ import annotations

import pytest
import torch

from .ir import check, parse, unchanged, values_of

BF16 = "BFloat16(2, 4, device=cpu)"


def case(*lines: str, x: str = BF16) -> str:
    body = "".join(f"      {line}\n" for line in lines)
    return f"""
    graph(%x : {x}):
      %0 : int = prim::Constant[value=0]()
      %1 : int = prim::Constant[value=1]()
      %a : Tensor = aten::neg(%x)
{body}"""


@pytest.mark.parametrize("name", ["relu", "relu6", "sigmoid", "tanh", "hardswish", "abs"])
def test_before_what_is_not_observed(name: str) -> None:
    text = case(
        f"# CHECK: aten::{name}(",
        f"%y : Tensor = aten::{name}_(%a)",
        "%z : Tensor = aten::select(%y, %0, %1)",
        "return (%z)",
    )
    graph = check("write_activations", text)
    assert f"aten::{name}_" not in str(graph)
    x = torch.randn(2, 4).bfloat16()
    assert torch.equal(values_of(graph, x)[0], values_of(parse(text), x)[0])


def test_before_a_tuple() -> None:
    text = case(
        "# CHECK: aten::relu(",
        "%y : Tensor = aten::relu_(%a)",
        "%t : (Tensor, int) = prim::TupleConstruct(%y, %0)",
        "return (%t)",
    )
    check("write_activations", text)


@pytest.mark.parametrize(
    "lines",
    [
        # Its operand is observed, by oneDNN's fusion and by PyTorch's other one.
        ("%y : Tensor = aten::relu_(%a)", "%z : Tensor = aten::mm(%y, %y)", "return (%z)"),
        ("%y : Tensor = aten::relu_(%a)", "%z : Tensor = aten::neg(%y)", "return (%z)"),
        ("%y : Tensor = aten::relu_(%a)", "%n : int = aten::dim(%y)", "return (%y, %n)"),
        # Others see what is written.
        ("%y : Tensor = aten::relu_(%x)", "return (%y)"),
        ("%v : Tensor = aten::t(%a)", "%y : Tensor = aten::relu_(%a)", "return (%y, %v)"),
        # Not taken by the fusion.
        ("%y : Tensor = aten::celu_(%a, %1)", "return (%y)"),
        # In place already no more.
        ("%y : Tensor = aten::relu(%a)", "return (%y)"),
        (
            '%m : str = prim::Constant[value="no"]()',
            "%n : NoneType = prim::Constant()",
            "prim::RaiseException(%m, %n)",
            "return (%a)",
        ),
    ],
    ids=["product", "negated", "dim", "input", "view", "celu", "new tensor", "no result"],
)
def test_stays(lines: tuple[str, ...]) -> None:
    unchanged("write_activations", case(*lines))


@pytest.mark.parametrize("x", ["Tensor", "Long(2, 4, device=cpu)", "BFloat16(2, 4, device=cuda:0)"])
def test_only_of_floating_point_on_a_cpu(x: str) -> None:
    lines = ("%y : Tensor = aten::relu_(%a)", "%z : Tensor = aten::select(%y, %0, %1)")
    unchanged("write_activations", case(*lines, "return (%z)", x=x))
