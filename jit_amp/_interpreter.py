"""A TorchScript graph, run operator by operator in Python while torch.export looks on.

What the graph does with tensors is recorded as PyTorch's own operators. What it does with
numbers, lists, dictionaries and objects is done here and now; sizes are symbols. A branch on a
number takes one side, a loop is unrolled. A branch on the value of a tensor becomes ``torch.cond``.
What cannot be said so is refused at the line of the program (``csrc/core/diagnostics.inc``, 5xx).

The graph is that of ``csrc/runtime/export.h``: flat, lowered, not frozen. What the dialect's
operators mean stands in ``csrc/core/dialect.h``.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn

import torch
from torch import SymBool, SymInt, Tensor
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import FloorDiv

from jit_amp import _C
from jit_amp._holder import Holder, is_object
from jit_amp._meanings import (
    DTYPE_OF,
    FORMAT_OF,
    LAYOUT_OF,
    NUMBER_OF,
    OF_TENSORS,
    OF_WHOLE_NUMBERS,
    PLAIN,
    SYMBOLS,
    fixed,
    for_real,
    tensor_of,
)
from jit_amp._small_sizes import COMPARISONS, depends_on_small_sizes

Frame = dict[int, Any]  # values by their number in the graph
# Of a size's expression, where sizes may be fixed instead. PyTorch takes minutes to reason about a
# product of sizes that were divided twice, such as the number of windows of a Swin Transformer.
LONGEST = 150  # parts
DIVISIONS = 4  # in a product
MOST_KNOWN = 64  # elements of a tensor
MAX_STEPS = 200_000  # of a loop whose end depends on what is known when exporting


class Raised(RuntimeError):
    """What the program itself raises for the given inputs."""


class Outside(TypeError):
    """A branch or loop as a whole changes what only the program outside of it can."""


class TooLong(RuntimeError):
    """A size has become an expression that PyTorch would reason about for hours."""


class Object:
    """An object of a TorchScript class."""

    def __init__(
        self, fields: dict[str, Any] | None = None, source: Any = None, depth: int = 0
    ) -> None:
        self.fields, self.source = fields or {}, source
        self.depth = depth  # of branches and loops as a whole that it was made in

    def get(self, name: str, holder: Holder) -> Any:
        if name not in self.fields and self.source is not None:
            self.fields[name] = holder.with_own_tensors(_own(getattr(self.source, name)))
        return self.fields[name]


@dataclass(frozen=True)
class Submodule:
    """A module of the program, as a value of the graph."""

    path: str

    def child(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


@dataclass
class Truth:
    """Whether a tensor of one element, or an expression of such, is not zero: not known."""

    of: Any


@dataclass
class Step:
    node: torch._C.Node
    run: Callable[..., Any]
    inputs: list[int]
    outputs: list[int]
    takes_truth: bool = False
    written: tuple[int, ...] = ()
    """Operands that are tensors, or hold some, and are written to."""
    is_pure: bool = False
    """Whether it is an operator of PyTorch's that gives the same for the same operands."""
    is_fixed: bool = False
    """Whether it reads what is there before any branch: attributes and constants."""
    trace: str = ""

    @property
    def writes(self) -> bool:
        """Whether it writes to tensors."""
        return bool(self.written)


@dataclass
class Code:
    """A block."""

    parameters: list[int]
    steps: list[Step] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    blocks: dict[int, list[Code]] = field(default_factory=dict)
    """Those of the steps, by the step's place."""

    def all_steps(self) -> Iterator[Step]:
        for i, step in enumerate(self.steps):
            yield step
            for block in self.blocks.get(i, ()):
                yield from block.all_steps()

    def free(self) -> set[int]:
        """The values that it reads and that are not its own."""
        return self.read() - set(self.parameters)

    def read(self) -> set[int]:
        """The values that it reads and does not make."""
        read, made = set(self.results), set[int]()
        for i, step in enumerate(self.steps):
            read.update(step.inputs)
            made.update(step.outputs)
            for block in self.blocks.get(i, ()):
                read.update(block.free())
        return read - made


@dataclass
class Closed:
    """The values that blocks read from outside, by number and flattened."""

    numbers: list[int]
    leaves: list[Any]
    spec: Any
    written: set[int] = field(default_factory=set)
    """Of the leaves, by what runs."""

    @property
    def moved(self) -> list[int]:
        """Each tensor once."""
        first = {id(leaf): i for i, leaf in reversed(list(enumerate(self.leaves)))}
        return [i for i, leaf in enumerate(self.leaves) if _is_moved(leaf) and first[id(leaf)] == i]

    @property
    def operands(self) -> tuple[Any, ...]:
        """What ``torch.cond`` and ``while_loop`` are told of; the rest is fixed."""
        return tuple(self.leaves[i] for i in self.moved)


class Interpreter:
    """Runs the graph. ``holder`` has the tensors of the module and of the graph. Where it is
    bounded, sizes do not become expressions of any length: TooLong is raised. ``found`` are values
    of attributes, by path, that the program finds in place of the module's.

    Attributes:
        left: the attributes that were read and then set to something else without tensors, by path.
            A program is what every call does only if a call that finds these does the same.
        asks_small: the program has compared sizes, and for a size of 0 or 1 the answer is another.
        records_gradients: the program has asked whether gradients are recorded, they were, and
            something depends on that.
    """

    def __init__(
        self,
        graph: torch._C.Graph,
        holder: Holder,
        is_bounded: bool = False,
        found: Mapping[str, Any] | None = None,
    ) -> None:
        self.graph, self.holder, self.is_bounded = graph, holder, is_bounded
        self.found = found or {}
        self.left: dict[str, Any] = {}
        self._left_by: dict[str, Step] = {}
        self.asks_small = False
        self.records_gradients = False
        self._depth = 0  # of branches and loops that the program holds as a whole
        self._graphs = [graph]  # nodes belong to their graph, and do not keep it
        self._last: Step | None = None
        self.code = self._compiled(graph)

    def __call__(self, arguments: Sequence[Any]) -> Any:
        self._written: dict[str, Any] = {}
        self._read: dict[str, torch._C.Node] = {}
        self._kept: dict[str, tuple[Any, Any]] = {}
        self._numbers: dict[int, tuple[Tensor, Any]] = {}
        self._remainders: dict[Any, tuple[Any, int]] = {}
        self._known: dict[int, tuple[Tensor, Tensor]] = {}
        self._old: dict[int, tuple[Tensor, str]] = {}
        self._cast_of: dict[int, tuple[Tensor, Tensor]] = {}
        self._parted: dict[int, tuple[Tensor, set[int], Step]] = {}
        self._stale: dict[int, Step] = {}
        self._wrote: set[int] = set()
        self._effects: list[Tensor] = []
        self._outside: set[int] | None = None
        self._given = [x for x in pytree.tree_leaves(arguments) if isinstance(x, Tensor)]
        self._used: set[str] = set()
        self._recast: set[str] = set()
        self._left_by.clear()
        self.holder.begin()
        values = [Submodule("")] if self.holder.module is not None else []
        frame: Frame = dict(zip(self.code.parameters, [*values, *arguments], strict=True))
        results = self._run(self.code, frame)
        for path, (value, before) in self._kept.items():
            # A list that has grown, or an object that has changed.
            is_other = not _is_same(pytree.tree_flatten(value), before)
            if path in self.found:
                is_other |= without_tensors(value) != without_tensors(self.found[path])
            if is_other:
                _C.refuse_export(self._read[path], 503, [path])
        for path, step in self._left_by.items():
            if without_tensors(self._written[path]) is None:  # by now
                self._refuse(step, 503, [path])
        self.left = {path: copy.deepcopy(self._written[path]) for path in self._left_by}
        self._use(pytree.tree_leaves(results))
        self._watch_parted(results, ())
        self._parted, self._stale, self._given = {}, {}, []
        result = results[0] if len(results) == 1 else tuple(results)
        return self.holder.end(self._forced(result) if isinstance(result, Truth) else result)

    # From nodes to steps.

    def _compiled(self, block: Any) -> Code:
        code = Code([value.unique() for value in block.inputs()])
        for node in block.nodes():
            blocks = [self._compiled(inner) for inner in node.blocks()]
            if blocks:
                code.blocks[len(code.steps)] = blocks
            code.steps.append(self._step(node, blocks))
        code.results = [value.unique() for value in block.outputs()]
        return code

    def _step(self, node: torch._C.Node, blocks: list[Code]) -> Step:
        step = Step(
            node,
            _nothing,
            [value.unique() for value in node.inputs()],
            [value.unique() for value in node.outputs()],
            trace=self.holder.trace_of(node),
        )
        kind = node.kind()
        if special := getattr(self, "_" + kind.replace("::", "_"), None):
            step.run = special(step, blocks)
        else:
            step.run = self._operator(step)
        return step

    def _operator(self, step: Step) -> Callable[..., Any]:
        node = step.node
        text = node.schema()
        if text == "(no schema)":
            meaning = OF_TENSORS.get(node.kind()) or PLAIN.get(node.kind())
            return _plainly(meaning) if meaning else self._unknown(step)
        try:
            runner, step.written, step.is_pure = _runner(text)
        except LookupError:  # a library that registers it may be loaded later
            return self._unknown(step)
        compare = COMPARISONS.get(node.kind())
        return self._comparison(runner, compare) if compare else runner

    def _comparison(
        self, runner: Callable[..., Any], compare: Callable[[Any, Any], bool]
    ) -> Callable[..., Any]:
        def run(frame: Frame, a: Any, b: Any) -> Any:
            self.asks_small |= depends_on_small_sizes(compare, a, b)
            return runner(frame, a, b)

        return run

    def _unknown(self, step: Step, reason: str = "", name: str = "") -> Callable[..., Any]:
        def run(*_: Any) -> NoReturn:
            self._refuse(step, 505, [name or step.node.kind(), reason])

        return run

    def _aten_grad(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """An exported program has no autograd of its own: torch.export raises when all is traced,
        and names no line."""
        return self._unknown(step)

    _aten_backward = _aten_grad

    def _prim_PythonOp(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        node: Any = step.node
        reason = ", which is Python that TorchScript does not compile (@torch.jit.ignore)"
        return self._unknown(step, reason, f"{node.pyname()}()")

    def _prim_ModuleContainerIndex(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """Which module is chosen is known by then, and what its method is has not been compiled."""
        return self._unknown(step)

    # Running.

    def _run(self, code: Code, frame: Frame, fixed: bool = False) -> list[Any]:
        """``fixed``: what a branch reads of the module is in the frame."""
        for step in code.steps:
            if fixed and step.is_fixed and step.outputs[0] in frame:
                continue
            operands = [frame[number] for number in step.inputs]
            if not step.takes_truth and any(isinstance(each, Truth) for each in operands):
                operands = [
                    self._forced(each) if isinstance(each, Truth) else each for each in operands
                ]
            if step.trace:
                self._last = step
                fx_traceback.set_stack_trace([step.trace])
            if self._parted or (self._depth and step.writes):
                self._watch_parted(operands, [operands[i] for i in step.written])
            try:
                made = step.run(frame, *operands)
                self._learn(step, operands, made)
                if self._old:
                    self._watch_old(step, operands, made)
                if self.is_bounded and isinstance(made, (SymInt, Tensor, list)):
                    _check_length(made)
            except (_C.AutocastError, Raised, TooLong, MemoryError, Outside):
                raise
            except Exception as error:
                self._failed(step, error)
            if len(step.outputs) == 1:
                frame[step.outputs[0]] = made
            elif step.outputs:
                frame.update(zip(step.outputs, made, strict=True))
        return [frame[number] for number in code.results]

    def _see_written(self, closed: Closed) -> None:
        """A branch or a loop has written to these tensors: their values are not known any more."""
        written = [closed.leaves[i] for i in closed.written]
        storages = {_storage(x) for x in written if isinstance(x, Tensor)}
        for known in (self._known, self._numbers):
            for key in [k for k, pair in known.items() if _storage(pair[0]) in storages]:
                del known[key]
        for x in written:
            _forget_constant(x)
        self._watch_parted((), written)

    def _part(self, step: Step, made: Sequence[Any], operands: Sequence[Any]) -> None:
        """A branch or loop as a whole gives copies where a result is what came in, or a part of
        it. ``made``: its results, each with the operands that it may be. It is not known what
        eager has where both are used and one is written to."""
        for result, sources in made:
            for source in (operands[i] for i in sources):
                for x, y in ((result, source), (source, result)):
                    self._parted.setdefault(_storage(x), (x, set(), step))[1].add(_storage(y))

    def _watch_parted(self, used: Any, written: Any) -> None:
        """Refuses what uses a tensor that is not written to here, and may be in eager."""
        storages = {_storage(x) for x in pytree.tree_leaves(used) if isinstance(x, Tensor)}
        for storage in storages & self._stale.keys():
            self._refuse_parted(self._stale[storage])
        ahead = [_storage(x) for x in pytree.tree_leaves(written) if isinstance(x, Tensor)]
        self._wrote.update(ahead)
        ahead = [storage for storage in ahead if storage in self._parted]
        reached = set(ahead)
        while ahead:
            _, others, step = self._parted[ahead.pop()]
            for other in others - reached:
                if self._outside is None:  # the program's state, and its arguments
                    state = [*self.holder.root.parameters(), *self.holder.root.buffers()]
                    self._outside = {_storage(x) for x in (*state, *self._given)}
                if other in self._outside:
                    self._refuse_parted(step)
                self._stale[other] = step
                reached.add(other)
                ahead.append(other)

    def _refuse_parted(self, step: Step) -> NoReturn:
        if step.node.kind() == "prim::Loop":
            self._refuse(step, 502, [])
        said = "its result may be another tensor of the program, and one is written to later"
        self._refuse(step, 501, [said])

    def _learn(self, step: Step, operands: list[Any], made: Any) -> None:
        """The values of a few small tensors are known: those made of numbers, as how much a
        detection model scales a picture of a fixed size. What torch.export looks on at has none."""
        if step.node.kind() in ("aten::tensor", "aten::as_tensor"):
            numbers = pytree.tree_leaves(operands[0])
            if len(numbers) > MOST_KNOWN or any(type(x) not in _NUMBERS for x in numbers):
                return
            if isinstance(made, Tensor) and made.device.type == "cpu":
                with for_real():
                    self._known[id(made)] = made, torch.tensor(operands[0], dtype=made.dtype)
            return
        self._learn_number(step, operands, made)
        if not self._known:
            return
        tensors = [x for x in pytree.tree_leaves(operands) if isinstance(x, Tensor)]
        if step.writes and tensors:
            written = {_storage(x) for x in tensors}
            self._known = {
                key: pair for key, pair in self._known.items() if _storage(pair[0]) not in written
            }
            return
        if not step.is_pure or not tensors or any(self._real(x) is None for x in tensors):
            return
        is_known = not any(isinstance(x, SYMBOLS) for x in pytree.tree_leaves(operands))
        results = pytree.tree_leaves(made)
        if is_known and all(isinstance(x, Tensor) and _is_small(x) for x in results):
            with for_real():
                given = pytree.tree_map_only(Tensor, self._real, operands)
                real = pytree.tree_leaves(step.run({}, *given))
            self._known.update(
                {id(x): (x, y) for x, y in zip(results, real, strict=True) if x.dtype is y.dtype}
            )

    def _watch_old(self, step: Step, operands: list[Any], made: Any) -> None:
        """An attribute may be replaced by itself in another dtype or on another device, as models
        do with anchors that they keep, where nothing else is done with what it was: a second call
        finds what the first has left, and comes to the same."""
        kind = step.node.kind()
        taken = [x for x in pytree.tree_leaves(operands) if id(x) in self._old]
        if kind == "aten::to" and len(taken) == 1 and taken[0] is operands[0]:
            self._cast_of[id(made)] = made, operands[0]
        elif kind not in _HANDS_ON:
            self._use(taken)

    def _use(self, values: Iterable[Any]) -> None:
        """Notes what is done with the old values of attributes."""
        for path in {self._old[id(x)][1] for x in values if id(x) in self._old}:
            self._used.add(path)
            if path in self._recast:
                _C.refuse_export(self._read[path], 503, [path])

    def _is_cast(self, value: Any, path: str) -> bool:
        """Whether a value for an attribute is what it was, in another dtype."""
        was, form = self._kept[path][1]
        leaves, same_form = pytree.tree_flatten(value)
        return form == same_form and all(
            self._cast_of.get(id(new), (None, None))[1] is old
            if isinstance(old, Tensor)
            else new == old
            for new, old in zip(leaves, was, strict=True)
        )

    def _learn_number(self, step: Step, operands: list[Any], made: Any) -> None:
        """In a trace sizes are tensors, and so is what a program computes of them. The numbers are
        computed beside them, whole ones, as those of tensors are exact."""
        if not any(isinstance(x, Tensor) and id(x) in self._numbers for x in operands):
            return
        numbers = [
            self._numbers.get(id(x), (x, None))[1] if isinstance(x, Tensor) else x for x in operands
        ]
        if step.writes:
            written = {_storage(x) for x in operands if isinstance(x, Tensor)}
            self._numbers = {
                key: pair for key, pair in self._numbers.items() if _storage(pair[0]) not in written
            }
        kind = step.node.kind()
        compute = OF_WHOLE_NUMBERS.get(kind.removesuffix("_"))
        is_out = step.writes and not kind.endswith("_")  # given a tensor to write to besides
        if (
            compute is None
            or is_out
            or not isinstance(made, Tensor)
            or made.dtype is not torch.int64
        ):
            return
        number = compute(*numbers)
        if type(number) in (int, SymInt):
            self._numbers[id(made)] = made, number

    def _real(self, x: Tensor) -> Tensor | None:
        """What it is, where that is known."""
        if known := self._known.get(id(x)):
            return known[1]
        if known_number := self._numbers.get(id(x)):
            tensor, number = known_number
            if type(number) in _NUMBERS and tensor.device.type == "cpu":
                with for_real():
                    return torch.tensor(number, dtype=tensor.dtype)
        return None

    def _refuse(self, step: Step, code: int, arguments: list[str]) -> NoReturn:
        """At the step's line; or at the last one before it that a user wrote."""
        shown = self._last if self._last and not step.trace else step
        _C.refuse_export(shown.node, code, arguments)

    def refuse_left(self) -> NoReturn:
        """A call that finds what the one before it has left does something else."""
        path, step = next(iter(self._left_by.items()))
        self._refuse(step, 503, [path])

    def _failed(self, step: Step, error: Exception) -> NoReturn:
        said = str(error).strip().splitlines()
        first = said[0] if said else type(error).__name__
        name = type(error).__name__
        if isinstance(error, GuardOnDataDependentSymNode):
            self._refuse(
                step,
                504,
                ["a decision that depends on the values of tensors, while the program is exported"],
            )
        # An operator that takes numbers alone.
        is_of_symbols = "but instead found type 'Sym" in str(error)
        if not isinstance(error, _OF_THE_PROGRAM) or name in _UNSUPPORTED or is_of_symbols:
            self._refuse(step, 505, [step.node.kind(), f" ({name}: {first})"])
        is_told = hasattr(error, "__notes__") or not hasattr(error, "add_note")  # Python 3.10
        if step.trace and not is_told:
            error.add_note(f"while the program is exported, at\n{step.trace}")
        raise error

    def _forced(self, truth: Truth) -> Any:
        """As a number: a symbol that torch.export makes for a value."""
        if not isinstance(truth.of, Tensor):
            return truth.of
        value = truth.of.item()  # of a bool it is a symbol without a `!=`
        return value if truth.of.dtype is torch.bool else value != 0

    # Constants and attributes.

    def _prim_Constant(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        node = step.node
        value = node.output().toIValue() if node.hasAttributes() else None
        step.is_fixed = True
        if isinstance(value, Tensor):
            name = self.holder.hold(value, node.output().debugName())
            if value.dim() == 0 and value.device.type == "cpu" and not value.is_complex():
                number = value.item()

                def run(*_: Any) -> Tensor:
                    tensor = self.holder.tensor(name)
                    self._numbers[id(tensor)] = (tensor, number)
                    return tensor

                return run
            return lambda *_: self.holder.tensor(name)
        plain = _own(value)
        if isinstance(plain, (list, dict)):
            return lambda *_: _own(value)
        return lambda *_: plain

    def _prim_GetAttr(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        name = step.node.s("name")
        step.is_fixed = True

        def run(_: Frame, owner: Any) -> Any:
            if isinstance(owner, Object):
                return owner.get(name, self.holder)
            if not isinstance(owner, Submodule):
                return _own(getattr(owner, name))
            path = owner.child(name)
            if self.holder.is_module(path):
                return Submodule(path)
            if path in self._written:
                return self._written[path]
            if self.holder.is_tensor(path):
                return self.holder.tensor(path)
            self._read.setdefault(path, step.node)
            if path not in self._kept:
                if path in self.found:
                    value = copy.deepcopy(self.found[path])
                else:
                    value = self.holder.with_own_tensors(_own(self.holder.attribute(path)))
                self._kept[path] = value, pytree.tree_flatten(value)
                tensors = (x for x in self._kept[path][1][0] if isinstance(x, Tensor))
                self._old.update((id(x), (x, path)) for x in tensors)
            return self._kept[path][0]

        return run

    def _prim_SetAttr(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        name = step.node.s("name")

        def run(_: Frame, owner: Any, value: Any) -> None:
            if isinstance(owner, Object):
                if owner.source is not None:  # of the module
                    self._refuse(step, 503, [name])
                if owner.depth < self._depth:
                    raise Outside("a side sets a field of an object that is there before")
                owner.fields[name] = value
                return
            path = owner.child(name)
            if self.holder.is_tensor(path) and isinstance(value, Tensor):
                before = self.holder.tensor(path)
                if value is before:  # written in place
                    return
                like = (before.dtype, before.device) == (value.dtype, value.device)
                if like and list(before.shape) == list(value.shape):
                    if self._depth:
                        raise Outside("a side assigns to an attribute")
                    self.holder.assign(path, value)
                    return
            if path in self._kept:
                now = pytree.tree_flatten(value)
                if _is_same(now, self._kept[path][1]):  # what it was
                    self._kept[path] = value, now
                    return
                if path not in self._used and self._is_cast(value, path):
                    self._recast.add(path)
                    self._written[path] = value
                    return
                value = _settled(value)
                if without_tensors(value) is not None:
                    self._left_by[path] = step
                    self._written[path] = value
                    return
            if path in self._read or self.holder.is_tensor(path):
                self._refuse(step, 503, [path])
            self._written[path] = value

        return run

    def _prim_CreateObject(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return lambda *_: Object(depth=self._depth)

    # Containers.

    def _prim_ListConstruct(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return lambda _, *values: list(values)

    def _prim_TupleConstruct(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return lambda _, *values: values

    def _prim_DictConstruct(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return lambda _, *values: dict(zip(map(fixed, values[::2]), values[1::2], strict=True))

    def _prim_ListUnpack(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        count = len(step.outputs)

        def run(_: Frame, values: Sequence[Any]) -> Any:
            if len(values) != count:
                raise ValueError(f"{len(values)} values where {count} are unpacked")
            return values[0] if count == 1 else values

        return run

    _prim_TupleUnpack = _prim_ListUnpack

    def _prim_TupleSlice(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        begin, end = step.node.i("beg"), step.node.i("end")
        return lambda _, values: values[begin:end]

    def _prim_Uninitialized(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return lambda *_: None

    def _prim_isinstance(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        kinds = step.node.tys("types")
        return lambda _, value: any(_is_of(value, kind) for kind in kinds)

    def _prim_tolist(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, x: Tensor, dim: Any, kind: Any) -> Any:
            if known := self._numbers.get(id(x)):
                return known[1]
            if (real := self._real(x)) is not None:
                return real.tolist()
            self._refuse(step, 504, ["the values of a tensor as a list"])

        return run

    # Numbers and tensors.

    def _aten_tensor(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        of_tensor = self._operator(step)

        def run(frame: Frame, data: Any, *options: Any) -> Tensor:
            if not isinstance(data, Tensor):
                return tensor_of(data, *options, may_be_constant=not self._depth)
            made: Tensor = of_tensor(frame, data, *options)
            return made

        return run

    _aten_as_tensor = _aten_tensor

    def _prim_NumToTensor(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, number: Any) -> Tensor:
            made = tensor_of(number, may_be_constant=not self._depth)
            self._numbers[id(made)] = (made, number)
            return made

        return run

    def _value_of(self, step: Step, convert: Callable[..., Any]) -> Callable[..., Any]:
        def run(_: Frame, x: Any) -> Any:
            if not isinstance(x, Tensor):
                return convert(x)
            if known := self._numbers.get(id(x)):
                return convert(known[1])
            real = self._real(x)
            return convert(x.item() if real is None else real.item())

        return run

    def _aten_Int(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return self._value_of(step, PLAIN["aten::Int"])

    def _aten_Float(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return self._value_of(step, PLAIN["aten::Float"])

    def _aten_item(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return self._value_of(step, lambda x: x)

    _aten_IntImplicit = _aten_Int
    _aten_FloatImplicit = _aten_Float
    _aten_ScalarImplicit = _aten_item

    def _aten_Bool(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        plain = PLAIN["aten::Bool"]

        def run(_: Frame, x: Any) -> Any:
            if not isinstance(x, Tensor):
                return plain(x)
            if known := self._numbers.get(id(x)):
                return bool(known[1])
            if (real := self._real(x)) is not None:
                return bool(real)
            constant = getattr(x, "constant", None)
            return bool(constant) if constant is not None else Truth(x)

        return run

    _aten_is_nonzero = _aten_Bool

    def _aten___not__(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        plain = PLAIN["aten::__not__"]
        step.takes_truth = True

        def run(_: Frame, x: Any) -> Any:
            if isinstance(x, Truth) and isinstance(x.of, Tensor):
                return Truth(torch.ops.aten.logical_not.default(x.of))
            return plain(x.of if isinstance(x, Truth) else x)

        return run

    def _aten_remainder(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """Of a size by division, which PyTorch simplifies: padding to a multiple makes of sizes
        ``size + (b - size % b) % b``."""
        plain = self._operator(step)

        def run(frame: Frame, a: Any, b: Any) -> Any:
            if not (isinstance(a, SymInt) and type(b) is int and b > 0):
                return plain(frame, a, b)
            result = a - b * (a // b)
            if isinstance(result, SymInt):
                self._remainders[result.node.expr] = (a, b)
            return result

        return run

    def _compared(self, step: Step) -> Callable[..., Any]:
        """``size % b == 0`` says more of a size than the division does."""
        plain = self._operator(step)

        def run(frame: Frame, a: Any, b: Any) -> Any:
            if isinstance(a, SymInt) and type(b) is int and a.node.expr in self._remainders:
                of, by = self._remainders[a.node.expr]
                a = of % by
            return plain(frame, a, b)

        return run

    def _aten_eq(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return self._compared(step)

    def _aten_ne(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return self._compared(step)

    def _aten__pack_padded_sequence(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return self._unknown(step, " (how long the sequences are is known at run time only)")

    def _aten__nested_tensor_from_mask(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """The fast path of nn.TransformerEncoder; what torch.export exports has other values where
        the padding is."""
        instead = "nn.TransformerEncoder(..., enable_nested_tensor=False) makes none"
        return self._unknown(step, f" (PyTorch exports no nested tensors: {instead})")

    def _aten_is_grad_enabled(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """`no_grad` asks too, to put things back."""
        uses = {use.user.kind() for value in step.node.outputs() for use in value.uses()}
        decides = bool(uses - {"prim::SetAttr", "aten::set_grad_enabled"})

        def run(*_: Any) -> bool:
            self.records_gradients |= decides and torch.is_grad_enabled()
            return torch.is_grad_enabled()

        return run

    # What runs other code.

    def _prim_fork(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        graph = step.node.g("Subgraph")
        self._graphs.append(graph)
        code = self._compiled(graph)

        def run(_: Frame, *operands: Any) -> Any:
            results = self._run(code, dict(zip(code.parameters, operands, strict=True)))
            return results[0] if len(results) == 1 else tuple(results)

        return run

    def _prim_Enter(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        graph = _C.hidden_graph(step.node)
        if graph is None:
            return self._unknown(step)
        self._graphs.append(graph)
        code = self._compiled(graph)

        def run(_: Frame, *operands: Any) -> Any:
            given = [*operands, *[None] * len(code.parameters)][: len(code.parameters)]
            return self._run(code, dict(zip(code.parameters, given, strict=True)))[0]

        return run

    _prim_Exit = _prim_Enter

    def _prim_RaiseException(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, message: Any, *kind: Any) -> NoReturn:
            where = f"\n{step.trace}" if step.trace else ""
            raise Raised(f"the program raises for these inputs: {message}{where}")

        return run

    def _prim_Loop(self, step: Step, blocks: list[Code]) -> Callable[..., Any]:
        [body] = blocks
        step.takes_truth = True

        def run(frame: Frame, most: Any, goes_on: Any, *carried: Any) -> Any:
            values = list(carried)
            turn = 0
            if isinstance(most, SymInt):
                most = self._decided(step, most, int)
            while turn < most:
                if isinstance(goes_on, Truth) and most >= _WITHOUT_END:
                    values = self._while(step, frame, body, goes_on.of, values)
                    break
                if not self._decided(step, goes_on, bool):
                    break
                if turn == MAX_STEPS:
                    self._refuse(step, 502, [])
                frame.update(zip(body.parameters, [turn, *values], strict=True))
                goes_on, *values = self._run(body, frame)
                turn += 1
            return values[0] if len(values) == 1 else values

        return run

    def _while(
        self, step: Step, frame: Frame, body: Code, goes_on: Any, carried: list[Any]
    ) -> list[Any]:
        """``torch.while_loop``, of tensors that keep their sizes and dtypes."""
        closed = self._closed(frame, [body])
        leaves, spec = pytree.tree_flatten(carried)
        tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        if body.parameters[0] in body.read() or not isinstance(goes_on, Tensor):
            self._refuse(step, 502, [])

        parts: list[list[set[int]]] = []

        def ask(condition: Tensor, *_: Any) -> Tensor:
            return condition.clone()

        def turn(_: Tensor, *operands: Any) -> tuple[Any, ...]:
            own = list(leaves)
            for i, operand in zip(tensors, operands[: len(tensors)], strict=True):
                own[i] = operand
            before = pytree.tree_unflatten(own, spec)
            values, flag = self._run_with_effects(
                body, closed, operands[len(tensors) :], [0, *before]
            )
            condition, after = values[0], pytree.tree_flatten(values[1:])
            if not _is_alike((own, spec), after):
                raise TypeError("a number or a list that it carries changes")
            if not isinstance(condition, Truth) or not isinstance(condition.of, Tensor):
                raise TypeError("its condition is no tensor")
            goes_on = torch.ops.aten.logical_or.default(_as_condition(condition.of), flag)
            moved = [goes_on, *(after[0][i] for i in tensors)]
            parts.append([_aliased(x, operands) for x in moved])
            return _without_aliases(moved, operands)

        given = (_as_condition(goes_on), *(leaves[i] for i in tensors))
        try:
            made = torch.ops.higher_order.while_loop(
                ask, turn, _without_aliases(given, given), closed.operands
            )
        except (_C.AutocastError, Raised, TooLong, MemoryError):
            raise
        except Exception:  # of any class: by torch.export, about what the loop carries
            self._refuse(step, 502, [])
        self._see_written(closed)
        self._effects.append(made[0])  # false, when it has ended
        results = list(made[1:])
        if any(each.writes for each in self.code.all_steps()):  # autograd takes no writes to them
            results = [torch.ops.aten.clone.default(x) for x in results]
        # It may run no times: then a result is what came in.
        before = [leaves[i] for i in tensors]
        of = [{i} | found for i, found in enumerate(parts[-1][1:])]
        self._part(step, list(zip(results, of, strict=True)), [*before, *closed.operands])
        for i, value in zip(tensors, results, strict=True):
            leaves[i] = value
        values: list[Any] = pytree.tree_unflatten(leaves, spec)
        return values

    def _decided(self, step: Step, value: Any, kind: type) -> Any:
        """A number that a loop needs. A size becomes fixed by it."""
        if isinstance(value, Truth):
            self._refuse(step, 502, [])
        try:
            return kind(value)
        except GuardOnDataDependentSymNode:
            self._refuse(step, 502, [])

    def _prim_If(self, step: Step, blocks: list[Code]) -> Callable[..., Any]:
        step.takes_truth = True

        def run(frame: Frame, condition: Any) -> Any:
            if not isinstance(condition, Truth):
                try:
                    taken = blocks[0] if condition else blocks[1]
                except GuardOnDataDependentSymNode:
                    condition = Truth(condition)
            if isinstance(condition, Truth):
                values = self._branches(step, frame, condition.of, blocks)
            else:
                values = self._run(taken, frame)
            return values[0] if len(values) == 1 else values

        return run

    def _branches(self, step: Step, frame: Frame, condition: Any, blocks: list[Code]) -> list[Any]:
        for side, block in enumerate(blocks):
            raises = next((s for s in block.steps if s.node.kind() == "prim::RaiseException"), None)
            if raises is not None:
                self._assert(condition, holds=side == 1, frame=frame, block=block, raises=raises)
                return self._run(blocks[1 - side], frame)
        if not any(block.steps for block in blocks) and not step.outputs:
            return []
        return self._cond(step, frame, condition, blocks)

    def _assert(self, condition: Any, holds: bool, frame: Frame, block: Code, raises: Step) -> None:
        """The program goes on only where the condition is as said."""
        message = "the program raises"
        producers = {number: s for s in block.all_steps() for number in s.outputs}
        if made := producers.get(raises.inputs[0]):
            value = made.run(frame) if made.node.kind() == "prim::Constant" else None
            message = str(value or message)
        elif raises.inputs[0] in frame:
            message = str(frame[raises.inputs[0]])
        if isinstance(condition, Tensor):
            holding = condition if holds else torch.ops.aten.logical_not.default(condition)
            torch.ops.aten._assert_async.msg(holding, message)
        else:
            check: Any = torch._check
            check(condition if holds else PLAIN["aten::__not__"](condition), lambda: message)

    def _closed(self, frame: Frame, blocks: list[Code]) -> Closed:
        """What the blocks read, by value."""
        outer: Frame = {}
        for block in blocks:
            outer.update({number: frame[number] for number in block.free() if number in frame})
            for inner in block.all_steps():
                ready = all(number in outer for number in inner.inputs)
                if inner.is_fixed and ready:
                    outer[inner.outputs[0]] = inner.run(
                        frame, *(outer[number] for number in inner.inputs)
                    )
        closed = Closed(list(outer), *pytree.tree_flatten(outer))
        self._use(closed.leaves)  # other tensors stand for them in the blocks
        self._watch_parted(closed.leaves, ())
        return closed

    def _run_closed(
        self,
        block: Code,
        closed: Closed,
        operands: Sequence[Any],
        parameters: Sequence[Any],
    ) -> list[Any]:
        """Runs the block on what stands for the closed values that are moved. It may change nothing
        outside."""
        stands_for = {
            id(closed.leaves[i]): operand for i, operand in zip(closed.moved, operands, strict=True)
        }
        own = [stands_for.get(id(leaf), leaf) for leaf in closed.leaves]
        before = (dict(self._written), dict(self._kept), dict(self._numbers))
        inside: Frame = pytree.tree_unflatten(own, closed.spec)
        inside.update(zip(block.parameters, parameters, strict=True))
        self._depth += 1
        wrote, self._wrote = self._wrote, set()
        try:
            values = self._run(block, inside, fixed=True)
            for i, operand in zip(closed.moved, operands, strict=True):
                if isinstance(operand, Tensor) and _storage(operand) in self._wrote:
                    closed.written.add(i)
            self._watch_parted(operands, ())
        finally:
            self._depth -= 1
            self._wrote = wrote
        if self._hands_on_what_changes(values, (inside, parameters)):
            raise TypeError(
                "a list or dictionary of the program comes out, and is changed somewhere"
            )
        if self._written != before[0]:
            raise TypeError("a side writes to an attribute")
        self._written, self._kept, self._numbers = before
        after = pytree.tree_flatten({number: inside[number] for number in closed.numbers})
        if not _is_same(after, (own, closed.spec)):
            raise TypeError("a side changes a list or dictionary")
        return values

    def _run_with_effects(
        self, block: Code, closed: Closed, operands: Sequence[Any], parameters: Sequence[Any] = ()
    ) -> tuple[list[Any], Tensor]:
        """What the block gives, and a false tensor that all branches and loops in it have given: of
        those whose results nobody reads, PyTorch would drop what they write. And it loads no branch
        without results."""
        before, self._effects = self._effects, []
        try:
            values = self._run_closed(block, closed, operands, parameters)
            flag: Tensor = torch.ops.aten.zeros.default([], dtype=torch.bool)
            for each in self._effects:
                flag = torch.ops.aten.logical_or.default(flag, each)
        finally:
            self._effects = before
        return values, flag

    def _hands_on_what_changes(self, values: Any, given: Any) -> bool:
        """Whether containers come out that came in: new ones stand for them afterwards."""
        ids = {id(each) for each in _containers(given)}
        return any(id(each) in ids for each in _containers(values)) and any(
            each.node.kind() in _CHANGES for each in self.code.all_steps()
        )

    def _cond(self, step: Step, frame: Frame, condition: Any, blocks: list[Code]) -> list[Any]:
        """``torch.cond``: what both sides read are its operands."""
        closed = self._closed(frame, blocks)
        if isinstance(condition, Tensor):
            condition = _as_condition(condition)
        shapes: list[tuple[Any, list[Any]]] = []
        parts: list[list[set[int]]] = []

        truths = [i for i, x in enumerate(step.node.outputs()) if str(x.type()) == "bool"]
        decided: list[list[Any]] = []  # those that a side gives as numbers

        def side(block: Code) -> Callable[..., Any]:
            def run(*operands: Any) -> tuple[Any, ...]:
                values, flag = self._run_with_effects(block, closed, operands)
                decided.append([values[i] for i in truths])
                for i, value in enumerate(values):
                    if i in truths:
                        values[i] = _as_truth(value)
                    elif isinstance(value, Truth):  # a bool that may be None
                        values[i] = self._forced(value)
                results, of = pytree.tree_flatten(values)
                shapes.append((of, [_MOVED if _is_moved(r) else r for r in results]))
                moved = [r for r in results if _is_moved(r)]
                parts.append([_aliased(r, operands) for r in moved])
                return (*_without_aliases(moved, operands), flag)

            return run

        try:
            made = torch.ops.higher_order.cond(
                condition, side(blocks[0]), side(blocks[1]), closed.operands
            )
        except (_C.AutocastError, Raised, TooLong, MemoryError):
            raise
        except Exception as error:
            said = str(error).strip().splitlines() or [""]
            self._refuse(step, 501, [f"{type(error).__name__}: {said[0]}"])
        self._see_written(closed)
        (of, plain), (of_other, plain_other) = shapes[-2:]
        try:
            is_same = of == of_other and plain == plain_other
        except Exception:  # of any class: by PyTorch, of numbers that tensors tell
            is_same = False
        if not is_same:
            self._refuse(step, 501, ["its sides give other numbers, or lists of others"])
        of_both = [a | b for a, b in zip(*parts[-2:], strict=True)]
        self._part(step, list(zip(made, of_both, strict=False)), closed.operands)
        moved_results = iter(made)
        results = [next(moved_results) if each is _MOVED else each for each in plain]
        self._effects.append(made[-1])
        values: list[Any] = pytree.tree_unflatten(results, of)
        for i, one, other in zip(truths, *decided[-2:], strict=True):
            is_decided = type(one) is bool and type(other) is bool and one == other
            values[i] = one if is_decided else Truth(values[i])
        return values

    # The dialect.

    def _jit_amp_cast(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, x: Any, cpu: Any, other: Any, accelerator: str = "cuda") -> Any:
            if isinstance(x, list):
                return [_cast(each, {"cpu": cpu, accelerator: other}) for each in x]
            return x if x is None else _cast(x, {"cpu": cpu, accelerator: other})

        return run

    def _jit_amp_widest(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, xs: list[Tensor], lower: Any, device: str) -> Any:
            result = lower
            for x in xs if lower is not None else ():
                if x.device.type == device and _is_eligible(x):
                    if x.dtype is torch.float32:
                        result = NUMBER_OF[torch.float32]
                    elif result == lower and NUMBER_OF[x.dtype] != lower:
                        raise RuntimeError(
                            "Unexpected floating ScalarType in at::autocast::prioritize"
                        )
            return result

        return run

    def _jit_amp_opt_dtype(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, x: Tensor, dtype: Any, on: bool, accelerator: str = "cuda") -> Any:
            needs = dtype is None and on and x.device.type == accelerator and _is_eligible(x)
            return NUMBER_OF[torch.float32] if needs else dtype

        return run

    def _jit_amp_known_device(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, name: str, accelerator: str = "cuda") -> None:
            if name not in ("cpu", accelerator):
                raise Raised(
                    "jit_amp: a scripted torch.autocast whose device_type is known at run time can "
                    f"be for 'cpu' or '{accelerator}'"
                )

        return run

    def _jit_amp_fail(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, message: str) -> NoReturn:
            raise Raised(f"jit_amp: {message}")

        return run

    def _jit_amp_deferred(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        number = step.node.i("value")
        step.is_fixed = True
        return lambda *_: number

    def _jit_amp_scoped(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """An operator that autocast's policies do not cover stands free of its scope where none of
        its operands is on the scope's device."""
        graph = step.node.g("Subgraph")
        self._graphs.append(graph)
        code = self._compiled(graph)
        devices = step.node.ss("devices")
        inner = next(s.node for s in code.steps if s.node.kind() != "prim::Constant")

        def run(_: Frame, *operands: Any) -> Any:
            given = operands[2 * len(devices) :]
            for i, device in enumerate(devices):
                if operands[2 * i] and _C.policy_of(inner, device) != "untouched":
                    tensors = [x for x in pytree.tree_leaves(given) if isinstance(x, Tensor)]
                    if any(x.device.type == device for x in tensors):
                        self._refuse(step, 301, [inner.kind(), device, ""])
            results = self._run(code, dict(zip(code.parameters, given, strict=True)))
            return results[0] if len(results) == 1 else results

        return run

    _jit_amp_scoped_effect = _jit_amp_scoped


# What an operator raises for operands that it does not take. Other errors, such as a TypeError of
# PyTorch's code for tensors without values, say that it cannot be exported.
_OF_THE_PROGRAM = (RuntimeError, ValueError, IndexError, KeyError)
_UNSUPPORTED = (
    "NotImplementedError",
    "UnsupportedOperatorException",
    "UnsupportedFakeTensorException",
    "DynamicOutputShapeException",
    "DataDependentOutputException",
    "UnsupportedMutationAliasingException",
)


@cache
def _runner(text: str) -> tuple[Callable[..., Any], tuple[int, ...], bool]:
    """What runs the operator of the schema, what it writes to, and whether it is pure. Raises
    LookupError where there is none."""
    schema = torch._C.parse_schema(text)
    full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    meaning = OF_TENSORS.get(full)
    if meaning is None and not _has_tensors(schema):
        meaning = PLAIN.get(full) or PLAIN.get(schema.name)
    is_writing = bool(schema.is_mutable) and _has_tensors(schema)
    writes = tuple(i for i, x in enumerate(schema.arguments) if is_writing and _is_written(x))
    if meaning is not None:
        return _plainly(meaning), writes, full in _PURE
    operator = _overload(schema)
    if operator is None:
        raise LookupError(full)
    formals = schema.arguments
    found = ((i, _converter(formal)) for i, formal in enumerate(formals))
    converts = [(i, convert) for i, convert in found if convert is not None]
    positional = sum(not formal.kwarg_only for formal in formals)
    formal_names = [formal.name for formal in formals]
    names = formal_names[positional:]
    is_conversion = full in ("aten::to.device", "aten::to.dtype", "aten::to.dtype_layout")
    keeps_results = not any(
        isinstance(r.type, (torch.IntType, torch.FloatType)) for r in schema.returns
    )

    def run(_: Frame, *operands: Any) -> Any:
        given = list(operands)
        for i, convert in converts:
            given[i] = convert(given[i])
        named = dict(zip(names, given[positional:], strict=True))
        if is_conversion and _is_as_asked(given[0], dict(zip(formal_names, given, strict=True))):
            return given[0]
        made = operator(*given[:positional], **named)
        return made if keeps_results else _numbered(made)

    is_pure = not schema.is_mutable and torch.Tag.nondeterministic_seeded not in operator.tags
    return run, writes, is_pure


def _check_length(made: Any) -> None:
    sizes = made.shape if isinstance(made, Tensor) else made if isinstance(made, list) else [made]
    for size in sizes:
        if isinstance(size, SymInt):
            expression = size.node.expr
            parts = 0
            waiting = [expression]
            while waiting and parts <= LONGEST:
                waiting.extend(waiting.pop().args)
                parts += 1
            if parts > LONGEST or (expression.is_Mul and expression.count(FloorDiv) >= DIVISIONS):
                raise TooLong("a size becomes an expression too long to reason about")


def _is_as_asked(x: Tensor, asked: dict[str, Any]) -> bool:
    """Whether ``x.to(...)`` is x, as it is in eager where nothing is to be converted."""
    plain = asked.get("layout") is None and asked.get("pin_memory") is None
    return (
        plain
        and not asked.get("copy")
        and asked.get("memory_format") is None
        and asked.get("dtype") in (None, x.dtype)
        and asked.get("device") in (None, x.device)
    )


def _is_small(x: Tensor) -> bool:
    sizes = [size for size in x.shape if not isinstance(size, SymInt)]
    return len(sizes) == x.dim() and x.device.type == "cpu" and math.prod(sizes) <= MOST_KNOWN


def _settled(value: Any) -> Any:
    """With the numbers that sizes have in the example, which torch.export guards then."""
    if isinstance(value, (list, tuple)):
        parts = [_settled(each) for each in value]
        return value if all(map(operator.is_, parts, value)) else type(value)(parts)
    if isinstance(value, Object):
        value.fields = {name: _settled(each) for name, each in value.fields.items()}
        return value
    return fixed(value)


def without_tensors(value: Any) -> Any:
    """A value that can be compared with others; None where tensors or symbols are in it."""
    if value is None or type(value) in (*_NUMBERS, str, complex):
        return (type(value), value)
    parts: Any = None
    if isinstance(value, Object) and value.source is None:
        value = value.fields
    if isinstance(value, dict):
        parts = [*map(without_tensors, value.keys()), *map(without_tensors, value.values())]
    elif isinstance(value, (list, tuple)):
        parts = [*map(without_tensors, value)]
    return None if parts is None or None in parts else (type(value), *parts)


def _nothing(*_: Any) -> None:
    return None


def _plainly(meaning: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *operands: meaning(*operands)


def _is_eligible(x: Tensor) -> bool:
    return x.is_floating_point() and x.dtype is not torch.float64


def _cast(x: Tensor, targets: dict[str, Any]) -> Tensor:
    target = targets.get(x.device.type)
    if target is None or not _is_eligible(x) or x.dtype is DTYPE_OF[target]:
        return x
    made: Tensor = torch.ops.aten.to.dtype(x, DTYPE_OF[target])
    return made


def _own(value: Any) -> Any:
    """A constant or an attribute as a value of its own."""
    if isinstance(value, (torch.dtype, torch.layout)):
        return NUMBER_OF[value]
    if isinstance(value, list):
        return [_own(each) for each in value]
    if isinstance(value, tuple):
        return tuple(_own(each) for each in value)
    if isinstance(value, dict):
        return {key: _own(each) for key, each in value.items()}
    return Object(source=value) if is_object(value) else value


def _is_of(value: Any, kind: Any) -> bool:
    name = kind.kind()
    plain = {
        "TensorType": Tensor,
        "IntType": (int, SymInt),
        "FloatType": (float, torch.SymFloat),
        "BoolType": (bool, SymBool),
        "StringType": str,
        "ListType": list,
        "TupleType": tuple,
        "DictType": dict,
        "NoneType": type(None),
    }
    if name in ("IntType", "FloatType") and isinstance(value, bool):
        return False
    if name == "OptionalType":
        return value is None or _is_of(value, kind.getElementType())
    if name == "ListType" and isinstance(value, list) and value:
        return _is_of(value[0], kind.getElementType())
    return name in plain and isinstance(value, plain[name])  # type: ignore[arg-type]


_NUMBERS = (int, float, bool)
_HANDS_ON = {
    "aten::__getitem__", "aten::append", "aten::len", "prim::GetAttr", "prim::If",
    "prim::ListConstruct", "prim::ListUnpack", "prim::Loop",
}  # fmt: skip
_PURE = ("aten::to.prim_Device", "aten::to.prim_dtype", "aten::to.prim_other")
_MOVED = object()
_WITHOUT_END = 2**62  # turns: of a while loop


def _is_moved(value: Any) -> bool:
    """Whether it is a result of ``torch.cond``; other values have to be equal on both sides."""
    return isinstance(value, (Tensor, SymInt))


def _is_same(a: tuple[list[Any], Any], b: tuple[list[Any], Any]) -> bool:
    """Whether two flattened values have the same tensors and equal numbers."""
    return a[1] == b[1] and all(
        x is y or (not isinstance(x, Tensor) and not isinstance(y, Tensor) and x == y)
        for x, y in zip(a[0], b[0], strict=True)
    )


def _is_alike(a: tuple[list[Any], Any], b: tuple[list[Any], Any]) -> bool:
    """Whether two flattened values have tensors at the same places and equal numbers."""
    return a[1] == b[1] and all(
        isinstance(y, Tensor) if isinstance(x, Tensor) else type(x) is type(y) and x == y
        for x, y in zip(a[0], b[0], strict=True)
    )


def _as_condition(x: Tensor) -> Tensor:
    if x.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    x = x.reshape(())
    return x if x.dtype is torch.bool else torch.ops.aten.ne.Scalar(x, 0)


def _without_aliases(values: Sequence[Any], operands: Sequence[Any]) -> tuple[Any, ...]:
    """With copies in place of tensors that share memory with an operand."""
    clone: Any = torch.ops.aten.clone.default
    return tuple(clone(x) if _aliased(x, operands) else x for x in values)


def _forget_constant(x: Any) -> None:
    """The value that torch.export knows of a tensor made of numbers
    (torch/_subclasses/fake_tensor.py)."""
    inner = getattr(x, "elem", x)
    if isinstance(inner, Tensor) and torch._is_functional_tensor(inner):
        inner = torch._from_functional_tensor(inner)
    if getattr(inner, "constant", None) is not None:
        inner.constant = None


def _as_truth(value: Any) -> Tensor:
    if isinstance(value, Truth) and isinstance(value.of, Tensor):
        return _as_condition(value.of)
    if type(value) is bool:
        made: Tensor = torch.ops.aten.full.default([], value, dtype=torch.bool)
        return made
    raise TypeError("a condition that sizes and values decide together")


def _containers(value: Any) -> Iterator[Any]:
    """Lists and dictionaries that can be changed, however deep."""
    if isinstance(value, (list, dict)):
        yield value
    if isinstance(value, (list, dict, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _containers(each)


_CHANGES = frozenset(
    f"aten::{name}"
    for name in (
        "_set_item", "append", "insert", "extend", "pop", "clear", "Delete", "reverse", "sort",
        "remove", "update", "setdefault", "popitem", "add_",
    )
)  # fmt: skip


def _aliased(x: Any, operands: Sequence[Any]) -> set[int]:
    """Which operands share memory with it."""
    tensors = [(i, y) for i, y in enumerate(operands) if isinstance(y, Tensor)]
    return {i for i, y in tensors if isinstance(x, Tensor) and _storage(x) == _storage(y)}


def _storage(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def _numbered(made: Any) -> Any:
    """dtypes as the numbers that they are in TorchScript."""
    return NUMBER_OF.get(made, made) if isinstance(made, (torch.dtype, torch.layout)) else made


def _is_written(argument: Any) -> bool:
    info = argument.alias_info
    return info is not None and (info.is_write or "!" in str(argument))


def _has_tensors(schema: Any) -> bool:
    return any("Tensor" in str(value.type) for value in (*schema.arguments, *schema.returns))


def _overload(schema: Any) -> Any:
    """PyTorch's operator; for indices that may be None, what scripting writes another one for."""
    namespace, _, name = schema.name.partition("::")
    overload = schema.overload_name or "default"
    overload = {"Tensor_hacked_twin": "Tensor", "hacked_twin": "default"}.get(overload, overload)
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return getattr(packet, overload, None)


def _converter(formal: Any) -> Callable[[Any], Any] | None:
    kind = str(formal.real_type)
    table: dict[int, Any] | None = None
    if "ScalarType" in kind:
        table = DTYPE_OF
    elif "Layout" in kind:
        table = LAYOUT_OF
    elif "MemoryFormat" in kind:
        table = FORMAT_OF
    if table is None:
        return None
    known = table
    return lambda value: known[value] if isinstance(value, int) else value
