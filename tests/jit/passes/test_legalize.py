"""legalize: stock operators for the dialect's; what the facts know is not asked at run time."""

from __future__ import annotations

import pytest
import torch

import jit_amp
from jit_amp import _C

from ..support import operators_of_ours
from . import ir
from .ir import TENSOR

FLOAT = "Float(*, *, device=cpu)"
BFLOAT16 = "BFloat16(*, *, device=cpu)"


def legalized(text: str, *tensors: torch.Tensor) -> torch._C.Graph:
    """The graph after the pass, which always says that it changes it; verified to be stock."""
    graph = ir.parse(text, *tensors)
    assert _C.run_pass("legalize", graph, {}, True)
    assert {*operators_of_ours(graph)} <= {"jit_amp::carried"}
    return graph


def cast(tensor: str, targets: str = "%bf, %none", more: str = "", result: str = "%c") -> str:
    return f"""
    graph(%x : {tensor}):
      %none : NoneType = prim::Constant()
      %bf : int = jit_amp::deferred[value=15]()
      %half : int = jit_amp::deferred[value=5]()
      %float : int = prim::Constant[value=6]()
      %c : Tensor = jit_amp::cast(%x, {targets})
      {more}
      return ({result})
    """


def count(graph: torch._C.Graph, kind: str) -> int:
    return sum(node.kind() == kind for node in ir.nodes_of(graph))


@pytest.mark.parametrize(
    ("tensor", "targets"),
    [(FLOAT, "%bf, %none"), (FLOAT, "%bf, %half"), ("Half(*, device=cpu)", "%bf, %none")],
)
def test_decided(tensor: str, targets: str) -> None:
    """It is sure to be cast: one `aten::to`."""
    graph = legalized(cast(tensor, targets))
    [to] = [node for node in ir.nodes_of(graph) if node.kind() == "aten::to"]
    assert to.inputsAt(1).toIValue() == 15
    assert next(graph.outputs()).node() == to


def test_decided_by_the_device() -> None:
    """CUDA's target for what is there."""
    graph = legalized(cast("Float(*, device=cuda:0)", "%bf, %half"))
    [to] = [node for node in ir.nodes_of(graph) if node.kind() == "aten::to"]
    assert to.inputsAt(1).toIValue() == 5


@pytest.mark.parametrize(
    ("tensor", "targets"),
    [
        (BFLOAT16, "%bf, %none"),  # has the dtype
        (FLOAT, "%none, %bf"),  # for another device
        ("Float(*, device=cuda:0)", "%bf, %none"),
        ("Double(*, device=cpu)", "%bf, %none"),  # autocast leaves float64 alone,
        ("Long(*, device=cpu)", "%bf, %bf"),  # and what is not of floating point,
        ("Bool(*)", "%bf, %bf"),  # wherever it is
        ("ComplexFloat(*)", "%bf, %bf"),
        ("BFloat16(*)", "%bf, %bf"),
        ("Tensor", "%none, %none"),
    ],
)
def test_idle(tensor: str, targets: str) -> None:
    """It leaves everything as it is: nothing is left of it."""
    graph = legalized(cast(tensor, targets))
    assert count(graph, "aten::to") == 0
    assert next(graph.outputs()).debugName() == next(graph.inputs()).debugName()


@pytest.mark.parametrize("tensor", ["Tensor", "Float(*)"])
def test_undecided(tensor: str) -> None:
    """The dtype or device is known at run time only: there it is asked for."""
    graph = legalized(cast(tensor))
    assert count(graph, "prim::If") >= 2
    x = torch.ones(2)
    assert ir.values_of(graph, x)[0].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (torch.float32, torch.bfloat16),
        (torch.float16, torch.bfloat16),
        (torch.bfloat16, torch.bfloat16),
        (torch.float64, torch.float64),
        (torch.int64, torch.int64),
        (torch.complex64, torch.complex64),
    ],
)
def test_what_is_asked(given: torch.dtype, dtype: torch.dtype) -> None:
    """A cast that is not decided does at run time what autocast's does."""
    graph = legalized(cast("Tensor"))
    assert ir.values_of(graph, torch.ones(2, dtype=given))[0].dtype == dtype


def test_optional() -> None:
    """None stays None."""
    graph = legalized("""
    graph(%x : Tensor?):
      %none : NoneType = prim::Constant()
      %bf : int = jit_amp::deferred[value=15]()
      %c : Tensor? = jit_amp::cast(%x, %bf, %none)
      return (%c)
    """)
    assert ir.values_of(graph, None) == (None,)
    assert ir.values_of(graph, torch.ones(2))[0].dtype == torch.bfloat16


DENSE = "aten::relu(%x)"
ROUND = """
    graph(%x : {tensor}):
      %none : NoneType = prim::Constant()
      %no : bool = prim::Constant[value=0]()
      %bf : int = jit_amp::deferred[value=15]()
      %half : int = jit_amp::deferred[value=5]()
      %float : int = jit_amp::deferred[value=6]()
      %there : int = prim::Constant[value={there}]()
      %two : int = prim::Constant[value=2]()
      %sizes : int[] = prim::Constant[value=[3, 2, 2]]()
      %rate : float = prim::Constant[value=0.5]()
      %made : Tensor = {made}
      %a : Tensor = aten::to(%made, %there, %no, %no, %none)
      {between}
      %d : Tensor = jit_amp::cast(%a, {back}, %none)
      return (%d)
"""


@pytest.mark.parametrize(("tensor", "back"), [(BFLOAT16, "%bf"), ("Half(*, device=cpu)", "%half")])
def test_round_trip(tensor: str, back: str) -> None:
    """What was widened is what it was: bfloat16, float32, bfloat16."""
    text = ROUND.format(tensor=tensor, made=DENSE, there=6, between="", back=back)
    assert next(legalized(text).outputs()).node().kind() == "aten::relu"


def test_round_trip_of_what_may_be_its_operand() -> None:
    text = ROUND.replace("to(%made,", "to(%kept,").replace(
        "%a :", "%kept : Tensor = aten::dropout(%made, %rate, %no)\n      %a :"
    )
    graph = legalized(text.format(tensor=BFLOAT16, made=DENSE, there=6, between="", back="%bf"))
    assert next(graph.outputs()).node().kind() == "aten::dropout"


@pytest.mark.parametrize(
    "made",
    [
        "aten::alias(%x)",  # what a caller gives may have any strides
        "aten::expand(%x, %sizes, %no)",  # each element several times
        "aten::slice(%x, %two, %none, %none, %two)",  # with gaps
        "aten::dropout(%x, %rate, %no)",  # x itself
        "aten::type_as(%x, %x)",
    ],
)
def test_no_round_trip_of_what_has_other_strides(made: str) -> None:
    """Widening gives it strides of its own, and by these a kernel is chosen."""
    graph = legalized(ROUND.format(tensor=BFLOAT16, made=made, there=6, between="", back="%bf"))
    assert count(graph, "aten::to") == 2


@pytest.mark.parametrize(
    ("tensor", "there", "back", "between"),
    [
        ("Half(*, device=cpu)", 6, "%bf", ""),  # comes back as another dtype
        (BFLOAT16, 6, "%half", ""),
        (FLOAT, 15, "%float", ""),  # the other way: that rounds
        (FLOAT, 5, "%float", ""),
        ("BFloat16(*)", 6, "%bf", ""),  # may be on a device where it is not cast
        ("Tensor", 6, "%bf", ""),  # may have been anything
        (BFLOAT16, 6, "%bf", "%w : Tensor = aten::relu_(%a)"),  # written to in between
        (BFLOAT16, 6, "%bf", "%w : Tensor = aten::relu_(%made)"),
    ],
)
def test_no_round_trip(tensor: str, there: int, back: str, between: str) -> None:
    """The cast back stays."""
    text = ROUND.format(tensor=tensor, made=DENSE, there=there, between=between, back=back)
    graph = legalized(text)
    assert next(graph.outputs()).node().kind() != "aten::relu"
    assert count(graph, "aten::to") >= 2


def test_constant_and_its_part() -> None:
    """A weight that is read in parts is cast once, whole: it is held once."""
    graph = legalized(
        f"""
    graph(%x : Tensor):
      %none : NoneType = prim::Constant()
      %zero : int = prim::Constant[value=0]()
      %bf : int = jit_amp::deferred[value=15]()
      %w : {TENSOR}
      %p : Tensor = aten::select(%w, %zero, %zero)
      %c : Tensor = jit_amp::cast(%w, %bf, %none)
      %d : Tensor = jit_amp::cast(%p, %bf, %none)
      return (%c, %d)
    """,
        torch.ones(2, 2),
    )
    assert count(graph, "aten::to") == 1
    whole, part = ir.values_of(graph, torch.ones(1))
    assert (whole.dtype, part.dtype, part.shape) == (torch.bfloat16, torch.bfloat16, (2,))


PART = f"""
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %no : bool = prim::Constant[value=0]()
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %bf : int = jit_amp::deferred[value=15]()
  %half : int[] = prim::Constant[value=[2, 2]]()
  %wide : int[] = prim::Constant[value=[3, 4, 2]]()
  %strides : int[] = prim::Constant[value=[1, 2]]()
  %rows : int[] = prim::Constant[value=[2, 1]]()
  %w : {TENSOR}
  MORE
  %c : Tensor = jit_amp::cast(%p, %bf, %none)
  return (%c)
"""


def part(more: str) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """The cast of a part of a constant, as eager's and as the pass's; whether it is a view of a
    cast of the whole."""
    weight = torch.arange(8.0).view(4, 2)
    text = PART.replace("MORE", more.replace("\n", "\n  "))
    plain = ir.parse(
        text.replace("jit_amp::cast(%p, %bf, %none)", "aten::alias(%p)").replace(
            "jit_amp::deferred", "prim::Constant"
        ),
        weight.clone(),
    )
    [wanted] = ir.values_of(plain, torch.ones(1))
    graph = legalized(text, weight.clone())
    [found] = ir.values_of(graph, torch.ones(1))
    return wanted.to(torch.bfloat16), found, next(graph.outputs()).node().kind() != "aten::to"


@pytest.mark.parametrize(
    ("more", "is_view"),
    [
        ("%p : Tensor = aten::select(%w, %zero, %one)", True),
        ("%p : Tensor = aten::slice(%w, %zero, %one, %none, %one)", True),
        ("%p : Tensor = aten::t(%w)", True),
        ("%p : Tensor = aten::unsqueeze(%w, %zero)", True),
        ("%l : Tensor[] = aten::split(%w, %two, %zero)\n"
         "%p : Tensor = aten::__getitem__(%l, %one)", True),
        ("%p : Tensor = aten::as_strided(%w, %half, %rows, %two)", True),
        # Eager's cast of these has other strides than a part of the whole's cast.
        ("%p : Tensor = aten::expand(%w, %wide, %no)", False),
        ("%p : Tensor = aten::select(%w, %one, %one)", False),
        ("%p : Tensor = aten::slice(%w, %one, %one, %none, %one)", False),
        ("%p : Tensor = aten::slice(%w, %zero, %zero, %none, %two)", False),
        ("%t : Tensor = aten::t(%w)\n%p : Tensor = aten::select(%t, %zero, %one)", False),
        ("%p : Tensor = aten::as_strided(%w, %half, %strides, %two)", False),
        # Written to before the cast.
        ("%r : Tensor = aten::add_(%w, %one, %one)\n%p : Tensor = aten::alias(%w)", False),
        ("%p : Tensor = aten::select(%w, %zero, %one)\n%r : Tensor = aten::add_(%w, %one, %one)",
         False),
        ("%n : int[] = prim::ListConstruct(%one)\n%l : int[] = aten::append(%n, %zero)\n"
         "%p : Tensor = aten::permute(%w, %n)", False),
    ],
)  # fmt: skip
def test_part_of_a_constant(more: str, is_view: bool) -> None:
    """Values and strides are those of a cast of the part."""
    wanted, found, found_view = part(more)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert (found.stride(), found.dtype) == (wanted.stride(), wanted.dtype)
    assert found_view == is_view


def test_a_constant_that_is_written_to() -> None:
    """It is cast as it is after the write."""
    wanted, found, _ = part(
        "%r : Tensor = aten::add_(%w, %one, %one)\n%p : Tensor = aten::detach(%w)"
    )
    assert torch.equal(wanted, found)
    text = PART.replace("MORE", "%r : Tensor = aten::add_(%w, %one, %one)").replace("%p", "%w")
    [found] = ir.values_of(legalized(text, torch.zeros(4, 2)), torch.ones(1))
    assert found.tolist() == [[1.0, 1.0]] * 4


def test_a_cast_keeps_its_line() -> None:
    """An artefact's errors tell where they come from."""
    lines = []
    for kind in ("jit_amp::cast", "aten::to"):
        graph = ir.parse(cast(FLOAT))
        if kind == "aten::to":
            _C.run_pass("legalize", graph, {}, True)
        [node] = [node for node in ir.nodes_of(graph) if node.kind() == kind]
        lines.append(node.sourceRange())
    assert lines[0] and lines[0] == lines[1]


def test_list_made_here() -> None:
    """Element by element: one is cast, one is not."""
    graph = legalized("""
    graph(%x : Float(*, device=cpu), %z : Long(*, device=cpu)):
      %none : NoneType = prim::Constant()
      %zero : int = prim::Constant[value=0]()
      %bf : int = jit_amp::deferred[value=15]()
      %l : Tensor[] = prim::ListConstruct(%x, %z)
      %c : Tensor[] = jit_amp::cast(%l, %bf, %none)
      return (%c)
    """)
    assert count(graph, "aten::to") == 1
    assert count(graph, "prim::Loop") == 0


def test_list_that_is_given() -> None:
    """Its length is not known: a loop."""
    graph = legalized("""
    graph(%l : Tensor[]):
      %none : NoneType = prim::Constant()
      %bf : int = jit_amp::deferred[value=15]()
      %c : Tensor[] = jit_amp::cast(%l, %bf, %none)
      return (%c)
    """)
    [out] = ir.values_of(graph, [torch.ones(1), torch.ones(1, dtype=torch.int64)])
    assert [each.dtype for each in out] == [torch.bfloat16, torch.int64]


WIDEST = """
graph(%x : {x}, %z : {z}):
  %none : NoneType = prim::Constant()
  %cpu : str = prim::Constant[value="cpu"]()
  %bf : int = jit_amp::deferred[value=15]()
  %l : Tensor[] = prim::ListConstruct(%x, %z)
  %w : int? = jit_amp::widest(%l, %bf, %cpu)
  return (%w)
"""


@pytest.mark.parametrize(
    ("x", "z", "dtype"),
    [
        (FLOAT, BFLOAT16, 6),
        (BFLOAT16, BFLOAT16, 15),
        (BFLOAT16, "Double(*, device=cpu)", 15),  # float64 is not looked at
        (BFLOAT16, "Float(*, device=cuda:0)", 15),  # nor what is elsewhere
    ],
)
def test_widest_known(x: str, z: str, dtype: int) -> None:
    """A constant."""
    graph = legalized(WIDEST.format(x=x, z=z))
    assert next(graph.outputs()).toIValue() == dtype


def test_widest_unknown() -> None:
    """Asked of each, at run time."""
    graph = legalized(WIDEST.format(x="Tensor", z=BFLOAT16))
    assert next(graph.outputs()).node().kind() != "prim::Constant"


SCOPED = """
graph(%x : {tensor}):
  %on : bool = prim::Constant[value=1]()
  %off : bool = prim::Constant[value=0]()
  %bf : int = jit_amp::deferred[value=15]()
  %y : Tensor = jit_amp::scoped[devices="{devices}"]({state}, %x)
  return (%y)
with graph(%x : Tensor):
  %y : Tensor = {call}
  return (%y)
"""


@pytest.mark.parametrize(
    ("tensor", "devices", "state", "call"),
    [
        ("Float(*, device=cuda:0)", "cpu", "%on, %bf", "aten::matrix_exp(%x)"),
        ("Float(*, device=cpu)", "cuda", "%on, %bf", "aten::matrix_exp(%x)"),
        ("Tensor", "cpu", "%off, %bf", "aten::matrix_exp(%x)"),  # a scope that is off
        ("Tensor", "cpu", "%on, %bf", "aten::relu(%x)"),  # nothing to an operator like this
    ],
)
def test_free_of_its_scope(tensor: str, devices: str, state: str, call: str) -> None:
    """The node stands by itself where the scope cannot matter to it."""
    graph = legalized(SCOPED.format(tensor=tensor, devices=devices, state=state, call=call))
    assert next(graph.outputs()).node().kind() == call[: call.index("(")]


@pytest.mark.parametrize("tensor", ["Float(*, device=cpu)", "Float(*)", "Tensor"])
def test_refused(tensor: str) -> None:
    """What autocast does to it has no stock operators, or is known at run time only."""
    text = SCOPED.format(
        tensor=tensor, devices="cpu", state="%on, %bf", call="aten::matrix_exp(%x)"
    )
    graph = ir.parse(text)
    with pytest.raises(jit_amp.AutocastError, match="`aten::matrix_exp` inside an autocast scope"):
        _C.run_pass("legalize", graph, {}, True)


def test_input_check() -> None:
    """What the facts take for granted, the artefact asks at its beginning."""
    graph = legalized(cast("Float(*, device=cpu)"))
    assert ir.values_of(graph, torch.ones(2))[0].dtype == torch.bfloat16
    for wrong in (torch.ones(2, dtype=torch.float64), torch.ones(())):
        with pytest.raises(
            torch.jit.Error, match="expected float32 on cpu, with dimensions, got float"
        ):
            ir.values_of(graph, wrong)


@pytest.mark.parametrize(
    "text",
    [
        "graph(%x : Tensor):\n  %y : Tensor = aten::mm(%x, %x)\n  return (%y)",
        # The author's own cast, and marks.
        """
        graph(%x : Tensor, %n : int):
          %yes : bool = prim::Constant[value=1]()
          %none : NoneType = prim::Constant()
          %to : int = prim::Constant[value=15]()
          %y : Tensor = prim::Loop(%n, %yes, %x)
            block0(%i : int, %a : Tensor):
              %b : Tensor = jit_amp::carried(%a)
              %z : Tensor = aten::to(%b, %to, %yes, %yes, %none)
              -> (%yes, %z)
          %r : Tensor = jit_amp::carried(%y)
          return (%r)
        """,
    ],
    ids=["stock", "marks"],
)
def test_nothing_to_seal(text: str) -> None:
    """Stock operators stay, and nothing is checked of which nothing is taken for granted."""
    ir.kept("legalize", text)


def test_float64_on_one_way_is_asked_about() -> None:
    """What is float32 or float64 is cast or not: a plain `aten::to` would round the float64."""
    text = f"""
    graph(%x : {FLOAT}, %wide : Double(*, *, device=cpu), %which : bool):
      %none : NoneType = prim::Constant()
      %bf : int = jit_amp::deferred[value=15]()
      %y : Tensor = prim::If(%which)
        block0():
          -> (%x)
        block1():
          -> (%wide)
      %c : Tensor = jit_amp::cast(%y, %bf, %none)
      return (%c)
    """
    graph = legalized(text)
    x, wide = torch.rand(2, 2), torch.rand(2, 2, dtype=torch.float64)
    for which, dtype in ((True, torch.bfloat16), (False, torch.float64)):
        [result] = ir.values_of(graph, x, wide, which)
        assert result.dtype is dtype
