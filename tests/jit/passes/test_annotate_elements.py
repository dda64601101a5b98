"""annotate_elements: lists and dictionaries whose type their elements do not tell."""

from __future__ import annotations

import pytest

from .ir import check, operators, unchanged


def test_a_list() -> None:
    check(
        "annotate_elements",
        """
graph(%x : Tensor, %y : Tensor):
  # CHECK: [[A:%[0-9]+]] : (Tensor, Tensor) = prim::TupleConstruct(%x
  # CHECK: [[B:%[0-9]+]] : (Tensor, Tensor?) = prim::unchecked_cast([[A]])
  # CHECK: (Tensor, Tensor?)[] = prim::ListConstruct([[B]])
  %1 : (Tensor, Tensor) = prim::TupleConstruct(%x, %y)
  %2 : (Tensor, Tensor?)[] = prim::ListConstruct(%1)
  return (%2)
""",
    )


def test_a_dictionary_of_tuples_in_tuples() -> None:
    check(
        "annotate_elements",
        """
graph(%x : Tensor):
  # CHECK: [[C:%[0-9]+]] : (Tensor, (Tensor, Tensor?)) = prim::unchecked_cast(
  # CHECK: prim::DictConstruct({{%[0-9]+}}, [[C]])
  %key : str = prim::Constant[value="a"]()
  %1 : (Tensor, Tensor) = prim::TupleConstruct(%x, %x)
  %2 : (Tensor, (Tensor, Tensor)) = prim::TupleConstruct(%x, %1)
  %3 : Dict(str, (Tensor, (Tensor, Tensor?))) = prim::DictConstruct(%key, %2)
  return (%3)
""",
    )


def test_a_constant() -> None:
    graph = check(
        "annotate_elements",
        """
graph(%x : Tensor):
  # CHECK: [[L:%[0-9]+]] : (Tensor?, int)[] = prim::Constant
  # CHECK: [[C:%[0-9]+]] : (Tensor?, int)[] = prim::unchecked_cast([[L]])
  # CHECK: return ([[C]])
  %1 : (Tensor?, int)[] = prim::Constant[value=[]]()
  return (%1)
""",
    )
    assert operators(graph) == ["prim::unchecked_cast"]


@pytest.mark.parametrize("element", ["Tensor", "Tensor?", "int[]", "Dict(str, int)"])
def test_types_that_a_file_has_stay(element: str) -> None:
    unchanged(
        "annotate_elements",
        f"""
graph(%x : {element}):
  %1 : {element}[] = prim::ListConstruct(%x)
  return (%1)
""",
    )


def test_tuples_without_optionals_stay() -> None:
    unchanged(
        "annotate_elements",
        """
graph(%x : Tensor):
  %1 : (Tensor, Tensor) = prim::TupleConstruct(%x, %x)
  %2 : (Tensor, Tensor)[] = prim::ListConstruct(%1)
  return (%2)
""",
    )
