"""write_queries: what only jit_amp's process could ask, asked with PyTorch's operators."""

from __future__ import annotations

import pytest

from .ir import check, unchanged


@pytest.mark.parametrize(
    ("question", "stock"),
    [
        ("aten::is_autocast_enabled(%cpu)", "aten::is_autocast_cpu_enabled()"),
        ("aten::is_autocast_enabled(%cuda)", "aten::is_autocast_enabled()"),
    ],
)
def test_a_question(question: str, stock: str) -> None:
    check(
        "write_queries",
        f"""
graph():
  %cpu : str = prim::Constant[value="cpu"]()
  %cuda : str = prim::Constant[value="cuda"]()
  # CHECK: bool = {stock}
  %r : bool = {question}
  return (%r)
""",
    )


def test_a_device_that_is_not_known() -> None:
    """It is one question of each device, and what no answer is known of is refused at the end."""
    check(
        "write_queries",
        """
graph(%name : str):
  # CHECK: bool = aten::eq(%name
  # CHECK: bool = aten::is_autocast_cpu_enabled()
  # CHECK: bool = aten::is_autocast_enabled()
  # CHECK: prim::RaiseException
  %r : bool = aten::is_autocast_enabled(%name)
  return (%r)
""",
    )


def test_stock_questions_stay() -> None:
    unchanged(
        "write_queries",
        """
graph():
  %cpu : str = prim::Constant[value="cpu"]()
  %a : bool = aten::is_autocast_enabled()
  %b : bool = aten::is_autocast_cpu_enabled()
  %c : int = aten::get_autocast_dtype(%cpu)
  return (%a, %b, %c)
""",
    )
