"""verify: what a graph of each phase may hold. Each rule is broken once, and just not broken."""

from __future__ import annotations

import pytest
import torch

from jit_amp import _C

from . import ir

PHASES = ["source", "inlined", "flat", "lowered", "runnable"]
PHASES += ["freezable", "decided", "legalized", "stock"]
MARKED = ["flat", "lowered", "decided", "legalized"]
LOWERED = ["lowered", "runnable", "freezable", "decided"]

# An operator of the dialect, and the phases that may have it.
DIALECT = {
    "%y : Tensor = jit_amp::cast(%x, %n, %n)": LOWERED,
    "%y : int? = jit_amp::widest(%l, %n, %s)": LOWERED,
    "%y : int? = jit_amp::opt_dtype(%x, %n, %c)": LOWERED,
    "jit_amp::known_device(%s)": LOWERED,
    "%y : int = jit_amp::deferred[value=15]()": LOWERED,
    "jit_amp::unchanged(%x, %x, %s)": ["source", "inlined", "flat", *LOWERED],
    # Of the calling thread, which an artefact has nothing of.
    "%y : int = jit_amp::ambient_dtype(%s)": ["lowered", "runnable"],
    "jit_amp::block_done()": ["lowered", "runnable"],
    "%y : Tensor = jit_amp::carried(%x)": MARKED,
    # What tracing records is gone before.
    "jit_amp::enter()": [],
    "jit_amp::exit()": [],
}


def holds(graph: torch._C.Graph) -> list[str]:
    """The phases that the graph may be in; a fault has the phase and the operator in it."""
    found = []
    for phase in PHASES:
        try:
            _C.verify(graph, phase)
        except RuntimeError as error:
            assert f"should be {phase} has" in str(error)
        else:
            found.append(phase)
    return found


@pytest.mark.parametrize(("node", "phases"), DIALECT.items())
def test_dialect(node: str, phases: list[str]) -> None:
    """Each operator of ours in its phases, and in no other."""
    graph = ir.parse(
        f"""
        graph(%x : Tensor, %l : Tensor[], %n : int?, %s : str, %c : bool):
          {node}
          return (%x)
        """
    )
    assert sorted(holds(graph)) == sorted(phases)


@pytest.mark.parametrize("kind", ["scoped", "scoped_effect"])
def test_opaque(kind: str) -> None:
    """What runs under the dispatcher's autocast, too."""
    graph = ir.parse(f"""
graph(%x : Tensor, %c : bool, %n : int):
  %y : Tensor = jit_amp::{kind}[devices="cpu"](%c, %n, %x)
  return (%y)
with graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  return (%y)
""")
    assert holds(graph) == LOWERED


@pytest.mark.parametrize(
    "around",
    [
        "prim::If(%c)\n    block0():\n      NODE\n      -> ()\n    block1():\n      -> ()",
        "prim::Loop(%n, %c)\n    block0(%i : int):\n      NODE\n      -> (%c)",
    ],
    ids=["branch", "loop"],
)
def test_in_blocks(around: str) -> None:
    """Nodes of blocks are nodes of the graph."""
    node = "%y : Tensor = jit_amp::cast(%x, %n, %n)"
    text = f"\ngraph(%x : Tensor, %n : int, %c : bool):\n  {around}\n  return (%x)\n"
    assert holds(ir.parse(text.replace("NODE", node))) == LOWERED


def test_in_a_task() -> None:
    """And so are a task's."""
    graph = ir.parse("""
graph(%x : Tensor):
  %f : Future(Tensor) = prim::fork(%x)
  %r : Tensor = aten::wait(%f)
  return (%r)
with graph(%x : Tensor):
  %n : NoneType = prim::Constant()
  %y : Tensor = jit_amp::cast(%x, %n, %n)
  return (%y)
""")
    assert holds(graph) == LOWERED


LOOP = """
graph(%x : Tensor, %n : int):
  %yes : bool = prim::Constant[value=1]()
  %y : Tensor = prim::Loop(%n, %yes, %x)
    block0(%i : int, %a : Tensor):
      {carried}
      %z : Tensor = aten::relu({inside})
      -> (%yes, %z)
  {given}
  return ({result})
"""
INSIDE = "%b : Tensor = jit_amp::carried(%a)"
AFTER = "%r : Tensor = jit_amp::carried(%y)"


@pytest.mark.parametrize(
    ("carried", "inside", "given", "result", "is_marked"),
    [
        (INSIDE, "%b", AFTER, "%r", True),
        ("", "%a", AFTER, "%r", False),  # what goes into an iteration,
        (INSIDE, "%b", "", "%y", False),  # and what comes out
        (INSIDE, "%a", AFTER, "%r", False),  # each use of it
        ("", "%x", "", "%x", None),  # nobody uses what is carried: either
    ],
)
def test_loops(carried: str, inside: str, given: str, result: str, is_marked: bool | None) -> None:
    """Where loops are marked, all of them are; where they are not, there are no marks."""
    text = LOOP.format(carried=carried, inside=inside, given=given, result=result)
    found = holds(ir.parse(text))
    rest = [phase for phase in PHASES if phase not in MARKED]
    if is_marked is None:
        assert found == PHASES
    elif is_marked:
        assert found == MARKED
    else:
        assert not set(found) & set(MARKED)
        assert carried or given or found == rest


def test_numbers_need_no_marks() -> None:
    """They cannot be written to."""
    graph = ir.parse("""
graph(%n : int, %s : str, %c : bool):
  %y : int, %t : str = prim::Loop(%n, %c, %n, %s)
    block0(%i : int, %a : int, %b : str):
      %z : int = aten::add(%a, %i)
      -> (%c, %z, %b)
  return (%y, %t)
""")
    assert holds(graph) == PHASES


def with_a_scope(x: torch.Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x + 1


def test_autocast_objects() -> None:
    """lower takes them out."""
    graph = torch.jit.script(with_a_scope).graph
    assert holds(graph) == ["source", "inlined", "flat"]


def test_stock() -> None:
    """PyTorch's own operators, and others', are in any phase."""
    graph = ir.parse("""
    graph(%x : Tensor):
      %y : Tensor = aten::relu(%x)
      %z : Tensor = some::operator(%y)
      return (%z)
    """)
    assert holds(graph) == PHASES


def test_no_such_phase() -> None:
    """A misspelt phase would hold of everything."""
    graph = torch._C.parse_ir("graph(%x : Tensor):\n  return (%x)")
    with pytest.raises(ValueError, match="no phase is called 'lowerd'"):
        _C.verify(graph, "lowerd")


def test_no_such_pass() -> None:
    """And a misspelt pass would change nothing."""
    graph = torch._C.parse_ir("graph(%x : Tensor):\n  return (%x)")
    with pytest.raises(ValueError, match="no pass is called 'share_cast'"):
        _C.run_pass("share_cast", graph, {}, False)


def test_a_pass_takes_its_phase() -> None:
    """A graph that is not of the phase is not given to the pass."""
    graph = torch._C.parse_ir("""
    graph(%x : Tensor):
      %n : NoneType = prim::Constant()
      %y : Tensor = jit_amp::cast(%x, %n, %n)
      return (%y)
    """)
    with pytest.raises(RuntimeError, match="should be flat has an operator of another phase"):
        _C.run_pass("fold_constants", graph, {}, False)
