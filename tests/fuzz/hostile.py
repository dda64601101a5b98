"""Hostile graphs: valid programs' graphs, mutated, given to jit_amp.

The passes see whatever graph there is. Each case takes the graph of a program of seeds.py, changes
it at random and lowers it. Either that is refused with AutocastError and leaves the function as it
was, or three calls, outside and inside an ambient autocast, do what the unlowered graph does. Cases
run in processes of their own, so that a crash or a hang is one case's.

What the unlowered graph does: its scopes become calls of Python that enter and leave
torch.autocast, and the dispatcher does the rest, as in eager.

    scripts/fuzz --graphs N --seed S
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import jit_amp

from . import seeds, workers

AUTOCAST = "torch.amp.autocast_mode.autocast"
AMBIENTS: list[Callable[[], Any]] = [
    contextlib.nullcontext,
    lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    lambda: torch.autocast("cpu", enabled=False),
]
# By the numbers that TorchScript has for them (c10/core/ScalarType.h).
_DTYPES = dict(
    enumerate((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16))
) | {6: torch.float32, 7: torch.float64, 9: torch.complex64, 11: torch.bool, 15: torch.bfloat16}
# What PyTorch says of a graph that it cannot compile, also where no call gets to the fault.
NOT_COMPILED = ("INTERNAL ASSERT", "Schema not found for node")
CASES = workers.Cases("fuzz.hostile", "graphs", ("mutate", "reference"))


# The reference.

_made: dict[int, torch.autocast] = {}
_open: list[torch.autocast] = []


@torch.jit.ignore
def py_make(
    i: int, device: str, dtype: int | None, enabled: bool, cache_enabled: bool | None
) -> None:
    kind = None if dtype is None else _DTYPES[dtype]
    if i in _made:
        _made[i].__init__(device, kind, enabled, cache_enabled)  # type: ignore[misc]
    else:
        _made[i] = torch.autocast(device, kind, enabled, cache_enabled)


@torch.jit.ignore
def py_enter(i: int) -> None:
    _open.append(_made[i])
    _made[i].__enter__()


@torch.jit.ignore
def py_exit(i: int) -> None:
    _open.remove(_made[i])
    _made[i].__exit__(None, None, None)


def make_enter_exit(i: int, device: str, dtype: int | None, on: bool, cache: bool | None):
    py_make(i, device, dtype, on, cache)
    py_enter(i)
    py_exit(i)


def nodes_of(graph: Any) -> list[Any]:
    """All nodes of a graph, its blocks and its forks, in program order."""
    found = []
    for node in list(graph.nodes()):
        found.append(node)
        for block in node.blocks():
            found += nodes_of(block)
        if node.kind() == "prim::fork":
            found += nodes_of(node.g("Subgraph"))
    return found


def is_scope(value: Any) -> bool:
    return AUTOCAST in str(value.type())


def reference(graph: Any) -> Any:
    """A function that does what `graph` says, with its scopes entered in Python.

    None for graphs whose autocast objects are used for anything but scopes: Python cannot stand for
    them. None too for forks: after a wait, Python may leave a scope on another thread.
    """
    copy = graph.copy()
    python = [
        n for n in nodes_of(torch.jit.script(make_enter_exit).graph) if n.kind() == "prim::PythonOp"
    ]
    objects: dict[Any, int] = {}
    scaffold = []
    for node in nodes_of(copy):
        if node.kind() == "prim::fork":
            return None
        uses = [v for v in [*node.inputs(), *node.outputs()] if is_scope(v)]
        if not uses:
            continue
        if node.kind() == "prim::CreateObject":
            objects[node.output().unique()] = len(objects)
        elif node.kind() not in ("prim::CallMethod", "prim::Enter", "prim::Exit"):
            return None
        scaffold.append(node)
    for node in scaffold:
        if node.kind() == "prim::CreateObject":
            continue
        number = objects.get(node.inputsAt(0).unique())
        if number is None or any(is_scope(v) for v in list(node.inputs())[1:]):
            return None
        copy.setInsertPoint(node)
        i = copy.insertConstant(number)
        arguments = [i]
        if node.kind() == "prim::CallMethod":
            if node.s("name") != "__init__" or node.inputsSize() != 5:
                return None
            arguments += list(node.inputs())[1:]
        kind = {"prim::CallMethod": 0, "prim::Enter": 1, "prim::Exit": 2}[node.kind()]
        operands = iter(arguments)
        copy.insertNode(copy.createClone(python[kind], lambda _, operands=operands: next(operands)))
        for output in node.outputs():
            if output.uses():
                if kind == 1 and is_scope(output):
                    objects[output.unique()] = number
                else:
                    return None
    for node in reversed(scaffold):
        node.destroy()
    copy.lint()
    return torch._C._create_function_from_graph("reference", copy)


@contextlib.contextmanager
def as_written() -> Iterator[None]:
    """PyTorch runs graphs as they are: no autocast pass, no reordering."""
    before = torch._C._jit_set_autocast_mode(False)
    try:
        with torch.jit.optimized_execution(False):
            yield
    finally:
        torch._C._jit_set_autocast_mode(before)
        while _open:
            _open.pop().__exit__(None, None, None)
        _made.clear()


def drops_what_raises(graph: Any) -> bool:
    """Whether the reference runs once PyTorch has removed what no result rests on."""
    copy = graph.copy()
    try:
        torch._C._jit_pass_dce(copy)
        with as_written():
            return outcome_of(reference(copy))[0] == "result"
    except RuntimeError:
        return False


# The mutations: each changes the graph somewhere, or does nothing.


def move(graph: Any, rng: random.Random) -> None:
    node, target = rng.choice(nodes_of(graph)), rng.choice(nodes_of(graph))
    if node is not target:
        (node.moveBefore if rng.random() < 0.5 else node.moveAfter)(target)


def move_scope(graph: Any, rng: random.Random) -> None:
    scopes = [n for n in nodes_of(graph) if n.kind() in ("prim::Enter", "prim::Exit")]
    if scopes:
        rng.choice(scopes).moveBefore(rng.choice(nodes_of(graph)))


def double(graph: Any, rng: random.Random) -> None:
    nodes = nodes_of(graph)
    scopes = [n for n in nodes if any(is_scope(v) for v in n.inputs())]
    node = rng.choice(scopes if scopes and rng.random() < 0.7 else nodes)
    graph.createClone(node, lambda value: value).insertBefore(rng.choice(nodes))


def drop(graph: Any, rng: random.Random) -> None:
    unused = [n for n in nodes_of(graph) if not n.hasUses() and n.kind() != "prim::Return"]
    if unused:
        rng.choice(unused).destroy()


def values_of(graph: Any) -> list[Any]:
    return [*graph.inputs(), *(v for n in nodes_of(graph) for v in n.outputs())]


def replace_input(graph: Any, rng: random.Random) -> None:
    nodes = [n for n in nodes_of(graph) if n.inputsSize()]
    node = rng.choice(nodes)
    slot = rng.randrange(node.inputsSize())
    old = node.inputsAt(slot)
    same = [v for v in values_of(graph) if str(v.type()) == str(old.type())]
    node.replaceInput(slot, rng.choice(same if rng.random() < 0.8 else values_of(graph)))


def arguments(graph: Any, rng: random.Random) -> None:
    """One argument of a scope more, less, or another."""
    inits = [n for n in nodes_of(graph) if n.kind() == "prim::CallMethod"]
    if not inits:
        return
    node = rng.choice(inits)
    kind = rng.randrange(4)
    if kind == 0:
        node.removeInput(rng.randrange(node.inputsSize()))
    elif kind == 1:
        node.addInput(rng.choice(values_of(graph)))
    elif kind == 2:
        node.s_("name", rng.choice(["__enter__", "__exit__", "__call__", "nothing"]))
    else:
        graph.setInsertPoint(node)
        value: Any = rng.choice([True, False, 5, 15, 6, 3, 999, -1, None, "cpu", "cuda", "xyz", ""])
        node.replaceInput(rng.randrange(node.inputsSize()), graph.insertConstant(value))


def retype(graph: Any, rng: random.Random) -> None:
    tensor = torch._C.TensorType.get()
    types = [
        tensor,
        torch._C.IntType.get(),
        torch._C.BoolType.get(),
        torch._C.AnyType.get(),
        torch._C.OptionalType(tensor),
        torch._C.ListType(tensor),
        torch._C.TupleType([tensor, tensor]),
        *(v.type() for v in values_of(graph) if is_scope(v)),
    ]
    rng.choice(values_of(graph)).setType(rng.choice(types))


def contain(graph: Any, rng: random.Random) -> None:
    """An object in a tuple or a list, and out of it again."""
    objects = [v for v in values_of(graph) if is_scope(v)]
    if not objects:
        return
    value = rng.choice(objects)
    if rng.random() < 0.5:
        pack = graph.create("prim::TupleConstruct", [value], 1)
        pack.output().setType(torch._C.TupleType([value.type()]))
        unpack = graph.create("prim::TupleUnpack", [pack.output()], 1)
    else:
        pack = graph.create("prim::ListConstruct", [value], 1)
        pack.output().setType(torch._C.ListType(value.type()))
        unpack = graph.create("prim::ListUnpack", [pack.output()], 1)
    unpack.output().setType(value.type())
    users = [u.user for u in value.uses()]
    user = rng.choice(users) if users else value.node()
    pack.insertBefore(user)
    unpack.insertBefore(user)
    for slot, operand in enumerate(list(user.inputs())):
        if operand.unique() == value.unique():
            user.replaceInput(slot, unpack.output())


def return_something(graph: Any, rng: random.Random) -> None:
    graph.return_node().replaceInput(0, rng.choice(values_of(graph)))


def erase_block_output(graph: Any, rng: random.Random) -> None:
    branches = [n for n in nodes_of(graph) if n.kind() in ("prim::If", "prim::Loop")]
    if branches:
        block = rng.choice(list(rng.choice(branches).blocks()))
        block.registerOutput(rng.choice(values_of(graph)))


MUTATIONS = [
    move,
    move_scope,
    move_scope,
    double,
    double,
    drop,
    drop,
    replace_input,
    arguments,
    arguments,
    retype,
    contain,
    return_something,
    erase_block_output,
]


# One case.


@dataclass
class Case:
    number: int
    seed: str
    mutations: list[str]
    graph: Any


def make_case(number: int, seed: int) -> Case | None:
    """The case of that number, None if its graph is not one that PyTorch accepts."""
    rng = random.Random(f"{seed}:{number}")
    program = seeds.SEEDS[number % len(seeds.SEEDS)]
    graph = torch.jit.script(program).graph.copy()
    names = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        mutation = rng.choice(MUTATIONS)
        try:
            mutation(graph, rng)
            names.append(mutation.__name__)
            graph.lint()
        except RuntimeError:  # not a graph any more
            return None
    return Case(number, program.__name__, names, graph)


def inputs() -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    return (*(torch.randn(4, 4, generator=generator) for _ in range(2)), True, 3)


def outcome_of(function: Callable[..., Any]) -> tuple[str, Any]:
    before = _state()
    try:
        result: tuple[str, Any] = ("result", function(*inputs()))
    except Exception as error:
        return "raised", str(error)
    if _state() != before:
        return "left another state behind", _state()
    return result


def _state() -> tuple[Any, ...]:
    return tuple(
        (torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")
    )


def same(actual: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return (
            isinstance(actual, torch.Tensor)
            and actual.dtype == expected.dtype
            and actual.shape == expected.shape
            and torch.equal(actual.nan_to_num(), expected.nan_to_num())
        )
    if isinstance(expected, (tuple, list)):
        return (
            type(actual) is type(expected)
            and len(actual) == len(expected)
            and all(map(same, actual, expected))
        )
    return type(actual) is type(expected) and (actual == expected or expected is not expected)


def judge(case: Case, stage: Callable[[str], None]) -> str:
    """What came of it; anything that begins with "BAD" is a bug of jit_amp's."""
    stage("lower")
    function = torch._C._create_function_from_graph("case", case.graph)
    text = str(case.graph)
    try:
        lowered = jit_amp.script(function)
    except jit_amp.AutocastError as error:
        if "INTERNAL ASSERT" in str(error):
            return f"BAD internal assert in the refusal: {error}"
        if str(function.graph) != text:
            return "BAD a refused function changed"
        return "refused: " + str(error).splitlines()[0][:90]
    except Exception as error:
        lowered = None
        failure = f"{type(error).__name__}: {error}"
    if str(function.graph) != text:
        return "BAD a lowered function's original changed"
    stage("reference")
    try:
        plain = reference(case.graph)
    except RuntimeError:
        plain = None
    results = []
    if plain is not None:
        for ambient in AMBIENTS:
            with ambient(), as_written():
                results.append(outcome_of(plain))
    if lowered is None:
        if results and all(kind == "raised" for kind, _ in results):
            return "neither compiles nor runs"
        return f"BAD {failure}"
    stage("run")
    for ambient, expected in zip(AMBIENTS, results, strict=False):
        for call in range(3):
            with ambient():
                state = _state()
                actual = outcome_of(lowered)
                if _state() != state:
                    return f"BAD call {call} left another state behind"
            if expected[0] == "raised" and any(text in str(expected[1]) for text in NOT_COMPILED):
                return "PyTorch's own passes fail on it"
            if actual[0] != expected[0]:
                if actual[0] == "result" and drops_what_raises(case.graph):
                    return "PyTorch drops what would raise"
                return f"BAD call {call}: {actual}, unlowered {expected}"
            if actual[0] == "result" and not same(actual[1], expected[1]):
                return f"BAD call {call} differs"
            if "INTERNAL ASSERT" in str(actual[1]) and "INTERNAL ASSERT" not in str(expected[1]):
                return f"BAD internal assert: {actual[1]}"
    if not results:
        for _ in range(3):
            outcome_of(lowered)
        return "runs, nothing to compare with"
    return "agrees" if results[0][0] == "result" else "both raise"


def judged(seed: int) -> Callable[[int, workers.Stage], str]:
    """What comes of a case, by its number."""

    def judge_number(number: int, stage: workers.Stage) -> str:
        stage("mutate")
        case = make_case(number, seed)
        return "not a graph" if case is None else judge(case, stage)

    return judge_number


def show(number: int, seed: int, stage: workers.Stage) -> None:
    """Prints one case's graph, and runs it."""
    case = make_case(number, seed)
    print(case and f"{case.seed}, {case.mutations}\n{case.graph}")
    if case:
        print(judge(case, stage))


if __name__ == "__main__":
    workers.main(CASES, "Gives mutated graphs to jit_amp.", judged, show)
